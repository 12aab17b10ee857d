//! Trash: removed entries are stored in `.trash` with their shape, owners and charges. They are
//! restored as they were, and are deleted with their hour.

use std::collections::BTreeMap;

use fs::{
    FileSystem, Fs, FsResult, NewNode, QuotaLimits, Removed, RenameMode, RestoreOptions, Restored,
    SetXattr, WalkControl,
};
use inode::{Caller, FsError, Kind, NodeId, SetAttr};

use crate::support::{ROOT, Volume, refused, user, volume, weak_volume};

const DAY: u64 = 86_400;
const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);

pub(crate) fn on(v: &Volume, dir: NodeId, keep: u64) {
    v.fs.trash_set(&Caller::root(), dir, Some(keep)).expect("a trash");
}

pub(crate) fn path(text: &str) -> Vec<Vec<u8>> {
    text.split('/').filter(|name| !name.is_empty()).map(|name| name.as_bytes().to_vec()).collect()
}

pub(crate) fn restore(v: &Volume, what: &str) -> FsResult<Restored> {
    restore_with(v, what, &RestoreOptions::default())
}

fn restore_with(v: &Volume, what: &str, options: &RestoreOptions) -> FsResult<Restored> {
    v.fs.restore(&Caller::root(), (ROOT, &path(what)), None, options)
}

/// What the trash of a place would bring back, as paths, newest first.
pub(crate) fn listed(fs: &Fs, dir: NodeId) -> Vec<String> {
    let mut found = Vec::new();
    let mut take = |removed: Removed| {
        let path: Vec<_> = removed.path.iter().map(|name| String::from_utf8_lossy(name)).collect();
        found.push(path.join("/"));
        WalkControl::Continue
    };
    fs.trash_list(&Caller::root(), (dir, &[]), &mut take).expect("a list");
    found
}

fn background(fs: &Fs) {
    while fs.background_step(64).expect("background work").more {}
}

/// Removes as `rm -rf` does: names first, then their directory.
fn remove_all(v: &Volume, parent: NodeId, name: &str) {
    let dir = v.find(parent, name).expect("it is there").node;
    for name in v.names(dir) {
        let entry = v.find(dir, &name).expect("it is there");
        v.fs.forget(entry.node, 1);
        if entry.attr.kind == Kind::Directory {
            remove_all(v, dir, &name);
        } else {
            v.fs.unlink(&Caller::root(), dir, name.as_bytes()).expect("it goes");
        }
    }
    v.fs.forget(dir, 1);
    v.fs.rmdir(&Caller::root(), parent, name.as_bytes()).expect("it is empty");
}

/// All below a directory: kind, mode, owner, times that restoring keeps, contents, attributes,
/// number of names.
fn shape(v: &Volume, dir: NodeId) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut left = vec![(String::new(), dir)];
    while let Some((path, dir)) = left.pop() {
        for name in v.names(dir) {
            let entry = v.find(dir, &name).expect("it is listed");
            let attr = entry.attr;
            let path = format!("{path}/{name}");
            let root = Caller::root();
            let bytes = match attr.kind {
                Kind::File => v.read(entry.node),
                Kind::Symlink => v.fs.readlink(&root, entry.node).expect("a link"),
                _ => Vec::new(),
            };
            let xattr = v.fs.getxattr(&root, entry.node, b"user.x").ok();
            let links = (attr.kind != Kind::Directory).then_some(attr.nlink);
            let mtime = (attr.kind != Kind::Directory).then_some(attr.mtime);
            let times = (mtime, attr.btime);
            let message = format!(
                "{:?} {:o} {}:{} {times:?} {} {links:?} {bytes:?} {xattr:?}",
                attr.kind, attr.mode, attr.uid, attr.gid, attr.size
            );
            all.insert(path.clone(), message);
            if attr.kind == Kind::Directory {
                left.push((path, entry.node));
            }
        }
    }
    all
}

