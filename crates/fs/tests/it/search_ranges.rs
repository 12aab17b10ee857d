//! What the log records, and does not record, of directories that were removed with all contents.
//! After a crash, the log answers the first query across removed directories, snapshots, roll-backs
//! and clones; trees answer where those were replaced. Answers equal a walk, by seeds, on both
//! engines.

use std::sync::Arc;

use btree::BtreeStore;
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Counter, Parsed, Part};
use format::subvolume_record::SubvolumeRecord;
use format::volume::{EngineKind, VolumeHeader};
use fs::{Engine, FileSystem, Fs, NewNode, OpenOptions, RenameMode, SetXattr};
use inode::{Caller, FsError, Kind, NodeId, SetAttr};
use lsm::LsmStore;
use search::index::IndexStats;
use store::{Batch, KeyRange, Store, TreeId};
use testing::{CrashPolicy, SimDevice, SimEnv};

use crate::search::compare;
use crate::search_logged::quiet;
use crate::subject::{Base, FsSubject};

on_each_engine!(
    the_log_is_believed_where_directories_and_copies_come_and_go,
    directories_that_went_at_once_are_compared_and_the_rest_is_not,
    a_range_that_is_not_of_directories_ends_the_log,
    the_log_ends_with_the_tree_that_it_is_of,
);

const VOLUME: TreeId = TreeId(key::VOLUME_TREE);
const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };

fn stats(fs: &Fs) -> IndexStats {
    fs.index_stats().expect("it answers").expect("there is an index")
}

/// Goes to a name in a directory, does something there, and lets go of it.
fn at<T>(
    fs: &Fs,
    parent: NodeId,
    name: &str,
    act: impl FnOnce(NodeId) -> Result<T, FsError>,
) -> Result<T, FsError> {
    let node = fs.lookup(&Caller::root(), parent, name.as_bytes())?.node;
    let done = act(node);
    fs.forget(node, 1);
    done
}

fn make_file(fs: &Fs, parent: NodeId, name: &str) -> Result<(), FsError> {
    let made = fs.mknod(&Caller::root(), parent, name.as_bytes(), &FILE)?;
    fs.forget(made.node, 1);
    Ok(())
}

fn make_directory(fs: &Fs, parent: NodeId, name: &str, files: u64) -> Result<(), FsError> {
    let made = fs.mkdir(&Caller::root(), parent, name.as_bytes(), 0o755)?.node;
    for file in 0..files {
        make_file(fs, made, &format!("f{file}"))?;
    }
    fs.forget(made, 1);
    Ok(())
}

fn name(random: &mut fastrand::Rng) -> String {
    let letter = if random.u8(..4) == 0 { 'n' } else { 'f' };
    format!("{letter}{}", random.u32(..40))
}

/// A change in one or two directories at the root; what is not there is not changed.
fn change(fs: &Fs, random: &mut fastrand::Rng) -> Result<(), FsError> {
    let root = Caller::root();
    let [one, two] = [(); 2].map(|()| format!("d{}", random.u32(..12)));
    let [old, new] = [(); 2].map(|()| name(random));
    at(fs, NodeId::ROOT, &one, |one| {
        at(fs, NodeId::ROOT, &two, |two| match random.u32(..100) {
            0..50 => at(fs, one, &old, |file| {
                let mode = Some(random.u32(..0o1000));
                fs.setattr(&root, file, &SetAttr { mode, ..SetAttr::default() }).map(|_| ())
            }),
            50..60 => fs.unlink(&root, one, old.as_bytes()),
            60..70 => {
                let (from, to) = ((one, old.as_bytes()), (two, new.as_bytes()));
                fs.rename(&root, from, to, RenameMode::Replace)
            }
            70..75 => at(fs, one, &old, |file| {
                let linked = fs.link(&root, file, two, new.as_bytes())?;
                fs.forget(linked.node, 1);
                Ok(())
            }),
            75..80 => at(fs, one, &old, |file| {
                fs.setxattr(&root, file, b"user.color", b"red", SetXattr::Any)
            }),
            80..84 => at(fs, one, &old, |file| fs.write(&root, file, 0, &[7; 9000])),
            84..93 => make_file(fs, one, &new),
            93..97 => make_directory(fs, one, &format!("m{}", random.u32(..5)), 4),
            97 => {
                let mode = Some(0o700 + random.u32(..0o100));
                fs.setattr(&root, one, &SetAttr { mode, ..SetAttr::default() }).map(|_| ())
            }
            98 => {
                let [old, new] = [(); 2].map(|()| format!("m{}", random.u32(..5)));
                let (from, to) = ((one, old.as_bytes()), (two, new.as_bytes()));
                fs.rename(&root, from, to, RenameMode::NoReplace)
            }
            _ => fs.rmdir(&root, one, format!("m{}", random.u32(..5)).as_bytes()),
        })
    })
}

