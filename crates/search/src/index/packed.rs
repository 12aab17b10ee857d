//! Rows packed into bytes, in chunks that stay where they are.
//!
//! A growing list of bytes is copied, and takes twice its memory until that is done; so does a list
//! that is appended to another. Memory here is bounded, so neither may happen. A chunk is filled up
//! to its capacity, then the next one starts; appending moves whole chunks. A row is stored in one
//! chunk. Its offset has 32 bits: the chunk, and the position in it.

use format::inode_record::FileKind;
use format::{Malformed, Reader, Writer};

use crate::Row;

/// Offset of a missing row.
pub(super) const GONE: u32 = u32::MAX;
/// Offset of a row that is still to be read.
pub(super) const UNREAD: u32 = GONE - 1;
/// Bits of an offset for the position in a chunk.
const CHUNK_BITS: u32 = 18;
/// Bytes of a chunk, except the first, which is only as long as necessary, and one with a longer
/// row.
pub(super) const CHUNK_BYTES: usize = 1 << CHUNK_BITS;
/// Maximum chunks: the offsets of another one would collide with [`UNREAD`].
const CHUNKS_MAX: usize = (1 << (u32::BITS - CHUNK_BITS)) - 1;
/// A list grows by this fraction of its length: memory is budgeted, and doubling would count twice
/// as much as is used.
const GROWTH: usize = 8;
/// Minimum by which lists of places, and the first chunk, grow.
pub(super) const LEAST: usize = 64;
/// Maximum bytes of a packed row without its strings.
const PACKED_MAX: usize = 2 + 4 * 8 + 10 * 10;

/// Packed rows.
#[derive(Debug, Default)]
pub(super) struct Packed {
    chunks: Vec<Vec<u8>>,
    /// Capacity of all chunks.
    space: usize,
}

/// Reserves capacity for so many more, and for at least `least`.
pub(super) fn grow<T>(list: &mut Vec<T>, more: usize, least: usize) {
    if list.capacity() - list.len() < more {
        list.reserve_exact(next_space(list.len()).max(more).max(least));
    }
}

/// How much a list of this length grows.
pub(super) fn next_space(length: usize) -> usize {
    length / GROWTH
}

