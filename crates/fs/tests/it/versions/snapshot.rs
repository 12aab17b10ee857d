//! Snapshots: what they show, permissions, and what happens to them.

use format::key;
use fs::FileSystem;
use inode::{FsError, NodeId};
use store::{Batch, Commit, Read, TreeId};

use super::{contents, filled, forget, give, home, root, settle, snapshot_root};
use crate::support::{refused, user, volume};

#[test]
fn a_snapshot_shows_its_state_after_any_later_change() {
    let v = volume();
    let dir = filled(&v, home(), "d", 5);
    let large = v.file(dir, "large").node;
    let old: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    v.write(large, 0, &old);
    let before = contents(&v, dir);
    let attr = v.fs.getattr(&root(), dir).expect("a directory");
    v.tick();
    v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
    v.write(large, 1000, &vec![7; 200_000]);
    v.fs.unlink(&root(), dir, b"f1").expect("a file");
    v.fs.rename(&root(), (dir, b"f2"), (dir, b"f3"), fs::RenameMode::Replace).expect("files");
    filled(&v, dir, "new", 3);
    settle(&v);
    let shown = snapshot_root(&v, dir, "one");
    assert_eq!(contents(&v, shown), before);
    let then = v.fs.getattr(&root(), shown).expect("the snapshot's root");
    assert_eq!((then.mtime, then.size, then.nlink), (attr.mtime, attr.size, attr.nlink));
    let kept = v.find(shown, "large").expect("the file").node;
    let mut bytes = vec![0; old.len()];
    v.fs.read(&root(), kept, 0, &mut bytes).expect("its contents");
    assert!(bytes == old, "contents changed");
}

#[test]
fn nothing_in_a_snapshot_changes() {
    let v = volume();
    let dir = filled(&v, home(), "d", 1);
    v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
    let shown = snapshot_root(&v, dir, "one");
    let read_only = FsError::ReadOnly(String::new());
    let file = v.find(shown, "f0").expect("the file").node;
    refused(v.fs.write(&root(), file, 0, b"x"), &read_only);
    refused(v.file_as(&root(), shown, "new", 0o644), &read_only);
    refused(v.fs.unlink(&root(), shown, b"f0"), &read_only);
    refused(
        v.fs.setattr(&root(), file, &inode::SetAttr { mode: Some(0), ..inode::SetAttr::default() }),
        &read_only,
    );
    refused(v.fs.snapshot_create(&root(), shown, b"two"), &read_only);
    refused(v.fs.rmr(&root(), shown, b"f0").map(|_| ()), &FsError::NotDirectory);
    refused(v.fs.subvolume_create(&root(), shown, b"s", 0o755), &read_only);
    refused(v.fs.clone_dir(&root(), dir, shown, b"c"), &read_only);
}

#[test]
fn snapshots_are_listed_renamed_and_deleted_by_name() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    for name in ["b", "a", "c"] {
        v.fs.snapshot_create(&root(), dir, name.as_bytes()).expect("a snapshot");
        v.tick();
    }
    refused(v.fs.snapshot_create(&root(), dir, b"a"), &FsError::Exists);
    let names = |dir: NodeId| -> Vec<Vec<u8>> {
        let listed = v.fs.snapshot_list(&root(), dir).expect("a list");
        listed.into_iter().map(|snapshot| snapshot.name).collect()
    };
    assert_eq!(names(dir), [b"a", b"b", b"c"]);
    v.fs.snapshot_rename(&root(), dir, b"a", b"z").expect("a snapshot");
    refused(v.fs.snapshot_rename(&root(), dir, b"a", b"y"), &FsError::NotFound);
    refused(v.fs.snapshot_rename(&root(), dir, b"b", b"z"), &FsError::Exists);
    v.fs.snapshot_delete(&root(), dir, b"c").expect("a snapshot");
    refused(v.fs.snapshot_delete(&root(), dir, b"c"), &FsError::NotFound);
    assert_eq!(names(dir), [b"b", b"z"]);
    assert_eq!(v.fs.status().expect("a status").snapshots, 2);
    settle(&v);
    assert_eq!(v.fs.status().expect("a status").detached, 0);
}

#[test]
fn only_the_owner_and_root_take_and_delete_snapshots() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    give(&v, dir, 1000);
    let denied = FsError::NotPermitted("");
    refused(v.fs.snapshot_create(&user(1001), dir, b"x"), &denied);
    v.fs.snapshot_create(&user(1000), dir, b"mine").expect("the owner may");
    v.fs.snapshot_create(&root(), dir, b"roots").expect("root may");
    refused(v.fs.snapshot_delete(&user(1001), dir, b"mine"), &denied);
    refused(v.fs.snapshot_rename(&user(1001), dir, b"mine", b"x"), &denied);
    v.fs.snapshot_rename(&user(1000), dir, b"mine", b"y").expect("the owner may");
    v.fs.snapshot_delete(&user(1000), dir, b"roots").expect("the owner may");
    // What others may read they may list.
    assert_eq!(v.fs.snapshot_list(&user(1001), dir).expect("readable").len(), 1);
}

