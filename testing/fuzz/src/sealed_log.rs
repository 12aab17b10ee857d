//! Records of the log that were falsified with every checksum right. They have other operations,
//! trees, keys, values, places of leaves and of runs, numbers of records, and payloads of any
//! bytes.

use fastrand::Rng;
use format::batch::{self, Op, Ops};
use format::log_record::{self, Record};
use format::log_segment::RECORDS_START;
use format::volume::VolumeHeader;
use testing::SimDevice;

use crate::mutate::mutate;

const HEADER: &str = "volume.pando";

/// A record that was read.
struct LogRecord {
    lsn: u64,
    durable: u64,
    payload: Vec<u8>,
}

/// Falsifies some records of one segment of the log.
pub(crate) fn falsify(device: &SimDevice, random: &mut Rng) {
    let Ok(header) = VolumeHeader::decode(&device.read_file(HEADER)) else { return };
    let seed = log_record::seed(&header.hash_key);
    let files = device.files();
    let segments: Vec<&str> = files
        .iter()
        .map(|(path, _)| path.as_str())
        .filter(|path| path.strip_suffix(".log").is_some())
        .collect();
    if segments.is_empty() {
        return;
    }
    // The newest has what no checkpoint has.
    let last = segments.len() - 1;
    let path = segments[if random.bool() { last } else { random.usize(..=last) }];
    let bytes = device.read_file(path);
    let mut records = records(&bytes, seed);
    if records.is_empty() {
        return;
    }
    for _ in 0..1 << random.u32(..4) {
        let at = random.usize(..records.len());
        falsify_record(&mut records[at], random);
    }
    let mut out = Vec::new();
    for LogRecord { lsn, durable, payload } in &records {
        let sum = log_record::sum_payload(seed, payload);
        out.extend(log_record::encode(sum, payload.len() as u32, *lsn, *durable));
        out.extend(payload);
    }
    let space = bytes.len().saturating_sub(RECORDS_START as usize);
    out.truncate(space);
    out.resize(space, 0);
    device.overwrite(path, RECORDS_START, &out);
}

fn records(bytes: &[u8], seed: u32) -> Vec<LogRecord> {
    let mut rest = bytes.get(RECORDS_START as usize..).unwrap_or_default();
    let mut found = Vec::new();
    while let Ok(record) = Record::decode(seed, rest) {
        let lsn = record.header.lsn;
        let durable = record.header.durable().unwrap_or(0);
        found.push(LogRecord { lsn, durable, payload: record.payload.to_vec() });
        rest = &rest[record.bytes()..];
    }
    found
}

fn falsify_record(record: &mut LogRecord, random: &mut Rng) {
    match random.u8(..12) {
        0 => record.lsn = record.lsn.wrapping_add(random.u64(..3)).wrapping_sub(1),
        1 => record.durable = random.u64(..=record.lsn),
        2 | 3 => mutate(&mut record.payload, &[], random),
        _ => {
            if let Some(payload) = other_operations(&record.payload, random) {
                record.payload = payload;
            }
        }
    }
    record.payload.truncate(log_record::PAYLOAD_BYTES_MAX);
}

/// A tree that there may be.
fn tree(random: &mut Rng) -> u64 {
    match random.u8(..8) {
        0 => random.u64(..),
        1 => random.u64(..16),
        2 | 3 => random.u64(16..18),
        _ => random.u64(18..64),
    }
}

fn changed(bytes: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    mutate(&mut bytes, &[], random);
    bytes
}

/// The operations of a batch, one of them changed, twice, or another one.
fn other_operations(payload: &[u8], random: &mut Rng) -> Option<Vec<u8>> {
    let ops: Vec<Op<'_>> = Ops::new(payload).collect::<Result<_, _>>().ok()?;
    let chosen = random.usize(..ops.len().max(1));
    let mut out = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        if at != chosen {
            put(&mut out, op);
            continue;
        }
        match random.u8(..6) {
            0 => {
                put(&mut out, op);
                put(&mut out, op);
            }
            1 => another(&mut out, random),
            _ => put_changed(&mut out, op, random),
        }
    }
    Some(out)
}

