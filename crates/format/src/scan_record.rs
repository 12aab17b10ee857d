//! The scan state of an index of another file system (`docs/format/scan-record.md`).

use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// Layout of the record.
pub const LAYOUT: &[Field] = &[
    Field::fixed("pending", "u64 LE", 8),
    Field::fixed("started", "i64 LE", 8),
    Field::fixed("ended", "i64 LE", 8),
    Field::fixed("unread", "u64 LE", 8),
    Field::fixed("files", "i64 LE", 8),
    Field::fixed("subvolume", "u64 LE", 8),
    Field::fixed("flags", "u32 LE", 4),
    Field::variable("source_length", "varint"),
    Field::variable("source", "bytes"),
];
/// Bytes before the source.
pub const HEAD_BYTES: usize = 52;
const _: () = assert!(size_of(LAYOUT) == HEAD_BYTES);

/// Longest path of a source, as in Linux.
pub const SOURCE_BYTES_MAX: usize = 4096;

// DO NOT CHANGE THESE VALUES: they are on disk.
const CROSSES_MOUNTS: u32 = 1;
const KEEPS_XATTRS: u32 = 2;
const HIDDEN: u32 = 4;
const KNOWN: u32 = 7;

/// The scans of an index. Times in nanoseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanRecord {
    /// The tree that an unfinished scan writes; 0: none has begun.
    pub pending: u64,
    /// When the last finished scan began; 0: none has finished. Later changes may be missing.
    pub started: i64,
    /// When it ended.
    pub ended: i64,
    /// Number of objects that it found and could not read.
    pub unread: u64,
    /// Inodes that the pending tree has more (or fewer) than the one that it will replace.
    pub files: i64,
    /// The subvolume that was scanned into: after a rollback it is another one.
    pub subvolume: u64,
    /// Whether file systems that are mounted below the source are included.
    pub crosses_mounts: bool,
    /// Whether extended attributes are kept.
    pub keeps_xattrs: bool,
    /// Whether a directory above the source was closed to some users when the last scan began.
    pub hidden: bool,
    /// The directory that is indexed, absolute.
    pub source: Vec<u8>,
}

impl ScanRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES.saturating_add(64));
        out.put_u64(self.pending);
        out.put_i64(self.started);
        out.put_i64(self.ended);
        out.put_u64(self.unread);
        out.put_i64(self.files);
        out.put_u64(self.subvolume);
        let flags = [
            (self.crosses_mounts, CROSSES_MOUNTS),
            (self.keeps_xattrs, KEEPS_XATTRS),
            (self.hidden, HIDDEN),
        ];
        out.put_u32(flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum());
        out.put_bytes(&self.source);
        out
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<ScanRecord, Malformed> {
        let mut reader = Reader::new("scan record", bytes);
        let (pending, started, ended) = (reader.u64()?, reader.i64()?, reader.i64()?);
        let (unread, files) = (reader.u64()?, reader.i64()?);
        let (subvolume, flags) = (reader.u64()?, reader.u32()?);
        if flags & !KNOWN != 0 {
            return Err(reader.malformed("known flags", format!("{flags:#x}")));
        }
        let length = reader.length(SOURCE_BYTES_MAX)?;
        let source = reader.take(length)?.to_vec();
        reader.end()?;
        Ok(ScanRecord {
            pending,
            started,
            ended,
            unread,
            files,
            subvolume,
            crosses_mounts: flags & CROSSES_MOUNTS != 0,
            keeps_xattrs: flags & KEEPS_XATTRS != 0,
            hidden: flags & HIDDEN != 0,
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ScanRecord;

    #[test]
    fn a_record_round_trips_and_partial_ones_are_refused() {
        for bits in 0..8 {
            let record = ScanRecord {
                pending: 77,
                started: -1,
                ended: 1 << 60,
                unread: 3,
                files: -4,
                subvolume: 5,
                crosses_mounts: bits & 1 != 0,
                keeps_xattrs: bits & 2 != 0,
                hidden: bits & 4 != 0,
                source: b"/data/\xff".to_vec(),
            };
            let bytes = record.encode();
            assert_eq!(ScanRecord::decode(&bytes), Ok(record));
            for length in 0..bytes.len() {
                assert!(ScanRecord::decode(&bytes[..length]).is_err());
            }
            let mut strange = bytes.clone();
            strange[48] = 0x80;
            assert!(ScanRecord::decode(&strange).is_err());
        }
    }
}
