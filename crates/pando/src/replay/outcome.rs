//! What a replay measured: latencies by call, and results that differ from the recorded ones.

use std::collections::BTreeMap;
use std::time::Duration;

use format::trace::{Call, Ended};
use trace::Percentiles;

use super::job::{Job, Maker, Ran};
use super::place::Target;

/// How many differences are shown.
pub(crate) const SHOWN_MAX: usize = 20;

/// A result that differs from the recorded one.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    /// Number of the event, from 1.
    pub(crate) number: u64,
    pub(crate) call: Call,
    /// The name, if the call has one.
    pub(crate) name: Box<[u8]>,
    pub(crate) recorded: Ended,
    pub(crate) here: Ended,
}

/// Results of some calls of a replay.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) took: BTreeMap<Call, Percentiles>,
    /// Opens that the trace does not show.
    pub(crate) opens: Percentiles,
    /// Calls that failed and were recorded as done.
    pub(crate) failed: u64,
    /// Calls that succeeded and were recorded as refused.
    pub(crate) succeeded: u64,
    /// Calls that were refused for another reason.
    pub(crate) other: u64,
    pub(crate) first: Vec<Difference>,
    /// Calls that no replay makes, by kind.
    pub(crate) left_out: BTreeMap<Call, u64>,
    /// Calls on inodes that no event before shows.
    pub(crate) unknown: u64,
    /// How long after its time a call began, if the times of the trace are kept.
    pub(crate) late: Percentiles,
}

impl Outcome {
    /// Counts a call that was made or left out.
    pub(super) fn add(&mut self, job: &Job, ran: Ran, maker: &mut Maker<'_>) {
        for open in maker.opens.drain(..) {
            self.opens.add(nanos(open));
        }
        let call = job.event.call;
        let Ran::Made(here) = ran else {
            *self.left_out.entry(call).or_default() += 1;
            return;
        };
        self.took.entry(call).or_default().add(nanos(maker.took));
        let recorded = job.event.ended;
        match (recorded, here) {
            (recorded, here) if recorded == here => return,
            (Ended::Done, _) => self.failed += 1,
            (_, Ended::Done) => self.succeeded += 1,
            _ => self.other += 1,
        }
        if self.first.len() < SHOWN_MAX {
            let name = match &job.target {
                Target::Name(_, name) => name.clone(),
                _ => Box::default(),
            };
            self.first.push(Difference { number: job.number, call, name, recorded, here });
        }
    }

    /// Adds the results of another thread.
    pub(super) fn merge(&mut self, other: Outcome) {
        for (call, took) in &other.took {
            self.took.entry(*call).or_default().merge(took);
        }
        for (call, count) in &other.left_out {
            *self.left_out.entry(*call).or_default() += count;
        }
        self.opens.merge(&other.opens);
        self.late.merge(&other.late);
        self.failed += other.failed;
        self.succeeded += other.succeeded;
        self.other += other.other;
        self.unknown += other.unknown;
        self.first.extend(other.first);
        self.first.sort_by_key(|difference| difference.number);
        self.first.truncate(SHOWN_MAX);
    }

    /// How many calls were made.
    pub(crate) fn made(&self) -> u64 {
        self.took.values().map(Percentiles::count).sum()
    }

    /// How many results differ.
    pub(crate) fn differences(&self) -> u64 {
        self.failed + self.succeeded + self.other
    }
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
