//! The operations of one commit, as the log stores them (`docs/format/batch.md`).
//!
//! A batch is encoded once, by the code that builds it. The same bytes go to the log, are applied
//! to the trees, and are replayed after a crash.

use crate::run_manifest::{BlobEntry, RunEntry};
use crate::{Malformed, Pointer, Reader, Writer};

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 512;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Most lanes of one merge.
pub const LANES_MAX: usize = 16;
/// Last byte of a value that a lane may touch.
pub const LANE_OFFSET_MAX: usize = 4096;
/// Most prefixes of one partial clone.
pub const PREFIXES_MAX: usize = 4096;
/// Greatest number and length of a blob that is linked, and most entries of its run. Sums of many
/// of them are kept in 64 bits.
const LINKED_MAX: u64 = 1 << 48;

// DO NOT CHANGE THESE VALUES: they are in the log.
const PUT: u8 = 1;
const DELETE: u8 = 2;
const DELETE_RANGE: u8 = 3;
const MERGE: u8 = 4;
const CREATE_TREE: u8 = 5;
const CLONE_TREE: u8 = 6;
const DROP_TREE: u8 = 7;
const INGEST: u8 = 8;
/// Without its range, as earlier programs wrote it.
const LINK_WITHOUT_RANGE: u8 = 9;
const LINK: u8 = 10;

const MERGE_MAX: u8 = 1;
const MERGE_ADD: u8 = 2;

const STRUCTURE: &str = "batch";

/// How a lane of a merge changes the eight bytes at its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeKind {
    /// The greater of the two, as signed numbers.
    Max,
    /// The wrapping sum.
    Add,
}

/// One eight-byte little-endian number inside a value, and what a merge does to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Offset in the value, in bytes.
    pub offset: u16,
    /// How the operand is merged.
    pub kind: MergeKind,
    /// The operand.
    pub operand: i64,
}

/// One operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op<'a> {
    /// Sets a key's value.
    Put {
        /// The tree's number.
        tree: u64,
        /// The key.
        key: &'a [u8],
        /// The new value.
        value: &'a [u8],
    },
    /// Removes a key, which may be absent.
    Delete {
        /// The tree's number.
        tree: u64,
        /// The key.
        key: &'a [u8],
    },
    /// Removes all keys from `from` up to but excluding `to`.
    DeleteRange {
        /// The tree's number.
        tree: u64,
        /// First key removed.
        from: &'a [u8],
        /// First key kept.
        to: &'a [u8],
    },
    /// Changes numbers inside a value. An absent value, or one that is too short, counts as
    /// zeros up to the end of the last lane.
    Merge {
        /// The tree's number.
        tree: u64,
        /// The key.
        key: &'a [u8],
        /// The changes, at most [`LANES_MAX`].
        lanes: LaneList<'a>,
    },
    /// Creates an empty tree under a number that was never used.
    CreateTree {
        /// The tree's number.
        tree: u64,
    },
    /// Creates `target` with all keys of `source`, or, if there are `prefixes`, only the keys that
    /// start with one of them.
    CloneTree {
        /// Number of the tree that is cloned.
        source: u64,
        /// Number of the new tree.
        target: u64,
        /// Prefixes of a partial clone, ascending, none a prefix of another.
        prefixes: Vec<&'a [u8]>,
    },
    /// Removes a tree.
    DropTree {
        /// The tree's number.
        tree: u64,
    },
    /// Puts leaves that were written before into a range of a tree that holds no key. Written by
    /// the engine that owns the leaves, and alone in its record.
    Ingest {
        /// The tree's number.
        tree: u64,
        /// The first key of the first leaf.
        first: &'a [u8],
        /// The last key of the last leaf.
        last: &'a [u8],
        /// The leaves, in order.
        leaves: Vec<IngestedLeaf<'a>>,
    },
    /// Puts a run that was written before on top of the content of a tree; no key of the tree is in
    /// the run's range. Written by the log-structured engine, and alone in its record.
    Link {
        /// The tree's number.
        tree: u64,
        /// The run. In a box: the others are far more frequent, and smaller.
        linked: Box<LinkedRun<'a>>,
    },
}

