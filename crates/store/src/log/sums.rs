//! Checksums of any part of a long buffer, each in constant time regardless of its length.
//!
//! The search of a torn tail checks at every byte whether a record begins there. A user could fill
//! the log with bytes that look like headers of long records. The search would then sum megabytes
//! for each of millions of places. But CRC32C is linear: the state for bytes `a..b` follows from
//! the states after `..a` and `..b`. These are stored every `STRIDE` bytes, in one pass.
//!
//! A state is the content of the CRC's register, without the inversions at either end. It is 0
//! after no bytes. It is `shift`ed by the number of following bytes, whatever they are, before
//! their own state is added. A shift by n bytes multiplies by x^(8n) modulo the polynomial.

use format::log_record::sum_payload;

/// Bytes from one known state to the next.
const STRIDE: usize = 256;
/// The polynomial of CRC32C, its bits reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// x^0, its bits reversed.
const ONE: u32 = 1 << 31;
/// Lengths are split in two parts of this many bits, each with a table of powers.
const PART_BITS: usize = 13;
const PART: usize = 1 << PART_BITS;

/// The product of two polynomials modulo CRC32C's.
fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    for bit in (0..32).rev() {
        product ^= b & (0_u32.wrapping_sub(a >> bit & 1));
        b = (b >> 1) ^ (POLYNOMIAL & 0_u32.wrapping_sub(b & 1));
    }
    product
}

/// `powers[i]` is `base` to the power i.
fn powers(base: u32) -> Vec<u32> {
    std::iter::successors(Some(ONE), |&last| Some(multiply(last, base))).take(PART).collect()
}

/// The state after `bytes` that follow a state.
fn advance(state: u32, bytes: &[u8]) -> u32 {
    !sum_payload(!state, bytes)
}

/// A buffer, with its stored states.
pub(super) struct Sums<'a> {
    bytes: &'a [u8],
    /// States after each multiple of `STRIDE` bytes.
    states: Vec<u32>,
    /// Powers of x^8, and of x^(8 * PART).
    low: Vec<u32>,
    high: Vec<u32>,
}

impl<'a> Sums<'a> {
    /// Reads the buffer, once.
    pub(super) fn new(bytes: &'a [u8]) -> Sums<'a> {
        let mut states = Vec::with_capacity(bytes.len() / STRIDE + 1);
        let mut state = 0;
        for chunk in bytes.chunks(STRIDE) {
            states.push(state);
            state = advance(state, chunk);
        }
        states.push(state);
        let low = powers(ONE >> 8);
        let high = powers(multiply(low[PART - 1], low[1]));
        Sums { bytes, states, low, high }
    }

    /// The state after the first `end` bytes.
    fn state(&self, end: usize) -> u32 {
        let known = end / STRIDE;
        advance(self.states[known], &self.bytes[known * STRIDE..end])
    }

    fn shift(&self, state: u32, bytes: usize) -> u32 {
        let mut shifted = multiply(self.low[bytes % PART], state);
        let mut rest = bytes >> PART_BITS;
        while rest > 0 {
            // Once, for parts of less than 64 MiB.
            let step = rest.min(PART - 1);
            shifted = multiply(self.high[step], shifted);
            rest -= step;
        }
        shifted
    }

    /// Equals `sum_payload(seed, &bytes[from..to])`.
    pub(super) fn sum(&self, seed: u32, from: usize, to: usize) -> u32 {
        !(self.state(to) ^ self.shift(self.state(from) ^ !seed, to - from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_checksums_equal_those_of_their_bytes() {
        let mut random = fastrand::Rng::with_seed(1);
        for length in [0, 1, 255, 256, 257, 70_000] {
            let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            let sums = Sums::new(&bytes);
            for _ in 0..500 {
                let to = random.usize(0..=length);
                let from = random.usize(0..=to);
                let seed = random.u32(..);
                let expected = sum_payload(seed, &bytes[from..to]);
                assert_eq!(sums.sum(seed, from, to), expected, "{from}..{to} of {length}");
            }
        }
    }

    #[test]
    fn long_parts_are_shifted_by_more_than_one_table() {
        let bytes = vec![7; PART * 3 + 5];
        let sums = Sums::new(&bytes);
        assert_eq!(sums.sum(3, 1, bytes.len()), sum_payload(3, &bytes[1..]));
        let by = PART * (PART - 1) + PART * 5 + 9;
        let twice = sums.shift(sums.shift(0x1234_5678, PART * (PART - 1)), PART * 5 + 9);
        assert_eq!(sums.shift(0x1234_5678, by), twice);
    }
}
