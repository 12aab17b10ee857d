//! Reading: from the live store, or from a pinned state of it.

use crate::{KeyRange, Result, TreeId};

/// Looking things up.
pub trait Read: Send + Sync {
    /// Calls `found` with the key's value, without copying it, and tells whether the key is
    /// there. `found` must be short and must not call the store: a latch is held.
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// The key's value.
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = None;
        self.get_with(tree, key, &mut |bytes| value = Some(bytes.to_vec()))?;
        Ok(value)
    }

    /// A cursor over a range, before its first key. It holds no latch between calls. A live
    /// cursor never skips a key that is present throughout, and never gives a key twice; whether
    /// it sees keys that come and go meanwhile is open. So a live scan over several keys may see
    /// a part of a batch that is committed meanwhile, as look-ups one after the other may: only a
    /// pin ([`crate::Store::pin`]) makes one state of many keys. A pinned cursor sees that state.
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

    /// Moves to just before the first key of the range that is not less than `key`, so that
    /// `next` returns it and `prev` the one before.
    fn seek(&mut self, key: &[u8]) -> Result<()>;

    /// Says of which keys the values are wanted: of others an engine may give none in their place,
    /// and need not read them. Before the first move.
    fn want_values(&mut self, _of: fn(&[u8]) -> bool) {}
}

/// One difference between two trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Diff<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its value in the old tree.
    pub old: Option<&'a [u8]>,
    /// Its value in the new tree. Both are there and differ, or one is there.
    pub new: Option<&'a [u8]>,
}

/// The differences between two trees, in key order.
pub trait DiffCursor {
    /// The next difference; `None` at the end. After an error it answers that error again: going
    /// on would leave out what could not be read.
    fn next(&mut self) -> Result<Option<Diff<'_>>>;
}
