//! Either copy of the manifest is enough: if either of them rots or vanishes, and whenever the
//! power was cut, no durable data is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::sync::Mutex;
use format::run_manifest::RunManifest;
use lsm::{LsmStore, repair};
use store::{Durable, Error, Maintain, TreeId};
use testing::run::for_seeds;
use testing::{CrashPolicy, Fault, FaultOn, Op, SimDevice, SimEnv, entries, sim_env};

use crate::util::{TREE, blobs, checked, commit, inspected, open, options, settle, store};

type Model = BTreeMap<TreeId, BTreeMap<Vec<u8>, Vec<u8>>>;

/// The fate of a file.
#[derive(Debug, Clone, Copy)]
enum Rot {
    Zeros,
    Flip,
    Short,
    Gone,
}

const ROTS: [Rot; 4] = [Rot::Zeros, Rot::Flip, Rot::Short, Rot::Gone];

impl Rot {
    fn strike(self, device: &SimDevice, path: &str) {
        let length = device.read_file(path).len();
        match self {
            Rot::Zeros => device.overwrite(path, 0, &vec![0; length]),
            Rot::Flip => device.flip_bit(path, 8 * 60),
            Rot::Short => device.truncate(path, length as u64 / 2),
            Rot::Gone => device.delete(path),
        }
    }
}

/// Manifests and copies, by number.
fn manifests(device: &SimDevice) -> BTreeMap<u64, Vec<String>> {
    let mut found: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for (path, _) in device.files() {
        let number = ["lsm/manifest-", "lsm/copy-"]
            .into_iter()
            .find_map(|prefix| u64::from_str_radix(path.strip_prefix(prefix)?, 16).ok());
        if let Some(number) = number {
            found.entry(number).or_default().push(path);
        }
    }
    found
}

/// Those of the newest.
fn newest(device: &SimDevice) -> Vec<String> {
    manifests(device).pop_last().expect("there is one").1
}

/// All files, and their contents.
fn files(device: &SimDevice) -> BTreeMap<String, Vec<u8>> {
    let paths = device.files().into_iter().map(|(path, _)| path);
    paths.map(|path| (path.clone(), device.read_file(&path))).collect()
}

/// Changes the tree, and replaces its clone, so that the next checkpoint frees what the last one
/// wrote.
fn change(store: &LsmStore, model: &mut Model, random: &mut fastrand::Rng, round: u64) {
    let clone = TreeId(TREE.0 + round);
    commit(store, |batch| {
        for _ in 0..30 {
            let (key, value) = (random.u32(..80).to_be_bytes(), vec![random.u8(..); 40]);
            batch.put(TREE, &key, &value);
            model.entry(TREE).or_default().insert(key.to_vec(), value);
        }
        batch.clone_tree(TREE, clone);
        if round > 1 {
            batch.drop_tree(TreeId(clone.0 - 1));
        }
    });
    model.insert(clone, model[&TREE].clone());
    if round > 1 {
        model.remove(&TreeId(clone.0 - 1));
    }
    store.sync(store.last_commit()).expect("sync");
}

/// A store with three checkpoints, each after changes, and what it holds.
fn changed(seed: u64) -> (SimEnv, Arc<LsmStore>, Model, fastrand::Rng) {
    let (sim, store) = store(seed);
    let (mut random, mut model) = (fastrand::Rng::with_seed(seed), Model::new());
    for round in 1..4 {
        change(&store, &mut model, &mut random, round);
        checked(&store);
    }
    (sim, store, model, random)
}

/// Opens what a disk holds, and compares; returns the disk afterwards.
fn opens(device: SimDevice, model: &Model, place: &str) -> SimDevice {
    let sim = SimEnv::on(device, 1);
    let store = LsmStore::open(&sim.env(), &options());
    let store = store.unwrap_or_else(|error| panic!("{place}: {error}"));
    for (tree, expected) in model {
        assert!(entries(&*store, *tree) == *expected, "{place}: tree {} has changed", tree.0);
    }
    drop(store);
    let left = manifests(&sim.device);
    assert!(left.len() == 1 && left.values().all(|both| both.len() == 2), "{place}: {left:?}");
    sim.device
}

