//! The first query after opening learns from the log what differs from a base. The changes are
//! scattered and of every kind, on both engines, with checkpoints between, after a clean end and
//! after a crash.

use std::collections::BTreeMap;
use std::time::Duration;

use device::Clock;
use fs::{Engine, FileSystem, Fs, NewNode, OpenOptions, RenameMode, SetXattr};
use inode::{Caller, Kind, NodeId, SetAttr};
use store::Durability;
use testing::{CrashPolicy, SimDevice};

use crate::script::{options, scale};
use crate::search::compare;
use crate::subject::{Base, FsSubject};

const DIRECTORIES: u64 = 12;
const FILES: u64 = 100;
const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };

/// Directories and the files in them, by name.
struct Namespace {
    directories: Vec<NodeId>,
    files: BTreeMap<(usize, String), NodeId>,
}

fn make(fs: &Fs) -> Namespace {
    let root = Caller::root();
    let mut made = Namespace { directories: Vec::new(), files: BTreeMap::new() };
    for number in 0..DIRECTORIES {
        let name = format!("d{number}");
        let directory = fs.mkdir(&root, NodeId::ROOT, name.as_bytes(), 0o755).expect("space").node;
        for file in 0..FILES {
            made.add(fs, directory, format!("f{file}"));
        }
        made.directories.push(directory);
    }
    made
}

impl Namespace {
    fn add(&mut self, fs: &Fs, directory: NodeId, name: String) {
        let made = fs.mknod(&Caller::root(), directory, name.as_bytes(), &FILE).expect("space");
        let at = self.directories.iter().position(|other| *other == directory);
        self.files.insert((at.unwrap_or(self.directories.len()), name), made.node);
    }

    /// A change of any kind, anywhere.
    fn change(&mut self, fs: &Fs, random: &mut fastrand::Rng, number: u64) {
        let root = Caller::root();
        let at = random.usize(..self.files.len());
        let (&(directory, ref name), &node) = self.files.iter().nth(at).expect("a file");
        let (parent, name) = (self.directories[directory], name.clone());
        let other = random.usize(..self.directories.len());
        let into = self.directories[other];
        let new = format!("n{number}");
        match random.u32(..100) {
            0..70 => {
                let mode = Some(random.u32(..0o1000));
                let change = SetAttr { mode, ..SetAttr::default() };
                fs.setattr(&root, node, &change).expect("a file");
            }
            70..75 => {
                fs.unlink(&root, parent, name.as_bytes()).expect("a name");
                self.files.remove(&(directory, name));
            }
            75..80 => {
                let (from, to) = ((parent, name.as_bytes()), (into, new.as_bytes()));
                fs.rename(&root, from, to, RenameMode::Replace).expect("a name");
                self.files.remove(&(directory, name));
                self.files.insert((other, new), node);
            }
            80..85 => {
                fs.link(&root, node, into, new.as_bytes()).expect("a file");
                self.files.insert((other, new), node);
            }
            85..90 => {
                let value = [random.u8(..); 8];
                fs.setxattr(&root, node, b"user.color", &value, SetXattr::Any).expect("a file");
            }
            90..95 => self.add(fs, into, new),
            95..97 => {
                let made = fs.mkdir(&root, into, new.as_bytes(), 0o711).expect("space").node;
                self.directories.push(made);
                self.add(fs, made, String::from("first"));
            }
            97..99 => {
                let made = fs.mkdir(&root, into, new.as_bytes(), 0o711).expect("space");
                fs.forget(made.node, 1);
                fs.rmdir(&root, into, new.as_bytes()).expect("it is empty");
            }
            _ => {
                let change = SetAttr { mode: Some(0o700), ..SetAttr::default() };
                fs.setattr(&root, into, &change).expect("a directory");
            }
        }
    }
}

fn logged(fs: &Fs) -> u64 {
    fs.index_stats().expect("it answers").expect("there is an index").logged
}

