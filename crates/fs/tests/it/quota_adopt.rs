//! A quota that is set on a directory that is not empty. All of its contents are charged, once,
//! while processes work in it, and through crashes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use format::quota::NAME_BYTES;
use fs::{Engine, FileSystem, Fs, NewNode, Owner, QuotaLimits, RenameMode};
use inode::{Caller, FsError, Kind, NodeId};
use store::Durability;
use testing::{CrashPolicy, SimDevice};

use crate::owner_quota::{limit, used as used_by};
use crate::quota::set;
use crate::script::{options, scale};
use crate::subject::{Base, FsSubject};
use crate::support::{ROOT, Volume, refused, volume};

fn used(fs: &Fs, node: NodeId) -> Option<(u64, u64)> {
    fs.quota_get(node).expect("a node").map(|quota| (quota.inodes, quota.bytes))
}

fn make(fs: &Fs, dir: NodeId, name: &str, bytes: usize) -> NodeId {
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let made = fs.mknod(&Caller::root(), dir, name.as_bytes(), &new).expect("a new file").node;
    if bytes > 0 {
        fs.write(&Caller::root(), made, 0, &vec![1; bytes]).expect("space");
    }
    fs.forget(made, 1);
    made
}

/// Directories of several levels, each with files, and a hard link; returns what that is charged.
fn fill(fs: &Fs, dir: NodeId, levels: u32) -> (u64, u64) {
    let (mut files, mut bytes) = (1, 0);
    for n in 0..3 {
        let length = n * 3000;
        let file = make(fs, dir, &format!("f{n}"), length);
        (files, bytes) = (files + 1, bytes + length as u64);
        if n == 1 {
            let found = fs.lookup(&Caller::root(), dir, b"f1").expect("it is there").node;
            assert_eq!(found, file);
            fs.link(&Caller::root(), file, dir, b"again").expect("another name");
            fs.forget(file, 2);
            bytes += NAME_BYTES;
        }
    }
    for n in 0..2 {
        let below = fs.mkdir(&Caller::root(), dir, format!("d{n}").as_bytes(), 0o755);
        let below = below.expect("a new directory").node;
        let (more, longer) = if levels == 0 { (1, 0) } else { fill(fs, below, levels - 1) };
        (files, bytes) = (files + more, bytes + longer);
        fs.forget(below, 1);
    }
    (files, bytes)
}

fn check(v: &Volume) {
    assert_eq!(v.fs.quota_check().expect("a count"), []);
    let list = |fs: &Fs| fs.quota_list(&Caller::root()).expect("a list");
    assert_eq!(list(&v.reopened()), list(&v.fs));
}

#[test]
fn the_contents_of_a_directory_are_charged_to_its_new_quota() {
    let v = volume();
    let root = Caller::root();
    let dir = v.dir(ROOT, "d").node;
    let there = fill(&v.fs, dir, 3);
    limit(&v.fs, Owner::User(0), None, Some(1 << 40));
    let by_root = used_by(&v.fs, Owner::User(0));
    set(&v.fs, dir, Some(there.0 + 1), Some(there.1));
    assert_eq!(used(&v.fs, dir), Some(there));
    let deep = v.find(v.find(dir, "d1").unwrap().node, "d0").unwrap().node;
    assert_eq!(used(&v.fs, deep), Some(there), "at any depth");
    assert_eq!(used_by(&v.fs, Owner::User(0)), by_root, "nobody owns more for it");
    make(&v.fs, deep, "one more", 0);
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    refused(v.fs.mknod(&root, dir, b"too many", &new), &FsError::QuotaExceeded);
    let f2 = v.find(deep, "f2").unwrap().node;
    refused(v.fs.write(&root, f2, 6000, b"x"), &FsError::QuotaExceeded);
    check(&v);
    set(&v.fs, deep, None, None);
    let inner = used(&v.fs, deep).unwrap();
    assert_eq!(used(&v.fs, dir).unwrap(), (there.0 + 1 - inner.0, there.1 - inner.1), "it moved");
    check(&v);
    v.fs.forget(f2, 1);
    v.fs.rmr(&root, ROOT, b"d").unwrap();
    v.fs.forget(deep, 1);
    v.fs.forget(dir, 1);
    while v.fs.background_step(64).expect("background work").more {}
    check(&v);
    assert_eq!(v.fs.quota_list(&root).unwrap(), [], "what is removed is not listed");
}

