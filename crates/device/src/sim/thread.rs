//! Threads that a scheduler drives: those that a driven thread starts, and the first.

#![expect(unsafe_code, reason = "a scope of the standard library is given another type")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Driven, Point, Scheduler, Task, driven, pause, set, with};

/// Runs `body` as the first driven thread of a scheduler, and returns its result when it has ended.
/// It should have joined the threads that it started.
pub fn run<T>(scheduler: Arc<dyn Scheduler>, body: impl FnOnce() -> T) -> T {
    let task = scheduler.begin();
    drive((scheduler, task), body)
}

/// Runs `body` as a driven thread, on the calling one.
fn drive<T>((scheduler, task): Driven, body: impl FnOnce() -> T) -> T {
    scheduler.enter(task);
    set(Some((Arc::clone(&scheduler), task)));
    let result = catch_unwind(AssertUnwindSafe(body));
    set(None);
    scheduler.end(task, result.is_err());
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// A new driven thread, if the calling one is driven.
fn begin() -> Option<Driven> {
    let (scheduler, _) = driven()?;
    let task = with(|scheduler, _| scheduler.begin())?;
    Some((scheduler, task))
}

/// Runs a thread's body, driven or not.
fn body<T>(driven: Option<Driven>, body: impl FnOnce() -> T) -> T {
    match driven {
        Some(driven) => drive(driven, body),
        None => body(),
    }
}

/// Waits in the scheduler until a thread has ended, so that joining it then does not block.
fn wait_for(task: Option<Task>) {
    if let Some(task) = task {
        let _undriven = with(|scheduler, me| scheduler.join(me, task));
    }
}

/// A thread.
#[derive(Debug)]
pub struct Thread<T> {
    thread: std::thread::JoinHandle<T>,
    task: Option<Task>,
}

impl<T> Thread<T> {
    /// Waits until it ends.
    pub fn join(self) -> std::thread::Result<T> {
        wait_for(self.task);
        self.thread.join()
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        pause(Point::Yield);
        self.thread.is_finished()
    }

    /// The thread, of which it is a handle.
    pub fn thread(&self) -> &std::thread::Thread {
        self.thread.thread()
    }
}

/// Starts a thread.
#[expect(clippy::disallowed_methods, reason = "this is the seam")]
pub fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<Thread<T>> {
    let driven = begin();
    let task = driven.as_ref().map(|(_, task)| *task);
    let thread =
        std::thread::Builder::new().name(name.to_owned()).spawn(move || body(driven, run))?;
    pause(Point::Spawn);
    Ok(Thread { thread, task })
}

/// Where threads are started that may borrow.
#[repr(transparent)]
pub struct Scope<'scope, 'env: 'scope>(std::thread::Scope<'scope, 'env>);

/// A thread of a scope.
#[derive(Debug)]
pub struct ScopedThread<'scope, T> {
    thread: std::thread::ScopedJoinHandle<'scope, T>,
    task: Option<Task>,
}

impl<T> ScopedThread<'_, T> {
    /// Waits until it ends.
    pub fn join(self) -> std::thread::Result<T> {
        wait_for(self.task);
        self.thread.join()
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        pause(Point::Yield);
        self.thread.is_finished()
    }

    /// The thread, of which it is a handle.
    pub fn thread(&self) -> &std::thread::Thread {
        self.thread.thread()
    }
}

thread_local! {
    /// The threads that this one started in scopes that have not ended.
    static STARTED: Mutex<Vec<Task>> = const { Mutex::new(Vec::new()) };
}

/// Runs `body`, which may start threads that borrow, and waits for all of them.
#[expect(clippy::disallowed_methods, reason = "this is the seam")]
pub fn scope<'env, T>(body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    /// Waits in the scheduler for what was started, also after a panic: the standard library would
    /// block this thread while it has the turn.
    struct Wait(usize);
    impl Drop for Wait {
        fn drop(&mut self) {
            for task in STARTED.with(|started| started.lock().split_off(self.0)) {
                wait_for(Some(task));
            }
        }
    }
    std::thread::scope(|scope| {
        let _wait = Wait(STARTED.with(|started| started.lock().len()));
        // SAFETY: `Scope` is transparent, so the reference is one to the same scope.
        body(unsafe { &*ptr::from_ref(scope).cast::<Scope<'_, '_>>() })
    })
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread of the scope.
    pub fn spawn<T: Send + 'scope>(
        &'scope self,
        run: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedThread<'scope, T> {
        spawn_in(self, "scoped", run).expect("the system starts a thread")
    }
}

/// Starts a named thread of a scope.
#[expect(clippy::disallowed_methods, reason = "this is the seam")]
pub fn spawn_in<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() -> T + Send + 'scope,
) -> std::io::Result<ScopedThread<'scope, T>> {
    let driven = begin();
    let task = driven.as_ref().map(|(_, task)| *task);
    let builder = std::thread::Builder::new().name(name.to_owned());
    let thread = builder.spawn_scoped(&scope.0, move || body(driven, run))?;
    STARTED.with(|started| started.lock().extend(task));
    pause(Point::Spawn);
    Ok(ScopedThread { thread, task })
}
