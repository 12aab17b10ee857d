//! Trash among malicious users: names that are no hours, space that no operation needs, rights that
//! were changed, directories of others under the same path. None may stop the volume, empty the
//! trash of others, or read where they have no access.

use fs::{
    Allocate, FileSystem, NewNode, Removed, RenameMode, RestoreOptions, SetXattr, WalkControl,
};
use inode::{Caller, FsError, Kind, NodeId, SetAttr};

use crate::support::{ROOT, Volume, refused, user, volume};
use crate::trash::listed;

const DAY: u64 = 86_400;
const OPTIONS: RestoreOptions = RestoreOptions { at: None, since: None };

fn on(v: &Volume) {
    v.fs.trash_set(&Caller::root(), ROOT, Some(DAY)).expect("a trash");
}

pub(crate) fn path(text: &str) -> Vec<Vec<u8>> {
    text.split('/').map(|name| name.as_bytes().to_vec()).collect()
}

fn seen_by(v: &Volume, caller: &Caller) -> Vec<String> {
    let mut found = Vec::new();
    let mut take = |removed: Removed| {
        let path: Vec<_> = removed.path.iter().map(|name| String::from_utf8_lossy(name)).collect();
        found.push(path.join("/"));
        WalkControl::Continue
    };
    v.fs.trash_list(caller, (ROOT, &[]), &mut take).expect("a list");
    found
}

/// Makes a file of a user and removes it.
pub(crate) fn lose(v: &Volume, caller: &Caller, dir: NodeId, name: &str) {
    let node = v.file_as(caller, dir, name, 0o644).expect("made").node;
    v.fs.forget(node, 1);
    v.fs.unlink(caller, dir, name.as_bytes()).expect("removed");
}

pub(crate) fn chmod(v: &Volume, node: NodeId, mode: u32) {
    let changes = SetAttr { mode: Some(mode), ..SetAttr::default() };
    v.fs.setattr(&Caller::root(), node, &changes).expect("changed");
}

/// A directory where everybody may make names.
fn open_dir(v: &Volume) -> NodeId {
    let dir = v.dir(ROOT, "pub").node;
    chmod(v, dir, 0o777);
    dir
}

#[test]
fn names_that_are_not_hours_stop_nothing() {
    let v = volume();
    let ada = user(7);
    let dir = open_dir(&v);
    let s = v.fs.subvolume_create(&ada, dir, b"s", 0o755).expect("made").node;
    let planted = v.fs.mkdir(&ada, s, b".trash", 0o755).expect("there is no trash yet").node;
    for name in
        ["1969-01-01T-9223372036854775808", "9999-12-31T23", "2026-11-22T23.18446744073709551615"]
    {
        v.fs.mkdir(&ada, planted, name.as_bytes(), 0o755).expect("any name");
    }
    on(&v);
    lose(&v, &ada, s, "f");
    lose(&v, &ada, s, "f");
    while v.fs.background_step(64).expect("background work").more {}
    assert_eq!(listed(&v.fs, s), ["f", "f"]);
    assert!(!v.names(v.find(planted, "9999-12-31T23").unwrap().node).contains(&"f".to_owned()));
}

#[test]
fn users_cannot_create_a_trash_themselves() {
    let v = volume();
    on(&v);
    let ada = user(7);
    let dir = open_dir(&v);
    let s = v.fs.subvolume_create(&ada, dir, b"s", 0o755).expect("made").node;
    let t = v.fs.mkdir(&ada, s, b"t", 0o755).expect("made").node;
    let file = v.file_as(&ada, s, "f", 0o644).expect("made").node;
    v.fs.mkdir(&ada, t, b".trash", 0o755).expect("that is no home");
    let name = FsError::NotPermitted("the name is reserved for the trash");
    refused(v.fs.rename(&ada, (s, b"t"), (s, b".trash"), RenameMode::Replace), &name);
    refused(v.fs.mkdir(&ada, s, b".trash", 0o755), &name);
    refused(v.fs.link(&ada, file, s, b".trash"), &name);
    refused(v.fs.symlink(&ada, s, b".trash", b"t"), &name);
    refused(v.file_as(&ada, s, ".trash", 0o644), &name);
    let fifo = NewNode { kind: Kind::Fifo, mode: 0o600, rdev: 0 };
    refused(v.fs.mknod(&ada, s, b".trash", &fifo), &name);
    refused(v.fs.subvolume_create(&ada, s, b".trash", 0o755), &name);
    lose(&v, &ada, s, "g");
    let to = Some((s, &b".trash"[..]));
    refused(v.fs.restore(&ada, (s, &path("g")), to, &OPTIONS), &name);
}

