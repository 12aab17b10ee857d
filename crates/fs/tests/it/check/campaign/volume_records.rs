//! The volume's own records, which are stored twice. Whatever is damaged in either tree, the volume
//! opens, everything else can be read, and a repair rebuilds the damaged tree.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use btree::BtreeStore;
use device::Env;
use device::sync::Mutex;
use format::kept_twice::{COPY_TREE, RootCounter, is_kept_twice};
use format::key::{self, Counter};
use format::volume::{EngineKind, VolumeHeader};
use fs::{Engine, FileSystem, Fs, OpenOptions, Repair};
use inode::{Caller, NodeId};
use lsm::LsmStore;
use store::{Batch, Durability, EngineOptions, KeyRange, LogKey, Store, TreeId};
use testing::{CrashPolicy, SimDevice};

use super::anatomy::{DamageSite, places};
use super::asked::{look, open};
use super::made::{Volume, made};
use super::media::Media;
use super::run::{check, repair};
use crate::check::reported;
use crate::check::volume::{file, opened_with};
use crate::script::scale;
use crate::subject::{Base, FsSubject};

pub(super) const VOLUME: TreeId = TreeId(key::VOLUME_TREE);
pub(super) const COPY: TreeId = TreeId(COPY_TREE);
pub(super) const BASES: [Base; 3] =
    [Base::Engine(Engine::Btree), Base::Engine(Engine::Lsm), Base::Column];
const QUOTAS: [&str; 2] = ["the quotas", "the quotas of owners"];

pub(super) fn is_of_own(place: &DamageSite) -> bool {
    place.structure.ends_with("of the volume's own tree")
}

pub(super) fn is_of_copies(place: &DamageSite) -> bool {
    place.structure.ends_with("of the copies of its records")
}

/// The engine's store of a volume, without anything before it.
pub(super) fn engine(env: &Env) -> Arc<dyn Store> {
    let header = env.device.open("volume.pando").expect("it is there");
    let mut bytes = vec![0; 256];
    let length = header.read_at(&mut bytes, 0).expect("it is read");
    let header = VolumeHeader::decode(&bytes[..length]).expect("it is whole");
    let common = EngineOptions {
        volume: header.volume_id,
        log_key: LogKey(header.hash_key),
        durability: Durability::Async,
        log_segment_bytes: 256 << 10,
        ..EngineOptions::default()
    };
    match header.engine {
        EngineKind::Btree => {
            let options = btree::Options { common, ..btree::Options::default() };
            BtreeStore::open(env, &options).expect("it is whole")
        }
        EngineKind::Lsm => {
            let options = lsm::Options { common, ..lsm::Options::default() };
            LsmStore::open(env, &options).expect("it is whole")
        }
    }
}

/// The records of a tree that are kept twice, by key.
pub(super) fn records(store: &dyn Store, tree: TreeId) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut cursor = store.scan(tree, KeyRange::all()).expect("it is whole");
    while let Some(item) = cursor.next().expect("it is whole") {
        if is_kept_twice(item.key) || tree == COPY {
            found.insert(item.key.to_vec(), item.value.to_vec());
        }
    }
    found
}

/// Checks that both trees are equal, and that there are copies.
pub(super) fn assert_same(env: &Env, what: &str) {
    let store = engine(env);
    let (own, copies) = (records(&*store, VOLUME), records(&*store, COPY));
    let root = RootCounter::decode(&own[&key::counter(Counter::Root)[..]]).expect("it is whole");
    assert!(root.copies, "{what}: no copies");
    assert!(own == copies, "{what}: {own:02x?}\nis not\n{copies:02x?}");
}

/// Flips a bit of some or all places.
pub(super) fn flips(
    media: &Media,
    wanted: fn(&DamageSite) -> bool,
    seed: u64,
) -> Vec<(DamageSite, u64)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut found = Vec::new();
    for place in places(media).into_iter().filter(wanted) {
        for _ in 0..scale(3, 200) {
            let bit = random.u64(..place.length * 8);
            found.push((place.clone(), place.offset * 8 + bit));
        }
    }
    random.shuffle(&mut found);
    found.truncate(scale(3, u64::MAX) as usize);
    found
}

fn damaged_of(media: &Media) -> (Option<String>, Option<String>) {
    let subject = open(media).unwrap_or_else(|error| panic!("it opens: {error}"));
    let status = subject.fs().status().expect("it answers");
    (status.damaged, status.read_only)
}

