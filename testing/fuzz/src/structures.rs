//! Volumes whose structures were falsified with every checksum right: nodes of the B-tree, from the
//! superblock down, and manifests of runs, their indexes and blocks. An attacker with write access
//! to a volume's directory can make such volumes.

use std::collections::BTreeSet;

use fastrand::Rng;
use format::Pointer;
use format::catalog::RootRecord;
use format::node::{self, HEADER_BYTES, InteriorBody, Kind, LeafBody, LeafValue, UNIT_BYTES};
use format::space_map::{GROUP_BYTES, GROUP_UNITS, PAGE_BYTES};
use format::superblock::{Decoded, Superblock};
use testing::SimDevice;

use crate::decoders::put_sum;
use crate::mutate::mutate;
use crate::sealed_runs;

const NODES: &str = "btree/nodes";
const SUPERBLOCKS: [&str; 2] = ["btree/super-0", "btree/super-1"];

/// Falsifies structures of the engine in a volume, and seals them again.
pub(crate) fn falsify(device: &SimDevice, random: &mut Rng) {
    for _ in 0..1 << random.u32(..3) {
        if device.files().iter().any(|(path, _)| path == NODES) {
            falsify_node(device, random);
        } else if random.u8(..3) == 0 {
            falsify_manifest(device, random);
        } else {
            sealed_runs::falsify(device, random);
        }
    }
}

fn falsify_manifest(device: &SimDevice, random: &mut Rng) {
    let files = device.files();
    let newest = files.iter().rev().map(|(path, _)| path).find(|path| path.contains("manifest-"));
    let Some(newest) = newest else { return };
    let mut bytes = device.read_file(newest);
    let (head, body) = bytes.split_at(bytes.len().min(16));
    let (head, mut body) = (head.to_vec(), body.to_vec());
    mutate(&mut body, &[], random);
    bytes = [head, body].concat();
    put_sum(&mut bytes, 12, &[(16, usize::MAX)]);
    for path in [newest.clone(), newest.replace("manifest-", "copy-")] {
        device.truncate(&path, 0);
        device.overwrite(&path, 0, &bytes);
    }
}

fn offset(unit: u64) -> u64 {
    let (group, within) = (unit / GROUP_UNITS as u64, unit % GROUP_UNITS as u64);
    group
        .saturating_mul(GROUP_BYTES as u64)
        .saturating_add(2 * PAGE_BYTES as u64 + within * UNIT_BYTES as u64)
}

fn encoded(pointer: &Pointer) -> Vec<u8> {
    let mut out = Vec::new();
    pointer.encode(&mut out);
    out
}

/// A node that was read, its place, and what points to it first.
struct ReachedNode {
    pointer: Pointer,
    bytes: Vec<u8>,
    parent: Option<usize>,
}

/// All nodes that a superblock points to.
fn nodes(file: &[u8], superblock: &Superblock) -> Vec<ReachedNode> {
    let mut found: Vec<ReachedNode> = Vec::new();
    let mut met = BTreeSet::new();
    let mut next = vec![(superblock.directory, None), (superblock.catalog, None)];
    while let Some((pointer, parent)) = next.pop() {
        let start = usize::try_from(offset(pointer.unit)).unwrap_or(usize::MAX);
        let Some(rest) = file.get(start..) else { continue };
        let there = &rest[..rest.len().min(usize::from(pointer.units) * UNIT_BYTES)];
        let Ok((header, body)) = node::verify(there, pointer.unit, pointer.checksum) else {
            continue;
        };
        if !met.insert(pointer.unit) {
            continue;
        }
        let here = Some(found.len());
        let bytes = there[..HEADER_BYTES + body.len()].to_vec();
        found.push(ReachedNode { pointer, bytes, parent });
        match header.kind {
            Kind::Interior => {
                let Ok(mut interior) = InteriorBody::new(&header, body) else { continue };
                next.push((interior.first(), here));
                while let Ok(Some((_, child))) = interior.next_child() {
                    next.push((child, here));
                }
            }
            Kind::Leaf => {
                let Ok(mut leaf) = LeafBody::new(&header, body) else { continue };
                while let Ok(Some((_, value))) = leaf.next_entry() {
                    if let LeafValue::Inline(bytes) = value
                        && let Ok(record) = RootRecord::decode(bytes)
                    {
                        next.push((record.pointer, here));
                    }
                }
            }
            _ => {}
        }
    }
    found
}

