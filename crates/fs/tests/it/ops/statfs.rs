//! `statfs`.

use fs::FileSystem;

use crate::support::{ROOT, volume};

#[test]
fn room_is_the_mediums_and_inodes_are_counted() {
    let v = volume();
    let before = v.fs.statfs().expect("room");
    v.file(ROOT, "f");
    let after = v.fs.statfs().expect("room");
    assert!(after.blocks > 0 && after.blocks_free <= after.blocks);
    assert_eq!(after.name_bytes_max, 255);
    let used = |room: fs::StatFs| room.inodes - room.inodes_free;
    assert_eq!(used(after), used(before) + 1);
}
