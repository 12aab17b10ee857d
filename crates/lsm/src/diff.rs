//! Differences between two stacks, at the cost of the layers that they do not share.
//!
//! Compares both stacks from the oldest layer up. As long as their layers are the same, or were
//! merged from the same (`Layer::origin`), they are equivalent. Only two kinds of keys can differ:
//! keys of the layers above, and keys of shared layers that a range above deletes. Each is looked
//! up if one side's layers do not decide it. The cost is that of the entries of the layers that are
//! not shared and of the entries that their ranges delete. A merge of a shared layer with one that
//! is not shared happens only in a stack that is too deep. Then the cost is that of the merged run.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use store::{Diff, DiffCursor, Error, KeyRange, Result};

use crate::key::Direction;
use crate::layer::{Layer, Stack, View, look_up};
use crate::mem::Known;
use crate::merge::{From, Merge, Tombstones};
use crate::ranges::Ranges;
use crate::run::Caching;

/// Differences that are found at a time, and their bytes.
const CHUNK_ENTRIES: usize = 256;
const CHUNK_BYTES: usize = 256 << 10;

/// Where the layers that two stacks share begin in each.
pub(crate) fn shared_from(old: &[Arc<Layer>], new: &[Arc<Layer>]) -> (usize, usize) {
    // From the oldest up: how many origin numbers each side has passed.
    let (mut old_at, mut new_at) = (old.len(), new.len());
    let mut shared = (old_at, new_at);
    let (mut old_ids, mut new_ids): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
    loop {
        // Only a common suffix of what each has passed is compared; the rest waits.
        while let (Some(a), Some(b)) = (old_ids.last(), new_ids.last()) {
            if a != b {
                return shared;
            }
            old_ids.pop();
            new_ids.pop();
        }
        if old_ids.is_empty() && new_ids.is_empty() {
            shared = (old_at, new_at);
        }
        let side = if old_ids.is_empty() {
            (&mut old_ids, &mut old_at, old)
        } else {
            (&mut new_ids, &mut new_at, new)
        };
        let Some(next) = side.1.checked_sub(1) else { return shared };
        *side.1 = next;
        side.0.extend_from_slice(&side.2[next].origin);
    }
}

/// One side of a comparison: the layers that the other side does not share.
struct Side {
    views: Vec<View>,
    ranges: Ranges,
}

impl Side {
    fn new(layers: &[Arc<Layer>]) -> Result<Side> {
        let views: Vec<View> = layers.iter().map(|layer| layer.view()).collect();
        let mut ranges = Ranges::default();
        for view in &views {
            ranges.add_all(view.ranges()?);
        }
        Ok(Side { views, ranges })
    }
}

type Changed = (Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>);

/// Differences from one stack to another, within a range.
pub(crate) struct StackDiff {
    old: Side,
    new: Side,
    shared: Vec<Arc<Layer>>,
    shared_views: Vec<View>,
    /// What either side's ranges delete from the shared layers.
    deleted: Ranges,
    range: KeyRange,
    /// Where the next chunk begins; none at the end.
    next: Option<Bound<Vec<u8>>>,
    chunk: std::vec::IntoIter<Changed>,
    current: Changed,
    failed: Option<Error>,
}

impl StackDiff {
    pub(crate) fn new(old: &Stack, new: &Stack, range: KeyRange) -> Result<StackDiff> {
        let (old_end, new_end) = shared_from(&old.layers, &new.layers);
        let old_side = Side::new(&old.layers[..old_end])?;
        let new_side = Side::new(&new.layers[..new_end])?;
        let shared = new.layers[new_end..].to_vec();
        let mut deleted = old_side.ranges.clone();
        deleted.add_all(&new_side.ranges);
        Ok(StackDiff {
            old: old_side,
            new: new_side,
            shared_views: shared.iter().map(|layer| layer.view()).collect(),
            shared,
            deleted,
            next: Some(Bound::Included(range.from.clone())),
            range,
            chunk: Vec::new().into_iter(),
            current: (Vec::new(), None, None),
            failed: None,
        })
    }

