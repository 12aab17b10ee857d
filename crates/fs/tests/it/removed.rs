//! An inode that is no longer held is removed in steps of bounded size, however large it is.

use std::sync::Arc;

use fs::{Engine, FileSystem, FormatOptions, Fs, NewNode, OpenOptions};
use inode::{Caller, Kind, NodeId};
use testing::sim_env;

on_each_engine!(
    a_large_file_that_was_held_open_goes_in_steps,
    names_made_where_a_removed_directory_was_emptied_go_too,
);

/// Extents that one batch removes at most.
const BATCH: u64 = 2048;
/// Extents of the file.
const EXTENTS: u64 = 3 * BATCH + 100;

fn file(fs: &Fs, name: &str, extents: u64) -> NodeId {
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let root = Caller::root();
    let node = fs.mknod(&root, NodeId::ROOT, name.as_bytes(), &new).expect("there is space").node;
    for n in 0..extents {
        // With a hole behind each.
        fs.write(&root, node, n * 16_384, &[7; 5000]).expect("there is space");
    }
    node
}

fn settle(fs: &Fs) {
    while fs.background_step(64).expect("there is space").more {}
}

/// A file of many extents was one step, in which nothing else of the background was done: with
/// terabytes, for minutes.
fn a_large_file_that_was_held_open_goes_in_steps(engine: Engine) {
    let env = sim_env(1);
    Fs::format(&env.env(), &FormatOptions { engine, ..FormatOptions::default() })
        .expect("an empty disk");
    let options = OpenOptions { index: None, ..OpenOptions::default() };
    let fs: Arc<Fs> = Fs::open(env.env(), &options).expect("it was made just now");
    let root = Caller::root();
    let (large, small) = (file(&fs, "large", EXTENTS), file(&fs, "small", 2));
    fs.sync().expect("there is space");
    settle(&fs);
    for name in [&b"large"[..], b"small"] {
        fs.unlink(&root, NodeId::ROOT, name).expect("it goes");
    }
    settle(&fs);
    for node in [large, small] {
        fs.forget(node, 1);
    }
    let (mut steps, mut removed) = (0, 0);
    loop {
        let before = fs.status().expect("it is there").commits;
        let progress = fs.background_step(1).expect("there is space");
        let commits = fs.status().expect("it is there").commits - before;
        assert!(commits <= 1, "a step of {commits} batches");
        if !progress.more {
            break;
        }
        if commits == 1 {
            steps += 1;
            removed += progress.done;
            assert!(progress.done <= BATCH + 1, "a step of {} records", progress.done);
        }
    }
    assert!(steps > EXTENTS / BATCH, "{steps} steps");
    assert!(removed >= EXTENTS, "{removed} records");
    fs.close().expect("it is written");
    let mut proceed = |_, _| std::ops::ControlFlow::Continue(());
    let found = Fs::check_offline(&env.env(), &mut proceed).expect("it is there");
    assert!(found.is_clean(), "{}", crate::check::reported(&found));
    assert_eq!(found.extents, 0);
}

/// A directory is emptied in the order of its names. A process that works in one below may create
/// names that sort before those already removed.
fn names_made_where_a_removed_directory_was_emptied_go_too(engine: Engine) {
    const FILES: usize = 400;
    let env = sim_env(2);
    Fs::format(&env.env(), &FormatOptions { engine, ..FormatOptions::default() })
        .expect("an empty disk");
    let options = OpenOptions { index: None, ..OpenOptions::default() };
    let fs: Arc<Fs> = Fs::open(env.env(), &options).expect("it was made just now");
    let root = Caller::root();
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let make = |dir: NodeId, name: &str| {
        let node = fs.mknod(&root, dir, name.as_bytes(), &new).expect("there is space").node;
        fs.forget(node, 1);
    };
    let sub = |dir: NodeId, name: &str| {
        fs.mkdir(&root, dir, name.as_bytes(), 0o755).expect("there is space").node
    };
    let files = || fs.status().expect("it is there").files;
    let dir = sub(NodeId::ROOT, "dir");
    let held = sub(dir, "held");
    let names: Vec<String> = (0..FILES).map(|n| format!("f{n}")).collect();
    for name in &names {
        make(held, name);
    }
    for n in 0..100 {
        let empty = sub(held, &format!("d{n}"));
        fs.forget(empty, 1);
    }
    settle(&fs);
    let all = files();
    fs.rmr(&root, NodeId::ROOT, b"dir").expect("it goes");
    while files() + 100 > all {
        fs.background_step(32).expect("there is space");
    }
    assert!(files() > 100, "{} of {all} files are left", files());
    // As many as went, and more: some have places before those that are still there.
    let left = |name: &&String| fs.lookup(&root, held, name.as_bytes()).is_ok();
    let gone: Vec<&String> = names.iter().filter(|name| !left(name)).collect();
    assert!(gone.len() > 20, "{} names went", gone.len());
    for name in gone {
        make(held, name);
    }
    sub(held, "later");
    settle(&fs);
    fs.forget(dir, 1);
    fs.forget(held, 1);
    settle(&fs);
    fs.close().expect("it is written");
    let mut proceed = |_, _| std::ops::ControlFlow::Continue(());
    let found = Fs::check_offline(&env.env(), &mut proceed).expect("it is there");
    assert!(found.is_clean(), "{}", crate::check::reported(&found));
    assert_eq!((found.files, found.directories), (0, 1), "{found:?}");
}
