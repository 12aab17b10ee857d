//! `.search`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use inode::{Caller, FsError, Kind};
use testing::MemoryFs;
use vfs::{FileSystem, NewNode, VirtualDirs, WalkControl};

use crate::support::{Notified, ROOT, rig, user};

#[test]
fn query_is_searched_again_when_it_is_listed_or_not_fresh() {
    let rig = rig();
    *rig.search.all.lock() = vec!["../../a/f", "../../b/f"];
    let top = rig.find(ROOT, ".search").expect("it is at the root").node;
    assert_eq!(rig.names(ROOT), [""; 0]);
    assert_eq!(rig.names(top), [""; 0]);
    let query = rig.find(top, "*.rs").expect("a query").node;
    assert!(rig.fs.is_volatile(query) && !rig.fs.is_volatile(ROOT));
    assert_eq!(rig.names(query), ["f", "f~2"]);
    let link = rig.find(query, "f~2").expect("the second");
    assert_eq!((link.attr.kind, link.attr.size), (Kind::Symlink, 9));
    assert_eq!(rig.fs.readlink(&Caller::root(), link.node).expect("a link"), b"../../b/f");
    assert_eq!(rig.search.runs.load(Ordering::Relaxed), 1, "the look-up used what was listed");
    // A path that still matches keeps its name and its number.
    *rig.search.all.lock() = vec!["../../b/f"];
    assert_eq!(rig.names(query), ["f~2"]);
    assert_eq!(rig.find(query, "f~2").expect("it stays").node, link.node);
    assert_eq!(rig.search.runs.load(Ordering::Relaxed), 2);
    rig.env.clock.advance(Duration::from_secs(60));
    assert!(matches!(rig.find(query, "f"), Err(FsError::NotFound)));
    assert_eq!(rig.search.runs.load(Ordering::Relaxed), 3, "what was found is not fresh");
    assert_eq!(rig.find(query, "..").expect("a way up").node, top);
    assert_eq!(rig.find(top, "..").expect("a way up").node, ROOT);
}

#[test]
fn query_belongs_to_its_caller_and_refuses_changes() {
    let rig = rig();
    let top = rig.find(ROOT, ".search").expect("it is at the root").node;
    let own = rig.fs.lookup(&user(7), top, b"x").expect("a query").node;
    let other = rig.fs.lookup(&user(8), top, b"x").expect("a query").node;
    assert_ne!(own, other);
    let list = |uid, node| rig.fs.readdir(&user(uid), node, 0, &mut |_| WalkControl::Continue);
    list(7, own).expect("its own");
    assert!(matches!(list(8, own), Err(FsError::AccessDenied)));
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let refused = rig.fs.mknod(&Caller::root(), own, b"x", &new);
    assert!(matches!(refused, Err(FsError::NotPermitted(_))), "{refused:?}");
    let wrong = rig.fs.lookup(&user(7), top, b"(");
    assert!(matches!(wrong, Err(FsError::InvalidArgument(_))), "{wrong:?}");
    let hidden = rig.fs.lookup(&user(7), top, b".git");
    assert!(matches!(hidden, Err(FsError::NotFound)), "{hidden:?}");
}

#[test]
fn search_directory_follows_the_root_of_the_mount() {
    let rig = rig();
    let (one, two) = (rig.dir(ROOT, "one"), rig.dir(ROOT, "two"));
    rig.fs.set_invalidate(Arc::new(Notified::default()));
    rig.fs.set_shown_root(one);
    assert!(matches!(rig.find(ROOT, ".search"), Err(FsError::NotFound)));
    let top = rig.find(one, ".search").expect("it is at the root of the mount").node;
    // The root of the mount is rolled back.
    rig.fs.report().root(one, two);
    assert!(matches!(rig.find(one, ".search"), Err(FsError::NotFound)));
    assert_eq!(rig.find(two, ".search").expect("it moved").node, top);
    let query = rig.find(top, "x").expect("a query").node;
    rig.names(query);
    assert_eq!(*rig.search.from.lock(), Some(two));
    let stored = rig.dir(two, ".search");
    assert_eq!(rig.find(two, ".search").expect("a directory").node, stored);
    // Without a `Search` there is none.
    let fs = VirtualDirs::new(Arc::new(MemoryFs::new()), rig.env.env().clock, b".snapshots");
    let absent = fs.lookup(&Caller::root(), ROOT, b".search");
    assert!(matches!(absent, Err(FsError::NotFound)), "{absent:?}");
}
