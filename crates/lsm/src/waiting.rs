//! Entries of a run that wait for the value log's block that one of them points to; the others are
//! between such entries.

use format::run_block::Stored;
use store::Result;

/// Bytes from which nothing more may wait.
const BYTES_MAX: usize = 64 << 10;

/// What an entry is.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Tombstone,
    Value,
    Far,
    /// A row of the block, with a value of this many bytes.
    Row(u32),
}

/// The content of an entry that need not wait any more.
pub(crate) enum Waited<'a> {
    Stored(Stored<'a>),
    /// A row of the block, with a value of this many bytes.
    Row(u32),
}

/// Entries that wait, ascending.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    bytes: Vec<u8>,
    /// Where the key and the value of each end in the bytes.
    entries: Vec<(usize, usize, Kind)>,
}

impl Waiting {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether enough waits that the block must be written.
    pub(crate) fn is_long(&self) -> bool {
        self.bytes.len() >= BYTES_MAX
    }

    pub(crate) fn push(&mut self, key: &[u8], stored: Stored<'_>) {
        match stored {
            Stored::Tombstone => self.add(key, &[], Kind::Tombstone),
            Stored::Value(value) => self.add(key, value, Kind::Value),
            Stored::Far(pointer) => self.add(key, pointer, Kind::Far),
        }
    }

    /// A row of the unwritten block.
    pub(crate) fn push_row(&mut self, key: &[u8], length: u32) {
        self.add(key, &[], Kind::Row(length));
    }

    fn add(&mut self, key: &[u8], value: &[u8], kind: Kind) {
        self.bytes.extend_from_slice(key);
        let end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.entries.push((end, self.bytes.len(), kind));
    }

    /// Passes all to `give`, in order.
    pub(crate) fn drain(
        &mut self,
        mut give: impl FnMut(&[u8], Waited<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut at = 0;
        for (key, value, kind) in self.entries.drain(..) {
            let (key, value) = (&self.bytes[at..key], &self.bytes[key..value]);
            at += key.len() + value.len();
            let waited = match kind {
                Kind::Tombstone => Waited::Stored(Stored::Tombstone),
                Kind::Value => Waited::Stored(Stored::Value(value)),
                Kind::Far => Waited::Stored(Stored::Far(value)),
                Kind::Row(length) => Waited::Row(length),
            };
            give(key, waited)?;
        }
        self.bytes.clear();
        Ok(())
    }
}
