//! Usage of a data segment (`docs/format/usage.md`): how many of its pages live extents refer to.
//!
//! Key: `G | segment` in the volume tree. Merges change it in the batches that write and free
//! extents, so that a crash leaves it exact. Pages that a clone may still refer to are not
//! subtracted when one side drops them. So it is an upper bound until a mark corrects it.

use crate::Malformed;
use crate::Reader;
use crate::layout::{Field, size_of};

/// Bytes of the record.
pub const USAGE_BYTES: usize = 8;
/// Offset of the lane that counts live pages.
pub const LIVE_PAGES_LANE: u16 = 0;

/// Fields of the record.
pub const LAYOUT: &[Field] = &[Field::fixed("live_pages", "i64 LE", 8)];
const _: () = assert!(size_of(LAYOUT) == USAGE_BYTES);

/// The live pages of a usage record.
pub fn decode(bytes: &[u8]) -> Result<i64, Malformed> {
    let mut reader = Reader::new("usage", bytes);
    let live = reader.i64()?;
    if live < 0 {
        return Err(reader.malformed("a count of pages", live.to_string()));
    }
    reader.end()?;
    Ok(live)
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn a_count_round_trips_and_a_negative_one_is_refused() {
        assert_eq!(decode(&5_i64.to_le_bytes()), Ok(5));
        assert!(decode(&(-1_i64).to_le_bytes()).is_err());
        assert!(decode(&[0; 7]).is_err());
        assert!(decode(&[0; 9]).is_err());
    }
}
