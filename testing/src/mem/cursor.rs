//! Cursors of the oracle: a position is a key or a gap, looked up again at every move.

use std::ops::Bound;
use std::sync::Arc;

use store::{Cursor, Diff, DiffCursor, Error, Item, KeyRange, Result, TreeId};

use super::commit::{Tree, Trees};

/// Where a cursor's trees come from: the live store, or a pinned state.
pub(super) trait Source {
    /// Reads the current set of trees.
    fn look<T>(&self, body: impl FnOnce(&Trees) -> T) -> T;

    /// A cursor moved to an entry.
    fn note_move(&self) {}
}

/// A tree of a set of trees.
pub(super) fn find(trees: &Trees, tree: TreeId) -> Result<&Arc<Tree>> {
    trees.get(&tree).ok_or(Error::NoTree(tree))
}

/// A position between or on keys.
#[derive(Debug, Clone)]
enum Position {
    /// Before the least key that is not less than this one.
    Before(Vec<u8>),
    /// On this key, which may be deleted by now.
    On(Vec<u8>),
    /// After every key of the range.
    End,
}

/// A key and its value.
type KeyValue = (Vec<u8>, Arc<[u8]>);

/// A cursor over a source.
pub(super) struct MemCursor<'a, S: Source> {
    source: &'a S,
    tree: TreeId,
    range: KeyRange,
    position: Position,
    value: Arc<[u8]>,
}

impl<'a, S: Source> MemCursor<'a, S> {
    /// Before the first key of the range.
    pub(super) fn new(source: &'a S, tree: TreeId, range: KeyRange) -> Result<MemCursor<'a, S>> {
        source.look(|trees| find(trees, tree).map(drop))?;
        let position = Position::Before(range.from.clone());
        Ok(MemCursor { source, tree, range, position, value: Arc::from([]) })
    }

    fn item(&self) -> Item<'_> {
        match &self.position {
            Position::On(key) => Item { key, value: &self.value },
            _ => unreachable!("invariant: asked only after a move to a key"),
        }
    }

    /// The first key of the range within a lower bound.
    fn first(&self, lower: Bound<&[u8]>) -> Result<Option<KeyValue>> {
        self.source.look(|trees| {
            let found = find(trees, self.tree)?.range::<[u8], _>((lower, Bound::Unbounded)).next();
            Ok(self.inside(found))
        })
    }

    /// The last key of the range within an upper bound.
    fn last(&self, upper: Bound<&[u8]>) -> Result<Option<KeyValue>> {
        self.source.look(|trees| {
            let tree = find(trees, self.tree)?;
            Ok(self.inside(tree.range::<[u8], _>((Bound::Unbounded, upper)).next_back()))
        })
    }

    fn inside(&self, found: Option<(&Vec<u8>, &Arc<[u8]>)>) -> Option<KeyValue> {
        let (key, value) = found.filter(|(key, _)| self.range.contains(key))?;
        Some((key.clone(), Arc::clone(value)))
    }

    fn end_bound(&self) -> Bound<&[u8]> {
        self.range.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded)
    }
}

impl<S: Source> Cursor for MemCursor<'_, S> {
    fn next(&mut self) -> Result<Option<Item<'_>>> {
        let found = match &self.position {
            Position::Before(key) => self.first(Bound::Included(key.as_slice()))?,
            Position::On(key) => self.first(Bound::Excluded(key.as_slice()))?,
            Position::End => None,
        };
        let Some((key, value)) = found else {
            self.position = Position::End;
            return Ok(None);
        };
        self.source.note_move();
        self.position = Position::On(key);
        self.value = value;
        Ok(Some(self.item()))
    }

    fn prev(&mut self) -> Result<Option<Item<'_>>> {
        let found = match &self.position {
            Position::Before(key) | Position::On(key) => {
                self.last(Bound::Excluded(key.as_slice()))?
            }
            Position::End => self.last(self.end_bound())?,
        };
        let Some((key, value)) = found else {
            self.position = Position::Before(self.range.from.clone());
            return Ok(None);
        };
        self.source.note_move();
        self.position = Position::On(key);
        self.value = value;
        Ok(Some(self.item()))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.position = if self.range.to.as_deref().is_some_and(|to| key >= to) {
            Position::End
        } else {
            Position::Before(key.max(self.range.from.as_slice()).to_vec())
        };
        Ok(())
    }
}

/// The differences of two trees, computed on creation.
pub(super) struct MemDiff {
    found: std::vec::IntoIter<Difference>,
    current: Difference,
}

type Difference = (Vec<u8>, Option<Arc<[u8]>>, Option<Arc<[u8]>>);

impl MemDiff {
    /// Compares two trees within a range.
    pub(super) fn new(old: &Tree, new: &Tree, range: &KeyRange) -> MemDiff {
        let mut found = Vec::new();
        let inside = |(key, _): &(&Vec<u8>, &Arc<[u8]>)| range.contains(key);
        for (key, value) in old.iter().filter(inside) {
            let now = new.get(key);
            if now != Some(value) {
                found.push((key.clone(), Some(Arc::clone(value)), now.cloned()));
            }
        }
        for (key, value) in new.iter().filter(inside) {
            if !old.contains_key(key) {
                found.push((key.clone(), None, Some(Arc::clone(value))));
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        MemDiff { found: found.into_iter(), current: (Vec::new(), None, None) }
    }
}

impl DiffCursor for MemDiff {
    fn next(&mut self) -> Result<Option<Diff<'_>>> {
        Ok(self.found.next().map(|found| {
            self.current = found;
            let (key, old, new) = &self.current;
            Diff { key, old: old.as_deref(), new: new.as_deref() }
        }))
    }
}
