//! What the tests of logs in objects share: a log whose manifest the test keeps, and an object
//! store whose requests can be held.

use std::sync::Arc;
use std::time::Duration;

use device::sync::{Condvar, Mutex};
use device::{Blobs, Env, OverBlobs};
use store::{
    Log, LogKey, LogObjects, LogOptions, LogPosition, LogSpace, Lsn, ObjectLogSettings,
    ObjectPlace, Opening, Result,
};
use testing::{FarBlobs, SimEnv, sim_env};

pub(crate) const VOLUME: [u8; 16] = [0x5b; 16];

pub(crate) fn options() -> LogOptions {
    LogOptions {
        key: LogKey([4; 16]),
        write_bytes: 2000,
        buffer_bytes_max: 8000,
        window: Duration::ZERO,
        ..LogOptions::default()
    }
}

pub(crate) fn settings() -> ObjectLogSettings {
    ObjectLogSettings {
        in_flight: 4,
        patience: Duration::ZERO,
        pause: Duration::from_millis(10),
        ..ObjectLogSettings::default()
    }
}

/// What a manifest records of the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    pub(crate) epoch: u64,
    pub(crate) position: LogPosition,
    pub(crate) lsn: Lsn,
}

/// A log and its environment.
pub(crate) struct Opened {
    pub(crate) log: Log,
    pub(crate) sim: SimEnv,
    pub(crate) opening: Opening,
    /// The records that were replayed.
    pub(crate) records: Vec<(u64, Vec<u8>)>,
}

fn place(blobs: &Arc<dyn Blobs>, opening: Opening, settings: ObjectLogSettings) -> ObjectPlace {
    let objects = LogObjects { blobs: Arc::clone(blobs), settings };
    ObjectPlace { objects, volume: VOLUME, opening }
}

/// The log of a new store.
pub(crate) fn create(blobs: &Arc<dyn Blobs>, settings: ObjectLogSettings) -> (Opened, State) {
    let sim = sim_env(1);
    let opening = Opening { epoch: 1, id: [1; 16] };
    let log = Log::create_in_objects(&sim.env(), &options(), &place(blobs, opening, settings));
    log.announce();
    let state = State { epoch: 1, position: LogPosition::start_of(opening), lsn: Lsn(0) };
    (Opened { log, sim, opening, records: Vec::new() }, state)
}

/// Opens the log after a state, with the next epoch, and makes its own log the state's: as after a
/// checkpoint.
pub(crate) fn open(
    blobs: &Arc<dyn Blobs>,
    settings: ObjectLogSettings,
    state: &mut State,
) -> Result<Opened> {
    let sim = sim_env(state.epoch + 1);
    let opened = open_in(&sim.env(), sim.clone(), blobs, settings, state)?;
    opened.log.announce();
    Ok(opened)
}

fn open_in(
    env: &Env,
    sim: SimEnv,
    blobs: &Arc<dyn Blobs>,
    settings: ObjectLogSettings,
    state: &mut State,
) -> Result<Opened> {
    state.epoch += 1;
    let opening = Opening { epoch: state.epoch, id: [state.epoch as u8; 16] };
    let mut records = Vec::new();
    let mut replay = |lsn: Lsn, payload: &[u8]| {
        records.push((lsn.0, payload.to_vec()));
        Ok(())
    };
    let place = place(blobs, opening, settings);
    let from = (state.position, state.lsn);
    let (log, _) = Log::open_in_objects(env, &options(), &place, from, &mut replay)?;
    (state.position, state.lsn) = (log.position(log.last()).expect("objects"), log.last());
    Ok(Opened { log, sim, opening, records })
}

/// What a check of the log finds, which changes nothing.
pub(crate) fn verified(blobs: &Arc<dyn Blobs>, state: &State) -> Result<()> {
    let opening = Opening { epoch: state.epoch + 1, id: [9; 16] };
    let place = place(blobs, opening, settings());
    let from = (state.position, state.lsn);
    Log::verify_in_objects(&options(), &place, from, &mut |_| Ok(())).end.map(drop)
}

pub(crate) fn payload(lsn: u64) -> Vec<u8> {
    (0..20 + lsn % 300).map(|at| (at * 7 + lsn) as u8).collect()
}

pub(crate) fn append(log: &Log, count: u64) {
    for _ in 0..count {
        let next = log.last().0 + 1;
        assert_eq!(log.append(&payload(next), LogSpace::Normal).expect("append"), Lsn(next));
    }
}

/// Asserts that the replayed records are those from `first` to `last`.
#[track_caller]
pub(crate) fn assert_records(opened: &Opened, first: u64, last: u64) {
    let numbers: Vec<u64> = opened.records.iter().map(|(lsn, _)| *lsn).collect();
    assert_eq!(numbers, (first..=last).collect::<Vec<_>>());
    assert!(opened.records.iter().all(|(lsn, bytes)| *bytes == payload(*lsn)));
}

/// Objects in memory, as a trait object and with the means to order mishaps.
pub(crate) fn far() -> (Arc<FarBlobs>, Arc<dyn Blobs>) {
    let far = FarBlobs::new();
    let blobs: Arc<dyn Blobs> = Arc::<FarBlobs>::clone(&far);
    (far, blobs)
}

/// An object store that holds creations of some names until a test releases them.
pub(crate) struct Held {
    blobs: Arc<dyn Blobs>,
    state: Mutex<HeldState>,
    changed: Condvar,
}

#[derive(Default)]
struct HeldState {
    /// Names that are held.
    names: Vec<String>,
    /// Creations that wait.
    waiting: usize,
}

impl Held {
    pub(crate) fn new(blobs: &Arc<dyn Blobs>) -> Arc<Held> {
        let blobs = Arc::clone(blobs);
        Arc::new(Held { blobs, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Holds the creation of this name, before it reaches the store.
    pub(crate) fn hold(&self, name: &str) {
        self.state.lock().names.push(name.to_owned());
    }

    /// Waits until so many creations are held.
    pub(crate) fn wait_for(&self, count: usize) {
        let mut state = self.state.lock();
        while state.waiting < count {
            self.changed.wait(&mut state);
        }
    }

    /// Sends everything that is held, and holds nothing more.
    pub(crate) fn release(&self) {
        self.state.lock().names.clear();
        self.changed.notify_all();
    }
}

impl OverBlobs for Held {
    fn below(&self) -> &dyn Blobs {
        &*self.blobs
    }

    fn create(&self, name: &str, bytes: &[u8]) -> device::Result<bool> {
        let mut state = self.state.lock();
        if state.names.iter().any(|held| held == name) {
            state.waiting += 1;
            self.changed.notify_all();
            while state.names.iter().any(|held| held == name) {
                self.changed.wait(&mut state);
            }
            state.waiting -= 1;
        }
        drop(state);
        self.blobs.create(name, bytes)
    }
}

/// The name of a log object.
pub(crate) fn name(epoch: u64, number: u64) -> String {
    format!("log/{epoch:016x}/{number:016x}")
}