impl Packed {
    /// Memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.space + self.chunks.capacity() * size_of::<Vec<u8>>()
    }

    /// Whether another chunk can be added.
    pub(super) fn has_space(&self) -> bool {
        self.chunks.len() < CHUNKS_MAX
    }

    /// Whether it can take all of another.
    pub(super) fn fits_with(&self, other: &Packed) -> bool {
        self.chunks.len() + other.chunks.len() <= CHUNKS_MAX
    }

    /// Adds a row, and returns its offset.
    pub(super) fn push(&mut self, row: &Row<'_>) -> u32 {
        let (at, chunk) = self.last(PACKED_MAX + row.name.len() + row.xattrs.len());
        pack(row, chunk);
        at
    }

    /// Adds the bytes of a row, and returns their offset.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) -> u32 {
        let (at, chunk) = self.last(bytes.len());
        chunk.extend_from_slice(bytes);
        at
    }

    /// A chunk with space for so many bytes, and the offset of the next row in it.
    fn last(&mut self, bytes: usize) -> (u32, &mut Vec<u8>) {
        let is_only = self.chunks.len() == 1;
        let is_full = |last: &Vec<u8>| {
            let grows = is_only && last.len() + bytes <= CHUNK_BYTES;
            last.len() >= CHUNK_BYTES || last.capacity() - last.len() < bytes && !grows
        };
        if self.chunks.last().is_none_or(is_full) {
            // Most layers have one row, or a few.
            let space = if self.chunks.is_empty() { bytes } else { bytes.max(CHUNK_BYTES) };
            grow(&mut self.chunks, 1, 1);
            self.chunks.push(Vec::with_capacity(space));
            self.space += self.chunks[self.chunks.len() - 1].capacity();
        }
        let number = self.chunks.len() - 1;
        let last = &mut self.chunks[number];
        let before = last.capacity();
        grow(last, bytes, LEAST);
        self.space += last.capacity() - before;
        ((number as u32) << CHUNK_BITS | last.len() as u32, last)
    }

    /// Moves all chunks of another behind its own. Offsets in those grow by the returned number.
    pub(super) fn append(&mut self, mut other: Packed) -> u32 {
        let start = (self.chunks.len() as u32) << CHUNK_BITS;
        if let Some(last) = other.chunks.last_mut() {
            other.space -= last.capacity();
            last.shrink_to_fit();
            other.space += last.capacity();
        }
        self.chunks.reserve_exact(other.chunks.len());
        self.chunks.extend(other.chunks);
        self.space += other.space;
        start
    }

    /// The row at an offset, whose place is known.
    pub(super) fn row(&self, place: (u64, u64), at: u32) -> Row<'_> {
        unpack(place, self.from(at))
    }

    /// The bytes of a row; `next` is the offset of the row added after it, if there is one.
    pub(super) fn bytes(&self, at: u32, next: Option<u32>) -> &[u8] {
        let bytes = self.from(at);
        match next {
            Some(next) if next >> CHUNK_BITS == at >> CHUNK_BITS => &bytes[..(next - at) as usize],
            _ => bytes,
        }
    }

    /// The bytes from an offset to the end of its chunk.
    fn from(&self, at: u32) -> &[u8] {
        &self.chunks[(at >> CHUNK_BITS) as usize][at as usize % CHUNK_BYTES..]
    }

    /// Frees the chunks before that of an offset.
    pub(super) fn forget_before(&mut self, at: u32) {
        let before = &mut self.chunks[..(at >> CHUNK_BITS) as usize];
        // Earlier ones are freed already.
        for chunk in before.iter_mut().rev().take_while(|chunk| chunk.capacity() > 0) {
            self.space -= chunk.capacity();
            *chunk = Vec::new();
        }
    }

    /// Addresses of the chunks, for tests: a chunk that was not copied keeps its address.
    #[cfg(test)]
    pub(super) fn places(&self) -> Vec<*const u8> {
        self.chunks.iter().map(|chunk| chunk.as_ptr()).collect()
    }
}

/// Times have a fixed size, for they are never small; the other numbers take a few bytes each.
fn pack(row: &Row<'_>, out: &mut Vec<u8>) {
    out.put_u8(row.kind.byte());
    out.put_u8(row.name.len() as u8);
    for time in [row.atime, row.mtime, row.ctime, row.btime] {
        out.put_i64(time);
    }
    for number in [row.ino, row.size, row.allocated, row.entries, row.xattrs.len() as u64] {
        out.put_varint(number);
    }
    for number in [row.mode, row.uid, row.gid, row.nlink, row.rdev] {
        out.put_varint(number.into());
    }
    out.raw(row.name);
    out.raw(row.xattrs);
}

fn unpack((directory, cookie): (u64, u64), bytes: &[u8]) -> Row<'_> {
    unpacked((directory, cookie), &mut Reader::new("row", bytes)).expect(PACKED)
}

fn unpacked<'a>(
    (directory, cookie): (u64, u64),
    reader: &mut Reader<'a>,
) -> Result<Row<'a>, Malformed> {
    let (kind, name) = (reader.u8()?, usize::from(reader.u8()?));
    let (atime, mtime, ctime, btime) = (reader.i64()?, reader.i64()?, reader.i64()?, reader.i64()?);
    let (ino, size, allocated) = (reader.varint()?, reader.varint()?, reader.varint()?);
    let (entries, xattrs) = (reader.varint()?, reader.varint()? as usize);
    let mut short = || Ok(reader.varint()? as u32);
    let (mode, uid, gid, nlink, rdev) = (short()?, short()?, short()?, short()?, short()?);
    let (name, xattrs) = (reader.take(name)?, reader.take(xattrs)?);
    let kind = FileKind::decode(kind).expect(PACKED);
    Ok(Row {
        directory,
        cookie,
        ino,
        name,
        kind,
        mode,
        uid,
        gid,
        nlink,
        rdev,
        size,
        allocated,
        entries,
        atime,
        mtime,
        ctime,
        btime,
        subvolume: 0,
        xattrs,
    })
}

const PACKED: &str = "invariant: rows are unpacked from where they were packed";
