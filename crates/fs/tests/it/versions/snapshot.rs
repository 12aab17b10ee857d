//! Snapshots: what they show, who may, and what becomes of them.

use format::key;
use fs::{FileSystem, RenameMode, Whereabouts};
use inode::{Caller, FsError, NodeId};
use store::{Batch, Read, Store, TreeId};

use super::{contents, filled, forget, give, home, root, settle, snapshot_root};
use crate::support::{Volume, refused, user, volume};

#[test]
fn a_snapshot_shows_what_was_there_whatever_happened_since() {
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
    v.fs.rename(&root(), (dir, b"f2"), (dir, b"f3"), RenameMode::Replace).expect("files");
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
fn a_snapshot_keeps_what_could_not_be_read_unreadable() {
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

/// Name and place of each snapshot that a caller is told of.
fn kept(v: &Volume, caller: &Caller) -> Vec<(String, Whereabouts)> {
    let mut kept: Vec<_> =
        v.fs.snapshots_kept(caller)
            .expect("a list")
            .into_iter()
            .map(|kept| {
                (String::from_utf8(kept.snapshot.name).expect("as it was given"), kept.directory)
            })
            .collect();
    kept.sort_by(|one, other| one.0.cmp(&other.0));
    kept
}

fn at(path: &str) -> Whereabouts {
    Whereabouts::At(path.as_bytes().to_vec())
}

#[test]
fn snapshots_of_the_volume_are_listed_with_where_their_directories_are() {
    let v = volume();
    let top = v.dir(home(), "top").node;
    let dir = filled(&v, top, "dir", 3);
    let later = v.dir(dir, "before").node;
    let subvolume = v.fs.subvolume_create(&root(), top, b"sub", 0o755).expect("room").node;
    let inner = v.dir(subvolume, "inner").node;
    v.fs.snapshot_create(&root(), home(), b"1").expect("a snapshot");
    v.fs.snapshot_create(&root(), dir, b"2").expect("a snapshot");
    v.fs.snapshot_create(&root(), dir, b"3").expect("a snapshot");
    v.fs.snapshot_create(&root(), later, b"4").expect("a snapshot");
    v.fs.snapshot_create(&root(), inner, b"5").expect("a snapshot");
    let said = |places: [Whereabouts; 5]| -> Vec<(String, Whereabouts)> {
        (1..=5).map(|number: u32| number.to_string()).zip(places).collect()
    };
    let listed = kept(&v, &root());
    let (in_dir, in_sub) = ("/top/dir", "/top/sub/inner");
    let before = at("/top/dir/before");
    assert_eq!(listed, said([at("/"), at(in_dir), at(in_dir), before, at(in_sub)]));
    // What moves is found where it is.
    v.fs.rename(&root(), (home(), b"top"), (home(), b"moved"), RenameMode::Replace).expect("free");
    v.fs.rename(&root(), (dir, b"before"), (top, b"after"), RenameMode::Replace).expect("free");
    let dir_now = at("/moved/dir");
    let expected = said([
        at("/"),
        dir_now.clone(),
        dir_now.clone(),
        at("/moved/after"),
        at("/moved/sub/inner"),
    ]);
    assert_eq!(kept(&v, &root()), expected);
    // A copy has no snapshots. What was put back is the directory that they are of; what came back
    // with it, and is elsewhere too, is told where it was first.
    v.fs.clone_dir(&root(), dir, home(), b"clone").expect("a clone");
    v.fs.rollback(&root(), dir, b"2").expect("it is put back");
    settle(&v);
    let listed = kept(&v, &root());
    assert_eq!(listed[..3], expected[..3]);
    assert_eq!(listed[4], expected[4]);
    assert_eq!(listed[3], expected[3]);
    // The volume as it was: what was below comes back under its old names.
    forget(&v, dir);
    v.fs.rmr(&root(), home(), b"moved").expect("a directory");
    settle(&v);
    let gone = || Whereabouts::Gone;
    assert_eq!(kept(&v, &root()), said([at("/"), gone(), gone(), gone(), gone()]));
    v.fs.rollback(&root(), NodeId::ROOT, b"1").expect("it is put back");
    settle(&v);
    assert_eq!(
        kept(&v, &root())[..4],
        said([at("/"), at(in_dir), at(in_dir), at("/top/dir/before"), gone()])[..4]
    );
}

#[test]
fn who_owns_what_a_snapshot_holds_is_told_and_brings_it_back() {
    let v = volume();
    let (shut, mine) = (v.dir(home(), "shut").node, v.dir(home(), "mine").node);
    give(&v, mine, 1000);
    let (one, two) = (filled(&v, shut, "one", 2), filled(&v, mine, "two", 2));
    give(&v, one, 1000);
    give(&v, two, 1000);
    let held = contents(&v, two);
    let in_shut = v.fs.snapshot_create(&user(1000), one, b"one").expect("the owner may").subvol;
    let taken = v.fs.snapshot_create(&user(1000), two, b"two").expect("the owner may").subvol;
    v.fs.snapshot_create(&root(), home(), b"whole").expect("a snapshot");
    let told = |caller: &Caller| kept(&v, caller);
    let (one_at, two_at) =
        (("one".to_owned(), at("/shut/one")), ("two".to_owned(), at("/mine/two")));
    assert_eq!(told(&user(1000)), [one_at.clone(), two_at.clone()]);
    assert_eq!(told(&user(1001)), []);
    let change = inode::SetAttr { mode: Some(0o700), ..inode::SetAttr::default() };
    v.fs.setattr(&root(), shut, &change).expect("a directory");
    let hidden = ("one".to_owned(), Whereabouts::NotTold);
    assert_eq!(told(&user(1000)), [hidden, two_at.clone()]);
    assert_eq!(told(&root())[..2], [one_at, two_at]);
    // A directory that is closed to him is so by number, too; and what is there goes by its name.
    let clone = |caller: &Caller, id, name: &str| {
        v.fs.clone_snapshot(caller, id, mine, name.as_bytes()).map(drop)
    };
    refused(clone(&user(1000), in_shut, "c"), &FsError::AccessDenied);
    refused(clone(&user(1001), taken, "c"), &FsError::NotPermitted(""));
    let there = FsError::InvalidArgument("");
    refused(v.fs.snapshot_delete_kept(&user(1000), taken), &there);
    clone(&user(1000), taken, "copy").expect("he comes to it");
    forget(&v, two);
    v.fs.rmr(&user(1000), mine, b"two").expect("all his");
    settle(&v);
    assert_eq!(told(&user(1000))[1], ("two".to_owned(), Whereabouts::Gone));
    refused(clone(&user(1001), taken, "c"), &FsError::NotPermitted(""));
    clone(&user(1000), taken, "back").expect("it is his");
    let back = v.find(mine, "back").expect("the clone").node;
    assert_eq!(contents(&v, back), held);
    refused(v.fs.snapshot_delete_kept(&user(1001), taken), &FsError::NotPermitted(""));
    v.fs.snapshot_delete_kept(&user(1000), taken).expect("it is his");
    refused(v.fs.snapshot_delete_kept(&user(1000), taken), &FsError::NotFound);
    refused(clone(&user(1000), taken, "c"), &FsError::NotFound);
    settle(&v);
    assert_eq!(told(&root()).len(), 2);
    assert_eq!(v.fs.status().expect("a status").detached, 0);
    assert_eq!(contents(&v, back), held, "a clone outlives what it was taken from");
}

/// Records may be damaged with every checksum right.
#[test]
fn a_snapshot_of_a_number_that_none_can_have_is_damage() {
    let v = volume();
    v.fs.snapshot_create(&root(), NodeId::ROOT, b"monday").expect("a snapshot");
    let tree = TreeId(key::VOLUME_TREE);
    let mut batch = Batch::new();
    for (at, value) in v.store.dump(tree).expect("the tree") {
        if at.starts_with(&key::SNAPSHOT_NAMES_PREFIX) {
            let id = u64::from_le_bytes(value[..].try_into().expect("a number"));
            let record = v.store.get(tree, &key::subvolume(id)).expect("it reads");
            batch.put(tree, &key::subvolume(id + (1 << 32)), &record.expect("a record"));
            batch.put(tree, &at, &(id + (1 << 32)).to_le_bytes());
        }
    }
    v.store.commit(&batch).expect("it is committed");
    assert!(matches!(v.fs.snapshot_list(&root(), NodeId::ROOT), Err(FsError::Io(_))));
    assert!(matches!(v.fs.snapshot_list_all(&root()), Err(FsError::Io(_))));
}
