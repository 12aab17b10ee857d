//! `statfs`.

use fs::{FileSystem, QuotaLimits};
use inode::Caller;

use crate::support::{ROOT, volume};

#[test]
fn free_space_is_the_disks_and_inodes_are_counted() {
    let v = volume();
    let before = v.fs.statfs(ROOT).expect("space");
    v.file(ROOT, "f");
    let after = v.fs.statfs(ROOT).expect("space");
    assert!(after.blocks > 0 && after.blocks_free <= after.blocks);
    assert_eq!(after.name_bytes_max, 255);
    let used = |space: fs::StatFs| space.inodes - space.inodes_free;
    assert_eq!(used(after), used(before) + 1);
}

#[test]
fn statfs_below_a_quota_shows_its_limits_and_the_remainder() {
    let v = volume();
    let dir = v.dir(ROOT, "d").node;
    let limits = QuotaLimits { inodes: Some(10), bytes: Some(1 << 20) };
    v.fs.quota_set(&Caller::root(), dir, limits).expect("a quota is set");
    let file = v.file(dir, "f").node;
    v.write(file, 0, &[1; 10_000]);
    for node in [dir, file] {
        let space = v.fs.statfs(node).expect("space");
        assert_eq!((space.inodes, space.inodes_free), (10, 8));
        assert_eq!((space.blocks_free, space.blocks_available), (253, 253), "rounded down");
        assert_eq!(space.blocks, 256);
    }
    let around = v.fs.statfs(ROOT).expect("space");
    assert!(around.blocks_free > 253 && around.inodes_free > 8);
    let limits = QuotaLimits { inodes: Some(1), bytes: Some(1) };
    v.fs.quota_set(&Caller::root(), dir, limits).expect("a quota is set");
    let space = v.fs.statfs(dir).expect("space");
    assert_eq!((space.inodes_free, space.blocks_free), (0, 0));
    assert_eq!((space.inodes, space.blocks), (2, 3), "what is held is more than the limit");
}
