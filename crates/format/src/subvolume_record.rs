//! A subvolume: the volume's root, a snapshot, a clone (`docs/format/subvolume-record.md`), and the
//! counters of its content (`docs/format/subvolume-record.md`).

use crate::key::{FIRST_TREE, INO_MAX, can_be_subvolume};
use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// Layout of a subvolume's record.
pub const LAYOUT: &[Field] = &[
    Field::fixed("tree", "u64 LE", 8),
    Field::fixed("root", "u64 LE", 8),
    Field::fixed("lineage", "u64 LE", 8),
    Field::fixed("parent_subvolume", "u64 LE", 8),
    Field::fixed("parent_directory", "u64 LE", 8),
    Field::fixed("parent_cookie", "u64 LE", 8),
    Field::fixed("source_subvolume", "u64 LE", 8),
    Field::fixed("source_directory", "u64 LE", 8),
    Field::fixed("created", "i64 LE", 8),
    Field::fixed("last_clone_epoch", "u64 LE", 8),
    Field::fixed("first_own_ino", "u64 LE", 8),
    Field::fixed("flags", "u32 LE", 4),
    Field::variable("name_length", "varint"),
    Field::variable("name", "bytes"),
    Field::variable("base", "u64 LE"),
    Field::variable("maker", "u32 LE"),
];

/// Layout of the counters of a subvolume's content.
pub const USAGE_LAYOUT: &[Field] = &[
    Field::fixed("files", "i64 LE", 8),
    Field::fixed("bytes", "i64 LE", 8),
    Field::fixed("counted", "i64 LE", 8),
];
const _: () = assert!(size_of(USAGE_LAYOUT) == USAGE_BYTES);

/// Bytes of a complete usage record.
pub const USAGE_BYTES: usize = 24;

/// Offset of the number of inodes in the usage record, for merges.
pub const USAGE_FILES_AT: u16 = 0;
/// Offset of the bytes of contents in the usage record, for merges.
pub const USAGE_BYTES_AT: u16 = 8;
/// Offset of the mark that the initial content of a copy is in the counts, for merges.
pub const USAGE_COUNTED_AT: u16 = 16;

/// Longest name.
pub const NAME_BYTES_MAX: usize = 255;

// DO NOT CHANGE THESE VALUES: they are on disk.
const READ_ONLY: u32 = 1;
const SNAPSHOT: u32 = 2;
const PRUNED: u32 = 4;
const DETACHED: u32 = 8;
const INDEX: u32 = 16;
const HAS_BASE: u32 = 32;
const HAS_MAKER: u32 = 64;
const INHERITS: u32 = 128;
const KNOWN: u32 = 255;

/// A subvolume.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "flags on disk, each with a meaning of its own")]
pub struct SubvolumeRecord {
    /// Its tree.
    pub tree: u64,
    /// Inode of its root directory.
    pub root: u64,
    /// The lineage whose snapshots it shares: kept by a rollback, new for a clone.
    pub lineage: u64,
    /// Where it is mounted: subvolume, directory and cookie of the entry; 0 for the volume's root
    /// and for snapshots.
    pub parent: (u64, u64, u64),
    /// Its source: subvolume and directory; 0 if it was created empty.
    pub source: (u64, u64),
    /// When it was made, in nanoseconds since 1970.
    pub created: i64,
    /// Epoch of the last snapshot or clone that was taken from it, or that created it. Older
    /// extents may be shared.
    pub last_clone_epoch: u64,
    /// Inodes from this number on were created in it.
    pub first_own_ino: u64,
    /// Whether nothing in it may change.
    pub read_only: bool,
    /// Whether it is a snapshot: named in `.snapshots`, not mounted anywhere.
    pub snapshot: bool,
    /// Whether its tree holds only what is reachable from its root.
    pub pruned: bool,
    /// Whether it was removed, and waits to be reclaimed.
    pub detached: bool,
    /// Whether it is an index of another file system: scans change it, and nothing else.
    pub index: bool,
    /// The snapshot's name, or the name it was made under.
    pub name: Vec<u8>,
    /// Whether it inherits the mounts of its source: there is a record of that.
    pub inherits: bool,
    /// Tree of the base that describes it in the index; 0: none.
    pub base: u64,
    /// The user who created it and whose share it counts to; 0: the superuser, or unknown.
    pub maker: u32,
}

