//! One engine, all rows, in one process: so that its highest memory is its own.
//!
//! 1. Entries are inserted in ascending order into a fresh store, which is then removed.
//! 2. They are inserted in random order into another. Where fewer updates were requested, they are
//!    inserted in ascending order, not measured, and then so many more at random. It settles, and
//!    its size is taken.
//! 3. On that one: look-ups that hit and that miss, scans of whole directories; half of the entries
//!    are deleted; snapshots and durable copies are taken.
//!
//! Insertions and deletions end with a sync, which is counted.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::engine::{Engine, Result};
use crate::engines;
use crate::keys::{self, A_DIRECTORY, Kind, Shuffle};
use crate::options::Options;
use crate::page_cache::Forgetting;
use crate::process;

const SEED: u64 = 0x7061_6e64_6f31;
const SNAPSHOTS: u64 = 101;
const COPIES: u64 = 9;

/// Where phases put what they measured.
struct Sheet {
    object: Map<String, Value>,
}

impl Sheet {
    fn put(&mut self, name: &str, value: Value) {
        self.object.insert(name.to_owned(), value);
    }

    /// Measures operations: their rate, the processor time of one, and the bytes that are written
    /// for one meanwhile.
    fn rate(&mut self, name: &str, work: impl FnOnce() -> Result<u64>) -> Result<()> {
        let (start, busy) = (Instant::now(), process::processor_time());
        let written = process::written_bytes()?;
        let operations = work()? as f64;
        let seconds = start.elapsed().as_secs_f64();
        let busy = (process::processor_time() - busy).as_secs_f64();
        self.put(name, json!((operations / seconds).round()));
        self.put(&format!("{name}_cpu_us"), json!((busy / operations * 1e9).round() / 1e3));
        let written = (process::written_bytes()? - written) as f64;
        self.put(&format!("{name}_written"), json!((written / operations).round()));
        Ok(())
    }

    /// Measures one thing at a time, in microseconds, the median.
    fn median(
        &mut self,
        name: &str,
        times: u64,
        mut work: impl FnMut(u64) -> Result<bool>,
    ) -> Result<()> {
        let mut all = Vec::new();
        for number in 0..times {
            let start = Instant::now();
            if !work(number)? {
                return Ok(());
            }
            all.push(start.elapsed().as_secs_f64() * 1e6);
        }
        all.sort_by(f64::total_cmp);
        self.put(name, json!((all[all.len() / 2] * 100.0).round() / 100.0));
        Ok(())
    }
}

/// A store's directory, removed when the phases that use it are over.
struct ScratchDir(PathBuf);

impl ScratchDir {
    fn make(options: &Options, name: &str) -> Result<ScratchDir> {
        let name = format!("pando-engines-{}-{name}", std::process::id());
        let path = options.directory.join(name);
        std::fs::create_dir_all(&path)?;
        Ok(ScratchDir(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} stays: {error}", self.0.display());
        }
    }
}

/// Measures, and prints one line.
pub(crate) fn run(options: Options) -> Result<()> {
    let mut sheet = Sheet { object: Map::new() };
    sheet.put("engine", json!(options.engine));
    sheet.put("entries", json!(options.entries));
    sheet.put("updates", json!(options.updates));
    sheet.put("reads", json!(options.reads));
    sheet.put("cache_mib", json!(options.cache_bytes >> 20));
    sheet.put("cold", json!(options.cold));
    ascending(&options, &mut sheet)?;
    random(&options, &mut sheet)?;
    sheet.put("peak_memory_mib", json!(process::peak_memory()? >> 20));
    println!("{}", Value::Object(sheet.object));
    Ok(())
}

fn insert(engine: &mut dyn Engine, kind: Kind, numbers: impl Iterator<Item = u64>) -> Result<u64> {
    let mut count = 0;
    for number in numbers {
        engine.put(&keys::key(number, kind), &keys::value(number))?;
        count += 1;
    }
    engine.sync()?;
    Ok(count)
}