#[test]
fn a_limit_below_the_present_usage_stops_growth() {
    let v = volume();
    let dir = v.dir(ROOT, "d").node;
    let there = fill(&v.fs, dir, 1);
    set(&v.fs, dir, Some(1), Some(1));
    assert_eq!(used(&v.fs, dir), Some(there));
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    refused(v.fs.mknod(&Caller::root(), dir, b"x", &new), &FsError::QuotaExceeded);
    v.fs.unlink(&Caller::root(), dir, b"f0").expect("removing is never refused");
    assert_eq!(used(&v.fs, dir), Some((there.0 - 1, there.1)));
    check(&v);
}

#[test]
fn an_inherited_subvolume_is_in_the_clones_quota_and_uncharged() {
    let v = volume();
    let dir = v.dir(ROOT, "d").node;
    fill(&v.fs, dir, 1);
    let clone = v.fs.clone_dir(&Caller::root(), dir, ROOT, b"clone").unwrap().root;
    make(&v.fs, clone, "own", 500);
    set(&v.fs, clone, None, Some(10_000));
    assert_eq!(used(&v.fs, clone), Some((1, 500)));
    let f2 = v.find(clone, "f2").unwrap().node;
    v.write(f2, 0, b"changed");
    assert_eq!(used(&v.fs, clone), Some((2, 6500)));
    check(&v);
}

#[test]
fn renaming_an_inherited_subvolume_charges_nobody() {
    let v = volume();
    let root = Caller::root();
    let dir = v.dir(ROOT, "d").node;
    fill(&v.fs, dir, 0);
    limit(&v.fs, Owner::User(0), None, Some(1 << 40));
    let clone = v.fs.clone_dir(&root, dir, ROOT, b"clone").unwrap().root;
    make(&v.fs, clone, "own", 500);
    set(&v.fs, clone, Some(1), Some(500));
    assert_eq!(used(&v.fs, clone), Some((1, 500)));
    let by_root = used_by(&v.fs, Owner::User(0));
    v.fs.rename(&root, (clone, b"d0"), (clone, b"e"), RenameMode::NoReplace).expect("no growth");
    v.fs.rename(&root, (clone, b"e"), (clone, b"d1"), RenameMode::Replace).expect("no growth");
    assert_eq!(used(&v.fs, clone), Some((1, 500)));
    check(&v);
    v.fs.rmdir(&root, clone, b"d1").unwrap();
    assert_eq!(used(&v.fs, clone), Some((1, 500)));
    assert_eq!(used_by(&v.fs, Owner::User(0)), by_root);
    check(&v);
}

#[test]
fn a_directory_of_the_trash_is_charged_when_it_replaces_another() {
    let v = volume();
    let root = Caller::root();
    let dir = v.dir(ROOT, "d").node;
    v.fs.trash_set(&root, ROOT, Some(24 * 3600)).expect("a trash");
    set(&v.fs, dir, Some(10), Some(10_000));
    let sub = v.dir(dir, "sub").node;
    make(&v.fs, sub, "f", 500);
    v.dir(dir, "e");
    v.fs.unlink(&root, sub, b"f").expect("it is kept");
    assert_eq!(used(&v.fs, dir), Some((4, 500)));
    let trash = v.find(ROOT, ".trash").unwrap().node;
    let hour = v.names(trash);
    let batch = v.find(trash, &hour[0]).unwrap().node;
    let mirror = v.find(batch, "d").unwrap().node;
    v.fs.rename(&root, (mirror, b"sub"), (dir, b"e"), RenameMode::Replace).expect("it was empty");
    assert_eq!(used(&v.fs, dir), Some((5, 500)), "what it replaced is in the trash");
    check(&v);
}

