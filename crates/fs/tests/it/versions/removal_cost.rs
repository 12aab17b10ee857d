//! What the removal of very many nested subvolumes costs, in records read. Also how much one commit
//! of it writes, for which a writer waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fs::QuotaLimits;
use inode::NodeId;
use store::Maintain;
use volume::subvol::Subvol;

use super::{forget, give, home, root, settle};
use crate::support::{Volume, assert_whole, user, volume};

/// What removing cost.
#[derive(Debug)]
struct Cost {
    reads: u64,
    /// Most records read without a commit while the ledger was locked, and most commits of a step.
    /// Every snapshot, clone, rollback and removal waits for that lock.
    locked_reads: u64,
    step_commits: u64,
    /// Most bytes that one step wrote.
    step_bytes: u64,
}

fn with_nested(v: &Volume, count: u64) -> NodeId {
    let dir = v.dir(home(), "d").node;
    for at in 0..count {
        nested(v, dir, &format!("n{at}"));
    }
    dir
}

fn nested(v: &Volume, parent: NodeId, name: &str) {
    let made = v.fs.subvolume_create(&root(), parent, name.as_bytes(), 0o755).expect("space");
    forget(v, made.node);
}

/// The same volume, opened again.
pub(super) fn opened_again(v: Volume) -> Volume {
    let again = v.reopened();
    Volume { fs: again, env: v.env, store: v.store, header: v.header }
}

/// Opens the volume again, and does background work until there is none left.
fn cost_of(v: Volume) -> (Volume, Cost) {
    let v = opened_again(v);
    let cost = cost_of_opened(&v);
    (v, cost)
}

/// The same, after which nothing waits any more.
fn cost_of_all(v: Volume) -> Cost {
    let (v, cost) = cost_of(v);
    assert_eq!(v.fs.status().expect("it is known").detached, 0);
    assert_whole(&v.fs);
    cost
}

fn cost_of_opened(v: &Volume) -> Cost {
    let reads = |v: &Volume| v.store.gets() + v.store.moves();
    let (before, mut idle) = (reads(v), 0);
    let mut cost = Cost { reads: 0, locked_reads: 0, step_commits: 0, step_bytes: 0 };
    let locked = count_locked(v);
    // What is mounted where is read once after opening, before the first caller that needs it.
    v.fs.snapshot_create(&root(), home(), b"first").expect("space");
    while idle < 3 {
        let stats = v.store.stats();
        let progress = v.fs.background_step(100).expect("background work goes well");
        let after = v.store.stats();
        cost.step_bytes = cost.step_bytes.max(after.written_bytes - stats.written_bytes);
        cost.step_commits = cost.step_commits.max(after.commits - stats.commits);
        idle = if progress.more { 0 } else { idle + 1 };
        if !progress.more {
            v.env.clock.advance(Duration::from_secs(1));
        }
    }
    cost.reads = reads(v) - before;
    cost.locked_reads = locked.load(Ordering::Relaxed);
    v.store.set_on_read(|| ());
    cost
}

/// The most reads from now on that follow each other, without a commit, while the ledger is locked.
fn count_locked(v: &Volume) -> Arc<AtomicU64> {
    let most = Arc::new(AtomicU64::new(0));
    let (counted, locked) = (Arc::clone(&most), locked_now(v));
    v.store.set_on_read(move || {
        counted.fetch_max(locked(), Ordering::Relaxed);
    });
    most
}

