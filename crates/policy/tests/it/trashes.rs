//! What is removed below a directory with a trash is kept there, by the commit that removes it.

use inode::{Caller, FsError, NodeId};
use ops::posix::lookup;
use policy::trash;
use vfs::WalkControl;

use crate::support::Volume;

/// Names in the trash of a directory.
fn kept(volume: &Volume, dir: NodeId) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let listed = volume.fs.trash_list(&Caller::root(), (dir, &[]), &mut |removed| {
        names.extend(removed.path.last().cloned());
        WalkControl::Continue
    });
    listed.expect("the trash is listed");
    names
}

#[test]
fn removed_file_is_kept_in_the_trash_until_that_is_off() {
    let mut volume = Volume::new();
    let root = Caller::root();
    let dir = volume.mkdir(NodeId::ROOT, b"kept");
    let node = volume.create(dir, b"a").expect("a new name");
    volume.create(NodeId::ROOT, b"beside").expect("a new name");
    volume.fs.trash_set(&root, dir, Some(3600)).expect("root turns it on");
    volume.unlink(dir, b"a").expect("it is there");
    assert_eq!(kept(&volume, dir), [b"a"]);
    let found = lookup::lookup(&volume.fs, &root, dir, b"a");
    assert!(matches!(found, Err(FsError::NotFound)), "it has another name now");
    assert!(volume.fs.nodes.location(node).is_some(), "who holds it finds it there");
    // In memory it would be forgotten.
    volume.reopen();
    assert_eq!(kept(&volume, dir), [b"a"]);
    assert_eq!(
        volume.fs.trash_get(dir).expect("it is read").map(|one| one.keep_seconds),
        Some(3600)
    );
    volume.unlink(NodeId::ROOT, b"beside").expect("it is there");
    assert_eq!(kept(&volume, dir), [b"a"], "only what is below the directory is kept");
    volume.fs.trash_set(&root, dir, None).expect("root turns it off");
    volume.create(dir, b"b").expect("a new name");
    volume.unlink(dir, b"b").expect("it is there");
    volume.fs.trash_set(&root, dir, Some(3600)).expect("root turns it on");
    assert_eq!(kept(&volume, dir), [b"a"], "what was removed meanwhile is gone");
}

#[test]
fn nothing_is_made_or_moved_into_a_trash() {
    let volume = Volume::new();
    let dir = volume.mkdir(NodeId::ROOT, b"kept");
    volume.fs.trash_set(&Caller::root(), dir, Some(3600)).expect("root turns it on");
    volume.create(dir, b"a").expect("a new name");
    volume.unlink(dir, b"a").expect("it is there");
    let found = lookup::lookup(&volume.fs, &Caller::root(), dir, trash::NAME);
    let inside = found.expect("the first removal makes it").node;
    let refused = volume.create(inside, b"new");
    assert!(matches!(refused, Err(FsError::NotPermitted(_))), "{refused:?}");
}
