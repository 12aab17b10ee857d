//! Sorted runs: the input of an ingest.

use crate::{Cursor, Error, Item, KEY_BYTES_MAX, Result, VALUE_BYTES_MAX};

/// Entries in ascending order of their keys, each key once.
pub trait SortedRun {
    /// The next entry; `None` at the end.
    fn next_entry(&mut self) -> Result<Option<Item<'_>>>;
}

/// The entries from a cursor's present position on.
impl<C: Cursor + ?Sized> SortedRun for Box<C> {
    fn next_entry(&mut self) -> Result<Option<Item<'_>>> {
        self.next()
    }
}

/// A run that is checked while it is read: its keys must ascend and be within bounds.
pub struct Ascending<'r> {
    run: &'r mut dyn SortedRun,
    first: Option<Vec<u8>>,
    last: Vec<u8>,
    bytes: u64,
}

impl<'r> Ascending<'r> {
    /// A run that was not begun.
    pub fn new(run: &'r mut dyn SortedRun) -> Ascending<'r> {
        Ascending { run, first: None, last: Vec::new(), bytes: 0 }
    }

    /// The first and the last key read; `None` before any was.
    pub fn ends(&self) -> Option<(&[u8], &[u8])> {
        self.first.as_deref().map(|first| (first, self.last.as_slice()))
    }

    /// Bytes of the keys and values read.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl SortedRun for Ascending<'_> {
    fn next_entry(&mut self) -> Result<Option<Item<'_>>> {
        let Some(item) = self.run.next_entry()? else { return Ok(None) };
        assert!(item.key.len() <= KEY_BYTES_MAX, "key of {} bytes", item.key.len());
        assert!(item.value.len() <= VALUE_BYTES_MAX, "value of {} bytes", item.value.len());
        if self.first.is_none() {
            self.first = Some(item.key.to_vec());
        } else if item.key <= self.last.as_slice() {
            return Err(Error::Unsorted(item.key.to_vec()));
        }
        self.last.clear();
        self.last.extend_from_slice(item.key);
        self.bytes += (item.key.len() + item.value.len()) as u64;
        Ok(Some(item))
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
