//! What one more copy costs while many inherit, and a first change beside them. Nothing that the
//! caller does, or waits for, is in proportion to the subvolumes that are mounted in the source.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::sync::{self, Mutex};
use fs::{Engine, FileSystem, FsResult, QuotaLimits, RenameMode};
use inode::{FsError, NodeId};
use store::Maintain;

use super::{contents, give, home, root, settle};
use crate::support::{Volume, assert_whole, refused, user, volume, volume_on};

on_each_engine!(a_hundred_copies_in_a_row_have_one_bound_over_any_number_of_subvolumes);

/// Most commits of one copy: its own, and those of the steps that it does for the oldest.
const COMMITS: u64 = 1 + 4 * 17;
/// Most bytes of their batches.
const BYTES: u64 = 64 << 10;
/// Most records that one copy reads, also those of the steps.
const READS: u64 = 3000;

/// A directory with so many subvolumes in it, the first ones with a file.
fn with_nested<S: ?Sized>(v: &Volume<S>, name: &str, nested: usize) -> NodeId {
    let dir = v.dir(home(), name).node;
    for at in 0..nested {
        let name = format!("n{at}");
        let made = v.fs.subvolume_create(&root(), dir, name.as_bytes(), 0o755).expect("space").node;
        if at < 2 {
            let file = v.file(made, "f").node;
            v.write(file, 0, b"before");
        }
        v.fs.forget(made, 1);
    }
    dir
}

/// Snapshots and clones in turn.
fn copy<S: ?Sized>(v: &Volume<S>, dir: NodeId, at: usize) {
    let name = format!("{}.{at}", dir.shown());
    if at.is_multiple_of(2) {
        v.fs.snapshot_create(&root(), dir, name.as_bytes()).expect("space");
    } else {
        v.fs.clone_dir(&root(), dir, home(), name.as_bytes()).expect("space");
    }
}

/// The 33rd copy gave the oldest all that it inherits: 16,000 commits over 16,000 subvolumes.
fn a_hundred_copies_in_a_row_have_one_bound_over_any_number_of_subvolumes(engine: Engine) {
    let v = volume_on(engine, inode::NameHash::BITS);
    for (name, nested) in [("few", 2), ("many", 2000)] {
        let dir = with_nested(&v, name, nested);
        let (mut commits, mut bytes) = (0, 0);
        for at in 0..100 {
            let before = v.store.stats();
            copy(&v, dir, at);
            let after = v.store.stats();
            commits = commits.max(after.commits - before.commits);
            bytes = bytes.max(after.given_bytes - before.given_bytes);
        }
        println!("{name}: at most {commits} commits of {bytes} bytes a copy");
        assert!(commits <= COMMITS && bytes <= BYTES, "{name}: {commits} of {bytes} bytes");
    }
}

/// What commits do not show.
#[test]
fn a_hundred_copies_in_a_row_read_as_much_over_any_number_of_subvolumes() {
    let v = volume();
    for (name, nested) in [("few", 2), ("many", 2000)] {
        let dir = with_nested(&v, name, nested);
        let mut most = 0;
        for at in 0..100 {
            let before = v.store.gets() + v.store.moves();
            copy(&v, dir, at);
            most = most.max(v.store.gets() + v.store.moves() - before);
        }
        println!("{name}: at most {most} reads a copy");
        assert!(most <= READS, "{name}: {most} reads");
    }
}

/// A user's copies, where a limit is in force elsewhere, after one that found none in the source.
/// Each read what is above every mount point, and listed what is mounted there.
#[test]
fn copies_of_a_user_beside_a_limit_read_as_much_over_any_number_of_subvolumes() {
    let (v, ada) = (volume(), user(7));
    let limits = QuotaLimits { inodes: Some(100), bytes: None };
    let limited = v.dir(home(), "limited").node;
    v.fs.quota_set(&root(), limited, limits).expect("a quota is set");
    for (name, nested) in [("few", 2), ("many", 2000)] {
        let dir = v.dir(home(), name).node;
        give(&v, dir, 7);
        for at in 0..nested {
            let around = v.dir(dir, &format!("d{at}")).node;
            let made = v.fs.subvolume_create(&root(), around, b"n", 0o755).expect("space").node;
            v.fs.forget(made, 1);
        }
        v.fs.snapshot_create(&ada, dir, b"first").expect("no limit is in force");
        let mut most = 0;
        for at in 0..60 {
            let before = v.store.gets() + v.store.moves();
            let name = format!("s{at}");
            v.fs.snapshot_create(&ada, dir, name.as_bytes()).expect("no limit is in force");
            most = most.max(v.store.gets() + v.store.moves() - before);
            v.env.clock.advance(Duration::from_secs(1));
        }
        println!("{name}: at most {most} reads a copy");
        assert!(most <= READS, "{name}: {most} reads");
    }
    // What changes is looked at: a limit on something mounted there, and a clone that has one.
    let dir = v.find(home(), "few").expect("it is there").node;
    let around = v.find(dir, "d0").expect("it is there").node;
    v.fs.clone_dir(&root(), limited, around, b"clone").expect("root may");
    let not = FsError::RootOnly("");
    refused(v.fs.snapshot_create(&ada, dir, b"no").map(drop), &not);
    let away = (home(), &b"clone"[..]);
    v.fs.rename(&root(), (around, b"clone"), away, RenameMode::Replace).expect("a move");
    v.fs.snapshot_create(&ada, dir, b"again").expect("no limit is in force");
    let nested = v.find(around, "n").expect("it is there").node;
    v.fs.quota_set(&root(), nested, limits).expect("a quota is set");
    refused(v.fs.snapshot_create(&ada, dir, b"no").map(drop), &not);
    // Where none is below, one in force elsewhere in the subvolume refuses nothing.
    let other = v.find(dir, "d1").expect("it is there").node;
    give(&v, other, 7);
    v.fs.snapshot_create(&ada, other, b"s").expect("no limit is in force");
}

