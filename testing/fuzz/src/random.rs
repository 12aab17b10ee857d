//! Random parts of valid structures.

use fastrand::Rng;
use format::{COUNTED_MAX, Pointer};

/// A number of any magnitude, small ones more often than in a uniform distribution.
pub(crate) fn number(random: &mut Rng) -> u64 {
    match random.u8(..16) {
        0 => u64::MAX,
        1 => 0,
        _ => random.u64(..) >> random.u32(..64),
    }
}

/// A number assigned in sequence: up to the greatest that decoders accept.
pub(crate) fn counted(random: &mut Rng) -> u64 {
    match random.u8(..16) {
        0 => COUNTED_MAX,
        _ => number(random) >> 2,
    }
}

/// A number of 32 bits, likewise.
pub(crate) fn number32(random: &mut Rng) -> u32 {
    random.u32(..) >> random.u32(..32)
}

/// A signed number, likewise.
pub(crate) fn signed(random: &mut Rng) -> i64 {
    number(random).cast_signed()
}

/// At most `most` bytes.
pub(crate) fn bytes(random: &mut Rng, most: usize) -> Vec<u8> {
    let length = random.usize(..=most);
    (0..length).map(|_| random.u8(..)).collect()
}

/// At least one letter and at most `most`.
pub(crate) fn name(random: &mut Rng, most: usize) -> Vec<u8> {
    let length = random.usize(1..=most);
    (0..length).map(|_| random.u8(b'a'..=b'z')).collect()
}

/// Different byte strings in ascending order.
pub(crate) fn ascending(random: &mut Rng, count: usize, most: usize) -> Vec<Vec<u8>> {
    let mut all: Vec<_> = (0..count).map(|_| bytes(random, most)).collect();
    all.sort();
    all.dedup();
    all
}

/// A pointer to a node.
pub(crate) fn pointer(random: &mut Rng) -> Pointer {
    Pointer {
        unit: random.u64(..format::UNITS_END),
        units: random.u16(1..=format::POINTER_UNITS_MAX),
        overflows: random.bool(),
        checksum: random.u32(..),
    }
}

/// Sixteen bytes.
pub(crate) fn id(random: &mut Rng) -> [u8; 16] {
    random.u128(..).to_le_bytes()
}
