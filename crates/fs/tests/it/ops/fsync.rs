//! `fsync` and `sync_all`.

use fs::{FileSystem, SyncScope};
use inode::Caller;
use store::Durable;

use crate::support::{ROOT, volume};

#[test]
fn fsync_makes_all_before_it_durable() {
    let v = volume();
    let file = v.file(ROOT, "f");
    assert!(v.store.durable() < v.store.last_commit());
    v.fs.fsync(file.node, SyncScope::Data).expect("a sync");
    assert_eq!(v.store.durable(), v.store.last_commit());
    v.fs.unlink(&Caller::root(), ROOT, b"f").expect("the name");
    v.fs.sync_all().expect("a sync");
    assert_eq!(v.store.durable(), v.store.last_commit());
}
