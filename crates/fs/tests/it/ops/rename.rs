//! `rename`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, SystemClock};
use fs::{FileSystem, FsResult, RenameMode};
use inode::{Caller, FsError, Kind, NodeId, SetAttr};
use testing::SetAtEnd;

use crate::support::{ROOT, Volume, assert_whole, refused, user, volume, weak_volume};

fn rename(v: &Volume, from: (NodeId, &str), to: (NodeId, &str), mode: RenameMode) -> FsResult<()> {
    let from = (from.0, from.1.as_bytes());
    v.fs.rename(&Caller::root(), from, (to.0, to.1.as_bytes()), mode)
}

#[test]
fn a_file_moves_with_its_contents_and_times() {
    let v = volume();
    let dir = v.dir(ROOT, "d");
    let file = v.file(ROOT, "a");
    v.write(file.node, 0, b"contents");
    let written = v.fs.getattr(&Caller::root(), file.node).expect("the file");
    let now = v.tick();
    rename(&v, (ROOT, "a"), (dir.node, "b"), RenameMode::NoReplace).expect("moved");
    refused(v.find(ROOT, "a"), &FsError::NotFound);
    let found = v.find(dir.node, "b").expect("the file");
    assert_eq!((found.node, found.attr.mtime), (file.node, written.mtime));
    assert_eq!(found.attr.ctime.0, now);
    assert_eq!(v.read(file.node), b"contents");
    v.check_counts(ROOT);
    v.check_counts(dir.node);
}

#[test]
fn a_replaced_file_exists_while_it_is_open() {
    let v = volume();
    let old = v.file(ROOT, "old");
    v.write(old.node, 0, b"old");
    let new = v.file(ROOT, "new");
    v.write(new.node, 0, b"new");
    refused(rename(&v, (ROOT, "new"), (ROOT, "old"), RenameMode::NoReplace), &FsError::Exists);
    rename(&v, (ROOT, "new"), (ROOT, "old"), RenameMode::Replace).expect("replaced");
    assert_eq!(v.find(ROOT, "old").expect("the new one").node, new.node);
    assert_eq!(v.read(old.node), b"old");
    assert_eq!(v.fs.getattr(&Caller::root(), old.node).expect("held").nlink, 0);
    assert_eq!(v.read(new.node), b"new");
    assert_eq!(v.fs.status().expect("counters").files, 2);
    v.check_counts(ROOT);
}

#[test]
fn directories_replace_empty_directories_only() {
    let v = volume();
    let a = v.dir(ROOT, "a");
    let b = v.dir(ROOT, "b");
    v.file(b.node, "f");
    v.file(ROOT, "f");
    refused(rename(&v, (ROOT, "a"), (ROOT, "b"), RenameMode::Replace), &FsError::NotEmpty);
    refused(rename(&v, (ROOT, "a"), (ROOT, "f"), RenameMode::Replace), &FsError::NotDirectory);
    refused(rename(&v, (ROOT, "f"), (ROOT, "a"), RenameMode::Replace), &FsError::IsDirectory);
    rename(&v, (ROOT, "b"), (ROOT, "a"), RenameMode::Replace).expect("replaced");
    assert_eq!(v.find(ROOT, "a").expect("the one with a file").node, b.node);
    assert_eq!(v.fs.getattr(&Caller::root(), a.node).expect("held").nlink, 0);
    v.check_counts(ROOT);
}

#[test]
fn a_directory_that_moves_finds_its_new_parent_and_never_itself() {
    let v = volume();
    let a = v.dir(ROOT, "a");
    let b = v.dir(a.node, "b");
    let c = v.dir(ROOT, "c");
    for into in [a.node, b.node] {
        refused(
            rename(&v, (ROOT, "a"), (into, "x"), RenameMode::Replace),
            &FsError::InvalidArgument(""),
        );
    }
    rename(&v, (a.node, "b"), (c.node, "b"), RenameMode::Replace).expect("moved");
    assert_eq!(v.find(b.node, "..").expect("its parent").node, c.node);
    rename(&v, (ROOT, "a"), (b.node, "a"), RenameMode::Replace).expect("no loop any more");
    for dir in [ROOT, a.node, b.node, c.node] {
        v.check_counts(dir);
    }
}

