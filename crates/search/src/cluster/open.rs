//! An open cluster: its head in memory, its columns loaded on demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::sync::Mutex;
use format::Malformed;
use format::cluster::{COLUMNS, ColumnId, Decoded, Extent, HEADER_BYTES, Head, Stored, VERSION};
use inode::NameHash;

use super::column::{Column, Shape, needed_for};
use super::column_test::Test;
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
    summary: Summary,
    columns: [Slot; COLUMNS],
    /// Extended attributes that rows have, a subset of those in the summary, with their positions
    /// there.
    attributes: Box<[AttributeSlots]>,
    /// Bytes of the columns in memory.
    held: AtomicUsize,
}

/// A column, and whether it is in memory.
struct Slot {
    stored: Stored,
    /// Held while the column is read, so that no column is read twice.
    column: Mutex<Option<Arc<Column>>>,
}

impl Slot {
    fn new(stored: Stored) -> Slot {
        Slot { stored, column: Mutex::new(None) }
    }
}

/// The columns of an extended attribute.
struct AttributeSlots {
    place: usize,
    ranks: Slot,
    values: Slot,
}

/// What a cluster knows about an extended attribute of its rows.
pub(super) enum Carried {
    /// Nothing: it was not declared when the cluster was written.
    Unknown,
    /// No row has it, or none with the requested value.
    Nowhere,
    /// Each row has a record, in clusters from before attributes had columns.
    InRecords,
    /// A column has it; the test applies to that.
    Ranked(Arc<Column>, Test),
}

