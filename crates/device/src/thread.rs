//! Threads: named, and started in one place.

pub use std::thread::JoinHandle as Thread;
/// Yields the processor to another thread.
pub use std::thread::yield_now;
pub use std::thread::{Scope, ScopedJoinHandle as ScopedThread};

/// Starts a thread with a name that shows in `top -H` and in panics.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<Thread<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// Runs `body`, which may start threads that borrow, and waits for all of them.
pub fn scope<'env, T>(body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    std::thread::scope(body)
}

/// Starts a named thread of a scope.
pub fn spawn_in<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> std::io::Result<ScopedThread<'scope, T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, body)
}