/// A tree with everything in it that a name can point to.
fn plant(v: &Volume, parent: NodeId, name: &str) -> NodeId {
    let root = Caller::root();
    let top = v.dir(parent, name).node;
    let sub = v.fs.mkdir(&user(7), v.dir(top, "w").node, b"no", 0o700);
    refused(sub, &FsError::AccessDenied);
    let sub = v.dir(top, "sub").node;
    let owned = SetAttr { uid: Some(7), gid: Some(8), mode: Some(0o750), ..SetAttr::default() };
    v.fs.setattr(&root, sub, &owned).expect("made");
    v.fs.setxattr(&root, sub, b"user.x", b"of a directory", SetXattr::Any).expect("made");
    v.dir(sub, "empty");
    for (n, size) in [0_usize, 1, 100, 4096, 5000, 70_000].into_iter().enumerate() {
        let file = v.file(if n % 2 == 0 { top } else { sub }, &format!("f{n}")).node;
        if size > 0 {
            v.write(file, 0, &vec![n as u8; size]);
        }
    }
    let file = v.file_as(&root, sub, "set", 0o4711).expect("made").node;
    v.fs.setxattr(&root, file, b"user.x", b"of a file", SetXattr::Any).expect("made");
    v.fs.link(&root, file, top, b"other name").expect("made");
    v.fs.link(&root, file, sub, b"third name").expect("made");
    v.fs.symlink(&root, sub, b"link", b"../somewhere").expect("made");
    let fifo = NewNode { kind: Kind::Fifo, mode: 0o600, rdev: 0 };
    v.fs.mknod(&root, sub, b"fifo", &fifo).expect("made");
    top
}

#[test]
fn a_tree_removed_by_rm_is_restored_unchanged() {
    let v = volume();
    on(&v, ROOT, DAY);
    let home = v.dir(ROOT, "home").node;
    let top = plant(&v, home, "top");
    let before = shape(&v, top);
    assert_eq!(before.len(), 14);
    let mtime = v.find(home, "top").unwrap().attr.mtime;
    v.tick();
    remove_all(&v, home, "top");
    refused(v.find(home, "top"), &FsError::NotFound);
    assert_eq!(listed(&v.fs, ROOT), ["home/top"]);
    v.tick();
    let restored = restore(&v, "/home/top").expect("it was kept");
    assert_eq!(restored, Restored { names: 1, left: 0 });
    let back = v.find(home, "top").expect("it is back");
    assert_eq!(back.attr.mtime, mtime, "also of a directory that was emptied");
    let top = back.node;
    assert_eq!(shape(&v, top), before);
    v.check_counts(home);
    v.check_counts(top);
    assert_eq!(listed(&v.fs, ROOT), [""; 0]);
    // And once more, after it was opened again.
    remove_all(&v, home, "top");
    let again = v.reopened();
    again
        .restore(&Caller::root(), (ROOT, &path("home/top")), None, &RestoreOptions::default())
        .expect("the setting and what was kept outlive the process");
}

#[test]
fn a_tree_removed_across_the_end_of_an_hour_is_restored_whole() {
    let v = volume();
    on(&v, ROOT, DAY);
    let top = plant(&v, ROOT, "top");
    let before = shape(&v, top);
    let sub = v.find(top, "sub").unwrap().node;
    for name in ["f1", "set", "link"] {
        v.fs.unlink(&Caller::root(), sub, name.as_bytes()).unwrap();
    }
    v.env.clock.advance(HOUR);
    remove_all(&v, ROOT, "top");
    let restored = restore(&v, "top").expect("it was kept");
    assert_eq!(restored, Restored { names: 4, left: 0 });
    assert_eq!(shape(&v, v.find(ROOT, "top").unwrap().node), before);
    // What was removed longer ago comes back when it is requested.
    let top = v.find(ROOT, "top").unwrap().node;
    v.fs.unlink(&Caller::root(), top, b"f0").unwrap();
    let removed_at = v.fs.now().0;
    v.env.clock.advance(HOUR * 3);
    remove_all(&v, ROOT, "top");
    restore(&v, "top").expect("it was kept");
    let top = v.find(ROOT, "top").unwrap().node;
    refused(v.find(top, "f0"), &FsError::NotFound);
    let options = RestoreOptions { since: Some(removed_at), ..RestoreOptions::default() };
    restore_with(&v, "top", &options).expect("it was kept");
    assert_eq!(shape(&v, top), before);
}

