//! A record of the log (`docs/format/log.md`): header, then payload.
//!
//! The checksum covers the volume's secret, the payload and then the rest of the header, in this
//! order. So a committer sums its payload before it holds any lock. It begins with a secret because
//! users choose parts of payloads (names, short file contents). When a torn tail is searched, bytes
//! that look like a record or mark must not be accepted as one. A header without payload is a
//! **mark**: it follows the last record that a sync has covered, and records that fact.

use crate::layout::{Field, size_of};
use crate::{Malformed, Reader};

/// Bytes of a record before its payload.
pub const HEADER_BYTES: usize = 20;
/// Longest payload, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 16 << 20;
/// Value of `behind` when there are too many records to count.
pub const BEHIND_UNKNOWN: u32 = u32::MAX;

/// Offset of `length`: what follows is under the checksum.
const LENGTH: usize = 4;

/// Layout of the header.
pub const LAYOUT: &[Field] = &[
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("length", "u32 LE", 4),
    Field::fixed("lsn", "u64 LE", 8),
    Field::fixed("behind", "u32 LE", 4),
];
const _: () = assert!(size_of(LAYOUT) == HEADER_BYTES);

const STRUCTURE: &str = "log record";

/// The header before a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// CRC32C of the volume's secret, payload and the rest of the header.
    pub checksum: u32,
    /// Bytes of payload; 0 in a mark.
    pub length: u32,
    /// Number of the record; of the last durable one in a mark.
    pub lsn: u64,
    /// Number of records between the last one known to be durable and this one.
    pub behind: u32,
}

/// The initial checksum, which depends on the volume's secret only.
pub fn seed(secret: &[u8; 16]) -> u32 {
    crc32c::crc32c(secret)
}

/// The checksum over a volume's seed and a payload; [`encode`] completes it.
#[inline]
pub fn sum_payload(seed: u32, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(seed, payload)
}

/// The header of a record whose payload has `payload_sum`. `durable` is the last record known to
/// be durable.
#[inline]
pub fn encode(payload_sum: u32, length: u32, lsn: u64, durable: u64) -> [u8; HEADER_BYTES] {
    let behind = u32::try_from(lsn.saturating_sub(durable)).unwrap_or(BEHIND_UNKNOWN);
    let [l0, l1, l2, l3] = length.to_le_bytes();
    let [n0, n1, n2, n3, n4, n5, n6, n7] = lsn.to_le_bytes();
    let [b0, b1, b2, b3] = behind.to_le_bytes();
    let rest = [l0, l1, l2, l3, n0, n1, n2, n3, n4, n5, n6, n7, b0, b1, b2, b3];
    let mut header = [0; HEADER_BYTES];
    let (checksum, body) = header.split_at_mut(LENGTH);
    checksum.copy_from_slice(&crc32c::crc32c_append(payload_sum, &rest).to_le_bytes());
    body.copy_from_slice(&rest);
    header
}

impl RecordHeader {
    /// Reads a header without verifying it.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<RecordHeader, Malformed> {
        let mut reader = Reader::new(STRUCTURE, bytes);
        let header = RecordHeader {
            checksum: reader.u32()?,
            length: reader.u32()?,
            lsn: reader.u64()?,
            behind: reader.u32()?,
        };
        if usize::try_from(header.length).is_ok_and(|length| length <= PAYLOAD_BYTES_MAX) {
            Ok(header)
        } else {
            Err(reader.malformed("a length within bounds", header.length.to_string()))
        }
    }

    /// Whether the checksum matches a payload of `payload_sum` behind this header.
    pub fn sums(&self, payload_sum: u32) -> bool {
        let [l0, l1, l2, l3] = self.length.to_le_bytes();
        let [n0, n1, n2, n3, n4, n5, n6, n7] = self.lsn.to_le_bytes();
        let [b0, b1, b2, b3] = self.behind.to_le_bytes();
        let rest = [l0, l1, l2, l3, n0, n1, n2, n3, n4, n5, n6, n7, b0, b1, b2, b3];
        crc32c::crc32c_append(payload_sum, &rest) == self.checksum
    }

    /// The last record that was durable when this one was written, if known.
    pub fn durable(&self) -> Option<u64> {
        (self.behind != BEHIND_UNKNOWN).then(|| self.lsn.saturating_sub(u64::from(self.behind)))
    }

    /// Whether it is a mark: it follows a sync and has no payload.
    pub fn is_mark(&self) -> bool {
        self.length == 0
    }
}

/// A verified record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its header.
    pub header: RecordHeader,
    /// The payload that the committer passed.
    pub payload: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads the record at the start of `bytes`, which may be longer.
    pub fn decode(seed: u32, bytes: &'a [u8]) -> Result<Record<'a>, Malformed> {
        let mut reader = Reader::new(STRUCTURE, bytes);
        let head = reader.array::<HEADER_BYTES>()?;
        let header = RecordHeader::decode(&head)?;
        let payload = reader.take(usize::try_from(header.length).unwrap_or(usize::MAX))?;
        let rest = head.get(LENGTH..).unwrap_or_default();
        let sum = crc32c::crc32c_append(sum_payload(seed, payload), rest);
        if sum == header.checksum {
            Ok(Record { header, payload })
        } else {
            let found = format!("checksum {:08x} over bytes of sum {sum:08x}", header.checksum);
            Err(Reader::new(STRUCTURE, bytes).malformed("a record with its checksum", found))
        }
    }

    /// Bytes that it takes in the log.
    pub fn bytes(&self) -> usize {
        HEADER_BYTES.saturating_add(self.payload.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damaged::every_flipped_bit_is_refused;

    const VOLUME: [u8; 16] = [7; 16];

    fn record(payload: &[u8], lsn: u64, durable: u64) -> Vec<u8> {
        let sum = sum_payload(seed(&VOLUME), payload);
        let length = u32::try_from(payload.len()).unwrap();
        let mut bytes = encode(sum, length, lsn, durable).to_vec();
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn record_round_trips_with_the_durable_number() {
        let bytes = record(b"payload", 42, 40);
        let found = Record::decode(seed(&VOLUME), &bytes).unwrap();
        assert_eq!((found.payload, found.header.lsn), (b"payload".as_slice(), 42));
        assert_eq!((found.header.durable(), found.bytes()), (Some(40), bytes.len()));
    }

    #[test]
    fn a_record_far_ahead_of_the_durable_one_proves_nothing() {
        let bytes = record(b"x", 1 << 40, 1);
        let found = Record::decode(seed(&VOLUME), &bytes).unwrap();
        assert_eq!(found.header.durable(), None);
    }

    #[test]
    fn encoded_bytes_are_fixed() {
        let bytes = record(b"ab", 0x0102, 0x0100);
        let hex = bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        let sum = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        assert_eq!(
            hex,
            format!("{:08x}", sum.swap_bytes()) + "0200000002010000000000000200000061" + "62"
        );
    }

    #[test]
    fn every_single_bit_flip_is_detected() {
        let good = record(b"some payload", 9, 8);
        every_flipped_bit_is_refused(&good, |bad| Record::decode(seed(&VOLUME), bad).is_err());
    }

    #[test]
    fn record_of_another_volume_is_refused() {
        let bytes = record(b"payload", 1, 0);
        assert!(Record::decode(seed(&[8; 16]), &bytes).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.usize(..64)).map(|_| random.u8(..)).collect();
            assert!(Record::decode(seed(&VOLUME), &bytes).is_err());
        }
    }
}