/// A run that was written before the record that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedRun<'a> {
    /// The blob of the run.
    pub blob: BlobEntry,
    /// The run in it. It has no number before it is linked: 0.
    pub run: RunEntry,
    /// Its first and its last key. Records of earlier programs do not have them.
    pub range: Option<(&'a [u8], &'a [u8])>,
}

/// A leaf that was written before the record that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngestedLeaf<'a> {
    /// Above all keys of the previous leaf, and not above the first of this one.
    pub from: &'a [u8],
    /// Where it is stored.
    pub pointer: Pointer,
    /// Where its long values are stored.
    pub overflows: Vec<Pointer>,
}

/// The lanes of one merge, held without allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lanes {
    lanes: [Lane; LANES_MAX],
    count: usize,
}

impl Lanes {
    /// The lanes; `None` when there are more than [`LANES_MAX`].
    pub fn new(lanes: &[Lane]) -> Option<Lanes> {
        let empty = Lane { offset: 0, kind: MergeKind::Add, operand: 0 };
        let mut all = [empty; LANES_MAX];
        all.get_mut(..lanes.len())?.copy_from_slice(lanes);
        Some(Lanes { lanes: all, count: lanes.len() })
    }

    /// The lanes as a slice.
    pub fn as_slice(&self) -> &[Lane] {
        self.lanes.get(..self.count).unwrap_or_default()
    }

    /// Applies the lanes to a value, growing it with zeros where it is too short.
    pub fn apply(&self, value: &mut Vec<u8>) {
        for lane in self.as_slice() {
            lane.grow_and_apply(value);
        }
    }
}

impl Lane {
    /// Bytes of an encoded lane.
    const BYTES: usize = 11;

    /// First byte behind the lane.
    pub fn end(&self) -> usize {
        usize::from(self.offset).saturating_add(8)
    }

    /// Applies the lane to a value that is long enough; does nothing to a shorter one.
    #[inline]
    pub fn apply(&self, value: &mut [u8]) {
        if let Some(slot) = value.get_mut(usize::from(self.offset)..self.end()) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(slot);
            let old = i64::from_le_bytes(bytes);
            let new = match self.kind {
                MergeKind::Max => old.max(self.operand),
                MergeKind::Add => old.wrapping_add(self.operand),
            };
            slot.copy_from_slice(&new.to_le_bytes());
        }
    }

    fn grow_and_apply(&self, value: &mut Vec<u8>) {
        if value.len() < self.end() {
            value.resize(self.end(), 0);
        }
        self.apply(value);
    }

    fn decode(bytes: [u8; Lane::BYTES]) -> Option<Lane> {
        let [a, b, kind, operand @ ..] = bytes;
        let kind = match kind {
            MERGE_MAX => MergeKind::Max,
            MERGE_ADD => MergeKind::Add,
            _ => return None,
        };
        let offset = u16::from_le_bytes([a, b]);
        Some(Lane { offset, kind, operand: i64::from_le_bytes(operand) })
    }
}

/// The lanes of an encoded merge, checked and not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneList<'a> {
    bytes: &'a [u8],
}

impl<'a> LaneList<'a> {
    /// The lanes, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Lane> + use<'a> {
        let (chunks, _) = self.bytes.as_chunks::<{ Lane::BYTES }>();
        chunks.iter().filter_map(|chunk| Lane::decode(*chunk))
    }

    /// Applies the lanes to a value, growing it with zeros where it is too short.
    pub fn apply(&self, value: &mut Vec<u8>) {
        for lane in self.iter() {
            lane.grow_and_apply(value);
        }
    }
}

