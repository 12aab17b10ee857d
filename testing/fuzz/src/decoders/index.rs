//! The index: manifests, clusters and their columns, sections and filters.

use std::collections::BTreeMap;

use fastrand::Rng;
use format::cluster::{self, AttributeColumns, ColumnId, Extent, Head, Stored};
use format::cluster_directories::{self, ClusterDirectory, Directories};
use format::cluster_filter::Filter;
use format::cluster_groups::{Groups, Sums};
use format::cluster_names::{self, Names};
use format::cluster_numbers::{self, Numbers};
use format::cluster_summary::{ATTRIBUTES, CARRIED_MAX, SummaryRecord};
use format::cluster_values::{self, Values};
use format::manifest::{ClusterEntry, Manifest};
use format::{Reader, Writer};

use super::{again, put_sum};
use crate::random::{ascending, bytes, name, number, number32, signed};
use crate::target::{Category, Target, no_checksum, seen};

const VOLUME: [u8; 16] = [5; 16];
const BASE: u64 = 9;
/// Packed bytes unpack to no more than this here.
const UNPACKED_MAX: usize = 1 << 20;

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "manifest",
        part: Category::Decoders,
        covers: &["manifest::LAYOUT", "manifest::CLUSTER_LAYOUT", "manifest::decode"],
        make: make_manifest,
        repair: |bytes| put_sum(bytes, 12, &[(16, usize::MAX)]),
        run: |bytes| {
            let Ok(manifest) = Manifest::decode(bytes, VOLUME, BASE) else { return false };
            again(&manifest, &manifest.encode(), |bytes| Manifest::decode(bytes, VOLUME, BASE));
            true
        },
    },
    Target {
        name: "cluster-head",
        part: Category::Decoders,
        covers: &[
            "cluster::LAYOUT",
            "cluster::COLUMN_LAYOUT",
            "cluster::claimed_length",
            "cluster::decode",
        ],
        make: make_head,
        repair: |bytes| {
            let length = bytes.len() as u32;
            if let Some(slot) = bytes.get_mut(16..20) {
                slot.copy_from_slice(&length.to_le_bytes());
            }
            put_sum(bytes, 12, &[(0, 12), (16, usize::MAX)]);
        },
        run: run_head,
    },
    Target {
        name: "cluster-directories",
        part: Category::Decoders,
        covers: &["cluster_directories::LAYOUT", "cluster_directories::read_next"],
        make: make_directories,
        repair: no_checksum,
        run: run_directories,
    },
    Target {
        name: "cluster-groups",
        part: Category::Decoders,
        covers: &[
            "cluster_groups::LAYOUT",
            "cluster_groups::ITEM_LAYOUT",
            "cluster_groups::NAMED_LAYOUT",
            "cluster_groups::decode",
        ],
        make: make_groups,
        repair: no_checksum,
        run: run_groups,
    },
    Target {
        name: "cluster-names",
        part: Category::Decoders,
        covers: &["cluster_names::decode"],
        make: make_names,
        repair: no_checksum,
        run: run_names,
    },
    Target {
        name: "packed-names",
        part: Category::Decoders,
        covers: &["cluster_names::unpack"],
        make: |random| {
            let names = [make_names(random), vec![0; 300]].concat();
            let packed = cluster_names::pack(&names, 1).unwrap_or_default();
            [&(names.len() as u32).to_le_bytes()[..], &packed].concat()
        },
        repair: no_checksum,
        run: |bytes| {
            let Some((raw, packed)) = bytes.split_first_chunk::<4>() else { return false };
            // The caller bounds the length by what the structure may have.
            let raw = (u32::from_le_bytes(*raw) as usize).min(UNPACKED_MAX);
            cluster_names::unpack(packed, raw).is_ok()
        },
    },
    Target {
        name: "cluster-numbers",
        part: Category::Decoders,
        covers: &["cluster_numbers::decode"],
        make: make_numbers,
        repair: no_checksum,
        run: run_numbers,
    },
    Target {
        name: "cluster-values",
        part: Category::Decoders,
        covers: &["cluster_values::decode"],
        make: make_values,
        repair: no_checksum,
        run: run_values,
    },
    Target {
        name: "cluster-filter",
        part: Category::Decoders,
        covers: &["cluster_filter::decode"],
        make: |random| {
            let mut out = Vec::new();
            filter(random).encode(&mut out);
            out
        },
        repair: no_checksum,
        run: run_filter,
    },
    Target {
        name: "cluster-summary",
        part: Category::Decoders,
        covers: &["cluster_summary::decode"],
        make: make_summary,
        repair: no_checksum,
        run: run_summary,
    },
];

fn make_manifest(random: &mut Rng) -> Vec<u8> {
    let clusters = (0..random.usize(..6))
        .map(|_| ClusterEntry {
            owner: number(random),
            number: number32(random),
            rows: number32(random),
            cluster_bytes: number(random),
            directories_bytes: number32(random),
            directories_checksum: random.u32(..),
            groups_bytes: number32(random),
            groups_checksum: random.u32(..),
            summary: bytes(random, 100),
        })
        .collect();
    Manifest { volume: VOLUME, base: BASE, clusters }.encode()
}

