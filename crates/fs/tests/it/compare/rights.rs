//! What users see of a comparison: what their rights let them reach in each state. And comparisons
//! that end early, or meet damage.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use fs::{Engine, FileSystem};
use inode::{Caller, FsError, SetAttr};
use store::Durability;
use testing::SimDevice;

use super::oracle::{at, check, compare, refused, reported};
use crate::script::options;
use crate::subject::{Base, FsSubject};
use crate::support::{ROOT, user, volume};

#[test]
fn a_user_sees_what_the_users_rights_allow_in_each_state() {
    let v = volume();
    let root = Caller::root();
    let (open, closed) = (v.dir(ROOT, "open").node, v.dir(ROOT, "closed").node);
    let (opening, closing) = (v.dir(ROOT, "opening").node, v.dir(ROOT, "closing").node);
    let set = |node, mode| {
        let changes = SetAttr { mode: Some(mode), ..SetAttr::default() };
        v.fs.setattr(&root, node, &changes).unwrap();
    };
    set(closed, 0o711);
    set(opening, 0o700);
    for directory in [open, closed, opening, closing] {
        let below = v.dir(directory, "below").node;
        v.file(below, "changed");
        v.file(below, "moved");
    }
    v.fs.snapshot_create(&root, ROOT, b"s").unwrap();
    v.tick();
    set(opening, 0o755);
    set(closing, 0o700);
    for directory in [open, closed, opening, closing] {
        let below = v.find(directory, "below").unwrap().node;
        let changed = v.find(below, "changed").unwrap().node;
        v.write(changed, 0, b"x");
    }
    let below = v.find(open, "below").unwrap().node;
    let from = (below, &b"moved"[..]);
    v.fs.rename(&root, from, (closed, b"moved"), fs::RenameMode::Replace).unwrap();
    let nodes = (at(&v.fs, "/.snapshots/s"), ROOT);
    let found = reported(&check(&v.fs, &user(7), nodes));
    let want = [
        "M closed",
        "M closing",
        "- closing/below",
        "- closing/below/changed",
        "- closing/below/moved",
        "M open/below",
        "M open/below/changed",
        "- open/below/moved",
        "M opening",
        "+ opening/below",
        "+ opening/below/changed",
        "+ opening/below/moved",
    ];
    assert_eq!(found, want);
    let found = reported(&check(&v.fs, &root, nodes));
    assert!(found.contains(&"R open/below/moved -> closed/moved".to_owned()), "{found:?}");
    let closed = (at(&v.fs, "/.snapshots/s/closed"), closed);
    refused(&v.fs, &user(7), closed, &FsError::AccessDenied);
}

#[test]
fn a_comparison_ends_when_it_is_cancelled_or_cut() {
    let v = volume();
    let root = Caller::root();
    v.fs.snapshot_create(&root, ROOT, b"s").unwrap();
    for at in 0..1000 {
        v.file(ROOT, &format!("f{at}"));
    }
    let nodes = (at(&v.fs, "/.snapshots/s"), ROOT);
    let cancel = AtomicBool::new(false);
    let mut taken = 0;
    let cut = v.fs.compare(&root, nodes, &cancel, &mut |_| {
        taken += 1;
        if taken == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let cut = cut.unwrap();
    assert_eq!((taken, cut.changes, cut.is_cut), (3, 3, true));
    let cancel = AtomicBool::new(true);
    let cancelled = v.fs.compare(&root, nodes, &cancel, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(cancelled, Err(FsError::Interrupted)), "{cancelled:?}");
}

/// Directories that are made before a snapshot, and after it.
const DIRECTORIES: usize = 400;

/// Fills a volume, and takes a snapshot between two halves of the changes.
fn filled(device: &SimDevice, engine: Engine) -> Vec<String> {
    let mut subject = FsSubject::format(device, &options(Durability::Async), &Base::Engine(engine));
    let root = Caller::root();
    for half in 0..2 {
        let fs = subject.fs();
        for at in 0..DIRECTORIES {
            let directory = fs.mkdir(&root, ROOT, format!("{half} {at}").as_bytes(), 0o755);
            let new = fs::NewNode { kind: inode::Kind::File, mode: 0o644, rdev: 0 };
            fs.mknod(&root, directory.unwrap().node, b"f", &new).unwrap();
        }
        if half == 0 {
            fs.snapshot_create(&root, ROOT, b"s").unwrap();
        }
    }
    subject.cycle().unwrap();
    let fs = subject.fs();
    let nodes = (at(fs, "/.snapshots/s"), at(fs, "/"));
    let found = reported(&compare(fs, &root, nodes, 1 << 16).unwrap());
    subject.cycle().unwrap();
    found
}

/// A flipped bit is harmless, or an error that names a file and a byte.
fn a_damaged_tree_is_an_error_with_its_place(engine: Engine) {
    let made = SimDevice::new(3);
    let right = filled(&made, engine);
    assert_eq!(right.len(), 2 * DIRECTORIES + 1);
    let mut named = 0;
    let mut random = fastrand::Rng::with_seed(11);
    let below = match engine {
        Engine::Btree => "btree/",
        Engine::Lsm => "lsm/",
    };
    let mut files = made.files();
    files.retain(|(file, length)| file.starts_with(below) && *length > 0);
    for _ in 0..300 {
        let (file, length) = &files[random.usize(..files.len())];
        let device = made.copy();
        let bit = random.u64(..length * 8);
        device.flip_bit(file, bit);
        let place = format!("{file}, bit {bit}");
        let opened = FsSubject::open(&device, &options(Durability::Async), &Base::Engine(engine));
        let Ok(subject) = opened else { continue };
        let fs: &fs::Volume = subject.fs();
        let root = Caller::root();
        let nodes = [&b"/.snapshots/s"[..], b"/"]
            .map(|path| fs.resolve(&root, path, fs::Follow::No).map(|entry| entry.node));
        let [Ok(old), Ok(new)] = nodes else { continue };
        match compare(fs, &root, (old, new), 1 << 16) {
            Ok(found) => assert_eq!(reported(&found), right, "{place}"),
            Err(FsError::Io(failure)) => {
                assert!(failure.place.is_some(), "{place}: {failure:?}");
                named += 1;
            }
            Err(other) => panic!("{place}: {other:?}"),
        }
    }
    assert!(named > 0, "no flipped bit was met");
}

on_each_engine! {
    a_damaged_tree_is_an_error_with_its_place,
}