#[test]
fn writers_continue_while_existing_files_are_charged() {
    let v = volume();
    let root = Caller::root();
    let dir = v.dir(ROOT, "d").node;
    fill(&v.fs, dir, 5);
    let fs = &v.fs;
    device::scope(|scope| {
        for thread in 0..2_u64 {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                for n in 0..600 {
                    let mut at = dir;
                    while random.u32(..5) != 0 {
                        let name = format!("d{}", random.u32(..2));
                        let Ok(below) = fs.lookup(&root_of(), at, name.as_bytes()) else { break };
                        at = below.node;
                    }
                    let name = format!("{thread}-{n}").into_bytes();
                    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
                    match random.u32(..5) {
                        0 => drop(fs.mknod(&root_of(), at, &name, &new)),
                        1 => drop(fs.unlink(&root_of(), at, b"f2")),
                        2 => drop(fs.mkdir(&root_of(), at, &name, 0o755)),
                        3 => {
                            let to = (dir, &name[..]);
                            drop(fs.rename(&root_of(), (at, b"d0"), to, RenameMode::NoReplace));
                        }
                        _ => {
                            let to = (dir, &name[..]);
                            drop(fs.rename(&root_of(), (at, b"f1"), to, RenameMode::NoReplace));
                        }
                    }
                }
            });
        }
        set(fs, dir, None, Some(1 << 40));
    });
    while fs.background_step(64).expect("background work").more {}
    check(&v);
    let mut counted = 0;
    count(fs, dir, &mut counted, &mut std::collections::BTreeSet::new());
    assert_eq!(used(fs, dir).unwrap().0, counted, "nothing was skipped");
    fs.rmr(&root, ROOT, b"d").unwrap();
}

fn root_of() -> Caller {
    Caller::root()
}

/// Counts the distinct inodes in a directory.
fn count(fs: &Fs, dir: NodeId, counted: &mut u64, seen: &mut std::collections::BTreeSet<NodeId>) {
    *counted += u64::from(seen.insert(dir));
    let mut names = Vec::new();
    fs.readdir(&Caller::root(), dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        fs::WalkControl::Continue
    })
    .expect("a directory");
    for name in names {
        let found = fs.lookup(&Caller::root(), dir, &name).expect("it is there");
        if found.attr.kind == Kind::Directory {
            count(fs, found.node, counted, seen);
        } else {
            *counted += u64::from(seen.insert(found.node));
        }
    }
}

#[test]
fn a_crash_while_contents_are_charged_leaves_exact_charges_and_the_rest_follows() {
    let points = Arc::new(AtomicU64::new(0));
    for seed in 0..scale(4, 40) {
        println!("seed {seed}");
        let device = SimDevice::new(seed);
        let engine = Engine::ALL[(seed % 2) as usize];
        let options = options(Durability::Async);
        let subject = FsSubject::format(&device, &options, &Base::Engine(engine));
        let fs = subject.fs();
        let root = Caller::root();
        let dir = fs.mkdir(&root, NodeId::ROOT, b"d", 0o755).expect("a new directory").node;
        let there = fill(fs, dir, 2);
        fs.sync().expect("it is written");
        let counted = Arc::clone(&points);
        let again = options.clone();
        device.watch(move |disk, op| {
            counted.fetch_add(1, Ordering::SeqCst);
            for policy in CrashPolicy::ALL {
                let place = format!("seed {seed}, before operation {op}, {policy:?}");
                let disk = disk.after_crash(policy, seed + op);
                let subject = FsSubject::open(&disk, &again, &Base::Engine(engine));
                let subject = subject.unwrap_or_else(|error| panic!("{place}: {error}"));
                let fs = subject.fs();
                assert_eq!(fs.quota_check().expect("a count"), [], "{place}");
                let begun = !fs.quota_list(&Caller::root()).expect("a list").is_empty();
                subject.background(5000).expect("background work");
                assert_eq!(fs.quota_check().expect("a count"), [], "{place}, afterwards");
                let charged = used(fs, dir);
                assert_eq!(charged, begun.then_some(there), "{place}: all or nothing");
            }
        });
        let limits = QuotaLimits { inodes: None, bytes: Some(1 << 40) };
        fs.quota_set(&root, dir, limits).expect("a quota is set");
        fs.sync().expect("it is written");
        device.unwatch();
        assert_eq!(used(fs, dir), Some(there));
    }
    let points = points.load(Ordering::SeqCst);
    println!("{points} crash points, {} ways each", CrashPolicy::ALL.len());
    assert!(points > 4, "hardly anything was written: {points}");
}

