//! Runs threads one at a time, in an order that a seed determines.
//!
//! Driven threads are threads of the operating system that pass one baton. A thread gives it away
//! where it takes a lock, waits, sends, starts a thread or gives way (`device::sim`). Apart from
//! atomic numbers, the order of threads can be seen only there. So the seed determines everything,
//! and the same seed gives the same [`Run`], also in another process.
//!
//! Time is simulated. It moves when no thread can run, to the next time for which one waits. Now
//! and then it moves also while threads can run, as on a machine that is slow.
//!
//! Threads belong to a machine, the one of the thread that started them. A test may pause a
//! machine, as SIGSTOP does: its threads do not run for a time, wherever they are.
//!
//! A run in which no thread can run, and none waits for a time, is a deadlock. The scheduler then
//! prints what each thread waits for, and all of them panic.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use device::sim::{Point, Task, undriven};
use device::sync::{Mutex, MutexGuard};

use super::turns::{Doing, Machine, Pace, State};

/// Real time without a change of turns. After it a thread must be waiting for something that the
/// scheduler does not know, a standard library's lock for example.
const SILENT: Duration = Duration::from_secs(60);

/// Counters of waiting threads, by a hash of what they wait for.
const WAIT_SLOTS: usize = 256;

/// Not the number of a thread.
const NOBODY: Task = usize::MAX;

/// What a run was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// A hash of who ran when, and why the turn changed.
    pub trace: u64,
    /// How often the scheduler decided.
    pub turns: u64,
    /// Simulated time.
    pub time: Duration,
    /// How many threads ended by a panic.
    pub panics: usize,
}

/// Drives threads by a seed.
pub struct Scheduler {
    state: Mutex<State>,
    /// Whose turn it is, or `NOBODY`: threads that wait for their turn look here, without the lock.
    running: AtomicUsize,
    /// How often the turn was given, for those who wait long.
    given: AtomicU64,
    /// How many threads wait, by a hash of the address: most calls of `wake` find none.
    waiting: [AtomicUsize; WAIT_SLOTS],
    /// Points up to the next interruption: most points count down, and no more. (The thread that
    /// runs alone uses it, as it does `now`.)
    points: AtomicU32,
    /// Simulated time in nanoseconds.
    now: AtomicU64,
    mutation: Option<&'static str>,
}

/// Where threads that wait for an address are counted.
fn wait_slot(on: usize) -> usize {
    (on >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - 8)
}

impl Scheduler {
    /// Runs `body` and the threads that it starts in the order that a seed determines. They use
    /// `device` for everything they wait for.
    ///
    /// A panic of `body` is passed on.
    pub fn run<T: Send>(seed: u64, body: impl FnOnce() -> T + Send) -> (T, Run) {
        Scheduler::drive(seed, Pace::default(), |_| body())
    }