fn ascending(options: &Options, sheet: &mut Sheet) -> Result<()> {
    let place = ScratchDir::make(options, "ascending")?;
    let mut engine = engines::create(&options.engine, place.path(), options.cache_bytes)?;
    sheet.rate("insert_ascending", || insert(&mut *engine, Kind::There, 0..options.entries))?;
    engine.settle()?;
    sheet.put("disk_mib_ascending", json!(process::disk_bytes(place.path())? >> 20));
    engine.close()
}

fn random(options: &Options, sheet: &mut Sheet) -> Result<()> {
    let place = ScratchDir::make(options, "random")?;
    let mut engine = engines::create(&options.engine, place.path(), options.cache_bytes)?;
    let shuffle = Shuffle::new(options.entries, SEED);
    let forgetting = options.cold.then(|| Forgetting::start(place.path()));
    let numbers = (0..options.updates).map(|place| shuffle.at(place));
    let mut kind = Kind::There;
    if options.updates < options.entries {
        insert(&mut *engine, kind, 0..options.entries)?;
        engine.settle()?;
        kind = Kind::Added;
    }
    sheet.rate("insert_random", || insert(&mut *engine, kind, numbers))?;
    let start = Instant::now();
    engine.settle()?;
    sheet.put("settle_seconds", json!((start.elapsed().as_secs_f64() * 1e3).round() / 1e3));
    sheet.put("disk_mib", json!(process::disk_bytes(place.path())? >> 20));
    reads(options, &mut *engine, sheet)?;
    let order = Shuffle::new(options.entries, SEED + 1);
    let deletions = options.updates.min(options.entries / 2);
    sheet.rate("delete", || {
        for place in 0..deletions {
            engine.delete(&keys::key(order.at(place), Kind::There))?;
        }
        engine.sync()?;
        Ok(deletions)
    })?;
    sheet.median("snapshot_us", if options.engine == "map" { 3 } else { SNAPSHOTS }, |_| {
        engine.snapshot().map(|()| true)
    })?;
    sheet.median("copy_us", COPIES, |number| {
        // Something new, so that there is something to make durable.
        engine.put(&keys::key(number, Kind::Absent), &keys::value(number))?;
        engine.copy(number)
    })?;
    drop(forgetting);
    engine.close()
}

fn reads(options: &Options, engine: &mut dyn Engine, sheet: &mut Sheet) -> Result<()> {
    let order = Shuffle::new(options.entries, SEED + 2);
    // The bytes read are added up, so that they have to be read; and the sum is checked.
    let mut sum = 0_u64;
    for (name, kind) in [("get_hit", Kind::There), ("get_miss", Kind::Absent)] {
        // Not counted: what brings the cache to what this kind of reading keeps in it.
        for place in 0..options.reads / 4 {
            let key = keys::key(order.at(options.entries - 1 - place), kind);
            engine.get(&key, &mut |value| sum += u64::from(value[0]))?;
        }
        sheet.rate(name, || {
            let mut hits = 0;
            for place in 0..options.reads {
                let number = order.at(place % options.entries);
                let found = engine.get(&keys::key(number, kind), &mut |value| {
                    sum += u64::from(value[7]);
                })?;
                hits += u64::from(found);
            }
            let expected = if matches!(kind, Kind::There) { options.reads } else { 0 };
            if hits != expected {
                return Err(format!("{name}: {hits} found, not {expected}").into());
            }
            Ok(options.reads)
        })?;
    }
    let directories = options.entries / A_DIRECTORY;
    let order = Shuffle::new(directories, SEED + 3);
    sheet.rate("scan", || {
        let mut entries = 0;
        for place in 0..directories.min(options.reads / 10) {
            let found = engine.scan(&keys::prefix(order.at(place)), &mut |key, value| {
                sum += u64::from(key[20]) + u64::from(value[7]);
            })?;
            if found < A_DIRECTORY {
                return Err(format!("scan: {found} found, at least {A_DIRECTORY}").into());
            }
            entries += found;
        }
        Ok(entries)
    })?;
    black_box(sum);
    Ok(())
}