impl Cluster {
    /// Reads and checks only the head. `hash` is the volume's: cookies are computed from names.
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
        let mut columns = [Stored::Constant(0); COLUMNS].map(Slot::new);
        for &(id, how) in &head.columns {
            columns[id as usize].stored = how;
        }
        let summary = Summary::decode(head.summary).map_err(located)?;
        let attributes = head.attributes.iter().map(|attribute| AttributeSlots {
            place: attribute.place.into(),
            ranks: Slot::new(attribute.ranks),
            values: Slot::new(attribute.values),
        });
        let attributes: Box<[AttributeSlots]> = attributes.collect();
        let names = summary.carried().len();
        if let Some(last) = attributes.last().filter(|last| last.place >= names) {
            let reader = format::Reader::new("cluster", &[]);
            let found = format!("columns of attribute {} of {names}", last.place);
            return Err(
                located(reader.malformed("columns of attributes that are listed", found)).into()
            );
        }
        let shape = Shape { rows: head.rows, block_rows: head.block_rows };
        let bytes = head.bytes;
        let held = AtomicUsize::new(0);
        Ok(Cluster { source, hash, shape, bytes, summary, columns, attributes, held })
    }

    /// The summary of its rows.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Number of rows; row numbers start at 0, in no meaningful order.
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

    /// Bytes in memory now: head, summary and the columns that were read; for a cluster in memory,
    /// also its source bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Cluster>()
            + self.source.memory_bytes()
            + self.summary.memory_bytes()
            + size_of_val(&*self.attributes)
            + self.held.load(Ordering::Relaxed)
    }

    /// Releases all columns. Running searches keep those that they use.
    pub fn release(&self) {
        let attributes = self.attributes.iter().flat_map(|one| [&one.ranks, &one.values]);
        for slot in self.columns.iter().chain(attributes) {
            if let Some(column) = slot.column.lock().take() {
                self.held.fetch_sub(column.memory_bytes(), Ordering::Relaxed);
            }
        }
    }

    /// Reads and verifies all columns, and keeps none.
    pub fn verify(&self) -> Result<()> {
        let read = ColumnId::ALL.into_iter().try_for_each(|id| self.column(id).map(drop));
        let read = read.and_then(|()| {
            self.attributes.iter().try_for_each(|attribute| self.ranks_match(attribute))
        });
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
        let slot = &self.columns[id as usize];
        let needed = needed_for(id, slot.stored).map(|needed| self.column(needed)).transpose()?;
        let (stored, shape) = (slot.stored, self.shape);
        self.held(slot, |bytes| match (id, needed) {
            (ColumnId::Names, _) => Column::names(stored, bytes, shape),
            (ColumnId::NameTags, _) => Column::tags(stored, bytes, shape),
            (ColumnId::Xattrs, Some(lengths)) => Column::bytes(stored, bytes, shape, lengths),
            (_, needed) => Column::numbers(stored, &bytes, shape, needed),
        })
    }

    /// What the cluster knows about an extended attribute, or about one with a certain value.
    pub(super) fn carried(&self, name: &[u8], value: Option<&[u8]>) -> Result<Carried> {
        let Some(place) = self.summary.place_of_carried(name) else { return Ok(Carried::Unknown) };
        let found = self.attributes.binary_search_by_key(&place, |attribute| attribute.place);
        let Ok(found) = found else {
            let records = self.columns[ColumnId::Xattrs as usize].stored.extent();
            return Ok(if records.is_some() { Carried::InRecords } else { Carried::Nowhere });
        };
        let attribute = &self.attributes[found];
        let Some(value) = value else {
            return Ok(Carried::Ranked(self.ranks(attribute)?, Test::Range(1, u64::MAX)));
        };
        let values = self.values(attribute)?;
        match values.place_of(value) {
            Some(rank) => Ok(Carried::Ranked(self.ranks(attribute)?, Test::Range(rank, rank))),
            None => Ok(Carried::Nowhere),
        }
    }

    fn ranks(&self, attribute: &AttributeSlots) -> Result<Arc<Column>> {
        let slot = &attribute.ranks;
        self.held(slot, |bytes| Column::numbers(slot.stored, &bytes, self.shape, None))
    }

    fn values(&self, attribute: &AttributeSlots) -> Result<Arc<Column>> {
        let slot = &attribute.values;
        self.held(slot, |bytes| Column::values_of(slot.stored, bytes, self.shape))
    }

    /// Whether every rank that rows have has a value.
    fn ranks_match(&self, attribute: &AttributeSlots) -> Result<()> {
        let (ranks, values) = (self.ranks(attribute)?, self.values(attribute)?);
        let count = values.distinct();
        let greatest = (0..self.shape.blocks()).map(|block| ranks.bounds(block).1).max();
        if greatest.is_some_and(|greatest| greatest > count) {
            let offset = attribute.ranks.stored.extent().map_or(0, |extent| extent.offset);
            let reader = format::Reader::new("cluster column", &[]);
            let found = format!("place {} of {count}", greatest.unwrap_or(0));
            let error = reader.malformed("places of values that are there", found);
            return Err(error.located(self.source.name(), offset).into());
        }
        Ok(())
    }

    /// The column of a slot. `decode` gets the bytes after they were read and verified.
    fn held(
        &self,
        slot: &Slot,
        decode: impl FnOnce(Vec<u8>) -> std::result::Result<Column, Malformed>,
    ) -> Result<Arc<Column>> {
        let mut there = slot.column.lock();
        if let Some(column) = &*there {
            return Ok(Arc::clone(column));
        }
        let column = match slot.stored {
            Stored::Constant(value) => Column::Constant(value),
            stored => {
                let extent = stored.extent().expect("bug: only constants have none");
                let bytes = self.read(extent)?;
                decode(bytes).map_err(|error| error.located(self.source.name(), extent.offset))?
            }
        };
        let column = Arc::new(column);
        self.held.fetch_add(column.memory_bytes(), Ordering::Relaxed);
        *there = Some(Arc::clone(&column));
        Ok(column)
    }

    /// Up to `length` bytes, as many as exist. Allocates at most one part ahead: a length is
    /// trusted only after its bytes were read.
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

    /// The bytes of a column, verified by its checksum.
    fn read(&self, extent: Extent) -> Result<Vec<u8>> {
        let bytes = self.read_up_to(extent.offset, extent.length as usize)?;
        let sum = crc32c::crc32c(&bytes);
        if bytes.len() < extent.length as usize || sum != extent.checksum {
            let (got, length) = (bytes.len(), extent.length);
            let found = format!("{got} of {length} bytes of sum {sum:08x}");
            let reader = format::Reader::new("cluster column", &[]);
            let error = reader.malformed("bytes with their checksum", found);
            return Err(error.located(self.source.name(), extent.offset).into());
        }
        Ok(bytes)
    }
}