/// What the volume counts for its subvolumes, which has no copy.
fn held(media: &Media) -> (u64, u64, u64) {
    let subject = open(&media.copy()).unwrap_or_else(|error| panic!("it opens: {error}"));
    let status = subject.fs().status().expect("it answers");
    (status.files, status.bytes, status.counting)
}

fn names(words: Option<&String>, place: &DamageSite) -> bool {
    words.is_some_and(|words| {
        words.contains(&place.path) && words.contains("byte ") && words.contains("fsck --repair")
    })
}

/// Damage of either tree, from the blow to the repair, of a volume that was closed, or after a
/// crash. Whether it opened for reading only.
pub(super) fn struck(
    (volume, media): (&Volume, &Media),
    (place, bit): (&DamageSite, u64),
    what: &str,
) -> bool {
    let hurt = media.copy();
    hurt.volume.flip_bit(&place.path, bit);
    let report = check(&hurt);
    let is_reported = report.problems.iter().any(|found| found.file == place.path);
    assert!(is_reported, "{what}:\n{}", reported(&report));
    let seen = look(&hurt, &volume.right);
    assert!(seen.looked.closed.is_none(), "{what}: {:?}", seen.looked.closed);
    assert!(seen.looked.wrong.is_empty(), "{what}: {:#?}", seen.looked.wrong);
    for refused in &seen.refused {
        let is_count = QUOTAS.contains(&refused.what.as_str()) && is_of_own(place);
        assert!(is_count, "{what}: {refused:#?}");
    }
    let (damaged, read_only) = damaged_of(&hurt.copy());
    if is_of_own(place) && damaged.is_some() {
        assert!(names(damaged.as_ref(), place), "{what}: {damaged:?}");
        // Where opening met it. What is met later is answered, and reported.
        assert!(read_only.is_none() || names(read_only.as_ref(), place), "{what}: {read_only:?}");
    }
    let is_closed = std::ptr::eq(media, &raw const volume.closed);
    if is_of_copies(place) && is_closed {
        assert_eq!(read_only, None, "{what}: what is whole is changed");
    }
    if read_only.is_some() {
        assert!(names(damaged.as_ref(), place), "{what}: {damaged:?}");
        assert!(names(read_only.as_ref(), place), "{what}: {read_only:?}");
    }
    let repaired = repair(&hurt, Repair::Do);
    assert!(repaired.failed.is_empty(), "{what}: {:?}", repaired.failed);
    assert!(repaired.after.is_clean(), "{what}:\n{}", reported(&repaired.after));
    let after = look(&hurt, &volume.right);
    assert!(after.is_same(), "{what}: {after:#?}");
    assert_eq!(held(&hurt), held(&volume.closed), "{what}");
    assert_eq!(damaged_of(&hurt), (None, None), "{what}");
    assert_same(&hurt.env(), what);
    read_only.is_some()
}

#[test]
fn any_damage_of_either_mirrored_tree_is_repaired() {
    for (seed, base) in (70..).zip(&BASES) {
        println!("seed {seed}");
        let volume = made(seed, base, false);
        assert_same(&volume.closed.copy().env(), "before");
        for (of, wanted) in
            [("own", is_of_own as fn(&DamageSite) -> bool), ("copies", is_of_copies)]
        {
            let all = flips(&volume.closed, wanted, seed);
            assert!(!all.is_empty(), "{base:?}: nothing of the {of}");
            for (place, bit) in all {
                let what = format!("{base:?}: bit {bit} of {} ({})", place.path, place.structure);
                struck((&volume, &volume.closed), (&place, bit), &what);
            }
        }
    }
}

#[test]
fn the_mirrored_trees_share_no_disk_block() {
    for (seed, base) in (75..).zip(&BASES) {
        let volume = made(seed, base, false);
        let all = places(&volume.closed);
        // What a disk loses as one; value logs are stored as they are written.
        let unit = if matches!(base, Base::Column) { 1 } else { 4096 };
        let end = |place: &DamageSite| place.end().next_multiple_of(unit);
        let begin = |place: &DamageSite| place.offset / unit * unit;
        for own in all.iter().filter(|place| is_of_own(place)) {
            for copy in all.iter().filter(|place| is_of_copies(place)) {
                let apart =
                    own.path != copy.path || end(own) <= begin(copy) || end(copy) <= begin(own);
                assert!(apart, "{base:?}: {own:?} and {copy:?}");
            }
        }
    }
}

