//! Cursors walk over copies of leaves. They hold no latch between calls and find the next leaf by
//! key, so the tree may change meanwhile.
//!
//! A cursor knows the range of keys that its copy covers (`low..high`). To continue, it copies from
//! `high` on, or below `low`. So it misses no key that existed throughout, and returns none twice.
//!
//! A copy does not keep a long value in its place. If the value is rewritten meanwhile, its block
//! may be reused and looks damaged. Then the entry is copied again; the damage is real when the
//! same pointer is met a second time.

use std::sync::Arc;

use format::Pointer;
use store::{Cursor, Error, Item, KeyRange, Result};

use crate::copied::{Copied, copy_back, copy_on};
use crate::core::Core;
use crate::tree::Tree;

/// The position of a cursor among the entries of its copy.
#[derive(Debug, Clone, Copy)]
enum Position {
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
    place: Position,
    /// The copy has all keys from here on ...
    low: Vec<u8>,
    /// ... up to here; `None` up to the end of the range.
    high: Option<Vec<u8>>,
    /// Whether nothing of the range is below `low`.
    first: bool,
    far: Option<Arc<[u8]>>,
    /// Selects the keys whose overflow values are read; `None` selects all.
    wanted: Option<fn(&[u8]) -> bool>,
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
            place: Position::Before(0),
            low,
            first: true,
            far: None,
            wanted: None,
        }
    }

    /// Moves to an entry, and loads its value if that is in an overflow node. Returns `false` when
    /// the value could not be read for the first time at this place: the entry must be copied
    /// again.
    fn move_to(&mut self, at: usize, failed: &mut Option<Pointer>) -> Result<bool> {
        self.place = Position::On(at);
        self.far = None;
        let Some(cell) = self.copied.far(at) else { return Ok(true) };
        if self.wanted.is_some_and(|of| !of(self.copied.key(at))) {
            return Ok(true);
        }
        match self.core.nodes.load_overflow(cell) {
            Ok(value) => {
                self.far = Some(value);
                Ok(true)
            }
            Err(Error::Corrupt(_)) if *failed != cell.disk.get().copied() => {
                *failed = cell.disk.get().copied();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// The entry at the cursor's position.
    fn item(&self, at: usize) -> Item<'_> {
        let (key, near) = self.copied.near(at);
        Item { key, value: self.far.as_deref().unwrap_or(near) }
    }

    /// Discards the copy. The next copy starts at `key`, or ends before it.
    fn restart(&mut self, key: Vec<u8>) {
        self.copied.clear();
        self.place = Position::Before(0);
        self.first = key <= self.range.from;
        self.low.clone_from(&key);
        self.high = Some(key);
    }

    /// Finds the next entry, copying the next leaf if needed.
    fn step_on(&mut self) -> Result<Option<usize>> {
        let mut at = match self.place {
            Position::On(at) => at + 1,
            Position::Before(at) => at,
        };
        while at >= self.copied.len() {
            let Some(from) = self.high.take() else {
                self.place = Position::Before(self.copied.len());
                return Ok(None);
            };
            let to = self.range.to.as_deref();
            match copy_on(&self.core.nodes, &self.tree, &from, to, &mut self.copied) {
                Ok(high) => self.high = high,
                Err(error) => {
                    // The copy may be gone; the cursor stays before the entry that could not be
                    // read.
                    self.restart(from);
                    return Err(error);
                }
            }
            self.core.shrink();
            self.first = from <= self.range.from;
            self.low = from;
            at = 0;
        }
        Ok(Some(at))
    }

    /// Finds the previous entry, copying the previous leaf if needed.
    fn step_back(&mut self) -> Result<Option<usize>> {
        let mut end = match self.place {
            Position::On(at) | Position::Before(at) => at,
        };
        while end == 0 {
            if self.first {
                self.place = Position::Before(0);
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
                    self.place = Position::Before(0);
                    self.high = Some(self.low.clone());
                    return Err(error);
                }
            };
            self.first = low.is_none();
            let low = low.unwrap_or_else(|| self.range.from.clone());
            self.high = Some(std::mem::replace(&mut self.low, low));
            end = self.copied.len();
        }
        Ok(Some(end - 1))
    }
}

impl Cursor for TreeCursor<'_> {
    fn next(&mut self) -> Result<Option<Item<'_>>> {
        let mut failed = None;
        loop {
            let Some(at) = self.step_on()? else { return Ok(None) };
            if self.move_to(at, &mut failed)? {
                return Ok(Some(self.item(at)));
            }
            self.restart(self.copied.key(at).to_vec());
        }
    }

    fn prev(&mut self) -> Result<Option<Item<'_>>> {
        let mut failed = None;
        loop {
            let Some(at) = self.step_back()? else { return Ok(None) };
            if self.move_to(at, &mut failed)? {
                return Ok(Some(self.item(at)));
            }
            // The least key above this one, so that the copy ends with it.
            self.restart([self.copied.key(at), &[0]].concat());
        }
    }

    fn want_values(&mut self, of: fn(&[u8]) -> bool) {
        self.wanted = Some(of);
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
        self.place = Position::Before(0);
        self.first = from <= self.range.from;
        self.low.clone_from(&from);
        self.high = Some(from).filter(|from| self.range.to.as_ref().is_none_or(|to| from < to));
        Ok(())
    }
}
