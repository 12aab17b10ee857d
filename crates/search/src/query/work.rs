//! The work that the match of one row takes. A path has no maximum length, so a match is cancelled
//! within a row, too: the caller may have left long before a row ends.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Result};

/// A flag that is never set.
pub(super) static NEVER: AtomicBool = AtomicBool::new(false);

/// Steps between two looks at the flag: well below a millisecond.
const STEPS_BETWEEN: usize = 1 << 14;

/// Counts steps, and ends the match when the caller cancels.
pub(super) struct Work<'a> {
    cancel: &'a AtomicBool,
    left: usize,
    /// All steps.
    #[cfg(test)]
    done: usize,
}

impl<'a> Work<'a> {
    /// Work that ends when the flag is set.
    pub(super) fn until(cancel: &'a AtomicBool) -> Work<'a> {
        Work {
            cancel,
            left: STEPS_BETWEEN,
            #[cfg(test)]
            done: 0,
        }
    }

    /// The steps counted so far.
    #[cfg(test)]
    pub(super) fn done(&self) -> usize {
        self.done
    }

    /// Counts steps.
    #[inline]
    pub(super) fn count(&mut self, steps: usize) -> Result<()> {
        #[cfg(test)]
        {
            self.done += steps;
        }
        if let Some(left) = self.left.checked_sub(steps) {
            self.left = left;
            return Ok(());
        }
        self.left = STEPS_BETWEEN;
        if self.cancel.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller that leaves is noticed within some ten thousand steps, at any time.
    #[test]
    fn a_match_ends_soon_after_its_caller_left() {
        for (before, each) in [(0, 1), (1_000, 1), (40_000, 1), (100_000, 7), (0, 30_000)] {
            let cancel = AtomicBool::new(false);
            let mut work = Work::until(&cancel);
            for _ in 0..before {
                work.count(1).expect("it has not left");
            }
            cancel.store(true, Ordering::Relaxed);
            let more = (0..40_000).take_while(|_| work.count(each).is_ok()).count() * each;
            assert!(more < 20_000, "{more} steps after {before}, {each} at once");
        }
    }
}