fn another(out: &mut Vec<u8>, random: &mut Rng) {
    match random.u8(..5) {
        0 => batch::drop_tree(out, tree(random)),
        1 => batch::create_tree(out, tree(random)),
        2 => batch::clone_tree(out, tree(random), tree(random), &[]),
        3 => batch::delete_range(out, tree(random), b"", &[0xff; 8]),
        _ => batch::put(out, tree(random), &changed(b"any key", random), b"any value"),
    }
}

fn put(out: &mut Vec<u8>, op: &Op<'_>) {
    match op {
        Op::Put { tree, key, value } => batch::put(out, *tree, key, value),
        Op::Delete { tree, key } => batch::delete(out, *tree, key),
        Op::DeleteRange { tree, from, to } => batch::delete_range(out, *tree, from, to),
        Op::Merge { tree, key, lanes } => {
            batch::merge(out, *tree, key, &lanes.iter().collect::<Vec<_>>());
        }
        Op::CreateTree { tree } => batch::create_tree(out, *tree),
        Op::CloneTree { source, target, prefixes } => {
            batch::clone_tree(out, *source, *target, prefixes);
        }
        Op::DropTree { tree } => batch::drop_tree(out, *tree),
        Op::Ingest { tree, first, last, leaves } => batch::ingest(out, *tree, first, last, leaves),
        Op::Link { tree, linked } => {
            batch::link(out, *tree, &linked.blob, &linked.run, linked.range.unwrap_or_default());
        }
    }
}

fn put_changed(out: &mut Vec<u8>, op: &Op<'_>, random: &mut Rng) {
    match op {
        Op::Put { key, value, .. } if random.u8(..4) == 0 => {
            batch::put(out, tree(random), key, value);
        }
        Op::Put { tree, key, value } if random.bool() => {
            batch::put(out, *tree, &changed(key, random), value);
        }
        Op::Put { tree, key, value } => batch::put(out, *tree, key, &changed(value, random)),
        Op::Delete { tree, key } => batch::delete(out, *tree, &changed(key, random)),
        Op::DeleteRange { tree, from, to } => {
            batch::delete_range(out, *tree, &changed(from, random), to);
        }
        Op::Merge { tree, key, lanes } => {
            let mut lanes: Vec<_> = lanes.iter().collect();
            for lane in &mut lanes {
                lane.operand = random.i64(..);
            }
            batch::merge(out, *tree, key, &lanes);
        }
        Op::CreateTree { .. } => batch::create_tree(out, tree(random)),
        Op::CloneTree { source, .. } if random.bool() => {
            batch::clone_tree(out, *source, tree(random), &[]);
        }
        Op::CloneTree { target, .. } => batch::clone_tree(out, tree(random), *target, &[]),
        Op::DropTree { .. } => batch::drop_tree(out, tree(random)),
        Op::Ingest { tree, first, last, leaves } => {
            let mut leaves = leaves.clone();
            for leaf in &mut leaves {
                match random.u8(..3) {
                    0 => leaf.pointer.unit = random.u64(..1 << 48),
                    1 => leaf.pointer.units = random.u16(..),
                    _ => leaf.pointer.checksum = random.u32(..),
                }
            }
            batch::ingest(out, *tree, first, last, &leaves);
        }
        Op::Link { tree, linked } => {
            let (mut blob, mut run) = (linked.blob, linked.run);
            let (mut first, mut last) = linked.range.unwrap_or_default();
            match random.u8(..6) {
                5 => (first, last) = (last, first),
                0 => blob.length = random.u64(..1 << 40),
                1 => run.index = random.u64(..1 << 40),
                2 => run.index_bytes = random.u32(..),
                3 => run.entries = random.u64(..1 << 40),
                _ => run.start = random.u64(..1 << 40),
            }
            batch::link(out, *tree, &blob, &run, (first, last));
        }
    }
}
