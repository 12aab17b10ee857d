//! The keyed hash of names, which orders a directory (`docs/format/keys.md`).
//!
//! SipHash-1-3 keyed with a secret of the volume, so that no user can choose names that collide. It
//! is truncated to 55 bits, so that hash and collision index fit in a directory cookie of 63 bits.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

/// Hashes the names of one volume.
#[derive(Debug, Clone, Copy)]
pub struct NameHash {
    key: (u64, u64),
    shift: u32,
}

impl NameHash {
    /// Bits of a hash.
    pub const BITS: u32 = 55;

    /// The hash with a key.
    pub fn new(key: [u8; 16]) -> NameHash {
        NameHash::with_bits(key, NameHash::BITS)
    }

    /// A hash of fewer bits, so that tests can choose how often names collide.
    pub fn with_bits(key: [u8; 16], bits: u32) -> NameHash {
        assert!((1..=NameHash::BITS).contains(&bits), "{bits} bits");
        let word = u128::from_le_bytes(key);
        NameHash { key: (word as u64, (word >> 64) as u64), shift: 64 - bits }
    }

    /// The hash of a name, from 1 to 2^55 - 1.
    #[inline]
    pub fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        hasher.write(name);
        // 0 is the directory itself; a name that would have it uses the next value.
        (hasher.finish() >> self.shift).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::NameHash;

    #[test]
    fn hashes_are_in_range_and_depend_on_the_key() {
        let one = NameHash::new([1; 16]);
        let two = NameHash::new([2; 16]);
        for name in [&b"a"[..], b"b", &[0xff; 255]] {
            assert!((1..1 << 55).contains(&one.hash(name)));
            assert_ne!(one.hash(name), two.hash(name));
        }
        let weak = NameHash::with_bits([1; 16], 1);
        assert!((0..100_u8).all(|n| weak.hash(&[n]) == 1));
    }

    /// The hash is on disk: it must never change.
    #[test]
    fn the_hash_of_a_name_is_fixed() {
        assert_eq!(NameHash::new([7; 16]).hash(b"pando"), GOLDEN);
    }

    const GOLDEN: u64 = 33_421_480_941_757_904;
}