#[test]
fn an_existing_file_with_the_name_of_the_trash_is_no_trash() {
    let v = volume();
    let root = Caller::root();
    let [a, b] = [b"a", b"b"].map(|name| v.fs.subvolume_create(&root, ROOT, name, 0o755).unwrap());
    let own = v.dir(a.node, ".trash").node;
    v.file(own, "treasure");
    v.file(b.node, ".trash");
    on(&v);
    refused(v.fs.rmdir(&root, ROOT, b"a"), &FsError::NotEmpty);
    lose(&v, &root, b.node, "f");
    assert_eq!(listed(&v.fs, b.node), [""; 0], "it was deleted");
}

#[test]
fn a_huge_request_purges_no_trash() {
    let v = volume();
    on(&v);
    let (ada, bob) = (user(7), user(8));
    let dir = open_dir(&v);
    lose(&v, &ada, dir, "f");
    let file = v.file_as(&bob, dir, "g", 0o644).expect("made").node;
    v.env.device.set_capacity(Some(v.env.device.used_bytes() + (64 << 20)));
    for mode in [Allocate::Grow, Allocate::Keep] {
        refused(v.fs.fallocate(&bob, file, (0, 1 << 42), mode), &FsError::NoSpace);
    }
    let value = vec![1; 60_000];
    let full = (0..100).find_map(|n| {
        let name = format!("user.{n}");
        v.fs.setxattr(&bob, file, name.as_bytes(), &value, SetXattr::Any).err()
    });
    assert!(matches!(full, Some(FsError::NoSpace)), "{full:?}");
    assert_eq!(listed(&v.fs, ROOT), ["pub/f"]);
}

#[test]
fn files_removed_from_a_closed_directory_are_closed_in_the_trash() {
    let v = volume();
    on(&v);
    let (ada, bob) = (user(7), user(8));
    let dir = open_dir(&v);
    let top = v.fs.mkdir(&ada, dir, b"top", 0o755).unwrap().node;
    let sub = v.fs.mkdir(&ada, top, b"sub", 0o777).unwrap().node;
    lose(&v, &ada, sub, "open");
    assert_eq!(seen_by(&v, &bob), ["pub/top/sub/open"]);
    chmod(&v, top, 0o700);
    lose(&v, &ada, sub, "closed");
    assert_eq!(seen_by(&v, &bob), ["pub/top/sub/open"]);
    let what = path("pub/top/sub/closed");
    refused(v.fs.restore(&bob, (ROOT, &what), None, &OPTIONS), &FsError::AccessDenied);
    let to = Some((dir, &b"mine"[..]));
    refused(v.fs.restore(&bob, (ROOT, &what), to, &OPTIONS), &FsError::AccessDenied);
    // Also into a directory that is closed now.
    let what = path("pub/top/sub/open");
    refused(v.fs.restore(&bob, (ROOT, &what), None, &OPTIONS), &FsError::AccessDenied);
    v.fs.restore(&ada, (ROOT, &path("pub/top/sub/closed")), None, &OPTIONS).expect("it is hers");
    // An owner that was changed, and what is removed as a whole.
    chmod(&v, top, 0o755);
    let owner = SetAttr { uid: Some(8), gid: Some(8), ..SetAttr::default() };
    chmod(&v, sub, 0o700);
    lose(&v, &ada, sub, "hers");
    v.fs.setattr(&Caller::root(), sub, &owner).unwrap();
    lose(&v, &bob, sub, "bobs");
    assert_eq!(seen_by(&v, &bob), ["pub/top/sub/bobs", "pub/top/sub/open"]);
}

