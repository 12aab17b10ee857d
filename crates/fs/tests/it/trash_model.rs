//! Trash against the model, on both engines: a user who does not look into it sees the same as
//! without it. With the power cut at every write, removed entries are there or in the trash.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::Timestamp;
use fs::{Engine, FileSystem, Fs, NewNode, RestoreOptions};
use inode::{Caller, FsError, Kind, NodeId, SetAttr};
use store::Durability;
use testing::model::{Dump, Effect, FsModel, Generator, Op, Stat, Subject, Target, Verdict};
use testing::{CrashPolicy, SimDevice};

use crate::check::assert_clean;
use crate::script::{SNAPSHOTS, options, scale};
use crate::subject::{Base, FsSubject};
use crate::trash::listed;

const START: i64 = 1_700_000_000_000_000_000;
const KEEP: u64 = 86_400;

/// A name in the trash is a name of its file: how many there are is not compared, but of
/// directories.
fn count_as(right: &Stat, seen: &mut Stat) {
    if seen.kind != Kind::Directory {
        seen.nlink = right.nlink;
    }
}

fn compare(model: &mut FsModel, subject: &mut FsSubject, place: &str) {
    let right = Dump::collect(model, SNAPSHOTS);
    let mut seen = Dump::collect(subject, SNAPSHOTS);
    for (path, node) in &mut seen.nodes {
        if let Some(other) = right.nodes.get(path) {
            count_as(&other.stat, &mut node.stat);
        }
    }
    let differences = right.differences(&seen);
    assert!(differences.is_empty(), "{place}:\n{}", differences.join("\n"));
}

/// A volume with a trash; paths start in a directory beside it, which everybody may write.
fn start(device: &SimDevice, engine: Engine) -> (FsSubject, FsModel) {
    let base = Base::Engine(engine);
    let mut subject = FsSubject::format(device, &options(Durability::Async), &base);
    let root = Caller::root();
    let fs = subject.fs();
    fs.mkdir(&root, NodeId::ROOT, b"m", 0o755).expect("there is space");
    fs.trash_set(&root, NodeId::ROOT, Some(KEEP)).expect("a trash");
    subject.start_in(vec![b"m".to_vec()]);
    let mut model = FsModel::new(Timestamp(START), SNAPSHOTS);
    match subject.run(Timestamp(START), &root, &Op::Stat { target: Target::Path(Vec::new()) }) {
        Ok(Effect::Stat(stat)) => model.set_root(&Stat { nlink_slack: 0, ..stat }),
        other => panic!("stat of the root answers {other:?}"),
    }
    (subject, model)
}

#[expect(clippy::print_stdout, reason = "a failure is found again by its seed")]
fn agree(engine: Engine, seeds: u64) {
    let mut kept = 0;
    for seed in 0..seeds {
        println!("seed {seed}");
        let device = SimDevice::new(seed);
        let (mut subject, mut model) = start(&device, engine);
        let mut generator = Generator::plain(seed);
        let mut now = START;
        for step in 0..300 {
            let place = format!("seed {seed}, step {step}");
            now += 1_000_000_007 * if step % 50 == 0 { 1000 } else { 1 };
            let (caller, op) = generator.next(&model);
            let right = model.apply(Timestamp(now), &caller, &op);
            let mut seen = subject.run(Timestamp(now), &caller, &op);
            if let (Verdict::Ok(Effect::Stat(right)), Ok(Effect::Stat(seen))) = (&right, &mut seen)
            {
                count_as(right, seen);
            }
            assert!(right.admits(&seen), "{place}: {op:?}: {seen:?} not {right:?}");
            if step % 60 == 0 {
                subject.background(50).expect("background work");
                compare(&mut model, &mut subject, &place);
            }
        }
        let place = format!("seed {seed}");
        compare(&mut model, &mut subject, &place);
        kept += listed(subject.fs(), NodeId::ROOT).len();
        subject.fs().close().expect("it closes");
        drop(subject);
        assert_clean(&device, &place);
    }
    assert!(kept > 20 * seeds as usize / 8, "hardly anything was kept: {kept}");
}

#[test]
fn the_trash_is_invisible_to_operations() {
    agree(Engine::Btree, scale(16, 300));
}

