//! Structures of the log-structured engine: blocks, indexes and manifests of runs.

use fastrand::Rng;
use format::cached_chunk::{self, ChunkId};
use format::cluster_filter::Filter;
use format::numbers::{self, NUMBERS_BYTES, Numbers};
use format::presence::{self, Presence};
use format::row_pointer::RowPointer;
use format::run_block::{self, Block, BlockBuilder, Stored};
use format::run_index::{self, BlockPlace, RunIndex};
use format::run_manifest::{BlobEntry, Decoded, LogRows, Origin, RunEntry, RunManifest, TreeEntry};

use super::{again, put_sum};
use crate::random::{ascending, bytes, counted, id, number, signed};
use crate::target::{Category, Target, no_checksum, seen};

const VOLUME: [u8; 16] = [5; 16];
const NUMBER: u64 = 9;
const CHUNK: ChunkId<'static> = ChunkId { volume: VOLUME, name: "run/9", offset: 1 << 17 };

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "run-block",
        part: Category::Decoders,
        covers: &["run_block::LAYOUT", "run_block::decode"],
        make: make_block,
        repair: no_checksum,
        run: run_block,
    },
    Target {
        name: "packed-run-block",
        part: Category::Decoders,
        covers: &["run_block::unpack"],
        make: make_packed,
        repair: no_checksum,
        run: run_packed,
    },
    Target {
        name: "run-index",
        part: Category::Decoders,
        covers: &["run_index::LAYOUT", "run_index::BLOCK_LAYOUT", "run_index::decode"],
        make: make_index,
        repair: no_checksum,
        run: run_index,
    },
    Target {
        name: "blob-head",
        part: Category::Decoders,
        covers: &["run_index::BLOB_LAYOUT", "run_index::check_blob_head"],
        make: |_| run_index::blob_head(VOLUME, NUMBER),
        repair: |bytes| put_sum(bytes, 12, &[(16, 40)]),
        run: |bytes| run_index::check_blob_head(bytes, VOLUME, NUMBER).is_ok(),
    },
    Target {
        name: "note-of-numbers",
        part: Category::Decoders,
        covers: &["numbers::LAYOUT", "numbers::decode"],
        make: |random| Numbers { volume: VOLUME, below: counted(random) }.encode(),
        repair: |bytes| put_sum(bytes, 12, &[(0, 12), (16, NUMBERS_BYTES)]),
        run: |bytes| {
            let Ok(numbers::Decoded::Numbers(note)) = Numbers::decode(bytes) else { return false };
            let read = |bytes: &[u8]| match Numbers::decode(bytes) {
                Ok(numbers::Decoded::Numbers(note)) => Ok(note),
                other => Err(other),
            };
            again(&note, &note.encode(), read);
            true
        },
    },
    Target {
        name: "sign-of-life",
        part: Category::Decoders,
        covers: &["presence::LAYOUT", "presence::decode"],
        make: |random| {
            let name = |random: &mut Rng| "h\u{e4}".repeat(random.usize(..200));
            let period = random.u32(1..=presence::PERIOD_MAX);
            let (volume, opening, number) = (VOLUME, [9; 16], counted(random));
            let (pid, started, written) = (random.u32(..), random.i64(..), random.i64(..));
            let (host, user) = (name(random), name(random));
            Presence { volume, opening, number, period, pid, started, written, host, user }.encode()
        },
        repair: |bytes| put_sum(bytes, 12, &[(0, 12), (16, usize::MAX)]),
        run: |bytes| {
            let read = |bytes: &[u8]| match Presence::decode(bytes) {
                Ok(presence::Decoded::Presence(sign)) => Ok(sign),
                other => Err(other),
            };
            let Ok(sign) = read(bytes) else { return false };
            again(&sign, &sign.encode(), read);
            true
        },
    },
    Target {
        name: "cached-chunk",
        part: Category::Decoders,
        covers: &["cached_chunk::LAYOUT", "cached_chunk::decode"],
        make: |random| {
            let data: Vec<u8> = (0..random.usize(1..300)).map(|_| random.u8(..)).collect();
            cached_chunk::encode(&CHUNK, &data)
        },
        repair: |bytes| put_sum(bytes, 12, &[(0, 12), (16, usize::MAX)]),
        run: |bytes| {
            let Ok(data) = cached_chunk::decode(&CHUNK, bytes) else { return false };
            assert_eq!(cached_chunk::encode(&CHUNK, data), bytes);
            true
        },
    },
    Target {
        name: "run-manifest",
        part: Category::Decoders,
        covers: &[
            "run_manifest::LAYOUT",
            "run_manifest::BLOB_LAYOUT",
            "run_manifest::RUN_LAYOUT",
            "run_manifest::VALUES_LAYOUT",
            "run_manifest::LOG_LAYOUT",
            "run_manifest::USE_LAYOUT",
            "run_manifest::PREFIX_LAYOUT",
            "run_manifest::ORIGIN_LAYOUT",
            "run_manifest::decode",
        ],
        make: make_manifest,
        repair: |bytes| put_sum(bytes, 12, &[(16, usize::MAX)]),
        run: run_manifest,
    },
    Target {
        name: "row-pointer",
        part: Category::Decoders,
        covers: &["row_pointer::LAYOUT", "row_pointer::decode"],
        make: make_pointer,
        repair: no_checksum,
        run: run_pointer,
    },
];

