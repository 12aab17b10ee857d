//! `forget`: an inode without holders and names is removed.

use fs::FileSystem;
use inode::{Caller, FsError};

use crate::support::{ROOT, refused, volume};

#[test]
fn a_node_is_held_as_often_as_it_was_looked_up() {
    let v = volume();
    let file = v.file(ROOT, "f");
    v.find(ROOT, "f").expect("the file");
    assert_eq!(v.fs.status().expect("counters").nodes, 1);
    v.fs.forget(file.node, 1);
    assert_eq!(v.fs.status().expect("counters").nodes, 1);
    v.fs.forget(file.node, 1);
    assert_eq!(v.fs.status().expect("counters").nodes, 0);
    refused(v.fs.getattr(&Caller::root(), file.node), &FsError::Stale);
    v.fs.forget(file.node, 7);
}

#[test]
fn extents_of_a_forgotten_orphan_are_released_in_the_background() {
    let v = volume();
    let file = v.file(ROOT, "f");
    v.write(file.node, 0, &vec![7; 100_000]);
    v.fs.unlink(&Caller::root(), ROOT, b"f").expect("the name");
    assert_eq!(v.read(file.node)[..3], [7; 3]);
    v.write(file.node, 100_000, &[8; 10]);
    v.fs.forget(file.node, 1);
    while v.fs.background_step(100).expect("a step").more {}
    assert_eq!(v.store.dump(store::TreeId(32)).expect("the tree").len(), 1);
    let orphans = v.store.dump(store::TreeId(16)).expect("the tree");
    assert!(orphans.iter().all(|(key, _)| key[0] != b'O'), "no orphan is left");
}

#[test]
fn an_orphan_with_extents_is_found_after_a_crash() {
    let v = volume();
    let file = v.file(ROOT, "f");
    v.write(file.node, 0, &vec![7; 100_000]);
    v.fs.unlink(&Caller::root(), ROOT, b"f").expect("the name");
    // The volume is opened again without a word of the first owner.
    let again = v.reopened();
    while again.background_step(100).expect("a step").more {}
    assert_eq!(v.store.dump(store::TreeId(32)).expect("the tree").len(), 1);
}
