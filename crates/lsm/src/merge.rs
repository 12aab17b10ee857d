//! Merges layers: the entries of several, each key once, with its newest content.
//!
//! The merge runs in either direction, and incrementally: each layer has its own iterator, and the
//! least key (or greatest, backward) of all is next. Entries that a newer layer's range deletes are
//! skipped, not visited. A `View` holds one layer; several are merged in the order of a stack.

use std::collections::btree_map;
use std::ops::Bound;

use store::Result;

use crate::key::{Direction, Key};
use crate::layer::View;
use crate::mem::{Mem, Value};
use crate::ranges::{Ranges, Span};
use crate::rows::Content;
use crate::run::{Caching, RunIter};

/// Whether tombstones are returned as entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tombstones {
    Keep,
    Skip,
}

/// A walk over an in-memory tree.
struct MemIter<'a> {
    mem: &'a Mem,
    direction: Direction,
    range: btree_map::Range<'a, Key, Value>,
    current: Option<(&'a [u8], Option<&'a [u8]>)>,
}

impl<'a> MemIter<'a> {
    fn open(mem: &'a Mem, direction: Direction, bound: Bound<&[u8]>) -> MemIter<'a> {
        let bounds = match direction {
            Direction::Forward => (bound, Bound::Unbounded),
            Direction::Backward => (Bound::Unbounded, bound),
        };
        let range = mem.entries.range::<[u8], _>(bounds);
        let mut iter = MemIter { mem, direction, range, current: None };
        iter.step();
        iter
    }

    #[inline]
    fn content(&self, key: &[u8], value: Option<&'a [u8]>) -> Content<'a> {
        match (value, self.mem.why_unknown(key)) {
            (Some(_), Some(why)) => Content::Unknown(why),
            (Some(value), None) => Content::Value(value),
            (None, _) => Content::Deleted,
        }
    }

    fn step(&mut self) {
        let next = match self.direction {
            Direction::Forward => self.range.next(),
            Direction::Backward => self.range.next_back(),
        };
        self.current = next.map(|(key, value)| (&**key, value.as_deref()));
    }
}

enum Iter<'a> {
    Memory(MemIter<'a>),
    Run(RunIter<'a>),
}

/// One layer of a merge.
struct Head<'a> {
    iter: Iter<'a>,
    ranges: &'a Ranges,
    /// Up to where no range has a key, from the merge's position on. Of a forward merge only.
    free_until: Option<Bound<&'a [u8]>>,
}

impl<'a> Head<'a> {
    /// The range that has a key at which the merge is. Between two ranges a forward merge looks for
    /// the next one once, not at each key.
    #[inline]
    fn covering(&mut self, key: &[u8], direction: Direction) -> Option<Span<'a>> {
        if self.ranges.is_empty() {
            return None;
        }
        if direction == Direction::Backward {
            return self.ranges.covering(key);
        }
        if self.free_until.is_some_and(|end| !is_behind(key, end, direction)) {
            return None;
        }
        let next = self.ranges.reaching_above(key);
        if let Some((from, _)) = next
            && from <= key
        {
            return next;
        }
        self.free_until = Some(next.map_or(Bound::Unbounded, |(from, _)| Bound::Excluded(from)));
        None
    }

    #[inline]
    fn current(&self) -> Option<(&[u8], Content<'_>)> {
        match &self.iter {
            Iter::Memory(iter) => iter.current.map(|(key, value)| (key, iter.content(key, value))),
            Iter::Run(iter) => iter.current(),
        }
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        match &self.iter {
            Iter::Memory(iter) => iter.current.map(|(key, _)| key),
            Iter::Run(iter) => iter.key(),
        }
    }

    fn step(&mut self) -> Result<()> {
        match &mut self.iter {
            Iter::Memory(iter) => {
                iter.step();
                Ok(())
            }
            Iter::Run(iter) => iter.step(),
        }
    }

    /// Moves behind the last entry.
    fn end(&mut self) {
        match &mut self.iter {
            Iter::Memory(iter) => iter.current = None,
            Iter::Run(iter) => iter.end(),
        }
    }

    fn seek(&mut self, bound: Bound<&[u8]>) -> Result<()> {
        match &mut self.iter {
            Iter::Memory(iter) => {
                *iter = MemIter::open(iter.mem, iter.direction, bound);
                Ok(())
            }
            Iter::Run(iter) => iter.seek(bound),
        }
    }
}

/// The start of a merge: position, direction, and how runs are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct From<'k> {
    pub(crate) direction: Direction,
    /// The lower bound forward, the upper one backward.
    pub(crate) bound: Bound<&'k [u8]>,
    pub(crate) caching: Caching,
}

/// Where a walk ends, in its direction.
pub(crate) type End<'k> = Bound<&'k [u8]>;

/// The entries of several layers. Must not be used after an error.
pub(crate) struct Merge<'a> {
    heads: Vec<Head<'a>>,
    direction: Direction,
    current: Option<usize>,
    /// Keys that it visited, deleted ones included.
    pub(crate) visited: u64,
}