fn make_head(random: &mut Rng) -> Vec<u8> {
    let summary = bytes(random, 60);
    let mut ids: Vec<ColumnId> = ColumnId::ALL.to_vec();
    ids.retain(|_| random.bool());
    let mut places: Vec<u8> = (0..CARRIED_MAX as u8).collect();
    places.retain(|_| random.u8(..8) == 0);
    if !places.is_empty() {
        // A cluster has them in columns or in records.
        ids.retain(|id| ![ColumnId::XattrLengths, ColumnId::Xattrs].contains(id));
    }
    let count = ids.len() + 2 * places.len();
    let total = Head::length(count, summary.len()) as u64 + (number(random) >> 2);
    let columns: Vec<_> = ids.into_iter().map(|id| (id, make_stored(random, total))).collect();
    let attributes = places.into_iter().map(|place| {
        let (ranks, mut values) = (make_stored(random, total), make_stored(random, total));
        while values.extent().is_none() {
            values = make_stored(random, total);
        }
        AttributeColumns { place, ranks, values }
    });
    let attributes = attributes.collect();
    let head = Head {
        rows: random.u32(1..=cluster::ROWS_MAX),
        block_rows: random.u16(1..=cluster::BLOCK_ROWS_MAX),
        bytes: total,
        columns,
        attributes,
        summary: &summary,
    };
    head.encode()
}

fn make_stored(random: &mut Rng, total: u64) -> Stored {
    let (raw, checksum) = (number32(random), random.u32(..));
    let extent = Extent { offset: total, length: 0, raw, checksum };
    match random.u8(..6) {
        0 => Stored::Constant(number(random)),
        1 => Stored::Numbers(extent),
        2 => Stored::Difference(extent),
        3 => Stored::RoundedDifference(extent),
        4 => Stored::Packed(extent),
        _ => Stored::Bytes(extent),
    }
}

/// Rows whose values are requested.
const VALUE_ROWS: u32 = 40;

fn make_values(random: &mut Rng) -> Vec<u8> {
    let mut values: Vec<_> = (0..random.usize(1..30)).map(|_| bytes(random, 12)).collect();
    values.sort();
    values.dedup();
    let mut out = Vec::new();
    cluster_values::encode(&values, &mut out);
    out
}

fn run_values(bytes: &[u8]) -> bool {
    let Ok(values) = Values::decode(bytes, VALUE_ROWS) else { return false };
    for place in 1..=values.len() as u64 {
        let value = values.get(place).expect("invariant: places are 1 to their number");
        assert_eq!(values.find(value), Some(place), "a value is not where it is");
    }
    true
}

fn run_head(bytes: &[u8]) -> bool {
    seen(Head::claimed_length(bytes));
    let Ok(head) = Head::decode(bytes) else { return false };
    let attributes = head.attributes.iter().flat_map(|one| [one.ranks, one.values]);
    for stored in head.columns.iter().map(|(_, stored)| *stored).chain(attributes) {
        let end = stored.extent().map_or(0, |extent| extent.offset + u64::from(extent.length));
        assert!(end <= head.bytes, "a column beyond the end");
    }
    let encoded = head.encode();
    assert_eq!(Head::decode(&encoded).as_ref(), Ok(&head), "read once more it is something else");
    true
}

fn make_directories(random: &mut Rng) -> Vec<u8> {
    let mut ino = 0_u64;
    let directories: Vec<_> = (0..random.usize(..10))
        .map(|_| {
            ino += random.u64(..1 << 40);
            ClusterDirectory {
                ino,
                from: if random.bool() { 0 } else { number(random) },
                parent: number(random),
                parent_cookie: number(random),
                mode: random.u32(..=0o7777),
                uid: number32(random),
                gid: number32(random),
                name: bytes(random, 255),
                files: number(random),
                subdirectories: number(random),
                bytes: number(random),
                allocated: number(random),
                ctime: signed(random),
            }
        })
        .collect();
    let mut out = Vec::new();
    cluster_directories::encode(&directories, &mut out);
    out
}