/// Each of the newest in turn, in each way; also one that has only one copy yet.
fn opens_without_either(device: &SimDevice, model: &Model, place: &str) -> u32 {
    let mut opened = 0;
    for path in newest(device) {
        for rot in ROTS {
            let rotten = device.copy();
            rot.strike(&rotten, &path);
            opens(rotten, model, &format!("{place}, {path}: {rot:?}"));
            opened += 1;
        }
    }
    opened
}

#[test]
fn either_manifest_suffices_after_any_power_cut() {
    for_seeds("manifests", 2, 12, |seed| {
        let (sim, store) = store(seed);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model = Model::new();
        let opened = Arc::new(Mutex::new((0, 0)));
        for round in 1..5 {
            change(&store, &mut model, &mut random, round);
            let (expected, seen) = (model.clone(), Arc::clone(&opened));
            sim.device.watch(move |disk: &SimDevice, op| {
                let policy = CrashPolicy::ALL[op as usize % CrashPolicy::ALL.len()];
                let place = format!("seed {seed}, round {round}, {policy:?} before {op}");
                let crashed = disk.after_crash(policy, op);
                let alone = newest(&crashed).len() == 1;
                let opened = opens_without_either(&crashed, &expected, &place);
                let mut seen = seen.lock();
                *seen = (seen.0 + opened, seen.1 + u32::from(alone));
            });
            assert!(store.checkpoint().expect("checkpoint"));
            settle(&store);
            sim.device.unwatch();
            checked(&store);
        }
        let (opened, alone) = *opened.lock();
        assert!(opened > 200 && alone > 4, "opened {opened} times, with one {alone} times");
    });
}

/// An opening trims the log for a manifest that a crash left alone only when it has two copies.
#[test]
fn either_manifest_suffices_after_a_power_cut_during_recovery() {
    let mut small = options();
    small.common.log_segment_bytes = 8 << 10;
    let sim = sim_env(6);
    let store = LsmStore::create(&sim.env(), &small).expect("create");
    commit(&store, |batch| batch.create_tree(TREE));
    let mut random = fastrand::Rng::with_seed(6);
    let mut model = Model::new();
    let alone: Arc<Mutex<Vec<SimDevice>>> = Arc::default();
    for round in 1..12 {
        change(&store, &mut model, &mut random, round);
        let seen = Arc::clone(&alone);
        sim.device.watch(move |disk: &SimDevice, op| {
            let crashed = disk.after_crash(CrashPolicy::KeepAll, op);
            if round == 11 && newest(&crashed).len() == 1 {
                seen.lock().push(crashed);
            }
        });
        if round == 1 || round == 11 {
            assert!(store.checkpoint().expect("checkpoint"));
        }
        sim.device.unwatch();
    }
    let cuts = Arc::new(Mutex::new(0));
    let crashed = alone.lock().pop().expect("a cut between the two");
    let before = crashed.copy();
    let (expected, seen) = (model.clone(), Arc::clone(&cuts));
    before.watch(move |disk: &SimDevice, op| {
        let image = disk.after_crash(CrashPolicy::KeepAll, op);
        *seen.lock() += opens_without_either(&image, &expected, &format!("before {op}"));
    });
    drop(LsmStore::open(&SimEnv::on(before.clone(), 1).env(), &small).expect("it opens"));
    before.unwatch();
    assert!(*cuts.lock() > 20, "{} cuts", cuts.lock());
}

/// Opening writes both copies again, and so does repair: a second damage finds a whole copy.
#[test]
fn a_damaged_manifest_is_rewritten_by_opening_and_by_repair() {
    let (sim, store, mut model, mut random) = changed(3);
    change(&store, &mut model, &mut random, 4);
    drop(store);
    let crashed = sim.device.after_crash(CrashPolicy::LoseAll, 3);
    for (path, rot) in newest(&crashed).iter().flat_map(|path| ROTS.map(|rot| (path, rot))) {
        let place = format!("{path}: {rot:?}");
        let device = crashed.copy();
        rot.strike(&device, path);
        let found = inspected(&SimEnv::on(device.copy(), 1)).findings;
        // A missing copy is also what a crash leaves.
        assert_eq!(found.len(), usize::from(!matches!(rot, Rot::Gone)), "{place}: {found:?}");
        let reported =
            found.iter().all(|found| found.file == *path && found.remedy == store::Remedy::Rebuild);
        assert!(reported, "{place}: {found:?}");
        let opened = opens(device.copy(), &model, &place);
        repair(&SimEnv::on(device.clone(), 1).env(), &options()).expect("there is one");
        for (device, by) in [(opened, "opening"), (device, "repairing")] {
            let place = format!("{place}, after {by}");
            let report = inspected(&SimEnv::on(device.copy(), 1));
            assert!(report.is_clean(), "{place}: {:?}", report.findings);
            opens_without_either(&device, &model, &place);
        }
    }
}

