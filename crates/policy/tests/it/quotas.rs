//! A limit refuses what exceeds it, and charges are part of the commit that they are for.

use inode::{FsError, NodeId};
use volume::QuotaLimits;

use crate::support::Volume;

/// Gives a directory a limit of inodes.
fn limit(volume: &Volume, dir: NodeId, inodes: u64) {
    let _setting = volume.fs.quotas.setting();
    let limits = QuotaLimits { inodes: Some(inodes), bytes: None };
    volume.fs.set_limits(dir, limits.into()).expect("root sets limits of a directory");
}

/// Inodes that are charged to a directory's limit.
fn charged(volume: &Volume, dir: NodeId) -> u64 {
    volume.fs.quota_get(dir).expect("it is read").expect("it has a limit").inodes
}

#[test]
fn change_over_a_limit_is_refused_whole_and_a_removal_makes_space() {
    let volume = Volume::new();
    let dir = volume.mkdir(NodeId::ROOT, b"limited");
    limit(&volume, dir, 3);
    for name in [b"a", b"b"] {
        volume.create(dir, name).expect("below the limit");
    }
    let before = volume.all();
    assert!(matches!(volume.create(dir, b"c"), Err(FsError::QuotaExceeded)));
    assert!(volume.all() == before, "nothing of a plan that is refused is executed");
    volume.create(NodeId::ROOT, b"beside").expect("only the directory is limited");
    volume.unlink(dir, b"a").expect("it is there");
    volume.create(dir, b"c").expect("a removal gives its charge back");
    assert!(matches!(volume.create(dir, b"d"), Err(FsError::QuotaExceeded)));
}

#[test]
fn charges_are_those_of_the_store_after_an_opening() {
    let mut volume = Volume::new();
    let dir = volume.mkdir(NodeId::ROOT, b"limited");
    limit(&volume, dir, 10);
    let below = volume.mkdir(dir, b"below");
    for name in [b"a", b"b", b"c"] {
        volume.create(below, name).expect("below the limit");
    }
    volume.unlink(below, b"b").expect("it is there");
    let before = charged(&volume, dir);
    // The directory itself, the one below it and two files.
    assert_eq!(before, 4);
    volume.reopen();
    assert_eq!(charged(&volume, dir), before);
}
