//! Runs threads one at a time, in an order that a seed determines.
//!
//! Driven threads are threads of the operating system that pass one baton. A thread gives it away
//! where it takes a lock, waits, sends, starts a thread or gives way (`device::sim`): these are the
//! only places where the order of threads can be seen, besides atomic numbers. So the seed
//! determines everything, and the same seed gives the same [`Run`], also in another process.
//!
//! Time is simulated. It moves when no thread can run, to the next time for which one waits; now
//! and then also while threads can run, as on a machine that is slow.
//!
//! Threads belong to a machine, the one of the thread that started them. A test may pause a
//! machine, as SIGSTOP does: its threads do not run for a time, wherever they are.
//!
//! A run in which no thread can run, and none waits for a time, is a deadlock. The scheduler then
//! prints what each thread waits for, and all of them panic.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use device::sim::{Point, Task, undriven};
use device::sync::{Mutex, MutexGuard};

/// Most turns of a run: a test takes a few thousand, a simulation a few ten thousand.
const TURNS_MAX: u64 = 10_000_000;
/// Real time without a change of turns after which a thread must be waiting for something that the
/// scheduler does not know, a standard library's lock for example.
const SILENT: Duration = Duration::from_secs(60);

/// Counters of waiting threads, by a hash of what they wait for.
const WAIT_SLOTS: usize = 256;

/// Not the number of a thread.
const NOBODY: Task = usize::MAX;

/// How a seed drives threads.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How often a thread that could continue is interrupted: once in so many points. A seed draws
    /// one, so that some runs change at each point, and others let threads run far.
    pub interrupted: &'static [u32],
    /// How often time moves while threads can run: once in so many turns.
    pub time_moves: u32,
    /// A fault to plant (`device::mutated`).
    pub mutation: Option<&'static str>,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { interrupted: &[1, 2, 8, 40], time_moves: 50, mutation: None }
    }
}

/// The number of a machine; the first thread of a run is on machine 0.
pub type Machine = u32;

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

/// What a driven thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It runs, or could.
    Ready,
    /// It waits for an address to be woken, or for a time.
    Waiting { on: usize, until: Option<Duration> },
    /// It waits for a thread to end.
    Joining(Task),
    /// It has ended.
    Ended,
}

struct State {
    random: fastrand::Rng,
    interrupted: u32,
    time_moves: u32,
    threads: Vec<Thread>,
    /// Those that have not ended, in ascending order: most of a long run have.
    alive: Vec<Task>,
    /// Machines whose threads do not run, and until when.
    paused: BTreeMap<Machine, Duration>,
    /// Those that could run, as `pick` found them.
    ready: Vec<Task>,
    now: Duration,
    turns: u64,
    trace: u64,
    panics: usize,
    /// Why the run cannot continue.
    failed: Option<String>,
}

