//! `column-style`: rows in runs, beside rows in value logs with pointers in the runs (IndexFS,
//! II.C and III.D).
//!
//! As in the paper (Fig. 10), it puts entries with keys of 20 bytes into an empty store, in the
//! order of their keys or at random. It ends when nothing is left to merge. Then entries drawn at
//! random are looked up, among all of them and among the first hundredth (Table III). Beside that,
//! ranges of a thousand keys are scanned with their values: `readdir` with `stat`. The cache holds
//! a part of the data, as the paper's memory does; everything else is read from the disk. In column
//! style all values go to value logs, however short, which shows from which length on that pays.

use std::time::Duration;

use serde_json::{Value, json};
use store::KeyRange;

use super::Run;
use super::bare::{Bare, TREE};
use super::engine::broken;
use super::fill::{self, KEY_BYTES, Order, key};
use program::failure::Result;
use program::output::Output;

/// Default bytes of a value; Table III uses the middle one.
const VALUE_BYTES: [u32; 3] = [64, 320, 1024];
/// The cache size, as a percentage of the data. The paper: 300 MB for 1 GB.
const CACHE_PERCENT: u64 = 30;
/// Lookups of each kind, unless --operations sets it.
const OPERATIONS: u64 = 20_000;
/// Entries of a scan, and scans of each kind.
const SCAN: u64 = 1000;
const SCANS: u64 = 50;

pub(super) fn run(run: &Run<'_>, output: &mut Output) -> Result<()> {
    let args = run.args;
    let sizes = args.lsm.value_bytes.as_deref().unwrap_or(&VALUE_BYTES);
    run.bar.set_length(args.files * sizes.len() as u64 * 4);
    for &bytes in sizes {
        for order in [Order::Sequential, Order::Random] {
            let mut layouts = serde_json::Map::new();
            for (layout, values_from) in [("rows", 0), ("column", 1)] {
                run.bar.set_message(layout);
                let options = lsm::Options { values_from, ..super::engine::lsm_options() };
                layouts.insert(layout.to_owned(), measure(run, order, bytes as usize, options)?);
            }
            let object = json!({
                "workload": "column-style",
                "engine": "lsm",
                "entries": args.files,
                "order": order.name(),
                "value_bytes": bytes,
                "cache_bytes": cache_bytes(run, bytes as usize),
                "layouts": layouts,
            });
            output.object(&object)?;
            text(&object).iter().try_for_each(|line| output.line(line))?;
        }
    }
    run.bar.finish_and_clear();
    Ok(())
}

fn cache_bytes(run: &Run<'_>, bytes: usize) -> u64 {
    let data = run.args.files * (KEY_BYTES + bytes) as u64;
    run.args.cache_size.unwrap_or(data / 100 * CACHE_PERCENT)
}

fn measure(run: &Run<'_>, order: Order, bytes: usize, options: lsm::Options) -> Result<Value> {
    let entries = run.args.files;
    let bare = fill::make(run, cache_bytes(run, bytes) as usize, options)?;
    let start = bare.clock().monotonic();
    fill::fill(run, &**bare.store(), order, entries, bytes)?;
    let took = bare.clock().monotonic().saturating_sub(start);
    let stats = bare.store().stats();
    let user_bytes = entries * (KEY_BYTES + bytes) as u64;
    let operations = run.args.rodeh.operations.unwrap_or(OPERATIONS);
    let random = look_up(run, &bare, entries, operations)?;
    let hot = look_up(run, &bare, (entries / 100).max(1), operations)?;
    let (scanned, scan) = scan(run, &bare, entries)?;
    let rate = |count: u64, took: Duration| count as f64 / took.as_secs_f64().max(1e-9);
    Ok(json!({
        "insert_per_second": rate(entries, took),
        "insert_mb_per_second": rate(user_bytes, took) / 1e6,
        "written_bytes": stats.written_bytes,
        "amplification": stats.written_bytes as f64 / user_bytes.max(1) as f64,
        "read_random_per_second": rate(operations, random),
        "read_hot_per_second": rate(operations, hot),
        "scan_entries_per_second": rate(scanned, scan),
        "depth": stats.merges.map(|merges| merges.depth),
        "value_logs": stats.merges.map(|merges| merges.logs.logs),
        "bytes_on_disk": stats.disk_bytes,
    }))
}

/// Looks up entries drawn from the first `among`; runs the same number unmeasured first, if all of
/// them may be cached.
fn look_up(run: &Run<'_>, bare: &Bare, among: u64, operations: u64) -> Result<Duration> {
    let store = &**bare.store();
    let mut random = fastrand::Rng::with_seed(7);
    let mut start = bare.clock().monotonic();
    for at in 0..2 * operations {
        if at == operations {
            start = bare.clock().monotonic();
        }
        let there = store.get_with(TREE, &key(random.u64(..among)), &mut |value| {
            std::hint::black_box(value);
        });
        assert!(there.map_err(broken)?, "an entry that was put is there");
        if at % 1024 == 0 {
            run.check()?;
        }
    }
    Ok(bare.clock().monotonic().saturating_sub(start))
}

/// Scans ranges that begin anywhere; returns how many entries they had.
fn scan(run: &Run<'_>, bare: &Bare, entries: u64) -> Result<(u64, Duration)> {
    let store = &**bare.store();
    let mut random = fastrand::Rng::with_seed(8);
    let start = bare.clock().monotonic();
    let mut scanned = 0;
    for _ in 0..SCANS {
        let first = random.u64(..entries.saturating_sub(SCAN).max(1));
        let range = KeyRange { from: key(first).to_vec(), to: Some(key(first + SCAN).to_vec()) };
        let mut cursor = store.scan(TREE, range).map_err(broken)?;
        while let Some(item) = cursor.next().map_err(broken)? {
            std::hint::black_box(item.value);
            scanned += 1;
        }
        run.check()?;
    }
    Ok((scanned, bare.clock().monotonic().saturating_sub(start)))
}

fn text(object: &Value) -> Vec<String> {
    let layouts = object["layouts"].as_object().into_iter().flatten();
    let line = |(layout, of): (&String, &Value)| {
        let number = |name: &str| of[name].as_f64().unwrap_or(0.0);
        format!(
            "{:<11}{:>5} B {layout:<7} {:>9.0} insertions/s, {:>7.1} MB/s, {:>5.2} times written, \
             {:>8.0} random reads/s, {:>8.0} hot, {:>9.0} entries of scans/s",
            object["order"].as_str().unwrap_or_default(),
            object["value_bytes"],
            number("insert_per_second"),
            number("insert_mb_per_second"),
            number("amplification"),
            number("read_random_per_second"),
            number("read_hot_per_second"),
            number("scan_entries_per_second"),
        )
    };
    layouts.map(line).collect()
}
