//! Findings of a check that no checksum can reveal.

use format::batch::{Op, Ops};
use format::run_manifest::RunManifest;
use lsm::LsmStore;
use store::{
    Batch, CheckReport, Commit, Durable, Error, Log, LogSpace, Lsn, Maintain, Replay, SliceRun,
    TreeId,
};
use testing::{SimEnv, numbered};

use crate::util::{TREE, checked, commit, falsify, inspected, open, options, settle, store};

/// A closed store of two runs in one blob, and one ingested run.
fn closed() -> SimEnv {
    let (sim, store) = store(1);
    commit(&store, |batch| {
        batch.clone_tree(TREE, TreeId(50));
        for n in 0..200_u32 {
            batch.put(TREE, &n.to_be_bytes(), &[1; 50]);
            batch.put(TreeId(50), &n.to_be_bytes(), &[2; 50]);
        }
    });
    checked(&store);
    commit(&store, |batch| batch.delete_range(TREE, &[0], &[1]));
    store.ingest(TREE, &mut SliceRun::new(&numbered(1 << 24..(1 << 24) + 500, 50))).expect("free");
    store.close().expect("close");
    sim
}

fn kinds(report: &CheckReport) -> Vec<String> {
    report.findings.iter().map(|found| found.what.clone()).collect()
}

#[test]
fn a_false_field_of_a_manifest_is_reported() {
    type Change = fn(&mut RunManifest);
    let falsehoods: [(Change, &str); 6] = [
        (|manifest| manifest.runs[0].entries += 1, "tombstones, not"),
        (|manifest| manifest.runs[0].tombstones += 1, "tombstones, not"),
        (|manifest| manifest.runs[0].ranges += 1, "deleted ranges"),
        (|manifest| manifest.runs[1].start = manifest.runs[0].start, "overlap"),
        // Opening reclaims what is between runs.
        (|manifest| manifest.runs[0].start += 1, "blocks from"),
        (|manifest| manifest.runs[0].start -= 1, "blocks from"),
    ];
    for (at, (change, what)) in falsehoods.into_iter().enumerate() {
        let sim = closed();
        assert!(inspected(&sim).is_clean());
        falsify(&sim, change);
        let found = kinds(&inspected(&sim));
        assert!(found.iter().any(|found| found.contains(what)), "{at}: {found:?}");
    }
}

/// Each has the right checksum, and each used to end the daemon that opened it.
#[test]
fn a_manifest_that_contradicts_itself_is_refused_by_name() {
    type Change = fn(&mut RunManifest);
    let contradictions: [(Change, &str); 8] = [
        // The next run would have the number of an existing one.
        (|manifest| manifest.next_run = manifest.runs[0].number, "runs numbered below the next"),
        (|manifest| manifest.next_blob = manifest.blobs[0].number, "blobs numbered below"),
        (|manifest| manifest.runs[1].number = manifest.runs[0].number, "that ascend"),
        // The space needed to delete so many entries overflows.
        (|manifest| manifest.runs[0].tombstones = 1 << 60, "no more tombstones than entries"),
        (
            |manifest| {
                manifest.runs[0].entries = 1 << 60;
                manifest.runs[0].tombstones = 1 << 60;
            },
            "counts of 2^56",
        ),
        (|manifest| manifest.runs[0].entries = u64::MAX, "counts of 2^56"),
        (be_ordered_otherwise, "the same runs below a run"),
        (|manifest| manifest.stacks[0] = vec![0, 1, 0], "the same runs below a run"),
    ];
    for (at, (change, what)) in contradictions.into_iter().enumerate() {
        let sim = closed();
        falsify(&sim, change);
        match LsmStore::open(&sim.env(), &options()) {
            Err(Error::Corrupt(bad)) => {
                assert!(bad.file.contains("manifest-"), "{at}: {bad}");
                assert_eq!(bad.structure, "manifest of runs", "{at}: {bad}");
                assert!(bad.to_string().contains(what), "{at}: {bad}");
            }
            other => panic!("{at}: {:?}", other.err()),
        }
        let found = inspected(&sim).findings;
        assert!(found.iter().any(|found| found.file.contains("manifest-")), "{at}: {found:?}");
    }
}

/// Two trees have runs in common, and differ below these.
fn be_ordered_otherwise(manifest: &mut RunManifest) {
    let both = [vec![1, 0], vec![0, 1]];
    manifest.trees.truncate(2);
    for (tree, stack) in manifest.trees.iter_mut().zip(0..) {
        tree.stack = stack;
    }
    manifest.stacks = both.into();
}