#[test]
fn two_owners_of_one_path_share_nothing() {
    let v = volume();
    on(&v);
    let (ada, bob) = (user(7), user(8));
    let dir = open_dir(&v);
    for (owner, mode, name) in [(&ada, 0o700, "adas"), (&bob, 0o755, "bobs")] {
        let d = v.fs.mkdir(owner, dir, b"d", mode).expect("made").node;
        lose(&v, owner, d, name);
        v.fs.forget(d, 1);
        v.fs.rmdir(owner, dir, b"d").expect("it is empty");
    }
    refused(
        v.fs.restore(&bob, (ROOT, &path("pub/d/hers")), None, &OPTIONS),
        &FsError::AccessDenied,
    );
    v.fs.restore(&bob, (ROOT, &path("pub/d")), None, &OPTIONS).expect("bob's own");
    let back = v.find(dir, "d").expect("it is back");
    assert_eq!((back.attr.uid, back.attr.mode), (8, 0o755));
    assert_eq!(v.names(back.node), ["bobs"], "and none of ada's");
}

#[test]
fn an_hour_keeps_a_bounded_number_of_versions_of_a_name_per_owner() {
    let v = volume();
    on(&v);
    let (ada, bob) = (user(7), user(8));
    let dir = open_dir(&v);
    for _ in 0..1010 {
        lose(&v, &ada, dir, "f");
    }
    assert_eq!(listed(&v.fs, ROOT).len(), 1000);
    for _ in 0..3 {
        lose(&v, &bob, dir, "f");
        lose(&v, &bob, dir, "g");
        lose(&v, &ada, dir, "h");
    }
    assert_eq!(listed(&v.fs, ROOT).len(), 1009, "who else removes does not suffer for her");
    chmod(&v, dir, 0o1777);
    lose(&v, &bob, dir, "g");
    assert_eq!(listed(&v.fs, ROOT).len(), 1010, "nor does what is removed under other rights");
    v.fs.trash_empty(&Caller::root(), ROOT).expect("emptied");
    assert_eq!(listed(&v.fs, ROOT), [""; 0]);
}

/// Makes a directory with another in it, where a file was, and removes it all.
fn lose_tree(v: &Volume, file: &str) {
    let root = Caller::root();
    v.tick();
    let d = v.dir(ROOT, "d").node;
    let sub = v.dir(d, "sub").node;
    lose(v, &root, sub, file);
    v.fs.forget(sub, 1);
    v.fs.rmdir(&root, d, b"sub").expect("it is empty");
    v.fs.forget(d, 1);
    v.fs.rmdir(&root, ROOT, b"d").expect("it is empty");
}

#[test]
fn two_directories_removed_from_one_path_are_restored_as_two() {
    let v = volume();
    on(&v);
    let root = Caller::root();
    for file in ["first", "second"] {
        lose_tree(&v, file);
    }
    for (file, to) in [("second", "d2"), ("first", "d1")] {
        let restored = v.fs.restore(&root, (ROOT, &path("d")), None, &OPTIONS).expect("it is kept");
        assert_eq!((restored.names, restored.left), (1, 0));
        let sub = v.find(v.find(ROOT, "d").unwrap().node, "sub").expect("it was in it").node;
        assert_eq!(v.names(sub), [file]);
        v.fs.rename(&root, (ROOT, b"d"), (ROOT, to.as_bytes()), RenameMode::Replace).unwrap();
    }
    assert_eq!(listed(&v.fs, ROOT), [""; 0]);
}

