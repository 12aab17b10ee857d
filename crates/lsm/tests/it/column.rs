//! Value logs: rows are written once. Their logs stay as long as a run points into them and are
//! emptied when less than half of them is live.

use std::collections::BTreeMap;

use format::run_manifest::{LogRows, RunEntry, RunManifest};
use lsm::{LsmStore, Options};
use store::{
    Commit, Durable, Error, Maintain, Pinned, Read, SliceRun, Snapshot, TreeId, ValueLogStats,
};
use testing::{SimEnv, entries, noise, numbered};

use crate::util::{
    TREE, blobs, checked, column, commit, falsify, inspected, open, settle, store, store_with,
};

const CLONE: TreeId = TreeId(50);
const VALUE_BYTES: usize = 400;

fn logs(store: &LsmStore) -> ValueLogStats {
    ValueLogStats { written_bytes: 0, ..store.stats().merges.expect("it merges").logs }
}

fn cleaned(store: &LsmStore) -> u64 {
    store.stats().merges.expect("it merges").cleaned
}

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

/// Puts keys with long values that differ by key and round, and checkpoints.
fn fill(store: &LsmStore, keys: impl Iterator<Item = u32>, round: u64) {
    commit(store, |batch| {
        for n in keys {
            batch.put(TREE, &key(n), &value(n, round));
        }
    });
    assert!(store.checkpoint().expect("checkpoint"));
}

fn value(n: u32, round: u64) -> Vec<u8> {
    noise(u64::from(n) << 8 | round, VALUE_BYTES)
}

fn expect(store: &dyn Read, tree: TreeId, expected: impl Iterator<Item = (u32, u64)>) {
    let model: BTreeMap<Vec<u8>, Vec<u8>> =
        expected.map(|(n, round)| (key(n).to_vec(), value(n, round))).collect();
    assert!(entries(store, tree) == model, "other entries than were put");
    for (n, found) in &model {
        let read = store.get(tree, n).expect("read");
        assert_eq!(read.as_ref(), Some(found));
    }
}

/// Scattered keys, so that each checkpoint's run spans all, and merges mix them.
fn scattered(round: u32) -> impl Iterator<Item = u32> {
    (0..100).map(move |n| n * 16 + round)
}

#[test]
fn merges_copy_pointers_and_do_not_move_rows() {
    let mut written = Vec::new();
    for options in [Options { small_log_bytes: 0, ..column() }, crate::util::options()] {
        let (_sim, store) = store_with(1, &options);
        for round in 0..16 {
            fill(&store, scattered(round), 0);
            settle(&store);
        }
        expect(&*store, TREE, (0..1600).map(|n| (n, 0)));
        let stats = store.stats();
        assert!(stats.merges.expect("it merges").ended >= 4, "{stats:?}");
        written.push(stats.merge_bytes);
        if options.values_from > 0 {
            assert_eq!((logs(&store).logs, cleaned(&store)), (16, 0));
            assert_eq!(logs(&store).rows_bytes, 1600 * (4 + VALUE_BYTES as u64));
            assert_eq!(logs(&store).live_bytes, logs(&store).rows_bytes);
        }
        checked(&store);
    }
    assert!(written[0] * 5 < written[1], "merges wrote {written:?} bytes");
}

#[test]
fn small_logs_are_merged_so_that_they_stay_few() {
    let (sim, store) = store_with(2, &Options { small_log_bytes: 1 << 20, ..column() });
    for round in 0..64 {
        fill(&store, [round, round + 1000].into_iter(), 0);
        settle(&store);
    }
    assert!(logs(&store).logs <= 12, "{:?}", logs(&store));
    assert!(blobs(&sim.device).len() <= 24, "{:?}", blobs(&sim.device));
    expect(&*store, TREE, (0..64).chain(1000..1064).map(|n| (n, 0)));
    checked(&store);
}