/// A volume whose trees are both damaged reports both, does not open, and is not changed.
#[test]
fn damage_of_both_is_reported_and_nothing_changed() {
    for (seed, base) in (80..).zip(&BASES) {
        let volume = made(seed, base, false);
        let hurt = volume.closed.copy();
        let all = places(&hurt);
        for place in all.iter().filter(|place| is_of_own(place) || is_of_copies(place)) {
            hurt.volume.overwrite(&place.path, place.offset, &vec![0; place.length as usize]);
        }
        let error = open(&hurt.copy()).err().expect("nothing is to be read").to_string();
        let is_named = |is: fn(&DamageSite) -> bool| {
            all.iter().any(|place| is(place) && error.contains(&format!("byte {}", place.reported)))
        };
        assert!(is_named(is_of_own) && is_named(is_of_copies), "{base:?}: {error}");
        assert!(error.contains("backup"), "{base:?}: {error}");
        let files = || -> BTreeMap<String, Vec<u8>> {
            // Opening prepares the log.
            let names = hurt.files().into_iter().map(|(path, _)| path);
            let names = names.filter(|path| !path.starts_with("log/"));
            names.map(|path| (path.clone(), hurt.read(&path))).collect()
        };
        let before = files();
        let repaired = repair(&hurt, Repair::Do);
        assert!(!repaired.after.is_clean() && repaired.repaired.is_empty(), "{base:?}");
        let after = files();
        let changed: Vec<_> =
            after.iter().filter(|(path, bytes)| before.get(*path) != Some(bytes)).collect();
        let changed: Vec<_> = changed.iter().map(|(path, _)| path).collect();
        assert!(changed.is_empty() && before.len() == after.len(), "{base:?}: {changed:?}");
    }
}

/// Opening does not read all places, so the volume may open although places of both are damaged. A
/// repair then reports both as damaged, and does not promise to rewrite them.
#[test]
fn an_impossible_repair_does_not_recommend_itself() {
    let mut opened = 0;
    for (seed, base) in (95..).zip(&BASES) {
        let volume = made(seed, base, false);
        let all = places(&volume.closed);
        let pairs = all.iter().filter(|place| is_of_own(place)).flat_map(|own| {
            all.iter().filter(|place| is_of_copies(place)).map(move |copy| [own, copy])
        });
        for pair in pairs {
            let hurt = volume.closed.copy();
            for DamageSite { path, offset, length, .. } in pair {
                hurt.volume.overwrite(path, *offset, &vec![0; *length as usize]);
            }
            if open(&hurt.copy()).is_err() {
                continue;
            }
            opened += 1;
            let repaired = repair(&hurt, Repair::Do);
            let what = format!("{base:?}: {pair:?}:\n{}", reported(&repaired.after));
            assert!(!repaired.after.is_clean() && !repaired.failed.is_empty(), "{what}");
            for (problem, why) in &repaired.failed {
                let is_stated = why.contains("their copy neither") && !why.contains("--repair");
                assert!(is_stated, "{problem:?}: {why}\n{what}");
            }
        }
    }
    assert!(opened > 0, "no such volume opens");
}

