//! What is fuzzed: a way to make valid input, a way to make checksums right again after damage,
//! and what is done with the result. A case is a function of seed, target and number, so that a
//! process that died or hangs leaves enough behind to make its input once more.

use fastrand::Rng;

use crate::mutate::mutate;

/// Which bar a target counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Bytes that are read: structures on disk, messages, queries.
    Decoders,
    /// Calls of the file system, also on volumes with damage.
    Operations,
}

/// One thing that takes bytes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name on command lines and in findings.
    pub name: &'static str,
    /// The bar that it counts for.
    pub part: Part,
    /// Decoders and layouts of `format` that it reaches, as `module::item`.
    pub covers: &'static [&'static str],
    /// Valid input.
    pub make: fn(&mut Rng) -> Vec<u8>,
    /// Makes the checksums in damaged input right, so that what lies behind them is reached.
    pub mend: fn(&mut [u8]),
    /// Takes the input; whether it was understood. Must not panic, whatever the input.
    pub run: fn(&[u8]) -> bool,
}

/// For structures without a checksum.
pub fn no_checksum(_: &mut [u8]) {}

/// Looks at what was answered, and makes nothing of it.
pub(crate) fn seen<T>(answer: T) {
    drop(std::hint::black_box(answer));
}

impl Target {
    /// The input of a case. One in sixteen is valid: if those are not understood, the rest
    /// reaches nothing.
    pub fn case(&self, seed: u64, number: u64) -> Vec<u8> {
        let name = self.name.bytes().fold(seed, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
        });
        let mut random = Rng::with_seed(name ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut bytes = (self.make)(&mut random);
        if self.part == Part::Operations {
            // What is below the volume goes by it, so that all are had alike often.
            bytes.extend_from_slice(&number.to_le_bytes());
            return bytes;
        }
        if random.u8(..16) == 0 {
            return bytes;
        }
        let other = if random.u8(..4) == 0 { (self.make)(&mut random) } else { Vec::new() };
        mutate(&mut bytes, &other, &mut random);
        // Checksums are left wrong at times, for they are a part of what is decoded.
        if random.u8(..8) != 0 {
            (self.mend)(&mut bytes);
        }
        bytes
    }
}
