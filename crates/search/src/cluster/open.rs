//! An open cluster: its head in memory, its columns where they are needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use format::Malformed;
use format::cluster::{COLUMNS, ColumnId, Decoded, HEADER_BYTES, Head, Stored, VERSION};
use inode::NameHash;
use parking_lot::Mutex;

use super::column::{Column, Shape, needed_for};
use super::{Fields, Rows, Source, Summary};
use crate::{Error, Result};

/// Bytes read at once on opening: most heads are shorter.
const HEAD_BYTES_GUESSED: usize = 32 << 10;
/// Bytes of a column read at once: nearly all columns are shorter.
const COLUMN_PART_BYTES: usize = 4 << 20;

/// An immutable cluster. Shared freely; every call may read.
pub struct Cluster {
    source: Arc<dyn Source>,
    hash: NameHash,
    shape: Shape,
    bytes: u64,
    stored: [Stored; COLUMNS],
    summary: Summary,
    /// Columns in memory. A lock is held while its column is read, so that none is read twice.
    columns: [Mutex<Option<Arc<Column>>>; COLUMNS],
    /// Bytes of the columns in memory.
    held: AtomicUsize,
}

impl Cluster {
    /// Reads and checks the head, and nothing more. `hash` is the volume's: cookies are made from
    /// names.
    pub fn open(source: Arc<dyn Source>, hash: NameHash) -> Result<Cluster> {
        let located = |error: Malformed| error.located(source.name(), 0);
        let mut bytes = vec![0; HEAD_BYTES_GUESSED];
        let got = source.read_at(&mut bytes, 0)?;
        bytes.truncate(got);
        let start = bytes.get(..HEADER_BYTES).unwrap_or(&bytes);
        let length = match Head::claimed_length(start).map_err(located)? {
            Decoded::Known(length) => length,
            Decoded::Newer(found) => {
                let file = source.name().to_owned();
                let newer = store::Error::NewerFormat { file, found, known: VERSION };
                return Err(Error::Store(newer));
            }
        };
        if length > bytes.len() && got == HEAD_BYTES_GUESSED {
            bytes.resize(length, 0);
            let more = source.read_at(&mut bytes[got..], got as u64)?;
            bytes.truncate(got + more);
        }
        bytes.truncate(length);
        let head = Head::decode(&bytes).map_err(located)?;
        let mut stored = [Stored::Constant(0); COLUMNS];
        for &(id, how) in &head.columns {
            stored[id as usize] = how;
        }
        let summary = Summary::decode(head.summary).map_err(located)?;
        let shape = Shape { rows: head.rows, block_rows: head.block_rows };
        let bytes = head.bytes;
        let columns = std::array::from_fn(|_| Mutex::new(None));
        let held = AtomicUsize::new(0);
        Ok(Cluster { source, hash, shape, bytes, stored, summary, columns, held })
    }

    /// What it says of its rows.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Rows, numbered from 0 in no order that means anything.
    pub fn len(&self) -> u32 {
        self.shape.rows
    }

    /// Never: a cluster has rows.
    pub fn is_empty(&self) -> bool {
        self.shape.rows == 0
    }

    /// Length of the whole blob, in bytes.
    pub fn stored_bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes in memory now: head, summary and the columns that were read; and all that they are
    /// read from, of a cluster that lies in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Cluster>()
            + self.source.memory_bytes()
            + self.summary.memory_bytes()
            + self.held.load(Ordering::Relaxed)
    }

    /// Lets go of all columns. What runs keeps those that it uses.
    pub fn release(&self) {
        for slot in &self.columns {
            if let Some(column) = slot.lock().take() {
                self.held.fetch_sub(column.memory_bytes(), Ordering::Relaxed);
            }
        }
    }

    /// Reads and verifies all columns, and keeps none.
    pub fn verify(&self) -> Result<()> {
        let read = ColumnId::ALL.into_iter().try_for_each(|id| self.column(id).map(drop));
        self.release();
        read
    }

    /// Access to rows, by number: reads the columns of these fields.
    pub fn rows(&self, fields: Fields) -> Result<Rows> {
        Rows::load(self, fields)
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    pub(super) fn hash(&self) -> NameHash {
        self.hash
    }

    /// The column, read now if it is not in memory.
    pub(super) fn column(&self, id: ColumnId) -> Result<Arc<Column>> {
        let stored = self.stored[id as usize];
        let needed = needed_for(id, stored).map(|needed| self.column(needed)).transpose()?;
        let mut slot = self.columns[id as usize].lock();
        if let Some(column) = &*slot {
            return Ok(Arc::clone(column));
        }
        let column = Arc::new(self.read(id, stored, needed)?);
        self.held.fetch_add(column.memory_bytes(), Ordering::Relaxed);
        *slot = Some(Arc::clone(&column));
        Ok(column)
    }

    /// As much of `length` bytes as there is. Takes no memory for more than a part beyond that: a
    /// length is believed when it was read.
    fn read_up_to(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let start = bytes.len();
            bytes.resize(start + (length - start).min(COLUMN_PART_BYTES), 0);
            let got = self.source.read_at(&mut bytes[start..], offset + start as u64)?;
            if start + got < bytes.len() {
                bytes.truncate(start + got);
                break;
            }
        }
        Ok(bytes)
    }

    fn read(&self, id: ColumnId, stored: Stored, needed: Option<Arc<Column>>) -> Result<Column> {
        let Some(extent) = stored.extent() else {
            let Stored::Constant(value) = stored else { unreachable!("only constants have none") };
            return Ok(Column::Constant(value));
        };
        let located = |error: Malformed| error.located(self.source.name(), extent.offset);
        let bytes = self.read_up_to(extent.offset, extent.length as usize)?;
        let sum = crc32c::crc32c(&bytes);
        if bytes.len() < extent.length as usize || sum != extent.checksum {
            let (got, length) = (bytes.len(), extent.length);
            let found = format!("{got} of {length} bytes of sum {sum:08x}");
            let reader = format::Reader::new("cluster column", &[]);
            return Err(located(reader.malformed("bytes with their checksum", found)).into());
        }
        match (id, needed) {
            (ColumnId::Names, _) => Column::names(stored, bytes, self.shape),
            (ColumnId::NameTags, _) => Column::tags(stored, bytes, self.shape),
            (ColumnId::Xattrs, Some(lengths)) => Column::bytes(stored, bytes, self.shape, lengths),
            (_, needed) => Column::numbers(stored, &bytes, self.shape, needed),
        }
        .map_err(|error| located(error).into())
    }
}