/// Takes a directory away with all that is in it, or rolls one back. Or makes a copy of one, or
/// takes a copy away.
fn replace(fs: &Fs, random: &mut fastrand::Rng, round: u32) -> Result<(), FsError> {
    let root = Caller::root();
    let directory = format!("d{}", random.u32(..12));
    match round % 4 {
        0 => {
            fs.rmr(&root, NodeId::ROOT, directory.as_bytes())?;
            make_directory(fs, NodeId::ROOT, &directory, 20)
        }
        1 => {
            let snapshot = |node| fs.snapshot_create(&root, node, b"before").map(|_| ());
            at(fs, NodeId::ROOT, &directory, snapshot)?;
            for _ in 0..40 {
                change(fs, random).unwrap_or_default();
            }
            at(fs, NodeId::ROOT, &directory, |node| {
                fs.rollback(&root, node, b"before")?;
                Ok(())
            })?;
            let drop = |node| fs.snapshot_delete(&root, node, b"before");
            at(fs, NodeId::ROOT, &directory, drop)
        }
        2 => at(fs, NodeId::ROOT, &directory, |node| {
            let copy = format!("copy{round}");
            fs.clone_dir(&root, node, NodeId::ROOT, copy.as_bytes()).map(|_| ())
        }),
        _ => {
            let copy = format!("copy{}", round - 1);
            fs.rmr(&root, NodeId::ROOT, copy.as_bytes()).map(|_| ())
        }
    }
}

/// A volume with a base of twelve directories and small changes since.
fn based(device: &SimDevice, engine: Engine, random: &mut fastrand::Rng) -> FsSubject {
    let subject = FsSubject::format(device, &open(), &Base::Engine(engine));
    let fs = subject.fs();
    for number in 0..12 {
        make_directory(fs, NodeId::ROOT, &format!("d{number}"), 30).expect("space");
    }
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    for _ in 0..200 {
        change(fs, random).unwrap_or_default();
    }
    subject
}

fn open() -> OpenOptions {
    let mut options = quiet();
    options.index.as_mut().expect("an index").rows_without_base = 1000;
    options.prune_records = 16;
    options
}

/// Opens what a crash left, and verifies that searches equal walks; returns what was used.
fn opened(crashed: &SimDevice, engine: Engine, seed: u64, place: &str) -> IndexStats {
    let again = FsSubject::open(crashed, &open(), &Base::Engine(engine)).expect("it opens");
    compare(again.fs(), &mut fastrand::Rng::with_seed(seed), 30, place);
    stats(again.fs())
}

fn the_log_is_believed_where_directories_and_copies_come_and_go(engine: Engine) {
    let mut merged = 0;
    for seed in 0..6 {
        let (device, mut random) = (SimDevice::new(seed), fastrand::Rng::with_seed(seed));
        let subject = based(&device, engine, &mut random);
        let fs = subject.fs();
        for round in 0..12 {
            replace(fs, &mut random, round).expect("all is there");
            for _ in 0..50 {
                change(fs, &mut random).unwrap_or_default();
            }
            // Now and then, what was removed is not all gone.
            let steps = [0, 3, 1000][random.usize(..3)];
            subject.background(steps).expect("background work goes well");
        }
        fs.sync_all().expect("it syncs");
        let policy = CrashPolicy::ALL[seed as usize % 3];
        let crashed = device.after_crash(policy, seed);
        let place = format!("{engine:?}, seed {seed}");
        let stats = opened(&crashed, engine, seed, &place);
        assert_eq!(stats.logged, 1, "{place}: {stats:?}");
        merged += stats.merged;
    }
    // In some directories, names came and went, and nothing else happened.
    assert!(merged > 0, "{engine:?}");
}

/// Changes the tree of the volume's root, past the file system.
fn raw(device: &SimDevice, plan: impl FnOnce(&dyn Store, TreeId, &mut Batch)) {
    let header = VolumeHeader::decode(&device.read_file(format::volume::FILE)).expect("a header");
    let (volume, log_key) = (header.volume_id, store::LogKey(header.hash_key));
    let log_segment_bytes = 256 << 10;
    let common = store::EngineOptions { volume, log_key, log_segment_bytes, ..Default::default() };
    let env = SimEnv::on(device.clone(), 1).env();
    let store: Arc<dyn Store> = match header.engine {
        EngineKind::Btree => {
            let options = btree::Options { common, ..btree::Options::default() };
            BtreeStore::open(&env, &options).expect("it opens")
        }
        EngineKind::Lsm => {
            let options = lsm::Options { common, ..lsm::Options::default() };
            LsmStore::open(&env, &options).expect("it opens")
        }
    };
    let get = |key: &[u8]| store.get(VOLUME, key).expect("it is read").expect("it is there");
    let root = get(&key::counter(Counter::Root));
    let root = u64::from_le_bytes(root[..8].try_into().expect("a number"));
    let record = get(&key::subvolume(root));
    let tree = TreeId(SubvolumeRecord::decode(&record).expect("a record").tree);
    let mut batch = Batch::new();
    plan(&*store, tree, &mut batch);
    store.commit(&batch).expect("space");
    store.close().expect("it closes");
}

