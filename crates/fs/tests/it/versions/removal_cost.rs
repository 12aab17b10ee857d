//! What the removal of very many nested subvolumes costs, in records that are read, and how much
//! one commit of it writes: a writer waits for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use inode::NodeId;
use store::Maintain;

use super::{forget, home, root};
use crate::support::{Volume, assert_whole, volume};

/// What removing cost.
#[derive(Debug)]
struct Cost {
    reads: u64,
    /// Most that was read without a commit while the ledger was locked, for which every snapshot,
    /// clone, rollback and removal waits; and most commits of a step.
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

/// Does background work until there is none left.
fn cost_of(v: &Volume) -> Cost {
    // What is mounted where is read once after opening, by the first caller that needs it.
    v.fs.snapshot_create(&root(), home(), b"first").expect("space");
    let reads = |v: &Volume| v.store.gets() + v.store.moves();
    let (before, mut idle) = (reads(v), 0);
    let mut cost = Cost { reads: 0, locked_reads: 0, step_commits: 0, step_bytes: 0 };
    let locked = count_locked(v);
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
    let (counted, fs) = (Arc::clone(&most), Arc::downgrade(&v.fs));
    let (store, now, commits) = (Arc::downgrade(&v.store), AtomicU64::new(0), AtomicU64::new(0));
    v.store.set_on_read(move || {
        let (Some(fs), Some(store)) = (fs.upgrade(), store.upgrade()) else { return };
        let done = store.stats().commits;
        if commits.swap(done, Ordering::Relaxed) != done || !fs.admin.is_locked() {
            now.store(0, Ordering::Relaxed);
        } else {
            let read = now.fetch_add(1, Ordering::Relaxed) + 1;
            counted.fetch_max(read, Ordering::Relaxed);
        }
    });
    most
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
        let cost = cost_of(&v);
        assert_eq!(v.fs.status().expect("it is known").detached, 0);
        assert_whole(&v.fs);
        cost
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
        let cost = cost_of(&v);
        assert_eq!(v.fs.status().expect("it is known").detached, 0);
        assert_whole(&v.fs);
        cost
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
        let cost = cost_of(&v);
        assert_eq!(v.fs.status().expect("it is known").detached, 0);
        assert_whole(&v.fs);
        cost
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
        let cost = cost_of(&v);
        assert!(v.fs.status().expect("it is known").clones >= 8 + 8 * count);
        cost
    });
}
