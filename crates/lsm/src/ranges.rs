//! Ranges of keys that a layer deletes from what is below it.
//!
//! Invariants: ranges ascend, are not empty, and neither overlap nor touch. A range without an end
//! extends to the last key.
//!
//! The map is persistent. A cursor takes a snapshot of the ranges of an active tree in constant
//! time. The commit that adds the next range copies only a path of the map.

use std::ops::Bound;

use rpds::RedBlackTreeMapSync;

/// Memory of a range in addition to its keys: a node of the map, and heads of the keys.
const RANGE_BYTES: usize = 128;

/// Disjoint ranges of keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    by_start: RedBlackTreeMapSync<Box<[u8]>, Option<Box<[u8]>>>,
}

/// A range: its first key, and the first key behind it where there is one.
pub(crate) type Span<'a> = (&'a [u8], Option<&'a [u8]>);
/// The same, with its own memory.
pub(crate) type OwnedSpan = (Vec<u8>, Option<Vec<u8>>);

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_start.size()
    }

    /// Estimated memory that they take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.iter().map(|(from, to)| RANGE_BYTES + from.len() + to.map_or(0, <[u8]>::len)).sum()
    }

    /// The ranges, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Span<'_>> {
        self.by_start.iter().map(|(from, to)| (&**from, to.as_deref()))
    }

    /// Adds a range, joining what it overlaps or touches.
    pub(crate) fn add(&mut self, from: &[u8], to: Option<&[u8]>) {
        if to.is_some_and(|to| to <= from) {
            return;
        }
        let mut start: Box<[u8]> = from.into();
        let mut end: Option<Box<[u8]>> = to.map(Into::into);
        // The range before may overlap this one, and so may any that begin inside of it.
        let mut before = self.by_start.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(from)));
        if let Some((earlier, reach)) = before.next_back()
            && reach.as_deref().is_none_or(|reach| reach >= from)
        {
            start.clone_from(earlier);
        }
        loop {
            let bound = (Bound::Included(&*start), Bound::Unbounded);
            let Some((next, reach)) = self.by_start.range::<[u8], _>(bound).next() else { break };
            if end.as_deref().is_some_and(|end| &**next > end) {
                break;
            }
            if let (Some(mine), Some(other)) = (&end, reach) {
                end = Some(mine.max(other).clone());
            } else {
                end = None;
            }
            let next = next.clone();
            self.by_start.remove_mut(&next);
        }
        self.by_start.insert_mut(start, end);
    }

    /// The range that a key is in.
    #[inline]
    pub(crate) fn covering(&self, key: &[u8]) -> Option<Span<'_>> {
        if self.by_start.is_empty() {
            return None;
        }
        let bound = (Bound::Unbounded, Bound::Included(key));
        let (from, to) = self.by_start.range::<[u8], _>(bound).next_back()?;
        let to = to.as_deref();
        to.is_none_or(|to| key < to).then_some((&**from, to))
    }

    /// The first range that ends above a key.
    pub(crate) fn reaching_above(&self, key: &[u8]) -> Option<Span<'_>> {
        self.covering(key).or_else(|| {
            let bound = (Bound::Excluded(key), Bound::Unbounded);
            let next = self.by_start.range::<[u8], _>(bound).next();
            next.map(|(from, to)| (&**from, to.as_deref()))
        })
    }

    /// The ranges that begin within bounds.
    pub(crate) fn beginning_in<'a>(
        &'a self,
        bounds: (Bound<&'a [u8]>, Bound<&'a [u8]>),
    ) -> impl Iterator<Item = Span<'a>> {
        self.by_start.range::<[u8], _>(bounds).map(|(from, to)| (&**from, to.as_deref()))
    }

    /// Adds all of another set.
    pub(crate) fn add_all(&mut self, other: &Ranges) {
        for (from, to) in other.iter() {
            self.add(from, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Ranges;

    #[test]
    fn ranges_are_joined_where_they_meet() {
        let mut ranges = Ranges::default();
        for (from, to) in [("b", "d"), ("f", "h"), ("d", "e"), ("x", "a"), ("k", "k")] {
            ranges.add(from.as_bytes(), Some(to.as_bytes()));
        }
        let found: Vec<_> = ranges.iter().collect();
        assert_eq!(found, [(&b"b"[..], Some(&b"e"[..])), (&b"f"[..], Some(&b"h"[..]))]);
        ranges.add(b"g", None);
        assert_eq!(ranges.iter().last(), Some((&b"f"[..], None)));
        ranges.add(b"a", Some(b"f"));
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(&b"a"[..], None)]);
    }

    #[test]
    fn random_ranges_agree_with_a_set() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut ranges, mut expected) = (Ranges::default(), BTreeSet::new());
            for _ in 0..random.usize(0..12) {
                let (from, to) = (random.u8(0..40), random.u8(0..40));
                let open = random.u8(0..20) == 0;
                ranges.add(&[from], (!open).then_some(&[to][..]));
                expected.extend(from..if open { 255 } else { to });
            }
            for key in 0..=254_u8 {
                let found = ranges.covering(&[key]);
                assert_eq!(found.is_some(), expected.contains(&key), "seed {seed}, key {key}");
                let next = ranges.reaching_above(&[key]).map(|(from, _)| from[0].max(key));
                assert_eq!(next, expected.range(key..).next().copied(), "seed {seed}, key {key}");
            }
            let all: Vec<_> = ranges.iter().collect();
            assert!(all.windows(2).all(|pair| pair[0].1.is_some_and(|end| end < pair[1].0)));
        }
    }
}
