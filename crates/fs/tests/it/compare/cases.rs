//! Cases that comparisons of trees get wrong, each by name, on both engines.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use format::acl::{ACCESS, Acl};
use fs::{Allocate, Difference, Engine, Field, FileSystem, RenameMode, SetXattr};
use inode::{Caller, FsError, NodeId, SetAttr, SetTime};
use store::Store;

use super::oracle::{at, check, check_inodes, refused, reported};
use crate::support::{ROOT, Volume, volume_on};

type Engines = Volume<dyn Store>;

fn root() -> Caller {
    Caller::root()
}

fn fresh(engine: Engine) -> Engines {
    volume_on(engine, inode::NameHash::BITS)
}

/// Takes a snapshot, and lets time pass.
fn snapshot(v: &Engines, directory: NodeId, name: &str) {
    v.fs.snapshot_create(&root(), directory, name.as_bytes()).unwrap();
    v.tick();
}

fn rename(v: &Engines, (from, name): (NodeId, &str), (to, new_name): (NodeId, &str)) {
    let (from, to) = ((from, name.as_bytes()), (to, new_name.as_bytes()));
    v.fs.rename(&root(), from, to, RenameMode::Replace).unwrap();
}

fn settle(v: &Engines) {
    let mut idle = 0;
    while idle < 3 {
        idle = if v.fs.background_step(100).unwrap().more { 0 } else { idle + 1 };
        v.env.clock.advance(Duration::from_secs(1));
    }
}

/// Compares two paths with a full comparison as the judge, both ways, and returns the changes.
fn changes(v: &Engines, old: &str, new: &str) -> Vec<String> {
    let nodes = (at(&v.fs, old), at(&v.fs, new));
    let found = check(&v.fs, &root(), nodes);
    check_inodes(&v.fs, nodes, &found);
    check(&v.fs, &root(), (nodes.1, nodes.0));
    reported(&found)
}

/// The changes since snapshot `s` of the root.
fn since(v: &Engines) -> Vec<String> {
    changes(v, "/.snapshots/s", "/")
}

fn names_swapped_between_directories(engine: Engine) {
    let v = fresh(engine);
    let (a, b) = (v.dir(ROOT, "a").node, v.dir(ROOT, "b").node);
    v.file(a, "x");
    v.file(b, "y");
    v.dir(a, "d");
    v.dir(b, "d");
    snapshot(&v, ROOT, "s");
    assert_eq!(since(&v), Vec::<String>::new());
    v.fs.rename(&root(), (a, b"x"), (b, b"y"), RenameMode::Exchange).unwrap();
    v.fs.rename(&root(), (a, b"d"), (b, b"d"), RenameMode::Exchange).unwrap();
    let want = ["M a", "R b/d -> a/d", "R b/y -> a/x", "M b", "R a/d -> b/d", "R a/x -> b/y"];
    assert_eq!(since(&v), want);
}

fn a_directory_below_its_own_former_child(engine: Engine) {
    let v = fresh(engine);
    let a = v.dir(ROOT, "a").node;
    let b = v.dir(a, "b").node;
    let c = v.dir(b, "c").node;
    v.file(a, "in a");
    v.file(c, "in c");
    snapshot(&v, ROOT, "s");
    rename(&v, (a, "b"), (ROOT, "b"));
    rename(&v, (ROOT, "a"), (c, "a"));
    let want = ["M .", "R a/b -> b", "M b/c", "R a -> b/c/a"];
    assert_eq!(since(&v), want);
}

fn files_and_directories_in_each_others_place(engine: Engine) {
    let v = fresh(engine);
    let d = v.dir(ROOT, "d").node;
    v.file(d, "inside");
    v.file(ROOT, "f");
    v.fs.symlink(&root(), ROOT, b"l", b"target").unwrap();
    snapshot(&v, ROOT, "s");
    v.fs.rename(&root(), (ROOT, b"d"), (ROOT, b"f"), RenameMode::Exchange).unwrap();
    v.fs.unlink(&root(), ROOT, b"l").unwrap();
    let l = v.dir(ROOT, "l").node;
    v.file(l, "new");
    let want = ["M .", "R f -> d", "R d -> f", "- l", "+ l", "+ l/new"];
    let mut found = since(&v);
    let mut want = want.map(str::to_owned).to_vec();
    found.sort();
    want.sort();
    assert_eq!(found, want);
}