#[test]
fn removals_outside_a_trash_are_final() {
    let v = volume();
    let (dir, other) = (v.dir(ROOT, "d").node, v.dir(ROOT, "other").node);
    v.file(dir, "f");
    v.fs.unlink(&Caller::root(), dir, b"f").unwrap();
    assert_eq!(v.fs.trash_get(dir).unwrap(), None);
    refused(restore(&v, "d/f"), &FsError::InvalidArgument(""));
    on(&v, dir, DAY);
    assert_eq!(v.fs.trash_get(dir).unwrap().map(|trash| trash.keep_seconds), Some(DAY));
    v.file(other, "f");
    v.fs.unlink(&Caller::root(), other, b"f").unwrap();
    refused(v.find(ROOT, ".trash"), &FsError::NotFound);
    v.file(dir, "g");
    v.fs.unlink(&Caller::root(), dir, b"g").unwrap();
    let restore = |name: &str| {
        v.fs.restore(&Caller::root(), (dir, &path(name)), None, &RestoreOptions::default())
    };
    restore("g").expect("it was kept");
    refused(restore("f"), &FsError::NotFound);
    refused(v.fs.trash_set(&user(7), dir, Some(1)), &FsError::NotPermitted(""));
    v.fs.trash_set(&Caller::root(), dir, None).expect("it is off");
    refused(v.fs.trash_set(&Caller::root(), dir, None), &FsError::NotFound);
    v.fs.unlink(&Caller::root(), dir, b"g").unwrap();
    refused(restore("g"), &FsError::InvalidArgument(""));
    assert_eq!(v.sorted(dir), [".trash"]);
    let taken = v.dir(ROOT, "taken").node;
    v.file(taken, ".trash");
    refused(v.fs.trash_set(&Caller::root(), taken, Some(1)), &FsError::Exists);
    v.file(v.dir(other, ".trash").node, "mine");
    refused(v.fs.trash_set(&Caller::root(), other, Some(1)), &FsError::InvalidArgument(""));
}

#[test]
fn removals_in_the_trash_delete_and_nothing_is_created_there() {
    let v = volume();
    on(&v, ROOT, DAY);
    let root = Caller::root();
    let dir = v.dir(ROOT, "d").node;
    let file = v.file(dir, "f").node;
    v.file(dir, "stays");
    v.fs.unlink(&root, dir, b"f").unwrap();
    let trash = v.find(ROOT, ".trash").unwrap().node;
    let hour = v.names(trash);
    assert_eq!(hour.len(), 1);
    let batch = v.find(trash, &hour[0]).unwrap().node;
    let mirror = v.find(batch, "d").unwrap().node;
    assert_eq!(v.names(mirror), ["f"]);
    assert_eq!(v.find(mirror, "f").unwrap().node, file, "it is the same inode");
    for place in [trash, batch, mirror] {
        refused(v.file_as(&root, place, "new", 0o644), &FsError::NotPermitted(""));
        refused(v.fs.mkdir(&root, place, b"new", 0o755), &FsError::NotPermitted(""));
        refused(v.fs.link(&root, file, place, b"new"), &FsError::NotPermitted(""));
        let from = (dir, &b"stays"[..]);
        let renamed = v.fs.rename(&root, from, (place, b"new"), RenameMode::Replace);
        refused(renamed, &FsError::NotPermitted(""));
    }
    let out = v.fs.rename(&root, (mirror, b"f"), (dir, b"f"), RenameMode::NoReplace);
    out.expect("a name can be moved out by hand");
    v.fs.unlink(&root, dir, b"f").unwrap();
    v.fs.unlink(&root, mirror, b"f").unwrap();
    assert_eq!(listed(&v.fs, ROOT), [""; 0]);
    refused(restore(&v, "d/f"), &FsError::NotFound);
    v.fs.rmdir(&root, batch, b"d").unwrap();
    // The mirror that was known is gone: the next one is made.
    v.fs.unlink(&root, dir, b"stays").unwrap();
    restore(&v, "d/stays").expect("it was kept");
    remove_all(&v, ROOT, ".trash");
    refused(v.find(ROOT, ".trash"), &FsError::NotFound);
    v.fs.unlink(&root, dir, b"stays").unwrap();
    restore(&v, "d/stays").expect("it was kept");
}