/// A volume with a base and changes since, of which the last are not checkpointed.
fn changed(device: &SimDevice, engine: Engine, seed: u64, options: &OpenOptions) -> FsSubject {
    let subject = FsSubject::format(device, options, &Base::Engine(engine));
    let fs = subject.fs();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut namespace = make(fs);
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    for number in 0..1800 {
        subject.clock().sleep(Duration::from_millis(1));
        namespace.change(fs, &mut random, number);
        if number == 900 {
            let moved = (NodeId::ROOT, &b"d3"[..]);
            let to = (namespace.directories[5], &b"moved"[..]);
            fs.rename(&Caller::root(), moved, to, RenameMode::Replace).expect("a directory");
        }
        if number % 2 == 0 {
            // The first segment is that of a volume of any size.
            let file = random.usize(..namespace.files.len());
            let node = *namespace.files.values().nth(file).expect("a file");
            let value = [number as u8; 10_000];
            let set = fs.setxattr(&Caller::root(), node, b"user.long", &value, SetXattr::Any);
            set.expect("space");
        }
        if number % 300 == 299 {
            // A checkpoint among other things, and no base: nothing is due before time passes.
            subject.background(20).expect("background work goes well");
        }
    }
    fs.sync_all().expect("it syncs");
    subject
}

/// An import of directories with files, some with several names, and changes of what came.
fn import(fs: &Fs) {
    let root = Caller::root();
    let top = fs.mkdir(&root, NodeId::ROOT, b"imported", 0o755).expect("space").node;
    let bulk = fs.bulk(&root, top, fs::BULK_MEMORY).expect("a directory");
    let mut count = 0;
    for number in 0..3 {
        let base = bulk.base(top).expect("a directory");
        let name = format!("i{number}");
        let directory = bulk.mkdir(base, name.as_bytes(), 0o755).expect("space");
        // Up to what one flush makes visible.
        let make = |file: u64| bulk.make(directory, format!("g{file}").as_bytes(), &FILE).ok();
        count += (0..2000).map_while(make).count();
        bulk.flush().expect("space");
    }
    drop(bulk);
    assert!(count > 2000, "{count}");
    let find = |parent, name: &str| fs.lookup(&root, parent, name.as_bytes()).expect("a name").node;
    let directories = ["i0", "i1", "i2"].map(|name| find(top, name));
    let second = find(directories[1], "g200");
    fs.link(&root, second, directories[0], b"second").expect("a file");
    fs.unlink(&root, directories[1], b"g7").expect("a file");
    let (from, to) = ((directories[2], &b"g8"[..]), (NodeId::ROOT, &b"out"[..]));
    fs.rename(&root, from, to, RenameMode::Replace).expect("a file");
    let mode = Some(0o640);
    fs.setattr(&root, second, &SetAttr { mode, ..SetAttr::default() }).expect("a file");
}

/// No base after the first, and a log that is truncated again and again.
pub(crate) fn quiet() -> OpenOptions {
    let mut options = options(Durability::Async);
    let index = options.index.as_mut().expect("an index");
    index.flush.rows_min = usize::MAX / 2;
    index.flush.interval = Duration::from_secs(1 << 20);
    options.prune_records = 4096;
    options
}

/// Four seeds, of which each engine has two in the short form. The engines together have all
/// policies of power cuts.
fn seeds(engine: Engine, first: u64) -> std::ops::Range<u64> {
    match engine {
        Engine::Btree => first..first + scale(2, 4),
        Engine::Lsm => first + scale(2, 0)..first + 4,
    }
}

#[test]
fn the_log_yields_the_difference_to_a_base() {
    for engine in [Engine::Btree, Engine::Lsm] {
        for seed in seeds(engine, 0) {
            let device = SimDevice::new(seed);
            let subject = changed(&device, engine, seed, &quiet());
            assert!(subject.fs().status().expect("it answers").checkpoints > 0);
            let crashed = device.after_crash(CrashPolicy::ALL[seed as usize % 3], seed);
            let again = FsSubject::open(&crashed, &quiet(), subject.base()).expect("it opens");
            let fs = again.fs();
            assert_eq!(logged(fs), 0);
            let place = format!("{engine:?}, seed {seed}");
            compare(fs, &mut fastrand::Rng::with_seed(seed), 30, &place);
            assert_eq!(logged(fs), 1, "{place}");
        }
    }
}