fn hard_links_made_moved_and_split(engine: Engine) {
    let v = fresh(engine);
    let d = v.dir(ROOT, "d").node;
    let one = v.file(ROOT, "one").node;
    let two = v.file(ROOT, "two").node;
    v.fs.link(&root(), two, d, b"two again").unwrap();
    let three = v.file(ROOT, "three").node;
    v.fs.link(&root(), three, d, b"three again").unwrap();
    v.fs.link(&root(), three, d, b"three more").unwrap();
    snapshot(&v, ROOT, "s");
    // Made: a second name. Moved: another directory. Split: the name becomes a file of its own.
    v.fs.link(&root(), one, d, b"one again").unwrap();
    rename(&v, (d, "two again"), (ROOT, "two moved"));
    v.fs.unlink(&root(), d, b"three more").unwrap();
    v.file(d, "three more");
    let found = since(&v);
    for line in [
        "+ d/one again link",
        "R d/two again -> two moved",
        "- d/three more link",
        "+ d/three more",
        "M one",
        "M three",
        "M d/three again",
    ] {
        assert!(found.iter().any(|found| found == line), "{line}: {found:?}");
    }
    // A directory with one of the names goes away as a whole.
    v.fs.rmr(&root(), ROOT, b"d").unwrap();
    since(&v);
    settle(&v);
    since(&v);
}

fn holes_punched(engine: Engine) {
    let v = fresh(engine);
    let f = v.file(ROOT, "f").node;
    v.write(f, 0, &vec![7; 300_000]);
    let zeros = v.file(ROOT, "zeros").node;
    v.write(zeros, 0, &vec![0; 300_000]);
    snapshot(&v, ROOT, "s");
    v.fs.fallocate(&root(), f, (8192, 100_000), Allocate::Punch).unwrap();
    v.fs.fallocate(&root(), zeros, (0, 300_000), Allocate::Punch).unwrap();
    assert_eq!(since(&v), ["M f", "M zeros"]);
}

/// Within one tick of the clock a write changes no attribute; and a program may set a time back.
fn contents_changed_at_equal_size_and_time(engine: Engine) {
    let v = fresh(engine);
    let d = v.dir(ROOT, "d").node;
    let (large, small) = (v.file(d, "large").node, v.file(d, "small").node);
    let (set_back, same) = (v.file(d, "set back").node, v.file(d, "same").node);
    for (node, length) in [(large, 200_000), (small, 100), (set_back, 200_000), (same, 200_000)] {
        v.write(node, 0, &vec![1; length]);
    }
    let mtime = v.fs.getattr(&root(), set_back).unwrap().mtime;
    v.fs.snapshot_create(&root(), ROOT, b"s").unwrap();
    v.write(large, 150_000, &[2; 10]);
    v.write(small, 50, &[2; 10]);
    v.write(same, 0, &vec![1; 200_000]);
    assert_eq!(since(&v), ["M d/large", "M d/small"]);
    v.tick();
    v.write(set_back, 150_000, &[2; 10]);
    let back = SetAttr { mtime: Some(SetTime::At(mtime)), ..SetAttr::default() };
    v.fs.setattr(&root(), set_back, &back).unwrap();
    let nodes = (at(&v.fs, "/.snapshots/s"), at(&v.fs, "/"));
    let found = check(&v.fs, &root(), nodes);
    assert_eq!(reported(&found), ["M d/large", "M d/set back", "M d/small"]);
    let fields: Vec<Field> = found[1].fields.iter().collect();
    assert_eq!(fields, [Field::Contents, Field::Ctime]);
}

