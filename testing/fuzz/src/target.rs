//! A fuzz target: a way to make valid input, a way to correct checksums after damage, and the code
//! that uses the result. A case is a function of seed, target and number, so that the input of a
//! process that died or hung can be made again.

use fastrand::Rng;

use crate::mutate::mutate;

/// The category that a target counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// Decoded bytes: structures on disk, messages, queries.
    Decoders,
    /// Calls of the file system, also on volumes with damage.
    Operations,
}

/// A target that takes bytes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name on command lines and in findings.
    pub name: &'static str,
    /// The category that it counts for.
    pub part: Category,
    /// Decoders and layouts of `format` that it reaches, as `module::item`, and messages of `wire`,
    /// as `wire::Type`.
    pub covers: &'static [&'static str],
    /// Valid input.
    pub make: fn(&mut Rng) -> Vec<u8>,
    /// Corrects the checksums in damaged input, so that the code behind them is reached.
    pub repair: fn(&mut [u8]),
    /// Runs the input; returns whether it was understood. Must not panic, whatever the input.
    pub run: fn(&[u8]) -> bool,
}

/// For structures without a checksum.
pub fn no_checksum(_: &mut [u8]) {}

/// Reads the answer, and does nothing with it.
pub(crate) fn seen<T>(answer: T) {
    drop(std::hint::black_box(answer));
}

impl Target {
    /// The input of a case. One in sixteen is valid: if those are not understood, the rest has no
    /// effect.
    pub fn case(&self, seed: u64, number: u64) -> Vec<u8> {
        let name = self.name.bytes().fold(seed, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
        });
        let mut random = Rng::with_seed(name ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut bytes = (self.make)(&mut random);
        if self.part == Category::Operations {
            // The engine below the volume depends on it, so that all are used equally often.
            bytes.extend_from_slice(&number.to_le_bytes());
            return bytes;
        }
        if random.u8(..16) == 0 {
            return bytes;
        }
        let other = if random.u8(..4) == 0 { (self.make)(&mut random) } else { Vec::new() };
        mutate(&mut bytes, &other, &mut random);
        // Checksums are sometimes left wrong, because decoding covers them too.
        if random.u8(..8) != 0 {
            (self.repair)(&mut bytes);
        }
        bytes
    }
}