/// Appends a put.
#[inline]
pub fn put(out: &mut Vec<u8>, tree: u64, key: &[u8], value: &[u8]) {
    out.reserve(key.len().saturating_add(value.len()).saturating_add(24));
    out.put_u8(PUT);
    out.put_varint(tree);
    out.put_bytes(key);
    out.put_bytes(value);
}

/// Appends a delete.
pub fn delete(out: &mut Vec<u8>, tree: u64, key: &[u8]) {
    out.put_u8(DELETE);
    out.put_varint(tree);
    out.put_bytes(key);
}

/// Appends a range deletion.
pub fn delete_range(out: &mut Vec<u8>, tree: u64, from: &[u8], to: &[u8]) {
    out.put_u8(DELETE_RANGE);
    out.put_varint(tree);
    out.put_bytes(from);
    out.put_bytes(to);
}

/// Appends a merge.
pub fn merge(out: &mut Vec<u8>, tree: u64, key: &[u8], lanes: &[Lane]) {
    out.put_u8(MERGE);
    out.put_varint(tree);
    out.put_bytes(key);
    out.put_varint(u64::try_from(lanes.len()).unwrap_or(0));
    for lane in lanes {
        out.put_u16(lane.offset);
        out.put_u8(match lane.kind {
            MergeKind::Max => MERGE_MAX,
            MergeKind::Add => MERGE_ADD,
        });
        out.put_i64(lane.operand);
    }
}

/// Appends the creation of a tree.
pub fn create_tree(out: &mut Vec<u8>, tree: u64) {
    out.put_u8(CREATE_TREE);
    out.put_varint(tree);
}

/// Appends a clone.
pub fn clone_tree(out: &mut Vec<u8>, source: u64, target: u64, prefixes: &[&[u8]]) {
    out.put_u8(CLONE_TREE);
    out.put_varint(source);
    out.put_varint(target);
    out.put_varint(u64::try_from(prefixes.len()).unwrap_or(0));
    for prefix in prefixes {
        out.put_bytes(prefix);
    }
}

/// Appends the removal of a tree.
pub fn drop_tree(out: &mut Vec<u8>, tree: u64) {
    out.put_u8(DROP_TREE);
    out.put_varint(tree);
}

/// Appends leaves that were written.
pub fn ingest(
    out: &mut Vec<u8>,
    tree: u64,
    first: &[u8],
    last: &[u8],
    leaves: &[IngestedLeaf<'_>],
) {
    out.put_u8(INGEST);
    out.put_varint(tree);
    out.put_bytes(first);
    out.put_bytes(last);
    out.put_varint(u64::try_from(leaves.len()).unwrap_or(0));
    for leaf in leaves {
        out.put_bytes(leaf.from);
        leaf.pointer.encode(out);
        out.put_varint(u64::try_from(leaf.overflows.len()).unwrap_or(0));
        for pointer in &leaf.overflows {
            pointer.encode(out);
        }
    }
}

/// Appends a run that was written, with its first and its last key.
pub fn link(
    out: &mut Vec<u8>,
    tree: u64,
    blob: &BlobEntry,
    run: &RunEntry,
    (first, last): (&[u8], &[u8]),
) {
    out.put_u8(LINK);
    out.put_varint(tree);
    out.put_varint(blob.number);
    out.put_varint(blob.length);
    out.put_varint(run.start);
    out.put_varint(run.index);
    out.put_u32(run.index_bytes);
    out.put_u32(run.checksum);
    out.put_varint(run.entries);
    out.put_bytes(first);
    out.put_bytes(last);
}

/// The error for an operation that only the other engine writes into its log.
pub fn foreign() -> Malformed {
    Reader::new(STRUCTURE, &[]).malformed("an operation of this engine", "one of the other's")
}

/// The operations of an encoded batch, in order. After an error there are no more.
#[derive(Debug, Clone)]
pub struct Ops<'a> {
    reader: Reader<'a>,
    failed: bool,
}

