//! The report of a run: one line of JSON, or a few lines for people.

use std::time::Duration;

use clap::ValueEnum;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::engine::durability;
use super::median::median;
use super::meter::histogram;
use super::volume::Volume;
use crate::cli::BenchArgs;
use program::output::{number, size};

/// The measurements of a run.
pub(super) struct Report {
    pub(super) workload: String,
    pub(super) files: u64,
    pub(super) threads: u64,
    pub(super) engine: &'static str,
    pub(super) durability: &'static str,
    pub(super) operations: u64,
    pub(super) seconds: Duration,
    /// Nanoseconds per operation.
    pub(super) latencies: Histogram<u64>,
    pub(super) bytes_on_disk: u64,
    pub(super) bytes_written: u64,
    pub(super) rss_bytes: u64,
    pub(super) clones: Option<Clones>,
    pub(super) comparison: Option<Comparison>,
}

/// The times of the clones of a run.
#[derive(Default)]
pub(super) struct Clones {
    clone: Vec<Duration>,
    first: Vec<Duration>,
    thousandth: Vec<Duration>,
}

impl Clones {
    /// Adds a clone and the writes after it.
    pub(super) fn add(&mut self, clone: Duration, writes: &[Duration]) {
        self.clone.push(clone);
        self.first.extend(writes.first());
        self.thousandth.extend(writes.last());
    }
}

/// Rounds of PandoFS beside rounds of the ordered map.
#[derive(Default)]
pub(super) struct Comparison {
    ratios: Vec<f64>,
    operations: u64,
    yardstick: Duration,
}

impl Comparison {
    /// Adds a round.
    pub(super) fn add(&mut self, operations: u64, ours: Duration, yardstick: Duration) {
        if operations > 0 {
            self.ratios.push(yardstick.as_secs_f64() / ours.as_secs_f64().max(1e-12));
            self.operations += operations;
            self.yardstick += yardstick;
        }
    }

    fn ratio(&self) -> f64 {
        median(self.ratios.clone())
    }

    fn operations_per_second(&self) -> f64 {
        self.operations as f64 / self.yardstick.as_secs_f64().max(1e-12)
    }
}

impl Report {
    /// A report with the options of the command line.
    pub(super) fn new(args: &BenchArgs, volume: &Volume) -> Report {
        let workload = args.workload.to_possible_value();
        Report {
            workload: workload.map(|value| value.get_name().to_owned()).unwrap_or_default(),
            files: args.files,
            threads: args.threads(),
            engine: volume.engine(),
            durability: durability(args).name(),
            operations: 0,
            seconds: Duration::ZERO,
            latencies: histogram(),
            bytes_on_disk: 0,
            bytes_written: 0,
            rss_bytes: 0,
            clones: None,
            comparison: None,
        }
    }

    fn operations_per_second(&self) -> f64 {
        self.operations as f64 / self.seconds.as_secs_f64().max(1e-12)
    }

    /// Microseconds at a quantile of the operations.
    fn quantile(&self, quantile: f64) -> f64 {
        micros(Duration::from_nanos(self.latencies.value_at_quantile(quantile)))
    }

    /// One object.
    pub(super) fn json(&self) -> Value {
        let mut object = json!({
            "workload": self.workload,
            "files": self.files,
            "threads": self.threads,
            "engine": self.engine,
            "durability": self.durability,
            "seconds": self.seconds.as_secs_f64(),
            "ops": self.operations,
            "ops_per_second": self.operations_per_second().round(),
            "p50_us": self.quantile(0.5),
            "p99_us": self.quantile(0.99),
            "max_us": self.quantile(1.0),
            "bytes_on_disk": self.bytes_on_disk,
            "bytes_written": self.bytes_written,
            "rss_bytes": self.rss_bytes,
        });
        if let Some(clones) = &self.clones {
            object["clone_us"] = json!(median_micros(&clones.clone));
            object["first_write_us"] = json!(median_micros(&clones.first));
            object["thousandth_write_us"] = json!(median_micros(&clones.thousandth));
        }
        if let Some(comparison) = &self.comparison {
            let rate = comparison.operations_per_second().round();
            object["yardstick_ops_per_second"] = json!(rate);
            object["ratio"] = json!((comparison.ratio() * 1000.0).round() / 1000.0);
        }
        object
    }

    /// Lines for people.
    pub(super) fn text(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "{}: {} operations in {:.3} s, {} a second ({} files, {} threads, {})",
                self.workload,
                number(self.operations),
                self.seconds.as_secs_f64(),
                number(self.operations_per_second() as u64),
                number(self.files),
                self.threads,
                self.durability,
            ),
            format!(
                "latency: median {:.2} us, 99 % {:.2} us, longest {:.1} us",
                self.quantile(0.5),
                self.quantile(0.99),
                self.quantile(1.0),
            ),
            format!(
                "{} on disk, {} written, {} of memory",
                size(self.bytes_on_disk),
                size(self.bytes_written),
                size(self.rss_bytes),
            ),
        ];
        if let Some(clones) = &self.clones {
            lines.push(format!(
                "clone {:.1} us, first write {:.1} us, thousandth {:.1} us (medians)",
                median_micros(&clones.clone),
                median_micros(&clones.first),
                median_micros(&clones.thousandth),
            ));
        }
        if let Some(comparison) = &self.comparison {
            lines.push(format!(
                "yardstick: {} a second, ratio {:.3} (median of {})",
                number(comparison.operations_per_second() as u64),
                comparison.ratio(),
                comparison.ratios.len(),
            ));
        }
        lines
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1000.0
}

fn median_micros(durations: &[Duration]) -> f64 {
    median(durations.iter().copied().map(micros).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_the_median_of_rounds() {
        let mut comparison = Comparison::default();
        for millis in [10, 50, 20] {
            comparison.add(100, Duration::from_millis(20), Duration::from_millis(millis));
        }
        assert!((comparison.ratio() - 1.0).abs() < 1e-9);
        assert!((comparison.operations_per_second() - 3750.0).abs() < 1e-6);
    }
}
