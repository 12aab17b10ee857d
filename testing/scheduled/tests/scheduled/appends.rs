//! Appends beside truncations and writes of the same file: each takes effect as a whole.

use std::sync::Arc;

use fs::{Engine, FormatOptions, Fs, OpenOptions};
use inode::{Caller, Kind, NodeId, SetAttr};
use testing::SimDevice;
use testing::sim::explore;
use vfs::{FileSystem, NewNode};

use crate::env;

/// The orders that a test tries, and how often one is tried again.
const ORDERS: u64 = 60;

/// What is in a file when two threads have changed it at the same time.
fn after(engine: Engine, seed: u64, change: fn(&Fs, NodeId)) -> Vec<u8> {
    let (env, root) = (env(&SimDevice::new(seed), seed), Caller::root());
    let format = FormatOptions { engine, ..FormatOptions::default() };
    Fs::format(&env, &format).unwrap();
    let options = OpenOptions { index: None, ..OpenOptions::default() };
    let fs: Arc<Fs> = Fs::open(env, &options).unwrap();
    let new = NewNode { kind: Kind::File, mode: 0o600, rdev: 0 };
    let file = fs.mknod(&root, NodeId::ROOT, b"file", &new).unwrap().node;
    fs.write(&root, file, 0, b"before").unwrap();
    device::scope(|scope| {
        scope.spawn(|| fs.append(&root, file, b"end").unwrap());
        scope.spawn(|| change(&fs, file));
    });
    let mut bytes = vec![0; 64];
    let length = fs.read(&root, file, 0, &mut bytes).unwrap();
    bytes.truncate(length);
    fs.forget(file, 1);
    fs.close().unwrap();
    bytes
}

fn run(change: fn(&Fs, NodeId), allowed: [&[u8]; 2]) {
    for engine in Engine::ALL {
        explore(0..testing::run::rounds(ORDERS, 100 * ORDERS), ORDERS, |seed| {
            let bytes = after(engine, seed, change);
            assert!(allowed.contains(&&bytes[..]), "{engine:?}: {}", bytes.escape_ascii());
        });
    }
}

#[test]
fn an_append_beside_a_truncation_leaves_no_hole() {
    let truncate = |fs: &Fs, file| {
        let changes = SetAttr { size: Some(2), ..SetAttr::default() };
        fs.setattr(&Caller::root(), file, &changes).unwrap();
    };
    run(truncate, [b"be", b"beend"]);
}

#[test]
fn an_append_beside_a_write_overwrites_nothing_of_it() {
    let write = |fs: &Fs, file| fs.write(&Caller::root(), file, 6, b"12345").unwrap();
    run(write, [b"before12345end", b"before12345"]);
}