/// Overwritten rows are no longer live once they are merged. Their log is emptied and deleted, but
/// not before a clone and a pin that read from it are dropped.
#[test]
fn a_mostly_dead_log_is_emptied_once_unused() {
    let (sim, store) = store_with(3, &column());
    fill(&store, 0..500, 0);
    settle(&store);
    let old = blobs(&sim.device).pop().expect("the run has a value log");
    let is_there = || blobs(&sim.device).contains(&old);
    commit(&store, |batch| batch.clone_tree(TREE, CLONE));
    let pin: Box<dyn Pinned> = store.pin().expect("pin");
    let overwrite = |rounds: std::ops::Range<u64>| {
        for round in rounds {
            fill(&store, (0..500).filter(|n| n % 10 != 0), round);
            settle(&store);
        }
    };
    overwrite(1..5);
    expect(&*store, CLONE, (0..500).map(|n| (n, 0)));
    commit(&store, |batch| batch.drop_tree(CLONE));
    overwrite(5..9);
    let cleaned = cleaned(&store);
    assert!(cleaned > 0 && logs(&store).sparse == 0, "{:?}", store.stats().merges);
    assert!(is_there(), "a pinned state reads from it");
    expect(&*pin, CLONE, (0..500).map(|n| (n, 0)));
    let expected = || (0..500).map(|n| (n, if n % 10 == 0 { 0 } else { 8 }));
    expect(&*store, TREE, expected());
    drop(pin);
    settle(&store);
    assert!(!is_there(), "nobody needs it");
    let now = logs(&store);
    assert!(now.rows_bytes < 2 * now.live_bytes, "{now:?}");
    expect(&*store, TREE, expected());
    checked(&store);
    store.close().expect("close");
    let store = open(&sim);
    expect(&*store, TREE, expected());
    assert_eq!(logs(&store), now);
}

/// The rows of an ingested run stay in its blob until a merge takes them out.
#[test]
fn ingested_values_move_to_a_value_log_in_a_merge() {
    let (sim, store) = store_with(4, &column());
    for part in 0..4_u32 {
        let run = numbered(part * 1000..part * 1000 + 300, VALUE_BYTES);
        store.ingest(TREE, &mut SliceRun::new(&run)).expect("the range is empty");
    }
    assert!(store.checkpoint().expect("checkpoint"));
    assert_eq!(logs(&store).logs, 0);
    settle(&store);
    assert_eq!((logs(&store).logs, logs(&store).rows_bytes), (1, 1200 * 404));
    assert_eq!(entries(&*store, TREE).len(), 1200);
    checked(&store);
    store.close().expect("close");
    assert!(inspected(&sim).is_clean());
}

/// A store of one run, and its value log: the names of the blobs of both.
fn closed() -> (SimEnv, String, String) {
    let (sim, store) = store_with(5, &column());
    fill(&store, 0..200, 0);
    store.close().expect("close");
    let names = blobs(&sim.device);
    assert_eq!(names.len(), 2, "{names:?}");
    let [run, log] = names.try_into().expect("there are two");
    (sim, run, log)
}