impl<'a> Ops<'a> {
    /// Iterates over an encoded batch.
    pub fn new(bytes: &'a [u8]) -> Ops<'a> {
        Ops { reader: Reader::new(STRUCTURE, bytes), failed: false }
    }

    #[inline]
    fn key(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.reader.length(KEY_BYTES_MAX)?;
        self.reader.take(length)
    }

    #[inline]
    fn lanes(&mut self) -> Result<LaneList<'a>, Malformed> {
        let count = self.reader.length(LANES_MAX)?;
        let bytes = self.reader.take(count.saturating_mul(Lane::BYTES))?;
        let (chunks, _) = bytes.as_chunks::<{ Lane::BYTES }>();
        for chunk in chunks {
            match Lane::decode(*chunk) {
                Some(lane) if usize::from(lane.offset) <= LANE_OFFSET_MAX => {}
                lane => return Err(self.no_lane(lane)),
            }
        }
        Ok(LaneList { bytes })
    }

    #[cold]
    fn no_lane(&self, found: Option<Lane>) -> Malformed {
        self.reader.malformed("a lane", format!("{found:?}"))
    }

    fn ingest(&mut self, tree: u64) -> Result<Op<'a>, Malformed> {
        let (first, last) = (self.key()?, self.key()?);
        // Each leaf, and each long value, takes more than one byte of the record.
        let count = self.reader.length(self.reader.remaining())?;
        let mut leaves = Vec::new();
        for _ in 0..count {
            let from = self.key()?;
            let pointer = Pointer::decode(&mut self.reader)?;
            let far = self.reader.length(self.reader.remaining())?;
            let mut overflows = Vec::new();
            for _ in 0..far {
                overflows.push(Pointer::decode(&mut self.reader)?);
            }
            leaves.push(IngestedLeaf { from, pointer, overflows });
        }
        Ok(Op::Ingest { tree, first, last, leaves })
    }

    fn link(&mut self, tree: u64, has_range: bool) -> Result<Op<'a>, Malformed> {
        let blob = BlobEntry { number: self.reader.varint()?, length: self.reader.varint()? };
        let run = RunEntry {
            number: 0,
            blob: blob.number,
            start: self.reader.varint()?,
            index: self.reader.varint()?,
            index_bytes: self.reader.u32()?,
            ranges: 0,
            checksum: self.reader.u32()?,
            entries: self.reader.varint()?,
            tombstones: 0,
        };
        let end = run.index.saturating_add(u64::from(run.index_bytes));
        let most = run.entries.max(blob.number).max(blob.length);
        if run.start > run.index || end > blob.length || most > LINKED_MAX {
            return Err(self.reader.malformed("a run within its blob", format!("{run:?}")));
        }
        let range = if has_range { Some((self.key()?, self.key()?)) } else { None };
        if let Some((first, last)) = range.filter(|(first, last)| first > last) {
            let found = format!("{first:02x?} before {last:02x?}");
            return Err(self.reader.malformed("a first key and a last one", found));
        }
        Ok(Op::Link { tree, linked: Box::new(LinkedRun { blob, run, range }) })
    }

    /// An operation on a whole tree. A function of its own: the others are far more frequent.
    #[inline(never)]
    fn op_on_tree(&mut self, kind: u8, tree: u64) -> Result<Op<'a>, Malformed> {
        Ok(match kind {
            CREATE_TREE => Op::CreateTree { tree },
            CLONE_TREE => {
                let target = self.reader.varint()?;
                let count = self.reader.length(PREFIXES_MAX)?;
                let mut prefixes = Vec::new();
                for _ in 0..count {
                    prefixes.push(self.key()?);
                }
                Op::CloneTree { source: tree, target, prefixes }
            }
            DROP_TREE => Op::DropTree { tree },
            INGEST => self.ingest(tree)?,
            LINK => self.link(tree, true)?,
            LINK_WITHOUT_RANGE => self.link(tree, false)?,
            other => return Err(self.reader.malformed("an operation", other.to_string())),
        })
    }

    #[inline]
    fn op(&mut self) -> Result<Op<'a>, Malformed> {
        let kind = self.reader.u8()?;
        let tree = self.reader.varint()?;
        Ok(match kind {
            PUT => {
                let key = self.key()?;
                let length = self.reader.length(VALUE_BYTES_MAX)?;
                Op::Put { tree, key, value: self.reader.take(length)? }
            }
            DELETE => Op::Delete { tree, key: self.key()? },
            DELETE_RANGE => Op::DeleteRange { tree, from: self.key()?, to: self.key()? },
            MERGE => Op::Merge { tree, key: self.key()?, lanes: self.lanes()? },
            kind => return self.op_on_tree(kind, tree),
        })
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = Result<Op<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.reader.remaining() == 0 {
            return None;
        }
        let op = self.op();
        self.failed = op.is_err();
        Some(op)
    }
}

