//! The seam for a scheduler of tests. With the feature `sim`, threads, locks, condition variables,
//! channels and clocks of this crate ask a [`Scheduler`] before they wait. So one seed decides
//! which thread runs.
//!
//! ```text
//! a thread of a driven test         device::sync, thread, clock          testing::sim::Scheduler
//! mutex.lock()                  ->  may another thread run here?     ->  picks one by the seed
//!                                   taken: wait for this address     ->  picks another
//! ```
//!
//! A thread is driven if a driven thread started it (`thread`), or a scheduler did ([`run`]). One
//! driven thread runs at a time. So a lock that is found taken stays taken until the thread waits,
//! and no wake-up is lost between the two. Threads that are not driven use the same types as
//! ordinary locks. So a test with this feature may do without a scheduler: all tests are built with
//! it. In a process that has no scheduler a lock costs one more load of a number.
//!
//! Without the feature nothing of this is compiled: `sync` re-exports `parking_lot` and the
//! standard library.

mod channel;
mod locks;
mod thread;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use channel::{Receiver, Sender, SyncSender, bounded_channel, channel};
pub use locks::{
    Condvar, Mutex, MutexGuard, RawMutex, RawRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard,
    WaitTimeoutResult,
};
pub use thread::{Scope, ScopedThread, Thread, run, scope, spawn, spawn_in};

/// The number of a driven thread; the first of a run has 0.
pub type Task = usize;

/// Where a thread may be interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Point {
    /// Before a lock is taken.
    Lock,
    /// After a thread was started.
    Spawn,
    /// The thread gives way.
    Yield,
    /// A message is sent or received.
    Channel,
}

/// Decides which driven thread runs. All calls but [`Scheduler::enter`] are made by the thread that
/// runs.
pub trait Scheduler: Send + Sync {
    /// Whether the thread continues at a point as if it were none: asked before `pause`, at most
    /// points of a run. Takes no lock of this crate.
    fn passes(&self, _point: Point) -> bool {
        false
    }

    /// Another thread may run first.
    fn pause(&self, me: Task, point: Point);

    /// Whether a thread may wait for an address: asked before `wake`, at each release of a lock.
    /// Takes no lock of this crate.
    fn has_waiting(&self, _on: usize) -> bool {
        true
    }

    /// Waits until [`Scheduler::wake`] names the same address, or until a time; returns whether it
    /// was woken.
    fn wait(&self, me: Task, on: usize, until: Option<Duration>) -> bool;

    /// Lets some of the threads that wait for an address continue: the scheduler chooses which.
    fn wake(&self, on: usize, most: usize);

    /// Ends the waits for an address at a time, if they last that long.
    fn wake_at(&self, on: usize, at: Duration);

    /// Simulated time since the run began. Takes no lock of this crate.
    fn now(&self) -> Duration;

    /// A new thread, which will call `enter`.
    fn begin(&self) -> Task;

    /// Waits for the first turn of a new thread.
    fn enter(&self, me: Task);

    /// The thread ends, perhaps by a panic; another one runs.
    fn end(&self, me: Task, panicked: bool);

    /// Waits until a thread has ended.
    fn join(&self, me: Task, other: Task);

    /// The fault that this run plants in a protocol.
    fn mutation(&self) -> Option<&'static str> {
        None
    }
}

/// A driven thread's scheduler and number.
pub(crate) type Driven = (Arc<dyn Scheduler>, Task);

thread_local! {
    static DRIVEN: RefCell<Option<Driven>> = const { RefCell::new(None) };
}

/// Whether a thread of this process was ever driven: until then no thread needs to look whether it
/// is. A thread sees what it set itself, and no other's order matters.
static EVER: AtomicBool = AtomicBool::new(false);

/// Calls the scheduler of this thread; `None` if it is not driven.
///
/// Meanwhile the thread does not count as driven, so a scheduler may use locks of this crate.
#[inline]
pub(crate) fn with<T>(call: impl FnOnce(&dyn Scheduler, Task) -> T) -> Option<T> {
    if EVER.load(Ordering::Relaxed) { with_driven(call) } else { None }
}

fn with_driven<T>(call: impl FnOnce(&dyn Scheduler, Task) -> T) -> Option<T> {
    /// Puts it back, also after a panic.
    struct Restore(Option<Driven>);
    impl Drop for Restore {
        fn drop(&mut self) {
            set(self.0.take());
        }
    }
    // A thread that is ending is no longer driven.
    let driven = DRIVEN.try_with(|driven| driven.borrow_mut().take()).ok().flatten()?;
    let restore = Restore(Some(driven));
    let (scheduler, me) = restore.0.as_ref()?;
    Some(call(&**scheduler, *me))
}

/// Asks the scheduler of this thread something for which it takes no lock of this crate; `None`: it
/// is not driven. Most points of a run come no further.
#[inline]
fn peek<T>(ask: impl FnOnce(&dyn Scheduler, Task) -> T) -> Option<T> {
    if !EVER.load(Ordering::Relaxed) {
        return None;
    }
    let asked = DRIVEN
        .try_with(|driven| driven.borrow().as_ref().map(|(scheduler, me)| ask(&**scheduler, *me)));
    asked.ok().flatten()
}

/// Lets some of the threads that wait for an address continue.
#[inline]
pub(crate) fn wake(on: usize, most: usize) {
    if peek(|scheduler, _| scheduler.has_waiting(on)) == Some(true) {
        let _undriven = with(|scheduler, _| scheduler.wake(on, most));
    }
}

/// Calls a part of a test that is no part of what is driven: meanwhile this thread counts as not
/// driven. It must not wait for a driven thread.
pub fn undriven<T>(call: impl FnOnce() -> T) -> T {
    let mut call = Some(call);
    let done = with(|_, _| call.take().map(|call| call()));
    match (done.flatten(), call) {
        (Some(done), _) => done,
        (None, Some(call)) => call(),
        (None, None) => unreachable!("it was called, or is still there"),
    }
}

/// Makes this thread driven, or ends that.
pub(crate) fn set(driven: Option<Driven>) {
    EVER.store(true, Ordering::Relaxed);
    DRIVEN.with(|cell| *cell.borrow_mut() = driven);
}

/// The scheduler and the number of this thread.
pub(crate) fn driven() -> Option<Driven> {
    if !EVER.load(Ordering::Relaxed) {
        return None;
    }
    DRIVEN.try_with(|driven| driven.borrow().clone()).ok().flatten()
}

/// The number of this thread in its run.
pub(crate) fn task() -> Option<Task> {
    peek(|_, me| me)
}

/// Another thread may run first.
#[inline]
pub(crate) fn pause(point: Point) {
    // A thread that unwinds holds locks that others wait for, but must not wait itself.
    if peek(|scheduler, _| scheduler.passes(point)) == Some(false) && !std::thread::panicking() {
        let _undriven = with(|scheduler, me| scheduler.pause(me, point));
    }
}

/// The fault that this thread's run plants; `None`: none, or this thread is not driven.
pub(crate) fn mutation() -> Option<&'static str> {
    peek(|scheduler, _| scheduler.mutation()).flatten()
}

/// Simulated time; `None` if this thread is not driven.
pub(crate) fn now() -> Option<Duration> {
    peek(|scheduler, _| scheduler.now())
}

/// Sleeps in simulated time; returns whether this thread is driven.
pub(crate) fn sleep(duration: Duration) -> bool {
    let slept = with(|scheduler, me| {
        let until = scheduler.now().saturating_add(duration);
        // No thread wakes this address: it is in no object.
        scheduler.wait(me, 0, Some(until))
    });
    slept.is_some()
}
