//! Directories of snapshots.

use std::sync::Arc;

use inode::{Caller, FsError, Kind, NodeId, SetAttr};
use testing::MemoryFs;
use vfs::{
    FileSystem, Follow, FsResult, NewNode, RenameMode, SetXattr, SyncScope, VirtualDirs,
    WalkControl, name_of_number,
};

use crate::support::{Notified, ROOT, Rig, rig, user};

const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };

/// A directory, and its directory of snapshots with one snapshot.
fn with_snapshot(rig: &Rig) -> (NodeId, NodeId) {
    let dir = rig.dir(ROOT, "d");
    rig.fs.mknod(&Caller::root(), dir, b"f", &FILE).expect("a new name");
    let snapshots = rig.find(dir, ".snapshots").expect("every directory has one").node;
    rig.dir(snapshots, "one");
    (dir, snapshots)
}

fn kind_of<T: std::fmt::Debug>(result: FsResult<T>) -> std::mem::Discriminant<FsError> {
    std::mem::discriminant(&result.expect_err("it is refused"))
}

#[test]
fn snapshot_directory_is_found_by_name_and_not_listed() {
    let rig = rig();
    let (dir, snapshots) = with_snapshot(&rig);
    assert_eq!(rig.names(dir), ["f"]);
    assert_eq!(rig.names(snapshots), ["one"]);
    let one = rig.find(snapshots, "one").expect("it was taken").node;
    assert_eq!(rig.names(one), ["f"]);
    assert_eq!(rig.find(snapshots, "..").expect("a way up").node, dir);
    assert_eq!(rig.find(snapshots, ".").expect("itself").node, snapshots);
    let file = rig.find(dir, "f").expect("a file").node;
    assert_eq!(
        kind_of(rig.find(file, ".snapshots")),
        std::mem::discriminant(&FsError::NotDirectory)
    );
    let root = Caller::root();
    let (from, to) = ((snapshots, &b"one"[..]), (snapshots, &b"two"[..]));
    rig.fs.rename(&root, from, to, RenameMode::Replace).expect("a free name");
    assert_eq!(rig.names(snapshots), ["two"]);
    rig.fs.rmdir(&root, snapshots, b"two").expect("it need not be empty");
    assert_eq!(rig.names(snapshots), [""; 0]);
}

#[test]
fn snapshot_directory_refuses_all_changes_but_of_snapshots() {
    let rig = rig();
    let (dir, snapshots) = with_snapshot(&rig);
    let (fs, root) = (&rig.fs, Caller::root());
    let file = rig.find(dir, "f").expect("a file").node;
    let refused = std::mem::discriminant(&FsError::NotPermitted(""));
    let nodes = fs.nodes();
    assert_eq!(kind_of(fs.mknod(&root, snapshots, b"x", &FILE)), refused);
    assert_eq!(kind_of(fs.symlink(&root, snapshots, b"x", b"y")), refused);
    assert_eq!(kind_of(fs.tmpfile(&root, snapshots, 0o600)), refused);
    assert_eq!(kind_of(fs.link(&root, file, snapshots, b"x")), refused);
    assert_eq!(kind_of(fs.setattr(&root, snapshots, &SetAttr::default())), refused);
    assert_eq!(kind_of(fs.setxattr(&root, snapshots, b"user.x", b"", SetXattr::Any)), refused);
    assert_eq!(kind_of(fs.removexattr(&root, snapshots, b"user.x")), refused);
    assert_eq!(
        kind_of(fs.unlink(&root, snapshots, b"one")),
        std::mem::discriminant(&FsError::IsDirectory)
    );
    let away = fs.rename(&root, (snapshots, b"one"), (dir, b"x"), RenameMode::Replace);
    assert_eq!(kind_of(away), std::mem::discriminant(&FsError::CrossSubvolume("")));
    let exists = std::mem::discriminant(&FsError::Exists);
    assert_eq!(kind_of(fs.mkdir(&root, dir, b".snapshots", 0o755)), exists);
    assert_eq!(kind_of(fs.mknod(&root, dir, b".snapshots", &FILE)), exists);
    assert_eq!(kind_of(fs.rmdir(&root, dir, b".snapshots")), refused);
    let over = fs.rename(&root, (dir, b"f"), (dir, b".snapshots"), RenameMode::Replace);
    assert_eq!(kind_of(over), exists);
    let from = fs.rename(&root, (dir, b".snapshots"), (dir, b"x"), RenameMode::Replace);
    assert_eq!(kind_of(from), refused);
    assert_eq!(fs.nodes(), nodes, "nothing was made below");
    fs.fsync(snapshots, SyncScope::All).expect("as its directory");
    assert!(fs.statfs(snapshots).is_ok() && !fs.is_in_snapshot(snapshots));
}

