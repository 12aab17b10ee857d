//! Several threads at the same few names: no operation waits forever, nothing is lost, and all
//! counts are right at the end.

use std::sync::atomic::{AtomicU64, Ordering};

use fs::{Engine, FileSystem, FsResult, RenameMode, RestoreOptions, WalkControl};
use inode::{Caller, FsError, NodeId};
use store::Store;

use crate::support::{ROOT, Volume, volume_on, weak_volume};

on_each_engine!(threads_that_meet_on_an_engine_leave_a_whole_volume);

const NAMES: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];

fn pick<'a, T>(random: &mut fastrand::Rng, from: &'a [T]) -> &'a T {
    &from[random.usize(..from.len())]
}

/// One random operation; the answer may be any error that POSIX knows, but not damage.
fn step(v: &Volume<dyn Store>, random: &mut fastrand::Rng, dirs: &[NodeId]) -> FsResult<()> {
    let root = Caller::root();
    let dir = *pick(random, dirs);
    let other = *pick(random, dirs);
    let (name, to) = (*pick(random, &NAMES), *pick(random, &NAMES));
    match random.u32(..12) {
        0 | 1 => {
            let new = fs::NewNode { kind: inode::Kind::File, mode: 0o644, rdev: 0 };
            let made = v.fs.mknod(&root, dir, name, &new)?;
            let bytes = vec![1; random.usize(..9000)];
            let written = v.fs.write(&root, made.node, 0, &bytes);
            v.fs.forget(made.node, 1);
            written
        }
        2 => v.fs.mkdir(&root, dir, name, 0o755).map(|made| v.fs.forget(made.node, 1)),
        3 | 4 => v.fs.unlink(&root, dir, name),
        5 => v.fs.rmdir(&root, dir, name),
        6 | 7 => {
            let modes = [
                RenameMode::Replace,
                RenameMode::NoReplace,
                RenameMode::Exchange,
                RenameMode::Whiteout,
            ];
            v.fs.rename(&root, (dir, name), (other, to), *pick(random, &modes))
        }
        8 => {
            let found = v.fs.lookup(&root, dir, name)?;
            let linked = v.fs.link(&root, found.node, other, to);
            v.fs.forget(found.node, 1);
            linked.map(|entry| v.fs.forget(entry.node, 1))
        }
        9 => {
            let mut held = Vec::new();
            let listed = v.fs.readdirplus(&root, dir, 0, &mut |entry| {
                held.push(entry.node);
                WalkControl::Continue
            });
            for node in held {
                // It may be gone since, but what is there is whole.
                match v.fs.getattr(&root, node) {
                    Ok(_) | Err(FsError::Stale) => {}
                    Err(error) => panic!("{error}"),
                }
                v.fs.forget(node, 1);
            }
            listed
        }
        10 => {
            let found = v.fs.lookup(&root, dir, name)?;
            let mut buffer = [0; 9000];
            let read = v.fs.read(&root, found.node, 0, &mut buffer);
            v.fs.forget(found.node, 1);
            assert!(!matches!(read, Err(FsError::Stale)), "a held file does not vanish");
            read.map(|length| assert!(buffer[..length].iter().all(|&byte| byte == 1)))
        }
        _ => v.fs.background_step(20).map(|_| ()),
    }
}

/// Removes everything below a directory.
fn clear(v: &Volume<dyn Store>, dir: NodeId) {
    let mut entries = Vec::new();
    v.fs.readdir(&Caller::root(), dir, 0, &mut |entry| {
        entries.push((entry.name.to_vec(), entry.node, entry.kind));
        WalkControl::Continue
    })
    .expect("a directory");
    for (name, node, kind) in entries {
        if kind == inode::Kind::Directory {
            clear(v, node);
            v.fs.rmdir(&Caller::root(), dir, &name).expect("empty now");
        } else {
            v.fs.unlink(&Caller::root(), dir, &name).expect("a name");
        }
    }
}

/// With a trash, some of what threads do is to restore, to remove trees and to empty it.
fn step_with_trash(
    v: &Volume<dyn Store>,
    random: &mut fastrand::Rng,
    dirs: &[NodeId],
) -> FsResult<()> {
    let root = Caller::root();
    let (dir, name) = (*pick(random, dirs), *pick(random, &NAMES));
    match random.u32(..40) {
        0..3 => {
            let options = RestoreOptions::default();
            v.fs.restore(&root, (dir, &[name.to_vec()]), None, &options).map(drop)
        }
        3 => v.fs.rmr(&root, dir, name).map(drop),
        4 if random.u32(..8) == 0 => v.fs.trash_empty(&root, dir).map(drop),
        _ => step(v, random, dirs),
    }
}

type Step = fn(&Volume<dyn Store>, &mut fastrand::Rng, &[NodeId]) -> FsResult<()>;

fn meet(v: &Volume<dyn Store>, seed: u64, keep: Option<u64>, step: Step) {
    let dirs = [ROOT, v.dir(ROOT, "x").node, v.dir(ROOT, "y").node];
    if keep.is_some() {
        v.fs.trash_set(&Caller::root(), ROOT, keep).expect("a trash");
    }
    let done = AtomicU64::new(0);
    device::scope(|scope| {
        for thread in 0..4 {
            let (dirs, done) = (&dirs, &done);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed * 100 + thread);
                for _ in 0..3000 {
                    match step(v, &mut random, dirs) {
                        Ok(()) => _ = done.fetch_add(1, Ordering::Relaxed),
                        Err(FsError::Io(what)) => panic!("{what}"),
                        Err(_) => {}
                    }
                }
            });
        }
    });
    assert!(done.load(Ordering::Relaxed) > 1000, "most succeed");
    for dir in dirs {
        v.check_counts(dir);
    }
    if keep.is_some() {
        v.fs.trash_set(&Caller::root(), ROOT, None).expect("no trash");
    }
    clear(v, ROOT);
    for dir in &dirs[1..] {
        v.fs.forget(*dir, 1);
    }
    while v.fs.background_step(100).expect("a step").more {}
    assert_eq!(v.fs.status().expect("counters").nodes, 0, "everything was let go of");
    let left = testing::entries(&*v.store, store::TreeId(32));
    assert_eq!(left.len(), 1, "seed {seed}: only the root is left: {left:x?}");
    let status = v.fs.status().expect("counters");
    assert_eq!((status.files, status.bytes), (1, 0), "seed {seed}");
}

fn in_memory(bits: u32) -> Volume<dyn Store> {
    let Volume { fs, env, store, header } = weak_volume(bits);
    Volume { fs, env, store, header }
}

#[test]
fn concurrent_threads_leave_a_whole_volume() {
    for (seed, bits) in [(1, 2), (2, 55), (3, 1)] {
        meet(&in_memory(bits), seed, None, step);
    }
}

#[test]
fn concurrent_threads_over_a_trash_leave_a_whole_volume() {
    for (seed, bits) in [(1, 55), (2, 3)] {
        meet(&in_memory(bits), seed, Some(3600), step_with_trash);
    }
}

fn threads_that_meet_on_an_engine_leave_a_whole_volume(engine: Engine) {
    meet(&volume_on(engine, 2), 4, None, step);
    meet(&volume_on(engine, 3), 5, Some(3600), step_with_trash);
}