/// A rollback brings numbers back that a directory had before, beside those that it got since.
fn numbers_that_were_used_before(engine: Engine) {
    let v = fresh(engine);
    let d = v.dir(ROOT, "d").node;
    v.file(d, "kept");
    v.file(d, "gone");
    snapshot(&v, ROOT, "s");
    snapshot(&v, d, "inner");
    v.fs.unlink(&root(), d, b"gone").unwrap();
    v.file(d, "gone");
    v.file(d, "later");
    snapshot(&v, ROOT, "between");
    v.fs.rollback(&root(), d, b"inner").unwrap();
    let d = v.find(ROOT, "d").unwrap().node;
    v.file(d, "after");
    let nodes = |name: &str| (at(&v.fs, &format!("/.snapshots/{name}")), at(&v.fs, "/"));
    let found = reported(&check(&v.fs, &root(), nodes("s")));
    assert_eq!(found, ["M d", "+ d/after"]);
    let found = reported(&check(&v.fs, &root(), nodes("between")));
    for line in ["+ d/after", "- d/later"] {
        assert!(found.iter().any(|found| found == line), "{line}: {found:?}");
    }
    settle(&v);
    assert_eq!(reported(&check(&v.fs, &root(), nodes("s"))), ["M d", "+ d/after"]);
}

/// A file left a directory before that was rolled back: it is in both places, with one number.
fn a_file_that_left_before_a_rollback(engine: Engine) {
    let v = fresh(engine);
    let d = v.dir(ROOT, "d").node;
    v.file(d, "f");
    snapshot(&v, d, "inner");
    snapshot(&v, ROOT, "s");
    rename(&v, (d, "f"), (ROOT, "g"));
    v.fs.rollback(&root(), d, b"inner").unwrap();
    v.tick();
    let found = reported(&check(&v.fs, &root(), (at(&v.fs, "/.snapshots/s"), at(&v.fs, "/"))));
    assert!(found.iter().any(|line| line == "+ g"), "{found:?}");
    assert!(!found.iter().any(|line| line.contains("d/f")), "{found:?}");
}

fn only_attributes_changed(engine: Engine) {
    let v = fresh(engine);
    let names = ["mode", "owner", "xattr", "acl", "time", "read"];
    let nodes = names.map(|name| v.file(ROOT, name).node);
    v.write(nodes[5], 0, b"x");
    snapshot(&v, ROOT, "s");
    let set = |node, changes: &SetAttr| v.fs.setattr(&root(), node, changes).unwrap();
    set(nodes[0], &SetAttr { mode: Some(0o600), ..SetAttr::default() });
    set(nodes[1], &SetAttr { uid: Some(7), gid: Some(8), ..SetAttr::default() });
    v.fs.setxattr(&root(), nodes[2], b"user.a", b"b", SetXattr::Any).unwrap();
    let mut acl = Acl::of_mode(0o640);
    acl.users.push((7, 6));
    acl.mask = Some(6);
    v.fs.setxattr(&root(), nodes[3], ACCESS, &acl.encode(), SetXattr::Any).unwrap();
    set(nodes[4], &SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() });
    v.read(nodes[5]);
    let found = check(&v.fs, &root(), (at(&v.fs, "/.snapshots/s"), ROOT));
    assert_eq!(reported(&found), ["M acl", "M mode", "M owner", "M time", "M xattr"]);
    let fields = |at: usize| found[at].fields.iter().collect::<Vec<Field>>();
    assert_eq!(fields(0), [Field::Mode, Field::Acl, Field::Ctime]);
    assert_eq!(fields(1), [Field::Mode, Field::Ctime]);
    assert_eq!(fields(2), [Field::Uid, Field::Gid, Field::Ctime]);
    assert_eq!(fields(3), [Field::Mtime, Field::Ctime]);
    assert_eq!(fields(4), [Field::Xattrs, Field::Ctime]);
}