/// What an import brought as a run is read where it is; the trees are not compared as wholes.
#[test]
fn the_log_yields_the_difference_with_an_import_in_it() {
    for engine in [Engine::Btree, Engine::Lsm] {
        for seed in 40..42 {
            let device = SimDevice::new(seed);
            let subject = changed(&device, engine, seed, &quiet());
            let before = subject.fs().status().expect("it answers").ingest_bytes;
            import(subject.fs());
            subject.fs().sync_all().expect("it syncs");
            let ingested = subject.fs().status().expect("it answers").ingest_bytes;
            assert!(ingested > before, "{engine:?}: the import came as a run");
            let crashed = device.after_crash(CrashPolicy::ALL[seed as usize % 3], seed);
            let again = FsSubject::open(&crashed, &quiet(), subject.base()).expect("it opens");
            let place = format!("{engine:?}, seed {seed}");
            compare(again.fs(), &mut fastrand::Rng::with_seed(seed), 30, &place);
            assert_eq!(logged(again.fs()), 1, "{place}");
        }
    }
}

/// A base that replaces another learns what to write from the log up to where it was begun, not
/// from the trees.
#[test]
fn the_log_yields_the_clusters_that_a_base_writes() {
    for engine in [Engine::Btree, Engine::Lsm] {
        for seed in seeds(engine, 20) {
            let device = SimDevice::new(seed);
            let subject = changed(&device, engine, seed, &quiet());
            let crashed = device.after_crash(CrashPolicy::ALL[seed as usize % 3], seed);
            let again = FsSubject::open(&crashed, &quiet(), subject.base()).expect("it opens");
            for fs in [subject.fs(), again.fs()] {
                fs.index_flush(NodeId::ROOT).expect("a flush goes well");
                let place = format!("{engine:?}, seed {seed}");
                assert_eq!(logged(fs), 1, "{place}");
                compare(fs, &mut fastrand::Rng::with_seed(seed), 30, &place);
            }
        }
    }
}

#[test]
fn without_the_log_the_trees_yield_the_difference() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let device = SimDevice::new(9);
        let subject = changed(&device, engine, 9, &quiet());
        let crashed = device.after_crash(CrashPolicy::LoseAll, 9);
        // The first segments, which recovery does not need.
        let named = |(path, _): &(String, u64)| path.starts_with("log/0");
        let mut segments: Vec<_> = crashed.files().into_iter().filter(named).collect();
        segments.sort();
        assert!(segments.len() > 1, "{segments:?}");
        device::Device::remove(&crashed, &segments[0].0).expect("it goes");
        let again = FsSubject::open(&crashed, &quiet(), subject.base()).expect("it opens");
        compare(again.fs(), &mut fastrand::Rng::with_seed(9), 30, &format!("{engine:?}"));
        assert_eq!(logged(again.fs()), 0, "{engine:?}");
    }
}

/// The difference fits into its share of the memory, but not twice. It is sorted where it is, and
/// answers are the same.
#[test]
fn the_log_is_read_if_the_difference_fits_in_memory_once() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let seed = 6;
        let device = SimDevice::new(seed);
        let subject = changed(&device, engine, seed, &quiet());
        let crashed = device.after_crash(CrashPolicy::LoseAll, seed);
        let query = |cache_bytes: usize| {
            let mut options = quiet();
            options.index.as_mut().expect("an index").cache_bytes = cache_bytes;
            let again = FsSubject::open(&crashed.copy(), &options, subject.base());
            let again = again.expect("it opens");
            let place = format!("{engine:?}, {cache_bytes} bytes");
            compare(again.fs(), &mut fastrand::Rng::with_seed(seed), 30, &place);
            again.fs().index_stats().expect("it answers").expect("there is an index")
        };
        let ample = query(256 << 20);
        assert_eq!(ample.logged, 1, "{engine:?}: {ample:?}");
        // Lists of places count three times, and there are many among so few rows.
        let shares = (20..60).step_by(2).map(|tenths| ample.delta_bytes as usize * tenths / 10);
        let tight = shares.map(|share| query(share * 2)).find(|stats| stats.logged == 1);
        assert!(tight.is_some(), "{engine:?}: {ample:?}");
    }
}