fn make_block(random: &mut Rng) -> Vec<u8> {
    let mut builder = BlockBuilder::default();
    let shared = bytes(random, 12);
    let count = random.usize(1..50);
    for key in ascending(random, count, 20) {
        let value = bytes(random, 60);
        let stored = match random.u8(..6) {
            0 => Stored::Tombstone,
            1 => Stored::Far(&value),
            _ => Stored::Value(&value),
        };
        builder.push(&[shared.as_slice(), &key].concat(), stored);
    }
    builder.finish()
}

fn run_block(bytes: &[u8]) -> bool {
    let Ok(block) = Block::decode(bytes.to_vec()) else { return false };
    assert!(!block.is_empty() && block.len() <= bytes.len(), "more entries than bytes");
    let mut key = Vec::new();
    for at in [0, 1, block.len() / 2, block.len() - 1, block.len(), usize::MAX / 8] {
        key.clear();
        block.key_to(at, &mut key);
        seen(block.search(&key));
        if let Stored::Value(value) | Stored::Far(value) = block.stored(at) {
            assert!(value.len() <= bytes.len(), "a long value");
        }
    }
    seen((block.search(b""), block.search(&[0xff; 40]), block.memory_bytes()));
    true
}

/// The length of the block, and the packed block.
fn make_packed(random: &mut Rng) -> Vec<u8> {
    let block = [make_block(random), vec![7; 400]].concat();
    let packed = run_block::pack(&block, 1).unwrap_or_default();
    [&(block.len() as u32).to_le_bytes()[..], &packed].concat()
}

fn run_packed(bytes: &[u8]) -> bool {
    let Some((length, packed)) = bytes.split_first_chunk::<4>() else { return false };
    let unpacked = run_block::unpack(packed, u32::from_le_bytes(*length) as usize);
    unpacked.is_ok_and(|block| {
        seen(Block::decode(block));
        true
    })
}

fn make_index(random: &mut Rng) -> Vec<u8> {
    let mut index = RunIndex::default();
    let count = random.usize(..20);
    let keys = ascending(random, 2 * count, 30);
    let mut offset = number(random) >> 1;
    for pair in keys.chunks_exact(2) {
        let raw = random.u32(1..=run_block::BLOCK_BYTES_MAX as u32);
        let place =
            BlockPlace { offset, stored: random.u32(1..=raw), raw, checksum: random.u32(..) };
        offset = offset.saturating_add(u64::from(place.stored));
        index.push(&pair[0], &pair[1], place);
        if random.u8(..5) == 0 {
            let members: Vec<u64> = (0..30).map(|_| random.u64(..)).collect();
            index.push_filter(Filter::build(&members, 8, 1 << 10));
        }
    }
    for key in ascending(random, 3, 10) {
        let to = random.bool().then(|| [key.as_slice(), &[1]].concat());
        index.push_range(&key, to.as_deref());
    }
    index.encode()
}

fn run_index(bytes: &[u8]) -> bool {
    let Ok(index) = RunIndex::decode(bytes) else { return false };
    for key in [index.last_key().to_vec(), index.first_key(0).to_vec(), Vec::new()] {
        let found = index.find(&key);
        assert!(found.is_none_or(|at| at < index.blocks().len()), "a block that is not there");
        let last = index.last_not_above(&key);
        assert!(last.is_none_or(|at| at < index.blocks().len()), "a block that is not there");
    }
    for block in [0, index.blocks().len(), usize::MAX] {
        seen((index.may_have(block, 77), index.first_key(block).len()));
    }
    seen(index.memory_bytes());
    again(&index, &index.encode(), RunIndex::decode);
    true
}