#[test]
fn exchange_swaps_any_two_kinds() {
    let v = volume();
    let a = v.dir(ROOT, "a");
    let b = v.dir(ROOT, "b");
    let sub = v.dir(a.node, "sub");
    let file = v.file(b.node, "file");
    v.write(file.node, 0, b"bytes");
    rename(&v, (a.node, "sub"), (b.node, "file"), RenameMode::Exchange).expect("swapped");
    assert_eq!(v.find(a.node, "sub").expect("the file").node, file.node);
    assert_eq!(v.find(b.node, "file").expect("the directory").node, sub.node);
    assert_eq!(v.find(sub.node, "..").expect("its parent").node, b.node);
    assert_eq!(v.read(file.node), b"bytes");
    refused(
        rename(&v, (a.node, "sub"), (b.node, "none"), RenameMode::Exchange),
        &FsError::NotFound,
    );
    refused(
        rename(&v, (ROOT, "b"), (b.node, "file"), RenameMode::Exchange),
        &FsError::InvalidArgument(""),
    );
    for dir in [ROOT, a.node, b.node] {
        v.check_counts(dir);
    }
}

#[test]
fn a_whiteout_stays_where_the_name_was() {
    let v = volume();
    let (from, to) = (v.dir(ROOT, "from").node, v.dir(ROOT, "to").node);
    let names = [(from, "small"), (from, "linked"), (from, "directory"), (to, "victim")];
    for (directory, name) in names {
        if name == "directory" {
            v.file(v.dir(directory, name).node, "below");
        } else {
            let file = v.file(directory, name);
            v.write(file.node, 0, name.as_bytes());
        }
    }
    let linked = v.find(from, "linked").expect("a file").node;
    v.fs.link(&Caller::root(), linked, ROOT, b"other").expect("a second name");
    let files = v.fs.status().expect("counters").files;
    let moved = |name| v.find(from, name).expect("it is there").node;
    let nodes = ["small", "linked", "directory"].map(moved);
    let now = v.tick();
    rename(&v, (from, "small"), (to, "victim"), RenameMode::Whiteout).expect("replaced");
    rename(&v, (from, "linked"), (from, "beside"), RenameMode::NoReplaceWhiteout).expect("moved");
    rename(&v, (from, "directory"), (to, "directory"), RenameMode::Whiteout).expect("moved");
    let found = [(to, "victim"), (from, "beside"), (to, "directory")];
    assert_eq!(found.map(|(dir, name)| v.find(dir, name).expect("it moved").node), nodes);
    assert_eq!(v.read(nodes[0]), b"small");
    assert_eq!(v.read(nodes[1]), b"linked");
    assert_eq!(v.find(nodes[2], "..").expect("its parent").node, to);
    for name in ["small", "linked", "directory"] {
        let attr = v.find(from, name).expect("a whiteout").attr;
        assert_eq!((attr.kind, attr.rdev, attr.mode), (Kind::CharDevice, 0, 0), "{name}");
        assert_eq!((attr.nlink, attr.size, attr.mtime.0), (1, 0, now), "{name}");
    }
    // A victim went, three whiteouts came.
    assert_eq!(v.fs.status().expect("counters").files, files + 2);
    for directory in [ROOT, from, to, nodes[2]] {
        v.check_counts(directory);
    }
    refused(
        rename(&v, (from, "beside"), (to, "victim"), RenameMode::NoReplaceWhiteout),
        &FsError::Exists,
    );
    rename(&v, (from, "beside"), (from, "linked"), RenameMode::Whiteout).expect("over a whiteout");
    assert_eq!(v.find(from, "beside").expect("a whiteout").attr.kind, Kind::CharDevice);
    let again = v.reopened();
    let found = again.lookup(&Caller::root(), from, b"small").expect("a whiteout");
    assert_eq!(found.attr.kind, Kind::CharDevice);
    let report = v.fs.check_volume(&mut |_, _| std::ops::ControlFlow::Continue(()));
    let report = report.expect("a check");
    assert!(report.is_clean(), "{:?}", report.problems);
}