    /// The same at another pace, for a body that uses the scheduler.
    pub fn drive<T: Send>(
        seed: u64,
        pace: Pace,
        body: impl FnOnce(&Arc<Scheduler>) -> T + Send,
    ) -> (T, Run) {
        let mut state = State::new(seed, &pace);
        let points = AtomicU32::new(state.draw_points());
        let waiting = [const { AtomicUsize::new(0) }; WAIT_SLOTS];
        // A process has some locks of its own, which a thread of another run must not hold.
        static ONE: Mutex<()> = Mutex::new(());
        let _alone = ONE.lock();
        let scheduler = Arc::new(Scheduler {
            state: Mutex::new(state),
            running: AtomicUsize::new(NOBODY),
            given: AtomicU64::new(0),
            waiting,
            points,
            now: AtomicU64::new(0),
            mutation: pace.mutation,
        });
        let driver = Arc::clone(&scheduler);
        let run = AssertUnwindSafe(|| device::sim::run(driver, || body(&scheduler)));
        let result = catch_unwind(run);
        let state = scheduler.state.lock();
        let left = state.alive.len();
        let State { trace, turns, now: time, panics, .. } = *state;
        let run = Run { trace, turns, time, panics };
        match result {
            Ok(result) => {
                assert_eq!(left, 0, "a run joins the threads that it started");
                (result, run)
            }
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Puts the calling thread, and those that it will start, on a machine.
    pub fn move_to(&self, machine: Machine) {
        undriven(|| {
            let me = self.running().expect("invariant: the caller runs");
            self.state.lock().threads[me].machine = machine;
            // That may be paused.
            self.points.store(0, Ordering::Relaxed);
        });
    }

    /// Pauses a machine: its threads do not run for a time.
    pub fn pause_machine(&self, machine: Machine, time: Duration) {
        undriven(|| {
            let mut state = self.state.lock();
            let until = state.now.saturating_add(time);
            state.pause(machine, until);
        });
        device::yield_now();
    }

    /// Waits until all other threads have ended, in simulated time; returns what those do that have
    /// not ended after `most`.
    pub fn settle(&self, most: Duration) -> Result<(), String> {
        let clock = device::SystemClock::new();
        let until = device::Clock::monotonic(&clock).saturating_add(most);
        loop {
            let (left, now) = undriven(|| {
                let state = self.state.lock();
                let me = self.running();
                (state.alive.iter().any(|task| Some(*task) != me), state.now)
            });
            if !left {
                return Ok(());
            }
            if now >= until {
                return Err(undriven(|| self.state.lock().describe()));
            }
            device::Clock::sleep(&clock, Duration::from_millis(500));
        }
    }
}

/// Handing over the turn. One thread waits and one is woken for each, and neither for a lock: the
/// state is unlocked before the next thread is woken.
impl Scheduler {
    fn running(&self) -> Option<Task> {
        Some(self.running.load(Ordering::Acquire)).filter(|task| *task != NOBODY)
    }

    /// Gives the turn to another thread, or back to this one, and waits for the next turn.
    fn next_turn(&self, mut state: MutexGuard<'_, State>, me: Task) {
        let next = self.pick(&mut state);
        if next == Some(me) {
            return;
        }
        self.give(state, next);
        self.await_turn(me);
    }

    fn pick(&self, state: &mut State) -> Option<Task> {
        let next = state.pick();
        self.now.store(u64::try_from(state.now.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        if state.failed.is_some() {
            // Threads notice it at their next points.
            self.points.store(0, Ordering::Relaxed);
        }
        next
    }

    fn give(&self, state: MutexGuard<'_, State>, next: Option<Task>) {
        let parked = next.and_then(|next| state.threads[next].parked.clone());
        self.given.fetch_add(1, Ordering::Relaxed);
        self.running.store(next.unwrap_or(NOBODY), Ordering::Release);
        drop(state);
        // One that has not parked yet looks before it does.
        if let Some(parked) = parked {
            parked.unpark();
        }
    }

    /// Waits until it is a thread's turn. A wait may end early, for no reason or because of an
    /// earlier turn. So real time measures how long the turn was given to nobody.
    #[expect(clippy::disallowed_methods, reason = "driven threads are parked, and nothing else is")]
    fn await_turn(&self, me: Task) {
        // The turn that was seen last, and since when.
        let mut seen: Option<(u64, Instant)> = None;
        while self.running.load(Ordering::Acquire) != me {
            let (given, now) = (self.given.load(Ordering::Relaxed), Instant::now());
            let since = match seen {
                Some((before, since)) if before == given => since,
                _ => now,
            };
            seen = Some((given, since));
            assert!(
                now.duration_since(since) < SILENT,
                "thread {:?} has the turn and waits for something that the scheduler does not know",
                self.running(),
            );
            std::thread::park_timeout(SILENT);
        }
    }
}

impl device::sim::Scheduler for Scheduler {
    fn passes(&self, point: Point) -> bool {
        let points = self.points.load(Ordering::Relaxed);
        let passes = points > 1 && point != Point::Yield;
        if passes {
            self.points.store(points - 1, Ordering::Relaxed);
        }
        passes
    }

    fn pause(&self, me: Task, point: Point) {
        let mut state = self.state.lock();
        state.check();
        let points = self.points.load(Ordering::Relaxed);
        state.note(1000 + point as u64 + (u64::from(points) << 32));
        let is_interrupted = points <= 1;
        if is_interrupted && state.failed.is_none() {
            self.points.store(state.draw_points(), Ordering::Relaxed);
        }
        if point == Point::Yield || is_interrupted {
            self.next_turn(state, me);
        }
    }

    fn wait(&self, me: Task, on: usize, until: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        state.check();
        state.note(2000 + (u64::from(self.points.load(Ordering::Relaxed)) << 32));
        state.put(me, Doing::Waiting { on, until });
        self.waiting[wait_slot(on)].fetch_add(1, Ordering::Relaxed);
        self.next_turn(state, me);
        self.waiting[wait_slot(on)].fetch_sub(1, Ordering::Relaxed);
        let state = self.state.lock();
        state.check();
        state.threads[me].woken
    }

    fn has_waiting(&self, on: usize) -> bool {
        self.waiting[wait_slot(on)].load(Ordering::Relaxed) > 0
    }

    fn wake(&self, on: usize, most: usize) {
        self.state.lock().wake(on, most);
    }

    fn wake_at(&self, on: usize, at: Duration) {
        self.state.lock().wake_at(on, at);
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.now.load(Ordering::Relaxed))
    }

    fn mutation(&self) -> Option<&'static str> {
        self.mutation
    }

    fn begin(&self) -> Task {
        let mut state = self.state.lock();
        let machine = self.running().map_or(0, |parent| state.threads[parent].machine);
        let task = state.add(machine);
        if task == 0 {
            self.running.store(0, Ordering::Release);
        }
        task
    }

    fn enter(&self, me: Task) {
        self.state.lock().threads[me].parked = Some(std::thread::current());
        self.await_turn(me);
    }

    fn end(&self, me: Task, panicked: bool) {
        let mut state = self.state.lock();
        state.panics += usize::from(panicked);
        if me == 0 && panicked {
            state.fail("the first thread of the run panicked");
        }
        state.end(me);
        let next = self.pick(&mut state);
        self.give(state, next);
    }

    fn join(&self, me: Task, other: Task) {
        let mut state = self.state.lock();
        // Without a panic if the run cannot continue. The thread would then leave a scope whose
        // threads have not ended, and the standard library would block it while it has the turn.
        while state.threads[other].doing != Doing::Ended {
            state.put(me, Doing::Joining(other));
            self.next_turn(state, me);
            state = self.state.lock();
        }
    }
}

/// Runs a test under many seeds, or the one in `PANDO_SEED`. The orders should differ. One seed in
/// `replayed` runs twice, and must give the same run. The seed of a run that panics is printed.
pub fn explore(seeds: std::ops::Range<u64>, replayed: u64, test: impl Fn(u64) + Sync) {
    let only = std::env::var("PANDO_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = only.map_or(seeds, |seed: u64| seed..seed + 1);
    let count = seeds.end - seeds.start;
    let (mut traces, mut turns, mut all) = (BTreeSet::new(), 0, 0_u64);
    for seed in seeds {
        let noted = crate::run::Context::new(format!("run again with PANDO_SEED={seed}"));
        let ((), run) = Scheduler::run(seed, || test(seed));
        if seed % replayed == 0 {
            let ((), again) = Scheduler::run(seed, || test(seed));
            assert_eq!(run, again, "the same seed gives the same run");
        }
        traces.insert(run.trace);
        turns += run.turns;
        all = all.rotate_left(1) ^ run.trace;
        drop(noted);
    }
    let (orders, turns) = (traces.len(), turns / count.max(1));
    crate::run::print_line(&format!(
        "{count} seeds, {orders} orders, {turns} turns each, trace {all:016x}"
    ));
    assert!(orders as u64 * 10 >= count * 9, "{orders} different orders of {count} seeds");
}
