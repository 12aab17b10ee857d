//! Estimates how many distinct values were seen, in a kilobyte regardless of their number. It keeps
//! the longest run of leading zeros of their hashes, for each of many groups. That is `HyperLogLog`
//! (Flajolet and others, 2007), with its correction for small numbers.
//!
//! Up to a thousand or so the error is a few, then nearly always below a tenth. The values with the
//! least hashes are kept: a uniform sample of the distinct values, regardless of how often each was
//! seen.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Groups: the standard error is 1.04 / sqrt(1024), 3.3 %.
const GROUPS: usize = 1 << GROUP_BITS;
const GROUP_BITS: u32 = 10;
/// Size of the sample: it gives the fraction of all values with a property within a sixteenth.
const SAMPLE: usize = 64;

/// A row: where it is.
type RowId = (u64, u64);

/// Counts distinct values.
#[derive(Clone)]
pub(crate) struct Distinct {
    /// For each group, one more than the longest run of zeros that began a hash; 0: it is empty.
    greatest: Box<[u8; GROUPS]>,
    /// The values with the least hashes, by those.
    least: BTreeMap<u64, RowId>,
}

impl Default for Distinct {
    fn default() -> Distinct {
        Distinct { greatest: Box::new([0; GROUPS]), least: BTreeMap::new() }
    }
}

impl Distinct {
    /// Counts a value, if it is new.
    pub(crate) fn add(&mut self, what: RowId) {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        let hash = hasher.finish();
        let group = (hash % GROUPS as u64) as usize;
        let zeros = (hash >> GROUP_BITS).leading_zeros() - GROUP_BITS;
        self.greatest[group] = self.greatest[group].max(zeros as u8 + 1);
        self.keep(hash, what);
    }

    fn keep(&mut self, hash: u64, what: RowId) {
        let is_full = self.least.len() >= SAMPLE;
        if is_full && self.least.last_key_value().is_some_and(|(last, _)| *last <= hash) {
            return;
        }
        self.least.insert(hash, what);
        if self.least.len() > SAMPLE {
            self.least.pop_last();
        }
    }

    /// The sample of the values that were seen.
    pub(crate) fn sample(&self) -> impl Iterator<Item = RowId> {
        self.least.values().copied()
    }

    /// Adds the values that another counter saw.
    pub(crate) fn join(&mut self, other: &Distinct) {
        for (own, other) in self.greatest.iter_mut().zip(&*other.greatest) {
            *own = (*own).max(*other);
        }
        for (hash, what) in &other.least {
            self.keep(*hash, *what);
        }
    }

    /// The estimated number of distinct values.
    pub(crate) fn count(&self) -> u64 {
        let groups = GROUPS as f64;
        let sum: f64 = self.greatest.iter().map(|&most| 0.5_f64.powi(i32::from(most))).sum();
        let alpha = 0.7213 / (1.0 + 1.079 / groups);
        let estimate = alpha * groups * groups / sum;
        let empty: f64 = self.greatest.iter().map(|&most| f64::from(u8::from(most == 0))).sum();
        let is_few = estimate <= 2.5 * groups && empty > 0.0;
        let count = if is_few { groups * (groups / empty).ln() } else { estimate };
        count.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_items_count_once() {
        for wanted in [0u64, 1, 10, 1000, 3000, 100_000, 2_000_000] {
            let (mut seen, mut half) = (Distinct::default(), Distinct::default());
            for number in 0..wanted {
                seen.add((number, 7u64));
                if number % 2 == 0 {
                    half.add((number, 7u64));
                }
            }
            let count = seen.count();
            assert!(count.abs_diff(wanted) <= wanted / 10, "{count} for {wanted}");
            seen.join(&half);
            assert_eq!(seen.count(), count, "{wanted}: the half was seen before");
            half.join(&seen);
            assert_eq!(half.count(), count, "{wanted}: together");
            assert!(half.sample().eq(seen.sample()), "{wanted}");
            let sample: Vec<_> = seen.sample().collect();
            assert_eq!(sample.len() as u64, wanted.min(SAMPLE as u64));
            let first = sample.iter().filter(|(number, _)| *number < wanted / 2).count();
            let is_half = first.abs_diff(SAMPLE / 2) < SAMPLE / 4;
            assert!(wanted < SAMPLE as u64 || is_half, "{wanted}: {first} are of the first half");
        }
    }
}