#[test]
fn a_whiteout_belongs_to_the_caller_of_rename() {
    let v = volume();
    let dir = v.dir(ROOT, "d").node;
    let changes = SetAttr { mode: Some(0o2777), gid: Some(50), ..SetAttr::default() };
    v.fs.setattr(&Caller::root(), dir, &changes).expect("root may");
    v.file_as(&user(7), dir, "f", 0o644).expect("a file");
    v.fs.rename(&user(7), (dir, b"f"), (ROOT, b"f"), RenameMode::Whiteout).expect("may write");
    let attr = v.find(dir, "f").expect("a whiteout").attr;
    assert_eq!((attr.uid, attr.gid, attr.mode), (7, 50, 0));
    let closed = v.dir(ROOT, "closed").node;
    v.file_as(&Caller::root(), closed, "f", 0o666).expect("a file");
    let taken = v.fs.rename(&user(7), (closed, b"f"), (ROOT, b"g"), RenameMode::Whiteout);
    refused(taken, &FsError::AccessDenied);
    // Nor where there is nothing that a whiteout could hide.
    let snapshots = v.find(dir, ".snapshots").expect("always there").node;
    v.fs.mkdir(&Caller::root(), snapshots, b"s", 0o755).expect("a snapshot");
    refused(
        rename(&v, (snapshots, "s"), (snapshots, "t"), RenameMode::Whiteout),
        &FsError::InvalidArgument(""),
    );
    v.fs.subvolume_create(&Caller::root(), ROOT, b"sub", 0o755).expect("a subvolume");
    let left = rename(&v, (ROOT, "sub"), (ROOT, "other"), RenameMode::Whiteout);
    refused(left, &FsError::CrossSubvolume(""));
    v.check_counts(dir);
}

#[test]
fn a_whiteout_keeps_its_place_among_names_of_one_hash() {
    for bits in [1, 2] {
        let v = weak_volume(bits);
        let names = ["a", "b", "c", "d", "e"];
        for name in names {
            v.file(ROOT, name);
        }
        rename(&v, (ROOT, "b"), (ROOT, "f"), RenameMode::Whiteout).expect("behind all");
        rename(&v, (ROOT, "e"), (ROOT, "a"), RenameMode::Whiteout).expect("over the first");
        rename(&v, (ROOT, "f"), (ROOT, "g"), RenameMode::Whiteout).expect("the last one");
        assert_eq!(v.sorted(ROOT), ["a", "b", "c", "d", "e", "f", "g"]);
        let device = |name: &str| v.find(ROOT, name).expect("found").attr.kind == Kind::CharDevice;
        let whiteouts: Vec<_> = v.sorted(ROOT).into_iter().filter(|name| device(name)).collect();
        assert_eq!(whiteouts, ["b", "e", "f"]);
        for name in v.sorted(ROOT) {
            v.fs.unlink(&Caller::root(), ROOT, name.as_bytes()).expect("a name");
        }
        v.check_counts(ROOT);
        assert_eq!(v.fs.status().expect("counters").files, 1);
    }
}

#[test]
fn names_of_one_inode_are_left_alone() {
    let v = volume();
    let file = v.file(ROOT, "a");
    v.fs.link(&Caller::root(), file.node, ROOT, b"b").expect("a name");
    rename(&v, (ROOT, "a"), (ROOT, "b"), RenameMode::Replace).expect("nothing to do");
    rename(&v, (ROOT, "a"), (ROOT, "a"), RenameMode::Replace).expect("nothing to do");
    assert_eq!(v.sorted(ROOT), ["a", "b"]);
    refused(rename(&v, (ROOT, "c"), (ROOT, "c"), RenameMode::Replace), &FsError::NotFound);
    rename(&v, (ROOT, "a"), (ROOT, "c"), RenameMode::Replace).expect("moved");
    assert_eq!(v.find(ROOT, "c").expect("the file").attr.nlink, 2);
    v.fs.unlink(&Caller::root(), ROOT, b"c").expect("a name");
    v.fs.unlink(&Caller::root(), ROOT, b"b").expect("a name");
    v.fs.forget(file.node, 9);
    assert_eq!(v.store.dump(store::TreeId(32)).expect("the tree").len(), 1);
}

#[test]
fn colliding_names_move_past_one_another() {
    let v = weak_volume(1);
    let names: Vec<String> = (0..8).map(|n| format!("n{n}")).collect();
    let nodes: Vec<_> = names.iter().map(|name| v.file(ROOT, name).node).collect();
    let mut random = fastrand::Rng::with_seed(3);
    let mut at: Vec<usize> = (0..8).collect();
    for round in 0..200 {
        let (one, two) = (random.usize(..8), random.usize(..8));
        let spare = format!("s{round}");
        let (from, to) = (names[one].as_str(), names[two].as_str());
        rename(&v, (ROOT, from), (ROOT, &spare), RenameMode::Replace).expect("moved");
        rename(&v, (ROOT, &spare), (ROOT, from), RenameMode::NoReplace).expect("moved back");
        rename(&v, (ROOT, from), (ROOT, to), RenameMode::Exchange).expect("swapped");
        at.swap(one, two);
        for (name, node) in names.iter().zip(&at) {
            assert_eq!(v.find(ROOT, name).expect("a name").node, nodes[*node]);
        }
        v.check_counts(ROOT);
    }
}

