//! Hash maps for hot paths: a fast hash, so code never relies on order.
//!
//! A lint denies `std`'s maps because their order differs from run to run. These do not randomise,
//! so a run repeats, and `clippy::iter_over_hash_type` forbids loops over them.
#![expect(clippy::disallowed_types, reason = "this module is the replacement")]

use std::hash::{BuildHasherDefault, Hasher};

/// A hash map with a fast, unseeded hash; keys must not come from an adversary.
pub type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FastHasher>>;

/// A hash set with a fast, unseeded hash; keys must not come from an adversary.
pub type Set<K> = std::collections::HashSet<K, BuildHasherDefault<FastHasher>>;

/// Multiply-and-fold hashing of integers and short byte strings.
#[derive(Debug, Default, Clone, Copy)]
pub struct FastHasher {
    state: u64,
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl FastHasher {
    fn mix(&mut self, word: u64) {
        let wide = u128::from(self.state ^ word).wrapping_mul(u128::from(MULTIPLIER) << 1 | 1);
        self.state = (wide as u64) ^ ((wide >> 64) as u64) ^ MULTIPLIER;
    }
}

impl Hasher for FastHasher {
    fn finish(&self) -> u64 {
        self.state
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(bytes.len() as u64);
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }
}
