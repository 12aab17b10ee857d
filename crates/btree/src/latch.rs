//! The latch of what every operation passes: the gate, the set of trees, a tree.
//!
//! Made of several locks, each with a cache line of its own. Who shares it takes the one of its
//! thread, so that threads that only pass do not write to the same line; who has it exclusively
//! takes all, in order. Sharing costs what one lock costs, exclusiveness what all cost, and that
//! is rare: a split, a clone, the freezing of a checkpoint.
//!
//! A thread that shares a latch must not share it again: it would wait for a thread that waits for
//! it to let go.

use std::sync::PoisonError;

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};

/// A latch, and what it guards.
#[derive(Debug, Default)]
pub(crate) struct Latch<T>(ShardedLock<T>);

// A thread that panicked below a latch has left a broken invariant, and the process stops for it;
// what goes on is a test that looks at the remains.
impl<T> Latch<T> {
    pub(crate) fn new(guarded: T) -> Latch<T> {
        Latch(ShardedLock::new(guarded))
    }

    /// Shares it.
    #[inline]
    pub(crate) fn read(&self) -> ShardedLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes it for the caller alone.
    pub(crate) fn write(&self) -> ShardedLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes it for the caller alone, if nobody has it.
    pub(crate) fn try_write(&self) -> Option<ShardedLockWriteGuard<'_, T>> {
        self.0.try_write().ok()
    }
}
