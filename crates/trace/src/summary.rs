//! What a trace has: counts, times, bytes, callers.

use std::collections::{BTreeMap, BTreeSet};

use format::trace::{Call, Ended, Event};
use hdrhistogram::Histogram;

/// Latencies have three digits, and are at most an hour.
const LONGEST_NANOS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// Latencies of one kind of call.
#[derive(Debug, Clone)]
pub struct Percentiles(Histogram<u64>);

impl Default for Percentiles {
    fn default() -> Percentiles {
        let made = Histogram::new_with_bounds(1, LONGEST_NANOS, DIGITS);
        Percentiles(made.expect("invariant: these bounds are valid"))
    }
}

impl Percentiles {
    /// Adds a latency.
    pub fn add(&mut self, nanos: u64) {
        self.0.saturating_record(nanos);
    }

    /// Adds those of another histogram.
    pub fn merge(&mut self, other: &Percentiles) {
        self.0.add(&other.0).unwrap_or_else(|_| unreachable!("invariant: bounds are alike"));
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that `percent` of all do not exceed, in nanoseconds.
    pub fn at(&self, percent: f64) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.value_at_percentile(percent) }
    }

    /// How many latencies are below each power of two of nanoseconds and not below the one before;
    /// only those of which there are any.
    pub fn histogram(&self) -> Vec<(u64, u64)> {
        let mut found: Vec<(u64, u64)> = Vec::new();
        for step in self.0.iter_recorded() {
            let (below, count) =
                ((step.value_iterated_to() + 1).next_power_of_two(), step.count_at_value());
            match found.last_mut() {
                Some((last, sum)) if *last == below => *sum += count,
                _ => found.push((below, count)),
            }
        }
        found
    }

    /// The average, in nanoseconds.
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    /// The longest, in nanoseconds.
    pub fn most(&self) -> u64 {
        self.0.max()
    }
}

/// One kind of call.
#[derive(Debug, Clone, Default)]
pub struct OfCall {
    /// How often each ending occurred.
    pub ended: BTreeMap<Ended, u64>,
    /// Latencies.
    pub took: Percentiles,
    /// Bytes read, written or copied.
    pub bytes: u64,
}

impl OfCall {
    /// How many.
    pub fn count(&self) -> u64 {
        self.took.count()
    }
}

/// What a number in a set takes, by an upper estimate: leaves of the set are half full at least.
const NUMBER_BYTES: usize = 2 * size_of::<u64>() + 8;

/// Numbers that a trace has, each counted once, as far as the memory for them goes.
#[derive(Debug, Default)]
pub struct Distinct {
    seen: BTreeSet<u64>,
    /// Whether there are more than were counted.
    pub is_more: bool,
}

impl Distinct {
    /// How many were counted: all, or the least that there are.
    pub fn count(&self) -> u64 {
        self.seen.len() as u64
    }

    fn add(&mut self, number: u64, left: &mut usize) {
        if self.seen.contains(&number) {
            return;
        }
        match left.checked_sub(NUMBER_BYTES) {
            Some(rest) => {
                *left = rest;
                self.seen.insert(number);
            }
            None => self.is_more = true,
        }
    }
}

/// Counts of a trace. Its memory is bounded: of the calls there are as many kinds as the format
/// has, and numbers are counted within what [`Summary::within`] was given.
#[derive(Debug)]
pub struct Summary {
    /// Bytes of memory left for numbers.
    left: usize,
    /// By kind of call.
    pub calls: BTreeMap<Call, OfCall>,
    /// Start of the first event and end of the last, in nanoseconds.
    pub span: Option<(u64, u64)>,
    /// Users.
    pub users: Distinct,
    /// Processes.
    pub processes: Distinct,
    /// Inodes that were returned or used.
    pub nodes: Distinct,
}

impl Summary {
    /// Counts within so many bytes of memory for numbers of users, processes and inodes.
    pub fn within(memory: usize) -> Summary {
        let [users, processes, nodes] = [(); 3].map(|()| Distinct::default());
        Summary { left: memory, calls: BTreeMap::new(), span: None, users, processes, nodes }
    }

    /// Counts an event.
    pub fn add(&mut self, event: &Event<'_>) {
        let of = self.calls.entry(event.call).or_default();
        *of.ended.entry(event.ended).or_default() += 1;
        of.took.add(event.took);
        if event.ended == Ended::Done {
            let bytes = match event.call {
                Call::Write => event.length,
                Call::Read | Call::CopyRange => event.returned,
                _ => 0,
            };
            of.bytes = of.bytes.saturating_add(bytes);
        }
        let (first, last) = self.span.unwrap_or((u64::MAX, 0));
        let end = event.at.saturating_add(event.took);
        self.span = Some((first.min(event.at), last.max(end)));
        self.users.add(event.uid.into(), &mut self.left);
        self.processes.add(event.pid.into(), &mut self.left);
        self.nodes.add(event.node, &mut self.left);
        if event.found.node != 0 {
            self.nodes.add(event.found.node, &mut self.left);
        }
    }

    /// All events.
    pub fn events(&self) -> u64 {
        self.calls.values().map(OfCall::count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace may have as many inodes as it has events.
    #[test]
    fn numbers_are_counted_within_their_memory() {
        for (fits, counted) in [(7, 5), (5, 3), (2, 0), (0, 0)] {
            let mut summary = Summary::within(fits * NUMBER_BYTES);
            for node in [1, 2, 3, 4, 5, 1, 2, 5] {
                summary.add(&Event { uid: 7, pid: 9, node, ..Event::new(Call::Getattr) });
            }
            assert_eq!(summary.nodes.count(), counted, "{fits}");
            assert_eq!(summary.nodes.is_more, counted < 5, "{fits}");
            assert_eq!(
                (summary.users.count(), summary.users.is_more),
                (fits.min(1) as u64, fits == 0)
            );
            assert_eq!(summary.events(), 8, "calls are counted all the same");
        }
    }

    #[test]
    fn a_histogram_has_each_latency_below_the_next_power_of_two() {
        let mut took = Percentiles::default();
        assert_eq!(took.histogram(), []);
        for nanos in [1, 1023, 1024, 1025, 2047, 2048, 1_000_000, LONGEST_NANOS * 2] {
            took.add(nanos);
        }
        let expected = [(2, 1), (1024, 1), (2048, 3), (4096, 1), (1 << 20, 1), (1 << 42, 1)];
        assert_eq!(took.histogram(), expected);
        let mut sum = Percentiles::default();
        (0..1000_u64).for_each(|n| sum.add(n * n * n));
        assert_eq!(sum.histogram().iter().map(|(_, count)| count).sum::<u64>(), sum.count());
    }
}