fn falsify_node(device: &SimDevice, random: &mut Rng) {
    let decoded = |path: &&str| match Superblock::decode(&device.read_file(path)) {
        Ok(Decoded::Superblock(superblock)) => Some(superblock),
        _ => None,
    };
    let newest = SUPERBLOCKS.iter().filter_map(decoded).max_by_key(|found| found.generation);
    let Some(mut superblock) = newest else { return };
    let mut found = nodes(&device.read_file(NODES), &superblock);
    if found.is_empty() || random.u8(..8) == 0 {
        falsify_superblock(&mut superblock, random);
    } else {
        let at = random.usize(..found.len());
        let chosen = &mut found[at];
        falsify_body(&mut chosen.bytes, random);
        seal_up(device, &mut found, at, &mut superblock);
    }
    for path in SUPERBLOCKS {
        device.overwrite(path, 0, &superblock.encode());
    }
}

/// A unit that a pointer may name: near, far, and behind the end.
fn unit(random: &mut Rng) -> u64 {
    match random.u8(..5) {
        0 => random.u64(..GROUP_UNITS as u64),
        1 => random.u64(..3 * GROUP_UNITS as u64),
        2 => random.u64(..1 << 32),
        3 => random.u64(..1 << 48),
        _ => (1 << 48) - 1 - random.u64(..5),
    }
}

fn falsify_superblock(superblock: &mut Superblock, random: &mut Rng) {
    match random.u8(..6) {
        0 => superblock.groups = unit(random),
        1 => superblock.next_trash = random.u64(..),
        2 => superblock.directory.unit = unit(random),
        3 => superblock.catalog.unit = unit(random),
        4 => superblock.catalog_level = random.u8(..16),
        _ => superblock.lsn = random.u64(..),
    }
}

fn falsify_body(bytes: &mut Vec<u8>, random: &mut Rng) {
    let body = bytes.split_off(HEADER_BYTES);
    let length = body.len();
    let mut changed = body;
    if random.bool() && length > 12 {
        // Any number of 6 bytes, where a pointer may be.
        let at = random.usize(..length - 8);
        changed[at..at + 6].copy_from_slice(&unit(random).to_le_bytes()[..6]);
    } else {
        mutate(&mut changed, &[], random);
        changed.resize(length, 0);
    }
    if random.u8(..8) == 0 {
        let at = random.usize(6..HEADER_BYTES);
        bytes[at] = random.u8(..);
    }
    bytes.extend(changed);
}

/// Writes a node with its checksum, and all nodes that point to it, up to the superblock.
fn seal_up(device: &SimDevice, found: &mut [ReachedNode], at: usize, superblock: &mut Superblock) {
    let mut at = at;
    loop {
        let node = &mut found[at];
        let old = node.pointer;
        let checksum = node::seal(&mut node.bytes, old.unit);
        let now = Pointer { checksum, ..old };
        node.pointer = now;
        let units = usize::from(old.units);
        device.overwrite(NODES, offset(old.unit), &node.bytes);
        // Nodes of the catalog have two copies.
        let half = units / 2 * UNIT_BYTES;
        if units.is_multiple_of(2) && node.bytes.len() <= half {
            device.overwrite(NODES, offset(old.unit) + half as u64, &node.bytes);
        }
        let Some(parent) = node.parent else {
            if superblock.directory == old {
                superblock.directory = now;
            } else if superblock.catalog == old {
                superblock.catalog = now;
            }
            return;
        };
        let (was, is) = (encoded(&old), encoded(&now));
        let above = &mut found[parent].bytes;
        let place = above.windows(was.len()).position(|bytes| bytes == was);
        if let Some(place) = place {
            above[place..place + is.len()].copy_from_slice(&is);
        }
        at = parent;
    }
}
