//! A log object: the records of one group commit, or a seal (`docs/format/log-object.md`).
//!
//! The log of a store whose state is in an object store is a sequence of objects
//! `log/EPOCH/NUMBER`, each created once. An object names the opening that made it, so two openings
//! never make equal objects. A seal ends the log of an epoch.

use crate::layout::{Field, size_of};
use crate::sealed::{Covers, Opened, Seal};
use crate::{Malformed, Writer};

/// The magic number of a log object.
pub const MAGIC: [u8; 8] = *b"PANDOWAL";
/// The newest version that this program writes and reads.
pub const VERSION: u32 = 1;
/// Bytes before the records.
pub const HEAD_BYTES: usize = 88;

/// Layout of the head.
pub const LAYOUT: &[Field] = &[
    Field::fixed("magic", "bytes", 8),
    Field::fixed("version", "u32 LE", 4),
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("volume", "bytes", 16),
    Field::fixed("opening", "bytes", 16),
    Field::fixed("epoch", "u64 LE", 8),
    Field::fixed("number", "u64 LE", 8),
    Field::fixed("first", "u64 LE", 8),
    Field::fixed("records", "u64 LE", 8),
    Field::fixed("successor", "u64 LE", 8),
];
const _: () = assert!(size_of(LAYOUT) == HEAD_BYTES);

const SEAL: Seal =
    Seal { structure: "log object", magic: MAGIC, version: VERSION, covers: Covers::All };

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Records with consecutive numbers.
    Records {
        /// Number of the first record.
        first: u64,
        /// How many there are: at least one.
        count: u64,
    },
    /// The end of the log of this epoch.
    Seal {
        /// The epoch of the opening that ended it.
        successor: u64,
    },
}

/// The head of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogObject {
    /// The volume's id.
    pub volume: [u8; 16],
    /// The random id of the opening that made it.
    pub opening: [u8; 16],
    /// The epoch whose log it belongs to.
    pub epoch: u64,
    /// Its number in that log.
    pub number: u64,
    /// What it is.
    pub kind: Kind,
}

/// A decoded object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// One of this version, with the bytes of its records, which are not verified.
    Object(LogObject, &'a [u8]),
    /// A newer version: its number.
    Newer(u32),
}

impl LogObject {
    /// Its bytes, with the bytes of its records; a seal has none.
    pub fn encode(&self, records: &[u8]) -> Vec<u8> {
        let (first, count, successor) = match self.kind {
            Kind::Records { first, count } => (first, count, 0),
            Kind::Seal { successor } => (0, 0, successor),
        };
        let mut body = Vec::with_capacity(HEAD_BYTES.saturating_add(records.len()));
        body.raw(&self.volume);
        body.raw(&self.opening);
        body.put_u64(self.epoch);
        body.put_u64(self.number);
        body.put_u64(first);
        body.put_u64(count);
        body.put_u64(successor);
        body.raw(records);
        SEAL.seal(&body)
    }

    /// Reads a whole object.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<'_>, Malformed> {
        let mut reader = match SEAL.open(bytes)? {
            Opened::Newer(version) => return Ok(Decoded::Newer(version)),
            Opened::Body(_, reader) => reader,
        };
        let (volume, opening) = (reader.array()?, reader.array()?);
        let (epoch, number) = (reader.counted()?, reader.counted()?);
        let (first, count, successor) = (reader.counted()?, reader.counted()?, reader.counted()?);
        let records = reader.take(reader.remaining())?;
        let kind = match (first, count, successor) {
            (0, 0, successor) if successor > 0 && records.is_empty() => Kind::Seal { successor },
            (first, count, 0) if first > 0 && count > 0 => Kind::Records { first, count },
            _ => {
                let found = format!("{count} records from {first}, successor {successor}");
                return Err(reader.malformed("either records or a seal", found));
            }
        };
        Ok(Decoded::Object(LogObject { volume, opening, epoch, number, kind }, records))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::COUNTED_MAX;
    use crate::damaged::every_flipped_bit_and_truncation_is_refused;

    fn object(kind: Kind) -> LogObject {
        LogObject { volume: [3; 16], opening: [5; 16], epoch: 9, number: 77, kind }
    }

    fn samples() -> [(LogObject, &'static [u8]); 2] {
        let records = Kind::Records { first: 1 << 40, count: 3 };
        [(object(records), b"three records"), (object(Kind::Seal { successor: 12 }), b"")]
    }

    #[test]
    fn objects_round_trip() {
        for (object, records) in samples() {
            let bytes = object.encode(records);
            assert_eq!(bytes.len(), HEAD_BYTES + records.len());
            assert_eq!(LogObject::decode(&bytes), Ok(Decoded::Object(object, records)));
        }
    }

    #[test]
    fn every_flipped_bit_and_truncation_is_detected() {
        for (object, records) in samples() {
            let bytes = object.encode(records);
            every_flipped_bit_and_truncation_is_refused(&bytes, |bad| {
                LogObject::decode(bad).is_err()
            });
        }
    }

    #[test]
    fn what_is_neither_records_nor_a_seal_is_refused() {
        let bad = [
            (Kind::Records { first: 0, count: 1 }, &b"x"[..]),
            (Kind::Records { first: 1, count: 0 }, b""),
            (Kind::Records { first: COUNTED_MAX + 1, count: 1 }, b"x"),
            (Kind::Seal { successor: 0 }, b""),
            (Kind::Seal { successor: 5 }, b"a seal has no records"),
        ];
        for (kind, records) in bad {
            assert!(LogObject::decode(&object(kind).encode(records)).is_err(), "{kind:?}");
        }
    }

    #[test]
    fn a_newer_version_is_reported() {
        let newer = Seal { version: 2, ..SEAL }.seal(b"what it likes");
        assert_eq!(LogObject::decode(&newer), Ok(Decoded::Newer(2)));
    }

    /// Equal records of two openings are different objects.
    #[test]
    fn two_openings_never_make_equal_objects() {
        for (object, records) in samples() {
            let other = LogObject { opening: [6; 16], ..object };
            assert_ne!(other.encode(records), object.encode(records));
        }
    }
}