/// What was changed while the copies were damaged is in the copies that a repair makes.
#[test]
fn damaged_copies_block_no_changes_and_are_not_trusted_afterwards() {
    for (seed, base) in (85..).zip(&BASES) {
        let volume = made(seed, base, false);
        let hurt = volume.closed.copy();
        let struck: Vec<DamageSite> = places(&hurt).into_iter().filter(is_of_copies).collect();
        for place in &struck {
            hurt.volume.overwrite(&place.path, place.offset, &vec![0; place.length as usize]);
        }
        let subject = open(&hurt).unwrap_or_else(|error| panic!("{base:?}: {error}"));
        let (fs, root) = (subject.fs(), Caller::root());
        let one = fs.lookup(&root, NodeId::ROOT, b"one").expect("it is there").node;
        fs.snapshot_create(&root, one, b"meanwhile").expect("what is whole takes it");
        file(fs, one, "meanwhile", b"too");
        if matches!(base, Base::Engine(Engine::Btree)) {
            let damaged = fs.status().expect("it answers").damaged;
            assert!(damaged.is_some_and(|why| why.contains("no copies")), "{base:?}");
        }
        fs.close().expect("there is space");
        drop(subject);
        // Where the disk gives them again, they are older than what was changed.
        let healed = hurt.copy();
        for place in &struck {
            let bytes = &volume.closed.read(&place.path)[place.offset as usize..];
            let bytes = &bytes[..place.length as usize];
            healed.volume.overwrite(&place.path, place.offset, bytes);
        }
        assert!(check(&healed).is_clean(), "{base:?}:\n{}", reported(&check(&healed)));
        let repaired = repair(&hurt, Repair::Do);
        assert!(repaired.after.is_clean(), "{base:?}:\n{}", reported(&repaired.after));
        assert_same(&hurt.env(), "after the repair");
        let subject = open(&hurt).expect("it is whole");
        let one = subject.fs().lookup(&root, NodeId::ROOT, b"one").expect("it is there").node;
        let names = subject.fs().snapshot_list(&root, one).expect("it answers");
        assert!(names.iter().any(|info| info.name == b"meanwhile"), "{base:?}");
    }
}

/// A volume as programs made it that knew of no copies.
fn without_copies(media: &Media) -> Media {
    let before = media.copy();
    let store = engine(&before.env());
    let root = key::counter(Counter::Root);
    let value = store.get(VOLUME, &root).expect("it is whole").expect("it is there");
    let mut batch = Batch::new();
    batch.drop_tree(COPY);
    batch.put(VOLUME, &root, &value[..8]);
    store.commit(&batch).expect("there is space");
    while !store.checkpoint().expect("there is space") {}
    store.close().expect("there is space");
    before
}

pub(super) fn options() -> OpenOptions {
    OpenOptions { index: None, ..opened_with(Durability::Async) }
}

#[test]
fn a_volume_of_an_older_version_gets_copies_despite_power_cuts() {
    for (seed, base) in (90..).zip(&BASES) {
        let volume = made(seed, base, false);
        let before = without_copies(&volume.closed);
        assert!(check(&before).is_clean(), "{base:?}:\n{}", reported(&check(&before)));
        let read_only = OpenOptions { read_only: true, ..options() };
        let fs = Fs::open(before.copy().env(), &read_only).expect("it is whole");
        assert_eq!(fs.status().expect("it answers").damaged, None, "{base:?}");
        drop(fs);
        let opened = before.copy();
        let cuts: Arc<Mutex<Vec<(u64, SimDevice)>>> = Arc::default();
        let kept = Arc::clone(&cuts);
        opened.volume.watch(move |device, op| kept.lock().push((op, device.copy())));
        let fs = Fs::open(opened.env(), &options()).expect("it is whole");
        fs.close().expect("there is space");
        opened.volume.unwatch();
        drop(fs);
        assert_same(&opened.copy().env(), "opened");
        let value = engine(&opened.env()).get(VOLUME, &key::counter(Counter::Root));
        let value = value.expect("it is whole").expect("it is there");
        assert_ne!(value.len(), 8, "a program that knows of no copies takes it for damage");
        let cuts = std::mem::take(&mut *cuts.lock());
        let step = cuts.len().div_ceil(scale(8, u64::MAX) as usize).max(1);
        for (op, device) in cuts.iter().step_by(step) {
            for policy in CrashPolicy::ALL {
                let what = format!("{base:?}: cut before change {op}, {policy:?}");
                let media = Media { volume: device.after_crash(policy, *op), log: None };
                let report = check(&media);
                assert!(report.is_clean(), "{what}:\n{}", reported(&report));
                let fs = Fs::open(media.env(), &options()).expect("it is whole");
                fs.close().expect("there is space");
                drop(fs);
                assert_same(&media.env(), &what);
            }
        }
    }
}

