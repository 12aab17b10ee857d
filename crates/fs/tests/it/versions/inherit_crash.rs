//! Power is cut before every write and sync while subvolumes that a clone inherits change, move and
//! are removed. The clone has them as they were, and nothing is damaged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fs::{Engine, FileSystem, FormatOptions, Fs, NewNode, RenameMode};
use inode::{Caller, Kind, NodeId};
use store::Durability;
use testing::{CrashPolicy, SimDevice, SimEnv};

use super::{home, root};
use crate::script::options;
use crate::support::assert_whole;

on_each_engine!(a_crash_leaves_what_a_clone_inherits);

const NESTED: [&[u8]; 4] = [b"n0", b"n1", b"n2", b"n3"];

fn at(fs: &Fs, parent: NodeId, name: &[u8]) -> NodeId {
    let found = fs.lookup(&Caller::root(), parent, name);
    found.unwrap_or_else(|error| panic!("{}: {error}", name.escape_ascii())).node
}

fn file(fs: &Fs, parent: NodeId) -> NodeId {
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let made = fs.mknod(&root(), parent, b"f", &new).expect("space").node;
    fs.write(&root(), made, 0, b"before").expect("space");
    made
}

fn read(fs: &Fs, parent: NodeId) -> Vec<u8> {
    let mut buffer = [0; 16];
    let length = fs.read(&root(), at(fs, parent, b"f"), 0, &mut buffer).expect("a file");
    buffer[..length].to_vec()
}

/// Whether the clone is there, whole.
fn check_clone(fs: &Fs) -> bool {
    let Ok(copy) = fs.lookup(&root(), home(), b"c") else { return false };
    for name in NESTED {
        let nested = at(fs, copy.node, name);
        assert_eq!(read(fs, nested), b"before", "{}", name.escape_ascii());
        assert_eq!(read(fs, at(fs, nested, b"deep")), b"before", "{}", name.escape_ascii());
    }
    true
}

fn background(fs: &Fs) {
    while fs.background_step(10).expect("background work goes well").more {}
}

fn check(disk: &SimDevice, op: u64, is_durable: bool) {
    for (number, policy) in CrashPolicy::ALL.into_iter().enumerate() {
        let seed = op * 3 + number as u64;
        let env = SimEnv::on(disk.after_crash(policy, seed), seed).env();
        let fs = Fs::open(env, &options(Durability::Async)).expect("it opens");
        assert_whole(&fs);
        if op.is_multiple_of(2) {
            background(&fs);
            assert_whole(&fs);
        }
        assert!(check_clone(&fs) || !is_durable, "before operation {op}, {policy:?} {seed}");
        assert_whole(&fs);
        fs.close().expect("it closes");
    }
}

fn a_crash_leaves_what_a_clone_inherits(engine: Engine) {
    let device = SimDevice::new(5);
    let env = SimEnv::on(device.clone(), 5).env();
    let format = FormatOptions { engine, ..FormatOptions::default() };
    Fs::format(&env, &format).expect("an empty disk");
    let fs = Fs::open(env, &options(Durability::Async)).expect("it was made just now");
    let dir = fs.mkdir(&root(), home(), b"d", 0o755).expect("space").node;
    let nested = NESTED.map(|name| {
        let nested = fs.subvolume_create(&root(), dir, name, 0o755).expect("space").node;
        let deep = fs.subvolume_create(&root(), nested, b"deep", 0o755).expect("space").node;
        (file(&fs, nested), file(&fs, deep), deep)
    });
    fs.sync_all().expect("a sync");
    let (durable, points) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (seen, counted) = (Arc::clone(&durable), Arc::clone(&points));
    device.watch(move |disk, op| {
        counted.fetch_add(1, Ordering::SeqCst);
        check(disk, op, seen.load(Ordering::SeqCst));
    });
    fs.clone_dir(&root(), dir, home(), b"c").expect("space");
    fs.sync_all().expect("a sync");
    durable.store(true, Ordering::SeqCst);
    // The deepest first; beside it; a move; a removal of one that has another in it.
    fs.write(&root(), nested[0].1, 0, b"after.").expect("space");
    fs.sync_all().expect("a sync");
    fs.write(&root(), nested[0].0, 0, b"after.").expect("space");
    fs.unlink(&root(), nested[1].2, b"f").expect("a file");
    fs.sync_all().expect("a sync");
    fs.rename(&root(), (dir, b"n2"), (home(), b"moved"), RenameMode::Replace).expect("a move");
    fs.sync_all().expect("a sync");
    fs.rmr(&root(), home(), b"d").expect("a removal");
    fs.sync_all().expect("a sync");
    background(&fs);
    fs.sync_all().expect("a sync");
    device.unwatch();
    assert!(check_clone(&fs));
    assert_whole(&fs);
    let points = points.load(Ordering::SeqCst);
    assert!(points > 10, "only {points} points");
}