/// A closed store whose earlier manifests still exist, as if they could not have been deleted.
fn closed_beside_earlier_manifests(seed: u64) -> SimEnv {
    let (sim, store) = store(seed);
    commit(&store, |batch| batch.put(TREE, b"key", b"value"));
    checked(&store);
    let older = sim.device.copy();
    commit(&store, |batch| batch.put(TREE, b"key", b"another value"));
    store.close().expect("close");
    drop(store);
    for path in newest(&older) {
        sim.env().device.create(&path).expect("a file");
        sim.device.overwrite(&path, 0, &older.read_file(&path));
    }
    sim
}

/// If both rotted the store stays closed, and if the newest is another volume's, too.
#[test]
fn no_older_state_is_mistaken_for_the_newest() {
    let sim = closed_beside_earlier_manifests(4);
    let rotten = sim.device.copy();
    for path in newest(&rotten) {
        rotten.flip_bit(&path, 8 * 60);
    }
    let refused = LsmStore::open(&SimEnv::on(rotten, 1).env(), &options());
    assert!(matches!(&refused, Err(Error::Corrupt(bad)) if bad.file.contains("lsm/")));
    // One alone, of a volume that is not this.
    let number = 1 << 20;
    let other = RunManifest { volume: [9; 16], number, ..RunManifest::default() }.encode();
    let path = format!("lsm/manifest-{number:016x}");
    sim.env().device.create(&path).expect("a file");
    sim.device.overwrite(&path, 0, &other);
    let refused = LsmStore::open(&sim.env(), &options());
    assert!(matches!(&refused, Err(Error::Corrupt(bad)) if bad.file == path), "{refused:?}");
    assert_eq!(sim.device.read_file(&path), other);
}

/// A full disk can be opened with one copy, and the next checkpoint makes two.
#[test]
fn one_manifest_suffices_on_a_full_disk() {
    let (sim, store) = store(5);
    commit(&store, |batch| batch.put(TREE, b"key", b"value"));
    store.close().expect("close");
    drop(store);
    let path = newest(&sim.device).pop().expect("there are two");
    sim.device.delete(&path);
    let full = Fault::no_space(FaultOn::Only(Op::Write), 0);
    sim.device.inject(full.below("lsm/").forever());
    let store = open(&sim);
    sim.device.clear_faults();
    assert_eq!(newest(&sim.device).len(), 1);
    assert_eq!(entries(&*store, TREE).len(), 1);
    checked(&store);
    assert_eq!(newest(&sim.device).len(), 2);
}

/// If one copy cannot be read the other is the state. That opening does not delete the unreadable
/// copy, nor any blob; afterwards two readable copies exist again.
#[test]
fn a_manifest_that_cannot_be_read_stays_and_the_other_is_the_state() {
    let (sim, store, mut model, mut random) = changed(7);
    // Only the log knows of this when the power fails, and a blob exists that nothing names.
    change(&store, &mut model, &mut random, 4);
    let named = blobs(&sim.device);
    let cuts = cuts_of_a_checkpoint(&sim, &store, move |crashed| {
        blobs(crashed).len() > named.len() && manifests(crashed).len() == 1
    });
    let (crashed, report) = (&cuts[0], inspected(&SimEnv::on(cuts[0].copy(), 1)));
    assert!(report.lost_bytes > 0, "{report:?}");
    let left = blobs(crashed).pop().expect("the last one");
    for (path, op) in newest(crashed).iter().flat_map(|path| [(path, Op::Read), (path, Op::Look)]) {
        let place = format!("{path}: {op:?}");
        let device = crashed.copy();
        let before = device.read_file(path);
        device.inject(Fault::io(FaultOn::Only(op), 0).below(path).forever());
        let sim = SimEnv::on(device, 1);
        let store = open(&sim);
        for (tree, expected) in &model {
            assert!(entries(&*store, *tree) == *expected, "{place}: tree {}", tree.0);
        }
        assert_eq!(sim.device.read_file(path), before, "{place}");
        assert!(blobs(&sim.device).contains(&left), "{place}");
        assert_eq!(newest(&sim.device).len(), 2, "{place}");
        assert!(!newest(&sim.device).contains(path), "{place}: a new one was made");
        // Nor by anything that comes after it.
        checked(&store);
        settle(&store);
        assert_eq!(sim.device.read_file(path), before, "{place}");
        drop(store);
        // Either of the new is enough, and when all can be read nothing stays.
        let crashed = sim.device.after_crash(CrashPolicy::KeepAll, 1);
        opens_without_either(&crashed, &model, &place);
        let opened = opens(crashed, &model, &place);
        assert!(!blobs(&opened).contains(&left), "{place}: {left}");
    }
}

