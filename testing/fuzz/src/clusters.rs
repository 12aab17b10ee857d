//! Whole clusters, as searches open them: damaged bytes with correct checksums.

use std::ops::ControlFlow;
use std::sync::Arc;

use fastrand::Rng;
use format::cluster::{COLUMN_BYTES, HEADER_BYTES, Head};
use format::inode_record::FileKind;
use format::xattr_record::XattrRecord;
use inode::NameHash;
use search::cluster::{Cluster, ClusterBuilder, ClusterOptions, Fields, Like};
use search::{Attribute, Condition, Row, Searchable};

use crate::random::{bytes, name, number, number32, signed};
use crate::target::{Category, Target, seen};

pub(crate) const TARGETS: &[Target] = &[Target {
    name: "cluster",
    part: Category::Decoders,
    covers: &[
        "cluster::decode",
        "cluster_numbers::decode",
        "cluster_names::decode",
        "cluster_values::decode",
    ],
    make,
    repair,
    run,
}];

fn hash() -> NameHash {
    NameHash::with_bits([9; 16], NameHash::BITS)
}

/// Attributes that rows carry; no row has the last one.
const CARRIED: [&[u8]; 3] = [b"user.a", b"user.b", b"user.c"];

fn make(random: &mut Rng) -> Vec<u8> {
    let carried = Searchable::new(CARRIED.map(<[u8]>::to_vec).into());
    let mut builder = ClusterBuilder::new(ClusterOptions::new(hash())).carrying(&carried);
    let few: Vec<u64> = (0..4).map(|_| number(random)).collect();
    for _ in 0..random.usize(1..120) {
        let mut xattrs = XattrRecord::default();
        if random.u8(..4) == 0 {
            xattrs.set(CARRIED[random.usize(..2)], &bytes(random, 30));
        }
        let (name, xattrs) = (name(random, 20), xattrs.encode());
        let some = few[random.usize(..few.len())];
        let row = Row {
            directory: some,
            cookie: hash().hash(&name) << 8,
            ino: number(random),
            name: &name,
            kind: FileKind::decode(random.u8(1..=7)).expect("invariant: kinds are 1 to 7"),
            mode: random.u32(..=0o7777),
            uid: some as u32,
            gid: number32(random),
            nlink: number32(random),
            rdev: 0,
            size: number(random) >> 1,
            allocated: number(random),
            entries: number(random),
            atime: signed(random),
            mtime: signed(random),
            ctime: signed(random),
            btime: signed(random),
            subvolume: random.u64(..2),
            xattrs: &xattrs,
        };
        builder.push(&row);
    }
    builder.finish().bytes
}

/// The checksums of the head and of all columns that it names.
fn repair(bytes: &mut [u8]) {
    let Some(length) = bytes.get(16..20).and_then(|slot| slot.try_into().ok()) else { return };
    let length = (u32::from_le_bytes(length) as usize).clamp(HEADER_BYTES, bytes.len().max(64));
    sum_head(bytes, length);
    let head = bytes.get(..length).unwrap_or_default();
    let Ok(head) = Head::decode(head) else { return };
    let attributes = head.attributes.iter().flat_map(|one| [one.ranks, one.values]);
    let all = head.columns.iter().map(|(_, stored)| *stored).chain(attributes);
    let extents: Vec<_> = all.map(|stored| stored.extent()).collect();
    for (at, extent) in extents.into_iter().enumerate() {
        let Some(extent) = extent else { continue };
        let from = usize::try_from(extent.offset).unwrap_or(usize::MAX).min(bytes.len());
        let end = from.saturating_add(extent.length as usize).min(bytes.len());
        let sum = crc32c::crc32c(&bytes[from..end]);
        let slot = HEADER_BYTES + at * COLUMN_BYTES + 4;
        if let Some(slot) = bytes.get_mut(slot..slot + 4) {
            slot.copy_from_slice(&sum.to_le_bytes());
        }
    }
    sum_head(bytes, length);
}

fn sum_head(bytes: &mut [u8], length: usize) {
    let sum = crc32c::crc32c(bytes.get(..12).unwrap_or_default());
    let behind = bytes.get(16..length.min(bytes.len())).unwrap_or_default();
    let sum = crc32c::crc32c_append(sum, behind);
    if let Some(slot) = bytes.get_mut(12..16) {
        slot.copy_from_slice(&sum.to_le_bytes());
    }
}

fn run(bytes: &[u8]) -> bool {
    // More rows than bytes are possible if every column is a constant; they take long.
    let Ok(cluster) = Cluster::open(Arc::new(bytes.to_vec()), hash()) else { return false };
    let whole = cluster.verify().is_ok();
    let conditions = [
        vec![],
        vec![Condition::Within(Attribute::Size, 0, 1 << 20)],
        vec![Condition::OneOf(Attribute::Uid, vec![0, 7])],
        vec![Condition::NameContains(b"ab".to_vec())],
        vec![Condition::NameEnds(b"z".to_vec()), Condition::Within(Attribute::Mtime, 0, 1 << 60)],
        vec![Condition::Xattr(b"user.a".to_vec(), None)],
        vec![Condition::Xattr(b"user.b".to_vec(), Some(b"a".to_vec()))],
        vec![Condition::Xattr(b"user.c".to_vec(), None)],
    ];
    for narrow in &conditions {
        let mut left = 50;
        seen(cluster.search(narrow, &mut |row| {
            assert!(row < cluster.len(), "row {row} of {}", cluster.len());
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }));
    }
    if let Ok(rows) = cluster.rows(Fields::ATTRIBUTES) {
        for row in (0..rows.len()).take(64) {
            let like = Like::new(&rows.get(row));
            if row == 0 {
                seen(cluster.nearest(&like, 3, 1.0));
            }
        }
    }
    cluster.release();
    whole
}
