//! An object store that several machines use over an unreliable connection.
//!
//! A request takes its time to the store, is executed there at one moment, and its answer takes its
//! time back. It may get lost before it is executed, or afterwards; it may land long after its
//! client gave up, or land twice. The store may stall, and may be full. A machine may be cut off
//! from it. A [`Watch`] may end the machine at any request: before the request is executed, or
//! afterwards.
//!
//! A machine that has ended gets an error for every change, and rubbish for every object. What it
//! does from then on has no effect, and its threads end soon.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use device::sync::Mutex;
use device::{Blobs, Clock, Device, Error, Result, SystemClock};

use super::net::{Fate, Host, Watch};
use crate::FarBlobs;

/// What goes wrong, of a thousand requests each.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mishaps {
    /// Requests that are not executed.
    pub lost_requests: u32,
    /// Requests whose answer gets lost.
    pub lost_answers: u32,
    /// Requests that land after their client gave up.
    pub late: u32,
    /// Requests that are executed twice.
    pub twice: u32,
}

/// How long requests take.
#[derive(Debug, Clone, Copy)]
pub struct Latency {
    /// The longest of most, to the store and back each.
    pub usual: Duration,
    /// How long a client waits for an answer.
    pub patience: Duration,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency { usual: Duration::from_millis(5), patience: Duration::from_secs(1) }
    }
}

/// How often a client sends a request that changes nothing: as those of object stores do.
const READ_ATTEMPTS: u32 = 3;

/// A request that lands later.
enum Late {
    Make(String, Vec<u8>),
    Delete(String),
}

struct State {
    random: fastrand::Rng,
    latency: Latency,
    mishaps: Mishaps,
    late: Vec<(Duration, Late)>,
    stalled_until: Duration,
    full_until: Duration,
    /// Places that do not reach the store, and until when.
    divided: BTreeMap<u8, Duration>,
    dead: BTreeSet<Host>,
    watch: Option<Arc<dyn Watch>>,
    /// How many answers get lost next.
    to_lose: u32,
    counts: StoreCounts,
}

/// What happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Requests.
    pub requests: u64,
    /// Those that were executed, and whose answer got lost.
    pub lost_answers: u64,
    /// Those that landed late.
    pub late: u64,
}

/// An object store.
pub struct SimStore {
    objects: Arc<FarBlobs>,
    clock: SystemClock,
    state: Mutex<State>,
}

impl SimStore {
    /// A store with these objects.
    pub fn new(seed: u64, objects: Arc<FarBlobs>, latency: Latency) -> Arc<SimStore> {
        let state = State {
            random: fastrand::Rng::with_seed(seed ^ 0x7374_6f72),
            latency,
            mishaps: Mishaps::default(),
            late: Vec::new(),
            stalled_until: Duration::ZERO,
            full_until: Duration::ZERO,
            divided: BTreeMap::new(),
            dead: BTreeSet::new(),
            watch: None,
            to_lose: 0,
            counts: StoreCounts::default(),
        };
        Arc::new(SimStore { objects, clock: SystemClock::new(), state: Mutex::new(state) })
    }

    /// The store as a machine uses it.
    pub fn of(self: &Arc<SimStore>, host: Host) -> Arc<dyn Blobs> {
        Arc::new(StoreOf { store: Arc::clone(self), host })
    }

    /// Asks before each request.
    pub fn watch(&self, watch: Arc<dyn Watch>) {
        self.state.lock().watch = Some(watch);
    }

    /// From now on so much goes wrong.
    pub fn mishaps(&self, mishaps: Mishaps) {
        self.state.lock().mishaps = mishaps;
    }

    /// The next request that changes something is executed, and its answer gets lost.
    pub fn lose_next_answer(&self) {
        self.state.lock().to_lose += 1;
    }

    /// Answers nothing for a time.
    pub fn stall(&self, time: Duration) {
        self.state.lock().stalled_until = self.clock.monotonic() + time;
    }

