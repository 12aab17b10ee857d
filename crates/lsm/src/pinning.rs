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

    /// Gives the present pin, if one collects, what `freeze` makes. That runs without the lock, so
    /// that a commit of another tree does not wait for it. The caller keeps the gate shared, so
    /// that no other pin begins meanwhile.
    pub(crate) fn give<S>(&self, freeze: impl FnOnce() -> S, add: impl FnOnce(&mut T, S)) {
        if self.collected.lock().is_none() {
            return;
        }
        let frozen = freeze();
        // The pin may have ended: it did not need the tree.
        if let Some(collected) = &mut *self.collected.lock() {
            add(collected, frozen);
        }
    }

    /// Whether a pin collects.
    #[cfg(test)]
    pub(crate) fn collects(&self) -> bool {
        self.collected.lock().is_some()
    }

    /// It has all.
    pub(crate) fn end(&self) -> T {
        self.collected.lock().take().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Pinning;

    /// A commit of another tree waited while a large one was frozen.
    #[test]
    fn a_tree_is_frozen_without_the_lock_that_others_need() {
        let pinning = Pinning::<Vec<u32>>::default();
        pinning.give(|| panic!("no pin collects"), |_, ()| ());
        let turn = pinning.turn();
        pinning.begin();
        let freeze = || {
            assert!(!pinning.collected.is_locked(), "others wait");
            pinning.give(|| 2, Vec::push);
            1
        };
        pinning.give(freeze, Vec::push);
        assert_eq!(pinning.end(), [2, 1]);
        // One that ends while a tree is frozen did not need it.
        pinning.begin();
        pinning.give(|| pinning.end().len(), |_, _| panic!("no pin collects"));
        drop(turn);
    }
}
