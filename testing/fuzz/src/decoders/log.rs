//! The log: headers of its segments, records, and the batches in them.

use fastrand::Rng;
use format::batch::{self, IngestedLeaf, Lane, LaneList, MergeKind, Op, Ops};
use format::log_object::{self, LogObject};
use format::log_record::{self, Record, RecordHeader};
use format::log_segment::{Decoded, RECORDS_START, SEGMENT_BYTES_MAX, SegmentHeader};

use super::{again, put_sum};
use crate::random::{bytes, counted, id, number, pointer, signed};
use crate::target::{Category, Target, no_checksum, seen};

const SECRET: [u8; 16] = [3; 16];

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "log-segment",
        part: Category::Decoders,
        covers: &["log_segment::LAYOUT", "log_segment::decode"],
        make: |random| {
            let bytes = random.u64(RECORDS_START + 1..=SEGMENT_BYTES_MAX);
            SegmentHeader { volume: id(random), first: counted(random).max(1), bytes }.encode()
        },
        repair: |bytes| put_sum(bytes, 12, &[(0, 12), (16, 64)]),
        run: run_segment,
    },
    Target {
        name: "log-object",
        part: Category::Decoders,
        covers: &["log_object::LAYOUT", "log_object::decode"],
        make: make_object,
        repair: |bytes| put_sum(bytes, 12, &[(0, 12), (16, usize::MAX)]),
        run: run_object,
    },
    Target {
        name: "log-record",
        part: Category::Decoders,
        covers: &["log_record::LAYOUT", "log_record::decode"],
        make: make_record,
        repair: repair_record,
        run: run_record,
    },
    Target {
        name: "batch",
        part: Category::Decoders,
        covers: &["batch::next"],
        make: make_batch,
        repair: no_checksum,
        run: run_batch,
    },
];

fn run_segment(bytes: &[u8]) -> bool {
    let Ok(decoded) = SegmentHeader::decode(bytes) else { return false };
    if let Decoded::Header(header) = decoded {
        again(&decoded, &header.encode(), SegmentHeader::decode);
    }
    true
}

fn make_object(random: &mut Rng) -> Vec<u8> {
    let records = if random.bool() { make_record(random) } else { Vec::new() };
    let kind = if records.is_empty() {
        log_object::Kind::Seal { successor: counted(random).max(1) }
    } else {
        log_object::Kind::Records { first: counted(random).max(1), count: counted(random).max(1) }
    };
    let (epoch, number) = (counted(random), counted(random));
    let object = LogObject { volume: id(random), opening: id(random), epoch, number, kind };
    object.encode(&records)
}

fn run_object(bytes: &[u8]) -> bool {
    let Ok(decoded) = LogObject::decode(bytes) else { return false };
    if let log_object::Decoded::Object(object, records) = decoded {
        let encoded = object.encode(records);
        assert!(LogObject::decode(&encoded) == Ok(decoded), "it is not what was encoded");
    }
    true
}

fn make_record(random: &mut Rng) -> Vec<u8> {
    let payload = make_batch(random);
    let sum = log_record::sum_payload(log_record::seed(&SECRET), &payload);
    let lsn = number(random);
    let head = log_record::encode(sum, payload.len() as u32, lsn, lsn.saturating_sub(3));
    [&head[..], &payload].concat()
}

/// The checksum covers the payload, up to the stated length, and then the rest of the header.
fn repair_record(bytes: &mut [u8]) {
    let length =
        bytes.get(4..8).and_then(|slot| slot.try_into().ok()).map_or(0, u32::from_le_bytes);
    let end = log_record::HEADER_BYTES.saturating_add(length as usize).min(bytes.len());
    let payload = bytes.get(log_record::HEADER_BYTES..end).unwrap_or_default();
    let sum = log_record::sum_payload(log_record::seed(&SECRET), payload);
    let sum = crc32c::crc32c_append(sum, bytes.get(4..20).unwrap_or_default());
    if let Some(slot) = bytes.get_mut(..4) {
        slot.copy_from_slice(&sum.to_le_bytes());
    }
}

fn run_record(bytes: &[u8]) -> bool {
    if let Some(head) = bytes.first_chunk()
        && let Ok(header) = RecordHeader::decode(head)
    {
        seen((header.durable(), header.is_mark(), header.sums(0)));
    }
    let Ok(record) = Record::decode(log_record::seed(&SECRET), bytes) else { return false };
    assert!(record.bytes() <= bytes.len(), "a record longer than its bytes");
    run_batch(record.payload);
    true
}

fn make_batch(random: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..random.usize(1..8) {
        let (tree, key) = (number(random), bytes(random, 40));
        match random.u8(..8) {
            0 => batch::put(&mut out, tree, &key, &bytes(random, 200)),
            1 => batch::delete(&mut out, tree, &key),
            2 => batch::delete_range(&mut out, tree, &key, &bytes(random, 40)),
            3 => {
                let lanes: Vec<Lane> = (0..random.usize(..=batch::LANES_MAX))
                    .map(|_| Lane {
                        offset: random.u16(..=batch::LANE_OFFSET_MAX as u16),
                        kind: if random.bool() { MergeKind::Max } else { MergeKind::Add },
                        operand: signed(random),
                    })
                    .collect();
                batch::merge(&mut out, tree, &key, &lanes);
            }
            4 => batch::create_tree(&mut out, tree),
            5 => batch::clone_tree(&mut out, tree, number(random), &[&key[..], b"more"]),
            6 => batch::drop_tree(&mut out, tree),
            _ => {
                let from = bytes(random, 20);
                let overflows = (0..random.usize(..3)).map(|_| pointer(random)).collect();
                let leaf = IngestedLeaf { from: &from, pointer: pointer(random), overflows };
                batch::ingest(&mut out, tree, &key, &bytes(random, 20), &[leaf]);
            }
        }
    }
    out
}

fn run_batch(bytes: &[u8]) -> bool {
    for op in Ops::new(bytes) {
        match op {
            Err(_) => return false,
            Ok(Op::Merge { lanes, .. }) => apply(&lanes),
            Ok(_) => {}
        }
    }
    true
}

fn apply(lanes: &LaneList<'_>) {
    let mut value = vec![0xff; 5];
    lanes.apply(&mut value);
    assert!(value.len() <= batch::LANE_OFFSET_MAX + 8, "a lane beyond the bound");
}