#[test]
fn permissions_of_both_directories_count_and_the_sticky_bit() {
    let v = volume();
    let mine = v.fs.mkdir(&user(5), ROOT, b"mine", 0o755).expect("a directory");
    let tmp = v.dir(ROOT, "tmp");
    let changes = SetAttr { mode: Some(0o1777), ..SetAttr::default() };
    v.fs.setattr(&Caller::root(), tmp.node, &changes).expect("root may");
    v.file_as(&user(5), tmp.node, "f", 0o666).expect("a file");
    let steal = |uid| {
        let from = (tmp.node, &b"f"[..]);
        v.fs.rename(&user(uid), from, (tmp.node, b"g"), RenameMode::Replace)
    };
    refused(steal(6), &FsError::NotPermitted(""));
    steal(5).expect("its owner may");
    v.file_as(&user(6), tmp.node, "h", 0o666).expect("a file");
    let into = v.fs.rename(&user(6), (tmp.node, b"h"), (mine.node, b"h"), RenameMode::Replace);
    refused(into, &FsError::AccessDenied);
}

#[test]
fn concurrent_renames_cannot_create_a_loop() {
    let v = volume();
    let a = v.dir(ROOT, "a");
    let b = v.dir(ROOT, "b");
    let (v, a, b) = (&v, a.node, b.node);
    for _ in 0..200 {
        device::scope(|scope| {
            scope.spawn(move || rename(v, (ROOT, "a"), (b, "a"), RenameMode::Replace).ok());
            scope.spawn(move || rename(v, (ROOT, "b"), (a, "b"), RenameMode::Replace).ok());
        });
        let top = v.names(ROOT);
        assert_eq!(top.len(), 1, "one of the two moved below the other");
        let (upper, name) = if top[0] == "a" { (a, "b") } else { (b, "a") };
        rename(v, (upper, name), (ROOT, name), RenameMode::Replace).expect("moved back");
    }
}

/// Everything above the target was read a second time with the places of all of it locked, for
/// which other renames of directories wait.
#[test]
fn what_is_above_a_target_is_read_once_unless_a_directory_changes_its_parent() {
    const LEVELS: [u64; 2] = [100, 600];
    let cost = |levels: u64, hook: Option<&dyn Fn(&Volume)>| {
        let v = volume();
        for name in ["moves", "a", "b"] {
            v.dir(ROOT, name);
        }
        let deep = (0..levels).fold(ROOT, |above, _| v.dir(above, "d").node);
        let reads = || v.store.gets() + v.store.moves();
        let before = reads();
        if let Some(hook) = hook {
            hook(&v);
        }
        rename(&v, (ROOT, "moves"), (deep, "here"), RenameMode::Replace).expect("moved");
        v.store.set_on_read(|| ());
        refused(rename(&v, (ROOT, "d"), (deep, "d"), RenameMode::Replace), &loop_error());
        v.find(deep, "here").expect("it moved");
        reads() - before
    };
    let [few, many] = LEVELS.map(|levels| cost(levels, None));
    // Once for the rename, and once for the one that is refused.
    let once = LEVELS[1] - LEVELS[0];
    assert!((many - few).abs_diff(2 * once) < 20, "{few} reads, {many} with {once} levels more");
    // Another directory moves, during the first read of what is above.
    let other = |v: &Volume| {
        let (fs, calls) = (Arc::downgrade(&v.fs), AtomicU64::new(0));
        v.store.set_on_read(move || {
            let Some(fs) = fs.upgrade() else { return };
            if calls.fetch_add(1, Ordering::Relaxed) == 50 {
                let b = fs.lookup(&Caller::root(), ROOT, b"b").expect("it is there").node;
                let (from, to) = ((ROOT, &b"a"[..]), (b, &b"a"[..]));
                fs.rename(&Caller::root(), from, to, RenameMode::Replace).expect("moved");
            }
        });
    };
    let [few, many] = LEVELS.map(|levels| cost(levels, Some(&other)));
    assert!((many - few).abs_diff(3 * once) < 20, "{few} reads, {many} with {once} levels more");
}