    /// Has no space for a time.
    pub fn fill(&self, time: Duration) {
        self.state.lock().full_until = self.clock.monotonic() + time;
    }

    /// Keeps a place from reaching it, for a time.
    pub fn divide(&self, place: u8, time: Duration) {
        let until = self.clock.monotonic() + time;
        self.state.lock().divided.insert(place, until);
    }

    /// Ends what keeps places from it, and what goes wrong; what is late lands later still.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.divided.clear();
        state.mishaps = Mishaps::default();
        (state.stalled_until, state.full_until) = (Duration::ZERO, Duration::ZERO);
    }

    /// A machine ends.
    pub fn kill(&self, host: Host) {
        self.state.lock().dead.insert(host);
    }

    /// What happened.
    pub fn counts(&self) -> StoreCounts {
        self.state.lock().counts
    }

    /// The objects.
    pub fn objects(&self) -> &Arc<FarBlobs> {
        &self.objects
    }

    /// Executes what lands late, up to now.
    fn land(&self) {
        let now = self.clock.monotonic();
        let landed: Vec<Late> = {
            let mut state = self.state.lock();
            let (landed, left) =
                std::mem::take(&mut state.late).into_iter().partition(|(at, _)| *at <= now);
            state.late = left;
            let landed: Vec<(Duration, Late)> = landed;
            landed.into_iter().map(|(_, late)| late).collect()
        };
        for late in landed {
            match late {
                Late::Make(name, bytes) => drop(self.objects.create(&name, &bytes)),
                Late::Delete(name) => drop(self.objects.delete(&name)),
            }
        }
    }
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Usual,
    LostRequest,
    LostAnswer,
    Late,
    Twice,
}

/// A store as one machine uses it.
struct StoreOf {
    store: Arc<SimStore>,
    host: Host,
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "this machine has ended")
}

fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer")
}

/// A request as it is executed.
type Execute<'a, T> = &'a dyn Fn(&FarBlobs) -> Result<T>;

impl StoreOf {
    fn is_dead(&self) -> bool {
        self.store.state.lock().dead.contains(&self.host)
    }

