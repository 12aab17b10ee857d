//! Power is cut before every write and sync of a mixed script. Namespace, contents, snapshots and
//! clones are then in a state that the volume went through, at least the last that was synced.
//! Background work after the crash changes nothing. Queries and totals from the index then equal
//! those of walks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use btree::BtreeStore;
use device::sync::Mutex;
use format::volume::{EngineKind, VolumeHeader};
use fs::{Engine, OpenOptions};
use inode::NodeId;
use lsm::LsmStore;
use store::Durability;
use testing::{CrashPolicy, Fault, FaultOn, SimDevice, SimEnv};

use crate::script::{Script, States, Step, check_state, options, scale};
use crate::subject::{Base, FsSubject};

/// Operations of one script.
const STEPS: u64 = 120;

/// How the volume is opened again, and how many clusters of the index queries read then.
struct How {
    options: OpenOptions,
    base: Base,
    clusters: Arc<AtomicU64>,
}

/// Opens what a crash left, and verifies it. Returns the state that it is in, which is
/// durable then.
fn check_disk(disk: &SimDevice, how: &How, states: &States, place: &str) -> States {
    let mut subject = match FsSubject::open(disk, &how.options, &how.base) {
        Ok(subject) => subject,
        Err(error) => panic!("{place}, in {}: does not open: {error}", states.doing),
    };
    let at = check_state(&mut subject, states, place);
    let mut random = fastrand::Rng::with_seed(states.dumps.len() as u64);
    let read = crate::search::compare(subject.fs(), &mut random, 2, place);
    how.clusters.fetch_add(read, Ordering::SeqCst);
    subject.background(1000).unwrap_or_else(|error| panic!("{place}: background: {error}"));
    crate::search::compare(subject.fs(), &mut random, 1, place);
    let only = States { dumps: vec![Arc::clone(&states.dumps[at])], ..States::default() };
    check_state(&mut subject, &only, &format!("{place}, after background work"));
    subject.fs().close().unwrap_or_else(|error| panic!("{place}: close: {error}"));
    drop(subject);
    if !matches!(how.base, Base::Oracle(_)) {
        check_store(disk, place);
    }
    only
}

/// Checks all that the closed volume's store has on disk.
fn check_store(disk: &SimDevice, place: &str) {
    let header = VolumeHeader::decode(&disk.read_file(format::volume::FILE));
    let header = header.unwrap_or_else(|error| panic!("{place}: {error}"));
    let (volume, log_key) = (header.volume_id, store::LogKey(header.hash_key));
    let log_segment_bytes = 256 << 10;
    let common = store::EngineOptions { volume, log_key, log_segment_bytes, ..Default::default() };
    let env = SimEnv::on(disk.clone(), 1).env();
    let report = match header.engine {
        EngineKind::Btree => {
            let options = btree::Options { common, ..btree::Options::default() };
            BtreeStore::open(&env, &options).and_then(|store| btree::check(&store))
        }
        EngineKind::Lsm => {
            let options = lsm::Options { common, ..lsm::Options::default() };
            LsmStore::open(&env, &options).and_then(|store| lsm::check(&store))
        }
    };
    let report = report.unwrap_or_else(|error| panic!("{place}: check: {error}"));
    assert!(report.is_clean(), "{place}: {report:?}");
}

fn check_crash(disk: &SimDevice, op: u64, how: &How, states: &Mutex<States>) {
    let states = states.lock();
    for policy in CrashPolicy::at(op) {
        let seed = op * 3 + policy as u64;
        let after = disk.after_crash(policy, seed);
        let place = format!("before operation {op}, {policy:?} {seed}");
        check_disk(&after, how, &states, &place);
    }
    if op.is_multiple_of(scale(4, 1)) {
        check_killed(disk, op, how, &states);
    }
}

/// The process was killed, and the next one reads what was never made durable; when that has
/// closed the volume, power is cut.
fn check_killed(disk: &SimDevice, op: u64, how: &How, states: &States) {
    let left = disk.copy();
    let found = check_disk(&left, how, states, &format!("killed before operation {op}"));
    let cut = left.after_crash(CrashPolicy::LoseAll, op);
    check_disk(&cut, how, &found, &format!("killed before operation {op}, later cut"));
}

/// How many points there were, and how many clusters of the index were read after them. In every
/// other script the index gets a base after the first half. Queries are then answered by clusters
/// and by the differences from them.
fn enumerate(seed: u64, durability: Durability, base: &Base) -> [u64; 2] {
    let device = SimDevice::new(seed);
    let mut script = Script::new(&device, seed, durability, base);
    let (points, clusters) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (states, counted) = (Arc::clone(&script.states), Arc::clone(&points));
    let base = script.subject.base().clone();
    let how = How { options: options(durability), base, clusters: Arc::clone(&clusters) };
    let before = if seed % 2 == 1 { STEPS / 2 } else { 0 };
    for _ in 0..before {
        assert_eq!(script.step(), Step::Done);
    }
    if before > 0 {
        script.subject.fs().index_flush(NodeId::ROOT).expect("a flush goes well");
    }
    device.watch(move |disk, op| {
        counted.fetch_add(1, Ordering::SeqCst);
        check_crash(disk, op, &how, &states);
    });
    for _ in before..STEPS {
        assert_eq!(script.step(), Step::Done);
    }
    device.unwatch();
    script.compare();
    [points, clusters].map(|count| count.load(Ordering::SeqCst))
}

