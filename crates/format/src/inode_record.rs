//! The attributes of an inode that is not a directory, as stored inside an entry or under a linked
//! inode's key (`docs/format/inode-record.md`).
//!
//! Small numbers take few bytes. A file whose four times are equal, as those of a new file are,
//! stores one time.

use crate::layout::Field;
use crate::quota::{Charge, NAME_BYTES};
use crate::{Malformed, Reader, Writer};

/// Layout of the attributes.
pub const LAYOUT: &[Field] = &[
    Field::fixed("flags", "u8", 1),
    Field::variable("mode", "varint"),
    Field::variable("uid", "varint"),
    Field::variable("gid", "varint"),
    Field::variable("size", "varint"),
    Field::variable("rdev", "varint"),
    Field::variable("allocated", "varint"),
    Field::fixed("ctime", "i64 LE", 8),
    Field::variable("mtime", "i64 LE"),
    Field::variable("atime", "i64 LE"),
    Field::variable("btime", "i64 LE"),
    Field::variable("device", "varint"),
    Field::variable("number", "varint"),
    Field::variable("domain", "varint"),
    Field::variable("charged_in", "varint"),
];

/// Layout of the record of a linked inode.
pub const LINKED_LAYOUT: &[Field] = &[
    Field::fixed("kind", "u8", 1),
    Field::variable("nlink", "varint"),
    Field::variable("charged_names", "varint"),
    Field::variable("attributes", "inode record"),
];

// DO NOT CHANGE THESE VALUES: they are on disk.
const MTIME_DIFFERS: u8 = 0x01;
const ATIME_DIFFERS: u8 = 0x02;
const BTIME_DIFFERS: u8 = 0x04;
const HAS_BULK: u8 = 0x08;
const HAS_XATTRS: u8 = 0x10;
const HAS_EXTENTS: u8 = 0x20;
const ELSEWHERE: u8 = 0x40;
const CHARGED: u8 = 0x80;
/// Beside the kind of a linked inode: some of its names are charged.
const CHARGED_NAMES: u8 = 0x80;

/// The type of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl FileKind {
    // DO NOT CHANGE THESE VALUES: they are on disk.
    /// The byte on disk, 1 to 15.
    pub const fn byte(self) -> u8 {
        match self {
            FileKind::File => 1,
            FileKind::Directory => 2,
            FileKind::Symlink => 3,
            FileKind::Fifo => 4,
            FileKind::Socket => 5,
            FileKind::CharDevice => 6,
            FileKind::BlockDevice => 7,
        }
    }

    /// The kind of a byte on disk.
    pub const fn decode(byte: u8) -> Option<FileKind> {
        Some(match byte {
            1 => FileKind::File,
            2 => FileKind::Directory,
            3 => FileKind::Symlink,
            4 => FileKind::Fifo,
            5 => FileKind::Socket,
            6 => FileKind::CharDevice,
            7 => FileKind::BlockDevice,
            _ => return None,
        })
    }

    /// Whether it has a device number.
    pub const fn is_device(self) -> bool {
        matches!(self, FileKind::CharDevice | FileKind::BlockDevice)
    }
}

/// The inode of another file system that an indexed inode represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Elsewhere {
    /// Its device, as `st_dev` has it.
    pub device: u64,
    /// Its inode number there.
    pub number: u64,
}

/// Attributes of an inode that is not a directory. Times in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodeRecord {
    /// Its type.
    pub kind: FileKind,
    /// Whether there is a record with its target or contents.
    pub has_bulk: bool,
    /// Whether there is a record with its extended attributes.
    pub has_xattrs: bool,
    /// Whether its contents are extents.
    pub has_extents: bool,
    /// Permission bits with set-id and sticky, and whether there is an access list
    /// (`acl::IN_MODE`).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number; 0 except for devices.
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// Bytes that extents cover, or that the contents take on the other file system; 0 without
    /// either.
    pub allocated: u64,
    /// Last change of attributes.
    pub ctime: i64,
    /// Last change of contents.
    pub mtime: i64,
    /// Last read.
    pub atime: i64,
    /// Birth.
    pub btime: i64,
    /// Where the contents are, if not here: the inode is an indexed one.
    pub elsewhere: Option<Elsewhere>,
    /// The quota that it belongs to.
    pub charge: Option<Charge>,
    /// How many of its further names (all but one) are charged to quotas. Stored in the record of a
    /// linked inode; an inode that is stored beside its name has no further ones.
    pub charged_names: u32,
}

impl InodeRecord {
    /// Greatest mode, without the bit of an access list.
    pub const MODE_MAX: u32 = 0o7777;
    /// Greatest length of a file.
    pub const SIZE_MAX: u64 = (1 << 63) - 1;