/// Snapshots, clones, roll-backs and removals, each with the power going at each change.
#[test]
fn both_trees_agree_after_any_power_cut() {
    for (seed, base) in (95..).zip(&BASES) {
        let media = Media::new(seed, false);
        let subject = FsSubject::format_on(media.device(), &opened_with(Durability::Async), base);
        let (fs, root) = (subject.fs(), Caller::root());
        let cuts: Arc<Mutex<Vec<(u64, SimDevice)>>> = Arc::default();
        let kept = Arc::clone(&cuts);
        media.volume.watch(move |device, op| kept.lock().push((op, device.copy())));
        let one = fs.mkdir(&root, NodeId::ROOT, b"one", 0o755).expect("there is space").node;
        for n in 0..3 {
            file(fs, one, &format!("small {n}"), b"small");
            file(fs, one, &format!("large {n}"), &vec![n; 20_000]);
            fs.snapshot_create(&root, one, &[b'a' + n]).expect("there is space");
            fs.sync().expect("there is space");
        }
        fs.clone_dir(&root, one, NodeId::ROOT, b"clone").expect("there is space");
        fs.snapshot_delete(&root, one, b"b").expect("it is there");
        fs.sync().expect("there is space");
        for _ in 0..200 {
            if !fs.background_step(64).expect("there is space").more {
                break;
            }
        }
        fs.close().expect("there is space");
        media.volume.unwatch();
        drop(subject);
        let cuts = std::mem::take(&mut *cuts.lock());
        let step = cuts.len().div_ceil(scale(20, u64::MAX) as usize).max(1);
        for (op, device) in cuts.iter().step_by(step) {
            for policy in CrashPolicy::ALL {
                let what = format!("{base:?}: cut before change {op}, {policy:?}");
                let media = Media { volume: device.after_crash(policy, *op), log: None };
                assert_same(&media.env(), &what);
            }
        }
    }
}

/// A program that wrote one of both differently is reported, and the volume's own tree is right.
#[test]
fn differing_copies_are_reported_and_rewritten() {
    let volume = made(100, &Base::Engine(Engine::Btree), false);
    let wrong = volume.closed.copy();
    let store = engine(&wrong.env());
    let mut batch = Batch::new();
    batch.put(COPY, &key::counter(Counter::Epoch), &9_u64.to_le_bytes());
    batch.put(COPY, &key::detached(77), b"other");
    batch.delete(COPY, &key::subvolume(1));
    store.commit(&batch).expect("there is space");
    let mut proceed = |_, _| ControlFlow::Continue(());
    assert!(store.check(&mut proceed).expect("it answers").is_clean());
    store.close().expect("there is space");
    drop(store);
    let report = check(&wrong);
    assert_eq!(report.problems_count, 3, "{}", reported(&report));
    let repaired = repair(&wrong, Repair::Do);
    assert!(
        repaired.after.is_clean() && repaired.repaired.len() == 3,
        "{}",
        reported(&repaired.after)
    );
    assert!(look(&wrong, &volume.right).is_same());
    assert_same(&wrong.env(), "after the repair");
}

/// What the log takes for each of some changes, and what of that is for the copies.
#[test]
fn creating_a_small_file_writes_no_copy() {
    for base in &BASES[..2] {
        let media = Media::new(110, false);
        drop(FsSubject::format_on(media.device(), &opened_with(Durability::Async), base));
        let mut captured: Option<Arc<dyn Store>> = None;
        let fs = Fs::open_through(media.env(), &options(), |store| {
            captured = Some(Arc::clone(&store));
            store
        });
        let (fs, store) = (fs.expect("it is whole"), captured.expect("it was opened"));
        let root = Caller::root();
        let one = fs.mkdir(&root, NodeId::ROOT, b"one", 0o755).expect("there is space").node;
        // Numbers are reserved with the first.
        file(&fs, one, "first", b"small");
        let copies = || {
            let found = records(&*store, COPY);
            found.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
        };
        let given = || fs.status().expect("it answers").given_bytes;
        let change = |what: &str, times: u64, make: &dyn Fn(u64)| {
            let (before, given_before) = (records(&*store, COPY), given());
            (0..times).for_each(make);
            let bytes = (given() - given_before) / times;
            println!("{base:?}: {what}: {bytes} bytes of log each, copies {} bytes", copies());
            before == records(&*store, COPY)
        };
        assert!(change("small file", 100, &|n| {
            file(&fs, one, &format!("small {n}"), b"small");
        }));
        assert!(!change("snapshot", 20, &|n| {
            fs.snapshot_create(&root, one, format!("s{n}").as_bytes()).expect("there is space");
        }));
        assert!(!change("clone", 20, &|n| {
            let name = format!("c{n}");
            fs.clone_dir(&root, one, NodeId::ROOT, name.as_bytes()).expect("there is space");
        }));
        fs.close().expect("there is space");
    }
}
