//! Subvolumes that users create: boundaries for links and renames.

use fs::{FileSystem, RenameMode};
use inode::FsError;

use super::{filled, forget, home, root, settle};
use crate::support::{refused, user, volume};

#[test]
fn a_subvolume_looks_like_a_directory() {
    let v = volume();
    let made = v.fs.subvolume_create(&user(1000), home(), b"s", 0o750).expect("a subvolume");
    assert_eq!((made.attr.uid, made.attr.mode, made.attr.nlink), (1000, 0o750, 2));
    assert_eq!(v.find(home(), "s").expect("its name").node, made.node);
    assert_eq!(v.find(made.node, "..").expect("a way up").node, home());
    refused(v.fs.subvolume_create(&root(), home(), b"s", 0o755), &FsError::Exists);
    v.check_counts(home());
    v.file(made.node, "f");
    refused(v.fs.rmdir(&root(), home(), b"s"), &FsError::NotEmpty);
    v.fs.unlink(&root(), made.node, b"f").expect("a file");
    v.fs.rmdir(&root(), home(), b"s").expect("an empty subvolume");
    forget(&v, made.node);
    settle(&v);
    v.check_counts(home());
    assert_eq!(v.fs.status().expect("a status").subvolumes, 1);
}

#[test]
fn names_do_not_cross_the_boundary_but_subvolumes_do() {
    let v = volume();
    let dir = filled(&v, home(), "d", 1);
    let sub = v.fs.subvolume_create(&root(), home(), b"s", 0o755).expect("a subvolume").node;
    let file = v.find(dir, "f0").expect("the file").node;
    let crosses = FsError::CrossSubvolume("");
    let rename = |from, to| v.fs.rename(&root(), from, to, RenameMode::Replace);
    refused(v.fs.link(&root(), file, sub, b"f"), &crosses);
    refused(rename((dir, b"f0"), (sub, b"f0")), &crosses);
    rename((home(), b"s"), (dir, b"t")).expect("the name of a subvolume moves");
    let moved = v.find(dir, "t").expect("the subvolume").node;
    assert_eq!(moved, sub);
    assert_eq!(v.find(moved, "..").expect("a way up").node, dir);
    v.check_counts(home());
    v.check_counts(dir);
    let other = v.fs.subvolume_create(&root(), home(), b"o", 0o755).expect("a subvolume").node;
    rename((dir, b"t"), (other, b"s")).expect("into another subvolume");
    assert_eq!(v.find(moved, "..").expect("a way up").node, other);
    let loops = FsError::InvalidArgument("");
    refused(rename((home(), b"o"), (moved, b"o")), &loops);
    v.fs.clone_dir(&root(), other, home(), b"c").expect("a clone");
    let copy = v.find(home(), "c").expect("the clone").node;
    assert_eq!(v.sorted(copy), ["s"], "what moved is found where it is now");
    assert_ne!(v.find(copy, "s").expect("a copy").node, moved);
}