#[test]
fn snapshot_directory_is_its_owners_and_needs_search_permission() {
    let rig = rig();
    let (dir, snapshots) = with_snapshot(&rig);
    let owner = SetAttr { uid: Some(7), mode: Some(0o711), ..SetAttr::default() };
    rig.fs.setattr(&Caller::root(), dir, &owner).expect("root may");
    let attr = rig.fs.getattr(&user(8), snapshots).expect("anybody may");
    assert_eq!((attr.mode, attr.uid, attr.nlink), (0o711, 7, 2));
    rig.fs.mkdir(&user(7), snapshots, b"mine", 0o755).expect("the owner may");
    assert_eq!(
        kind_of(rig.fs.mkdir(&user(8), snapshots, b"other", 0o755)),
        std::mem::discriminant(&FsError::NotPermitted(""))
    );
    let closed = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    rig.fs.setattr(&Caller::root(), dir, &closed).expect("root may");
    let denied = std::mem::discriminant(&FsError::AccessDenied);
    assert_eq!(kind_of(rig.fs.lookup(&user(8), dir, b".snapshots")), denied);
    assert_eq!(kind_of(rig.fs.lookup(&user(8), snapshots, b"one")), denied);
    assert_eq!(kind_of(rig.fs.readdir(&user(8), snapshots, 0, &mut |_| WalkControl::Stop)), denied);
}

#[test]
fn snapshot_directory_listing_holds_one_look_up_per_entry() {
    let rig = rig();
    let (dir, snapshots) = with_snapshot(&rig);
    rig.dir(snapshots, "two");
    let held = rig.fs.held();
    let one = rig.find(snapshots, "one").expect("it was taken").node;
    assert!(rig.fs.holds_name(snapshots, b"one"));
    let mut taken = Vec::new();
    let mut cookie = 0;
    // The second is not consumed.
    let list = &mut |entry: &vfs::DirEntry<'_>| {
        if taken.len() == 1 {
            return WalkControl::Stop;
        }
        assert!(entry.attr.is_some());
        cookie = entry.cookie;
        taken.push(entry.node);
        WalkControl::Continue
    };
    rig.fs.readdirplus(&Caller::root(), snapshots, 0, list).expect("a list");
    assert_eq!(rig.fs.held(), held + 2);
    let mut rest = Vec::new();
    rig.fs
        .readdir(&Caller::root(), snapshots, cookie, &mut |entry| {
            rest.push(entry.name.to_vec());
            WalkControl::Continue
        })
        .expect("the rest");
    assert_eq!(rest, [b"two"]);
    rig.fs.forget(taken[0], 1);
    rig.fs.forget(one, 1);
    // Nothing is held of a virtual directory.
    rig.find(dir, ".snapshots").expect("it is there");
    rig.fs.forget(snapshots, 1);
    assert_eq!(rig.fs.held(), held);
}

