//! A meter of hiccups: a thread that does almost nothing and records how long that took. It shows
//! delays of the machine and not of the store under test. Also the latencies that are reported
//! beside it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use device::{Clock, SystemClock};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// What the meter does between two readings of the clock.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pulse {
    /// Spins for this long. Uses a processor.
    Spin(Duration),
    /// Sleeps for this long, and records how much longer it took. Uses almost no processor time,
    /// and includes the time of waking up.
    Sleep(Duration),
}

/// A histogram of nanoseconds.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("invariant: three digits are allowed")
}

/// A meter; it measures several sides separately.
pub(super) struct Meter {
    pulse: Pulse,
    sides: usize,
    side: AtomicUsize,
    pulses: AtomicU64,
    ending: AtomicBool,
}

impl Meter {
    pub(super) fn new(pulse: Pulse, sides: usize) -> Meter {
        let (side, pulses) = (AtomicUsize::new(sides), AtomicU64::new(0));
        Meter { pulse, sides, side, pulses, ending: AtomicBool::new(false) }
    }

    /// Selects what is measured from now on; `None` for nothing.
    pub(super) fn turn(&self, side: Option<usize>) {
        self.side.store(side.unwrap_or(self.sides), Ordering::Relaxed);
    }

    /// Waits until the current pulse has been recorded, so that a hiccup counts for the side in
    /// which it began. Another thread runs the meter meanwhile.
    pub(super) fn end_of_pulse(&self, clock: &SystemClock) {
        let before = self.pulses.load(Ordering::Acquire);
        while self.pulses.load(Ordering::Acquire) == before {
            clock.sleep(Duration::from_micros(50));
        }
    }

    /// Ends the thread that runs it.
    pub(super) fn end(&self) {
        self.ending.store(true, Ordering::Release);
    }

    /// Measures until the end; returns the nanoseconds of each side.
    pub(super) fn run(&self) -> Vec<Histogram<u64>> {
        let clock = SystemClock::new();
        let mut sides = vec![histogram(); self.sides];
        let mut before = clock.monotonic();
        while !self.ending.load(Ordering::Acquire) {
            let (after, least) = match self.pulse {
                Pulse::Spin(time) => {
                    let mut after = clock.monotonic();
                    while after.saturating_sub(before) < time {
                        after = clock.monotonic();
                    }
                    (after, Duration::ZERO)
                }
                Pulse::Sleep(time) => {
                    clock.sleep(time);
                    (clock.monotonic(), time)
                }
            };
            if let Some(side) = sides.get_mut(self.side.load(Ordering::Relaxed)) {
                record(side, after.saturating_sub(before).saturating_sub(least));
            }
            self.pulses.fetch_add(1, Ordering::Release);
            before = after;
        }
        sides
    }
}

/// Records a latency.
pub(super) fn record(latencies: &mut Histogram<u64>, took: Duration) {
    latencies.record(took.as_nanos() as u64).expect("invariant: the histogram grows");
}

/// The latency in microseconds at a quantile.
pub(super) fn at(latencies: &Histogram<u64>, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / 1e3
}

/// Latencies of one kind of time.
pub(super) struct Side {
    pub(super) latencies: Histogram<u64>,
    pub(super) busy: Duration,
}

impl Side {
    pub(super) fn new() -> Side {
        Side { latencies: histogram(), busy: Duration::ZERO }
    }

    /// The fields of a report, with those of the meter; `what` names the counted operation.
    pub(super) fn json(&self, what: &str, meter: &Histogram<u64>) -> Value {
        let seconds = self.busy.as_secs_f64();
        let mut object = json!({
            "seconds": seconds,
            "ops_per_second": shown(self.latencies.len() as f64 / seconds.max(1e-9)),
            "mean_us": self.latencies.mean() / 1e3,
            "stdev_us": self.latencies.stdev() / 1e3,
            "p50_us": at(&self.latencies, 0.5),
            "p99_us": at(&self.latencies, 0.99),
            "p999_us": at(&self.latencies, 0.999),
            "max_us": at(&self.latencies, 1.0),
            "meter_p50_us": at(meter, 0.5),
            "meter_p99_us": at(meter, 0.99),
            "meter_p999_us": at(meter, 0.999),
            "meter_max_us": at(meter, 1.0),
        });
        object[what] = json!(self.latencies.len());
        object
    }
}

/// A rate as it is reported: in whole numbers, unless it has only few digits before the point.
fn shown(rate: f64) -> f64 {
    if rate < 100.0 { (rate * 1000.0).round() / 1000.0 } else { rate.round() }
}

/// The upper bound for the 99th percentile while other work runs, by its normal value. BabuDB
/// claims "up to 30 %" on calls of 200 us. So calls of a few microseconds may take a tenth of a
/// millisecond more.
pub(super) fn p99_bound(normal: f64) -> f64 {
    (normal * 1.3).max(normal + 100.0)
}

/// A line for people from the output of [`Side::json`].
pub(super) fn text(name: &str, side: &Value) -> String {
    let micros = |field: &str| side[field].as_f64().unwrap_or_default();
    format!(
        "{name}: {} a second, mean {:.2} us (deviation {:.1}), p50 {:.1} us, p99 {:.1} us, \
         p99.9 {:.1} us, longest {:.0} us (meter: p99 {:.0}, p99.9 {:.0}, longest {:.0})",
        side["ops_per_second"],
        micros("mean_us"),
        micros("stdev_us"),
        micros("p50_us"),
        micros("p99_us"),
        micros("p999_us"),
        micros("max_us"),
        micros("meter_p99_us"),
        micros("meter_p999_us"),
        micros("meter_max_us"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a busy machine a kind of time may have a single operation, which takes long.
    #[test]
    fn low_rates_keep_their_digits() {
        let rates = [0.4, 3.4567, 99.9, 100.4].map(|rate| shown(rate).to_string());
        assert_eq!(rates, ["0.4", "3.457", "99.9", "100"]);
    }
}
