//! The report of a run: one line of JSON, or a few lines for people.

use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};

use super::base::Base;
use super::ideal::Ideal;
use super::work::{Measured, Op, Work, rate};
use crate::cli::{BenchArgs, Mix};
use crate::memory;
use program::output::number;

/// The measurements of a run.
pub(super) struct Report(Value);

impl Report {
    pub(super) fn new(
        args: &BenchArgs,
        mix: Mix,
        base: &Base,
        work: &Work,
        ideal: Ideal,
        ours: &Measured,
        beside: Option<&Measured>,
    ) -> Report {
        let percent = args.rodeh.in_memory_percent();
        let name = |value: Option<clap::builder::PossibleValue>| {
            value.map(|value| value.get_name().to_owned()).unwrap_or_default()
        };
        let (facts, operations) = (&base.facts, ours.operations.max(1) as f64);
        let throughput = rate(ours.operations, ours.took);
        let keys_a_leaf = facts.entries as f64 / facts.leaves.max(1) as f64;
        let limit = ideal.throughput(work, keys_a_leaf, percent);
        let mut object = json!({
            "workload": name(args.workload.to_possible_value()),
            "mix": name(mix.to_possible_value()),
            "in_memory_percent": percent,
            "threads": work.threads,
            "seed": work.seed,
            "engine": base.engine.name(),
            "entries": facts.entries,
            "leaves": facts.leaves,
            "interiors": facts.interiors,
            "tree_bytes": facts.disk_bytes,
            "tree_memory_bytes": facts.memory_bytes,
            "cache_bytes": base.cache_bytes,
            "rss_bytes": memory::resident_bytes(),
            "ops": ours.operations,
            "seconds": ours.took.as_secs_f64(),
            "ops_per_second": throughput.round(),
            "ideal_ops_per_second": limit.round(),
            "ratio": thousandths(throughput / limit),
            "p50_us": ours.latencies.value_at_quantile(0.5) as f64 / 1000.0,
            "p99_us": ours.latencies.value_at_quantile(0.99) as f64 / 1000.0,
            "reads_per_op": thousandths(ours.reads as f64 / operations),
            "written_bytes_per_op": (ours.written_bytes as f64 / operations).round(),
        });
        if let Some(memory) = ideal.memory {
            object["memory_ops_per_second"] = json!(memory.round());
        } else {
            object["raw_reads_per_second"] = json!(ideal.reads.round());
            object["raw_read_writes_per_second"] = json!(ideal.read_writes.round());
        }
        for (op, field) in Op::ALL.into_iter().zip(["lookup_us", "insert_us", "remove_us"]) {
            let (count, sum) = ours.each[op as usize];
            if count > 0 {
                object[field] = json!(thousandths(sum.as_secs_f64() * 1e6 / count as f64));
            }
        }
        if !ours.settled.is_zero() {
            let settled = rate(ours.operations, ours.took + ours.settled);
            object["settled_ops_per_second"] = json!(settled.round());
            object["settled_ratio"] = json!(thousandths(settled / limit));
        }
        if let Some(beside) = beside {
            let base = rate(beside.operations, beside.took);
            object["base_ops_per_second"] = json!(base.round());
            object["ratio_to_base"] = json!(thousandths(throughput / base));
        }
        Report(object)
    }

    pub(super) fn json(&self) -> Value {
        self.0.clone()
    }

    /// Lines for people.
    pub(super) fn text(&self) -> Vec<String> {
        let field = |name: &str| self.0[name].as_f64().unwrap_or_default();
        let took = Duration::try_from_secs_f64(field("seconds")).unwrap_or_default();
        let mut lines = vec![
            format!(
                "{} ({}): {} operations in {:.3} s, {} a second ({} % in memory, {} threads)",
                self.0["workload"].as_str().unwrap_or_default(),
                self.0["mix"].as_str().unwrap_or_default(),
                number(field("ops") as u64),
                took.as_secs_f64(),
                number(field("ops_per_second") as u64),
                field("in_memory_percent"),
                field("threads"),
            ),
            format!(
                "ideal: {} a second, ratio {}",
                number(field("ideal_ops_per_second") as u64),
                field("ratio"),
            ),
        ];
        if self.0.get("ratio_to_base").is_some() {
            lines.push(format!(
                "base: {} a second, ratio {}",
                number(field("base_ops_per_second") as u64),
                field("ratio_to_base"),
            ));
        }
        lines
    }
}

fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
