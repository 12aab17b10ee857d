//! The inode of a directory, under its own number (`docs/format/directory-record.md`).
//!
//! The offsets are fixed. So creations and removals in it change counts and times by merges,
//! without reading the record and without excluding each other.

use crate::inode_record::Elsewhere;
use crate::key::INO_MAX;
use crate::layout::{Field, size_of};
use crate::quota::Charge;
use crate::{Malformed, Reader, Writer};

/// Layout of the record.
pub const LAYOUT: &[Field] = &[
    Field::fixed("entries", "i64 LE", 8),
    Field::fixed("subdirectories", "i64 LE", 8),
    Field::fixed("mtime", "i64 LE", 8),
    Field::fixed("ctime", "i64 LE", 8),
    Field::fixed("atime", "i64 LE", 8),
    Field::fixed("btime", "i64 LE", 8),
    Field::fixed("parent", "u64 LE", 8),
    Field::fixed("parent_cookie", "u64 LE", 8),
    Field::fixed("mode", "u32 LE", 4),
    Field::fixed("uid", "u32 LE", 4),
    Field::fixed("gid", "u32 LE", 4),
    Field::fixed("flags", "u32 LE", 4),
];

/// Layout of the part that follows in the record of an indexed directory.
pub const ELSEWHERE_LAYOUT: &[Field] = &[
    Field::fixed("device", "u64 LE", 8),
    Field::fixed("number", "u64 LE", 8),
    Field::fixed("size", "u64 LE", 8),
    Field::fixed("allocated", "u64 LE", 8),
    Field::fixed("nlink", "u32 LE", 4),
];

/// Layout of the part that follows in the record of a directory that belongs to a quota.
pub const CHARGE_LAYOUT: &[Field] =
    &[Field::fixed("domain", "u64 LE", 8), Field::fixed("charged_in", "u64 LE", 8)];

/// Offset of the number of entries, for merges.
pub const ENTRIES_AT: u16 = 0;
/// Offset of the number of sub-directories, for merges.
pub const SUBDIRECTORIES_AT: u16 = 8;
/// Offset of the time of the last change of entries, for merges.
pub const MTIME_AT: u16 = 16;
/// Offset of the time of the last change of attributes, for merges.
pub const CTIME_AT: u16 = 24;
/// Offset of the time of the last listing, for merges.
pub const ATIME_AT: u16 = 32;
/// Bytes of the record, except in an index.
pub const BYTES: usize = 80;
const _: () = assert!(size_of(LAYOUT) == BYTES);
/// Most bytes of a record, with all optional parts.
pub const BYTES_MAX: usize = BYTES + size_of(ELSEWHERE_LAYOUT) + size_of(CHARGE_LAYOUT);

// DO NOT CHANGE THESE VALUES: they are on disk.
const HAS_XATTRS: u32 = 1;
const DETACHED: u32 = 2;
const ELSEWHERE: u32 = 4;
const CHARGED: u32 = 8;
const KNOWN: u32 = 15;

/// The directory of another file system that an indexed directory represents, with the attributes
/// that the counts here do not give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryElsewhere {
    /// Its device and inode number.
    pub inode: Elsewhere,
    /// Its size there.
    pub size: u64,
    /// Bytes of space that it takes there.
    pub allocated: u64,
    /// Its links there.
    pub nlink: u32,
}

/// The inode of a directory. Times in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryRecord {
    /// Names in it.
    pub entries: i64,
    /// Directories among them.
    pub subdirectories: i64,
    /// Last change of entries.
    pub mtime: i64,
    /// Last change of attributes.
    pub ctime: i64,
    /// Last listing.
    pub atime: i64,
    /// Birth.
    pub btime: i64,
    /// The directory that it is in; itself at the root of a subvolume.
    pub parent: u64,
    /// The cookie of its entry there; 0 at the root of a subvolume.
    pub parent_cookie: u64,
    /// Permission bits with set-id and sticky, and whether there is an access list
    /// (`acl::IN_MODE`).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Whether there is a record with its extended attributes.
    pub has_xattrs: bool,
    /// Whether it was removed with everything below it, and waits to be reclaimed.
    pub detached: bool,
    /// The directory that it represents, in an index.
    pub elsewhere: Option<DirectoryElsewhere>,
    /// The quota that it belongs to; new inodes in it belong to the same one.
    pub charge: Option<Charge>,
}