struct Thread {
    doing: Doing,
    /// Whether its last wait ended because it was woken.
    woken: bool,
    /// Unparked when it is its turn; `None` until it waits for its first.
    parked: Option<std::thread::Thread>,
    machine: Machine,
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
        let mut random = fastrand::Rng::with_seed(seed);
        let interrupted = pace.interrupted[random.usize(..pace.interrupted.len())];
        let state = State {
            random,
            interrupted,
            time_moves: pace.time_moves,
            threads: Vec::new(),
            alive: Vec::new(),
            paused: BTreeMap::new(),
            ready: Vec::new(),
            now: Duration::ZERO,
            turns: 0,
            trace: seed,
            panics: 0,
            failed: None,
        };
        let waiting = [const { AtomicUsize::new(0) }; WAIT_SLOTS];
        // A process has some locks of its own, which a thread of another run must not hold.
        static ONE: Mutex<()> = Mutex::new(());
        let _alone = ONE.lock();
        let scheduler = Arc::new(Scheduler {
            state: Mutex::new(state),
            running: AtomicUsize::new(NOBODY),
            given: AtomicU64::new(0),
            waiting,
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
        });
    }

    /// Pauses a machine: its threads do not run for a time.
    pub fn pause_machine(&self, machine: Machine, time: Duration) {
        undriven(|| {
            let mut state = self.state.lock();
            let until = state.now.saturating_add(time);
            state.paused.insert(machine, until);
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
        let next = state.pick();
        if next == Some(me) {
            return;
        }
        self.give(state, next);
        self.await_turn(me);
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
    /// earlier turn, so real time measures how long the turn was given to nobody.
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

impl State {
    /// Chooses who runs next; `None` if all have ended.
    fn pick(&mut self) -> Option<Task> {
        self.turns += 1;
        if self.turns > TURNS_MAX {
            self.fail("the run does not end");
        }
        assert!(self.turns < 2 * TURNS_MAX, "threads that unwind do not end");
        self.look();
        if !self.ready.is_empty() && self.random.u32(..self.time_moves) == 0 {
            self.advance();
            self.look();
        }
        while self.ready.is_empty() {
            if self.alive.is_empty() {
                return None;
            }
            if !self.advance() {
                self.fail("deadlock: each thread waits for another");
            }
            self.look();
        }
        let next = self.ready[self.random.usize(..self.ready.len())];
        self.note(next as u64);
        Some(next)
    }

    /// Moves time to the next moment for which anything waits; `false`: there is none.
    fn advance(&mut self) -> bool {
        let timers = self.alive.iter().filter_map(|task| self.threads[*task].doing.until());
        let Some(next) = timers.chain(self.paused.values().copied()).min() else { return false };
        self.now = self.now.max(next);
        for task in &self.alive {
            let thread = &mut self.threads[*task];
            if thread.doing.until().is_some_and(|until| until <= self.now) {
                (thread.doing, thread.woken) = (Doing::Ready, false);
            }
        }
        let now = self.now;
        self.paused.retain(|_, until| *until > now);
        true
    }

    /// Finds the threads that could run.
    fn look(&mut self) {
        let State { threads, alive, ready, paused, .. } = self;
        ready.clear();
        ready.extend(alive.iter().copied().filter(|task| {
            let thread = &threads[*task];
            thread.doing == Doing::Ready
                && (paused.is_empty() || !paused.contains_key(&thread.machine))
        }));
    }

    fn is_paused(&self, me: Task) -> bool {
        !self.paused.is_empty() && self.paused.contains_key(&self.threads[me].machine)
    }

    /// Adds to the trace: FNV-1a.
    fn note(&mut self, what: u64) {
        for part in [what, self.now.as_nanos() as u64] {
            self.trace = (self.trace ^ part).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Lets all threads end: each panics where it waits.
    fn fail(&mut self, why: &str) {
        self.paused.clear();
        if self.failed.is_none() {
            self.failed = Some(format!("{why}: {}", self.describe()));
        }
        for task in &self.alive {
            self.threads[*task].doing = Doing::Ready;
        }
    }

    /// What all threads do that have not ended.
    fn describe(&self) -> String {
        let doing = self.alive.iter().map(|task| {
            let thread = &self.threads[*task];
            let what = match thread.doing {
                Doing::Ready => "could run".to_owned(),
                Doing::Waiting { on: 0, .. } => "sleeps".to_owned(),
                Doing::Waiting { on, .. } => format!("waits for {on:#x}"),
                Doing::Joining(other) => format!("waits for the end of thread {other}"),
                Doing::Ended => "has ended".to_owned(),
            };
            format!("thread {task} {what}")
        });
        doing.collect::<Vec<_>>().join("; ")
    }

    /// Panics if the run cannot continue. A thread that unwinds tries again what it waits for.
    fn check(&self) {
        if let Some(why) = self.failed.as_ref().filter(|_| !std::thread::panicking()) {
            panic!("{why}");
        }
    }
}

impl Doing {
    fn until(self) -> Option<Duration> {
        match self {
            Doing::Waiting { until, .. } => until,
            _ => None,
        }
    }
}

impl device::sim::Scheduler for Scheduler {
    fn pause(&self, me: Task, point: Point) {
        let mut state = self.state.lock();
        state.check();
        state.note(1000 + point as u64);
        let most = state.interrupted;
        let is_paused = state.is_paused(me);
        if point == Point::Yield || is_paused || state.random.u32(..most) == 0 {
            self.next_turn(state, me);
        }
    }

    fn wait(&self, me: Task, on: usize, until: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        state.check();
        state.note(2000);
        state.threads[me].doing = Doing::Waiting { on, until };
        self.waiting[wait_slot(on)].fetch_add(1, Ordering::Relaxed);
        self.next_turn(state, me);
        self.waiting[wait_slot(on)].fetch_sub(1, Ordering::Relaxed);
        let state = self.state.lock();
        state.check();
        state.threads[me].woken
    }

    fn wake(&self, on: usize, most: usize) {
        if self.waiting[wait_slot(on)].load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        let waits = |task: &Task| {
            let doing = state.threads[*task].doing;
            matches!(doing, Doing::Waiting { on: at, .. } if at == on)
        };
        let mut waiting: Vec<Task> = state.alive.iter().copied().filter(waits).collect();
        for _ in 0..most.min(waiting.len()) {
            let task = waiting.swap_remove(state.random.usize(..waiting.len()));
            (state.threads[task].doing, state.threads[task].woken) = (Doing::Ready, true);
        }
    }

    fn now(&self) -> Duration {
        self.state.lock().now
    }

    fn mutation(&self) -> Option<&'static str> {
        self.mutation
    }

    fn begin(&self) -> Task {
        let mut state = self.state.lock();
        let machine = self.running().map_or(0, |parent| state.threads[parent].machine);
        state.threads.push(Thread { doing: Doing::Ready, woken: false, parked: None, machine });
        let task = state.threads.len() - 1;
        state.alive.push(task);
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
        state.threads[me].doing = Doing::Ended;
        state.alive.retain(|task| *task != me);
        state.panics += usize::from(panicked);
        if me == 0 && panicked {
            state.fail("the first thread of the run panicked");
        }
        let State { threads, alive, .. } = &mut *state;
        for task in alive {
            let doing = &mut threads[*task].doing;
            if *doing == Doing::Joining(me) {
                *doing = Doing::Ready;
            }
        }
        let next = state.pick();
        self.give(state, next);
    }

    fn join(&self, me: Task, other: Task) {
        let mut state = self.state.lock();
        // Without a panic if the run cannot continue: the thread would then leave a scope whose
        // threads have not ended, and the standard library would block it while it has the turn.
        while state.threads[other].doing != Doing::Ended {
            state.threads[me].doing = Doing::Joining(other);
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