#[expect(clippy::print_stdout, reason = "a failure is found again by its seed")]
fn enumerate_all(seeds: u64, base: &Base) {
    let (mut points, mut clusters) = (0, 0);
    for seed in 0..seeds {
        println!("seed {seed}");
        let durability = if seed % 4 == 3 { Durability::Sync } else { Durability::Async };
        let [more, read] = enumerate(seed, durability, base);
        (points, clusters) = (points + more, clusters + read);
    }
    println!(
        "{points} crash points, {} ways each; {clusters} clusters",
        CrashPolicy::at(0).count()
    );
    assert!(points > 100, "the script is too short to prove anything: {points}");
    assert!(clusters > points / 3, "the index is hardly used after crashes: {clusters} clusters");
}

/// What opens as a volume is one after a power cut, too, when it was closed.
fn stays_a_volume(left: &SimDevice, op: u64, base: &Base) -> bool {
    let options = options(Durability::Async);
    let left = left.copy();
    let Ok(volume) = FsSubject::open(&left, &options, base) else { return false };
    volume.fs().close().unwrap_or_else(|error| panic!("operation {op}: {error}"));
    drop(volume);
    let cut = left.after_crash(CrashPolicy::LoseAll, op);
    if let Err(error) = FsSubject::open(&cut, &options, base) {
        panic!("killed before operation {op}, later cut: {error}");
    }
    true
}

/// Formatting is killed anywhere, and the next process finds a volume all the same, and may be
/// killed as well.
#[test]
fn a_volume_that_opens_after_a_killed_format_keeps_opening() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let device = SimDevice::new(1);
        let base = Base::Engine(engine);
        let opened = Arc::new(AtomicU64::new(0));
        let (watched, counted) = (base.clone(), Arc::clone(&opened));
        device.watch(move |disk, op| {
            if !stays_a_volume(disk, op, &watched) {
                return;
            }
            counted.fetch_add(1, Ordering::SeqCst);
            let second = disk.copy();
            let base = watched.clone();
            second.watch(move |disk, op| {
                stays_a_volume(disk, op, &base);
            });
            FsSubject::open(&second, &options(Durability::Async), &watched).expect("as before");
            second.unwatch();
        });
        // It opens the volume, too.
        drop(FsSubject::format(&device, &options(Durability::Async), &base));
        device.unwatch();
        assert!(opened.load(Ordering::SeqCst) > 1);
    }
}

#[test]
fn crash_at_every_write_and_sync_loses_nothing_that_was_synced() {
    enumerate_all(scale(4, 200), &Base::Engine(Engine::Btree));
}

#[test]
fn crash_at_every_write_and_sync_on_the_log_structured_engine_loses_nothing() {
    enumerate_all(scale(3, 200), &Base::Engine(Engine::Lsm));
}

#[test]
fn crash_at_every_write_and_sync_on_value_logs_loses_nothing() {
    enumerate_all(scale(2, 200), &Base::Column);
}

#[test]
fn crash_at_every_write_and_sync_over_the_oracle_loses_nothing_that_was_synced() {
    enumerate_all(scale(2, 300), &Base::Oracle(None));
}

#[test]
fn crash_after_a_failed_write_or_sync_loses_nothing_that_was_synced() {
    crash_after_faults(&Base::Engine(Engine::Btree), scale(10, 400));
}

#[test]
fn crash_after_a_failed_write_or_sync_on_the_log_structured_engine_loses_nothing() {
    crash_after_faults(&Base::Engine(Engine::Lsm), scale(10, 400));
}

#[test]
fn crash_after_a_failed_write_or_sync_on_value_logs_loses_nothing() {
    crash_after_faults(&Base::Column, scale(10, 400));
}

#[expect(clippy::print_stdout, reason = "a failure is found again by its seed")]
fn crash_after_faults(base: &Base, seeds: u64) {
    for seed in 0..seeds {
        println!("seed {seed}");
        let device = SimDevice::new(seed);
        let mut script = Script::new(&device, seed, Durability::Async, base);
        let mut random = fastrand::Rng::with_seed(seed);
        let on = if random.bool() { FaultOn::AnySync } else { FaultOn::AnyChange };
        device.inject(Fault::io(on, random.u64(..60)));
        let ended = (0..STEPS).map(|_| script.step()).find(|step| *step != Step::Done);
        assert!(ended.is_none() || !device.faults_left(), "seed {seed}: failed without a fault");
        let states = script.states.lock();
        let (base, clusters) = (base.clone(), Arc::default());
        let how = How { options: options(Durability::Async), base, clusters };
        for policy in CrashPolicy::ALL {
            let disk = device.after_crash(policy, seed);
            let place = format!("seed {seed}, after a fault on {on:?}, {policy:?}");
            check_disk(&disk, &how, &states, &place);
        }
    }
}
