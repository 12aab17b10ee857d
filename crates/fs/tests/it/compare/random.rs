//! Random histories, with snapshots, clones, rollbacks and background work among the operations:
//! from time to time states of directories are compared with each other.

use std::collections::BTreeMap;

use device::Timestamp;
use fs::{Engine, FileSystem};
use inode::{Caller, Kind, NodeId};
use store::Durability;
use testing::SimDevice;
use testing::model::{Effect, FsModel, Generator, Op, OpPath, Stat, Subject, Target, Verdict};

use super::oracle::{at, check, check_inodes};
use crate::script::{SNAPSHOTS, options, scale};
use crate::subject::{Base, FsSubject};

/// Operations between two comparisons.
const OPS: usize = 25;

fn shown(path: &OpPath) -> String {
    let names = path.iter().map(|name| String::from_utf8(name.clone()).unwrap());
    names.flat_map(|name| ["/".to_owned(), name]).collect()
}

/// Compares the states of one directory with each other.
fn compare_states(fs: &fs::Volume, directory: &str, names: &[Vec<u8>], is_plain: bool) -> usize {
    let snapshots = String::from_utf8(SNAPSHOTS.to_vec()).unwrap();
    let mut states: Vec<NodeId> = names
        .iter()
        .map(|name| {
            let name = String::from_utf8(name.clone()).unwrap();
            at(fs, &format!("{directory}/{snapshots}/{name}"))
        })
        .collect();
    states.push(at(fs, if directory.is_empty() { "/" } else { directory }));
    let mut changes = 0;
    for (at, &old) in states.iter().enumerate() {
        for (other, &new) in states.iter().enumerate() {
            // Each with its neighbours, and the oldest with the present.
            let distance = at.abs_diff(other);
            if distance != 1 && distance + 1 != states.len() {
                continue;
            }
            let found = check(fs, &Caller::root(), (old, new));
            if is_plain {
                check_inodes(fs, (old, new), &found);
            }
            changes += found.len();
        }
    }
    for node in states.into_iter().filter(|node| *node != NodeId::ROOT) {
        fs.forget(node, 1);
    }
    changes
}

/// Directories that are states of one directory: clones, what they were cloned from, and what a
/// rollback made of it.
fn relatives(fs: &fs::Volume, model: &FsModel) -> Vec<Vec<String>> {
    let mut alike: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for (path, kind) in model.paths() {
        if kind == Kind::Directory && !path.is_empty() {
            let path = shown(&path);
            let node = at(fs, &path);
            alike.entry(node.ino().0).or_default().push(path);
            fs.forget(node, 1);
        }
    }
    alike.into_values().filter(|paths| paths.len() > 1).collect()
}

/// Snapshots of the root and of some directory, and the end of older ones.
fn snapshots(model: &FsModel, round: usize) -> Vec<Op> {
    let mut directories: Vec<OpPath> = model
        .paths()
        .into_iter()
        .filter(|(_, kind)| *kind == Kind::Directory)
        .map(|(path, _)| path)
        .collect();
    directories.sort();
    let some = directories[round * 7 % directories.len()].clone();
    let name = |round: usize| format!("h{round}").into_bytes();
    let create = |directory: OpPath| Op::SnapshotCreate { directory, name: name(round) };
    let mut ops = vec![create(OpPath::new())];
    if !some.is_empty() {
        ops.push(create(some));
    }
    if round >= 2 {
        ops.push(Op::SnapshotDelete { directory: OpPath::new(), name: name(round - 2) });
    }
    ops
}

/// Runs histories. `is_plain`: without clones, rollbacks, and subvolumes in one another.
fn run(base: &Base, seeds: u64, is_plain: bool) {
    let mut changes = 0;
    for seed in 0..seeds {
        let device = SimDevice::new(seed);
        let mut subject = FsSubject::format(&device, &options(Durability::Async), base);
        let root = Op::Stat { target: Target::Path(OpPath::new()) };
        let stat = match subject.run(Timestamp(0), &Caller::root(), &root) {
            Ok(Effect::Stat(stat)) => stat,
            other => panic!("stat of the root answers {other:?}"),
        };
        let mut now = stat.ctime;
        let mut model = FsModel::new(Timestamp(now), SNAPSHOTS);
        model.set_root(&Stat { nlink_slack: 0, ..stat });
        let mut generator =
            if seed % 2 == 0 || is_plain { Generator::new(seed) } else { Generator::nested(seed) };
        for round in 0..8 {
            println!("seed {seed} round {round}");
            let mut snapshots = snapshots(&model, round);
            for _ in 0..OPS {
                let (caller, op) = match snapshots.pop() {
                    Some(op) => (Caller::root(), op),
                    None => generator.next(&model),
                };
                let mixes = matches!(
                    op,
                    Op::Clone { .. } | Op::SubvolumeCreate { .. } | Op::Rollback { .. }
                );
                if is_plain && mixes {
                    continue;
                }
                now += 10_000_000_007;
                let before = model.clone();
                let right = model.apply(Timestamp(now), &caller, &op);
                let seen = subject.run(Timestamp(now), &caller, &op);
                if let (Verdict::Either(_), Ok(_)) = (&right, &seen) {
                    model = before;
                }
                assert!(right.admits(&seen), "seed {seed}: {op} answered {seen:?}, not {right:?}");
            }
            let mut snapshots = model.live_snapshots();
            snapshots.sort();
            let fs = subject.fs();
            for group in snapshots.chunk_by(|one, two| one.0 == two.0) {
                let names: Vec<Vec<u8>> = group.iter().map(|(_, name)| name.clone()).collect();
                changes += compare_states(fs, &shown(&group[0].0), &names, is_plain);
            }
            for paths in relatives(fs, &model).into_iter().take(4) {
                let nodes = [at(fs, &paths[0]), at(fs, &paths[1])];
                changes += check(fs, &Caller::root(), (nodes[0], nodes[1])).len();
                changes += check(fs, &Caller::root(), (nodes[1], nodes[0])).len();
                for node in nodes {
                    fs.forget(node, 1);
                }
            }
        }
    }
    println!("{changes} changes");
    assert!(changes > 500, "{changes} changes are too few to prove anything");
}

#[test]
fn a_comparison_names_what_a_full_one_finds() {
    run(&Base::Engine(Engine::Btree), scale(8, 400), true);
}

#[test]
fn a_comparison_on_the_log_structured_engine_names_what_a_full_one_finds() {
    run(&Base::Engine(Engine::Lsm), scale(8, 400), true);
}

#[test]
fn a_comparison_across_subvolumes_names_what_a_full_one_finds() {
    run(&Base::Engine(Engine::Btree), scale(8, 400), false);
}

#[test]
fn a_comparison_across_subvolumes_of_the_log_structured_engine_names_what_a_full_one_finds() {
    run(&Base::Engine(Engine::Lsm), scale(8, 400), false);
}