/// What cannot be read may be the newest, and whole: no older manifest is accepted, and nothing is
/// changed.
#[test]
fn nothing_is_changed_if_no_manifest_is_readable() {
    let sim = closed_beside_earlier_manifests(8);
    let both = newest(&sim.device);
    for (path, other) in [(&both[0], &both[1]), (&both[1], &both[0])] {
        for rot in [None, Some(Rot::Flip), Some(Rot::Gone)] {
            let device = sim.device.copy();
            match rot {
                Some(rot) => rot.strike(&device, other),
                None => device.inject(Fault::io(FaultOn::Only(Op::Read), 0).below(other).forever()),
            }
            device.inject(Fault::io(FaultOn::Only(Op::Read), 0).below(path).forever());
            let before = files(&device);
            let sim = SimEnv::on(device, 1);
            let refused = LsmStore::open(&sim.env(), &options());
            assert!(matches!(refused, Err(Error::Device(_))), "{path}, {rot:?}: {refused:?}");
            assert!(files(&sim.device) == before, "{path}, {rot:?}: something was changed");
        }
    }
}

/// A copy for which there was no space is made once there is space, whether or not there is another
/// checkpoint.
#[test]
fn a_copy_that_found_no_space_is_made_once_there_is() {
    // If there is no space for the first either, that of the previous state was given up for it.
    let full = [&["lsm/copy-"][..], &["lsm/copy-", "lsm/manifest-"]];
    for full_of in full {
        let place = format!("{full_of:?}");
        let (sim, store) = store(9);
        checked(&store);
        commit(&store, |batch| batch.put(TREE, b"key", b"value"));
        for path in full_of {
            let full = Fault::no_space(FaultOn::Only(Op::Write), 0);
            sim.device.inject(full.below(path).forever());
        }
        let made = store.checkpoint();
        assert_eq!(made.is_ok(), full_of.len() == 1, "{place}: {made:?}");
        settle(&store);
        assert_eq!(newest(&sim.device).len(), 1, "{place}: no space is left yet");
        sim.device.clear_faults();
        assert!(!store.reclaim_step(100).expect("reclaim"), "{place}");
        assert_eq!(newest(&sim.device).len(), 2, "{place}");
        store.sync(store.last_commit()).expect("sync");
        let model = Model::from([(TREE, entries(&*store, TREE))]);
        let crashed = sim.device.after_crash(CrashPolicy::LoseAll, 1);
        opens_without_either(&crashed, &model, &place);
    }
}

/// The same for one that was missing when the store was opened.
#[test]
fn a_manifest_missing_at_opening_is_written_once_there_is_space() {
    let (sim, store) = store(10);
    commit(&store, |batch| batch.put(TREE, b"key", b"value"));
    store.close().expect("close");
    drop(store);
    for path in newest(&sim.device) {
        let device = sim.device.copy();
        device.delete(&path);
        let full = Fault::no_space(FaultOn::Only(Op::Write), 0);
        device.inject(full.below("lsm/").forever());
        let sim = SimEnv::on(device, 1);
        let store = open(&sim);
        assert!(!store.reclaim_step(100).expect("reclaim"), "{path}");
        assert_eq!(newest(&sim.device).len(), 1, "{path}");
        sim.device.clear_faults();
        assert!(!store.reclaim_step(100).expect("reclaim"), "{path}");
        assert!(newest(&sim.device).contains(&path) && newest(&sim.device).len() == 2, "{path}");
    }
}

