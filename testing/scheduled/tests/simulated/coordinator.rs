//! A coordinator of servers in memory, as etcd is one. It has leases by a clock of its own, and a
//! state that may be yesterday's. Calls are slow, lost before or after they are executed, or cut
//! off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::{Coordinator, Error, Item, Lease, Put, Result};
use device::sync::Mutex;
use device::{Clock, SystemClock};
use testing::sim::Host;

/// The longest time of a call to it, and of the answer.
const USUAL: Duration = Duration::from_millis(3);
/// How long a client waits for an answer, as the program does.
const PATIENCE: Duration = Duration::from_secs(2);
/// A lease may live so much longer than it must.
const SLACK: Duration = Duration::from_millis(700);

/// What is lost by a restoration.
#[derive(Clone, Default)]
struct Kept {
    names: BTreeMap<String, Item>,
    leases: BTreeMap<Lease, Granted>,
    revision: u64,
}

#[derive(Clone)]
struct Granted {
    length: Duration,
    ends: Duration,
}

struct State {
    random: fastrand::Rng,
    kept: Kept,
    /// As it was some time ago.
    backup: Kept,
    next_lease: u64,
    /// How fast its clock runs, in thousandths.
    rate: u32,
    /// Of a thousand calls so many get no answer; half of them are executed.
    lost: u32,
    stalled_until: Duration,
    full_until: Duration,
    divided: BTreeMap<u8, Duration>,
    dead: BTreeSet<Host>,
}

/// A coordinator.
pub(crate) struct SimCoordinator {
    clock: SystemClock,
    state: Mutex<State>,
}

impl SimCoordinator {
    pub(crate) fn new(seed: u64) -> Arc<SimCoordinator> {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x6574_6364);
        let state = State {
            kept: Kept::default(),
            backup: Kept::default(),
            next_lease: 1,
            rate: random.u32(900..1100),
            lost: *random.choice(&[0, 0, 5, 30]).unwrap_or(&0),
            random,
            stalled_until: Duration::ZERO,
            full_until: Duration::ZERO,
            divided: BTreeMap::new(),
            dead: BTreeSet::new(),
        };
        Arc::new(SimCoordinator { clock: SystemClock::new(), state: Mutex::new(state) })
    }

    /// It, as a machine reaches it.
    pub(crate) fn of(self: &Arc<SimCoordinator>, host: Host) -> Arc<dyn Coordinator> {
        Arc::new(Of { all: Arc::clone(self), host })
    }

    /// A machine reaches it no more.
    pub(crate) fn kill(&self, host: Host) {
        self.state.lock().dead.insert(host);
    }

    /// Keeps a place from reaching it, for a time.
    pub(crate) fn divide(&self, place: u8, time: Duration) {
        let until = self.clock.monotonic() + time;
        self.state.lock().divided.insert(place, until);
    }

    /// Answers nothing for a time.
    pub(crate) fn stall(&self, time: Duration) {
        self.state.lock().stalled_until = self.clock.monotonic() + time;
    }

    /// Takes no more names for a time.
    pub(crate) fn fill(&self, time: Duration) {
        self.state.lock().full_until = self.clock.monotonic() + time;
    }

    /// All leases end now, also those of servers that live.
    pub(crate) fn end_leases(&self) {
        let kept = &mut self.state.lock().kept;
        kept.leases.clear();
        kept.names.retain(|_, item| item.lease.is_none());
        kept.revision += 1;
    }

    /// Begins again with the state of its last backup.
    pub(crate) fn restore(&self) {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        state.kept = state.backup.clone();
        // A new leader lets all leases live for their whole length again.
        for granted in state.kept.leases.values_mut() {
            granted.ends = now + granted.length;
        }
    }

    /// Is kept for a restoration as it is now.
    pub(crate) fn back_up(&self) {
        let mut state = self.state.lock();
        state.backup = state.kept.clone();
    }

    /// Ends what goes wrong.
    pub(crate) fn heal(&self) {
        let mut state = self.state.lock();
        state.divided.clear();
        state.lost = 0;
        (state.stalled_until, state.full_until) = (Duration::ZERO, Duration::ZERO);
    }
}

impl State {
    fn end_old(&mut self, now: Duration) {
        let over: Vec<Lease> = self
            .kept
            .leases
            .iter()
            .filter(|(_, granted)| granted.ends <= now)
            .map(|(lease, _)| *lease)
            .collect();
        for lease in over {
            self.end(lease);
        }
    }

    fn end(&mut self, lease: Lease) {
        self.kept.leases.remove(&lease);
        self.kept.names.retain(|_, item| item.lease != Some(lease));
        self.kept.revision += 1;
    }