impl SubvolumeRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        for number in [
            self.tree,
            self.root,
            self.lineage,
            self.parent.0,
            self.parent.1,
            self.parent.2,
            self.source.0,
            self.source.1,
        ] {
            out.put_u64(number);
        }
        out.put_i64(self.created);
        out.put_u64(self.last_clone_epoch);
        out.put_u64(self.first_own_ino);
        let mut flags = 0;
        for (on, flag) in [
            (self.read_only, READ_ONLY),
            (self.snapshot, SNAPSHOT),
            (self.pruned, PRUNED),
            (self.detached, DETACHED),
            (self.index, INDEX),
            (self.base != 0, HAS_BASE),
            (self.maker != 0, HAS_MAKER),
            (self.inherits, INHERITS),
        ] {
            if on {
                flags |= flag;
            }
        }
        out.put_u32(flags);
        out.put_bytes(&self.name);
        if self.base != 0 {
            out.put_u64(self.base);
        }
        if self.maker != 0 {
            out.put_u32(self.maker);
        }
        out
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<SubvolumeRecord, Malformed> {
        let mut reader = Reader::new("subvolume record", bytes);
        let tree = reader.u64()?;
        let root = reader.u64()?;
        let lineage = reader.u64()?;
        let parent = (reader.u64()?, reader.u64()?, reader.u64()?);
        let source = (reader.u64()?, reader.u64()?);
        let created = reader.i64()?;
        let last_clone_epoch = reader.u64()?;
        let first_own_ino = reader.u64()?;
        let flags = reader.u32()?;
        if flags & !KNOWN != 0 {
            return Err(reader.malformed("known flags", format!("{flags:#x}")));
        }
        let inodes = root.max(parent.1).max(source.1);
        let subvolumes = can_be_subvolume(parent.0) && can_be_subvolume(source.0);
        if tree < FIRST_TREE || inodes > INO_MAX || !subvolumes {
            let found = format!("tree {tree}, root {root}, in {parent:?}, of {source:?}");
            return Err(reader.malformed("numbers within bounds", found));
        }
        let length = reader.length(NAME_BYTES_MAX)?;
        let name = reader.take(length)?.to_vec();
        let base = if flags & HAS_BASE == 0 { 0 } else { reader.u64()? };
        let maker = if flags & HAS_MAKER == 0 { 0 } else { reader.u32()? };
        reader.end()?;
        Ok(SubvolumeRecord {
            tree,
            root,
            lineage,
            parent,
            source,
            created,
            last_clone_epoch,
            first_own_ino,
            read_only: flags & READ_ONLY != 0,
            snapshot: flags & SNAPSHOT != 0,
            pruned: flags & PRUNED != 0,
            detached: flags & DETACHED != 0,
            index: flags & INDEX != 0,
            inherits: flags & INHERITS != 0,
            name,
            base,
            maker,
        })
    }
}

/// The content of a subvolume. Operations update it by merges. The initial content of a copy of a
/// directory is not known when the copy is made in O(1). A background step counts it and adds it,
/// once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageRecord {
    /// Inodes in it; while not `counted`, those created in it minus those removed from it.
    pub files: i64,
    /// Bytes of contents, likewise.
    pub bytes: i64,
    /// Whether its initial content is in the counts.
    pub counted: bool,
}

impl UsageRecord {
    /// Reads a record. It is short if no merge has touched all of it.
    pub fn decode(bytes: &[u8]) -> Result<UsageRecord, Malformed> {
        let mut reader = Reader::new("usage record", bytes);
        let mut number = || if reader.remaining() == 0 { Ok(0) } else { reader.i64() };
        Ok(UsageRecord { files: number()?, bytes: number()?, counted: number()? != 0 })
    }

    /// The complete record.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(USAGE_BYTES);
        out.put_i64(self.files);
        out.put_i64(self.bytes);
        out.put_i64(i64::from(self.counted));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::{SubvolumeRecord, UsageRecord};

    #[test]
    fn a_record_round_trips() {
        let mut record = SubvolumeRecord {
            tree: 33,
            root: 2,
            lineage: 1,
            parent: (1, 2, 3),
            source: (4, 5),
            created: -6,
            last_clone_epoch: 7,
            first_own_ino: 8,
            read_only: true,
            snapshot: true,
            pruned: false,
            detached: false,
            index: true,
            inherits: true,
            name: b"monday".to_vec(),
            base: 0,
            maker: 0,
        };
        for (base, maker) in [(0, 0), (50, 0), (0, 7), (50, 7)] {
            (record.base, record.maker) = (base, maker);
            let bytes = record.encode();
            assert_eq!(SubvolumeRecord::decode(&bytes).as_ref(), Ok(&record));
            for length in 0..bytes.len() {
                assert!(SubvolumeRecord::decode(&bytes[..length]).is_err());
            }
        }
    }

    #[test]
    fn a_usage_record_may_be_short() {
        let files = UsageRecord { files: 3, bytes: 0, counted: false };
        assert_eq!(UsageRecord::decode(&3_i64.to_le_bytes()), Ok(files));
        assert_eq!(UsageRecord::decode(&[]), Ok(UsageRecord::default()));
        assert!(UsageRecord::decode(&[1, 2, 3]).is_err());
    }
}
