//! A pinned state as a check reads it. A failed read of the disk is treated as damage, so that the
//! check skips it, reports it, and continues. Scans leave out inodes that are being made many at
//! once. Nothing counts them before they are reachable (`ops::bulk`), and where that was
//! interrupted, the next opening removes them.
//!
//! Only code that concludes nothing from unreadable data may use it. Garbage collection and the
//! rebuild of a tree from its copies read the state itself, and give up on such a read.

use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use format::detached_record::DetachedRecord;
use format::key::{self, Parsed};
use store::{
    Cursor, Diff, DiffCursor, Error, Item, KeyRange, Logged, LostRange, Pinned, Read, Result,
    SharedWalk, TreeId,
};
use volume::subvol::VOLUME;

/// Such a state.
pub struct PastUnread<'a> {
    pin: &'a dyn Pinned,
    met: AtomicBool,
    /// Numbers of inodes that are being made.
    unreached: Vec<Range<u64>>,
}

impl<'a> PastUnread<'a> {
    pub(super) fn new(pin: &'a dyn Pinned) -> PastUnread<'a> {
        let mut past = PastUnread { pin, met: AtomicBool::new(false), unreached: Vec::new() };
        past.unreached = past.find_unreached().unwrap_or_default();
        past
    }

    /// What is being made. What cannot be read of that is reported where it is checked.
    fn find_unreached(&self) -> Result<Vec<Range<u64>>> {
        let mut found = Vec::new();
        let mut cursor = self.scan(VOLUME, KeyRange::prefix(&key::DETACHED_PREFIX))?;
        while let Some(item) = cursor.next()? {
            if let Ok(DetachedRecord::Inodes { first, end, .. }) =
                DetachedRecord::decode(item.value)
            {
                found.push(first..end);
            }
        }
        Ok(found)
    }

    /// The key behind the records of an inode that is being made.
    fn behind_unreached(&self, at: &[u8]) -> Option<[u8; 9]> {
        if self.unreached.is_empty() {
            return None;
        }
        let (ino, prefix): (u64, fn(u64) -> [u8; 9]) = match key::parse(at) {
            Ok(Parsed::Entry { directory, .. }) => (directory, key::directory_prefix),
            Ok(Parsed::Extent { ino, .. }) => (ino, key::extent_prefix),
            _ => return None,
        };
        let range = self.unreached.iter().find(|range| range.contains(&ino));
        range.map(|range| prefix(range.end))
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
        Ok(Box::new(Scan { cursor, of: self, key: Vec::new(), value: Vec::new() }))
    }
}

struct Scan<'a> {
    cursor: Box<dyn Cursor + 'a>,
    of: &'a PastUnread<'a>,
    /// The present record, if some are left out.
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Cursor for Scan<'_> {
    fn next(&mut self) -> Result<Option<Item<'_>>> {
        if self.of.unreached.is_empty() {
            return self.of.past(self.cursor.next());
        }
        loop {
            let Some(item) = self.of.past(self.cursor.next())? else { return Ok(None) };
            let Some(behind) = self.of.behind_unreached(item.key) else {
                return Ok(Some(keep(item, &mut self.key, &mut self.value)));
            };
            self.of.past(self.cursor.seek(&behind))?;
        }
    }

    fn prev(&mut self) -> Result<Option<Item<'_>>> {
        if self.of.unreached.is_empty() {
            return self.of.past(self.cursor.prev());
        }
        loop {
            let Some(item) = self.of.past(self.cursor.prev())? else { return Ok(None) };
            if self.of.behind_unreached(item.key).is_none() {
                return Ok(Some(keep(item, &mut self.key, &mut self.value)));
            }
        }
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.of.past(self.cursor.seek(key))
    }

    fn want_values(&mut self, of: fn(&[u8]) -> bool) {
        self.cursor.want_values(of);
    }
}

/// A record that stays while the cursor moves.
fn keep<'a>(item: Item<'_>, key: &'a mut Vec<u8>, value: &'a mut Vec<u8>) -> Item<'a> {
    key.clear();
    key.extend_from_slice(item.key);
    value.clear();
    value.extend_from_slice(item.value);
    Item { key, value }
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
        self.past(self.pin.visit_shared_step(walk, nodes, &mut |key, value| {
            if self.behind_unreached(key).is_none() {
                visit(key, value);
            }
        }))
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
