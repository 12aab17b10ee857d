//! A collection that is due is not lost with the process that requested it.

use std::sync::Arc;
use std::time::Duration;

use format::{key, usage};
use fs::{Engine, FileSystem, FormatOptions, Fs, NewNode, OpenOptions};
use inode::{Caller, Kind, NodeId};
use testing::{Fault, FaultOn, Op, SimEnv, sim_env};

on_each_engine!(
    a_due_collection_outlives_the_process,
    the_end_of_a_collection_is_remembered,
    a_collection_that_deletes_nothing_is_not_repeated,
);

fn open(sim: &SimEnv) -> Arc<Fs> {
    let mut options = OpenOptions { index: None, ..OpenOptions::default() };
    options.data.punch_after = Duration::ZERO;
    Fs::open(sim.env(), &options).expect("it opens")
}

/// Pages of contents that the records of segments count as named.
fn live_pages(fs: &Fs) -> i64 {
    let mut pages = 0;
    fs.visit_volume(&key::SEGMENTS_PREFIX, &mut |_, value| {
        pages += usage::decode(value).expect("a record of a segment");
        Ok(())
    })
    .expect("the records of segments");
    pages
}

fn idle(fs: &Fs) {
    while fs.background_step(64).expect("background work").more {}
}

/// A volume whose only snapshot, with all of its contents, was removed. The collection has begun.
fn with_a_dropped_tree(engine: Engine) -> (SimEnv, Arc<Fs>) {
    let (sim, root) = (sim_env(1), Caller::root());
    let format = FormatOptions { engine, ..FormatOptions::default() };
    Fs::format(&sim.env(), &format).expect("an empty disk");
    let fs = open(&sim);
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    for number in 0..300 {
        let name = format!("file{number}");
        let file = fs.mknod(&root, NodeId::ROOT, name.as_bytes(), &new).expect("made").node;
        fs.write(&root, file, 0, &vec![7; 20_000]).expect("written");
        fs.forget(file, 1);
    }
    fs.snapshot_create(&root, NodeId::ROOT, b"s").expect("a snapshot");
    for number in 0..300 {
        let name = format!("file{number}");
        fs.unlink(&root, NodeId::ROOT, name.as_bytes()).expect("it goes");
    }
    idle(&fs);
    assert!(live_pages(&fs) >= 1500, "the snapshot keeps its contents");
    fs.snapshot_delete(&root, NodeId::ROOT, b"s").expect("it goes");
    while !fs.queue.collection_is_requested() {
        assert!(fs.background_step(64).expect("background work").more, "a collection is requested");
    }
    (sim, fs)
}

fn a_due_collection_outlives_the_process(engine: Engine) {
    for begun in [false, true] {
        let (sim, mut fs) = with_a_dropped_tree(engine);
        while begun && fs.queue.collection_is_requested() {
            fs.background_step(1).expect("background work");
        }
        assert!(live_pages(&fs) >= 1500, "nothing was swept yet");
        for crash in [false, true] {
            assert!(fs.collection_is_due(Duration::MAX), "an idle daemon waits for it");
            if crash {
                fs.sync().expect("durable");
            } else {
                fs.close().expect("it closes");
            }
            drop(fs);
            fs = open(&sim);
        }
        idle(&fs);
        assert_eq!(live_pages(&fs), 0, "begun: {begun}");
        assert!(!fs.collection_is_due(Duration::MAX));
        fs.close().expect("it closes");
    }
}

/// A volume that was collected is not collected again at each opening.
fn the_end_of_a_collection_is_remembered(engine: Engine) {
    let (sim, fs) = with_a_dropped_tree(engine);
    idle(&fs);
    assert_eq!(live_pages(&fs), 0);
    fs.close().expect("it closes");
    drop(fs);
    let fs = open(&sim);
    assert!(!fs.collection_is_due(Duration::MAX), "nothing was dropped since");
    fs.close().expect("it closes");
}

/// Regression: a segment that could not be deleted ended each collection, and the next one marked
/// everything again.
fn a_collection_that_deletes_nothing_is_not_repeated(engine: Engine) {
    let (sim, fs) = with_a_dropped_tree(engine);
    let sealed = || sim.device.files().iter().filter(|(name, _)| is_sealed(name)).count();
    fs.sync().expect("durable");
    let refused = Fault::io(FaultOn::Only(Op::Remove), 0).below("data/sealed").forever();
    sim.device.inject(refused);
    for _ in 0..2000 {
        fs.background_step(64).map(drop).unwrap_or_default();
    }
    assert!(!fs.collection_is_due(Duration::MAX), "the cleaner has what is left");
    assert_eq!(live_pages(&fs), 0);
    sim.device.clear_faults();
    sim.clock.advance(Duration::from_secs(120));
    idle(&fs);
    assert!(sealed() <= 1, "{} segments are left", sealed());
    fs.close().expect("it closes");
}

fn is_sealed(path: &str) -> bool {
    path.starts_with("data/sealed/")
}

/// Makes a file of this many times 64 KiB, and nothing else of it.
fn write_file(fs: &Fs, name: &str, pieces: std::ops::Range<u64>) {
    let (root, new) = (Caller::root(), NewNode { kind: Kind::File, mode: 0o644, rdev: 0 });
    let found = fs.lookup(&root, NodeId::ROOT, name.as_bytes());
    let node = match found {
        Ok(entry) => entry.node,
        Err(_) => fs.mknod(&root, NodeId::ROOT, name.as_bytes(), &new).expect("made").node,
    };
    for piece in pieces {
        fs.write(&root, node, piece << 16, &vec![piece as u8; 1 << 16]).expect("written");
    }
    fs.forget(node, 1);
}

/// Regression: a failure to free space was returned by the step that removes files, which then
/// removed a few in each second.
#[test]
fn files_are_removed_while_a_segment_cannot_be_deleted() {
    let (sim, root) = (sim_env(1), Caller::root());
    Fs::format(&sim.env(), &FormatOptions::default()).expect("an empty disk");
    let mut options = OpenOptions { index: None, ..OpenOptions::default() };
    options.data.segment_pages = 64;
    let fs = Fs::open(sim.env(), &options).expect("it opens");
    write_file(&fs, "large", 0..16);
    for file in 0..200 {
        write_file(&fs, &format!("{file}"), 0..1);
    }
    idle(&fs);
    let refused = Fault::io(FaultOn::Only(Op::Remove), 0).below("data/sealed").forever();
    sim.device.inject(refused);
    fs.unlink(&root, NodeId::ROOT, b"large").expect("it goes");
    for _ in 0..100 {
        sim.clock.advance(Duration::from_secs(10));
        fs.background_step(64).map(drop).unwrap_or_default();
    }
    for file in 0..200 {
        fs.unlink(&root, NodeId::ROOT, format!("{file}").as_bytes()).expect("it goes");
    }
    while fs.queue.has_new_orphans() {
        // Each of them may fail to delete a segment.
        sim.clock.advance(Duration::from_secs(120));
        let done = fs.background_step(4).expect("files are removed");
        assert!(done.more && done.done > 0);
    }
    assert!(sim.device.faults_left(), "no segment was deleted");
}
