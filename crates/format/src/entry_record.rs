//! The record of a name in a directory (`docs/format/entry-record.md`). It contains the inode, if
//! the inode has no other name and is not a directory.

use crate::inode_record::{FileKind, InodeRecord};
use crate::key::{INO_MAX, can_be_subvolume};
use crate::layout::Field;
use crate::{Malformed, Reader, Writer};

const STRUCTURE: &str = "entry record";

/// Layout of the record.
pub const LAYOUT: &[Field] = &[
    Field::fixed("kind", "u8", 1),
    Field::variable("ino", "varint"),
    Field::fixed("name_length", "u8", 1),
    Field::variable("name", "bytes"),
    Field::variable("subvolume", "varint"),
    Field::variable("attributes", "inode record"),
];

// DO NOT CHANGE THESE VALUES: they are on disk.
const KIND: u8 = 0x0f;
const LINKED: u8 = 0x10;
const SUBVOLUME: u8 = 0x20;
const CHAINED: u8 = 0x80;

/// The target of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// None: the name is gone, but a later one with the same hash is not.
    Tombstone,
    /// An inode that is stored in the entry.
    Embedded(InodeRecord),
    /// An inode of this kind, stored under its own key.
    Linked(FileKind),
    /// A directory of this subvolume.
    Directory,
    /// The root of another subvolume.
    Subvolume(u64),
}

/// The record of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRecord<'a> {
    /// Whether a name with the same hash follows under the next collision index.
    pub chained: bool,
    /// The inode; 0 in a tombstone.
    pub ino: u64,
    /// The name, at most 255 bytes; empty in a tombstone.
    pub name: &'a [u8],
    /// The target of the name.
    pub target: Target,
}

/// A record whose attributes are not read yet: enough to compare names and to list.
#[derive(Debug, Clone)]
pub struct EntryHead<'a> {
    /// Whether a name with the same hash follows under the next collision index.
    pub chained: bool,
    /// The inode; 0 in a tombstone.
    pub ino: u64,
    /// The name; empty in a tombstone.
    pub name: &'a [u8],
    /// The kind of the inode; `None` in a tombstone.
    pub kind: Option<FileKind>,
    flags: u8,
    rest: Reader<'a>,
}

impl<'a> EntryRecord<'a> {
    /// Appends the record.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, flag) = match &self.target {
            Target::Tombstone => (0, 0),
            Target::Embedded(inode) => (inode.kind.byte(), 0),
            Target::Linked(kind) => (kind.byte(), LINKED),
            Target::Directory => (FileKind::Directory.byte(), 0),
            Target::Subvolume(_) => (FileKind::Directory.byte(), SUBVOLUME),
        };
        out.put_u8(kind | flag | if self.chained { CHAINED } else { 0 });
        out.put_varint(self.ino);
        // Names are checked at the interface; a longer one is cut, so that the record stays
        // readable.
        let length = u8::try_from(self.name.len()).unwrap_or(u8::MAX);
        out.put_u8(length);
        out.raw(self.name.get(..usize::from(length)).unwrap_or_default());
        match &self.target {
            Target::Embedded(inode) => inode.encode(out),
            Target::Subvolume(subvolume) => out.put_varint(*subvolume),
            Target::Tombstone | Target::Linked(_) | Target::Directory => {}
        }
    }

    /// Reads a record.
    pub fn decode(bytes: &'a [u8]) -> Result<EntryRecord<'a>, Malformed> {
        let head = EntryHead::decode(bytes)?;
        Ok(EntryRecord {
            chained: head.chained,
            ino: head.ino,
            name: head.name,
            target: head.target()?,
        })
    }
}

impl<'a> EntryHead<'a> {
    /// Reads a record up to the name.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<EntryHead<'a>, Malformed> {
        let mut reader = Reader::new(STRUCTURE, bytes);
        let byte = reader.u8()?;
        let flags = byte & !KIND;
        let kind = match byte & KIND {
            0 => None,
            known => match FileKind::decode(known) {
                None => return Err(reader.malformed("a kind of inode", format!("{byte:#x}"))),
                kind => kind,
            },
        };
        let ino = reader.varint()?;
        let length = reader.u8()?;
        let name = reader.take(usize::from(length))?;
        if ino > INO_MAX {
            return Err(reader.malformed("the number of an inode", ino.to_string()));
        }
        if kind.is_none() != name.is_empty() {
            return Err(reader.malformed("a name", "none, or one in a tombstone"));
        }
        Ok(EntryHead { chained: flags & CHAINED != 0, ino, name, kind, flags, rest: reader })
    }

    /// Whether the inode is stored under its own key.
    pub fn is_linked(&self) -> bool {
        self.flags & LINKED != 0
    }

    /// The target of the name.
    #[inline]
    pub fn target(mut self) -> Result<Target, Malformed> {
        let target = match (self.kind, self.flags & !CHAINED) {
            (None, 0) => Target::Tombstone,
            (Some(FileKind::Directory), 0) => Target::Directory,
            (Some(FileKind::Directory), SUBVOLUME) => match self.rest.varint()? {
                subvolume if can_be_subvolume(subvolume) => Target::Subvolume(subvolume),
                other => return Err(self.rest.malformed("a subvolume", other.to_string())),
            },
            (Some(kind), LINKED) if kind != FileKind::Directory => Target::Linked(kind),
            (Some(kind), 0) => Target::Embedded(InodeRecord::decode(kind, &mut self.rest)?),
            _ => {
                return Err(self.rest.malformed("known flags", format!("{:#x}", self.flags)));
            }
        };
        self.rest.end()?;
        Ok(target)
    }
}

#[cfg(test)]
mod tests {
    use super::{EntryRecord, Target};
    use crate::inode_record::{FileKind, InodeRecord};

    fn file() -> InodeRecord {
        InodeRecord {
            kind: FileKind::File,
            has_bulk: false,
            has_xattrs: false,
            has_extents: false,
            mode: 0o644,
            uid: 1000,
            gid: 1000,
            rdev: 0,
            size: 0,
            allocated: 0,
            ctime: 1 << 60,
            mtime: 1 << 60,
            atime: 1 << 60,
            btime: 1 << 60,
            elsewhere: None,
            charge: None,
            charged_names: 0,
        }
    }

    #[test]
    fn records_round_trip_and_partial_ones_are_refused() {
        let longest = [b'n'; 255];
        for (name, target) in [
            (&b""[..], Target::Tombstone),
            (b"a", Target::Directory),
            (b"sub", Target::Subvolume(1 << 22)),
            (b"hard", Target::Linked(FileKind::Symlink)),
            (&longest, Target::Embedded(file())),
        ] {
            for chained in [false, true] {
                let record = EntryRecord { chained, ino: 1 << 35, name, target };
                let mut bytes = Vec::new();
                record.encode(&mut bytes);
                assert_eq!(EntryRecord::decode(&bytes), Ok(record));
                for length in 0..bytes.len() {
                    assert!(EntryRecord::decode(&bytes[..length]).is_err());
                }
            }
        }
    }

    #[test]
    fn a_fresh_file_with_a_name_of_12_bytes_is_small() {
        let target = Target::Embedded(file());
        let record = EntryRecord { chained: false, ino: 1 << 20, name: b"file00000012", target };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert!(bytes.len() <= 34, "{} bytes", bytes.len());
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let length = random.usize(..64);
            let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            if let Ok(record) = EntryRecord::decode(&bytes) {
                let mut again = Vec::new();
                record.encode(&mut again);
                assert_eq!(EntryRecord::decode(&again), Ok(record));
            }
        }
    }
}