fn subvolumes_and_clones_mounted_below(engine: Engine) {
    let v = fresh(engine);
    let d = v.dir(ROOT, "d").node;
    v.file(d, "f");
    let make = |parent, name: &str| {
        v.fs.subvolume_create(&root(), parent, name.as_bytes(), 0o755).unwrap().node
    };
    let (kept, moved) = (make(d, "kept"), make(d, "moved"));
    let inner = make(moved, "inner");
    make(d, "removed");
    for node in [kept, moved, inner] {
        v.file(node, "old");
    }
    snapshot(&v, ROOT, "s");
    assert_eq!(reported(&check(&v.fs, &root(), (at(&v.fs, "/.snapshots/s"), ROOT))), [""; 0]);
    v.file(kept, "new");
    v.file(inner, "new");
    rename(&v, (d, "moved"), (ROOT, "moved"));
    v.fs.rmr(&root(), d, b"removed").unwrap();
    v.fs.clone_dir(&root(), d, ROOT, b"clone").unwrap();
    let nodes = (at(&v.fs, "/.snapshots/s"), ROOT);
    let found = reported(&check(&v.fs, &root(), nodes));
    let want = [
        "M .",
        "+ clone",
        "+ clone/f",
        "+ clone/kept",
        "+ clone/kept/new",
        "+ clone/kept/old",
        "M d",
        "M d/kept",
        "+ d/kept/new",
        "- d/removed",
        "R d/moved -> moved",
        "M moved/inner",
        "+ moved/inner/new",
    ];
    assert_eq!(found, want);
    settle(&v);
    assert_eq!(reported(&check(&v.fs, &root(), nodes)), want);
}

/// All have one root, so that only what each is copied from, and when, distinguishes them.
fn clones_of_one_subvolume_that_moved_are_paired(engine: Engine) {
    let v = fresh(engine);
    let a = v.fs.subvolume_create(&root(), ROOT, b"a", 0o755).unwrap().node;
    v.file(a, "f");
    for at in 0..6 {
        v.fs.clone_dir(&root(), a, ROOT, format!("c{at}").as_bytes()).unwrap();
    }
    snapshot(&v, ROOT, "s");
    for at in 0..6 {
        rename(&v, (ROOT, &format!("c{at}")), (ROOT, &format!("d{at}")));
    }
    let nodes = (at(&v.fs, "/.snapshots/s"), ROOT);
    let found = reported(&check(&v.fs, &root(), nodes));
    let moved = (0..6).map(|at| format!("R c{at} -> d{at}"));
    let want: Vec<String> = std::iter::once("M .".to_owned()).chain(moved).collect();
    assert_eq!(found, want);
}

/// A tree that was detached is removed at once, whatever is left of its records.
fn a_removed_tree_is_reported_whole(engine: Engine) {
    let v = fresh(engine);
    let d = v.dir(ROOT, "d").node;
    for at in 0..50 {
        let below = v.dir(d, &format!("{at:02}")).node;
        let file = v.file(below, "f").node;
        v.write(file, 0, &[1; 9000]);
    }
    snapshot(&v, ROOT, "s");
    v.fs.rmr(&root(), ROOT, b"d").unwrap();
    loop {
        let found = since(&v);
        assert_eq!((found.len(), found[0].as_str()), (102, "M ."));
        if !v.fs.background_step(40).unwrap().more {
            return;
        }
    }
}

/// The tree of a snapshot of a directory has all of its subvolume, until it is pruned.
fn what_is_outside_of_the_directory_is_left_out(engine: Engine) {
    let v = fresh(engine);
    let (d, e) = (v.dir(ROOT, "d").node, v.dir(ROOT, "e").node);
    let away = v.dir(d, "away").node;
    v.file(away, "below");
    let back = v.dir(e, "back").node;
    v.file(back, "below");
    let (one, two) = (v.file(d, "one").node, v.file(e, "two").node);
    for node in [one, two] {
        v.write(node, 0, &vec![1; 100_000]);
    }
    let linked = v.file(d, "linked").node;
    v.fs.link(&root(), linked, e, b"linked").unwrap();
    v.fs.snapshot_create(&root(), d, b"s").unwrap();
    v.write(two, 0, &vec![2; 100_000]);
    v.tick();
    v.file(e, "outside");
    rename(&v, (d, "away"), (e, "away"));
    rename(&v, (e, "back"), (d, "back"));
    rename(&v, (d, "one"), (e, "one"));
    rename(&v, (e, "linked"), (e, "linked elsewhere"));
    let want = ["M .", "- away", "- away/below", "+ back", "+ back/below", "M linked", "- one"];
    assert_eq!(changes(&v, "/d/.snapshots/s", "/d"), want);
    let want = ["M .", "M back", "M linked"];
    // A state of a directory in a snapshot of another.
    v.fs.snapshot_create(&root(), ROOT, b"s").unwrap();
    v.tick();
    v.fs.link(&root(), linked, e, b"third").unwrap();
    rename(&v, (d, "back"), (d, "forth"));
    rename(&v, (d, "forth"), (d, "back"));
    assert_eq!(changes(&v, "/.snapshots/s/d", "/d"), want);
}

