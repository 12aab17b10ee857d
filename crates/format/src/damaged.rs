//! What a checksum promises, for the tests of each structure that has one: no flipped bit and no
//! truncation is decoded.

/// Asserts that bytes with any one bit flipped are refused.
pub(crate) fn every_flipped_bit_is_refused(bytes: &[u8], is_refused: impl Fn(&[u8]) -> bool) {
    let mut bad = bytes.to_vec();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            bad[at] ^= 1 << bit;
            assert!(is_refused(&bad), "bit {bit} of byte {at}");
            bad[at] ^= 1 << bit;
        }
    }
}

/// Asserts the same, and that each part from the beginning is refused.
pub(crate) fn every_flipped_bit_and_truncation_is_refused(
    bytes: &[u8],
    is_refused: impl Fn(&[u8]) -> bool,
) {
    every_flipped_bit_is_refused(bytes, &is_refused);
    for length in 0..bytes.len() {
        assert!(is_refused(&bytes[..length]), "the first {length} bytes");
    }
}
