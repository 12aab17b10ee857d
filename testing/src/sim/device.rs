//! The handle that the code under test uses as its `Device`, and that a test drives.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use device::sync::{Condvar, Mutex, MutexGuard};
use device::{Error, Result};

use super::CrashPolicy;
use super::content::{BLOCK, Change};
use super::crash;
use super::disk::{Disk, NodeNo};
use super::fault::{Fault, Op};

/// A simulated disk. A clone is another handle of the same one; [`SimDevice::copy`] is another
/// disk.
#[derive(Clone)]
pub struct SimDevice {
    pub(super) state: Arc<Mutex<State>>,
    /// Signals that a call is held, or that held calls continue.
    turn: Arc<Condvar>,
}

/// Called before each operation.
type Watcher = Box<dyn FnMut(&SimDevice, u64) + Send>;

/// Calls so far, and their bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of each kind.
    pub calls: BTreeMap<Op, u64>,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Prefetched ranges, with their files' paths.
    pub prefetched: Vec<(String, u64, u64)>,
}

impl Counts {
    /// Calls of one kind.
    pub fn of(&self, op: Op) -> u64 {
        self.calls.get(&op).copied().unwrap_or(0)
    }
}

pub(super) struct State {
    pub(super) disk: Disk,
    pub(super) random: fastrand::Rng,
    pub(super) counts: Counts,
    pub(super) locked: BTreeSet<NodeNo>,
    ops: u64,
    crash_at: u64,
    power_is_cut: bool,
    faults: Vec<Fault>,
    watcher: Option<Watcher>,
    holds: Vec<Fault>,
    /// Calls that are held.
    held: usize,
    /// How often they were released.
    let_go: u64,
}

impl SimDevice {
    /// An empty disk of unbounded size.
    pub fn new(seed: u64) -> SimDevice {
        SimDevice::with(Disk::new(), seed)
    }

    fn with(disk: Disk, seed: u64) -> SimDevice {
        SimDevice {
            state: Arc::new(Mutex::new(State {
                disk,
                random: fastrand::Rng::with_seed(seed),
                counts: Counts::default(),
                locked: BTreeSet::new(),
                ops: 0,
                crash_at: u64::MAX,
                power_is_cut: false,
                faults: Vec::new(),
                watcher: None,
                holds: Vec::new(),
                held: 0,
                let_go: 0,
            })),
            turn: Arc::default(),
        }
    }

    /// Another disk with the same bytes, including pending ones; nothing is open or locked, and
    /// counters, faults and watchers are reset.
    #[must_use]
    pub fn copy(&self) -> SimDevice {
        let state = self.state.lock();
        let seed = state.random.clone().u64(..);
        let mut disk = state.disk.clone();
        drop(state);
        let mut nameless = Vec::new();
        for (&node, file) in &mut disk.files {
            file.handles = 0;
            if file.names == 0 {
                nameless.push(node);
            }
        }
        for node in nameless {
            disk.release(node);
        }
        SimDevice::with(disk, seed)
    }

    /// A possible state of the disk after a power cut now.
    #[must_use]
    pub fn after_crash(&self, policy: CrashPolicy, seed: u64) -> SimDevice {
        let mut random = fastrand::Rng::with_seed(seed);
        let disk = crash::after(&self.state.lock().disk, policy, &mut random);
        SimDevice::with(disk, seed)
    }

    /// Operations so far: calls that change the disk, failed ones included.
    pub fn ops(&self) -> u64 {
        self.state.lock().ops
    }

    /// Calls so far.
    pub fn counts(&self) -> Counts {
        self.state.lock().counts.clone()
    }

    /// Cuts the power before operation `op` (from 0, as [`SimDevice::ops`] counts): it and every
    /// later call fail.
    pub fn crash_at(&self, op: u64) {
        self.state.lock().crash_at = op;
    }

    /// Whether the power is cut.
    pub fn has_crashed(&self) -> bool {
        self.state.lock().power_is_cut
    }

    /// Before each operation calls `watcher` with a copy of the disk and the operation's number, so
    /// that one run visits every crash point. The watcher must not use this disk.
    pub fn watch(&self, watcher: impl FnMut(&SimDevice, u64) + Send + 'static) {
        self.state.lock().watcher = Some(Box::new(watcher));
    }

    /// Ends [`SimDevice::watch`].
    pub fn unwatch(&self) {
        self.state.lock().watcher = None;
    }

    /// Adds a fault.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Removes the faults that have not struck.
    pub fn clear_faults(&self) {
        self.state.lock().faults.clear();
    }

    /// Whether an added fault has not struck yet.
    pub fn faults_left(&self) -> bool {
        self.state.lock().faults.iter().any(|fault| fault.times > 0)
    }

    /// Holds the calls that match a fault, instead of failing them, until [`SimDevice::let_go`]:
    /// simulates a disk that is slow there, while other calls pass.
    pub fn hold(&self, calls: Fault) {
        self.state.lock().holds.push(calls);
    }

    /// Waits until a call is held, at most for a given time; returns whether one is.
    pub fn is_held_within(&self, most: Duration) -> bool {
        let mut state = self.state.lock();
        self.turn.wait_while_for(&mut state, |state| state.held == 0, most);
        state.held > 0
    }

