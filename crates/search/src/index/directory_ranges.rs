//! Directories that are compared separately.

use super::packed::{LEAST, grow};

/// Half-open ranges of directories: the end is not included.
#[derive(Debug, Default)]
pub(super) struct DirectoryRanges {
    ranges: Vec<(u64, u64)>,
    /// Whether they are in order, with gaps between them.
    unsettled: bool,
}

impl DirectoryRanges {
    /// Adds a range.
    pub(super) fn add(&mut self, from: u64, to: u64) {
        match self.ranges.last_mut() {
            // Directories created together are removed together, in either direction.
            Some(last) if from <= last.1 && to >= last.0 => {
                // It may touch other ranges now.
                self.unsettled |= from < last.0;
                *last = (from.min(last.0), to.max(last.1));
            }
            last => {
                self.unsettled |= last.is_some_and(|last| from < last.1);
                grow(&mut self.ranges, 1, LEAST);
                self.ranges.push((from, to));
            }
        }
    }

    /// Puts them in order.
    pub(super) fn settle(&mut self) {
        if !std::mem::take(&mut self.unsettled) {
            return;
        }
        self.ranges.sort_unstable();
        self.ranges.dedup_by(|next, last| {
            let meets = next.0 <= last.1;
            if meets {
                last.1 = last.1.max(next.1);
            }
            meets
        });
    }

    /// The ranges, in order, once they are settled.
    pub(super) fn ranges(&self) -> &[(u64, u64)] {
        debug_assert!(!self.unsettled, "ranges in order");
        &self.ranges
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether a directory is in one of them, once they are settled.
    pub(super) fn has(&self, directory: u64) -> bool {
        let ranges = self.ranges();
        let behind = ranges.partition_point(|(from, _)| *from <= directory);
        behind.checked_sub(1).is_some_and(|at| directory < ranges[at].1)
    }

    /// Memory that they take.
    pub(super) fn memory_bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<(u64, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::DirectoryRanges;

    #[test]
    fn ranges_in_any_order_are_a_set() {
        for seed in 0..500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut apart, mut model) = (DirectoryRanges::default(), BTreeSet::new());
            for _ in 0..random.usize(0..30) {
                let from = random.u64(..60);
                let to = from + random.u64(1..5);
                apart.add(from, to);
                model.extend(from..to);
                if random.u8(..5) == 0 {
                    apart.settle();
                }
            }
            apart.settle();
            for directory in 0..70 {
                assert_eq!(apart.has(directory), model.contains(&directory), "seed {seed}");
            }
            let ranges = apart.ranges();
            assert!(ranges.windows(2).all(|two| two[0].1 < two[1].0), "seed {seed}: {ranges:?}");
        }
    }
}
