//! Threads: named, and started in one place.

pub use std::thread::JoinHandle as Thread;

/// Starts a thread with a name that shows in `top -H` and in panics.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<Thread<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}