/// A directory moves below another one, while the root of the tree that holds its target moves into
/// it. The second move comes before each record that the first one reads. The other one ends
/// meanwhile, or waits for it.
#[test]
fn of_two_renames_that_together_make_a_loop_one_is_refused() {
    const LEVELS: u64 = 8;
    let attempt = |at: u64| {
        let v = volume();
        let moves = v.dir(ROOT, "moves").node;
        let deep = (0..LEVELS).fold(ROOT, |above, _| v.dir(above, "d").node);
        let (done, reader) = (Arc::new(Mutex::new(None)), std::thread::current().id());
        let (reads, fs, result) = (AtomicU64::new(0), Arc::downgrade(&v.fs), Arc::clone(&done));
        let began = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&began);
        v.store.set_on_read(move || {
            let is_own = std::thread::current().id() == reader;
            if !is_own || reads.fetch_add(1, Ordering::SeqCst) != at {
                return;
            }
            let Some(fs) = fs.upgrade() else { return };
            begins.store(true, Ordering::SeqCst);
            let ended = Arc::clone(&result);
            let other = move || {
                let (from, to) = ((ROOT, &b"d"[..]), (moves, &b"d"[..]));
                let moved = fs.rename(&Caller::root(), from, to, RenameMode::Replace);
                *ended.lock() = Some(moved);
            };
            device::spawn("other", other).expect("a thread");
            for _ in 0..50 {
                if result.lock().is_some() {
                    break;
                }
                SystemClock::new().sleep(Duration::from_millis(2));
            }
        });
        let moved = rename(&v, (ROOT, "moves"), (deep, "moves"), RenameMode::Replace);
        if !began.load(Ordering::SeqCst) {
            return false;
        }
        let other = loop {
            if let Some(other) = done.lock().take() {
                break other;
            }
            SystemClock::new().sleep(Duration::from_millis(1));
        };
        v.store.set_on_read(|| ());
        match (moved, other) {
            (Ok(()), refusal) | (refusal, Ok(())) => refused(refusal, &loop_error()),
            both => panic!("before read {at}: {both:?}"),
        }
        assert_whole(&v.fs);
        true
    };
    let reads = (0..10_000).find(|at| !attempt(*at)).expect("it ends");
    assert!(reads > LEVELS, "{reads} records are read");
}

fn loop_error() -> FsError {
    FsError::InvalidArgument("")
}

/// A directory moves below another one. Before each record that the move reads, the top of its
/// target is removed with all below it. The directory moved before that, or stays where it was.
#[test]
fn nothing_moves_into_what_was_removed() {
    const LEVELS: u64 = 8;
    let attempt = |at: u64| {
        let v = volume();
        v.dir(ROOT, "moves");
        let deep = (0..LEVELS).fold(ROOT, |above, _| v.dir(above, "d").node);
        let (removed, reader) = (Arc::new(AtomicBool::new(false)), std::thread::current().id());
        let (reads, fs) = (Arc::new(AtomicU64::new(0)), Arc::downgrade(&v.fs));
        let (ended, seen) = (Arc::clone(&removed), Arc::clone(&reads));
        let (at_read, was_removed) = (Arc::new(AtomicBool::new(false)), Arc::clone(&removed));
        let before = Arc::clone(&at_read);
        v.store.set_on_read(move || {
            let is_own = std::thread::current().id() == reader;
            if !is_own || seen.fetch_add(1, Ordering::SeqCst) != at {
                return;
            }
            let Some(fs) = fs.upgrade() else { return };
            let ended = Arc::clone(&ended);
            let other = move || {
                let _end = SetAtEnd(&ended);
                fs.rmr(&Caller::root(), ROOT, b"d").expect("root may");
            };
            device::spawn("other", other).expect("a thread");
            for _ in 0..50 {
                if was_removed.load(Ordering::SeqCst) {
                    before.store(true, Ordering::SeqCst);
                    break;
                }
                SystemClock::new().sleep(Duration::from_millis(2));
            }
        });
        let moved = rename(&v, (ROOT, "moves"), (deep, "moves"), RenameMode::Replace);
        if reads.load(Ordering::SeqCst) <= at {
            return false;
        }
        while !removed.load(Ordering::SeqCst) {
            SystemClock::new().sleep(Duration::from_millis(1));
        }
        v.store.set_on_read(|| ());
        let is_there = v.find(ROOT, "moves").is_ok();
        assert_eq!(moved.is_err(), is_there, "before read {at}: {moved:?}");
        if at_read.load(Ordering::SeqCst) {
            refused(moved, &FsError::NotFound);
        }
        assert_whole(&v.fs);
        true
    };
    let reads = (0..10_000).find(|at| !attempt(*at)).expect("it ends");
    assert!(reads > LEVELS, "{reads} records are read");
}
