//! Tests of the manifest: it round-trips, and damaged or out-of-bounds content is refused.

use super::*;
use crate::COUNTED_MAX;

fn sample() -> RunManifest {
    let run = |number, blob| RunEntry {
        number,
        blob,
        start: 40,
        index: 900,
        index_bytes: 100,
        ranges: 1,
        checksum: 7,
        entries: 70,
        tombstones: 3,
    };
    RunManifest {
        volume: [3; 16],
        number: 41,
        lsn: 1 << 40,
        time: -5,
        next_blob: 20,
        next_run: 100,
        blobs: vec![BlobEntry { number: 3, length: 1000 }, BlobEntry { number: 8, length: 2000 }],
        runs: vec![run(5, 8), run(6, 3), run(99, 8)],
        stacks: vec![vec![], vec![1, 0], vec![2, 1, 0]],
        trees: vec![
            TreeEntry { number: 16, stack: 2 },
            TreeEntry { number: 500, stack: 0 },
            TreeEntry { number: 501, stack: 2 },
        ],
        uses: vec![vec![]; 3],
        ..RunManifest::default()
    }
}

/// One with value logs.
fn with_logs() -> RunManifest {
    let rows = |log, rows, bytes| LogRows { log, rows, bytes };
    let mut manifest = RunManifest { values_from: 48, ..sample() };
    for number in [11, 12] {
        manifest.blobs.push(BlobEntry { number, length: 5000 });
    }
    manifest.logs = vec![rows(11, 300, 9000), rows(12, 2, 1 << 40)];
    manifest.uses = vec![vec![rows(12, 1, 7)], vec![], vec![rows(11, 3, 90), rows(12, 2, 9)]];
    manifest
}

#[test]
fn manifests_without_value_logs_have_version_1() {
    assert_eq!(sample().encode()[8], 1);
    assert_eq!(with_logs().encode()[8], 2);
    let meant = RunManifest { values_from: 1, ..sample() };
    assert_eq!(meant.encode()[8], 2);
    let found = RunManifest::decode(&meant.encode(), [3; 16], 41);
    assert_eq!(found, Ok(Decoded::Manifest(meant)));
}

#[test]
fn manifests_with_other_directory_names_have_version_3() {
    for manifest in [sample(), with_logs()] {
        let other = RunManifest { prefix_bytes: 0, ..manifest };
        assert_eq!(other.encode()[8], 3);
    }
    let long = RunManifest { prefix_bytes: PREFIX_BYTES_MAX + 1, ..sample() };
    assert!(RunManifest::decode(&long.encode(), [3; 16], 41).is_err());
}

fn with_origin(manifest: RunManifest) -> RunManifest {
    let origin = Origin { epoch: 40, opening: [9; 16], log_epoch: 38, log_number: 1 << 33 };
    RunManifest { origin: Some(origin), ..manifest }
}