#[cfg(test)]
mod tests {
    use super::{BlobEntry, LINK, LINK_WITHOUT_RANGE, LINKED_MAX, Op, Ops, RunEntry, link};

    /// Earlier programs wrote no range, and a range that ends before it begins is malformed.
    #[test]
    fn a_link_has_its_range_since_programs_write_it() {
        let (blob, mut record) = (BlobEntry { number: 7, length: 5000 }, Vec::new());
        let run = RunEntry {
            number: 0,
            blob: 7,
            start: 64,
            index: 4000,
            index_bytes: 100,
            ranges: 0,
            checksum: 1,
            entries: 9,
            tombstones: 0,
        };
        link(&mut record, 32, &blob, &run, (b"ab", b"b"));
        let range = |record: &[u8]| match Ops::new(record).next() {
            Some(Ok(Op::Link { linked, .. })) => {
                Ok(linked.range.map(|(first, last)| (first.to_vec(), last.to_vec())))
            }
            other => Err(format!("{other:?}")),
        };
        assert_eq!(range(&record), Ok(Some((b"ab".to_vec(), b"b".to_vec()))));
        let mut earlier = record[..record.len() - 5].to_vec();
        assert_eq!(std::mem::replace(&mut earlier[0], LINK_WITHOUT_RANGE), LINK);
        assert_eq!(range(&earlier), Ok(None));
        record.clear();
        link(&mut record, 32, &blob, &run, (b"b", b"ab"));
        assert!(range(&record).is_err());
    }

    /// The sums that a replay computes do not overflow.
    #[test]
    fn a_link_to_an_impossible_run_is_malformed() {
        let links = |blob: BlobEntry, start: u64, index: u64, entries: u64| {
            let (number, ranges, checksum, tombstones) = (0, 0, 1, 0);
            let (blob_number, index_bytes) = (blob.number, 100);
            let run = RunEntry {
                number,
                blob: blob_number,
                start,
                index,
                index_bytes,
                ranges,
                checksum,
                entries,
                tombstones,
            };
            let mut record = Vec::new();
            link(&mut record, 32, &blob, &run, (b"a", b"b"));
            match Ops::new(&record).next() {
                Some(Ok(Op::Link { linked, .. })) => {
                    assert_eq!((linked.blob, linked.run), (blob, run));
                    true
                }
                found => {
                    assert!(matches!(found, Some(Err(_))), "{found:?}");
                    false
                }
            }
        };
        let blob = |number, length| BlobEntry { number, length };
        let most = LINKED_MAX;
        assert!(links(blob(most, most), 64, most - 100, most));
        assert!(!links(blob(1, 5000), 64, 4901, 1), "the index ends behind the blob");
        assert!(!links(blob(1, 5000), 65, 64, 1), "the run ends before it begins");
        assert!(!links(blob(most + 1, 5000), 64, 4000, 1));
        assert!(!links(blob(1, most + 1), 64, 4000, 1));
        assert!(!links(blob(1, 5000), 64, 4000, most + 1));
        assert!(!links(blob(1, u64::MAX), 0, u64::MAX - 10, 1));
    }
}
