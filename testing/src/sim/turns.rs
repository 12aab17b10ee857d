//! The state of a run under a seed: what each thread does, who could run, and simulated time.
//!
//! Each change of what a thread does goes through a function here. So the lists of those who could
//! run, who wait for an address and who wait for a time are always whole. A turn looks through none
//! of them. Their order is a consequence of the turns before, and so of the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use device::sim::Task;

/// Most turns of a run: a test takes a few thousand, a simulation a few ten thousand.
const TURNS_MAX: u64 = 10_000_000;

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

/// What a driven thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// It runs, or could.
    Ready,
    /// It waits for an address to be woken (0: for none), or for a time.
    Waiting { on: usize, until: Option<Duration> },
    /// It waits for a thread to end.
    Joining(Task),
    /// It has ended.
    Ended,
}

pub(super) struct Thread {
    pub(super) doing: Doing,
    /// Whether its last wait ended because it was woken.
    pub(super) woken: bool,
    /// Unparked when it is its turn; `None` until it waits for its first.
    pub(super) parked: Option<std::thread::Thread>,
    pub(super) machine: Machine,
    /// Its place among those that could run.
    place: usize,
}

pub(super) struct State {
    pub(super) random: fastrand::Rng,
    /// A thread is interrupted once in so many points.
    interrupted: u32,
    time_moves: u32,
    pub(super) threads: Vec<Thread>,
    /// Those that have not ended, in ascending order: most of a long run have.
    pub(super) alive: Vec<Task>,
    /// Those that run or could, in no order.
    ready: Vec<Task>,
    /// Who waits for an address, in no order.
    waiting: Vec<(usize, Task)>,
    /// Who waits for a time.
    timers: BTreeSet<(Duration, Task)>,
    /// Machines whose threads do not run, and until when.
    paused: BTreeMap<Machine, Duration>,
    pub(super) now: Duration,
    pub(super) turns: u64,
    pub(super) trace: u64,
    pub(super) panics: usize,
    /// Why the run cannot continue.
    pub(super) failed: Option<String>,
}

impl State {
    pub(super) fn new(seed: u64, pace: &Pace) -> State {
        let mut random = fastrand::Rng::with_seed(seed);
        let interrupted = pace.interrupted[random.usize(..pace.interrupted.len())];
        State {
            random,
            interrupted,
            time_moves: pace.time_moves,
            threads: Vec::new(),
            alive: Vec::new(),
            ready: Vec::new(),
            waiting: Vec::new(),
            timers: BTreeSet::new(),
            paused: BTreeMap::new(),
            now: Duration::ZERO,
            turns: 0,
            trace: seed,
            panics: 0,
            failed: None,
        }
    }

    /// A new thread, which could run.
    pub(super) fn add(&mut self, machine: Machine) -> Task {
        let (task, place) = (self.threads.len(), self.ready.len());
        let doing = Doing::Ready;
        self.threads.push(Thread { doing, woken: false, parked: None, machine, place });
        self.alive.push(task);
        self.ready.push(task);
        task
    }

    /// How many points a thread passes before it is interrupted.
    pub(super) fn draw_points(&mut self) -> u32 {
        self.random.u32(1..=self.interrupted.saturating_mul(2).saturating_sub(1).max(1))
    }

    /// A thread that could run does something else.
    pub(super) fn put(&mut self, task: Task, doing: Doing) {
        let place = self.threads[task].place;
        self.ready.swap_remove(place);
        if let Some(moved) = self.ready.get(place) {
            self.threads[*moved].place = place;
        }
        self.threads[task].doing = doing;
        if let Doing::Waiting { on, until } = doing {
            if on != 0 {
                self.waiting.push((on, task));
            }
            self.timers.extend(until.map(|until| (until, task)));
        }
    }

    /// A thread could run that could not.
    fn release(&mut self, task: Task, woken: bool) {
        let thread = &mut self.threads[task];
        if let Doing::Waiting { on, until } = thread.doing {
            if let Some(until) = until {
                self.timers.remove(&(until, task));
            }
            if on != 0 {
                let waits = self.waiting.iter().position(|(_, other)| *other == task);
                self.waiting.swap_remove(waits.expect("invariant: it is in the list"));
            }
        }
        (thread.doing, thread.woken, thread.place) = (Doing::Ready, woken, self.ready.len());
        self.ready.push(task);
    }

