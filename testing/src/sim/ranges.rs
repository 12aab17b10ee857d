//! A set of block numbers as ranges that neither touch nor overlap.

use std::collections::BTreeMap;
use std::ops::Range;

/// The set. Invariant: `total` is the sum of the ranges' lengths.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranges {
    /// End of each range, by its start.
    ends: BTreeMap<u64, u64>,
    total: u64,
}

impl Ranges {
    /// How many numbers it holds.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The parts of `range` that are in the set.
    fn overlaps(&self, range: &Range<u64>) -> impl DoubleEndedIterator<Item = Range<u64>> {
        let (from, to) = (range.start, range.end);
        let before = self.ends.range(..from).next_back();
        before
            .into_iter()
            .chain(self.ends.range(from..to.max(from)))
            .map(move |(&start, &end)| start.max(from)..end.min(to))
            .filter(|part| part.start < part.end)
    }

    /// The parts of `range` that are not in the set, in order.
    pub(super) fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for part in self.overlaps(range) {
            if at < part.start {
                gaps.push(at..part.start);
            }
            at = part.end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// How many numbers of `range` are not in the set.
    pub(super) fn missing(&self, range: &Range<u64>) -> u64 {
        self.gaps(range).iter().map(|gap| gap.end - gap.start).sum()
    }

    /// Adds a range.
    pub(super) fn insert(&mut self, range: &Range<u64>) {
        if range.start >= range.end {
            return;
        }
        self.total += self.missing(range);
        let mut merged = range.clone();
        // Merge a range that starts before this one and reaches or touches it.
        if let Some((&start, &end)) = self.ends.range(..range.start).next_back()
            && end >= range.start
        {
            merged = start..merged.end.max(end);
        }
        while let Some((&start, &end)) = self.ends.range(merged.start..=merged.end).next() {
            self.ends.remove(&start);
            merged.end = merged.end.max(end);
        }
        self.ends.insert(merged.start, merged.end);
    }

    /// Removes a range.
    pub(super) fn remove(&mut self, range: &Range<u64>) {
        let parts: Vec<Range<u64>> = self.overlaps(range).collect();
        for part in parts {
            let (&start, &end) =
                self.ends.range(..=part.start).next_back().expect("invariant: the part is in it");
            self.ends.remove(&start);
            if start < part.start {
                self.ends.insert(start, part.start);
            }
            if part.end < end {
                self.ends.insert(part.end, end);
            }
            self.total -= part.end - part.start;
        }
    }
}