/// The most records read from now on with the ledger locked, without a commit between them.
fn count_locked(v: &Volume) -> Arc<AtomicU64> {
    let most = Arc::new(AtomicU64::new(0));
    let (fs, store) = (Arc::downgrade(&v.fs), Arc::downgrade(&v.store));
    let (counted, now, commits) = (Arc::clone(&most), AtomicU64::new(0), AtomicU64::new(0));
    v.store.set_on_read(move || {
        let (Some(fs), Some(store)) = (fs.upgrade(), store.upgrade()) else { return };
        let done = store.stats().commits;
        if commits.swap(done, Ordering::Relaxed) != done || !fs.admin.is_locked() {
            now.store(0, Ordering::Relaxed);
        } else {
            counted.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    });
    most
}

/// The limit is refused by name, over very many subvolumes alone: where few are mounted, a copy
/// completes others. A first change beside as many heirs as there may be is a few commits, and
/// others have the ledger between them.
#[test]
fn copies_are_refused_when_very_many_inherit_and_a_first_change_beside_them_is_short() {
    let v = volume();
    let few = with_nested(&v, "few", 2);
    for at in 0..300 {
        copy(&v, few, at);
    }
    let dir = with_nested(&v, "many", 2000);
    // Root is never refused.
    give(&v, dir, 1000);
    let mut made = 0;
    let error = loop {
        let name = format!("s{made}");
        match v.fs.snapshot_create(&user(1000), dir, name.as_bytes()) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    // Some of the oldest have all by then.
    assert!((256..280).contains(&made), "{made} copies");
    refused::<()>(Err(error.clone()), &FsError::Busy(""));
    assert!(error.to_string().contains("256 snapshots and clones"), "{error}");
    let nested = v.find(dir, "n1").expect("it is there").node;
    let file = v.find(nested, "f").expect("a file").node;
    let (locked, commits) = (count_locked(&v), v.store.stats().commits);
    v.write(file, 0, b"after.");
    let (commits, locked) = (v.store.stats().commits - commits, locked.load(Ordering::Relaxed));
    v.store.set_on_read(|| ());
    println!("a first change beside 256 heirs: {commits} commits, {locked} reads in a row");
    assert!(commits <= 10, "a first write took {commits} commits");
    assert!(locked <= 1500, "{locked} reads with the ledger locked");
    for at in [0, 31, 32, 100, made - 1] {
        let copy = super::snapshot_root(&v, dir, &format!("s{at}"));
        let nested = v.find(copy, "n1").expect("it was there").node;
        assert_eq!(contents(&v, nested), [("f".to_owned(), b"before".to_vec())], "s{at}");
    }
    assert_eq!(v.read(file), b"after.");
}

/// Heirs that get their copies by one commit. Each has the state before the change. So it is also
/// where others of them have it already, do not show it any more, or show it elsewhere.
#[test]
fn heirs_in_different_states_get_what_each_inherits() {
    let v = volume();
    let dir = with_nested(&v, "d", 2);
    let top = |name: &str| v.find(home(), name).expect("a clone").node;
    for at in 0..8 {
        v.fs.clone_dir(&root(), dir, home(), format!("c{at}").as_bytes()).expect("space");
    }
    // One has its own by a look-up, one has removed it, one has moved it.
    v.find(top("c1"), "n0").expect("it is inherited");
    v.fs.rmr(&root(), top("c2"), b"n0").expect("a removal");
    let moved = (top("c3"), &b"moved"[..]);
    v.fs.rename(&root(), (top("c3"), b"n0"), moved, RenameMode::Replace).expect("a move");
    let file = v.find(v.find(dir, "n0").expect("it").node, "f").expect("a file").node;
    let commits = v.store.stats().commits;
    v.write(file, 0, b"after.");
    // That of the five others, and the write.
    assert_eq!(v.store.stats().commits - commits, 2);
    for (at, name) in [(0, "n0"), (1, "n0"), (3, "moved"), (4, "n0"), (7, "n0")] {
        let nested = v.find(top(&format!("c{at}")), name).expect("it is there").node;
        assert_eq!(contents(&v, nested), [("f".to_owned(), b"before".to_vec())], "c{at}");
    }
    assert_eq!(v.sorted(top("c2")), ["n1"]);
    settle(&v);
    assert_whole(&v.fs);
}

/// A user's copy of a directory with so many subvolumes, where a limit is in force elsewhere. A
/// directory moves whenever somebody looks below. Returns the most records read while the ledger
/// is locked, and what became of the copy; and that of one beside which nothing moves.
fn copy_beside_moves(nested: usize) -> (u64, [FsResult<()>; 2]) {
    let (v, ada) = (volume(), user(7));
    let limited = v.fs.subvolume_create(&root(), home(), b"limited", 0o755).expect("space").node;
    let limits = QuotaLimits { inodes: Some(100), bytes: None };
    v.fs.quota_set(&root(), limited, limits).expect("a quota is set");
    let dir = v.dir(home(), "d").node;
    give(&v, dir, 7);
    for at in 0..nested {
        let around = v.dir(dir, &format!("d{at}")).node;
        let made = v.fs.subvolume_create(&root(), around, b"n", 0o755).expect("space").node;
        v.fs.forget(made, 1);
    }
    let [a, b] = ["a", "b"].map(|name| v.dir(home(), name).node);
    v.dir(a, "moves");
    // All are in memory then, so that looks hold no lock for long.
    v.fs.snapshot_create(&ada, dir, b"first").expect("no limit is in force");
    let (asks, asked) = sync::channel();
    let (moves, moved) = sync::channel();
    let is_moving = Arc::new(AtomicBool::new(false));
    let (mover, moving) = (Arc::clone(&v.fs), Arc::clone(&is_moving));
    let mover = device::spawn("moves", move || {
        while asked.recv().is_ok() {
            moving.store(true, Ordering::Release);
            for (from, to) in [(a, b), (b, a)] {
                let (from, to) = ((from, &b"moves"[..]), (to, &b"moves"[..]));
                mover.rename(&root(), from, to, RenameMode::NoReplace).expect("a move");
            }
            moving.store(false, Ordering::Release);
            moves.send(()).unwrap_or_default();
        }
    });
    let (most, fs) = (Arc::new(AtomicU64::new(0)), Arc::downgrade(&v.fs));
    let (counted, turn, now) = (Arc::clone(&most), AtomicU64::new(0), AtomicU64::new(0));
    let (moved, last) = (Mutex::new(moved), AtomicU64::new(0));
    v.store.set_on_read(move || {
        let Some(fs) = fs.upgrade() else { return };
        let turns = fs.admin.turns();
        if fs.admin.is_locked() {
            if turn.swap(turns, Ordering::Relaxed) != turns {
                now.store(0, Ordering::Relaxed);
            }
            counted.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        } else if !is_moving.load(Ordering::Acquire)
            && last.swap(turns, Ordering::Relaxed) != turns
            && asks.send(()).is_ok()
        {
            // If the thread that reads holds a lock that the move needs, it waits no longer.
            moved.lock().recv_timeout(Duration::from_secs(5)).unwrap_or_default();
        }
    });
    let beside = v.fs.snapshot_create(&ada, dir, b"s").map(drop);
    v.store.set_on_read(|| ());
    mover.expect("a thread").join().expect("it ends");
    let after = v.fs.snapshot_create(&ada, dir, b"t").map(drop);
    (most.load(Ordering::Relaxed), [beside, after])
}

/// Regression: after four looks, a copy looked at all that is mounted below with the ledger locked.
#[test]
fn a_copy_beside_moving_directories_keeps_the_ledger_for_few_records() {
    let (few, made) = copy_beside_moves(2);
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    let (many, [beside, after]) = copy_beside_moves(2000);
    println!("{few} records with the ledger locked over 2, {many} over 2,000");
    assert!(many < 4 * few.max(100), "{few} over 2, {many} over 2,000");
    refused(beside, &FsError::Busy(""));
    after.expect("nothing moves");
}

/// A read that records its time gave all heirs theirs first: any number of them, on a thread that
/// serves short requests.
#[test]
fn reads_copy_nothing_for_heirs() {
    let v = volume();
    let dir = with_nested(&v, "d", 2);
    let inner = v.find(dir, "n0").expect("it is there").node;
    let file = v.find(inner, "f").expect("it is there").node;
    copy(&v, dir, 0);
    let read = || {
        let atime = || v.fs.getattr(&root(), file).expect("it is there").atime;
        let before = (v.store.stats().commits, atime());
        v.env.clock.advance(Duration::from_secs(1));
        assert_eq!(v.fs.read(&root(), file, 0, &mut [0; 6]).expect("it reads"), 6);
        assert_eq!(v.sorted(inner), ["f"]);
        (v.store.stats().commits - before.0, atime() > before.1)
    };
    assert_eq!(read(), (0, false));
    assert!(v.fs.copies_first(file, true));
    v.write(file, 0, b"after.");
    assert_eq!(read(), (2, true), "the times of the file and of the directory");
}
