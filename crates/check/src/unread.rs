//! A pinned state as a check reads it: a failed read of the disk is treated as damage, so that the
//! check skips it, reports it, and continues.
//!
//! Only code that concludes nothing from unreadable data may use it. Garbage collection and the
//! rebuild of a tree from its copies read the state itself, and give up on such a read.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};

use store::{
    Cursor, Diff, DiffCursor, Error, Item, KeyRange, Logged, LostRange, Pinned, Read, Result,
    SharedWalk, TreeId,
};

/// Such a state.
pub struct PastUnread<'a> {
    pin: &'a dyn Pinned,
    met: AtomicBool,
}

impl<'a> PastUnread<'a> {
    pub(super) fn new(pin: &'a dyn Pinned) -> PastUnread<'a> {
        PastUnread { pin, met: AtomicBool::new(false) }
    }

    /// Whether a read of the disk failed.
    pub(super) fn met(&self) -> bool {
        self.met.load(Ordering::Relaxed)
    }

    fn past<T>(&self, answer: Result<T>) -> Result<T> {
        answer.map_err(|error| {
            if matches!(&error, Error::Device(error) if error.is_unread()) {
                self.met.store(true, Ordering::Relaxed);
            }
            error.as_damage()
        })
    }
}

impl Read for PastUnread<'_> {
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.past(self.pin.get_with(tree, key, found))
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>> {
        let cursor = self.past(self.pin.scan(tree, range))?;
        Ok(Box::new(Scan { cursor, of: self }))
    }
}

struct Scan<'a> {
    cursor: Box<dyn Cursor + 'a>,
    of: &'a PastUnread<'a>,
}

impl Cursor for Scan<'_> {
    fn next(&mut self) -> Result<Option<Item<'_>>> {
        self.of.past(self.cursor.next())
    }

    fn prev(&mut self) -> Result<Option<Item<'_>>> {
        self.of.past(self.cursor.prev())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.of.past(self.cursor.seek(key))
    }

    fn want_values(&mut self, of: fn(&[u8]) -> bool) {
        self.cursor.want_values(of);
    }
}

struct Differences<'a> {
    cursor: Box<dyn DiffCursor + 'a>,
    of: &'a PastUnread<'a>,
}

impl DiffCursor for Differences<'_> {
    fn next(&mut self) -> Result<Option<Diff<'_>>> {
        self.of.past(self.cursor.next())
    }
}

impl Pinned for PastUnread<'_> {
    fn logged(&self) -> Logged<'_> {
        self.pin.logged()
    }

    fn visit_shared_step(
        &self,
        walk: &mut SharedWalk,
        nodes: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<bool> {
        self.past(self.pin.visit_shared_step(walk, nodes, visit))
    }

    fn lost_from(&self, tree: TreeId, key: &[u8]) -> Result<Option<LostRange>> {
        self.past(self.pin.lost_from(tree, key))
    }

    fn diff<'a>(
        &'a self,
        old_tree: TreeId,
        new: &'a dyn Pinned,
        new_tree: TreeId,
        range: KeyRange,
    ) -> Result<Box<dyn DiffCursor + 'a>> {
        // The engine asks the other state for its type (`as_any`), and gets its own.
        let cursor = self.past(self.pin.diff(old_tree, new, new_tree, range))?;
        Ok(Box::new(Differences { cursor, of: self }))
    }

    fn prefetch(&self, tree: TreeId, keys: &[&[u8]]) {
        self.pin.prefetch(tree, keys);
    }

    fn as_any(&self) -> &dyn Any {
        self.pin.as_any()
    }
}
