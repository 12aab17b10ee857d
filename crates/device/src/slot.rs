//! A small number for each thread, to partition shared data. Each thread writes to a cache line of
//! its own, as long as there are no more threads than lines.
//!
//! It is the least number that no living thread has. Otherwise threads that start and end could
//! leave two concurrent threads with the same remainder. A thread keeps its number until it ends.
//! Two threads may get the same number when there are very many or one is ending; that costs only
//! speed.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The numbers of living threads, as bits.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// Numbers for further threads.
static BEYOND: AtomicUsize = AtomicUsize::new(0);
/// No number yet.
const NONE: usize = usize::MAX;

/// Releases a number when its thread ends.
struct Lease(Cell<Option<usize>>);

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(slot) = self.0.get() {
            give_back(slot);
        }
    }
}

thread_local! {
    /// Without a destructor, so it can be read, unchanged, until the thread ends.
    static SLOT: Cell<usize> = const { Cell::new(NONE) };
    static LEASE: Lease = const { Lease(Cell::new(None)) };
}

/// The number of the calling thread, the same on each call.
#[inline]
pub fn thread_slot() -> usize {
    // The order in which real threads start and end is not the scheduler's.
    #[cfg(feature = "sim")]
    if let Some(task) = crate::sim::task() {
        return task % u64::BITS as usize;
    }
    let slot = SLOT.get();
    if slot == NONE { take() } else { slot }
}

#[cold]
fn take() -> usize {
    let free = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
    let slot = match TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free) {
        Ok(taken) => {
            let slot = taken.trailing_ones() as usize;
            // If the thread is already ending, another thread may get the same number.
            if LEASE.try_with(|lease| lease.0.set(Some(slot))).is_err() {
                give_back(slot);
            }
            slot
        }
        Err(_) => BEYOND.fetch_add(1, Ordering::Relaxed) % u64::BITS as usize,
    };
    SLOT.set(slot);
    slot
}

fn give_back(slot: usize) {
    TAKEN.fetch_and(!(1 << slot), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::sync::{Barrier, Mutex};

    #[test]
    fn concurrent_threads_have_different_numbers_that_later_ones_reuse() {
        let own = thread_slot();
        for _ in 0..50 {
            let (together, slots) = (Barrier::new(4), Mutex::new(BTreeSet::from([own])));
            crate::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let slot = thread_slot();
                        slots.lock().insert(slot);
                        together.wait();
                        assert_eq!(thread_slot(), slot);
                    });
                }
            });
            let slots = slots.into_inner();
            assert_eq!(slots.len(), 5);
            assert!(slots.iter().all(|&slot| slot < 64), "numbers stay small: {slots:?}");
        }
        assert_eq!(thread_slot(), own);
    }

    /// Runs in a process of its own: while all numbers are taken, other tests would get none.
    #[test]
    fn more_threads_than_numbers_share_them() {
        const ALONE: &str = "PANDO_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let own = std::env::current_exe().unwrap();
            let test = "slot::tests::more_threads_than_numbers_share_them";
            let mut run = std::process::Command::new(own);
            run.args(["--exact", test]).env(ALONE, "1");
            assert!(run.status().unwrap().success());
            return;
        }
        let together = Barrier::new(100);
        crate::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|| {
                    assert!(thread_slot() < 64);
                    together.wait();
                });
            }
        });
    }
}