impl<'a> Merge<'a> {
    /// Before the first entry within a bound; layers newest first.
    pub(crate) fn new(views: impl Iterator<Item = &'a View>, from: From<'_>) -> Result<Merge<'a>> {
        let mut heads = Vec::new();
        for view in views {
            let iter = match view {
                View::Memory(mem) => Iter::Memory(MemIter::open(mem, from.direction, from.bound)),
                View::Run(run) => {
                    Iter::Run(RunIter::open(run, from.direction, from.bound, from.caching)?)
                }
            };
            heads.push(Head { iter, ranges: view.ranges()?, free_until: None });
        }
        Ok(Merge { heads, direction: from.direction, current: None, visited: 0 })
    }

    /// The current entry.
    pub(crate) fn current(&self) -> Option<(&[u8], Content<'_>)> {
        self.current.and_then(|at| self.heads[at].current())
    }

    /// Moves to the next entry; `false` at the end.
    #[inline]
    pub(crate) fn advance(&mut self, tombstones: Tombstones) -> Result<bool> {
        self.advance_within(tombstones, u64::MAX)
    }

    /// Moves to the next entry that exists before an end; `false` if there is none. It visits no
    /// deleted entry behind the end: there may be many of them before the next one that exists.
    #[inline]
    pub(crate) fn advance_to(&mut self, end: End<'_>) -> Result<bool> {
        if let Some(at) = self.current.take() {
            self.step_past(at)?;
        }
        while let Some((at, key)) = self.nearest() {
            if is_behind(key, end, self.direction) {
                break;
            }
            self.visited += 1;
            if self.skip_deleted(at)? {
                continue;
            }
            if self.heads[at].current().is_some_and(|(_, found)| !found.is_deleted()) {
                self.current = Some(at);
                return Ok(true);
            }
            self.step_past(at)?;
        }
        Ok(false)
    }

    /// The same, but while it skips deleted entries it stops after reading this many bytes of
    /// blocks. Then there is no current entry, and the next may be from `next_key` on.
    pub(crate) fn advance_within(&mut self, tombstones: Tombstones, most: u64) -> Result<bool> {
        if let Some(at) = self.current.take() {
            self.step_past(at)?;
        }
        while let Some((at, _)) = self.nearest() {
            let mut passed = self.skip_deleted(at)?;
            let dead = || self.heads[at].current().is_some_and(|(_, found)| found.is_deleted());
            if !passed && tombstones == Tombstones::Skip && dead() {
                self.step_past(at)?;
                passed = true;
            }
            if !passed {
                self.current = Some(at);
                return Ok(true);
            }
            if most < u64::MAX && self.loaded_bytes() >= most {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The nearest key, deleted or not.
    pub(crate) fn next_key(&self) -> Option<&[u8]> {
        self.nearest().map(|(_, key)| key)
    }

    /// Bytes of the blocks of runs that were read, unpacked.
    pub(crate) fn loaded_bytes(&self) -> u64 {
        let loaded = |head: &Head<'_>| match &head.iter {
            Iter::Memory(_) => 0,
            Iter::Run(iter) => iter.loaded,
        };
        self.heads.iter().map(loaded).sum()
    }

    /// Moves so that the next entry is the first within a bound.
    pub(crate) fn seek(&mut self, bound: Bound<&[u8]>) -> Result<()> {
        self.current = None;
        self.heads.iter_mut().try_for_each(|head| {
            head.free_until = None;
            head.seek(bound)
        })
    }

    /// The newest layer among those that are at the nearest key, and the key.
    #[inline]
    fn nearest(&self) -> Option<(usize, &[u8])> {
        let mut best: Option<(usize, &[u8])> = None;
        for (at, head) in self.heads.iter().enumerate() {
            let Some(key) = head.key() else { continue };
            let nearer = best.is_none_or(|(_, best)| match self.direction {
                Direction::Forward => key < best,
                Direction::Backward => key > best,
            });
            if nearer {
                best = Some((at, key));
            }
        }
        best
    }

    /// Skips the key of a layer, in all layers.
    fn step_past(&mut self, at: usize) -> Result<()> {
        for other in 0..self.heads.len() {
            if other != at && self.heads[other].key() == self.heads[at].key() {
                self.heads[other].step()?;
            }
        }
        self.heads[at].step()
    }

    /// If a newer layer's range deletes the key of layer `at`, skips the range in all layers below
    /// that newer layer.
    fn skip_deleted(&mut self, at: usize) -> Result<bool> {
        let (newer, older) = self.heads.split_at_mut(at);
        let Some(key) = older[0].key() else { return Ok(false) };
        let direction = self.direction;
        let covering = newer
            .iter_mut()
            .enumerate()
            .find_map(|(by, head)| head.covering(key, direction).map(|(from, to)| (by, from, to)));
        let Some((by, from, to)) = covering else { return Ok(false) };
        for head in self.heads.iter_mut().skip(by + 1) {
            let Some(key) = head.key() else { continue };
            match (self.direction, to) {
                (Direction::Forward, Some(to)) if key < to => head.seek(Bound::Included(to))?,
                (Direction::Forward, None) => head.end(),
                (Direction::Backward, _) if key >= from => head.seek(Bound::Excluded(from))?,
                _ => {}
            }
        }
        Ok(true)
    }
}

/// Whether a key is behind the end of a walk in a direction.
#[inline]
fn is_behind(key: &[u8], end: End<'_>, direction: Direction) -> bool {
    match (direction, end) {
        (_, Bound::Unbounded) => false,
        (Direction::Forward, Bound::Included(end)) => key > end,
        (Direction::Forward, Bound::Excluded(end)) => key >= end,
        (Direction::Backward, Bound::Included(end)) => key < end,
        (Direction::Backward, Bound::Excluded(end)) => key <= end,
    }
}