    /// Finds the next differences.
    fn fill(&mut self) -> Result<()> {
        let Some(bound) = self.next.take() else { return Ok(()) };
        let from = From {
            direction: Direction::Forward,
            bound: bound.as_ref().map(Vec::as_slice),
            caching: Caching::Keep,
        };
        let mut walk = DiffWalk {
            old: Merge::new(self.old.views.iter(), from)?,
            new: Merge::new(self.new.views.iter(), from)?,
            // If nothing of them is deleted they need not be inspected.
            below: Merge::new(self.shared_views.iter().filter(|_| !self.deleted.is_empty()), from)?,
            deleted: &self.deleted,
        };
        walk.start(from.bound)?;
        let (mut found, mut bytes): (Vec<Changed>, usize) = (Vec::new(), 0);
        let mut key = Vec::new();
        loop {
            match walk.nearest() {
                Some(nearest) if self.range.contains(nearest) => {
                    key.clear();
                    key.extend_from_slice(nearest);
                }
                _ => break,
            }
            if let Some((old, new)) = self.values(&walk, &key)? {
                bytes += key.len() + old.as_ref().map_or(0, Vec::len);
                bytes += new.as_ref().map_or(0, Vec::len);
                found.push((key.clone(), old, new));
            }
            if found.len() >= CHUNK_ENTRIES || bytes >= CHUNK_BYTES {
                self.next = Some(Bound::Excluded(key));
                break;
            }
            walk.step_past(&key)?;
        }
        self.chunk = found.into_iter();
        Ok(())
    }

    /// The values of both sides, where they differ.
    #[expect(clippy::type_complexity, reason = "a pair of optional values, used once")]
    fn values(
        &self,
        walk: &DiffWalk<'_>,
        key: &[u8],
    ) -> Result<Option<(Option<Vec<u8>>, Option<Vec<u8>>)>> {
        let decided = |merge: &Merge<'_>, side: &Side| -> Result<Known<Vec<u8>>> {
            if let Some((_, content)) = merge.current().filter(|(at, _)| *at == key) {
                let mut known = Known::Deleted;
                content.read(key, &mut |value| known = Known::Value(value.to_vec()))?;
                return Ok(known);
            }
            let deleted = side.ranges.covering(key).is_some();
            Ok(if deleted { Known::Deleted } else { Known::Nothing })
        };
        let (old, new) = (decided(&walk.old, &self.old)?, decided(&walk.new, &self.new)?);
        let mut below = None;
        match (&old, &new) {
            (Known::Nothing, Known::Nothing) => return Ok(None),
            (Known::Nothing, _) | (_, Known::Nothing) => {
                look_up(&self.shared, key, &mut |value| below = Some(value.to_vec()))?;
            }
            _ => {}
        }
        let resolve = |known: Known<Vec<u8>>, below: &Option<Vec<u8>>| match known {
            Known::Value(value) => Some(value),
            Known::Deleted => None,
            Known::Nothing => below.clone(),
        };
        let (old, new) = (resolve(old, &below), resolve(new, &below));
        Ok((old != new).then_some((old, new)))
    }
}

/// The walk over all keys that may differ.
struct DiffWalk<'a> {
    old: Merge<'a>,
    new: Merge<'a>,
    /// The shared layers, within what is deleted of them.
    below: Merge<'a>,
    deleted: &'a Ranges,
}

