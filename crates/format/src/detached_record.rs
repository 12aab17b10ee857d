//! A record of an unreachable object that waits to be reclaimed (`docs/format/detached-record.md`).

use crate::key::{INO_MAX, can_be_subvolume};
use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// Layout of the record.
pub const LAYOUT: &[Field] = &[
    Field::fixed("kind", "u8", 1),
    Field::fixed("flags", "u8", 1),
    Field::fixed("number", "u64 LE", 8),
    Field::fixed("directory", "u64 LE", 8),
];
/// Layout of the part that follows in the record of inodes.
pub const INODES_LAYOUT: &[Field] = &[Field::fixed("end", "u64 LE", 8)];
/// Bytes of the record, without that part.
pub const BYTES: usize = 18;
const _: () = assert!(size_of(LAYOUT) == BYTES);

// DO NOT CHANGE THESE VALUES: they are on disk.
const DIRECTORY: u8 = 1;
const SUBVOLUME: u8 = 2;
const TREE: u8 = 3;
const INODES: u8 = 4;
const KEPT_WHILE_HELD: u8 = 1;

/// The object that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetachedRecord {
    /// A directory with everything below it.
    Directory {
        /// Its subvolume.
        subvolume: u64,
        /// Its inode.
        directory: u64,
        /// Whether it stays unchanged while it is held open: it was rolled back, not removed.
        kept_while_held: bool,
    },
    /// A whole subvolume. It stays while one of its inodes is held open.
    Subvolume {
        /// Its number.
        subvolume: u64,
    },
    /// A tree that no subvolume uses: a pruned subvolume's old one, or an unfinished new one.
    Tree {
        /// Its number.
        tree: u64,
    },
    /// Inodes of these numbers, which no name reaches: an import that was not completed.
    Inodes {
        /// Their subvolume.
        subvolume: u64,
        /// The first number.
        first: u64,
        /// The number behind the last.
        end: u64,
    },
}

impl DetachedRecord {
    /// The record's bytes.
    pub fn encode(self) -> Vec<u8> {
        let (kind, flags, number, directory) = match self {
            DetachedRecord::Directory { subvolume, directory, kept_while_held } => {
                let flags = if kept_while_held { KEPT_WHILE_HELD } else { 0 };
                (DIRECTORY, flags, subvolume, directory)
            }
            DetachedRecord::Subvolume { subvolume } => (SUBVOLUME, 0, subvolume, 0),
            DetachedRecord::Tree { tree } => (TREE, 0, tree, 0),
            DetachedRecord::Inodes { subvolume, first, .. } => (INODES, 0, subvolume, first),
        };
        let mut out = Vec::with_capacity(BYTES);
        out.put_u8(kind);
        out.put_u8(flags);
        out.put_u64(number);
        out.put_u64(directory);
        if let DetachedRecord::Inodes { end, .. } = self {
            out.put_u64(end);
        }
        out
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<DetachedRecord, Malformed> {
        let mut reader = Reader::new("detached record", bytes);
        let kind = reader.u8()?;
        let flags = reader.u8()?;
        let number = reader.u64()?;
        let directory = reader.u64()?;
        let record = match (kind, flags) {
            (DIRECTORY, 0 | KEPT_WHILE_HELD) => DetachedRecord::Directory {
                subvolume: number,
                directory,
                kept_while_held: flags == KEPT_WHILE_HELD,
            },
            (SUBVOLUME, 0) => DetachedRecord::Subvolume { subvolume: number },
            (TREE, 0) => DetachedRecord::Tree { tree: number },
            (INODES, 0) => {
                let (first, end) = (directory, reader.u64()?);
                DetachedRecord::Inodes { subvolume: number, first, end }
            }
            _ => {
                return Err(
                    reader.malformed("a known kind and flags", format!("{kind}, {flags:#x}"))
                );
            }
        };
        reader.end()?;
        let is_tree = matches!(record, DetachedRecord::Tree { .. });
        let beyond = match record {
            DetachedRecord::Inodes { first, end, .. } => first > end || end > INO_MAX,
            _ => directory > INO_MAX,
        };
        if !is_tree && !can_be_subvolume(number) || beyond {
            return Err(reader.malformed("what can be detached", format!("{record:?}")));
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::DetachedRecord;

    #[test]
    fn records_round_trip_and_unknown_ones_are_refused() {
        let directory = |kept_while_held| DetachedRecord::Directory {
            subvolume: 7,
            directory: 1 << 35,
            kept_while_held,
        };
        let subvolume = DetachedRecord::Subvolume { subvolume: 9 };
        let tree = DetachedRecord::Tree { tree: 40 };
        let inodes = DetachedRecord::Inodes { subvolume: 7, first: 1 << 35, end: 1 << 36 };
        for record in [directory(false), directory(true), subvolume, tree, inodes] {
            let bytes = record.encode();
            assert_eq!(DetachedRecord::decode(&bytes), Ok(record));
            assert!(DetachedRecord::decode(&bytes[1..]).is_err());
            for byte in [0, 1] {
                let mut strange = bytes.clone();
                strange[byte] = 0x77;
                assert!(DetachedRecord::decode(&strange).is_err());
            }
        }
    }
}
