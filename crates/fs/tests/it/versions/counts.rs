//! What `status` counts: files and bytes of all that users see, clones included.

use fs::FileSystem;
use inode::NodeId;

use super::{filled, forget, home, root, settle};
use crate::support::{Volume, volume};

fn clone(v: &Volume, source: NodeId, name: &str) -> NodeId {
    v.fs.clone_dir(&root(), source, home(), name.as_bytes()).expect("a clone");
    v.find(home(), name).expect("the clone").node
}

/// Files and bytes, when all is counted.
fn counts(v: &Volume) -> (u64, u64) {
    settle(v);
    let status = v.fs.status().expect("a status");
    assert_eq!(status.counting, 0, "background work counts every clone");
    (status.files, status.bytes)
}

#[test]
fn a_clone_counts_its_initial_state_and_later_changes() {
    let v = volume();
    let (files, bytes) = counts(&v);
    let dir = filled(&v, home(), "d", 5);
    let each = 3;
    filled(&v, dir, "e", 2);
    let hard = v.find(dir, "f0").expect("a file").node;
    v.fs.link(&root(), hard, dir, b"g0").expect("a link");
    let one = (files + 9, bytes + 7 * each);
    assert_eq!(counts(&v), one);
    let copy = clone(&v, dir, "c");
    // Before the background step reached it, the clone changes.
    v.fs.unlink(&root(), copy, b"f1").expect("a file");
    let more = v.file(copy, "more").node;
    v.write(more, 0, &[7; 100]);
    forget(&v, more);
    assert_eq!(counts(&v), (one.0 + 9, one.1 + 7 * each - each + 100));
    v.fs.unlink(&root(), copy, b"f2").expect("a file");
    assert_eq!(counts(&v), (one.0 + 8, one.1 + 7 * each - 2 * each + 100));
    forget(&v, copy);
    v.fs.rmr(&root(), home(), b"c").expect("a clone");
    assert_eq!(counts(&v), one);
}

#[test]
fn a_rollback_recounts_the_restored_files_without_snapshots() {
    let v = volume();
    let dir = filled(&v, home(), "d", 5);
    let before = counts(&v);
    v.fs.snapshot_create(&root(), dir, b"s").expect("a snapshot");
    assert_eq!(counts(&v), before);
    v.fs.unlink(&root(), dir, b"f1").expect("a file");
    filled(&v, dir, "later", 3);
    forget(&v, dir);
    v.fs.rollback(&root(), dir, b"s").expect("a roll-back");
    assert_eq!(counts(&v), before);
}

/// Three sparse files of 4 EiB are more than 63 bits, and anybody may make them.
#[test]
fn uncountable_sizes_stop_nothing() {
    let v = volume();
    let dir = filled(&v, home(), "d", 0);
    for name in ["one", "two", "three"] {
        let file = v.file(dir, name).node;
        let changes = inode::SetAttr { size: Some(1 << 62), ..inode::SetAttr::default() };
        v.fs.setattr(&root(), file, &changes).expect("a sparse file");
        forget(&v, file);
    }
    for name in ["c", "e", "f"] {
        clone(&v, dir, name);
    }
    let (files, _) = counts(&v);
    assert!(files >= 16, "{files}");
    let mut proceed = |_, _| std::ops::ControlFlow::Continue(());
    let report = v.fs.check_volume(&mut proceed).expect("a report");
    assert!(report.is_clean(), "{:?}", report.problems);
}
