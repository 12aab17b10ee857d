//! The entries: keys of a namespace (8 bytes of parent, name, type), 1,000 in a directory, and
//! values of 100 bytes that do not compress. All are computed, so that they take no memory.

/// Entries in a directory.
pub(crate) const A_DIRECTORY: u64 = 1000;
const NAME_BYTES: usize = 16;
/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 8 + NAME_BYTES + 1;
/// Bytes of a value.
pub(crate) const VALUE_BYTES: usize = 100;
const FIRST_PARENT: u64 = 1000;
const KIND: u8 = 1;

/// Whether a key is one of those that are inserted at first, or adjacent to one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    There,
    Absent,
    /// Inserted into a store that has the others.
    Added,
}

/// The key of an entry; ascending with its number.
#[inline]
pub(crate) fn key(number: u64, kind: Kind) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&prefix(number / A_DIRECTORY));
    key[8..24].copy_from_slice(match kind {
        Kind::There => b"file00000000.dat",
        Kind::Absent => b"file00000000.doc",
        Kind::Added => b"file00000000.eps",
    });
    let mut rest = number;
    for place in key[12..20].iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key[24] = KIND;
    key
}

/// What the keys of a directory start with.
pub(crate) fn prefix(directory: u64) -> [u8; 8] {
    (FIRST_PARENT + directory).to_be_bytes()
}

/// The value of an entry.
#[inline]
pub(crate) fn value(number: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    let mut state = number;
    for chunk in value.chunks_mut(8) {
        state = mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
    value
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The numbers below a bound in an order without pattern, each once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shuffle {
    bound: u64,
    half_bits: u32,
    seed: u64,
}

impl Shuffle {
    pub(crate) fn new(bound: u64, seed: u64) -> Shuffle {
        let bits = u64::BITS - (bound - 1).leading_zeros();
        Shuffle { bound, half_bits: bits.div_ceil(2).max(1), seed }
    }

    /// The number at a place: a Feistel network over the next power of four, walked until the
    /// result is below the bound.
    #[inline]
    pub(crate) fn at(&self, place: u64) -> u64 {
        let mut number = place;
        loop {
            number = self.permute(number);
            if number < self.bound {
                return number;
            }
        }
    }

    #[inline]
    fn permute(&self, number: u64) -> u64 {
        let mask = (1_u64 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 0..4_u64 {
            let scrambled = mix(right ^ self.seed.wrapping_add(round << 32)) & mask;
            (left, right) = (right, left ^ scrambled);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_has_every_number_once() {
        for bound in [1000, 1024, 4097] {
            let shuffle = Shuffle::new(bound, 7);
            let mut seen: Vec<u64> = (0..bound).map(|place| shuffle.at(place)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..bound));
        }
    }

    #[test]
    fn keys_ascend() {
        let keys: Vec<_> = (0..5000).map(|number| key(number, Kind::There)).collect();
        assert!(keys.is_sorted());
        assert!(key(3, Kind::There) < key(3, Kind::Absent));
        assert!(key(3, Kind::Absent) < key(4, Kind::There));
    }
}