    /// Makes a request. `late`: how it lands later, if it changes something.
    fn ask<T>(
        &self,
        (operation, name): (&'static str, &str),
        late: Option<&dyn Fn() -> Late>,
        execute: Execute<'_, T>,
    ) -> Result<T> {
        let error = |error: io::Error| Error::new(operation, name, error);
        let watch = {
            let mut state = self.store.state.lock();
            if state.dead.contains(&self.host) {
                return Err(error(ended()));
            }
            state.counts.requests += 1;
            state.watch.clone()
        };
        let fate = watch.as_ref().map_or(Fate::Lives, |watch| watch.before(self.host));
        let mut attempts = if late.is_some() { 1 } else { READ_ATTEMPTS };
        let answer = loop {
            attempts -= 1;
            match fate {
                Fate::EndsBefore => break Err(error(ended())),
                _ => match self.make((operation, name), late, execute) {
                    Err(error) if attempts > 0 && error.kind == io::ErrorKind::TimedOut => {}
                    answer => break answer,
                },
            }
        };
        if fate == Fate::EndsAfter
            && let Some(watch) = &watch
        {
            watch.ends(self.host);
        }
        if self.is_dead() { Err(error(ended())) } else { answer }
    }

    /// The course of a request.
    fn make<T>(
        &self,
        (operation, name): (&'static str, &str),
        late: Option<&dyn Fn() -> Late>,
        execute: Execute<'_, T>,
    ) -> Result<T> {
        let error = |error: io::Error| Error::new(operation, name, error);
        let (course, there, back, patience) = self.course(late.is_some());
        let sleep = |time: Duration| {
            if !time.is_zero() {
                self.store.clock.sleep(time);
            }
        };
        sleep(there.min(patience));
        if there > patience || course == Course::LostRequest {
            sleep(patience.saturating_sub(there));
            return Err(error(lost()));
        }
        if course == Course::Late {
            sleep(patience.saturating_sub(there));
            self.later(late);
            return Err(error(lost()));
        }
        self.store.land();
        let full_until = self.store.state.lock().full_until;
        if operation == "create" && self.store.clock.monotonic() < full_until {
            let full = io::Error::new(io::ErrorKind::StorageFull, "no space");
            sleep(back);
            return Err(error(full));
        }
        let answer = execute(&self.store.objects);
        if course == Course::Twice {
            self.later(late);
        }
        if course == Course::LostAnswer {
            self.store.state.lock().counts.lost_answers += 1;
            sleep(patience);
            return Err(error(lost()));
        }
        sleep(back);
        answer
    }

    fn later(&self, late: Option<&dyn Fn() -> Late>) {
        let Some(late) = late else { return };
        let mut state = self.store.state.lock();
        let after = Duration::from_millis(state.random.u64(1..20_000));
        state.counts.late += 1;
        state.late.push((self.store.clock.monotonic() + after, late()));
    }

    /// What becomes of the next request: its course, its times there and back, and how long its
    /// client waits.
    fn course(&self, changes: bool) -> (Course, Duration, Duration, Duration) {
        let now = self.store.clock.monotonic();
        let mut state = self.store.state.lock();
        let State { random, latency, mishaps, stalled_until, divided, to_lose, .. } = &mut *state;
        divided.retain(|_, until| *until > now);
        let held = divided.get(&self.host.place).copied().unwrap_or(now).max(*stalled_until);
        let mut there = held.saturating_sub(now) + latency.usual.mul_f64(random.f64());
        let mut back = latency.usual.mul_f64(random.f64());
        // Half of the answers or requests take no time of their own: a turn less.
        match random.u32(..4) {
            0 => (there, back) = (there + back, Duration::ZERO),
            1 if held == now => (there, back) = (Duration::ZERO, there + back),
            _ => {}
        }
        let draw = random.u32(..1000);
        let mut limit = 0;
        let mut is_within = |share: u32| {
            limit += share;
            draw < limit
        };
        let course = if *to_lose > 0 && held == now && changes {
            *to_lose -= 1;
            Course::LostAnswer
        } else if is_within(mishaps.lost_requests) {
            Course::LostRequest
        } else if is_within(mishaps.lost_answers) {
            Course::LostAnswer
        } else if is_within(mishaps.late) && changes {
            Course::Late
        } else if is_within(mishaps.twice) && changes {
            Course::Twice
        } else {
            Course::Usual
        };
        (course, there, back, latency.patience)
    }
}

impl Blobs for StoreOf {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let late = || Late::Make(name.to_owned(), bytes.to_vec());
        self.ask(("create", name), Some(&late), &|objects| objects.create(name, bytes))
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        let file = device.open(path)?;
        let mut bytes = vec![0; file.len()? as usize];
        let read = file.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        let made = self.create(name, &bytes)?;
        if made {
            device.remove(path)?;
        }
        Ok(made)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if self.is_dead() {
            buffer.fill(0xee);
            return Ok(buffer.len().min(64));
        }
        let bytes = self.ask(("read", name), None, &|objects| {
            let mut bytes = vec![0; buffer.len()];
            let read = objects.read_at(name, &mut bytes, offset)?;
            bytes.truncate(read);
            Ok(bytes)
        })?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        self.ask(("stat", name), None, &|objects| objects.length(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.ask(("list", prefix), None, &|objects| objects.list(prefix))
    }

    fn delete(&self, name: &str) -> Result<()> {
        let late = || Late::Delete(name.to_owned());
        self.ask(("delete", name), Some(&late), &|objects| objects.delete(name))
    }

    fn punch(&self, name: &str, offset: u64, length: u64) -> Result<bool> {
        self.ask(("punch", name), None, &|objects| objects.punch(name, offset, length))
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        Ok(self.length(name)?.unwrap_or(0))
    }

    fn answers_may_be_lost(&self) -> bool {
        true
    }
}