    /// When a lease ends that begins now, by the clock of the coordinator.
    fn ends(&mut self, now: Duration, length: Duration) -> Duration {
        now + length * self.rate / 1000 + SLACK.mul_f64(self.random.f64())
    }
}

/// It, as one machine reaches it.
struct Of {
    all: Arc<SimCoordinator>,
    host: Host,
}

fn unreachable() -> Error {
    Error::Unreachable("no answer".to_owned())
}

fn pass(clock: &SystemClock, time: Duration) {
    if !time.is_zero() {
        clock.sleep(time);
    }
}

impl Of {
    fn call<T>(&self, run: impl FnOnce(&mut State, Duration) -> Result<T>) -> Result<T> {
        let (clock, all) = (&self.all.clock, &self.all);
        let (is_cut, is_lost, is_executed, there, back) = {
            let now = clock.monotonic();
            let mut state = all.state.lock();
            if state.dead.contains(&self.host) {
                return Err(unreachable());
            }
            let until = state.divided.get(&self.host.place).copied().unwrap_or_default();
            let is_cut = now < until.max(state.stalled_until);
            let is_lost = state.random.u32(..1000) < state.lost;
            let is_executed = !is_lost || state.random.bool();
            // Each takes a turn: most calls take no time.
            let takes = USUAL.mul_f64(state.random.f64());
            let (there, back) = match state.random.u32(..8) {
                0 => (Duration::ZERO, takes),
                1 => (takes, Duration::ZERO),
                _ => (Duration::ZERO, Duration::ZERO),
            };
            (is_cut, is_lost, is_executed, there, back)
        };
        if is_cut {
            clock.sleep(PATIENCE);
            return Err(unreachable());
        }
        pass(clock, there);
        let done = is_executed.then(|| {
            let now = clock.monotonic();
            let mut state = all.state.lock();
            if state.dead.contains(&self.host) {
                return Err(unreachable());
            }
            state.end_old(now);
            run(&mut state, now)
        });
        pass(clock, if is_lost { PATIENCE } else { back });
        done.filter(|_| !is_lost && !self.is_dead()).unwrap_or_else(|| Err(unreachable()))
    }

    fn is_dead(&self) -> bool {
        self.all.state.lock().dead.contains(&self.host)
    }
}

impl Coordinator for Of {
    fn grant(&self, length: Duration) -> Result<Lease> {
        self.call(|state, now| {
            let lease = Lease(state.next_lease);
            // (Never used again, also after a restoration: they are random.)
            state.next_lease += 1;
            let ends = state.ends(now, length);
            state.kept.leases.insert(lease, Granted { length, ends });
            Ok(lease)
        })
    }

    fn keep_alive(&self, lease: Lease) -> Result<()> {
        self.call(|state, now| {
            let length = state.kept.leases.get(&lease).ok_or(Error::LeaseEnded)?.length;
            let ends = state.ends(now, length);
            state.kept.leases.insert(lease, Granted { length, ends });
            Ok(())
        })
    }

    fn revoke(&self, lease: Lease) -> Result<()> {
        self.call(|state, _| {
            state.end(lease);
            Ok(())
        })
    }

    fn put_if_absent(&self, key: &str, value: &[u8], lease: Option<Lease>) -> Result<Put> {
        self.call(|state, now| {
            if lease.is_some_and(|lease| !state.kept.leases.contains_key(&lease)) {
                return Err(Error::LeaseEnded);
            }
            if let Some(item) = state.kept.names.get(key) {
                return Ok(Put::Exists(item.clone()));
            }
            if now < state.full_until {
                return Err(Error::Full("etcd".to_owned()));
            }
            state.kept.revision += 1;
            let revision = state.kept.revision;
            let item = Item { key: key.to_owned(), value: value.to_vec(), revision, lease };
            state.kept.names.insert(key.to_owned(), item);
            Ok(Put::Made(revision))
        })
    }

    fn get(&self, key: &str) -> Result<Option<Item>> {
        self.call(|state, _| Ok(state.kept.names.get(key).cloned()))
    }

    fn list(&self, prefix: &str) -> Result<Vec<Item>> {
        self.call(|state, _| {
            let names = state.kept.names.range(prefix.to_owned()..);
            let below = names.take_while(|(key, _)| key.starts_with(prefix));
            Ok(below.map(|(_, item)| item.clone()).collect())
        })
    }

    fn remove(&self, key: &str, revision: u64) -> Result<bool> {
        self.call(|state, _| {
            let is_it = state.kept.names.get(key).is_some_and(|item| item.revision == revision);
            if is_it {
                state.kept.names.remove(key);
                state.kept.revision += 1;
            }
            Ok(is_it)
        })
    }
}
