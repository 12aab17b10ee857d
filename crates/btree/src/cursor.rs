//! Cursors: they walk over copies of leaves, hold no latch between calls, and find the next leaf
//! by key, so the tree may change meanwhile.
//!
//! A cursor knows the range of keys that its copy stands for (`low..high`); going on means to copy
//! from `high` on, or below `low`. So no key that was there throughout is passed over, and none
//! comes twice.

use std::sync::Arc;

use store::{Cursor, Item, KeyRange, Result};

use crate::copied::{Copied, copy_back, copy_on};
use crate::core::Core;
use crate::tree::Tree;

/// Where a cursor is, among the entries of its copy.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// On an entry.
    On(usize),
    /// Before an entry.
    Before(usize),
}

/// A cursor over a tree.
pub(crate) struct TreeCursor<'a> {
    core: &'a Core,
    tree: Arc<Tree>,
    range: KeyRange,
    copied: Copied,
    place: Place,
    /// The copy has all keys from here on ...
    low: Vec<u8>,
    /// ... up to here; `None` up to the end of the range.
    high: Option<Vec<u8>>,
    /// Whether nothing of the range lies below `low`.
    first: bool,
    far: Option<Arc<[u8]>>,
}

impl<'a> TreeCursor<'a> {
    pub(crate) fn new(core: &'a Core, tree: Arc<Tree>, range: KeyRange) -> TreeCursor<'a> {
        let low = range.from.clone();
        TreeCursor {
            core,
            tree,
            high: Some(low.clone()),
            range,
            copied: Copied::default(),
            place: Place::Before(0),
            low,
            first: true,
            far: None,
        }
    }

    fn item(&mut self, at: usize) -> Result<Option<Item<'_>>> {
        self.place = Place::On(at);
        if let Some(cell) = self.copied.far(at) {
            self.far = Some(self.core.nodes.load_overflow(cell)?);
            let value = self.far.as_deref().unwrap_or_default();
            return Ok(Some(Item { key: self.copied.key(at), value }));
        }
        let (key, value) = self.copied.near(at);
        Ok(Some(Item { key, value }))
    }
}

impl Cursor for TreeCursor<'_> {
    fn next(&mut self) -> Result<Option<Item<'_>>> {
        let mut at = match self.place {
            Place::On(at) => at + 1,
            Place::Before(at) => at,
        };
        while at >= self.copied.len() {
            let Some(from) = self.high.take() else {
                self.place = Place::Before(self.copied.len());
                return Ok(None);
            };
            let to = self.range.to.as_deref();
            match copy_on(&self.core.nodes, &self.tree, &from, to, &mut self.copied) {
                Ok(high) => self.high = high,
                Err(error) => {
                    // The copy may be gone; the place stays before what could not be read.
                    self.copied.clear();
                    self.place = Place::Before(0);
                    self.low.clone_from(&from);
                    self.first = self.low <= self.range.from;
                    self.high = Some(from);
                    return Err(error);
                }
            }
            self.core.shrink();
            self.first = from <= self.range.from;
            self.low = from;
            at = 0;
        }
        self.item(at)
    }

    fn prev(&mut self) -> Result<Option<Item<'_>>> {
        let mut end = match self.place {
            Place::On(at) | Place::Before(at) => at,
        };
        while end == 0 {
            if self.first {
                self.place = Place::Before(0);
                return Ok(None);
            }
            let from = self.range.from.as_slice();
            let low = match copy_back(
                &self.core.nodes,
                &self.tree,
                from,
                Some(&self.low),
                &mut self.copied,
            ) {
                Ok(low) => low,
                Err(error) => {
                    self.copied.clear();
                    self.place = Place::Before(0);
                    self.high = Some(self.low.clone());
                    return Err(error);
                }
            };
            self.first = low.is_none();
            let low = low.unwrap_or_else(|| self.range.from.clone());
            self.high = Some(std::mem::replace(&mut self.low, low));
            end = self.copied.len();
        }
        self.item(end - 1)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let mut from = self.range.from.clone();
        if key > from.as_slice() {
            from = key.to_vec();
        }
        if let Some(to) = &self.range.to
            && from > *to
        {
            from.clone_from(to);
        }
        self.copied.clear();
        self.place = Place::Before(0);
        self.first = from <= self.range.from;
        self.low.clone_from(&from);
        self.high = Some(from).filter(|from| self.range.to.as_ref().is_none_or(|to| from < to));
        Ok(())
    }
}