fn make_manifest(random: &mut Rng) -> Vec<u8> {
    let mut manifest = RunManifest {
        volume: VOLUME,
        number: NUMBER,
        lsn: counted(random),
        time: signed(random),
        next_blob: counted(random).max(1 << 6),
        next_run: counted(random).max(1 << 6),
        ..RunManifest::default()
    };
    let mut next = 0;
    for _ in 0..random.usize(1..5) {
        next += random.u64(1..5);
        manifest.blobs.push(BlobEntry { number: next, length: number(random) >> 8 | 1 << 20 });
    }
    let mut next = 0;
    for _ in 0..random.usize(..8) {
        next += random.u64(1..5);
        let blob = manifest.blobs[random.usize(..manifest.blobs.len())];
        // The sum of these is below 2^56.
        let entries = number(random) >> 12;
        manifest.runs.push(RunEntry {
            number: next,
            blob: blob.number,
            start: random.u64(..4096),
            index: random.u64(4096..1 << 16),
            index_bytes: random.u32(..1 << 16),
            ranges: random.u32(..5),
            checksum: random.u32(..),
            entries,
            tombstones: number(random).min(entries),
        });
    }
    // What is below each run, the same in all stacks.
    let runs = manifest.runs.len() as u32;
    let below: Vec<u32> = (0..runs).map(|run| random.u32(..=run)).collect();
    for _ in 0..random.usize(1..5) {
        let mut stack = Vec::new();
        let mut next = random.u32(..=runs);
        while let Some(run) = next.checked_sub(1) {
            stack.push(run);
            next = below[run as usize];
        }
        manifest.stacks.push(stack);
    }
    let mut next = 0;
    for _ in 0..random.usize(..5) {
        next += random.u64(1..50);
        let stack = random.u32(..manifest.stacks.len() as u32);
        manifest.trees.push(TreeEntry { number: next, stack });
    }
    manifest.uses.resize(manifest.runs.len(), Vec::new());
    if random.bool() {
        manifest.prefix_bytes = random.usize(..1 << 16);
    }
    if random.bool() {
        let epoch = random.u64(1..=NUMBER);
        let (log_epoch, log_number) = (random.u64(1..=epoch), counted(random).max(1));
        manifest.origin = Some(Origin { epoch, opening: id(random), log_epoch, log_number });
    }
    if random.bool() {
        manifest.values_from = number(random).max(1);
        // All of them can be added up, and a run uses no more of a log than it has.
        let mut rows = |log, most_rows, most_bytes| LogRows {
            log,
            rows: number(random).min(most_rows),
            bytes: number(random).min(most_bytes),
        };
        let logs = manifest.blobs.iter().map(|blob| rows(blob.number, 1 << 56, 1 << 56));
        manifest.logs = logs.collect();
        for uses in &mut manifest.uses {
            *uses = manifest.logs.iter().map(|log| rows(log.log, log.rows, log.bytes)).collect();
        }
    }
    manifest.encode()
}

fn make_pointer(random: &mut Rng) -> Vec<u8> {
    let raw = random.u32(1..=run_block::BLOCK_BYTES_MAX as u32);
    let place = BlockPlace {
        offset: number(random),
        stored: random.u32(..=raw),
        raw,
        checksum: random.u32(..),
    };
    let length = random.u32(..=raw.min(format::batch::VALUE_BYTES_MAX as u32));
    let mut out = Vec::new();
    RowPointer { log: number(random), place, length }.encode(&mut out);
    out
}

fn run_pointer(bytes: &[u8]) -> bool {
    let Ok(pointer) = RowPointer::decode(bytes) else { return false };
    let mut out = Vec::new();
    pointer.encode(&mut out);
    again(&pointer, &out, RowPointer::decode);
    true
}

fn run_manifest(bytes: &[u8]) -> bool {
    let Ok(decoded) = RunManifest::decode(bytes, VOLUME, NUMBER) else { return false };
    if let Decoded::Manifest(manifest) = &decoded {
        again(&decoded, &manifest.encode(), |bytes| RunManifest::decode(bytes, VOLUME, NUMBER));
    }
    true
}
