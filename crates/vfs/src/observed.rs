//! Observes the calls of a front end: what was called, for how long, and how it ended.
//!
//! Invariants: [`Observed`] changes no argument and no result. It reports every call that reaches
//! the file system and can fail or take time once, after the call ends. Without an observer there
//! is no wrapper, so unobserved mounts pay nothing.

use std::sync::Arc;
use std::time::Duration;

use device::Clock;
use inode::FsError;

use crate::{FileSystem, FsResult, Layer, Operation};

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With a result.
    Done,
    /// With an answer of POSIX that is not a result, such as "no such file" or "no space left".
    Refused,
    /// With damage, or a failed read or write: EIO.
    Failed,
}

impl Outcome {
    /// The outcome of a result.
    pub fn of<T>(result: &FsResult<T>) -> Outcome {
        match result {
            Ok(_) => Outcome::Done,
            Err(FsError::Io(_)) => Outcome::Failed,
            Err(_) => Outcome::Refused,
        }
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Refused => "refused",
            Outcome::Failed => "failed",
        }
    }
}

/// Learns of calls. Called by the threads that serve them, after each call.
pub trait Observer: Send + Sync {
    /// A call ended after this time.
    fn called(&self, operation: Operation, outcome: Outcome, took: Duration);
}

/// A file system whose calls an [`Observer`] learns of.
pub struct Observed {
    inner: Arc<dyn FileSystem>,
    observer: Arc<dyn Observer>,
    clock: Arc<dyn Clock>,
}

impl Observed {
    /// Observes the calls of `inner`; `clock` measures them.
    pub fn new(
        inner: Arc<dyn FileSystem>,
        observer: Arc<dyn Observer>,
        clock: Arc<dyn Clock>,
    ) -> Observed {
        Observed { inner, observer, clock }
    }
}

impl Layer for Observed {
    fn below(&self) -> &(dyn FileSystem + 'static) {
        &*self.inner
    }

    fn around<T>(
        &self,
        operation: Operation,
        call: impl FnOnce(&(dyn FileSystem + 'static)) -> FsResult<T>,
    ) -> FsResult<T> {
        let began = self.clock.monotonic();
        let result = call(&*self.inner);
        let took = self.clock.monotonic().saturating_sub(began);
        self.observer.called(operation, Outcome::of(&result), took);
        result
    }
}