/// A check looks for directories of four bytes in filters that were made for those of nine.
#[test]
fn a_filter_without_some_key_is_reported() {
    let (sim, store) = store(1);
    commit(&store, |batch| {
        for n in 0..2000_u32 {
            batch.put(TREE, &[&n.to_be_bytes()[..], b"a file's name"].concat(), &[1; 50]);
        }
    });
    store.close().expect("close");
    assert!(inspected(&sim).is_clean());
    falsify(&sim, |manifest| manifest.prefix_bytes = 4);
    let report = inspected(&sim);
    assert!(kinds(&report).iter().any(|what| what.contains("lacks the directory")), "{report:?}");
}

/// A run that only the log names is checked too, beside commits and offline.
#[test]
fn a_run_that_was_ingested_is_checked_before_a_manifest_has_it() {
    let (sim, store) = store(2);
    assert!(store.checkpoint().expect("checkpoint"));
    store.ingest(TREE, &mut SliceRun::new(&numbered(0..2000, 100))).expect("free");
    store.sync(store.last_commit()).expect("sync");
    assert_eq!(lsm::check(&store).expect("check").entries, 2000);
    drop(store);
    let report = inspected(&sim);
    assert_eq!((report.entries, report.lost_bytes), (2000, 0), "{report:?}");
    let blob = crate::util::blobs(&sim.device).pop().expect("there is one");
    sim.device.flip_bit(&blob, 40_000);
    let report = inspected(&sim);
    assert!(report.findings.iter().any(|found| found.file == blob), "{report:?}");
    let store = open(&sim);
    let report = lsm::check(&store).expect("check");
    assert!(report.findings.iter().any(|found| found.file == blob), "{report:?}");
    settle(&store);
}

/// The head of a blob that only the log names is damaged: a check finds that, and checks all else.
#[test]
fn a_damaged_head_of_an_ingested_run_is_reported() {
    let (sim, store) = store(3);
    commit(&store, |batch| batch.put(TREE, b"key", b"value"));
    assert!(store.checkpoint().expect("checkpoint"));
    store.ingest(TREE, &mut SliceRun::new(&numbered(0..2000, 100))).expect("free");
    store.sync(store.last_commit()).expect("sync");
    drop(store);
    let blob = crate::util::blobs(&sim.device).pop().expect("there is one");
    sim.device.flip_bit(&blob, 20);
    let report = inspected(&sim);
    assert!(report.findings.iter().any(|found| found.file == blob), "{report:?}");
    assert_eq!(report.entries, 2001, "{report:?}");
}

/// Keeps the record that names a run.
#[derive(Default)]
struct LinkOf(Vec<u8>);

impl Replay for LinkOf {
    fn apply(&mut self, _: Lsn, payload: &[u8]) -> store::Result<()> {
        if let Some(Ok(Op::Link { .. })) = Ops::new(payload).next() {
            self.0 = payload.to_vec();
        }
        Ok(())
    }
}

/// This engine never writes a record that names a run and continues: no part of such a record is
/// silently ignored.
#[test]
fn a_run_record_with_other_operations_is_damage() {
    for more in [false, true] {
        let (sim, store) = store(4);
        commit(&store, |batch| batch.create_tree(TreeId(40)));
        store.ingest(TREE, &mut SliceRun::new(&numbered(0..2000, 100))).expect("free");
        store.sync(store.last_commit()).expect("sync");
        drop(store);
        let (mut link, common) = (LinkOf::default(), options().common);
        let open_log = |replay: &mut LinkOf| {
            Log::open(&sim.env(), "log", common.volume, &common.log(), Lsn(0), replay)
        };
        let (log, _) = open_log(&mut link).expect("open");
        // The same run in another tree, and more behind it.
        let mut record = link.0;
        assert_eq!(record[1], 32, "the number of the tree");
        record[1] = 40;
        if more {
            let mut batch = Batch::new();
            batch.put(TREE, b"key", b"value");
            record.extend_from_slice(batch.as_bytes());
        }
        let lsn = log.append(&record, LogSpace::Normal).expect("there is space");
        log.sync(lsn).expect("sync");
        log.close().expect("close");
        let opened = LsmStore::open(&sim.env(), &options());
        assert_eq!(opened.is_err(), more, "{opened:?}");
        if let Err(error) = opened {
            assert!(matches!(error, Error::Corrupt(_)), "{error}");
        }
    }
}
