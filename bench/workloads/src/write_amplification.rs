//! `write-amplification`: how much the log-structured engine writes per byte that a caller puts, by
//! its merge policy. Policies are BabuDB's full merges, tiers, and tiers of an index over value
//! logs (IndexFS II.C).
//!
//! Entries are put at random, in commits of a hundred; checkpoints run when they are due, and
//! merges run at once. Bytes are those of the engine's own counters.

use std::time::Duration;

use serde_json::{Value, json};
use store::Stats;

use super::Run;
use super::fill::{self, KEY_BYTES, Order};
use crate::cli::PolicyArg;
use program::failure::Result;
use program::output::Output;

/// Default cache: checkpoints of 40 MiB in memory.
const CACHE_BYTES: u64 = 128 << 20;
/// Default bytes of a value.
const VALUE_BYTES: u32 = 100;

pub(super) fn run(run: &Run<'_>, output: &mut Output) -> Result<()> {
    let args = run.args;
    let entries = args.files;
    let all = [PolicyArg::Full, PolicyArg::Tiered, PolicyArg::Column];
    let policies = args.lsm.policy.as_deref().unwrap_or(&all);
    let bytes = args.lsm.value_bytes.as_ref().and_then(|list| list.first().copied());
    let bytes = bytes.unwrap_or(VALUE_BYTES) as usize;
    let cache_bytes = args.cache_size.unwrap_or(CACHE_BYTES);
    run.bar.set_length(entries * policies.len() as u64);
    let mut results = serde_json::Map::new();
    for policy in policies {
        let (name, options) = options(*policy);
        run.bar.set_message(name);
        results.insert(name.to_owned(), measure(run, cache_bytes, options, bytes)?);
    }
    run.bar.finish_and_clear();
    let object = json!({
        "workload": "write-amplification",
        "engine": "lsm",
        "entries": entries,
        "key_bytes": KEY_BYTES,
        "value_bytes": bytes,
        "user_bytes": entries * (KEY_BYTES + bytes) as u64,
        "cache_bytes": cache_bytes,
        "policies": results,
    });
    output.object(&object)?;
    text(&object).iter().try_for_each(|line| output.line(line))
}

fn options(policy: PolicyArg) -> (&'static str, lsm::Options) {
    let usual = super::engine::lsm_options();
    match policy {
        PolicyArg::Full => ("full", lsm::Options { policy: lsm::Policy::Full, ..usual }),
        PolicyArg::Tiered => ("tiered", usual),
        PolicyArg::Column => ("column", lsm::Options { values_from: 1, ..usual }),
    }
}

fn measure(run: &Run<'_>, cache_bytes: u64, options: lsm::Options, bytes: usize) -> Result<Value> {
    let bare = fill::make(run, cache_bytes as usize, options)?;
    let start = bare.clock().monotonic();
    fill::fill(run, &**bare.store(), Order::Random, run.args.files, bytes)?;
    let took = bare.clock().monotonic().saturating_sub(start);
    Ok(report(&bare.store().stats(), run.args.files * (KEY_BYTES + bytes) as u64, took))
}

/// The written bytes are split into runs and value logs; the rest is the log.
fn report(stats: &Stats, user_bytes: u64, took: Duration) -> Value {
    let merges = stats.merges.unwrap_or_default();
    let logs = merges.logs;
    let placed = stats.checkpoint_bytes + stats.merge_bytes;
    let by = |bytes: u64| bytes as f64 / user_bytes.max(1) as f64;
    json!({
        "seconds": took.as_secs_f64(),
        "written_bytes": stats.written_bytes,
        "log_bytes": stats.written_bytes - placed,
        "checkpoint_bytes": stats.checkpoint_bytes,
        "merge_bytes": stats.merge_bytes,
        "value_log_bytes": logs.written_bytes,
        "run_bytes": placed.saturating_sub(logs.written_bytes),
        "amplification": by(stats.written_bytes),
        "amplification_without_log": by(placed),
        "checkpoints": stats.checkpoints,
        "merges": merges.ended,
        "depth": merges.depth,
        "value_logs": logs.logs,
        "bytes_on_disk": stats.disk_bytes,
    })
}

fn text(object: &Value) -> Vec<String> {
    let policies = object["policies"].as_object().into_iter().flatten();
    let line = |(name, of): (&String, &Value)| {
        format!(
            "{name:<8}{:.2} times what was given (log {} B, runs {} B, value logs {} B), \
             {} checkpoints, {} merges, {} runs deep, {:.1} s",
            of["amplification"].as_f64().unwrap_or(0.0),
            of["log_bytes"],
            of["run_bytes"],
            of["value_log_bytes"],
            of["checkpoints"],
            of["merges"],
            of["depth"],
            of["seconds"].as_f64().unwrap_or(0.0),
        )
    };
    policies.map(line).collect()
}
