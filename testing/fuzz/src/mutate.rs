//! Damage: flipped bits, numbers at the edges of their types, wrong lengths, parts removed,
//! repeated, and inserted from elsewhere.

use fastrand::Rng;

/// Numbers at which arithmetic tends to fail.
const EDGES: [u64; 20] = [
    0,
    1,
    2,
    7,
    8,
    0x7f,
    0x80,
    0xff,
    0x100,
    0xfff,
    0x1000,
    0x7fff,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
];

/// Input does not grow beyond this.
const BYTES_MAX: usize = 1 << 20;

/// Damages `bytes` in one to eight ways; `other` is input of the same kind, or empty.
pub(crate) fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Rng) {
    for _ in 0..1 << random.u32(..4) {
        once(bytes, other, random);
    }
    bytes.truncate(BYTES_MAX);
}

fn once(bytes: &mut Vec<u8>, other: &[u8], random: &mut Rng) {
    if bytes.is_empty() {
        bytes.push(random.u8(..));
        return;
    }
    // The most decisive bytes are at the front.
    let reach = if random.bool() { bytes.len().min(64) } else { bytes.len() };
    let at = random.usize(..reach);
    match random.u8(..11) {
        0 | 1 => bytes[at] ^= 1 << random.u32(..8),
        2 => bytes[at] = random.u8(..),
        3 => bytes[at] = bytes[at].wrapping_add(if random.bool() { 1 } else { 0xff }),
        4 | 5 => number(bytes, at, random),
        6 => {
            let end = (at + random.usize(1..16)).min(bytes.len());
            bytes.drain(at..end);
        }
        7 => {
            let end = (at + random.usize(1..32)).min(bytes.len());
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        8 => {
            let new: Vec<u8> = (0..random.usize(1..16)).map(|_| random.u8(..)).collect();
            bytes.splice(at..at, new);
        }
        9 if !other.is_empty() => {
            let from = random.usize(..other.len());
            let end = (from + random.usize(1..256)).min(other.len());
            let over = (at + (end - from)).min(bytes.len());
            bytes.splice(at..over, other[from..end].iter().copied());
        }
        _ => bytes.truncate(at),
    }
}

/// A number at an edge, little- or big-endian, or as a varint in place of a byte.
fn number(bytes: &mut Vec<u8>, at: usize, random: &mut Rng) {
    let value = EDGES[random.usize(..EDGES.len())];
    if random.u8(..3) == 0 {
        let mut rest = value;
        let mut coded = Vec::new();
        while rest >= 0x80 {
            coded.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        coded.push(rest as u8);
        bytes.splice(at..=at, coded);
        return;
    }
    let width = [1, 2, 4, 8][random.usize(..4)];
    let coded = if random.bool() {
        value.to_le_bytes()[..width].to_vec()
    } else {
        (value << (64 - 8 * width)).to_be_bytes()[..width].to_vec()
    };
    for (slot, byte) in bytes[at..].iter_mut().zip(coded) {
        *slot = byte;
    }
}