#[test]
fn damage_in_a_value_log_is_located_and_the_rest_is_readable() {
    let (sim, run, log) = closed();
    assert!(inspected(&sim).is_clean());
    let offset = 30_000;
    sim.device.flip_bit(&log, offset * 8);
    let report = inspected(&sim);
    let [found] = report.findings.as_slice() else { panic!("{report:#?}") };
    assert_eq!(found.file, log);
    assert!(found.offset <= offset && offset < found.offset + 2048, "{found:?}");
    let store = open(&sim);
    let live = lsm::check(&store).expect("check");
    assert_eq!(live.findings, report.findings);
    let mut unreadable = 0;
    for n in 0..200 {
        match store.get(TREE, &key(n)) {
            Ok(read) => assert_eq!(read, Some(value(n, 0))),
            Err(Error::Corrupt(bad)) => {
                assert_eq!((&bad.file, bad.offset), (&log, found.offset));
                unreadable += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!((1..=3).contains(&unreadable), "{unreadable} rows");
    drop(store);
    // A pointer to a wrong place is damage of the run that has it.
    sim.device.flip_bit(&log, offset * 8);
    sim.device.flip_bit(&run, 400);
    let found = inspected(&sim).findings;
    assert!(!found.is_empty() && found.iter().all(|found| found.file == run), "{found:#?}");
}

#[test]
fn a_missing_value_log_is_reported_and_the_runs_are_still_checked() {
    let (sim, _, log) = closed();
    sim.device.delete(&log);
    let report = inspected(&sim);
    assert_eq!(report.entries, 200);
    assert!(!report.is_clean() && report.findings.iter().all(|found| found.file == log));
    // Each look-up in it reports the damage, and the rest continues.
    let store = LsmStore::open(&sim.env(), &column()).expect("it opens");
    fill(&store, 200..300, 0);
    settle(&store);
    for n in 0..300 {
        match store.get(TREE, &key(n)) {
            Err(Error::Corrupt(bad)) => assert!(n < 200 && bad.file == log, "{n}: {bad}"),
            read => assert_eq!(read.expect("read"), Some(value(n, 0)).filter(|_| n >= 200)),
        }
    }
    store.close().expect("close");
}

#[test]
fn a_store_keeps_the_layout_it_was_created_with() {
    for made in [column(), crate::util::options()] {
        let (sim, store) = store_with(6, &made);
        store.close().expect("close");
        for reported in [crate::util::options(), Options { values_from: 1, ..column() }] {
            let store = LsmStore::open(&sim.env(), &reported).expect("open");
            assert_eq!(logs(&store).values_from, made.values_from);
            fill(&store, 0..100, 0);
            assert_eq!(logs(&store).logs > 0, made.values_from > 0);
            store.close().expect("close");
        }
    }
    let (_sim, rows) = store(7);
    fill(&rows, 0..100, 0);
    assert_eq!(logs(&rows), ValueLogStats::default());
}

/// The totals of a value log in the manifest are compared with the rows that it has.
#[test]
fn a_false_total_of_a_value_log_is_found() {
    let changes: [fn(&mut LogRows); 2] = [|log| log.rows += 1, |log| log.bytes += 1];
    for change in changes {
        let (sim, _, log) = closed();
        falsify(&sim, |manifest| change(&mut manifest.logs[0]));
        let found = inspected(&sim).findings;
        assert!(found.len() == 1 && found[0].file == log, "{found:#?}");
        let store = open(&sim);
        assert_eq!(lsm::check(&store).expect("check").findings, found);
    }
}

/// The check does not read a part of a log that nothing points to any more, but knows that it
/// exists.
#[test]
fn a_false_total_of_a_partly_live_log_is_reported() {
    let (sim, store) = store_with(8, &column());
    fill(&store, 0..200, 0);
    // Whole blocks of rows, less than half of which are deleted.
    for round in 1..4 {
        fill(&store, 0..80, round);
        settle(&store);
    }
    let now = logs(&store);
    assert!(now.live_bytes < now.rows_bytes && now.sparse == 0, "{now:?}");
    store.close().expect("close");
    assert!(inspected(&sim).is_clean(), "{:#?}", inspected(&sim).findings);
    falsify(&sim, |manifest| {
        for used in manifest.uses.iter().flatten() {
            let log =
                manifest.logs.iter_mut().find(|log| log.log == used.log).expect("it is there");
            (log.rows, log.bytes) = (used.rows, used.bytes);
        }
    });
    assert!(!inspected(&sim).is_clean(), "as if nothing but what is live had been written");
}

/// The sum of the rows of too many runs overflows: the manifest is refused, without a panic.
#[test]
fn false_sums_are_corruption() {
    let (sim, _, _) = closed();
    falsify(&sim, |manifest: &mut RunManifest| {
        let (run, log) = (manifest.runs[0], manifest.logs[0].log);
        let used = LogRows { log, rows: 1, bytes: (1 << 48) - 1 };
        manifest.logs[0].bytes = used.bytes;
        manifest.runs = (1..70_000).map(|number| RunEntry { number, ..run }).collect();
        manifest.uses = vec![vec![used]; manifest.runs.len()];
        manifest.next_run = 70_000;
    });
    let refused = LsmStore::open(&sim.env(), &column());
    assert!(matches!(&refused, Err(Error::Corrupt(bad)) if bad.file.contains("manifest-")));
    let found = inspected(&sim).findings;
    assert!(found.len() == 1 && found[0].file.contains("manifest-"), "{found:#?}");
}
