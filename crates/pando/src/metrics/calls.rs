//! Calls of a mount: how many of each kind, how they ended, and for how long they ran.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use vfs::{Observer, Operation, Outcome};

/// Upper bounds of the buckets of latency, in seconds: from what a cache answers to what a disk
/// that is busy takes.
const BUCKETS: [f64; 16] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025,
    0.05, 0.1, 0.5, 2.5, 10.0,
];

/// Labels of a counter of calls.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Ended {
    call: &'static str,
    outcome: &'static str,
}

impl EncodeLabelSet for Ended {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        [("call", self.call), ("outcome", self.outcome)].as_slice().encode(encoder)
    }
}

/// The label of a histogram of calls.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Of {
    call: &'static str,
}

impl EncodeLabelSet for Of {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        [("call", self.call)].as_slice().encode(encoder)
    }
}

/// One kind of call.
struct Kind {
    /// By outcome.
    ended: [Counter; 3],
    seconds: Histogram,
}

/// The calls of a mount.
#[derive(Clone)]
pub(crate) struct Calls {
    ended: Family<Ended, Counter>,
    seconds: Family<Of, Histogram, fn() -> Histogram>,
    /// The same counters, by kind: a call is counted without a search.
    kinds: Arc<[Kind]>,
}

impl Calls {
    pub(crate) fn new() -> Calls {
        let ended: Family<Ended, Counter> = Family::default();
        let seconds: Family<Of, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(BUCKETS));
        let kind = |operation: Operation| {
            let call = operation.name();
            let counter = |outcome: Outcome| {
                ended.get_or_create(&Ended { call, outcome: outcome.name() }).clone()
            };
            Kind {
                ended: [Outcome::Done, Outcome::Refused, Outcome::Failed].map(counter),
                seconds: seconds.get_or_create(&Of { call }).clone(),
            }
        };
        let kinds = Operation::ALL.into_iter().map(kind).collect();
        Calls { ended, seconds, kinds }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("calls", "Calls of the mount that ended", self.ended.clone());
        let help = "Time that calls of the mount took";
        registry.register_with_unit("call_duration", help, Unit::Seconds, self.seconds.clone());
    }
}

impl Observer for Calls {
    fn called(&self, operation: Operation, outcome: Outcome, took: Duration) {
        let kind = &self.kinds[operation as usize];
        kind.ended[outcome as usize].inc();
        kind.seconds.observe(took.as_secs_f64());
    }
}