/// A directory that the quota has not reached yet would be skipped behind one that it has.
#[test]
fn uncharged_directories_are_not_moved_behind_the_charged_ones() {
    let v = volume();
    let root = root_of();
    let dir = v.dir(ROOT, "d").node;
    let names: Vec<String> = (0..600).map(|n| format!("s{n}")).collect();
    for name in &names {
        let below = v.dir(dir, name).node;
        for n in 0..20 {
            v.file(below, &format!("f{n}"));
        }
    }
    let limits = QuotaLimits { inodes: Some(100_000), bytes: None };
    let halted = v.fs.quota_set_with_progress(&root, dir, limits.into(), &mut |_, _| {
        std::ops::ControlFlow::Break(())
    });
    refused(halted, &FsError::Interrupted);
    let is_charged = |name: &&String| used(&v.fs, v.find(dir, name).unwrap().node).is_some();
    let (charged, left): (Vec<&String>, Vec<&String>) = names.iter().partition(is_charged);
    let to = v.find(dir, charged[0]).unwrap().node;
    let moved = v.fs.rename(&root, (dir, left[0].as_bytes()), (to, b"x"), RenameMode::NoReplace);
    refused(moved, &FsError::CrossSubvolume(""));
    while v.fs.background_step(64).expect("background work").more {}
    assert_eq!(used(&v.fs, dir), Some((12_601, 0)));
    check(&v);
}

/// A clone is taken while a nested subvolume is charged, and has that as it was then. Charging it
/// is a change, before which the clone gets its copy.
#[test]
fn what_a_clone_inherits_is_not_marked_after_it_was_taken() {
    let v = volume();
    let root = root_of();
    let dir = v.dir(ROOT, "d").node;
    let nested = v.fs.subvolume_create(&root, dir, b"nested", 0o755).expect("space").node;
    let names: Vec<String> = (0..600).map(|n| format!("s{n}")).collect();
    for name in &names {
        let below = v.dir(nested, name).node;
        for n in 0..20 {
            v.file(below, &format!("f{n}"));
        }
    }
    let charged_in = |top: NodeId| -> Vec<bool> {
        names.iter().map(|name| used(&v.fs, v.find(top, name).unwrap().node).is_some()).collect()
    };
    let mut then = Vec::new();
    let mut clone_once = |_, _| {
        if then.is_empty() {
            then = charged_in(nested);
            v.fs.clone_dir(&root, dir, ROOT, b"clone").expect("a clone");
        }
        std::ops::ControlFlow::Continue(())
    };
    let limits = QuotaLimits { inodes: Some(100_000), bytes: None };
    let set = v.fs.quota_set_with_progress(&root, nested, limits.into(), &mut clone_once);
    assert_eq!(set.expect("a quota"), limits);
    assert!(then.contains(&true) && then.contains(&false), "the clone was taken in between");
    assert_eq!(charged_in(nested), [true; 600]);
    let inherited = v.find(v.find(ROOT, "clone").unwrap().node, "nested").unwrap().node;
    assert_eq!(charged_in(inherited), then);
    check(&v);
}