#[test]
fn the_trash_is_invisible_to_operations_on_the_log_structured_engine() {
    agree(Engine::Lsm, scale(16, 300));
}

/// Files with contents that identify them, of two sizes.
fn plant(fs: &Fs, count: usize) {
    let root = Caller::root();
    let dir = fs.mkdir(&root, NodeId::ROOT, b"d", 0o755).expect("there is space").node;
    for n in 0..count {
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let file = fs.mknod(&root, dir, &[b'a' + n as u8], &new).expect("there is space").node;
        let bytes = vec![n as u8; if n % 2 == 0 { 10 } else { 9000 }];
        fs.write(&root, file, 0, &bytes).expect("there is space");
        fs.forget(file, 1);
    }
    fs.forget(dir, 1);
}

/// Every file is in its place, or comes back out of the trash, with its contents.
fn check_kept(disk: &SimDevice, engine: Engine, count: usize, place: &str) {
    let base = Base::Engine(engine);
    let subject = FsSubject::open(disk, &options(Durability::Async), &base);
    let subject = subject.unwrap_or_else(|error| panic!("{place}: {error}"));
    let (fs, root) = (subject.fs(), Caller::root());
    for n in 0..count {
        let path = [b"d".to_vec(), vec![b'a' + n as u8]];
        let found = fs.resolve(&root, &[&b"/d/"[..], &path[1]].concat(), fs::Follow::No);
        let entry = match found {
            Ok(entry) => entry,
            Err(FsError::NotFound) => {
                let options = RestoreOptions::default();
                fs.restore(&root, (NodeId::ROOT, &path), None, &options)
                    .unwrap_or_else(|error| panic!("{place}: file {n} is lost: {error}"));
                fs.resolve(&root, &[&b"/d/"[..], &path[1]].concat(), fs::Follow::No)
                    .expect("it is back")
            }
            Err(error) => panic!("{place}: {error}"),
        };
        let mut buffer = vec![0; 10_000];
        let length = fs.read(&root, entry.node, 0, &mut buffer).expect("a file");
        let size = if n % 2 == 0 { 10 } else { 9000 };
        assert_eq!(buffer[..length], vec![n as u8; size], "{place}: file {n}");
        fs.forget(entry.node, 1);
    }
    subject.background(1000).unwrap_or_else(|error| panic!("{place}: {error}"));
    fs.close().unwrap_or_else(|error| panic!("{place}: {error}"));
    drop(subject);
    assert_clean(disk, place);
}

#[expect(clippy::print_stdout, reason = "prints how much was tried")]
fn crash(engine: Engine, seeds: u64) {
    let points = Arc::new(AtomicU64::new(0));
    for seed in 0..seeds {
        const FILES: usize = 8;
        let device = SimDevice::new(seed);
        let base = Base::Engine(engine);
        let subject = FsSubject::format(&device, &options(Durability::Async), &base);
        let (fs, root) = (subject.fs(), Caller::root());
        plant(fs, FILES);
        fs.trash_set(&root, NodeId::ROOT, Some(KEEP)).expect("a trash");
        fs.sync().expect("it is written");
        let counted = Arc::clone(&points);
        device.watch(move |disk, op| {
            counted.fetch_add(1, Ordering::SeqCst);
            for policy in CrashPolicy::ALL {
                let place = format!("seed {seed}, before operation {op}, {policy:?}");
                check_kept(&disk.after_crash(policy, seed + op), engine, FILES, &place);
            }
        });
        let mut random = fastrand::Rng::with_seed(seed);
        let dir = fs.lookup(&root, NodeId::ROOT, b"d").expect("it is there").node;
        let mut left: Vec<u8> = (0..FILES as u8).map(|n| b'a' + n).collect();
        random.shuffle(&mut left);
        for (step, name) in left.iter().enumerate() {
            fs.unlink(&root, dir, &[*name]).expect("it goes");
            if step == 3 {
                let options = RestoreOptions::default();
                let path = [vec![*name]];
                fs.restore(&root, (dir, &path), None, &options).expect("it was kept");
                fs.unlink(&root, dir, &[*name]).expect("it goes");
            }
            if random.bool() {
                fs.sync().expect("it is written");
            }
            subject.background(random.u64(0..4)).expect("background work");
        }
        fs.rmdir(&root, NodeId::ROOT, b"d").expect("it is empty");
        fs.sync().expect("it is written");
        let options = RestoreOptions::default();
        fs.restore(&root, (NodeId::ROOT, &[b"d".to_vec()]), None, &options).expect("it was kept");
        fs.rmr(&root, NodeId::ROOT, b"d").expect("it goes");
        fs.sync().expect("it is written");
        device.unwatch();
    }
    let points = points.load(Ordering::SeqCst);
    println!("{points} crash points, {} ways each", CrashPolicy::ALL.len());
    assert!(points > 20 * seeds, "the script is too short to prove anything: {points}");
}