/// Counts, called at each read, those in a row with the ledger locked and without a commit.
fn locked_now(v: &Volume) -> impl Fn() -> u64 + Send + Sync + use<> {
    let (fs, store) = (Arc::downgrade(&v.fs), Arc::downgrade(&v.store));
    let (now, commits) = (AtomicU64::new(0), AtomicU64::new(0));
    move || {
        let (Some(fs), Some(store)) = (fs.upgrade(), store.upgrade()) else { return 0 };
        let done = store.stats().commits;
        if commits.swap(done, Ordering::Relaxed) != done || !fs.admin.is_locked() {
            now.store(0, Ordering::Relaxed);
            return 0;
        }
        now.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Four times as many cost four times as much; returns what many cost.
fn assert_linear(cost: impl Fn(u64) -> Cost) -> Cost {
    let (few, many) = (cost(150), cost(600));
    assert!(many.reads < 5 * few.reads, "600 cost {many:?}, 150 cost {few:?}");
    assert_eq!(many.step_commits, few.step_commits, "600 cost {many:?}, 150 cost {few:?}");
    assert_eq!(many.locked_reads, few.locked_reads, "600 cost {many:?}, 150 cost {few:?}");
    assert!(many.locked_reads < 100, "600 cost {many:?}, 150 cost {few:?}");
    many
}

#[test]
fn removing_a_tree_costs_in_proportion_to_its_nested_subvolumes() {
    let many = assert_linear(|count| {
        let v = volume();
        forget(&v, with_nested(&v, count));
        v.fs.rmr(&root(), home(), b"d").expect("a directory");
        cost_of_all(v)
    });
    assert!(many.step_bytes < 64 << 10, "{many:?}");
}

#[test]
fn removing_a_subvolume_costs_in_proportion_to_its_nested_subvolumes() {
    let many = assert_linear(|count| {
        let v = volume();
        let top = v.fs.subvolume_create(&root(), home(), b"top", 0o755).expect("space").node;
        for at in 0..count {
            nested(&v, top, &format!("n{at}"));
        }
        forget(&v, top);
        v.fs.rmr(&root(), home(), b"top").expect("a subvolume");
        cost_of_all(v)
    });
    assert!(many.step_bytes < 64 << 10, "{many:?}");
}

#[test]
fn a_rollback_costs_in_proportion_to_the_subvolumes_nested_in_the_old_tree() {
    assert_linear(|count| {
        let v = volume();
        let dir = with_nested(&v, count);
        v.fs.snapshot_create(&root(), dir, b"s").expect("space");
        v.fs.rollback(&root(), dir, b"s").expect("a snapshot");
        forget(&v, dir);
        cost_of_all(v)
    });
}

/// Copies that inherit are given what is mounted in their source.
#[test]
fn a_step_that_completes_copies_costs_the_same_beside_any_number_of_subvolumes() {
    assert_linear(|count| {
        let v = volume();
        let dir = with_nested(&v, count);
        for copy in 0..8 {
            let name = format!("c{copy}");
            v.fs.clone_dir(&root(), dir, home(), name.as_bytes()).expect("space");
        }
        forget(&v, dir);
        let (v, cost) = cost_of(v);
        assert!(v.fs.status().expect("it is known").clones >= 8 + 8 * count);
        cost
    });
}

const OWNER: u32 = 1000;

/// What other threads wait for while something is done.
#[derive(Debug, PartialEq, Eq)]
struct Blocking {
    /// Most records that are read between two commits with the ledger locked.
    locked_reads: u64,
    /// Most nested subvolumes that are kept from changing at one time.
    quiet: u64,
}

fn blocking(v: &Volume, nested: &[Arc<Subvol>], work: impl FnOnce()) -> Blocking {
    let (locked, nested, most) = (locked_now(v), nested.to_vec(), Arc::new(AtomicU64::new(0)));
    let (reads, quiet) = (Arc::new(AtomicU64::new(0)), Arc::clone(&most));
    let counted = Arc::clone(&reads);
    v.store.set_on_read(move || {
        counted.fetch_max(locked(), Ordering::Relaxed);
        let count = nested.iter().filter(|subvol| subvol.is_quiet()).count();
        most.fetch_max(count as u64, Ordering::Relaxed);
    });
    work();
    v.store.set_on_read(|| ());
    let [locked_reads, quiet] = [reads, quiet].map(|count| count.load(Ordering::Relaxed));
    Blocking { locked_reads, quiet }
}

/// A directory of a user with so many subvolumes of that user in it.
fn with_own(v: &Volume, name: &str, count: u64) -> (NodeId, Vec<Arc<Subvol>>) {
    let dir = v.dir(home(), name).node;
    give(v, dir, OWNER);
    let mut all = Vec::new();
    for at in 0..count {
        let made = v.fs.subvolume_create(&root(), dir, format!("n{at}").as_bytes(), 0o755);
        let made = made.expect("space");
        give(v, made.node, OWNER);
        all.push(v.fs.place(made.node).expect("it was made just now").0);
        forget(v, made.node);
    }
    (dir, all)
}

/// What a user may do with a tree that belongs to the user, subvolumes in it too.
fn blocking_of_a_user(count: u64) -> Vec<(&'static str, Blocking)> {
    let (v, owner) = (volume(), user(OWNER));
    // What is mounted where, and who made how many, is read once after opening.
    v.fs.snapshot_create(&root(), home(), b"first").expect("space");
    let first = v.dir(home(), "first").node;
    give(&v, first, OWNER);
    v.fs.snapshot_create(&owner, first, b"first").expect("it is the user's");
    // With a limit somewhere, copies are refused where one is in force below.
    let limits = QuotaLimits { inodes: Some(1000), bytes: None };
    let limited = v.dir(home(), "limited").node;
    v.fs.quota_set(&root(), limited, limits).expect("root may");
    let (dir, nested) = with_own(&v, "d", count);
    let mut done = Vec::new();
    let snapshot = || {
        v.fs.snapshot_create(&owner, dir, b"s").expect("it is the user's");
    };
    done.push(("snapshot", blocking(&v, &nested, snapshot)));
    let clone = || {
        v.fs.clone_dir(&owner, dir, home(), b"c").expect("it is the user's");
    };
    done.push(("clone", blocking(&v, &nested, clone)));
    let rollback = || v.fs.rollback(&owner, dir, b"s").expect("it is the user's");
    done.push(("rollback", blocking(&v, &nested, rollback)));
    forget(&v, dir);
    let (dir, nested) = with_own(&v, "gone", count);
    forget(&v, dir);
    let rmr = || {
        v.fs.rmr(&owner, home(), b"gone").expect("it is the user's");
    };
    done.push(("rmr", blocking(&v, &nested, rmr)));
    v.fs.trash_set(&root(), home(), Some(3600)).expect("a trash");
    // The first removal of an hour makes the directories of the trash.
    v.dir(home(), "before");
    v.fs.rmr(&root(), home(), b"before").expect("a directory");
    let (dir, nested) = with_own(&v, "kept", count);
    forget(&v, dir);
    let rmr = || {
        v.fs.rmr(&owner, home(), b"kept").expect("it is the user's");
    };
    done.push(("rmr into the trash", blocking(&v, &nested, rmr)));
    settle(&v);
    assert_whole(&v.fs);
    done
}

/// A user who is not root has to own everything below. The check is a walk, for which nobody waits:
/// the gates of all nested subvolumes were held over the commit, with the ledger locked.
#[test]
fn others_wait_as_long_for_a_user_with_any_number_of_nested_subvolumes() {
    let [few, many] = [10, 100].map(blocking_of_a_user);
    for ((what, few), (_, many)) in few.iter().zip(&many) {
        println!("{what}: {few:?}, with ten times as many: {many:?}");
        assert_eq!(few, many, "{what}");
        assert!(many.locked_reads < 100 && many.quiet == 0, "{what}: {many:?}");
    }
}

/// What the first callers after an opening make others wait for, each on a volume of its own. One
/// is bound by the share of its user. One changes what a clone inherits, and one looks at that.
fn blocking_after_opening(count: u64) -> Vec<(&'static str, Blocking)> {
    let owner = user(OWNER);
    let first = |what, work: &dyn Fn(&Volume, NodeId)| {
        let v = volume();
        let (dir, _) = with_own(&v, "d", count);
        v.fs.clone_dir(&root(), dir, home(), b"c").expect("space");
        forget(&v, dir);
        let v = opened_again(v);
        let dir = v.find(home(), "d").expect("it is there").node;
        let done = blocking(&v, &[], || work(&v, dir));
        settle(&v);
        assert_whole(&v.fs);
        (what, done)
    };
    let snapshot = |v: &Volume, dir| {
        v.fs.snapshot_create(&owner, dir, b"s").expect("it is the user's");
    };
    let change = |v: &Volume, dir| {
        let nested = v.find(dir, "n7").expect("it is there").node;
        v.dir(nested, "new");
    };
    let look = |v: &Volume, _| {
        let copy = v.find(home(), "c").expect("it is there").node;
        v.find(copy, "n7").expect("it is inherited");
    };
    let of_root = |v: &Volume, dir| {
        v.fs.clone_dir(&root(), dir, home(), b"again").expect("space");
    };
    vec![
        first("snapshot of a user", &snapshot),
        first("change", &change),
        first("look-up", &look),
        first("clone", &of_root),
    ]
}

/// The first caller read the record of every subvolume with the ledger locked.
#[test]
fn others_wait_as_long_for_the_first_caller_after_opening_beside_any_number_of_subvolumes() {
    let [few, many] = [50, 1500].map(blocking_after_opening);
    for ((what, few), (_, many)) in few.iter().zip(&many) {
        println!("{what}: {few:?}, with thirty times as many: {many:?}");
        assert_eq!(few, many, "{what}");
        assert!(many.locked_reads < 100, "{what}: {many:?}");
    }
}
