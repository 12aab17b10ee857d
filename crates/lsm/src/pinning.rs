//! Collects the stacks that a pinned state has, while commits continue.
//!
//! A pin enters the gate alone for an instant, in which it takes its number. From then on a change
//! of a tree that the pin does not have yet gives it the tree's stack first
//! ([`Core::mark_changed`]). The pinning thread collects the others. So the wait of a commit does
//! not depend on how many trees have changed, nor on what they have in memory.
//!
//! Invariants:
//! * One pin collects at a time. A tree whose number of the last pin is that of this one is what it
//!   was when the pin began, or is in it.
//! * The thread that has its lock for commits freezes a tree, with the gate shared, or a thread
//!   that is alone in the gate.
//! * A checkpoint takes the changed trees away only while no pin collects.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::sync::{Mutex, MutexGuard};
use store::TreeId;

use crate::checkpoint::Frozen;
use crate::core::Core;
use crate::tree::Tree;

/// Trees that are looked at before others enter the gate alone.
const AT_ONCE: usize = 64;

/// The pin that is being collected.
#[derive(Default)]
pub(crate) struct Pinning {
    turn: Mutex<()>,
    /// How many pins began.
    count: AtomicU64,
    /// What the present one has; none while no pin collects.
    collected: Mutex<Option<Frozen>>,
}

impl Pinning {
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
        *self.collected.lock() = Some(Frozen::new());
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// It has all.
    pub(crate) fn end(&self) -> Frozen {
        self.collected.lock().take().unwrap_or_default()
    }
}

impl Core {
    /// Has the present pin, if one collects, have a tree as it is. The caller keeps the tree from
    /// changing.
    #[cold]
    pub(crate) fn give_to_pin(&self, tree: &Tree) {
        let mut collected = self.pinning.collected.lock();
        if let Some(collected) = &mut *collected {
            collected.insert(tree.id, self.freeze_tree(tree));
        }
        tree.pinned.store(self.pinning.count(), Ordering::Relaxed);
    }

    /// Collects the changed trees up to one, for the pin that began.
    pub(crate) fn collect_for_pin(&self, last: Option<TreeId>) {
        self.each_changed(last, |tree| {
            if tree.pinned.load(Ordering::Relaxed) != self.pinning.count() {
                self.give_to_pin(tree);
            }
        });
    }

    /// Freezes the changed trees while commits continue, so that few have something to freeze when
    /// the caller then enters the gate alone. The caller has the turn of pins.
    pub(crate) fn freeze_beside_commits(&self) {
        let last = self.changed.lock().keys().next_back().copied();
        self.each_changed(last, |tree| drop(self.freeze_tree(tree)));
    }

    /// Calls a function with each changed tree up to one, which nothing changes meanwhile.
    fn each_changed(&self, last: Option<TreeId>, mut call: impl FnMut(&Tree)) {
        let Some(last) = last else { return };
        let mut from = Bound::Unbounded;
        loop {
            let _gate = self.gate.read();
            let some: Vec<Arc<Tree>> = {
                let changed = self.changed.lock();
                let some = changed.range((from, Bound::Included(last))).take(AT_ONCE);
                some.map(|(_, tree)| Arc::clone(tree)).collect()
            };
            for tree in &some {
                let _commit = tree.commit.lock();
                call(tree);
            }
            match some.last() {
                Some(tree) if some.len() == AT_ONCE && tree.id < last => {
                    from = Bound::Excluded(tree.id);
                }
                _ => return,
            }
        }
    }
}
