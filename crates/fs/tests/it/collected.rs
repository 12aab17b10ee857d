//! A collection that is due is not lost with the process that requested it.

use std::sync::Arc;
use std::time::Duration;

use format::{key, usage};
use fs::{Engine, FileSystem, FormatOptions, Fs, NewNode, OpenOptions};
use inode::{Caller, Kind, NodeId};
use testing::{SimEnv, sim_env};

on_each_engine!(a_due_collection_outlives_the_process, the_end_of_a_collection_is_remembered);

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
