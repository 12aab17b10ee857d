//! Threads: named, and started in one place. With the feature `sim` they come from `device::sim`.
//!
//! A thread that waits for long, of which there are many, *rests* first. Allocators keep memory for
//! each thread, also what it freed, until it allocates again or ends. What a program's allocator
//! does about that is the program's choice.

use std::sync::OnceLock;
use std::time::Duration;

#[cfg(feature = "sim")]
pub use crate::sim::{Scope, ScopedThread, Thread, scope, spawn, spawn_in};
#[cfg(not(feature = "sim"))]
pub use std::thread::JoinHandle as Thread;
#[cfg(not(feature = "sim"))]
pub use std::thread::{Scope, ScopedJoinHandle as ScopedThread};

/// Starts a thread with a name that shows in `top -H` and in panics.
#[cfg(not(feature = "sim"))]
#[expect(clippy::disallowed_methods, reason = "this is the seam")]
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<Thread<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// How long a thread that rests has waited before.
pub const REST_AFTER: Duration = Duration::from_millis(250);

static REST: OnceLock<fn()> = OnceLock::new();

/// Sets what a thread does when it rests; the first setting counts.
pub fn set_rest(returns_memory: fn()) {
    REST.get_or_init(|| returns_memory);
}

/// The calling thread is about to wait for long: it returns what is kept for it alone.
pub fn rest() {
    if let Some(returns_memory) = REST.get() {
        returns_memory();
    }
}

/// Yields the processor to another thread.
#[expect(clippy::disallowed_methods, reason = "this is the seam")]
pub fn yield_now() {
    #[cfg(feature = "sim")]
    crate::sim::pause(crate::sim::Point::Yield);
    std::thread::yield_now();
}

/// Waits for a few instructions, in a loop that looks for what another thread is about to do. The
/// loop is bounded, and then waits for a lock or yields: a scheduler of tests runs nobody else
/// meanwhile.
#[inline]
#[expect(clippy::disallowed_methods, reason = "this is the seam")]
pub fn spin_loop() {
    std::hint::spin_loop();
}

/// Runs `body`, which may start threads that borrow, and waits for all of them.
#[cfg(not(feature = "sim"))]
#[expect(clippy::disallowed_methods, reason = "this is the seam")]
pub fn scope<'env, T>(body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    std::thread::scope(body)
}

/// Starts a named thread of a scope.
#[cfg(not(feature = "sim"))]
#[expect(clippy::disallowed_methods, reason = "this is the seam")]
pub fn spawn_in<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> std::io::Result<ScopedThread<'scope, T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, body)
}
