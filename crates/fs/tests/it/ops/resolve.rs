//! `resolve`: paths.

use fs::{FileSystem, Follow};
use inode::{Caller, FsError, Kind};

use crate::support::{ROOT, refused, user, volume};

#[test]
fn paths_are_resolved_through_links_and_dots() {
    let v = volume();
    let a = v.dir(ROOT, "a");
    let file = v.file(a.node, "f");
    v.fs.symlink(&Caller::root(), ROOT, b"l", b"/a/../a").expect("a link");
    v.fs.symlink(&Caller::root(), a.node, b"m", b"f").expect("a link");
    let walk = |path: &str, follow| v.fs.resolve(&Caller::root(), path.as_bytes(), follow);
    for path in ["/a/f", "a//f", "/l/f", "/l/m", "/a/./../l/m", "a/m"] {
        assert_eq!(walk(path, Follow::Yes).expect(path).node, file.node, "{path}");
    }
    assert_eq!(walk("/l/m", Follow::No).expect("a link").attr.kind, Kind::Symlink);
    assert_eq!(walk("/l/", Follow::No).expect("a directory").node, a.node);
    for path in ["", "/", "..", "/../.."] {
        assert_eq!(walk(path, Follow::Yes).expect("the root").node, ROOT);
    }
    refused(walk("/a/f/", Follow::Yes), &FsError::NotDirectory);
    refused(walk("/a/f/x", Follow::Yes), &FsError::NotDirectory);
    refused(walk("/a/none", Follow::Yes), &FsError::NotFound);
}

#[test]
fn cyclic_links_terminate() {
    let v = volume();
    v.fs.symlink(&Caller::root(), ROOT, b"a", b"b").expect("a link");
    v.fs.symlink(&Caller::root(), ROOT, b"b", b"a").expect("a link");
    refused(v.fs.resolve(&Caller::root(), b"a", Follow::Yes), &FsError::Loop);
    assert_eq!(v.fs.status().expect("counters").nodes, 2, "only what was made is held");
}

#[test]
fn every_directory_on_the_way_is_checked() {
    let v = volume();
    let dir = v.fs.mkdir(&user(5), ROOT, b"d", 0o700).expect("a directory");
    v.dir(dir.node, "e");
    refused(v.fs.resolve(&user(6), b"d/e", Follow::Yes), &FsError::AccessDenied);
    v.fs.resolve(&user(5), b"d/e", Follow::Yes).expect("its owner may");
}
