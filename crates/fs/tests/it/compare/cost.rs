//! What a comparison costs, in reads of the disk: as much as differs, whatever else there is.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use fs::{Engine, FileSystem, NewNode, OpenOptions, Volume};
use inode::{Caller, Kind, NodeId, SetAttr};
use store::Durability;
use testing::{Op, SimDevice};

use super::oracle::at;
use crate::script::scale;
use crate::subject::{Base, FsSubject};

/// Files in a directory.
const WIDTH: usize = 100;
/// Files that change.
const CHANGES: usize = 1000;

/// Without an index, which would read, too.
fn options() -> OpenOptions {
    OpenOptions {
        durability: Durability::Async,
        cache_bytes: 64 << 20,
        index: None,
        ..OpenOptions::default()
    }
}

/// Makes directories of so many files.
fn fill(fs: &Volume, files: usize) {
    let root = Caller::root();
    for directory in 0..files / WIDTH {
        let above = fs.mkdir(&root, NodeId::ROOT, format!("{directory}").as_bytes(), 0o755);
        let above = above.unwrap().node;
        for file in 0..WIDTH {
            let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
            let made = fs.mknod(&root, above, format!("{file}").as_bytes(), &new).unwrap();
            fs.forget(made.node, 1);
        }
    }
}

/// Reads of the disk that a comparison makes with cold caches.
fn reads(engine: Engine, files: usize) -> u64 {
    let device = SimDevice::new(1);
    let mut subject = FsSubject::format(&device, &options(), &Base::Engine(engine));
    let root = Caller::root();
    let fs = subject.fs();
    fill(fs, files);
    fs.snapshot_create(&root, NodeId::ROOT, b"s").unwrap();
    for directory in 0..CHANGES / WIDTH {
        for file in 0..WIDTH {
            let node = at(fs, &format!("/{directory}/{file}"));
            let changes = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            fs.setattr(&root, node, &changes).unwrap();
            fs.forget(node, 1);
        }
    }
    subject.cycle().unwrap();
    let fs: &Volume = subject.fs();
    let nodes = (at(fs, "/.snapshots/s"), at(fs, "/"));
    let before = device.counts().of(Op::Read);
    let cancel = AtomicBool::new(false);
    let compared = fs.compare(&root, nodes, &cancel, &mut |_| ControlFlow::Continue(()));
    assert_eq!(compared.unwrap().changes, CHANGES as u64);
    device.counts().of(Op::Read) - before
}

fn a_comparison_reads_what_differs(engine: Engine) {
    let few = reads(engine, 10_000);
    let many = reads(engine, scale(30_000, 200_000) as usize);
    println!("{few} reads with 10,000 files, {many} with many more");
    assert!(few > 0, "the caches were not cold");
    assert!(many <= few + few / 4 + 16, "{many} reads, and {few} with a few files");
}

