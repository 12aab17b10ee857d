//! The memory of an import that grows with what is imported. That is names of subdirectories that
//! wait, what directories of the destination had, and attributes that directories get at the end.
//! It is also files with several names, and digests to verify. The thread that lists the source
//! counts its memory here, too. Counted is what the collections hold, with the size of their
//! entries. An import that needs more ends, with what it made.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use wire::{Failure, FailureKind, ListEntry};

use crate::failure::Result;

/// What an entry of a collection takes beside its key and its value.
const ENTRY_BYTES: usize = 64;

/// Bytes in use, and how many may be. A clone counts in the same bytes.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    used: Arc<AtomicUsize>,
    limit: usize,
}

impl Memory {
    pub(super) fn new(limit: usize) -> Memory {
        Memory { used: Arc::default(), limit }
    }

    /// Counts an entry with so many bytes.
    pub(super) fn take(&mut self, bytes: usize) -> Result<()> {
        let more = bytes.saturating_add(ENTRY_BYTES);
        let used = self.used.fetch_add(more, Ordering::Relaxed).saturating_add(more);
        if used <= self.limit { Ok(()) } else { Err(self.exceeded()) }
    }

    /// The failure of an import that needs more.
    pub(super) fn exceeded(&self) -> Failure {
        let limit = self.limit;
        let message = format!(
            "names, attributes and links of this import take more than {limit} bytes of memory"
        );
        let failure = Failure::new(FailureKind::Other, message);
        failure.hint("raise --memory and run the same command again: it continues")
    }

    /// Whether so many bytes more are within the limit; nothing is counted.
    pub(super) fn allows(&self, bytes: usize) -> bool {
        self.used.load(Ordering::Relaxed).saturating_add(bytes) <= self.limit
    }

    /// Counts an entry no longer.
    pub(super) fn release(&mut self, bytes: usize) {
        let less = bytes.saturating_add(ENTRY_BYTES);
        let used = |used: usize| Some(used.saturating_sub(less));
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, used).unwrap_or_default();
    }
}

/// What the names of a path take.
pub(super) fn of_path(path: &[Vec<u8>]) -> usize {
    path.iter().map(|part| part.len() + size_of::<Vec<u8>>()).sum()
}

/// What entries of a directory take, by their names.
pub(super) fn of_entries<'e>(entries: impl IntoIterator<Item = &'e ListEntry>) -> usize {
    entries.into_iter().map(of_entry).sum()
}

/// What one of them takes.
pub(super) fn of_entry(entry: &ListEntry) -> usize {
    let target = entry.target.as_ref().map_or(0, |target| target.0.len());
    2 * entry.name.0.len() + target + size_of::<ListEntry>() + ENTRY_BYTES
}

/// What extended attributes take.
pub(super) fn of_xattrs(xattrs: &[(Vec<u8>, Vec<u8>)]) -> usize {
    xattrs.iter().map(|(name, value)| name.len() + value.len() + 2 * size_of::<Vec<u8>>()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_byte_may_be_used() {
        let mut memory = Memory::new(2 * ENTRY_BYTES + 10);
        memory.take(4).unwrap();
        memory.take(6).unwrap();
        let message = memory.take(0).unwrap_err().message;
        assert!(message.contains("138 bytes"), "{message}");
        memory.release(0);
        memory.release(6);
        memory.take(6).unwrap();
        let message = memory.take(0).unwrap_err().message;
        assert!(message.contains("138 bytes"), "{message}");
    }
}