impl DiffWalk<'_> {
    fn start(&mut self, bound: Bound<&[u8]>) -> Result<()> {
        self.old.advance(Tombstones::Keep)?;
        self.new.advance(Tombstones::Keep)?;
        if self.deleted.is_empty() {
            return Ok(());
        }
        self.enter(bound)
    }

    /// Moves to the first key of the shared layers that is within a bound and deleted.
    fn enter(&mut self, bound: Bound<&[u8]>) -> Result<()> {
        let mut bound = bound.map(<[u8]>::to_vec);
        loop {
            let (Bound::Included(key) | Bound::Excluded(key)) = &bound else {
                unreachable!("a walk begins at a key")
            };
            let Some((from, to)) = self.deleted.reaching_above(key) else {
                self.below.seek(Bound::Excluded(&[0xff; format::batch::KEY_BYTES_MAX + 1]))?;
                return Ok(());
            };
            if from > key.as_slice() {
                bound = Bound::Included(from.to_vec());
            }
            self.below.seek(bound.as_ref().map(Vec::as_slice))?;
            if !self.below.advance(Tombstones::Skip)? {
                return Ok(());
            }
            let Some((at, _)) = self.below.current() else { return Ok(()) };
            if to.is_none_or(|to| at < to) {
                return Ok(());
            }
            bound = Bound::Included(at.to_vec());
        }
    }

    fn nearest(&self) -> Option<&[u8]> {
        [&self.old, &self.new, &self.below]
            .into_iter()
            .filter_map(|merge| merge.current().map(|(key, _)| key))
            .min()
    }

    fn step_past(&mut self, key: &[u8]) -> Result<()> {
        for merge in [&mut self.old, &mut self.new] {
            if merge.current().is_some_and(|(at, _)| at.cmp(key) == Ordering::Equal) {
                merge.advance(Tombstones::Keep)?;
            }
        }
        if self.below.current().is_some_and(|(at, _)| at == key) {
            self.below.advance(Tombstones::Skip)?;
            if let Some((at, _)) = self.below.current()
                && self.deleted.covering(at).is_none()
            {
                let at = at.to_vec();
                self.enter(Bound::Included(&at))?;
            }
        }
        Ok(())
    }
}

impl DiffCursor for StackDiff {
    fn next(&mut self) -> Result<Option<Diff<'_>>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        loop {
            if let Some(found) = self.chunk.next() {
                self.current = found;
                let (key, old, new) = &self.current;
                return Ok(Some(Diff { key, old: old.as_deref(), new: new.as_deref() }));
            }
            if self.next.is_none() {
                return Ok(None);
            }
            if let Err(error) = self.fill() {
                self.failed = Some(error.clone());
                return Err(error);
            }
        }
    }
}

/// Visits the entries of a stack that another stack lacks or has with other values; the other's
/// entries were visited before.
pub(crate) fn visit_new(
    old: &Stack,
    new: &Stack,
    range: &KeyRange,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<()> {
    let mut diff = StackDiff::new(old, new, range.clone())?;
    while let Some(found) = diff.next()? {
        if let Some(value) = found.new {
            visit(found.key, value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::shared_from;
    use crate::layer::Layer;
    use crate::mem::Mem;

    fn layers(origins: &[&[u64]]) -> Vec<Arc<Layer>> {
        let layer = |origin: &&[u64]| {
            let mut layer = Layer::memory(origin[0], Mem::default());
            layer.origin = Arc::from(*origin);
            Arc::new(layer)
        };
        origins.iter().map(layer).collect()
    }

    #[test]
    fn stacks_share_layers_of_equal_inputs() {
        type Case<'a> = (&'a [&'a [u64]], &'a [&'a [u64]], (usize, usize));
        let cases: [Case<'_>; 7] = [
            (&[&[3], &[2], &[1]], &[&[3], &[2], &[1]], (0, 0)),
            (&[&[2], &[1]], &[&[4], &[2], &[1]], (0, 1)),
            (&[&[5], &[1]], &[&[4], &[1]], (1, 1)),
            (&[&[3], &[2], &[1]], &[&[4], &[3, 2, 1]], (0, 1)),
            (&[&[3], &[2], &[1]], &[&[4, 3], &[2, 1]], (1, 1)),
            (&[&[3, 2], &[1]], &[&[3], &[2, 1]], (0, 0)),
            (&[], &[&[1]], (0, 1)),
        ];
        for (old, new, expected) in cases {
            assert_eq!(shared_from(&layers(old), &layers(new)), expected, "{old:?} {new:?}");
        }
    }
}