#[test]
fn files_replaced_by_rename_and_every_version_of_a_name_are_kept() {
    let v = volume();
    on(&v, ROOT, DAY);
    let root = Caller::root();
    let mut times = Vec::new();
    for n in 0..5_u8 {
        let new = v.file(ROOT, "new").node;
        v.write(new, 0, &[n; 10]);
        v.tick();
        v.fs.rename(&root, (ROOT, b"new"), (ROOT, b"file"), RenameMode::Replace).unwrap();
        times.push(v.fs.now().0);
    }
    assert_eq!(listed(&v.fs, ROOT), ["file"; 4]);
    assert_eq!(v.read(v.find(ROOT, "file").unwrap().node), [4; 10]);
    refused(restore(&v, "file"), &FsError::Exists);
    v.fs.unlink(&root, ROOT, b"file").unwrap();
    let at = RestoreOptions { at: Some(times[2]), ..RestoreOptions::default() };
    restore_with(&v, "file", &at).expect("it was kept");
    assert_eq!(v.read(v.find(ROOT, "file").unwrap().node), [1; 10]);
    let to = v.fs.restore(&root, (ROOT, &path("file")), Some((ROOT, b"last")), &at);
    assert_eq!(to.expect("it was kept"), Restored { names: 1, left: 0 });
    assert_eq!(v.read(v.find(ROOT, "last").unwrap().node), [0; 10]);
    // A directory over an empty one.
    let (from, to) = (v.dir(ROOT, "from").node, v.dir(ROOT, "to").node);
    v.file(from, "f");
    v.file(to, "g");
    v.fs.unlink(&root, to, b"g").unwrap();
    v.fs.rename(&root, (ROOT, b"from"), (ROOT, b"to"), RenameMode::Replace).unwrap();
    let to = v.find(ROOT, "to").unwrap().node;
    assert_eq!(v.names(to), ["f"]);
    assert_eq!(restore(&v, "to").expect("it was kept"), Restored { names: 1, left: 0 });
    assert_eq!(v.sorted(to), ["f", "g"]);
}

#[test]
fn names_of_one_hash_are_kept_too() {
    let v = weak_volume(2);
    on(&v, ROOT, DAY);
    let dir = v.dir(ROOT, "d").node;
    let names: Vec<String> = (0..40).map(|n| format!("n{n}")).collect();
    for name in &names {
        v.write(v.file(dir, name).node, 0, name.as_bytes());
    }
    let before = shape(&v, dir);
    remove_all(&v, ROOT, "d");
    restore(&v, "d").expect("it was kept");
    assert_eq!(shape(&v, v.find(ROOT, "d").unwrap().node), before);
}