    /// Lets up to `most` threads continue that wait for an address.
    pub(super) fn wake(&mut self, on: usize, most: usize) {
        let mut waiting = self.waiting_for(on);
        for _ in 0..most.min(waiting.len()) {
            let task = waiting.swap_remove(self.random.usize(..waiting.len()));
            self.release(task, true);
        }
    }

    /// Lets no thread wait for an address longer than to a time.
    pub(super) fn wake_at(&mut self, on: usize, at: Duration) {
        for task in self.waiting_for(on) {
            let Doing::Waiting { until, .. } = &mut self.threads[task].doing else { continue };
            if until.is_none_or(|until| at < until) {
                if let Some(until) = until.replace(at) {
                    self.timers.remove(&(until, task));
                }
                self.timers.insert((at, task));
            }
        }
    }

    fn waiting_for(&self, on: usize) -> Vec<Task> {
        self.waiting.iter().filter(|(other, _)| *other == on).map(|(_, task)| *task).collect()
    }

    /// A thread has ended; those that wait for that could run.
    pub(super) fn end(&mut self, task: Task) {
        self.put(task, Doing::Ended);
        self.alive.retain(|other| *other != task);
        let joins = |other: &Task| self.threads[*other].doing == Doing::Joining(task);
        let joining: Vec<Task> = self.alive.iter().copied().filter(joins).collect();
        for other in joining {
            self.release(other, false);
        }
    }

    /// Chooses who runs next; `None` if all have ended.
    pub(super) fn pick(&mut self) -> Option<Task> {
        self.turns += 1;
        if self.turns > TURNS_MAX {
            self.fail("the run does not end");
        }
        assert!(self.turns < 2 * TURNS_MAX, "threads that unwind do not end");
        if !self.ready.is_empty() && self.random.u32(..self.time_moves) == 0 {
            self.advance();
        }
        loop {
            if let Some(next) = self.draw() {
                self.note(next as u64);
                return Some(next);
            }
            if self.alive.is_empty() {
                return None;
            }
            if !self.advance() {
                self.fail("deadlock: each thread waits for another");
            }
        }
    }

    /// Draws one of those that could run.
    fn draw(&mut self) -> Option<Task> {
        if self.paused.is_empty() {
            let count = self.ready.len();
            return (count > 0).then(|| self.ready[self.random.usize(..count)]);
        }
        let runs = |task: &Task| !self.is_paused(*task);
        let ready: Vec<Task> = self.ready.iter().copied().filter(runs).collect();
        (!ready.is_empty()).then(|| ready[self.random.usize(..ready.len())])
    }

    /// Moves time to the next moment for which anything waits; `false`: there is none.
    fn advance(&mut self) -> bool {
        let timer = self.timers.first().map(|(until, _)| *until);
        let Some(next) = timer.into_iter().chain(self.paused.values().copied()).min() else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some((_, task)) = self.timers.first().filter(|(until, _)| *until <= self.now) {
            self.release(*task, false);
        }
        let now = self.now;
        self.paused.retain(|_, until| *until > now);
        true
    }

    /// The threads of a machine do not run until a time.
    pub(super) fn pause(&mut self, machine: Machine, until: Duration) {
        self.paused.insert(machine, until);
    }

    pub(super) fn is_paused(&self, task: Task) -> bool {
        self.paused.contains_key(&self.threads[task].machine)
    }

    /// Adds to the trace: FNV-1a.
    pub(super) fn note(&mut self, what: u64) {
        for part in [what, self.now.as_nanos() as u64] {
            self.trace = (self.trace ^ part).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Lets all threads end: each panics where it waits.
    pub(super) fn fail(&mut self, why: &str) {
        self.paused.clear();
        if self.failed.is_none() {
            self.failed = Some(format!("{why}: {}", self.describe()));
        }
        for task in self.alive.clone() {
            if self.threads[task].doing != Doing::Ready {
                self.release(task, self.threads[task].woken);
            }
        }
    }

    /// What all threads do that have not ended.
    pub(super) fn describe(&self) -> String {
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
    pub(super) fn check(&self) {
        if let Some(why) = self.failed.as_ref().filter(|_| !std::thread::panicking()) {
            panic!("{why}");
        }
    }
}