#[test]
fn files_from_another_directory_stay_in_the_trash() {
    let v = volume();
    on(&v);
    let root = Caller::root();
    let d = v.dir(ROOT, "d").node;
    for file in ["first", "second"] {
        v.tick();
        let sub = v.dir(d, "sub").node;
        lose(&v, &root, sub, file);
        v.fs.forget(sub, 1);
        v.fs.rmdir(&root, d, b"sub").expect("it is empty");
    }
    v.fs.forget(d, 1);
    v.tick();
    v.fs.rmdir(&root, ROOT, b"d").expect("it is empty");
    let restored = v.fs.restore(&root, (ROOT, &path("d")), None, &OPTIONS).expect("it is kept");
    assert_eq!((restored.names, restored.left), (1, 1));
    let sub = v.find(v.find(ROOT, "d").unwrap().node, "sub").expect("it is back").node;
    assert_eq!(v.names(sub), ["second"]);
    // A caller who requests it gets it.
    v.fs.restore(&root, (ROOT, &path("d/sub")), None, &OPTIONS).expect("it is kept");
    assert_eq!(v.sorted(sub), ["first", "second"]);
}

#[test]
fn a_directory_used_as_a_lock_takes_one_slot() {
    let v = volume();
    on(&v);
    let root = Caller::root();
    for _ in 0..20 {
        v.tick();
        let lock = v.dir(ROOT, "lock").node;
        v.fs.forget(lock, 1);
        v.fs.rmdir(&root, ROOT, b"lock").expect("it is empty");
    }
    assert_eq!(listed(&v.fs, ROOT), ["lock"]);
    let made = v.fs.now();
    v.fs.restore(&root, (ROOT, &path("lock")), None, &OPTIONS).expect("it is kept");
    assert_eq!(v.find(ROOT, "lock").unwrap().attr.btime, made, "it is the last of them");
}

#[test]
fn unsearchable_directories_reveal_nothing() {
    let v = volume();
    on(&v);
    let (ada, bob) = (user(7), user(8));
    let dir = open_dir(&v);
    let closed = v.fs.mkdir(&ada, dir, b"d", 0o700).expect("made").node;
    lose(&v, &ada, closed, "hers");
    for name in ["pub/d/hers", "pub/d/none"] {
        let restored = v.fs.restore(&bob, (ROOT, &path(name)), None, &OPTIONS);
        refused(restored, &FsError::AccessDenied);
    }
}

#[test]
fn restoring_needs_read_permission() {
    let v = volume();
    on(&v);
    let (ada, bob) = (user(7), user(8));
    let dir = open_dir(&v);
    // A letter-box: others put in, and do not look.
    let letters = v.fs.mkdir(&ada, dir, b"d", 0o733).expect("made").node;
    lose(&v, &ada, letters, "secret");
    let restored = v.fs.restore(&bob, (ROOT, &path("pub/d")), None, &OPTIONS).expect("tried");
    assert_eq!((restored.names, restored.left), (0, 1));
    assert_eq!(v.names(letters), [""; 0]);
    v.fs.restore(&ada, (ROOT, &path("pub/d")), None, &OPTIONS).expect("it is hers");
    assert_eq!(v.names(letters), ["secret"]);
}

#[test]
fn restoring_needs_search_permission_on_the_way() {
    let v = volume();
    on(&v);
    let (ada, bob) = (user(7), user(8));
    let dir = open_dir(&v);
    let top = v.fs.mkdir(&ada, dir, b"top", 0o777).expect("made").node;
    let sub = v.fs.mkdir(&ada, top, b"sub", 0o777).expect("made").node;
    lose(&v, &ada, sub, "f");
    chmod(&v, top, 0o700);
    let restored = v.fs.restore(&bob, (ROOT, &path("pub")), None, &OPTIONS).expect("tried");
    assert_eq!((restored.names, restored.left), (0, 1));
    assert_eq!(v.names(sub), [""; 0]);
    v.fs.restore(&ada, (ROOT, &path("pub")), None, &OPTIONS).expect("it is hers");
    assert_eq!(v.names(sub), ["f"]);
}