#[test]
fn old_hours_are_purged_whole() {
    let v = volume();
    on(&v, ROOT, 2 * 3600);
    let root = Caller::root();
    for n in 0..6 {
        v.write(v.file(ROOT, &format!("f{n}")).node, 0, &[1; 5000]);
        v.fs.unlink(&root, ROOT, format!("f{n}").as_bytes()).unwrap();
        background(&v.fs);
        v.env.clock.advance(HOUR);
    }
    background(&v.fs);
    let left = listed(&v.fs, ROOT);
    assert_eq!(left, ["f5", "f4"], "two hours after the end of their hour");
    let empty = v.fs.trash_empty(&user(7), ROOT);
    refused(empty, &FsError::NotPermitted(""));
    assert_eq!(v.fs.trash_empty(&root, ROOT).expect("it is emptied"), 2);
    assert_eq!(listed(&v.fs, ROOT), [""; 0]);
    background(&v.fs);
    assert_eq!(v.fs.status().expect("it answers").detached, 0);
}

#[test]
fn a_detached_tree_is_restored_by_one_rename() {
    let v = volume();
    on(&v, ROOT, DAY);
    let top = plant(&v, ROOT, "top");
    let before = shape(&v, top);
    let gone = v.fs.rmr(&Caller::root(), ROOT, b"top").expect("it goes");
    assert_eq!(gone.detached, 0);
    background(&v.fs);
    refused(v.file_as(&Caller::root(), top, "new", 0o644), &FsError::NotPermitted(""));
    assert_eq!(listed(&v.fs, ROOT), ["top"]);
    assert_eq!(restore(&v, "top").unwrap(), Restored { names: 1, left: 0 });
    assert_eq!(v.find(ROOT, "top").unwrap().node, top, "it is the same directory");
    assert_eq!(shape(&v, top), before);
    v.file(top, "new");
    // One file of a removed tree, which gets its directories back.
    v.fs.rmr(&Caller::root(), ROOT, b"top").expect("it goes");
    restore(&v, "top/sub/set").expect("it was kept");
    let made = v.find(ROOT, "top").unwrap().node;
    assert_eq!(v.names(made), ["sub"]);
    let sub = v.find(made, "sub").unwrap();
    assert_eq!((sub.attr.uid, sub.attr.gid, sub.attr.mode), (7, 8, 0o750));
    let rest = restore(&v, "top").expect("the rest was kept");
    assert_eq!(rest.left, 0);
    let mut now = shape(&v, made);
    now.remove("/new");
    let same = now.keys().eq(before.keys());
    assert!(same, "{now:?} {before:?}");
    // In the trash it is deleted.
    v.fs.rmr(&Caller::root(), ROOT, b"top").expect("it goes");
    v.fs.rmr(&Caller::root(), ROOT, b".trash").expect("it goes");
    background(&v.fs);
    assert_eq!(listed(&v.fs, ROOT), [""; 0]);
}

#[test]
fn the_trash_keeps_the_permissions_of_the_origin() {
    let v = volume();
    on(&v, ROOT, DAY);
    let (ada, bob) = (user(7), user(8));
    let dir = v.fs.mkdir(&ada, ROOT, b"ada", 0o700).unwrap().node;
    let file = v.file_as(&ada, dir, "f", 0o600).unwrap().node;
    v.fs.unlink(&ada, dir, b"f").unwrap();
    let mut seen = 0;
    let mut take = |_: Removed| {
        seen += 1;
        WalkControl::Continue
    };
    v.fs.trash_list(&bob, (ROOT, &[]), &mut take).expect("a list");
    assert_eq!(seen, 0);
    let options = RestoreOptions::default();
    let refusal = v.fs.restore(&bob, (ROOT, &path("ada/f")), None, &options);
    refused(refusal, &FsError::AccessDenied);
    v.fs.restore(&ada, (dir, &path("f")), None, &options).expect("it is hers");
    assert_eq!(v.find(dir, "f").unwrap().node, file);
    refused(v.fs.rmdir(&ada, ROOT, b"ada"), &FsError::NotEmpty);
    v.fs.unlink(&ada, dir, b"f").unwrap();
    v.fs.rmdir(&ada, ROOT, b"ada").unwrap();
    v.fs.restore(&ada, (ROOT, &path("ada")), None, &options).expect("it is hers");
    let back = v.find(ROOT, "ada").unwrap();
    assert_eq!((back.attr.uid, back.attr.mode), (7, 0o700));
    assert_eq!(v.names(back.node), ["f"]);
}