    /// Appends the attributes; the container stores the kind before them.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = 0;
        for (on, flag) in [
            (self.mtime != self.ctime, MTIME_DIFFERS),
            (self.atime != self.ctime, ATIME_DIFFERS),
            (self.btime != self.ctime, BTIME_DIFFERS),
            (self.has_bulk, HAS_BULK),
            (self.has_xattrs, HAS_XATTRS),
            (self.has_extents, HAS_EXTENTS),
            (self.elsewhere.is_some(), ELSEWHERE),
            (self.charge.is_some(), CHARGED),
        ] {
            if on {
                flags |= flag;
            }
        }
        out.put_u8(flags);
        out.put_varint(u64::from(self.mode));
        out.put_varint(u64::from(self.uid));
        out.put_varint(u64::from(self.gid));
        out.put_varint(self.size);
        if self.kind.is_device() {
            out.put_varint(u64::from(self.rdev));
        }
        if self.has_extents || self.elsewhere.is_some() {
            out.put_varint(self.allocated);
        }
        out.put_i64(self.ctime);
        for (time, flag) in
            [(self.mtime, MTIME_DIFFERS), (self.atime, ATIME_DIFFERS), (self.btime, BTIME_DIFFERS)]
        {
            if flags & flag != 0 {
                out.put_i64(time);
            }
        }
        if let Some(Elsewhere { device, number }) = self.elsewhere {
            out.put_varint(device);
            out.put_varint(number);
        }
        if let Some(Charge { domain, subvolume }) = self.charge {
            out.put_varint(domain);
            out.put_varint(subvolume);
        }
    }

    /// Bytes of space that the contents take, wherever they are stored.
    #[inline]
    pub fn stored(&self) -> u64 {
        if self.has_extents || self.elsewhere.is_some() { self.allocated } else { self.size }
    }

    /// Bytes that quotas charge for it: its contents, and a flat amount for each further name.
    /// Every charge, credit and recount uses this.
    #[inline]
    pub fn charged_bytes(&self) -> u64 {
        self.stored().saturating_add(u64::from(self.charged_names) * NAME_BYTES)
    }

    /// Blocks of 512 bytes that `stat` and searches show. A file that is a single hole has one and
    /// not none. The kernel may not have written data yet that a program stored through a memory
    /// map. `tar -S` treats a file without blocks as zeros without reading it.
    #[inline]
    pub fn blocks(&self) -> u64 {
        let is_hole = self.has_extents && self.size > 0;
        self.stored().div_ceil(512).max(u64::from(is_hole))
    }

    /// Reads the attributes of an inode of a kind.
    #[inline]
    pub fn decode(kind: FileKind, reader: &mut Reader<'_>) -> Result<InodeRecord, Malformed> {
        let flags = reader.u8()?;
        let mode = narrow(reader, InodeRecord::MODE_MAX | crate::acl::IN_MODE)?;
        let uid = narrow(reader, u32::MAX)?;
        let gid = narrow(reader, u32::MAX)?;
        let size = reader.varint()?;
        if size > InodeRecord::SIZE_MAX {
            return Err(reader.malformed("a size of a file", size.to_string()));
        }
        let rdev = if kind.is_device() { narrow(reader, u32::MAX)? } else { 0 };
        let has_extents = flags & HAS_EXTENTS != 0;
        let is_elsewhere = flags & ELSEWHERE != 0;
        if has_extents && is_elsewhere {
            return Err(reader.malformed("contents in one place", format!("{flags:#x}")));
        }
        let allocated = if has_extents || is_elsewhere { reader.varint()? } else { 0 };
        let ctime = reader.i64()?;
        let mtime = if flags & MTIME_DIFFERS != 0 { reader.i64()? } else { ctime };
        let atime = if flags & ATIME_DIFFERS != 0 { reader.i64()? } else { ctime };
        let btime = if flags & BTIME_DIFFERS != 0 { reader.i64()? } else { ctime };
        let elsewhere = if is_elsewhere {
            Some(Elsewhere { device: reader.varint()?, number: reader.varint()? })
        } else {
            None
        };
        let charge = if flags & CHARGED != 0 {
            Some(Charge { domain: reader.varint()?, subvolume: reader.varint()? })
        } else {
            None
        };
        Ok(InodeRecord {
            kind,
            has_bulk: flags & HAS_BULK != 0,
            has_xattrs: flags & HAS_XATTRS != 0,
            has_extents,
            mode,
            uid,
            gid,
            rdev,
            size,
            allocated,
            ctime,
            mtime,
            atime,
            btime,
            elsewhere,
            charge,
            charged_names: 0,
        })
    }
}

/// The record of an inode with several names, or with none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkedRecord {
    /// Number of its names.
    pub nlink: u32,
    /// Its attributes.
    pub inode: InodeRecord,
}