/// Each part of a listing read all snapshots, and sorted them.
#[test]
fn a_listing_of_many_snapshots_continues_where_it_was() {
    let rig = rig();
    let (_, snapshots) = with_snapshot(&rig);
    let root = Caller::root();
    for number in 0..5000 {
        let made = rig.dir(snapshots, &format!("{number:04}"));
        rig.fs.forget(made, 1);
    }
    let part = |cookie: u64, most: usize| {
        let mut names: Vec<(Vec<u8>, u64)> = Vec::new();
        let listed = rig.fs.readdir(&root, snapshots, cookie, &mut |entry| {
            if names.len() == most {
                return WalkControl::Stop;
            }
            names.push((entry.name.to_vec(), entry.cookie));
            WalkControl::Continue
        });
        listed.expect("a list");
        names
    };
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let names = part(cookie, 70);
        let Some((_, last)) = names.last() else { break };
        cookie = *last;
        all.extend(names.into_iter().map(|(name, _)| name));
    }
    let made = (0..5000).map(|number| format!("{number:04}").into_bytes());
    assert!(all.iter().cloned().eq([b"one".to_vec()].into_iter().chain(made)));
    assert_eq!(part(0, usize::MAX).len(), 5001, "in one call, too");
    // A deleted snapshot is not in a listing that begins later, whatever was read before.
    let (_, third) = part(0, 3)[2];
    rig.fs.rmdir(&root, snapshots, b"0002").expect("it is deleted");
    assert_eq!(part(part(0, 2)[1].1, 2)[1].0, b"0003");
    assert!(part(third, 1)[0].1 > third);
    let denied = rig.fs.readdir(&user(8), snapshots, third, &mut |_| WalkControl::Stop);
    let mine = rig.fs.readdir(&root, snapshots, third, &mut |_| WalkControl::Stop);
    assert!(
        mine.is_ok()
            && (denied.is_ok()
                == rig.fs.readdir(&user(8), snapshots, 0, &mut |_| WalkControl::Stop).is_ok())
    );
}

#[test]
fn resolve_finds_a_snapshot_by_number_at_the_root_only() {
    let rig = rig();
    let (_, snapshots) = with_snapshot(&rig);
    let one = rig.find(snapshots, "one").expect("it was taken").node;
    let number = name_of_number(inode::SubvolId(one.shown()));
    let walk = |path: &[u8]| rig.fs.resolve(&Caller::root(), path, Follow::Yes);
    let at_root = [b"/.snapshots/", &number[..]].concat();
    assert_eq!(walk(&at_root).expect("it is there").node, one);
    let file = walk(&[&at_root[..], b"/f"].concat()).expect("a file").attr;
    assert_eq!(file.kind, Kind::File);
    let above = walk(&[&at_root[..], b"/.."].concat()).expect("the directory of snapshots").node;
    assert_eq!(above, rig.find(ROOT, ".snapshots").expect("it is there").node);
    let elsewhere = walk(&[b"/d/.snapshots/", &number[..]].concat());
    assert_eq!(kind_of(elsewhere), std::mem::discriminant(&FsError::NotFound));
    let root = rig.find(ROOT, ".snapshots").expect("it is there").node;
    let plain = rig.fs.lookup(&Caller::root(), root, &number);
    assert_eq!(kind_of(plain), std::mem::discriminant(&FsError::NotFound));
    let below = rig.fs.resolve_below(&Caller::root(), b"/d/.snapshots", Follow::Yes);
    assert_eq!(kind_of(below), std::mem::discriminant(&FsError::NotPermitted("")));
}

#[test]
fn snapshot_directory_has_the_configured_name() {
    let rig = rig();
    let clock = rig.env.env().clock;
    let fs = VirtualDirs::new(Arc::new(MemoryFs::new()), clock, b"versions");
    let root = Caller::root();
    assert!(fs.lookup(&root, ROOT, b"versions").is_ok());
    assert!(matches!(fs.lookup(&root, ROOT, b".snapshots"), Err(FsError::NotFound)));
    fs.mkdir(&root, ROOT, b".snapshots", 0o755).expect("a name like any other");
}

#[test]
fn notifications_are_translated_to_virtual_directories() {
    let rig = rig();
    let (dir, _) = with_snapshot(&rig);
    let notified = Arc::new(Notified::default());
    rig.fs.set_invalidate(Arc::<Notified>::clone(&notified));
    let below = rig.fs.report();
    below.entry(dir, b"f");
    below.snapshot(dir, b"one");
    below.let_go_below(dir);
    below.all_names();
    let dir = dir.shown();
    let expected = [
        format!("entry 0 {dir} f"),
        format!("entry 1 {dir} one"),
        format!("let go 0 {dir} .snapshots"),
        "all 0 1 ".to_owned(),
    ];
    assert_eq!(*notified.0.lock(), expected);
}
