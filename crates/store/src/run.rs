//! Sorted runs: what is ingested.

use crate::{Cursor, Item, Result};

/// Entries in ascending order of their keys, each key once.
pub trait SortedRun {
    /// The next entry; `None` at the end.
    fn next_entry(&mut self) -> Result<Option<Item<'_>>>;
}

/// What a cursor passes, from where it stands on.
impl<C: Cursor + ?Sized> SortedRun for Box<C> {
    fn next_entry(&mut self) -> Result<Option<Item<'_>>> {
        self.next()
    }
}

/// Entries in memory.
#[derive(Debug, Clone)]
pub struct SliceRun<'a> {
    entries: std::slice::Iter<'a, (Vec<u8>, Vec<u8>)>,
}

impl<'a> SliceRun<'a> {
    /// The entries of a slice.
    pub fn new(entries: &'a [(Vec<u8>, Vec<u8>)]) -> SliceRun<'a> {
        SliceRun { entries: entries.iter() }
    }
}

impl SortedRun for SliceRun<'_> {
    fn next_entry(&mut self) -> Result<Option<Item<'_>>> {
        Ok(self.entries.next().map(|(key, value)| Item { key, value }))
    }
}
