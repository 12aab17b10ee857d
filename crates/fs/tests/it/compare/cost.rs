//! What a comparison costs, in reads of the disk: as much as differs, whatever else there is.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use fs::{Engine, FileSystem, NewNode, OpenOptions};
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

/// Reads of the disk that a comparison makes with cold caches.
fn reads(engine: Engine, files: usize) -> u64 {
    let device = SimDevice::new(1);
    let options = OpenOptions {
        durability: Durability::Async,
        cache_bytes: 64 << 20,
        index: None,
        ..OpenOptions::default()
    };
    let mut subject = FsSubject::format(&device, &options, &Base::Engine(engine));
    let root = Caller::root();
    let fs = subject.fs();
    for directory in 0..files / WIDTH {
        let above = fs.mkdir(&root, NodeId::ROOT, format!("{directory}").as_bytes(), 0o755);
        let above = above.unwrap().node;
        for file in 0..WIDTH {
            let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
            let made = fs.mknod(&root, above, format!("{file}").as_bytes(), &new).unwrap();
            fs.forget(made.node, 1);
        }
    }
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
    let fs: &fs::Volume = subject.fs();
    let nodes = (at(fs, "/.snapshots/s"), at(fs, "/"));
    let before = device.counts().of(Op::Read);
    let cancel = AtomicBool::new(false);
    let compared = fs.compare(&root, nodes, &cancel, &mut |_| ControlFlow::Continue(()));
    assert_eq!(compared.unwrap().changes, CHANGES as u64);
    device.counts().of(Op::Read) - before
}

fn a_comparison_reads_what_differs(engine: Engine) {
    let few = reads(engine, 10_000);
    let many = reads(engine, scale(60_000, 200_000) as usize);
    println!("{few} reads with 10,000 files, {many} with many more");
    assert!(few > 0, "the caches were not cold");
    assert!(many <= few + few / 4 + 16, "{many} reads, and {few} with a few files");
}

on_each_engine! {
    a_comparison_reads_what_differs,
}