    /// Releases the held calls, and holds no more.
    pub fn let_go(&self) {
        let mut state = self.state.lock();
        state.holds.clear();
        state.let_go += 1;
        drop(state);
        self.turn.notify_all();
    }

    /// Sets the size of the disk in bytes; existing data stays.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().disk.blocks_max = bytes.map(|bytes| bytes / BLOCK);
    }

    /// Sets the size that the disk states, all of it free, and limits nothing. Of a small disk a
    /// volume takes less for its log, which each opening reads whole.
    pub fn state_size(&self, bytes: u64) {
        self.state.lock().disk.stated = Some(bytes);
    }

    /// Used space, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().disk.blocks_used * BLOCK
    }

    /// All files with their lengths, by path.
    pub fn files(&self) -> Vec<(String, u64)> {
        let state = self.state.lock();
        let mut found = Vec::new();
        let mut to_visit = vec![(String::new(), super::disk::ROOT)];
        while let Some((path, node)) = to_visit.pop() {
            for (name, &child) in &state.disk.dirs[&node].current {
                let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                match state.disk.files.get(&child) {
                    Some(file) => found.push((path, file.current.length())),
                    None => to_visit.push((path, child)),
                }
            }
        }
        found.sort();
        found
    }

    /// The bytes of a file.
    pub fn read_file(&self, path: &str) -> Vec<u8> {
        let mut state = self.state.lock();
        let node = state.disk.find_file(path).expect("invariant: the test names a file");
        state.disk.file(node).current.to_vec()
    }

    /// Damage: flips a bit of a file, counted from its first byte's lowest bit.
    pub fn flip_bit(&self, path: &str, bit: u64) {
        self.damage(path, |content| {
            let mut byte = [0];
            assert_eq!(content.read(&mut byte, bit / 8), 1, "bit {bit} is beyond the end");
            content.write(&[byte[0] ^ 1 << (bit % 8)], bit / 8);
        });
    }

    /// Damage: overwrites bytes of a file.
    pub fn overwrite(&self, path: &str, offset: u64, bytes: &[u8]) {
        self.damage(path, |content| content.write(bytes, offset));
    }

    /// Damage: truncates a file.
    pub fn truncate(&self, path: &str, length: u64) {
        self.damage(path, |content| content.apply(&Change::SetLen(length)));
    }

    /// Damage: removes a file durably.
    pub fn delete(&self, path: &str) {
        let mut state = self.state.lock();
        let (directory, _) = path.rsplit_once('/').unwrap_or(("", path));
        let removed = state.disk.remove(path);
        removed.and_then(|()| state.disk.sync_dir(directory)).expect("invariant: it is there");
    }

    fn damage(&self, path: &str, mut change: impl FnMut(&mut super::content::Content)) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let node = state.disk.find_file(path).expect("invariant: the test names a file");
        state.disk.sync_file(node);
        let file = state.disk.file(node);
        let before = file.current.blocks_reserved();
        change(&mut file.current);
        change(&mut file.durable);
        let after = file.current.blocks_reserved();
        state.disk.blocks_used = state.disk.blocks_used - before + after;
    }

    /// Counts a call and lets it pass, or returns its error.
    pub(super) fn begin(&self, op: Op, path: &str) -> std::result::Result<Entered<'_>, io::Error> {
        let mut state = self.state.lock();
        if op.changes() && !state.power_is_cut && state.watcher.is_some() {
            state = self.call_watcher(state);
        }
        if state.holds.iter_mut().fold(false, |held, hold| held | hold.strikes(op, path)) {
            let times = state.let_go;
            state.held += 1;
            self.turn.notify_all();
            self.turn.wait_while(&mut state, |state| state.let_go == times);
            state.held -= 1;
        }
        if op.changes() && state.ops >= state.crash_at {
            state.power_is_cut = true;
        }
        if state.power_is_cut {
            return Err(io::Error::other("the power is cut"));
        }
        if op.changes() {
            state.ops += 1;
        }
        *state.counts.calls.entry(op).or_default() += 1;
        let mut fault = None;
        for ordered in &mut state.faults {
            if ordered.strikes(op, path) && fault.is_none() {
                fault = Some(ordered.error);
            }
        }
        Ok(Entered { state, fault: fault.map(|fault| fault.to_io()) })
    }

    /// The watcher may take long and runs whole stores, so it is called without the lock.
    fn call_watcher<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(mut watcher) = state.watcher.take() else { return state };
        let number = state.ops;
        drop(state);
        watcher(&self.copy(), number);
        let mut state = self.state.lock();
        state.watcher = Some(watcher);
        state
    }

    /// A call that has no effect if it fails.
    pub(super) fn simple<T>(
        &self,
        op: Op,
        operation: &'static str,
        path: &str,
        body: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> Result<T> {
        let run = || {
            let Entered { mut state, fault } = self.begin(op, path)?;
            match fault {
                Some(error) => Err(error),
                None => body(&mut state),
            }
        };
        run().map_err(|error| Error::new(operation, path, error))
    }
}

/// A counted call: the state to work on, and its error if it must fail.
pub(super) struct Entered<'a> {
    pub(super) state: MutexGuard<'a, State>,
    pub(super) fault: Option<io::Error>,
}