/// The disks that power cuts in a checkpoint leave, of those in the desired state.
fn cuts_of_a_checkpoint(
    sim: &SimEnv,
    store: &LsmStore,
    wanted: impl Fn(&SimDevice) -> bool + Send + 'static,
) -> Vec<SimDevice> {
    let cuts: Arc<Mutex<Vec<SimDevice>>> = Arc::default();
    let seen = Arc::clone(&cuts);
    sim.device.watch(move |disk: &SimDevice, op| {
        let crashed = disk.after_crash(CrashPolicy::KeepAll, op);
        if wanted(&crashed) {
            seen.lock().push(crashed);
        }
    });
    assert!(store.checkpoint().expect("checkpoint"));
    sim.device.unwatch();
    std::mem::take(&mut *cuts.lock())
}

/// The opening that skips an unfinished manifest does not delete what it names. If anything of the
/// state before it is gone, that state is no longer valid.
#[test]
fn a_damaged_manifest_that_is_skipped_deletes_nothing() {
    let (sim, store) = store(11);
    let mut random = fastrand::Rng::with_seed(11);
    let mut model = Model::new();
    change(&store, &mut model, &mut random, 1);
    checked(&store);
    change(&store, &mut model, &mut random, 2);
    // The next one exists, and has no copy yet.
    let crashed = cuts_of_a_checkpoint(&sim, &store, |crashed| {
        manifests(crashed).len() == 2 && newest(crashed).len() == 1
    });
    let crashed = &crashed[0];
    let path = newest(crashed).pop().expect("there is one");
    for rot in [Rot::Zeros, Rot::Flip, Rot::Short] {
        let place = format!("{path}: {rot:?}");
        let device = crashed.copy();
        rot.strike(&device, &path);
        let named = blobs(&device);
        let opened = opens(device.copy(), &model, &place);
        assert_eq!(blobs(&opened), named, "{place}");
        // The next opening knows what is needed.
        let again = opens(opened, &model, &place);
        assert!(blobs(&again).len() < named.len(), "{place}: {named:?}");
        // If anything that the state before needs is gone or damaged, the manifest was finished
        // after all.
        for needed in blobs(&again) {
            for how in [Rot::Zeros, Rot::Short, Rot::Gone] {
                let device = device.copy();
                how.strike(&device, &needed);
                let before = files(&device);
                let sim = SimEnv::on(device, 1);
                let refused = LsmStore::open(&sim.env(), &options());
                let reported = |bad: &format::Corruption| bad.file == path;
                assert!(
                    matches!(&refused, Err(Error::Corrupt(bad)) if reported(bad)),
                    "{place}, {needed}: {how:?}: {refused:?}"
                );
                assert!(files(&sim.device) == before, "{place}, {needed}: {how:?}");
            }
        }
    }
}

/// Puts a manifest under another name.
fn put(device: &SimDevice, bytes: &[u8], path: &str) {
    if !device.files().iter().any(|(other, _)| other == path) {
        SimEnv::on(device.clone(), 1).env().device.create(path).expect("a file");
    }
    device.truncate(path, 0);
    device.overwrite(path, 0, bytes);
}