#[test]
fn a_crash_at_every_write_and_sync_loses_nothing_that_the_trash_keeps() {
    crash(Engine::Btree, scale(3, 100));
}

#[test]
fn a_crash_on_the_log_structured_engine_loses_nothing_that_the_trash_keeps() {
    crash(Engine::Lsm, scale(3, 100));
}

/// Creates and removes large files on a small disk, and then fills it with one. Returns how many of
/// the removed ones were kept last, and how large the one became.
fn fill(engine: Engine, keep: Option<u64>) -> (usize, u64) {
    let device = SimDevice::new(1);
    let mut options = options(Durability::Async);
    options.index = None;
    let subject = FsSubject::format(&device, &options, &Base::Engine(engine));
    let (fs, root) = (subject.fs(), Caller::root());
    if keep.is_some() {
        fs.trash_set(&root, NodeId::ROOT, keep).expect("a trash");
    }
    subject.background(1000).expect("background work");
    device.set_capacity(Some(device.used_bytes() + (24 << 20)));
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let bytes = vec![7; 1 << 20];
    for n in 0..60 {
        let file = fs.mknod(&root, NodeId::ROOT, b"f", &new);
        let file = file.unwrap_or_else(|error| panic!("file {n}: {error}")).node;
        let written = fs.write(&root, file, 0, &bytes);
        written.unwrap_or_else(|error| panic!("contents {n}: {error}"));
        fs.forget(file, 1);
        fs.unlink(&root, NodeId::ROOT, b"f").unwrap_or_else(|error| panic!("name {n}: {error}"));
        if keep.is_none() {
            subject.background(1000).expect("background work");
            fs.sync().expect("it is written");
            subject.background(1000).expect("background work");
        }
    }
    let kept = if keep.is_some() { listed(fs, NodeId::ROOT).len() } else { 0 };
    let file = fs.mknod(&root, NodeId::ROOT, b"last", &new).expect("there is space").node;
    let mut at = 0;
    let error = loop {
        match fs.write(&root, file, at, &bytes) {
            Ok(()) => at += 1 << 20,
            Err(error) => break error,
        }
        assert!(at < 64 << 20, "64 MiB fit into 24");
    };
    assert!(matches!(error, FsError::NoSpace), "{error}");
    if keep.is_some() {
        assert_eq!(listed(fs, NodeId::ROOT).len(), 0, "it was refused for the trash");
    }
    let size = SetAttr { size: Some(0), ..SetAttr::default() };
    fs.setattr(&root, file, &size).expect("there is space for less");
    (kept, at)
}

/// No write and no removal is refused while there is anything in the trash, and its contents take
/// no space from the rest.
#[expect(clippy::print_stdout, reason = "prints how much there was space for")]
fn full(engine: Engine) {
    let (kept, with) = fill(engine, Some(KEEP));
    let (_, without) = fill(engine, None);
    println!("{kept} files kept; {with} bytes after that, {without} without a trash");
    assert!(kept > 2 && kept < 30, "{kept} of 60 MiB are in the trash of 24");
    assert!(with + (2 << 20) >= without, "{with} bytes of {without} are not the trash's");
}

#[test]
fn the_disk_is_not_full_while_the_trash_holds_anything() {
    full(Engine::Btree);
}

#[test]
fn the_disk_is_not_full_while_the_trash_holds_anything_on_the_log_structured_engine() {
    full(Engine::Lsm);
}
