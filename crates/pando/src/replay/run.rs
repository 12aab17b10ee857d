//! Makes the calls: one thread plans them in the order of the trace, and others make them as soon
//! as the order allows. With one thread it makes each call as it plans it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::Clock;
use device::sync::{Condvar, Mutex};
use format::trace::Event;
use indicatif::ProgressBar;
use trace::{Order, Task};

use super::job::{Job, Maker};
use super::outcome::{Outcome, nanos};
use super::plan::{Planned, Planner};

/// How many calls are planned ahead of those that are made.
const AHEAD_MAX: usize = 4096;
/// How often the progress bar moves, in calls.
const SHOW_EVERY: u64 = 256;
/// How long a wait is not interrupted.
const NAP: Duration = Duration::from_millis(100);

/// How a replay runs.
pub(super) struct How<'a> {
    pub(super) threads: u16,
    /// Whether calls wait for their times in the trace.
    pub(super) as_recorded: bool,
    pub(super) is_privileged: bool,
    pub(super) clock: &'a dyn Clock,
    pub(super) root: &'a OwnedFd,
    pub(super) interrupted: &'a AtomicBool,
    pub(super) bar: &'a ProgressBar,
}

impl How<'_> {
    fn maker(&self) -> Maker<'_> {
        Maker {
            clock: self.clock,
            root: self.root,
            is_privileged: self.is_privileged,
            took: Duration::ZERO,
            opens: Vec::new(),
        }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Waits for the time of an event. Returns how late it is.
    fn wait(&self, began: Duration, first: u64, event: &Event<'_>) -> Duration {
        let due = began + Duration::from_nanos(event.at.saturating_sub(first));
        loop {
            let now = self.clock.monotonic();
            if now >= due || self.is_interrupted() {
                return now.saturating_sub(due);
            }
            self.clock.sleep(due.saturating_sub(now).min(NAP));
        }
    }
}

/// Passes events to threads that make their calls.
pub(super) struct Runner<'a> {
    how: &'a How<'a>,
    planner: Planner<'a>,
    shared: Option<&'a Shared>,
    order: Order<Box<Job>>,
    maker: Maker<'a>,
    outcome: Outcome,
    began: Duration,
    first: Option<u64>,
    done: u64,
}

impl<'a> Runner<'a> {
    /// `shared`: the queue of other threads, if there are any.
    pub(super) fn new(
        how: &'a How<'a>,
        planner: Planner<'a>,
        shared: Option<&'a Shared>,
    ) -> Runner<'a> {
        let (order, outcome) = (Order::default(), Outcome::default());
        let (maker, began) = (how.maker(), how.clock.monotonic());
        Runner { how, planner, shared, order, maker, outcome, began, first: None, done: 0 }
    }

    /// Makes the call of an event, or passes it to a thread.
    pub(super) fn take(&mut self, event: &Event<'_>) {
        if self.how.as_recorded {
            let first = *self.first.get_or_insert(event.at);
            let late = self.how.wait(self.began, first, event);
            self.outcome.late.add(nanos(late));
        }
        match self.planner.plan(event) {
            Planned::Unknown => self.outcome.unknown += 1,
            Planned::Job(job, claims) => match self.shared {
                Some(shared) if claims.is_alone => {
                    shared.drain();
                    self.make(&job);
                }
                Some(shared) => {
                    // Counted before it is added: from then on another thread may end it.
                    shared.enter();
                    let (task, ready) = self.order.add(job, &claims);
                    if ready {
                        shared.push(task);
                    }
                }
                None => self.make(&job),
            },
        }
        self.planner.took(event);
        self.done += 1;
        if self.done.is_multiple_of(SHOW_EVERY) {
            self.how.bar.set_position(self.done);
        }
    }

    fn make(&mut self, job: &Job) {
        let ran = self.maker.run(job);
        self.outcome.add(job, ran, &mut self.maker);
    }

    /// Waits for all calls, and returns what this thread measured, and the time since the start.
    pub(super) fn end(self) -> (Outcome, Duration) {
        if let Some(shared) = self.shared {
            shared.drain();
            shared.end();
        }
        (self.outcome, self.how.clock.monotonic().saturating_sub(self.began))
    }
}

struct Queue {
    ready: VecDeque<Arc<Task<Box<Job>>>>,
    /// Calls that were added and are not done.
    open: usize,
    ended: bool,
}

/// Ends the process when its thread panics: other threads would wait for the call forever.
struct StopAtPanic;

impl Drop for StopAtPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// The queue of calls that can be made.
pub(super) struct Shared {
    queue: Mutex<Queue>,
    /// A call can be made, or there are no more.
    work: Condvar,
    /// Fewer calls are open.
    space: Condvar,
}

impl Shared {
    pub(super) fn new() -> Shared {
        let queue = Mutex::new(Queue { ready: VecDeque::new(), open: 0, ended: false });
        Shared { queue, work: Condvar::new(), space: Condvar::new() }
    }

    /// Counts a call that is about to be added, once few enough are open.
    fn enter(&self) {
        let mut queue = self.queue.lock();
        while queue.open >= AHEAD_MAX {
            self.space.wait(&mut queue);
        }
        queue.open += 1;
    }

    /// A call can be made.
    fn push(&self, task: Arc<Task<Box<Job>>>) {
        self.queue.lock().ready.push_back(task);
        self.work.notify_one();
    }

    /// Waits until no call is open.
    fn drain(&self) {
        let mut queue = self.queue.lock();
        while queue.open > 0 {
            self.space.wait(&mut queue);
        }
    }

    fn end(&self) {
        self.queue.lock().ended = true;
        self.work.notify_all();
    }

    /// Makes calls until there are no more.
    pub(super) fn work(&self, how: &How<'_>) -> Outcome {
        let _bug = StopAtPanic;
        let (mut maker, mut outcome) = (how.maker(), Outcome::default());
        let mut queue = self.queue.lock();
        loop {
            let Some(task) = queue.ready.pop_front() else {
                if queue.ended {
                    return outcome;
                }
                self.work.wait(&mut queue);
                continue;
            };
            drop(queue);
            let ran = maker.run(&task.work);
            outcome.add(&task.work, ran, &mut maker);
            let next = task.done();
            queue = self.queue.lock();
            for _ in 1..next.len() {
                self.work.notify_one();
            }
            queue.ready.extend(next);
            queue.open -= 1;
            if queue.open == 0 || queue.open == AHEAD_MAX - 1 {
                self.space.notify_one();
            }
        }
    }
}
