//! `.snapshots`, which every directory has and no listing shows.

use fs::{FileSystem, NewNode, RenameMode, WalkControl};
use inode::{FsError, Kind};

use super::{filled, give, home, root};
use crate::support::{refused, user, volume};

#[test]
fn snapshots_are_made_listed_renamed_and_removed_as_directories() {
    let v = volume();
    let dir = filled(&v, home(), "d", 2);
    assert_eq!(v.sorted(dir), ["f0", "f1"], "not listed");
    let virtual_dir = v.find(dir, ".snapshots").expect("always there").node;
    assert_eq!(v.sorted(virtual_dir), Vec::<String>::new());
    let made = v.fs.mkdir(&root(), virtual_dir, b"one", 0o755).expect("a snapshot");
    assert_eq!(v.sorted(made.node), ["f0", "f1"]);
    v.fs.mkdir(&root(), virtual_dir, b"two", 0o755).expect("a snapshot");
    refused(v.fs.mkdir(&root(), virtual_dir, b"two", 0o755), &FsError::Exists);
    assert_eq!(v.sorted(virtual_dir), ["one", "two"]);
    let (from, to) = ((virtual_dir, &b"one"[..]), (virtual_dir, &b"first"[..]));
    v.fs.rename(&root(), from, to, RenameMode::Replace).expect("a snapshot");
    v.fs.rmdir(&root(), virtual_dir, b"two").expect("a snapshot, full or not");
    assert_eq!(v.sorted(virtual_dir), ["first"]);
    assert_eq!(v.find(virtual_dir, "..").expect("a way up").node, dir);
    refused(v.find(virtual_dir, "two"), &FsError::NotFound);
}

#[test]
fn the_snapshot_directory_allows_nothing_else() {
    let v = volume();
    let dir = filled(&v, home(), "d", 1);
    let virtual_dir = v.find(dir, ".snapshots").expect("always there").node;
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let denied = FsError::NotPermitted("");
    refused(v.fs.mknod(&root(), virtual_dir, b"f", &new), &denied);
    refused(v.fs.symlink(&root(), virtual_dir, b"l", b"t"), &denied);
    refused(v.fs.unlink(&root(), virtual_dir, b"f"), &FsError::IsDirectory);
    let changes = inode::SetAttr { mode: Some(0), ..inode::SetAttr::default() };
    refused(v.fs.setattr(&root(), virtual_dir, &changes), &denied);
    let set = v.fs.setxattr(&root(), virtual_dir, b"user.x", b"y", fs::SetXattr::Any);
    refused(set, &denied);
    let (from, to) = ((dir, &b"f0"[..]), (virtual_dir, &b"f0"[..]));
    let moved = v.fs.rename(&root(), from, to, RenameMode::Replace);
    refused(moved, &FsError::CrossSubvolume(""));
    refused(v.fs.mkdir(&root(), dir, b".snapshots", 0o755), &FsError::Exists);
    refused(v.fs.rmdir(&root(), dir, b".snapshots"), &FsError::NotPermitted(""));
    v.fs.mkdir(&root(), virtual_dir, b"one", 0o755).expect("a snapshot");
    let shown = v.find(virtual_dir, "one").expect("the snapshot").node;
    let inner = v.find(shown, ".snapshots").expect("empty, but there").node;
    assert_eq!(v.sorted(inner), Vec::<String>::new());
    let made = v.fs.mkdir(&root(), inner, b"x", 0o755);
    refused(made, &FsError::ReadOnly(String::new()));
}

#[test]
fn the_snapshot_directory_belongs_to_its_directorys_owner() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    give(&v, dir, 1000);
    let entry = v.fs.lookup(&user(1001), dir, b".snapshots").expect("a way in");
    assert_eq!((entry.attr.uid, entry.attr.kind), (1000, Kind::Directory));
    let virtual_dir = entry.node;
    refused(v.fs.mkdir(&user(1001), virtual_dir, b"x", 0o755), &FsError::NotPermitted(""));
    v.fs.mkdir(&user(1000), virtual_dir, b"x", 0o755).expect("the owner may");
    refused(v.fs.rmdir(&user(1001), virtual_dir, b"x"), &FsError::NotPermitted(""));
    v.fs.rmdir(&user(1000), virtual_dir, b"x").expect("the owner may");
}

#[test]
fn a_long_list_is_read_in_pieces() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    for at in 0..500 {
        v.fs.snapshot_create(&root(), dir, format!("s{at}").as_bytes()).expect("a snapshot");
    }
    let virtual_dir = v.find(dir, ".snapshots").expect("always there").node;
    let (mut seen, mut cookie) = (0, 0);
    loop {
        let mut taken = 0;
        let from = cookie;
        let list = &mut |entry: &fs::DirEntry<'_>| {
            if taken == 7 {
                return WalkControl::Stop;
            }
            assert!(entry.cookie > 2 && entry.cookie > cookie);
            cookie = entry.cookie;
            taken += 1;
            WalkControl::Continue
        };
        v.fs.readdir(&root(), virtual_dir, from, list).expect("a list");
        seen += taken;
        if taken == 0 {
            break;
        }
    }
    assert_eq!(seen, 500);
}
