//! Reads that are under way, of a file system that other machines change, too.
//!
//! A read that was answered before another machine's change may reach the kernel's pages after an
//! open had them dropped. So pages are not kept by an open during which the file is read, nor by
//! the next one.

use std::collections::{BTreeMap, BTreeSet};

use device::sync::Mutex;

/// Most files in doubt; with more, no open keeps pages.
const DOUBTFUL_MAX: usize = 1 << 16;

/// Which files are read now.
#[derive(Default)]
pub(super) struct Reads(Mutex<State>);

#[derive(Default)]
struct State {
    under_way: BTreeMap<u64, u32>,
    /// Files that were read while they were opened.
    doubtful: BTreeSet<u64>,
}

/// A read, until it is dropped.
pub(super) struct Reading<'a>(&'a Reads, u64);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        if let Some(count) = state.under_way.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                state.under_way.remove(&self.1);
            }
        }
    }
}

impl Reads {
    /// A read begins.
    pub(super) fn begin(&self, number: u64) -> Reading<'_> {
        *self.0.lock().under_way.entry(number).or_default() += 1;
        Reading(self, number)
    }

    /// A file is opened, and is unchanged since its last open or not: whether the kernel's pages
    /// are certainly those of the file.
    pub(super) fn opened(&self, number: u64, unchanged: bool) -> bool {
        let mut state = self.0.lock();
        if state.doubtful.len() >= DOUBTFUL_MAX {
            return false;
        }
        let was_doubtful = state.doubtful.remove(&number);
        let is_read = state.under_way.contains_key(&number);
        if is_read {
            state.doubtful.insert(number);
        }
        unchanged && !was_doubtful && !is_read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_kept_again_by_the_second_open_after_a_read_that_an_open_met() {
        let reads = Reads::default();
        assert!(reads.opened(7, true));
        let (one, two) = (reads.begin(7), reads.begin(7));
        drop(one);
        assert!(!reads.opened(7, true), "a read is under way");
        assert!(reads.opened(8, true), "another file");
        drop(two);
        assert!(!reads.opened(7, true), "its answer may have come after the open");
        assert!(reads.opened(7, true));
        assert!(!reads.opened(7, false), "it was changed");
    }
}