#[test]
fn a_quota_is_charged_for_trash() {
    let v = volume();
    let root = Caller::root();
    on(&v, ROOT, DAY);
    let dir = v.dir(ROOT, "q").node;
    let limits = QuotaLimits { inodes: Some(5), bytes: Some(20_000) };
    v.fs.quota_set(&root, dir, limits).unwrap();
    let used = |node| {
        let quota = v.fs.quota_get(node).expect("a node").expect("it has a quota");
        (quota.inodes, quota.bytes)
    };
    let sub = v.dir(dir, "s").node;
    for (name, size) in [("f", 12_000), ("small", 10)] {
        let file = v.file(sub, name).node;
        v.write(file, 0, &vec![1; size]);
        v.fs.forget(file, 1);
    }
    assert_eq!(used(dir), (4, 12_010));
    remove_all(&v, dir, "s");
    assert_eq!(used(dir), (4, 12_010), "it is charged where it was");
    assert_eq!(v.fs.quota_check().expect("a count"), []);
    v.file(dir, "fifth");
    refused(v.file_as(&root, dir, "sixth", 0o644), &FsError::QuotaExceeded);
    v.fs.unlink(&root, dir, b"fifth").expect("at the limit, too");
    restore(&v, "q/s").expect("what comes back is charged already");
    assert_eq!(used(dir), (5, 12_010));
    assert_eq!(v.fs.quota_check().expect("a count"), []);
    remove_all(&v, dir, "s");
    v.fs.trash_empty(&root, ROOT).expect("it is emptied");
    background(&v.fs);
    assert_eq!(used(dir), (1, 0));
    assert_eq!(v.fs.quota_check().expect("a count"), []);
    // Directories that are made for what comes back are charged.
    let sub = v.dir(dir, "s").node;
    v.file(sub, "f");
    v.fs.unlink(&root, sub, b"f").unwrap();
    v.fs.rename(&root, (dir, b"s"), (dir, b"t"), RenameMode::Replace).unwrap();
    restore(&v, "q/s/f").expect("it was kept");
    assert_eq!(used(dir), (4, 0));
    assert_eq!(v.fs.quota_check().expect("a count"), []);
}

#[test]
fn snapshots_contain_the_trash_and_nested_subvolumes_have_their_own() {
    let v = volume();
    let root = Caller::root();
    on(&v, ROOT, DAY);
    let dir = v.dir(ROOT, "d").node;
    v.file(dir, "f");
    v.file(dir, "g");
    v.fs.unlink(&root, dir, b"f").unwrap();
    v.fs.snapshot_create(&root, ROOT, b"s").unwrap();
    let clone = v.fs.clone_dir(&root, dir, ROOT, b"clone").unwrap().root;
    v.fs.unlink(&root, clone, b"g").unwrap();
    assert_eq!(v.sorted(clone), [".trash"]);
    let in_clone = v.fs.trash_get(clone).unwrap().expect("it is below the root");
    assert_eq!(in_clone.directory, clone);
    let options = RestoreOptions::default();
    v.fs.restore(&root, (clone, &path("g")), None, &options).expect("it was kept");
    assert_eq!(v.sorted(clone), [".trash", "g"]);
    v.fs.unlink(&root, clone, b"g").unwrap();
    v.fs.rmdir(&root, ROOT, b"clone").expect("all that is in it is its trash");
    // A roll-back brings the trash of then back.
    restore(&v, "d/f").expect("it was kept");
    v.fs.unlink(&root, dir, b"g").unwrap();
    v.fs.rollback(&root, ROOT, b"s").unwrap();
    assert_eq!(listed(&v.fs, ROOT), ["d/f"]);
    restore(&v, "d/f").expect("it was kept");
    let dir = v.find(ROOT, "d").unwrap().node;
    assert_eq!(v.sorted(dir), ["f", "g"]);
    // A directory that was rolled back is a subvolume, with a trash of its own.
    v.fs.snapshot_create(&root, dir, b"t").unwrap();
    v.fs.rollback(&root, dir, b"t").unwrap();
    let dir = v.find(ROOT, "d").unwrap().node;
    v.fs.unlink(&root, dir, b"f").unwrap();
    v.fs.restore(&root, (dir, &path("f")), None, &options).expect("it was kept");
    v.fs.unlink(&root, dir, b"f").unwrap();
    v.env.clock.advance(HOUR * 30);
    background(&v.fs);
    assert_eq!(listed(&v.fs, dir), [""; 0], "retention holds there, too");
}

