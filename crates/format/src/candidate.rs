//! Candidate of `pando gc` (`docs/format/candidate.md`): an object that nothing names, and since
//! when that is known.
//!
//! Key: `W | kind | number | part` in the volume's tree.

use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// Key of an empty record: a tree was dropped, and no collection has looked since for the contents
/// that only it named. It begins a kind of its own.
pub const COLLECT_KEY: [u8; 1] = [b'M'];

/// Bytes of the record.
pub const BYTES: usize = 8;

/// Fields of the record.
pub const LAYOUT: &[Field] = &[Field::fixed("since", "i64 LE", 8)];
const _: () = assert!(size_of(LAYOUT) == BYTES);

/// The kind of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CandidateKind {
    /// A data segment, or pages of one.
    Segment,
    /// A tree.
    Tree,
    /// A manifest of the index.
    Manifest,
    /// A cluster of the index.
    Cluster,
}

impl CandidateKind {
    // DO NOT CHANGE THESE VALUES: they are on disk.
    /// The byte in the key.
    pub const fn byte(self) -> u8 {
        match self {
            CandidateKind::Segment => 1,
            CandidateKind::Tree => 2,
            CandidateKind::Manifest => 3,
            CandidateKind::Cluster => 4,
        }
    }
}

/// The record of a candidate that was found `since` nanoseconds after 1970.
pub fn encode(since: i64) -> Vec<u8> {
    let mut out = Vec::with_capacity(BYTES);
    out.put_i64(since);
    out
}

/// When a candidate was found.
pub fn decode(bytes: &[u8]) -> Result<i64, Malformed> {
    let mut reader = Reader::new("candidate", bytes);
    let since = reader.i64()?;
    reader.end()?;
    Ok(since)
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn a_time_round_trips_and_other_lengths_are_refused() {
        for since in [0, -5, i64::MAX] {
            assert_eq!(decode(&encode(since)), Ok(since));
        }
        assert!(decode(&[0; 7]).is_err() && decode(&[0; 9]).is_err());
    }
}
