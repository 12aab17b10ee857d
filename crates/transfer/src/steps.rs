//! A digest of the steps of a stream, without the bytes of contents. By it a sender finds that the
//! stream it makes now begins as the one that was cut. A sender that leaves steps out does not read
//! their contents, so these have no part in it.
//!
//! It is a chain: with the digest of some steps, that of more of them is made without the first.

use format::stream::Record;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The digest of the steps so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Steps(u64);

impl Steps {
    /// Continues from a digest.
    pub(crate) fn from(value: u64) -> Steps {
        Steps(value)
    }

    /// The digest; 0: of no step.
    pub(crate) fn value(self) -> u64 {
        self.0
    }

    /// Adds a step.
    pub(crate) fn add(&mut self, record: &Record<'_>, scratch: &mut Vec<u8>) {
        if let Record::Data { offset, bytes } = record {
            return self.add_data(*offset, bytes.len() as u64);
        }
        scratch.clear();
        record.encode(scratch);
        self.0 = xxh3_64_with_seed(scratch, self.0);
    }

    /// Adds a step with contents.
    pub(crate) fn add_data(&mut self, offset: u64, length: u64) {
        let mut place = [0; 16];
        place[..8].copy_from_slice(&offset.to_le_bytes());
        place[8..].copy_from_slice(&length.to_le_bytes());
        self.0 = xxh3_64_with_seed(&place, self.0);
    }
}