type Records = Vec<(Vec<u8>, Vec<u8>)>;

fn records(store: &dyn Store, tree: TreeId, prefix: &[u8]) -> Records {
    let mut found = Records::new();
    let mut cursor = store.scan(tree, KeyRange::prefix(prefix)).expect("it is read");
    while let Some(item) = cursor.next().expect("it is read") {
        found.push((item.key.to_vec(), item.value.to_vec()));
    }
    found
}

/// The directories `d*` by the keys of their names.
fn top(store: &dyn Store, tree: TreeId) -> Vec<(Vec<u8>, u64)> {
    let mut found = Vec::new();
    for (key, value) in records(store, tree, &key::DIRECTORIES_PREFIX) {
        let Ok(Parsed::Entry { cookie: 1.., part: Part::Attributes, .. }) = key::parse(&key) else {
            continue;
        };
        let entry = EntryRecord::decode(&value).expect("an entry");
        if entry.name.starts_with(b"d") && entry.target == Target::Directory {
            found.push((key, entry.ino));
        }
    }
    found
}

/// Removes directories as ranges: one is gone, one has some of its names again, or others.
fn remove_ranges(store: &dyn Store, tree: TreeId, batch: &mut Batch, random: &mut fastrand::Rng) {
    for (place, directory) in top(store, tree) {
        let kind = random.u8(..5);
        if kind > 2 {
            continue;
        }
        let prefix = key::directory_prefix(directory);
        let before = records(store, tree, &prefix);
        // What was put before counts no more.
        for (key, value) in &before {
            let Ok(Parsed::Entry { cookie: cookie @ 1.., part: Part::Attributes, .. }) =
                key::parse(key)
            else {
                continue;
            };
            if random.u8(..3) == 0 {
                let other = key::entry(directory, cookie ^ 1 << 40, Part::Attributes);
                batch.put(tree, &other, value);
                batch.put(tree, key, value);
            }
        }
        batch.delete_range(tree, &prefix, &key::directory_prefix(directory + 1));
        if kind == 0 {
            batch.delete(tree, &place);
            continue;
        }
        for (key, value) in &before {
            // A directory in it must not be left without its name.
            let is_kept = match key::parse(key) {
                Ok(Parsed::Entry { cookie: 1.., part: Part::Attributes, .. }) => {
                    EntryRecord::decode(value).expect("an entry").target == Target::Directory
                }
                Ok(Parsed::Entry { cookie, .. }) => cookie == 0,
                _ => false,
            };
            if is_kept || random.bool() {
                batch.put(tree, key, value);
            }
        }
    }
}

fn directories_that_went_at_once_are_compared_and_the_rest_is_not(engine: Engine) {
    for seed in 0..8 {
        let (device, mut random) = (SimDevice::new(seed), fastrand::Rng::with_seed(seed));
        let subject = based(&device, engine, &mut random);
        subject.fs().sync_all().expect("it syncs");
        let crashed = device.after_crash(CrashPolicy::LoseAll, seed);
        drop(subject);
        for _ in 0..2 {
            raw(&crashed, |store, tree, batch| remove_ranges(store, tree, batch, &mut random));
        }
        let place = format!("{engine:?}, seed {seed}");
        assert_eq!(opened(&crashed, engine, seed, &place).logged, 1, "{place}");
    }
}

fn a_range_that_is_not_of_directories_ends_the_log(engine: Engine) {
    let (device, mut random) = (SimDevice::new(3), fastrand::Rng::with_seed(3));
    let subject = based(&device, engine, &mut random);
    subject.fs().sync_all().expect("it syncs");
    let crashed = device.after_crash(CrashPolicy::LoseAll, 3);
    drop(subject);
    raw(&crashed, |store, tree, batch| {
        let (_, directory) = top(store, tree)[5];
        let from = key::entry(directory, 1, Part::Attributes);
        batch.delete_range(tree, &from, &key::directory_prefix(directory + 1));
    });
    assert_eq!(opened(&crashed, engine, 3, &format!("{engine:?}")).logged, 0);
}

/// A roll-back of the root puts a copy in place of the tree that the base is a clone of.
fn the_log_ends_with_the_tree_that_it_is_of(engine: Engine) {
    let (device, mut random) = (SimDevice::new(4), fastrand::Rng::with_seed(4));
    let subject = based(&device, engine, &mut random);
    let (fs, root) = (subject.fs(), Caller::root());
    fs.snapshot_create(&root, NodeId::ROOT, b"before").expect("space");
    for _ in 0..100 {
        change(fs, &mut random).unwrap_or_default();
    }
    fs.rollback(&root, NodeId::ROOT, b"before").expect("it is there");
    for _ in 0..100 {
        change(fs, &mut random).unwrap_or_default();
    }
    fs.sync_all().expect("it syncs");
    let crashed = device.after_crash(CrashPolicy::LoseAll, 4);
    assert_eq!(opened(&crashed, engine, 4, &format!("{engine:?}")).logged, 0);
}