#[test]
fn a_snapshot_keeps_unreadable_data_unreadable() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    give(&v, dir, 1000);
    let secret = v.fs.mkdir(&root(), dir, b"secret", 0o700).expect("a directory").node;
    let file = v.file(secret, "f").node;
    v.write(file, 0, b"hidden");
    v.fs.snapshot_create(&user(1000), dir, b"one").expect("the owner may");
    let shown = snapshot_root(&v, dir, "one");
    let kept = v.fs.lookup(&user(1000), shown, b"secret").expect("its name is open").node;
    refused(v.fs.lookup(&user(1000), kept, b"f"), &FsError::AccessDenied);
}

#[test]
fn snapshots_outlive_their_directory() {
    let v = volume();
    let dir = filled(&v, home(), "d", 3);
    let before = contents(&v, dir);
    let taken = v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
    forget(&v, dir);
    v.fs.rmr(&root(), home(), b"d").expect("a directory");
    settle(&v);
    let all = v.fs.snapshot_list_all(&root()).expect("a list");
    assert_eq!(all.iter().map(|snapshot| snapshot.subvol).collect::<Vec<_>>(), [taken.subvol]);
    assert!(v.fs.snapshot_list_all(&user(1000)).expect("a list").is_empty());
    refused(v.fs.snapshot_entry(&user(1000), taken.subvol), &FsError::NotPermitted(""));
    let kept = v.fs.snapshot_entry(&root(), taken.subvol).expect("by its number").node;
    v.fs.clone_dir(&root(), kept, home(), b"back").expect("restored");
    let back = v.find(home(), "back").expect("the clone").node;
    assert_eq!(contents(&v, back), before);
}

#[test]
fn a_held_file_outlives_its_snapshot() {
    let v = volume();
    let dir = filled(&v, home(), "d", 1);
    v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
    let shown = snapshot_root(&v, dir, "one");
    let file = v.find(shown, "f0").expect("the file").node;
    v.fs.snapshot_delete(&root(), dir, b"one").expect("a snapshot");
    settle(&v);
    assert_eq!(v.read(file), b"d 0");
    forget(&v, file);
    forget(&v, shown);
    settle(&v);
    assert_eq!(v.fs.status().expect("a status").detached, 0);
    refused(v.fs.getattr(&root(), file), &FsError::Stale);
}

#[test]
fn ten_thousand_snapshots_of_one_directory_work() {
    let v = volume();
    let dir = filled(&v, home(), "d", 3);
    for at in 0..10_000 {
        let name = format!("s{at:05}");
        v.fs.snapshot_create(&root(), dir, name.as_bytes()).expect("a snapshot");
    }
    assert_eq!(v.fs.snapshot_list(&root(), dir).expect("a list").len(), 10_000);
    let shown = snapshot_root(&v, dir, "s09999");
    assert_eq!(v.names(shown).len(), 3);
    for at in (0..10_000).filter(|at| at % 10 != 0) {
        let name = format!("s{at:05}");
        v.fs.snapshot_delete(&root(), dir, name.as_bytes()).expect("a snapshot");
    }
    assert_eq!(v.fs.snapshot_list(&root(), dir).expect("a list").len(), 1000);
    let kept = snapshot_root(&v, dir, "s09990");
    assert_eq!(v.names(kept).len(), 3);
}

/// Records may be damaged with every checksum right.
#[test]
fn a_snapshot_with_an_impossible_number_is_damage() {
    let v = volume();
    v.fs.snapshot_create(&root(), NodeId::ROOT, b"monday").expect("a snapshot");
    let tree = TreeId(key::VOLUME_TREE);
    let mut batch = Batch::new();
    for (at, value) in v.store.dump(tree).expect("the tree") {
        if at.starts_with(&key::SNAPSHOT_NAMES_PREFIX) {
            let id = u64::from_le_bytes(value[..].try_into().expect("a number"));
            let record = v.store.get(tree, &key::subvolume(id)).expect("it reads");
            batch.put(tree, &key::subvolume(id + (1 << 56)), &record.expect("a record"));
            batch.put(tree, &at, &(id + (1 << 56)).to_le_bytes());
        }
    }
    v.store.commit(&batch).expect("it is committed");
    assert!(matches!(v.fs.snapshot_list(&root(), NodeId::ROOT), Err(FsError::Io(_))));
    assert!(matches!(v.fs.snapshot_list_all(&root()), Err(FsError::Io(_))));
}
