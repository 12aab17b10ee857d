//! A Markdown table of many measurements: a row for each thing measured, a column for each
//! engine, the median of the rounds in each cell.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::engine::Result;

const ENGINES: [(&str, &str); 7] = [
    ("btree", "ours"),
    ("lsm", "ours, lsm"),
    ("redb", "redb, 1,000 a commit"),
    ("redb-1", "redb, 1 a commit"),
    ("fjall", "fjall"),
    ("rocksdb", "RocksDB"),
    ("map", "BTreeMap"),
];

/// Whether more or less of something is better.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    More,
    Less,
}

/// Name in the measurement, name in the table, which is better.
const ROWS: [(&str, &str, Better); 20] = [
    ("insert_ascending", "insert ascending, 1/s", Better::More),
    ("insert_random", "insert random, 1/s", Better::More),
    ("get_hit", "look-up hit, 1/s", Better::More),
    ("get_miss", "look-up miss, 1/s", Better::More),
    ("scan", "scan of 1,000, entries/s", Better::More),
    ("delete", "delete random, 1/s", Better::More),
    ("insert_ascending_cpu_us", "processor, insert ascending, us", Better::Less),
    ("insert_random_cpu_us", "processor, insert random, us", Better::Less),
    ("get_hit_cpu_us", "processor, look-up hit, us", Better::Less),
    ("get_miss_cpu_us", "processor, look-up miss, us", Better::Less),
    ("scan_cpu_us", "processor, an entry of a scan, us", Better::Less),
    ("delete_cpu_us", "processor, delete random, us", Better::Less),
    ("insert_ascending_written", "written, insert ascending, bytes", Better::Less),
    ("insert_random_written", "written, insert random, bytes", Better::Less),
    ("delete_written", "written, delete random, bytes", Better::Less),
    ("snapshot_us", "snapshot for reading, us", Better::Less),
    ("copy_us", "durable clone or copy, us", Better::Less),
    ("disk_mib_ascending", "disk, inserted ascending, MiB", Better::Less),
    ("disk_mib", "disk, inserted at random, MiB", Better::Less),
    ("peak_memory_mib", "peak memory, MiB", Better::Less),
];

/// Prints the tables, one for each set of conditions.
pub(crate) fn print(file: &str) -> Result<()> {
    let mut sets: BTreeMap<(u64, u64, bool), Vec<Value>> = BTreeMap::new();
    for line in std::fs::read_to_string(file)?.lines().filter(|line| !line.is_empty()) {
        let object: Value = serde_json::from_str(line)?;
        let number = |name: &str| object[name].as_u64().unwrap_or_default();
        let set = (number("entries"), number("cache_mib"), object["cold"] == Value::Bool(true));
        sets.entry(set).or_default().push(object);
    }
    for ((entries, cache_mib, cold), lines) in sets {
        let cold = if cold { ", page cache kept empty" } else { "" };
        println!("{entries} entries, {cache_mib} MiB of cache{cold}:\n");
        print_set(&lines);
        println!();
    }
    Ok(())
}

fn print_set(lines: &[Value]) {
    let engines: Vec<_> = ENGINES
        .into_iter()
        .filter(|(engine, _)| lines.iter().any(|line| line["engine"] == *engine))
        .collect();
    let names: Vec<_> = engines.iter().map(|(_, name)| *name).collect();
    println!("| | {} | ours to the best peer |", names.join(" | "));
    println!("|---{}|---|", "|---".repeat(engines.len()));
    for (field, title, better) in ROWS {
        let cells: Vec<_> =
            engines.iter().map(|(engine, _)| (*engine, median(lines, engine, field))).collect();
        let text: Vec<_> = cells.iter().map(|(_, value)| cell(*value)).collect();
        println!("| {title} | {} | {} |", text.join(" | "), verdict(&cells, better));
    }
    let rounds = lines.iter().filter(|line| line["engine"] == "btree").count();
    println!("\nMedian of {rounds} rounds, engines interleaved.");
}

fn median(lines: &[Value], engine: &str, field: &str) -> Option<f64> {
    let mut all: Vec<f64> = lines
        .iter()
        .filter(|line| line["engine"] == engine)
        .filter_map(|line| line[field].as_f64())
        .collect();
    all.sort_by(f64::total_cmp);
    let upper = all.get(all.len() / 2).copied()?;
    // Of an even number the better of the two in the middle does not represent both.
    let lower = all.get((all.len() - 1) / 2).copied()?;
    Some((f64::midpoint(lower, upper) * 1000.0).round() / 1000.0)
}

fn cell(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value >= 1000.0 => thousands(value.round() as u64),
        Some(value) => format!("{value}"),
    }
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How many times better ours is, the default engine, than the best of others that persist; in
/// bold where it is not. Our other engine is no peer.
fn verdict(cells: &[(&str, Option<f64>)], better: Better) -> String {
    let value = |wanted: &str| {
        cells.iter().find(|(engine, _)| *engine == wanted).and_then(|(_, value)| *value)
    };
    let Some(ours) = value("btree") else { return "-".to_owned() };
    let peers = cells.iter().filter(|(engine, _)| !["btree", "lsm", "map"].contains(engine));
    let ratios = peers.filter_map(|(_, value)| *value).map(|peer| match better {
        Better::More => ours / peer.max(1e-9),
        Better::Less => peer / ours.max(1e-9),
    });
    match ratios.min_by(f64::total_cmp) {
        None => "-".to_owned(),
        Some(ratio) if ratio < 1.0 => format!("**{ratio:.2}**"),
        Some(ratio) => format!("{ratio:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_peer_counts_and_the_map_does_not() {
        let cells =
            [("btree", Some(10.0)), ("lsm", Some(40.0)), ("redb", Some(5.0)), ("map", Some(90.0))];
        assert_eq!(verdict(&cells, Better::More), "2.00");
        assert_eq!(verdict(&cells, Better::Less), "**0.50**");
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(999), "999");
    }
}
