//! Collects the stacks that a pinned state has, while commits continue.
//!
//! A pin enters the gate alone for an instant, in which it takes its number. From then on a change
//! of a tree that the pin does not have yet gives it the tree's stack first
//! (`Core::mark_changed`). The pinning thread collects the others. So the wait of a commit does
//! not depend on how many trees have changed, nor on what they have in memory.
//!
//! Invariants:
//! * One pin collects at a time. A tree whose number of the last pin is that of this one is what it
//!   was when the pin began, or is in it.
//! * The thread that has its lock for commits freezes a tree, with the gate shared, or a thread
//!   that is alone in the gate.
//! * A checkpoint takes the changed trees away only while no pin collects.

use std::sync::atomic::{AtomicU64, Ordering};

use device::sync::{Mutex, MutexGuard};

/// The pin that is being collected, with stacks as `T` has them.
#[derive(Default)]
pub(crate) struct Pinning<T> {
    turn: Mutex<()>,
    /// How many pins began.
    count: AtomicU64,
    /// What the present one has; none while no pin collects.
    collected: Mutex<Option<T>>,
}

impl<T: Default> Pinning<T> {
    /// Keeps pins from collecting.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// How many pins began.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// A pin begins. The caller has the turn, and is alone in the gate.
    pub(crate) fn begin(&self) {
        *self.collected.lock() = Some(T::default());
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// What the present pin has; none while no pin collects.
    pub(crate) fn collected(&self) -> MutexGuard<'_, Option<T>> {
        self.collected.lock()
    }

    /// It has all.
    pub(crate) fn end(&self) -> T {
        self.collected.lock().take().unwrap_or_default()
    }
}