impl LinkedRecord {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let charged_names = self.inode.charged_names;
        let flag = if charged_names > 0 { CHARGED_NAMES } else { 0 };
        out.put_u8(self.inode.kind.byte() | flag);
        out.put_varint(u64::from(self.nlink));
        if charged_names > 0 {
            out.put_varint(u64::from(charged_names));
        }
        self.inode.encode(out);
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<LinkedRecord, Malformed> {
        let mut reader = Reader::new("linked inode", bytes);
        let byte = reader.u8()?;
        let kind = FileKind::decode(byte & !CHARGED_NAMES)
            .filter(|&kind| kind != FileKind::Directory)
            .ok_or_else(|| reader.malformed("a kind of inode", byte.to_string()))?;
        let nlink = narrow(&mut reader, u32::MAX)?;
        let has_charged_names = byte & CHARGED_NAMES != 0;
        let charged_names = if has_charged_names { narrow(&mut reader, u32::MAX)? } else { 0 };
        if has_charged_names && charged_names == 0 {
            return Err(reader.malformed("a number of charged names", "0".to_owned()));
        }
        let inode = InodeRecord::decode(kind, &mut reader)?;
        reader.end()?;
        Ok(LinkedRecord { nlink, inode: InodeRecord { charged_names, ..inode } })
    }

    /// The record with so many names. Names that are gone are not charged any more.
    #[must_use]
    pub fn with_nlink(&self, nlink: u32) -> LinkedRecord {
        let charged_names = self.inode.charged_names.min(nlink.saturating_sub(1));
        LinkedRecord { nlink, inode: InodeRecord { charged_names, ..self.inode } }
    }
}

#[inline]
fn narrow(reader: &mut Reader<'_>, most: u32) -> Result<u32, Malformed> {
    let value = reader.varint()?;
    match u32::try_from(value) {
        Ok(number) if number <= most => Ok(number),
        _ => Err(reader.out_of_bounds("a number within bounds", value)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Charge, Elsewhere, FileKind, InodeRecord, LinkedRecord, NAME_BYTES};

    pub(crate) fn sample() -> InodeRecord {
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
            ctime: 5,
            mtime: 5,
            atime: 5,
            btime: 5,
            elsewhere: None,
            charge: None,
            charged_names: 0,
        }
    }

    #[test]
    fn a_fresh_file_takes_16_bytes_and_the_kind() {
        let mut bytes = Vec::new();
        sample().encode(&mut bytes);
        assert_eq!(bytes.len(), 16);
    }

    #[test]
    fn attributes_round_trip_in_every_combination() {
        for bits in 0..256_u32 {
            let bit = |n: u32| bits & (1 << n) != 0;
            let inode = InodeRecord {
                kind: if bit(0) { FileKind::CharDevice } else { FileKind::File },
                has_bulk: bit(1),
                has_xattrs: bit(2),
                has_extents: bit(3) && !bit(6),
                rdev: if bit(0) { u32::MAX } else { 0 },
                size: InodeRecord::SIZE_MAX,
                allocated: if bit(3) || bit(6) { 1 << 40 } else { 0 },
                mtime: if bit(4) { i64::MIN } else { 5 },
                atime: if bit(5) { i64::MAX } else { 5 },
                btime: if bit(4) { -1 } else { 5 },
                elsewhere: bit(6).then_some(Elsewhere { device: 0xfe00, number: u64::MAX }),
                charge: bit(7).then_some(Charge { domain: 1 << 40, subvolume: 300 }),
                charged_names: if bit(1) { u32::MAX } else { 0 },
                ..sample()
            };
            let record = LinkedRecord { nlink: bits, inode };
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(LinkedRecord::decode(&bytes), Ok(record));
            for length in 0..bytes.len() {
                assert!(LinkedRecord::decode(&bytes[..length]).is_err());
            }
        }
    }

    #[test]
    fn further_names_are_charged_and_lost_ones_are_not() {
        let inode = InodeRecord { size: 100, charged_names: 3, ..sample() };
        assert_eq!(inode.charged_bytes(), 100 + 3 * NAME_BYTES);
        let record = LinkedRecord { nlink: 9, inode };
        assert_eq!(record.with_nlink(4), LinkedRecord { nlink: 4, inode });
        assert_eq!(record.with_nlink(3).inode.charged_names, 2);
        assert_eq!(record.with_nlink(0).inode.charged_bytes(), 100);
    }

    #[test]
    fn a_record_without_charged_names_is_as_before_they_were_charged() {
        let mut bytes = Vec::new();
        LinkedRecord { nlink: 2, inode: sample() }.encode(&mut bytes);
        assert_eq!(bytes[..2], [1, 2]);
        bytes[0] |= super::CHARGED_NAMES;
        bytes.insert(2, 0);
        assert!(LinkedRecord::decode(&bytes).is_err(), "none are charged, and the flag is set");
    }
}
