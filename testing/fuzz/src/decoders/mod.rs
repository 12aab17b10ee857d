//! The decoders of `format`, one target for each structure. A test compares this list with the
//! sources of `format`: it fails for a decoder or a layout that no target names.

mod volume;
mod namespace;
mod answers;
mod engine;
mod index;
mod log;
mod runs;
mod stream;
mod trace;

use crate::target::Target;

/// All of them.
pub fn targets() -> Vec<Target> {
    [
        engine::TARGETS,
        runs::TARGETS,
        trace::TARGETS,
        log::TARGETS,
        volume::TARGETS,
        namespace::TARGETS,
        index::TARGETS,
        stream::TARGETS,
        answers::TARGETS,
    ]
    .concat()
}

/// Puts the CRC-32C of `over` (several ranges, one after the other) into four bytes at `at`.
pub(crate) fn put_sum(bytes: &mut [u8], at: usize, over: &[(usize, usize)]) {
    let mut sum = 0;
    for (start, end) in over {
        let end = (*end).min(bytes.len());
        sum = crc32c::crc32c_append(sum, bytes.get(*start..end).unwrap_or_default());
    }
    if let Some(slot) = bytes.get_mut(at..at + 4) {
        slot.copy_from_slice(&sum.to_le_bytes());
    }
}

/// The round trip required of a decoder with an encoder: decoded data, encoded, decodes to the
/// same.
#[track_caller]
fn again<'a, T: PartialEq + std::fmt::Debug, E: std::fmt::Debug>(
    first: &T,
    encoded: &'a [u8],
    decode: impl FnOnce(&'a [u8]) -> Result<T, E>,
) {
    match decode(encoded) {
        Ok(second) => assert_eq!(*first, second, "read once more it is something else"),
        Err(error) => panic!("what was read is not read once more: {error:?}"),
    }
}