/// Reads of comparisons of a directory in a volume that also has much else. Its snapshot is
/// compared with the present, before and after pruning, and two pruned snapshots with each other.
fn reads_of_pruned(engine: Engine, files: usize, outside: usize) -> [u64; 3] {
    let device = SimDevice::new(2);
    let options = OpenOptions { prune_records: 64, ..options() };
    let mut subject = FsSubject::format(&device, &options, &Base::Engine(engine));
    let root = Caller::root();
    let make = |fs: &Volume, above: NodeId, file: usize| {
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let made = fs.mknod(&root, above, format!("{file}").as_bytes(), &new).unwrap();
        fs.forget(made.node, 1);
    };
    let chmod_all = |fs: &Volume, mode: u32| {
        for file in 0..outside {
            let node = at(fs, &format!("/outside/{file}"));
            fs.setattr(&root, node, &SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
            fs.forget(node, 1);
        }
    };
    let compare = |subject: &mut FsSubject, paths: [&str; 2], expected: u64| {
        subject.cycle().unwrap();
        let fs: &Volume = subject.fs();
        let nodes = (at(fs, paths[0]), at(fs, paths[1]));
        let before = device.counts().of(Op::Read);
        let cancel = AtomicBool::new(false);
        let compared = fs.compare(&root, nodes, &cancel, &mut |_| ControlFlow::Continue(()));
        assert_eq!(compared.unwrap().changes, expected, "{paths:?}");
        device.counts().of(Op::Read) - before
    };
    let fs = subject.fs();
    let d = fs.mkdir(&root, NodeId::ROOT, b"d", 0o755).unwrap().node;
    let beside = fs.mkdir(&root, NodeId::ROOT, b"outside", 0o755).unwrap().node;
    (0..files).for_each(|file| make(fs, d, file));
    (0..outside).for_each(|file| make(fs, beside, file));
    fs.snapshot_create(&root, d, b"s").unwrap();
    let one = at(fs, "/d/7");
    fs.setattr(&root, one, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    fs.forget(one, 1);
    let shared = compare(&mut subject, ["/d/.snapshots/s", "/d"], 1);
    let settle = |fs: &Volume| {
        for _ in 0..100_000 {
            if !fs.background_step(4096).unwrap().more {
                return;
            }
        }
        panic!("the background does not end");
    };
    chmod_all(subject.fs(), 0o600);
    settle(subject.fs());
    let pruned = compare(&mut subject, ["/d/.snapshots/s", "/d"], 1);
    subject.fs().snapshot_create(&root, at(subject.fs(), "/d"), b"t").unwrap();
    chmod_all(subject.fs(), 0o644);
    settle(subject.fs());
    let both = compare(&mut subject, ["/d/.snapshots/s", "/d/.snapshots/t"], 1);
    [shared, pruned, both]
}

/// A pruned snapshot shares nothing with a state that is not: the comparison reads the directory,
/// and not what else there is. Where neither was pruned, or both, it reads what differs.
fn a_comparison_with_a_pruned_state_reads_the_directory(engine: Engine) {
    let few = reads_of_pruned(engine, 2000, 3000);
    let many = reads_of_pruned(engine, 2000, 24_000);
    let large = reads_of_pruned(engine, 16_000, 20_000);
    println!(
        "{engine:?}: reads of 2,000 files (shared, pruned, both) {few:?}; with 8 times as much \
              beside it {many:?}; of 16,000 files {large:?}"
    );
    assert!(few[1] > 2 * few[0] && large[1] > 3 * few[1], "it was pruned");
    assert!(many[1] <= few[1] + few[1] / 2 + 32, "{many:?}, and {few:?} with little beside it");
    assert!(large[2] <= few[2] + few[2] / 2 + 32, "both pruned: {large:?} and {few:?}");
}

/// Reads of a comparison of a directory in which one file changed, and beside which so many were
/// made, one with contents or none.
fn reads_beside(engine: Engine, outside: usize, contents: bool) -> u64 {
    let device = SimDevice::new(3);
    let mut subject = FsSubject::format(&device, &options(), &Base::Engine(engine));
    let root = Caller::root();
    let fs = subject.fs();
    let make = |above: NodeId, file: usize| {
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let made = fs.mknod(&root, above, format!("{file}").as_bytes(), &new).unwrap();
        fs.forget(made.node, 1);
    };
    let d = fs.mkdir(&root, NodeId::ROOT, b"d", 0o755).unwrap().node;
    let beside = fs.mkdir(&root, NodeId::ROOT, b"outside", 0o755).unwrap().node;
    (0..2000).for_each(|file| make(d, file));
    fs.snapshot_create(&root, d, b"s").unwrap();
    (0..outside).for_each(|file| make(beside, file));
    let one = at(fs, "/d/7");
    fs.setattr(&root, one, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    let written = at(fs, "/outside/5");
    if contents {
        fs.write(&root, written, 0, &vec![7; 200_000]).unwrap();
    }
    for node in [one, written, d, beside] {
        fs.forget(node, 1);
    }
    subject.cycle().unwrap();
    let fs: &Volume = subject.fs();
    let nodes = (at(fs, "/d/.snapshots/s"), at(fs, "/d"));
    let before = device.counts().of(Op::Read);
    let cancel = AtomicBool::new(false);
    let mut changed = Vec::new();
    let mut take = |change: &fs::Difference| {
        changed.push(change.path().to_vec());
        ControlFlow::Continue(())
    };
    fs.compare(&root, nodes, &cancel, &mut take).unwrap();
    assert_eq!(changed, [b"7".to_vec()]);
    device.counts().of(Op::Read) - before
}

/// The tree of a snapshot of a directory has all of its subvolume.
fn what_changes_outside_costs_little(engine: Engine) {
    let (few, many) = (reads_beside(engine, 3000, false), reads_beside(engine, 24_000, false));
    // Extents have no names: those of files outside are looked for among the changes there.
    let contents = reads_beside(engine, 24_000, true);
    println!(
        "{engine:?}: {few} reads beside 3,000 changes, {many} beside 24,000, {contents} if one of \
         them is of contents"
    );
    assert!(many <= few + few / 2 + 32, "{many}, and {few} with few changes outside");
}

/// Changes between two snapshots of a chain.
const CHAIN_CHANGES: usize = 50;
/// Snapshots of the chain: more than a stack of runs is deep before runs of different sharers are
/// merged.
const CHAIN: usize = 40;

/// Merges that ended since the volume was opened.
fn merges(fs: &Volume) -> u64 {
    fs.status().unwrap().merges.map_or(0, |merges| merges.ended)
}

/// The path of a file of those volumes.
fn path_of(file: usize) -> String {
    format!("/{}/{}", file / WIDTH, file % WIDTH)
}

/// A volume with directories of files, that was closed.
fn with_files(device: &SimDevice, engine: Engine, files: usize) -> FsSubject {
    let mut subject = FsSubject::format(device, &options(), &Base::Engine(engine));
    fill(subject.fs(), files);
    subject.cycle().unwrap();
    subject
}

/// Changes the modes of so many files, which become a run of `lsm`, and has merged what is due;
/// returns how many merges ended.
fn change(subject: &mut FsSubject, files: std::ops::Range<usize>, mode: u32) -> u64 {
    let (root, fs) = (Caller::root(), subject.fs());
    for file in files {
        let node = at(fs, &path_of(file));
        fs.setattr(&root, node, &SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
        fs.forget(node, 1);
    }
    subject.cycle().unwrap();
    subject.background(100_000).unwrap();
    merges(subject.fs())
}

/// Reads of a comparison of two paths with cold caches, which finds so many changes.
fn reads_between(
    (device, subject): (&SimDevice, &mut FsSubject),
    paths: [&str; 2],
    expected: usize,
) -> u64 {
    subject.cycle().unwrap();
    let fs: &Volume = subject.fs();
    let nodes = (at(fs, paths[0]), at(fs, paths[1]));
    let before = device.counts().of(Op::Read);
    let cancel = AtomicBool::new(false);
    let take = &mut |_: &fs::Difference| ControlFlow::Continue(());
    let compared = fs.compare(&Caller::root(), nodes, &cancel, take);
    assert_eq!(compared.unwrap().changes, expected as u64, "{paths:?}");
    device.counts().of(Op::Read) - before
}

/// Reads of a comparison of a snapshot with the present, of 200 changes. Runs were merged since the
/// snapshot: those below it, and those of the changes.
fn reads_after_merges(engine: Engine, files: usize) -> u64 {
    let device = SimDevice::new(4);
    let mut subject = with_files(&device, engine, files);
    for round in 0..3 {
        change(&mut subject, 300..500, 0o600 + round);
    }
    subject.fs().snapshot_create(&Caller::root(), NodeId::ROOT, b"s").unwrap();
    let mut merged = 0;
    for round in 0..9 {
        merged += change(&mut subject, 0..200, 0o600 + round);
    }
    let of_engine = if engine == Engine::Lsm { 1.. } else { 0.. };
    assert!(of_engine.contains(&merged), "{merged} merges between the two states");
    reads_between((&device, &mut subject), ["/.snapshots/s", "/"], 200)
}

/// Runs are merged within what the same trees share, so the two states still share what they did.
fn merged_runs_cost_what_differs(engine: Engine) {
    let (few, many) = (reads_after_merges(engine, 2000), reads_after_merges(engine, 40_000));
    println!("{engine:?}: {few} reads after merges with 2,000 files, {many} with 40,000");
    assert!(many <= few + few / 2 + 16, "{many} reads, and {few} with a few files");
}

/// Reads of comparisons of each snapshot of a chain with the present, and how many merges there
/// were. Each snapshot shares other runs with it. In a stack that is too deep, runs of different
/// sharers are merged.
fn reads_of_chain(engine: Engine, files: usize) -> (Vec<u64>, u64) {
    let device = SimDevice::new(5);
    let mut subject = with_files(&device, engine, files);
    let mut merged = 0;
    for link in 0..CHAIN {
        let name = format!("s{link}");
        subject.fs().snapshot_create(&Caller::root(), NodeId::ROOT, name.as_bytes()).unwrap();
        let from = link * CHAIN_CHANGES;
        merged += change(&mut subject, from..from + CHAIN_CHANGES, 0o600);
    }
    let reads = (0..CHAIN).map(|link| {
        let (name, changed) = (format!("/.snapshots/s{link}"), (CHAIN - link) * CHAIN_CHANGES);
        reads_between((&device, &mut subject), [&name, "/"], changed)
    });
    (reads.collect(), merged)
}

/// A merge of runs that a state shares with runs that it does not takes eight runs of about one
/// size. So a comparison reads at most what changed since the oldest of them, and not the large run
/// below.
fn a_chain_of_snapshots_costs_what_changed_along_it(engine: Engine) {
    let ((few, merged), (many, _)) = (reads_of_chain(engine, 4000), reads_of_chain(engine, 40_000));
    println!(
        "{engine:?}: reads by snapshot, {merged} merges: {few:?}; of ten times as many files: \
         {many:?}"
    );
    if engine == Engine::Lsm {
        assert!(merged > 0, "nothing was merged");
    }
    for (link, (few, many)) in few.iter().zip(&many).enumerate() {
        assert!(
            *many <= few + few / 2 + 24,
            "snapshot {link}: {many} reads, and {few} with a few files"
        );
    }
    // The oldest has all changes of the chain to read; no later one reads much more than that.
    let most = *few.iter().max().unwrap();
    assert!(most <= 2 * few[0] + 24, "{most} reads, and {} since the oldest snapshot", few[0]);
}

on_each_engine! {
    merged_runs_cost_what_differs,
    a_chain_of_snapshots_costs_what_changed_along_it,
    what_changes_outside_costs_little,
    a_comparison_reads_what_differs,
    a_comparison_with_a_pruned_state_reads_the_directory,
}