impl DirectoryRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BYTES);
        for number in
            [self.entries, self.subdirectories, self.mtime, self.ctime, self.atime, self.btime]
        {
            out.put_i64(number);
        }
        out.put_u64(self.parent);
        out.put_u64(self.parent_cookie);
        out.put_u32(self.mode);
        out.put_u32(self.uid);
        out.put_u32(self.gid);
        let xattrs = if self.has_xattrs { HAS_XATTRS } else { 0 };
        let detached = if self.detached { DETACHED } else { 0 };
        let elsewhere = if self.elsewhere.is_some() { ELSEWHERE } else { 0 };
        let charged = if self.charge.is_some() { CHARGED } else { 0 };
        out.put_u32(xattrs | detached | elsewhere | charged);
        if let Some(elsewhere) = &self.elsewhere {
            out.put_u64(elsewhere.inode.device);
            out.put_u64(elsewhere.inode.number);
            out.put_u64(elsewhere.size);
            out.put_u64(elsewhere.allocated);
            out.put_u32(elsewhere.nlink);
        }
        if let Some(Charge { domain, subvolume }) = self.charge {
            out.put_u64(domain);
            out.put_u64(subvolume);
        }
        out
    }

    /// Reads a record.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<DirectoryRecord, Malformed> {
        let mut reader = Reader::new("directory record", bytes);
        let record = DirectoryRecord {
            entries: reader.i64()?,
            subdirectories: reader.i64()?,
            mtime: reader.i64()?,
            ctime: reader.i64()?,
            atime: reader.i64()?,
            btime: reader.i64()?,
            parent: reader.u64()?,
            parent_cookie: reader.u64()?,
            mode: reader.u32()?,
            uid: reader.u32()?,
            gid: reader.u32()?,
            has_xattrs: false,
            detached: false,
            elsewhere: None,
            charge: None,
        };
        let flags = reader.u32()?;
        let elsewhere = if flags & ELSEWHERE == 0 {
            None
        } else {
            let inode = Elsewhere { device: reader.u64()?, number: reader.u64()? };
            let (size, allocated) = (reader.u64()?, reader.u64()?);
            Some(DirectoryElsewhere { inode, size, allocated, nlink: reader.u32()? })
        };
        let charge = if flags & CHARGED == 0 {
            None
        } else {
            Some(Charge { domain: reader.u64()?, subvolume: reader.u64()? })
        };
        reader.end()?;
        if record.parent > INO_MAX {
            return Err(reader.malformed("the number of an inode", record.parent.to_string()));
        }
        if record.mode > 0o7777 | crate::acl::IN_MODE || flags & !KNOWN != 0 {
            return Err(reader.malformed(
                "a mode and known flags",
                format!("mode {:#o}, flags {flags:#x}", record.mode),
            ));
        }
        if record.entries < 0 || record.subdirectories < 0 || record.subdirectories > record.entries
        {
            return Err(reader.malformed(
                "counts of entries",
                format!("{} entries, {} directories", record.entries, record.subdirectories),
            ));
        }
        Ok(DirectoryRecord {
            has_xattrs: flags & HAS_XATTRS != 0,
            detached: flags & DETACHED != 0,
            elsewhere,
            charge,
            ..record
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        BYTES, CTIME_AT, DirectoryElsewhere, DirectoryRecord, ENTRIES_AT, Elsewhere, MTIME_AT,
        SUBDIRECTORIES_AT,
    };
    use crate::batch::{Lane, Lanes, MergeKind};

    fn sample() -> DirectoryRecord {
        DirectoryRecord {
            entries: 2,
            subdirectories: 1,
            mtime: 10,
            ctime: 11,
            atime: 12,
            btime: -13,
            parent: 2,
            parent_cookie: 0x1234_5678,
            mode: 0o1777,
            uid: 1,
            gid: u32::MAX,
            has_xattrs: true,
            detached: false,
            elsewhere: None,
            charge: None,
        }
    }

    #[test]
    fn a_record_of_an_index_round_trips() {
        let elsewhere = DirectoryElsewhere {
            inode: Elsewhere { device: 0xfe00, number: u64::MAX },
            size: 4096,
            allocated: 8192,
            nlink: 1,
        };
        let charge = Some(crate::quota::Charge { domain: 9, subvolume: 1 });
        let record = DirectoryRecord { elsewhere: Some(elsewhere), charge, ..sample() };
        let bytes = record.encode();
        assert_eq!(DirectoryRecord::decode(&bytes), Ok(record));
        for length in 0..bytes.len() {
            assert!(DirectoryRecord::decode(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn a_record_round_trips() {
        let bytes = sample().encode();
        assert_eq!(bytes.len(), BYTES);
        assert_eq!(DirectoryRecord::decode(&bytes), Ok(sample()));
        assert!(DirectoryRecord::decode(&bytes[..BYTES - 1]).is_err());
    }

    #[test]
    fn merges_hit_the_fields_they_mean() {
        let mut bytes = sample().encode();
        let lane = |offset, kind, operand| Lane { offset, kind, operand };
        Lanes::new(&[
            lane(ENTRIES_AT, MergeKind::Add, 1),
            lane(SUBDIRECTORIES_AT, MergeKind::Add, -1),
            lane(MTIME_AT, MergeKind::Max, 100),
            lane(CTIME_AT, MergeKind::Max, 5),
        ])
        .expect("four lanes")
        .apply(&mut bytes);
        let want = DirectoryRecord { entries: 3, subdirectories: 0, mtime: 100, ..sample() };
        assert_eq!(DirectoryRecord::decode(&bytes), Ok(want));
    }

    #[test]
    fn negative_counts_and_unknown_flags_are_damage() {
        let bad = DirectoryRecord { entries: -1, subdirectories: -1, ..sample() };
        assert!(DirectoryRecord::decode(&bad.encode()).is_err());
        let mut bytes = sample().encode();
        bytes[77] = 1;
        assert!(DirectoryRecord::decode(&bytes).is_err());
    }
}