/// What was removed from then on was kept nowhere, and this was not reported.
#[test]
fn a_trash_cannot_be_rolled_back_alone() {
    let v = volume();
    let root = Caller::root();
    let dir = v.dir(ROOT, "d").node;
    on(&v, dir, DAY);
    v.file(dir, "f");
    v.file(dir, "g");
    v.fs.unlink(&root, dir, b"f").unwrap();
    let trash = v.find(dir, ".trash").unwrap().node;
    v.fs.snapshot_create(&root, trash, b"s").unwrap();
    let error = v.fs.rollback(&root, trash, b"s").unwrap_err();
    assert!(matches!(error, FsError::NotPermitted(_)), "{error}");
    // Where the name is not a trash it is an ordinary one.
    let other = v.dir(ROOT, ".trash").node;
    v.fs.snapshot_create(&root, other, b"s").unwrap();
    v.fs.rollback(&root, other, b"s").unwrap();
    v.fs.unlink(&root, dir, b"g").unwrap();
    assert_eq!(listed(&v.fs, dir), ["f", "g"]);
}

#[test]
fn a_held_file_accepts_writes() {
    let v = volume();
    let root = Caller::root();
    on(&v, ROOT, DAY);
    for size in [10, 10_000] {
        let file = v.file(ROOT, "f").node;
        v.write(file, 0, &vec![1; size]);
        v.fs.unlink(&root, ROOT, b"f").unwrap();
        v.write(file, size as u64, b"more");
        assert_eq!(v.read(file).len(), size + 4);
        v.fs.forget(file, 1);
        restore(&v, "f").expect("it was kept");
        let back = v.find(ROOT, "f").unwrap();
        assert_eq!(back.attr.size, size as u64 + 4);
        v.fs.forget(back.node, 1);
        v.fs.unlink(&root, ROOT, b"f").unwrap();
    }
    // And when its hour is deleted.
    let files = [v.file(ROOT, "small").node, v.file(ROOT, "large").node];
    for (file, (name, size)) in files.into_iter().zip([("small", 10), ("large", 10_000)]) {
        v.write(file, 0, &vec![2; size]);
        v.fs.unlink(&root, ROOT, name.as_bytes()).unwrap();
    }
    v.env.clock.advance(HOUR * 30);
    background(&v.fs);
    assert_eq!(listed(&v.fs, ROOT), [""; 0]);
    for (file, size) in files.into_iter().zip([10, 10_000]) {
        v.write(file, size, b"more");
        assert_eq!(v.read(file).len() as u64, size + 4);
        assert_eq!(v.fs.getattr(&root, file).unwrap().nlink, 0);
        v.fs.forget(file, 1);
    }
    let dir = v.dir(ROOT, "d").node;
    v.fs.rmdir(&root, ROOT, b"d").unwrap();
    refused(v.file_as(&root, dir, "f", 0o644), &FsError::NotFound);
    assert_eq!(v.fs.getattr(&root, dir).unwrap().nlink, 0);
}
