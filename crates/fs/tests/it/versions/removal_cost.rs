//! What the removal of very many nested subvolumes costs, in records that are read, and how much
//! one commit of it writes: a writer waits for that.

use std::time::Duration;

use inode::NodeId;
use store::Maintain;

use super::{forget, home, root};
use crate::support::{Volume, assert_whole, volume};

/// What removing cost.
#[derive(Debug)]
struct Cost {
    reads: u64,
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
    let reads = |v: &Volume| v.store.gets() + v.store.moves();
    let (before, mut step_bytes, mut idle) = (reads(v), 0, 0);
    while idle < 3 {
        let written = v.store.stats().written_bytes;
        let progress = v.fs.background_step(100).expect("background work goes well");
        step_bytes = step_bytes.max(v.store.stats().written_bytes - written);
        idle = if progress.more { 0 } else { idle + 1 };
        if !progress.more {
            v.env.clock.advance(Duration::from_secs(1));
        }
    }
    Cost { reads: reads(v) - before, step_bytes }
}

/// Four times as many cost four times as much; returns what many cost.
fn assert_linear(cost: impl Fn(u64) -> Cost) -> Cost {
    let (few, many) = (cost(150), cost(600));
    assert!(many.reads < 5 * few.reads, "600 cost {many:?}, 150 cost {few:?}");
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