fn run_directories(bytes: &[u8]) -> bool {
    let mut directories = Directories::new(bytes);
    let mut before = 0;
    loop {
        match directories.read_next() {
            Ok(Some(directory)) => {
                assert!(directory.ino >= before, "directories that go back");
                before = directory.ino;
            }
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

fn sums(random: &mut Rng) -> Sums {
    let (files, bytes, allocated) = (number(random), number(random), number(random));
    Sums { files, bytes: bytes.into(), allocated: allocated.into() }
}

fn make_groups(random: &mut Rng) -> Vec<u8> {
    let list = |random: &mut Rng| -> BTreeMap<u64, Sums> {
        (0..random.usize(..6)).map(|_| (number(random), sums(random))).collect()
    };
    let groups = Groups {
        directories: number(random),
        linked: number(random),
        ctime: signed(random),
        kinds: list(random),
        owners: list(random),
        groups: list(random),
        sizes: list(random),
        days: (0..random.usize(..4)).map(|_| (random.i64(-9999..9999), sums(random))).collect(),
        extensions: (0..random.usize(..4)).map(|_| (name(random, 8), sums(random))).collect(),
    };
    let mut out = Vec::new();
    groups.encode(&mut out);
    out
}

fn run_groups(bytes: &[u8]) -> bool {
    let Ok(groups) = Groups::decode(bytes) else { return false };
    let mut encoded = Vec::new();
    groups.encode(&mut encoded);
    again(&groups, &encoded, Groups::decode);
    let mut twice = groups.clone();
    twice.merge(&groups);
    twice.take(&groups);
    seen(twice.total());
    true
}

/// Rows, rows of a block, and the names.
fn make_names(random: &mut Rng) -> Vec<u8> {
    let rows = random.u16(1..200);
    let mut out = Vec::new();
    out.put_u16(rows);
    out.put_u16(random.u16(1..64));
    out.put_u8(0);
    for _ in 0..rows {
        out.extend_from_slice(&name(random, 20));
        out.put_u8(0);
    }
    out
}

fn run_names(bytes: &[u8]) -> bool {
    let mut reader = Reader::new("names", bytes);
    let (Ok(rows), Ok(block_rows)) = (reader.u16(), reader.u16()) else { return false };
    let rest = bytes.get(4..).unwrap_or_default().to_vec();
    let Ok(names) = Names::decode(rest, u32::from(rows), block_rows) else { return false };
    for row in 0..usize::from(rows) {
        assert!((1..=255).contains(&names.get(row).len()), "a name of another length");
    }
    seen((names.get(usize::from(rows)).len(), names.packed(0, usize::MAX).len()));
    seen(names.packed(0, 1).len() + names.memory_bytes());
    true
}

fn make_numbers(random: &mut Rng) -> Vec<u8> {
    let rows = random.u16(1..500);
    let block_rows = random.u16(1..128);
    let spread = random.u32(1..64);
    let few: Vec<u64> = (0..4).map(|_| number(random)).collect();
    let dictionary = random.bool();
    let values: Vec<u64> = (0..rows)
        .map(|_| if dictionary { few[random.usize(..4)] } else { random.u64(..) >> spread })
        .collect();
    let mut out = Vec::new();
    out.put_u16(rows);
    out.put_u16(block_rows);
    cluster_numbers::encode(&mut out, &values, block_rows);
    out
}

fn run_numbers(bytes: &[u8]) -> bool {
    let mut reader = Reader::new("numbers", bytes);
    let (Ok(rows), Ok(block_rows)) = (reader.u16(), reader.u16()) else { return false };
    let Ok(numbers) = Numbers::decode(&mut reader, u32::from(rows), block_rows) else {
        return false;
    };
    let mut out = vec![0; usize::from(block_rows.max(1))];
    let mut rows_seen = 0;
    for block in 0..=numbers.blocks() {
        let count = numbers.values(block, &mut out);
        for (at, value) in out[..count].iter().enumerate().step_by(7) {
            let row = block * usize::from(block_rows.max(1)) + at;
            assert_eq!(numbers.get(row), *value, "row {row} by itself is another number");
        }
        seen(numbers.codes(block, &mut out));
        seen(numbers.code_bounds(block));
        rows_seen += count;
    }
    assert_eq!(rows_seen, usize::from(rows), "another number of rows");
    seen(numbers.get(usize::MAX));
    seen(numbers.memory_bytes() + numbers.dictionary().map_or(0, <[u64]>::len));
    true
}

fn filter(random: &mut Rng) -> Filter {
    let members: Vec<u64> = (0..random.usize(..60)).map(|_| random.u64(..)).collect();
    Filter::build(&members, random.u32(1..16), 256)
}

fn run_filter(bytes: &[u8]) -> bool {
    let Ok(filter) = Filter::decode(&mut Reader::new("filter", bytes)) else { return false };
    for member in [0, 1, u64::MAX, format::cluster_filter::hash(bytes)] {
        seen(filter.may_have(member));
    }
    let mut encoded = Vec::new();
    filter.encode(&mut encoded);
    again(&filter, &encoded, |bytes| Filter::decode(&mut Reader::new("filter", bytes)));
    true
}

fn make_summary(random: &mut Rng) -> Vec<u8> {
    let mut bounds = [(0, 0); ATTRIBUTES];
    for bound in &mut bounds {
        let (a, b) = (number(random), number(random));
        *bound = (a.min(b), a.max(b));
    }
    let filters = (0..random.u8(..4)).map(|of| (of, random.u8(..64), filter(random))).collect();
    let (rows, directories) = (number(random), number(random));
    let (size, allocated) = (number(random), number(random));
    let count = random.usize(..4);
    let carried = ascending(random, count, 20);
    SummaryRecord { rows, directories, size, allocated, bounds, filters, carried }.encode()
}

fn run_summary(bytes: &[u8]) -> bool {
    let record = SummaryRecord::decode(bytes);
    // The processing that searches do on it.
    let summary = search::cluster::Summary::decode(bytes);
    if let Ok(summary) = &summary {
        seen(summary.memory_bytes() + summary.encode().len());
    }
    let Ok(record) = record else { return false };
    again(&record, &record.encode(), SummaryRecord::decode);
    true
}
