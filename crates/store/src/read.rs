//! Reading from the live store, or from a pinned state of it.

use crate::{KeyRange, Result, TreeId};

/// Lookups and scans.
pub trait Read: Send + Sync {
    /// Calls `found` with the key's value, without copying it, and returns whether the key exists.
    /// `found` must be short and must not call the store: a latch is held.
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// The key's value.
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = None;
        self.get_with(tree, key, &mut |bytes| value = Some(bytes.to_vec()))?;
        Ok(value)
    }

    /// A cursor over a range, before its first key. It holds no latch between calls. A live cursor
    /// never skips a key that is present throughout, and never returns a key twice. Whether it sees
    /// keys that are added or removed meanwhile is undefined. So a live scan over several keys may
    /// see a part of a concurrently committed batch, as successive lookups may. Only a pin
    /// ([`crate::Snapshot::pin`]) gives one state of many keys. A pinned cursor sees that state.
    fn scan(&self, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>>;
}

/// A key and its value, borrowed from a cursor until its next move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// A position in a range of keys.
pub trait Cursor {
    /// Moves forward and returns the key there; `None` at the end of the range (the cursor then
    /// stays after the last key).
    fn next(&mut self) -> Result<Option<Item<'_>>>;

    /// Moves backward and returns the key there; `None` at the start of the range (the cursor
    /// then stays before the first key). After `next` returned a key, `prev` returns the one
    /// before it.
    fn prev(&mut self) -> Result<Option<Item<'_>>>;

    /// Moves to just before the first key of the range that is not less than `key`. So `next`
    /// returns that key and `prev` the one before.
    fn seek(&mut self, key: &[u8]) -> Result<()>;

    /// Restricts values to the keys that `of` selects: for others an engine may return an empty
    /// value, and need not read it. Call before the first move.
    fn want_values(&mut self, _of: fn(&[u8]) -> bool) {}
}

/// One difference between two trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Diff<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its value in the old tree.
    pub old: Option<&'a [u8]>,
    /// Its value in the new tree. Both exist and differ, or only one exists.
    pub new: Option<&'a [u8]>,
}

/// The differences between two trees, in key order.
pub trait DiffCursor {
    /// The next difference; `None` at the end. After an error it returns that error again:
    /// continuing would omit what could not be read.
    fn next(&mut self) -> Result<Option<Diff<'_>>>;
}
