//! Decides whether a listing of a large directory carries attributes.
//!
//! The kernel asks for attributes with every listing (`kernel/session.rs` has the reason), and
//! makes an inode of each entry that has them. In a directory with millions of entries that costs
//! memory in the kernel and in this process. A reader of names alone does not need it. So a reader
//! of a large directory gets names alone, unless a process looks its names up while it is read. The
//! table is lossy: a collision or a race costs look-ups, or unneeded attributes, and nothing else.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Number of entries from which a directory is large.
pub(super) const LARGE: u64 = 1 << 20;
/// Requests of a listing that carry attributes after a look-up. A request for names returns some
/// 700 entries and one with attributes some 180. So if a program looks at every entry of a listing,
/// one in 20 is looked up.
const REQUESTS_AFTER_LOOKUP: u32 = 64;
const SLOTS: usize = 16;

/// Large directories that are being read.
#[derive(Debug, Default)]
pub(super) struct Advice([Slot; SLOTS]);

#[derive(Debug, Default)]
struct Slot {
    /// The kernel's number of the directory; 0 for none.
    directory: AtomicU64,
    /// Remaining requests that carry attributes.
    left: AtomicU32,
}

impl Advice {
    fn slot(&self, directory: u64) -> &Slot {
        &self.0[(directory % SLOTS as u64) as usize]
    }

    /// A name in a directory was looked up and found.
    #[inline]
    pub(super) fn looked_up(&self, directory: u64) {
        let slot = self.slot(directory);
        if slot.directory.load(Ordering::Relaxed) == directory {
            slot.left.store(REQUESTS_AFTER_LOOKUP, Ordering::Relaxed);
        }
    }

    /// Whether the answer to a request for a large directory carries attributes.
    pub(super) fn wants_attributes(&self, directory: u64) -> bool {
        let slot = self.slot(directory);
        if slot.directory.swap(directory, Ordering::Relaxed) != directory {
            slot.left.store(0, Ordering::Relaxed);
            return false;
        }
        let less = |left: u32| left.checked_sub(1);
        slot.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_follow_look_ups_in_a_directory_that_is_read() {
        let advice = Advice::default();
        let other = 7 + SLOTS as u64;
        advice.looked_up(7);
        assert!(!advice.wants_attributes(7), "it was not being read when the name was looked up");
        advice.looked_up(other);
        assert!(!advice.wants_attributes(7), "a name elsewhere");
        advice.looked_up(7);
        for request in 0..REQUESTS_AFTER_LOOKUP {
            assert!(advice.wants_attributes(7), "{request}");
        }
        assert!(!advice.wants_attributes(7), "nobody looks names up any more");
        advice.looked_up(7);
        assert!(!advice.wants_attributes(other), "another directory in the same place");
        assert!(!advice.wants_attributes(7), "which it took");
    }
}