/// A copy made by another program under another number: it used to keep the store closed, and no
/// message named the file.
#[test]
fn a_misnamed_manifest_is_ignored() {
    let (sim, store, mut model, mut random) = changed(12);
    // Only the log knows of this.
    change(&store, &mut model, &mut random, 4);
    drop(store);
    let crashed = sim.device.after_crash(CrashPolicy::LoseAll, 3);
    let state = newest(&crashed).pop().expect("there are two");
    let bytes = crashed.read_file(&state);
    let number = *manifests(&crashed).last_key_value().expect("there is one").0;
    for other in [1, number - 1, number + 1, number + 2, 1 << 20] {
        for name in ["manifest", "copy"] {
            let device = crashed.copy();
            let path = format!("lsm/{name}-{other:016x}");
            put(&device, &bytes, &path);
            let reported = inspected(&SimEnv::on(device.copy(), 1)).findings;
            assert_eq!(reported.len(), 1, "{path}: {reported:?}");
            let is_it = reported[0].file == path && reported[0].remedy == store::Remedy::MoveAway;
            assert!(is_it, "{path}: {reported:?}");
            let before = blobs(&device);
            let sim = SimEnv::on(device.copy(), 1);
            let store = open(&sim);
            for (tree, expected) in &model {
                assert!(entries(&*store, *tree) == *expected, "{path}: tree {}", tree.0);
            }
            if other > number {
                let after = blobs(&sim.device);
                assert!(before.iter().all(|blob| after.contains(blob)), "{path}: deleted");
            }
            checked(&store);
            settle(&store);
            drop(store);
            assert!(sim.device.read_file(&path) == bytes, "{path}: it was changed");
            let again = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 3), 1);
            let store = open(&again);
            for (tree, expected) in &model {
                assert!(entries(&*store, *tree) == *expected, "{path}: tree {}", tree.0);
            }
            assert!(again.device.read_file(&path) == bytes, "{path}: it was changed");
            // With a damaged log, too, nothing is truncated.
            let (log, _) = device
                .files()
                .into_iter()
                .find(|(path, length)| {
                    path.starts_with("log/") && !path.contains("spare") && *length > 0
                })
                .expect("there is a log");
            device.flip_bit(&log, 8 * (format::log_segment::RECORDS_START + 20));
            let cut = LsmStore::cut_log(&SimEnv::on(device.copy(), 1).env(), &options());
            if other > number {
                assert!(matches!(&cut, Err(Error::Corrupt(bad)) if bad.file == path), "{cut:?}");
            }
        }
    }
}

/// What may have had the name, or the number in the file, is not given up. The store stays closed,
/// and the error names the file to remove, or its right name.
#[test]
fn no_older_state_is_used_where_a_misnamed_manifest_may_be_newer() {
    let (sim, store) = store(13);
    let mut random = fastrand::Rng::with_seed(13);
    let mut model = Model::new();
    change(&store, &mut model, &mut random, 1);
    checked(&store);
    let older = sim.device.copy();
    for round in 2..6 {
        change(&store, &mut model, &mut random, round);
        checked(&store);
        settle(&store);
    }
    store.close().expect("close");
    drop(store);
    let refused = |device: &SimDevice, files_named: &[&str], place: &str| {
        let before = files(device);
        let sim = SimEnv::on(device.copy(), 1);
        let refused = LsmStore::open(&sim.env(), &options());
        let error = match refused {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{place}: it opened"),
        };
        assert!(files(&sim.device) == before, "{place}: something was changed");
        let reported = inspected(&sim).findings;
        for name in files_named {
            let is_reported = reported
                .iter()
                .any(|found| format!("{}: {}", found.file, found.what).contains(name));
            assert!(is_reported, "{place}: {name}: {reported:?}, {error}");
        }
        assert!(
            !reported.iter().any(|found| found.remedy == store::Remedy::MoveAway),
            "{place}: {reported:?}"
        );
    };
    let bytes_of = |device: &SimDevice, path: &str| device.read_file(path);
    // The older one was copied over both of the newest, and is under its own name, too.
    let device = sim.device.copy();
    let old = newest(&older);
    for path in newest(&device) {
        put(&device, &bytes_of(&older, &old[0]), &path);
    }
    for path in &old {
        put(&device, &bytes_of(&older, path), path);
    }
    let both = newest(&device);
    refused(&device, &[&both[0]], "copied over both");
    // The newest got the name of a number above and of one below that of an older one.
    let both = newest(&sim.device);
    let number = *manifests(&sim.device).last_key_value().expect("there is one").0;
    let device = sim.device.copy();
    let renamed = format!("lsm/manifest-{:016x}", number + 5);
    put(&device, &bytes_of(&device, &both[0]), &renamed);
    for path in &both {
        device.delete(path);
    }
    refused(&device, &[&renamed, &format!("lsm/manifest-{number:016x}")], "nothing else is there");
    for path in &old {
        put(&device, &bytes_of(&older, path), path);
    }
    refused(&device, &[&renamed, &format!("lsm/manifest-{number:016x}")], "an older one is there");
    // Everything of the older one exists.
    let device = older.copy();
    put(&device, &bytes_of(&sim.device, &both[0]), &renamed);
    refused(
        &device,
        &[&renamed, &format!("lsm/manifest-{number:016x}")],
        "an older state is there",
    );
}