#[test]
fn manifests_with_an_origin_have_version_4() {
    assert_eq!(with_origin(sample()).encode()[8], 4);
    let good = Origin { epoch: 41, opening: [9; 16], log_epoch: 41, log_number: 1 };
    let read = |origin| {
        let manifest = RunManifest { origin: Some(origin), ..sample() };
        RunManifest::decode(&manifest.encode(), [3; 16], 41)
    };
    assert!(read(good).is_ok());
    for bad in [
        Origin { epoch: 42, ..good },
        Origin { epoch: 0, log_epoch: 0, ..good },
        Origin { log_epoch: 0, ..good },
        Origin { epoch: 3, log_epoch: 4, ..good },
        Origin { log_number: 0, ..good },
        Origin { log_number: COUNTED_MAX + 1, ..good },
    ] {
        assert!(read(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_manifest_round_trips_and_every_flipped_bit_and_cut_is_noticed() {
    let other = |manifest| RunManifest { prefix_bytes: PREFIX_BYTES_MAX, ..manifest };
    for manifest in [
        sample(),
        with_logs(),
        other(sample()),
        other(with_logs()),
        with_origin(sample()),
        with_origin(other(with_logs())),
    ] {
        round_trips(&manifest);
    }
}

fn round_trips(manifest: &RunManifest) {
    let bytes = manifest.encode();
    let found = RunManifest::decode(&bytes, [3; 16], 41);
    assert_eq!(found, Ok(Decoded::Manifest(manifest.clone())));
    assert!(RunManifest::decode(&bytes, [4; 16], 41).is_err());
    assert!(RunManifest::decode(&bytes, [3; 16], 42).is_err());
    for bit in 0..bytes.len().saturating_mul(8) {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let found = RunManifest::decode(&bad, [3; 16], 41);
        assert!(!matches!(found, Ok(Decoded::Manifest(_))), "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert!(RunManifest::decode(&bytes[..length], [3; 16], 41).is_err());
    }
}

#[test]
fn empty_manifest_entries_are_refused() {
    let breaks: [fn(&mut RunManifest); 20] = [
        |manifest| manifest.runs[1].blob = 4,
        |manifest| manifest.runs[1].index_bytes = 101,
        |manifest| manifest.stacks[1] = vec![3],
        |manifest| manifest.trees[1].stack = 3,
        |manifest| manifest.trees[1].number = 16,
        |manifest| manifest.logs[1].log = 13,
        |manifest| manifest.uses[0][0].log = 8,
        |manifest| manifest.uses[2].reverse(),
        |manifest| manifest.uses[0][0].rows = 3,
        |manifest| manifest.uses[2][0].bytes = 9001,
        |manifest| (manifest.logs[1].bytes, manifest.uses[0][0].bytes) = (1 << 63, 1 << 63),
        |manifest| manifest.next_blob = 12,
        |manifest| manifest.next_run = 99,
        |manifest| manifest.runs[0].tombstones = 71,
        |manifest| manifest.stacks[1] = vec![2, 0],
        |manifest| manifest.stacks[1] = vec![1],
        |manifest| manifest.stacks[0] = vec![0, 2],
        |manifest| manifest.stacks[2] = vec![2, 2, 1, 0],
        |manifest| manifest.stacks = vec![vec![], vec![], vec![0, 1, 0, 1]],
        |manifest| manifest.runs[1].number = manifest.runs[0].number,
    ];
    for (number, apply) in breaks.iter().enumerate() {
        let mut manifest = with_logs();
        apply(&mut manifest);
        let found = RunManifest::decode(&manifest.encode(), [3; 16], 41);
        assert!(found.is_err(), "{number}");
    }
}

/// A valid checksum does not make it right: opening the state counts on from these.
#[test]
fn unreachable_numbers_are_refused() {
    let puts: [fn(&mut RunManifest, u64); 5] = [
        |manifest, number| manifest.lsn = number,
        |manifest, number| manifest.next_blob = number,
        |manifest, number| manifest.next_run = number,
        |manifest, number| {
            manifest.next_blob = number;
            manifest.blobs.last_mut().unwrap().number = number - 1;
        },
        |manifest, number| {
            manifest.next_run = number;
            manifest.runs.last_mut().unwrap().number = number - 1;
        },
    ];
    for (at, put) in puts.iter().enumerate() {
        let found = |number| {
            // Nothing else refers to the last ones.
            let mut manifest = sample();
            let number_of = manifest.blobs.last().unwrap().number + 1;
            manifest.blobs.push(BlobEntry { number: number_of, length: 1 });
            put(&mut manifest, number);
            RunManifest::decode(&manifest.encode(), [3; 16], 41)
        };
        assert!(found(COUNTED_MAX).is_ok(), "{at}: {:?}", found(COUNTED_MAX));
        for number in [COUNTED_MAX + 1, u64::MAX - 1, u64::MAX] {
            assert!(found(number).is_err(), "{at}: {number}");
        }
    }
    let numbered = |number| {
        let manifest = RunManifest { number, ..sample() };
        RunManifest::decode(&manifest.encode(), [3; 16], number)
    };
    assert!(numbered(COUNTED_MAX).is_ok() && numbered(u64::MAX).is_err());
}

/// Each number alone is valid; their sum is not.
#[test]
fn overflowing_sums_are_refused() {
    let adds: [fn(&mut RunManifest, u64); 5] = [
        |manifest, each| manifest.blobs.iter_mut().for_each(|blob| blob.length = each),
        |manifest, each| manifest.runs.iter_mut().for_each(|run| run.entries = each >> 5),
        |manifest, each| manifest.logs.iter_mut().for_each(|log| log.bytes = each),
        |manifest, each| manifest.logs.iter_mut().for_each(|log| log.rows = each),
        |manifest, each| {
            manifest.logs.iter_mut().for_each(|log| log.bytes = 1 << 60);
            manifest.uses.iter_mut().flatten().for_each(|rows| rows.bytes = each);
        },
    ];
    for (number, add) in adds.iter().enumerate() {
        let found = |each| {
            let mut manifest = with_logs();
            add(&mut manifest, each);
            RunManifest::decode(&manifest.encode(), [3; 16], 41)
        };
        assert!(found(1 << 59).is_ok(), "{number}");
        assert!(found(u64::MAX / 2).is_err(), "{number}");
    }
    // More runs of the greatest size of one log than a sum can hold.
    let mut manifest = with_logs();
    manifest.logs[1].bytes = 1 << 48;
    manifest.next_run = 70_000;
    manifest.runs = (0..70_000).map(|n| RunEntry { number: n, ..manifest.runs[0] }).collect();
    manifest.uses = vec![vec![LogRows { log: 12, rows: 1, bytes: 1 << 48 }]; 70_000];
    manifest.stacks.truncate(1);
    manifest.trees.clear();
    assert!(RunManifest::decode(&manifest.encode(), [3; 16], 41).is_err());
    let logless = RunManifest { values_from: 0, ..with_logs() };
    assert!(RunManifest::decode(&logless.encode(), [3; 16], 41).is_err());
}

#[test]
fn a_newer_version_is_named() {
    let mut bytes = sample().encode();
    bytes[8] = 5;
    assert_eq!(RunManifest::decode(&bytes, [3; 16], 41), Ok(Decoded::Newer(5)));
}
