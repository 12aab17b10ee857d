//! Bloom filters of a cluster (`docs/format/cluster.md`): sets that answer "no" or "maybe".
//!
//! A filter is sized to its members, in whole bytes instead of powers of two. The hash is XXH3 and
//! never changes: filters are on disk.

use crate::{Malformed, Reader, Writer};

const STRUCTURE: &str = "cluster filter";

/// Longest filter, in bytes.
pub const FILTER_BYTES_MAX: usize = 2 << 20;
/// Most bits set for a member.
const HASHES_MAX: u8 = 16;

/// The hash of a member.
#[inline]
pub fn hash(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// The hash of a number.
#[inline]
pub fn hash_number(value: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&value.to_le_bytes())
}

/// A Bloom filter. One without bits answers "maybe" to everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    hashes: u8,
    bits: Box<[u8]>,
}

impl Filter {
    /// A filter of these members, with `bits_each` bits for each, as long as it takes at most
    /// `bytes_max`.
    pub fn build(members: &[u64], bits_each: u32, bytes_max: usize) -> Filter {
        let wanted = members.len().saturating_mul(usize::try_from(bits_each).unwrap_or(8));
        let bytes = wanted.div_ceil(8).clamp(1, bytes_max.clamp(1, FILTER_BYTES_MAX));
        // Bits-per-member x ln 2 hashes give the fewest false positives.
        let each = bytes.saturating_mul(8).checked_div(members.len().max(1)).unwrap_or(8);
        let hashes = each.saturating_mul(69).div_ceil(100).clamp(1, usize::from(HASHES_MAX));
        let mut filter = Filter {
            hashes: u8::try_from(hashes).unwrap_or(HASHES_MAX),
            bits: vec![0; bytes].into(),
        };
        for &member in members {
            for place in places(member, filter.hashes, filter.bits.len()) {
                if let Some(byte) = filter.bits.get_mut(place.wrapping_shr(3)) {
                    *byte |= bit(place);
                }
            }
        }
        filter
    }

    /// Whether a member may have this hash.
    #[inline]
    pub fn may_have(&self, member: u64) -> bool {
        places(member, self.hashes, self.bits.len())
            .all(|place| self.bits.get(place.wrapping_shr(3)).is_none_or(|b| b & bit(place) != 0))
    }

    /// Appends the filter.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.hashes);
        out.put_bytes(&self.bits);
    }

    /// Reads a filter.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Filter, Malformed> {
        let hashes = reader.u8()?;
        if !(1..=HASHES_MAX).contains(&hashes) {
            return Err(reader.malformed(STRUCTURE, format!("{hashes} hashes")));
        }
        let length = reader.length(FILTER_BYTES_MAX)?;
        Ok(Filter { hashes, bits: reader.take(length)?.into() })
    }

    /// Bytes that this takes in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Filter>().saturating_add(self.bits.len())
    }
}

fn bit(place: usize) -> u8 {
    1_u8.wrapping_shl(u32::try_from(place & 7).unwrap_or(0))
}

/// Positions of the bits of a member: two halves of its hash generate as many as needed (Kirsch and
/// Mitzenmacher, 2006).
#[inline]
fn places(member: u64, hashes: u8, bytes: usize) -> impl Iterator<Item = usize> {
    let bits = u64::try_from(bytes.saturating_mul(8)).unwrap_or(u64::MAX);
    let step = member.rotate_left(32) | 1;
    (0..u64::from(hashes)).map(move |n| {
        let mixed = member.wrapping_add(n.wrapping_mul(step));
        let place = u128::from(mixed).wrapping_mul(u128::from(bits)).wrapping_shr(64);
        usize::try_from(place).unwrap_or(usize::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_and_few_others() {
        let members: Vec<u64> = (0..10_000).map(hash_number).collect();
        let filter = Filter::build(&members, 10, 1 << 20);
        assert!(members.iter().all(|&member| filter.may_have(member)));
        let wrong = (10_000..110_000).filter(|&n| filter.may_have(hash_number(n))).count();
        assert!(wrong < 1500, "{wrong} of 100,000");
        let mut bytes = Vec::new();
        filter.encode(&mut bytes);
        assert!(bytes.len() < 12_600);
        assert_eq!(Filter::decode(&mut Reader::new("test", &bytes)), Ok(filter));
    }

    #[test]
    fn a_filter_that_is_too_small_still_has_its_members() {
        let members: Vec<u64> = (0..10_000).map(hash_number).collect();
        let filter = Filter::build(&members, 10, 2048);
        assert!(members.iter().all(|&member| filter.may_have(member)));
        assert!(Filter::build(&[], 10, 2048).bits.len() == 1);
        assert!(!Filter::build(&[], 10, 2048).may_have(77));
    }

    #[test]
    fn the_hash_of_bytes_is_fixed() {
        assert_eq!(hash(b"pando"), GOLDEN);
        assert_eq!(hash_number(7), hash(&[7, 0, 0, 0, 0, 0, 0, 0]));
    }

    const GOLDEN: u64 = 3_780_109_049_229_242_705;

    #[test]
    fn any_bytes_decode_or_fail_without_panic() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..10_000 {
            let bytes: Vec<u8> = (0..random.usize(..40)).map(|_| random.u8(..)).collect();
            if let Ok(filter) = Filter::decode(&mut Reader::new("test", &bytes)) {
                filter.may_have(random.u64(..));
            }
        }
    }
}
