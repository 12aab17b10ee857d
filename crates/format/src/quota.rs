//! Quotas (`docs/format/quota.md`). An accounting domain has limits. Records have the amounts that
//! a subvolume's inodes are charged to it, and the mark of an inode names its domain.
//!
//! Keys in the volume's tree: `Q | domain` for the limits, `Q | domain | subvolume` for the
//! charges. Charges are changed by merges in the batches that cause them. So threads that create
//! files in one domain do not wait for each other, and a crash leaves the charges exact.

use crate::key::{INO_MAX, can_be_subvolume};
use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// Layout of the record of a domain.
pub const LAYOUT: &[Field] = &[
    Field::fixed("subvolume", "u64 LE", 8),
    Field::fixed("directory", "u64 LE", 8),
    Field::fixed("inodes_max", "u64 LE", 8),
    Field::fixed("bytes_max", "u64 LE", 8),
    Field::variable("adopting_from", "u64 LE"),
];

/// Layout of the charges of the inodes of one subvolume to a domain.
pub const CHARGED_LAYOUT: &[Field] =
    &[Field::fixed("inodes", "i64 LE", 8), Field::fixed("bytes", "i64 LE", 8)];
const _: () = assert!(size_of(CHARGED_LAYOUT) == 16);

// DO NOT CHANGE THIS VALUE: recorded charges contain it.
/// Bytes charged for each further name of an inode: what a name of 255 bytes takes, with the
/// records that belong to it.
pub const NAME_BYTES: u64 = 512;

/// Offset of the number of files charged, for merges.
pub const INODES_AT: u16 = 0;
/// Offset of the bytes charged, for merges.
pub const BYTES_AT: u16 = 8;

/// An accounting domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaRecord {
    /// Where its directory is: the subvolume,
    pub subvolume: u64,
    /// and the inode in it.
    pub directory: u64,
    /// Most files, directories and other inodes; all ones: no limit.
    pub inodes_max: u64,
    /// Most bytes of contents; all ones: no limit.
    pub bytes_max: u64,
    /// The domain that the directory was in before, while its existing content is still being
    /// charged; 0: none.
    pub adopting_from: Option<u64>,
}

/// The amounts that the inodes of a subvolume are charged to a domain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Charged {
    /// Inodes.
    pub inodes: i64,
    /// Bytes of contents that they store.
    pub bytes: i64,
}

/// The domain of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charge {
    /// The domain; 0: none, and the mark only records in which subvolume an inherited inode is
    /// charged to its owners.
    pub domain: u64,
    /// The subvolume in which the inode was charged. In any other, which is a copy of that one,
    /// it is inherited and not charged at all; 0: it was not charged yet.
    pub subvolume: u64,
}

impl Charge {
    /// The number of no domain.
    pub const NO_DOMAIN: u64 = 0;
    /// In place of the subvolume: not charged.
    pub const NOBODY: u64 = 0;
}

impl QuotaRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [self.subvolume, self.directory, self.inodes_max, self.bytes_max] {
            out.put_u64(number);
        }
        if let Some(domain) = self.adopting_from {
            out.put_u64(domain);
        }
        out
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<QuotaRecord, Malformed> {
        let mut reader = Reader::new("quota", bytes);
        let record = QuotaRecord {
            subvolume: reader.u64()?,
            directory: reader.u64()?,
            inodes_max: reader.u64()?,
            bytes_max: reader.u64()?,
            adopting_from: None,
        };
        let adopting_from = if reader.remaining() > 0 { Some(reader.u64()?) } else { None };
        reader.end()?;
        let QuotaRecord { subvolume, directory, .. } = record;
        if !can_be_subvolume(subvolume) || directory > INO_MAX {
            let found = format!("{directory} of subvolume {subvolume}");
            return Err(reader.malformed("a directory of a subvolume", found));
        }
        Ok(QuotaRecord { adopting_from, ..record })
    }
}

impl Charged {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_i64(self.inodes);
        out.put_i64(self.bytes);
        out
    }

    /// Reads a record. A merge that created it stored only the lanes that it changed.
    pub fn decode(bytes: &[u8]) -> Result<Charged, Malformed> {
        let charged = Charged::decode_change(bytes)?;
        let Charged { inodes, bytes: stored } = charged;
        if inodes < 0 || stored < 0 {
            let reader = Reader::new("charges", bytes);
            return Err(reader.malformed("charges", format!("{inodes} inodes, {stored} bytes")));
        }
        Ok(charged)
    }

    /// Reads a record of the changes since a count began, which may be negative.
    pub fn decode_change(bytes: &[u8]) -> Result<Charged, Malformed> {
        let mut reader = Reader::new("charges", bytes);
        let inodes = reader.i64()?;
        let bytes = if reader.remaining() > 0 { reader.i64()? } else { 0 };
        reader.end()?;
        Ok(Charged { inodes, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::{Charged, QuotaRecord};
    use crate::key::{self, INO_MAX, SUBVOLUME_MAX};

    #[test]
    fn a_quota_of_an_impossible_directory_is_malformed() {
        let record = |subvolume, directory| {
            let (inodes_max, bytes_max) = (u64::MAX, u64::MAX);
            QuotaRecord { subvolume, directory, inodes_max, bytes_max, adopting_from: None }
        };
        let decoded = |record: QuotaRecord| QuotaRecord::decode(&record.encode());
        assert!(decoded(record(SUBVOLUME_MAX, INO_MAX)).is_ok());
        assert!(decoded(record(SUBVOLUME_MAX + 1, 2)).is_err());
        assert!(decoded(record(1, INO_MAX + 1)).is_err());
        let number = |subvolume| key::parse_number(&key::subvolume(subvolume));
        assert_eq!(number(SUBVOLUME_MAX), Ok(SUBVOLUME_MAX));
        assert!(number(SUBVOLUME_MAX + 1).is_err());
    }

    #[test]
    fn records_round_trip_and_partial_ones_are_refused() {
        let settled = QuotaRecord {
            subvolume: 1,
            directory: 77,
            inodes_max: u64::MAX,
            bytes_max: 1 << 40,
            adopting_from: None,
        };
        for record in [settled, QuotaRecord { adopting_from: Some(0), ..settled }] {
            let bytes = record.encode();
            assert_eq!(QuotaRecord::decode(&bytes), Ok(record));
            for length in (0..bytes.len()).filter(|&length| length != settled.encode().len()) {
                assert!(QuotaRecord::decode(&bytes[..length]).is_err());
            }
        }
        let mut charged = 5_i64.to_le_bytes().to_vec();
        assert_eq!(Charged::decode(&charged), Ok(Charged { inodes: 5, bytes: 0 }));
        charged.extend(7_i64.to_le_bytes());
        assert_eq!(Charged::decode(&charged), Ok(Charged { inodes: 5, bytes: 7 }));
        assert_eq!(Charged { inodes: 5, bytes: 7 }.encode(), charged);
        charged[7] = 0x80;
        assert!(Charged::decode(&charged).is_err());
    }
}