fn clones_and_their_sources(engine: Engine) {
    let v = fresh(engine);
    let d = v.dir(ROOT, "d").node;
    v.file(d, "f");
    v.file(d, "g");
    v.fs.clone_dir(&root(), d, ROOT, b"c").unwrap();
    v.tick();
    let c = v.find(ROOT, "c").unwrap().node;
    v.file(c, "in the clone");
    v.file(d, "in the source");
    v.fs.unlink(&root(), c, b"g").unwrap();
    let want = ["M .", "- g", "+ in the clone", "- in the source"];
    assert_eq!(changes(&v, "/d", "/c"), want);
    settle(&v);
    assert_eq!(changes(&v, "/d", "/c"), want);
}

fn what_is_no_pair_of_states_is_refused(engine: Engine) {
    let v = fresh(engine);
    let (d, e) = (v.dir(ROOT, "d").node, v.dir(ROOT, "e").node);
    let f = v.file(d, "f").node;
    refused(&v.fs, &root(), (d, e), &FsError::InvalidArgument(""));
    refused(&v.fs, &root(), (d, f), &FsError::NotDirectory);
    let snapshots = v.find(d, ".snapshots").unwrap().node;
    refused(&v.fs, &root(), (d, snapshots), &FsError::Stale);
}

/// If there are more inodes than there is memory for, they are compared part by part. What cannot
/// be divided ends the comparison, which then has no more changes than it reported.
fn memory_is_bounded(engine: Engine) {
    let v = fresh(engine);
    let d = v.dir(ROOT, "d").node;
    for file in 0..600 {
        v.file(d, &format!("f{file}"));
    }
    snapshot(&v, ROOT, "s");
    for file in 0..600 {
        let node = v.find(d, &format!("f{file}")).unwrap().node;
        let changes = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        v.fs.setattr(&root(), node, &changes).unwrap();
    }
    let within = |memory: usize| {
        let (mut paths, cancel) = (Vec::new(), AtomicBool::new(false));
        let mut take = |change: &Difference| {
            paths.push(change.path().to_vec());
            ControlFlow::Continue(())
        };
        let nodes = (at(&v.fs, "/.snapshots/s"), ROOT);
        v.fs.compare_within(&root(), nodes, memory, (&cancel, &mut take)).map(|_| paths)
    };
    let whole = within(64 << 20).unwrap();
    assert_eq!(whole.len(), 600);
    // 128 inodes at a time.
    let mut parts = within(64 << 10).unwrap();
    assert!(!parts.is_sorted(), "in several parts");
    parts.sort();
    assert_eq!(whole, parts);
    // Names of one file, and directories that wait.
    let node = v.find(d, "f0").unwrap().node;
    for link in 0..100 {
        v.fs.link(&root(), node, d, format!("a further name {link:03}").as_bytes()).unwrap();
    }
    assert!(matches!(within(64 << 10), Err(FsError::MemoryExceeded(_))));
    assert_eq!(within(64 << 20).unwrap().len(), 701);
    let e = v.dir(ROOT, "e").node;
    for directory in 0..600 {
        v.dir(e, &format!("{directory}"));
    }
    assert!(matches!(within(64 << 10), Err(FsError::MemoryExceeded(_))));
    assert!(within(64 << 20).unwrap().len() > 1300);
}

on_each_engine! {
    memory_is_bounded,
    names_swapped_between_directories,
    a_directory_below_its_own_former_child,
    files_and_directories_in_each_others_place,
    hard_links_made_moved_and_split,
    holes_punched,
    contents_changed_at_equal_size_and_time,
    numbers_that_were_used_before,
    a_file_that_left_before_a_rollback,
    only_attributes_changed,
    subvolumes_and_clones_mounted_below,
    clones_of_one_subvolume_that_moved_are_paired,
    a_removed_tree_is_reported_whole,
    what_is_outside_of_the_directory_is_left_out,
    clones_and_their_sources,
    what_is_no_pair_of_states_is_refused,
}
