//! Traces of the calls of a mount (`docs/format/trace.md`): a header, then blocks of events.
//!
//! A block is self-contained: it has a checksum, and the first event of its payload refers to
//! nothing before it. So whatever a crash leaves of a trace is readable up to the last whole block.
//! Blocks are numbered and carry the number of their trace, so that a block that is missing,
//! repeated or from another trace is found. The last block of a trace that ended has no events: a
//! trace without it was cut.

mod calls;
mod events;

pub use calls::{
    Allocating, Call, Ended, FIELDS_MAX, Field as CallField, Fields, Renaming, Seeking, Setting,
};
pub use events::{
    DIRECTORY_ENTRIES_MAX, Event, Events, Listed, NAME_BYTES_MAX, Shown, UNKNOWN_CALLER, Writing,
};

use crate::layout::{Field, size_of};
use crate::sealed::{Covers, Opened, Seal};
use crate::{Malformed, Reader, Writer};

/// The magic number of a trace.
pub const MAGIC: [u8; 8] = *b"PANDOTRC";
/// The newest version that this program writes and reads.
pub const VERSION: u32 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a block before its payload.
pub const BLOCK_BYTES: usize = 36;
/// Longest payload of a block, before and after compression.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

const RESERVED_BYTES: usize = 12;

/// Layout of the header.
pub const LAYOUT: &[Field] = &[
    Field::fixed("magic", "bytes", 8),
    Field::fixed("version", "u32 LE", 4),
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("id", "bytes", 16),
    Field::fixed("started", "i64 LE", 8),
    Field::fixed("root", "u64 LE", 8),
    Field::fixed("flags", "u32 LE", 4),
    Field::fixed("reserved", "zeros", RESERVED_BYTES),
];
const _: () = assert!(size_of(LAYOUT) == HEADER_BYTES);

/// Layout of a block before its payload.
pub const BLOCK_LAYOUT: &[Field] = &[
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("stored", "u32 LE", 4),
    Field::fixed("payload", "u32 LE", 4),
    Field::fixed("events", "u32 LE", 4),
    Field::fixed("number", "u64 LE", 8),
    Field::fixed("dropped", "u64 LE", 8),
    Field::fixed("kind", "u32 LE", 4),
];
const _: () = assert!(size_of(BLOCK_LAYOUT) == BLOCK_BYTES);

const SEAL: Seal =
    Seal { structure: "trace header", magic: MAGIC, version: VERSION, covers: Covers::All };
const BLOCK: &str = "trace block";

// DO NOT CHANGE THESE VALUES: they are on disk.
const ANONYMISED: u32 = 1;
const GENERATED: u32 = 2;
const OPENS: u32 = 4;
const FLAGS: u32 = 7;
const EVENTS: u32 = 0;
const ENDED: u32 = 1;
const FULL: u32 = 2;

/// The header of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Distinguishes it from other traces.
    pub id: [u8; 16],
    /// When it began, in nanoseconds since 1970; times of events count from here.
    pub started: i64,
    /// The number of the directory that was mounted.
    pub root: u64,
    /// Whether names were replaced.
    pub anonymised: bool,
    /// Whether a generator made it.
    pub generated: bool,
    /// Whether opens and closes are in it: the mount made the kernel send them.
    pub opens: bool,
}

/// A decoded header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    /// A version that this program reads.
    Header(Header),
    /// A newer version: its number.
    Newer(u32),
}

impl Header {
    /// The header's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut rest = Vec::with_capacity(HEADER_BYTES);
        rest.raw(&self.id);
        rest.put_i64(self.started);
        rest.put_u64(self.root);
        let flag = |is: bool, flag: u32| if is { flag } else { 0 };
        rest.put_u32(
            flag(self.anonymised, ANONYMISED)
                | flag(self.generated, GENERATED)
                | flag(self.opens, OPENS),
        );
        rest.raw(&[0; RESERVED_BYTES]);
        SEAL.seal(&rest)
    }

    /// Reads and checks a header at the start of a file.
    pub fn decode(bytes: &[u8]) -> Result<Decoded, Malformed> {
        let mut reader = match SEAL.open(bytes.get(..HEADER_BYTES).unwrap_or(bytes))? {
            Opened::Newer(version) => return Ok(Decoded::Newer(version)),
            Opened::Body(_, reader) => reader,
        };
        let (id, started, root) = (reader.array()?, reader.i64()?, reader.u64()?);
        let flags = reader.u32()?;
        if flags & !FLAGS != 0 {
            return Err(reader.malformed("known flags", format!("{flags:#x}")));
        }
        if reader.array::<RESERVED_BYTES>()? != [0; RESERVED_BYTES] {
            return Err(reader.malformed("zeros", "other bytes"));
        }
        reader.end()?;
        Ok(Decoded::Header(Header {
            id,
            started,
            root,
            anonymised: flags & ANONYMISED != 0,
            generated: flags & GENERATED != 0,
            opens: flags & OPENS != 0,
        }))
    }
}

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// It has events.
    Events,
    /// It ends the trace.
    Ended,
    /// It ends the trace because the disk was full, or a write failed.
    Full,
}

/// A block before its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHead {
    /// Bytes of the payload in the file, compressed.
    pub stored: u32,
    /// Bytes of the payload, decompressed.
    pub payload: u32,
    /// Number of events.
    pub events: u32,
    /// Number of blocks before it.
    pub number: u64,
    /// Number of events since the trace began that were not recorded.
    pub dropped: u64,
    /// What it is.
    pub kind: BlockKind,
    checksum: u32,
}

/// A block: head, and compressed payload.
///
/// An error means that the payload is too long, or that zstd failed.
pub fn encode_block(
    id: &[u8; 16],
    (number, dropped): (u64, u64),
    kind: BlockKind,
    (events, payload): (u32, &[u8]),
) -> std::io::Result<Vec<u8>> {
    let refuse = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "a block too long");
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(refuse());
    }
    let stored = if payload.is_empty() { Vec::new() } else { zstd::bulk::compress(payload, 1)? };
    let mut rest = Vec::with_capacity(BLOCK_BYTES.saturating_add(stored.len()));
    rest.put_u32(u32::try_from(stored.len()).map_err(|_| refuse())?);
    rest.put_u32(u32::try_from(payload.len()).map_err(|_| refuse())?);
    rest.put_u32(events);
    rest.put_u64(number);
    rest.put_u64(dropped);
    rest.put_u32(match kind {
        BlockKind::Events => EVENTS,
        BlockKind::Ended => ENDED,
        BlockKind::Full => FULL,
    });
    rest.raw(&stored);
    let mut out = Vec::with_capacity(rest.len().saturating_add(4));
    out.put_u32(crc32c::crc32c_append(crc32c::crc32c(id), &rest));
    out.raw(&rest);
    Ok(out)
}

impl BlockHead {
    /// Reads the head of a block, without verifying it.
    pub fn decode(bytes: &[u8]) -> Result<BlockHead, Malformed> {
        let mut reader = Reader::new(BLOCK, bytes);
        let (checksum, stored, payload) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (events, number, dropped) = (reader.u32()?, reader.counted()?, reader.counted()?);
        let kind = match reader.u32()? {
            EVENTS => BlockKind::Events,
            ENDED => BlockKind::Ended,
            FULL => BlockKind::Full,
            other => return Err(reader.malformed("a kind of block", other.to_string())),
        };
        let fits = |bytes: u32| usize::try_from(bytes).is_ok_and(|n| n <= PAYLOAD_BYTES_MAX);
        // An event takes four bytes and more.
        if !fits(stored) || !fits(payload) || events > payload / 4 {
            let found = format!("{stored} and {payload} bytes of {events} events");
            return Err(reader.malformed("a block within bounds", found));
        }
        if (kind == BlockKind::Events) != (events > 0) || (events == 0) != (stored == 0) {
            return Err(reader.malformed("events in a block of events", events.to_string()));
        }
        Ok(BlockHead { stored, payload, events, number, dropped, kind, checksum })
    }

    /// Verifies a block of the trace with this `id`, and decompresses its payload. `bytes` are the
    /// block's, from its head.
    pub fn open(&self, id: &[u8; 16], bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut reader = Reader::new(BLOCK, bytes);
        let start = reader.clone();
        reader.take(4)?;
        let length = usize::try_from(self.stored).unwrap_or(usize::MAX);
        let rest = reader.take(length.saturating_add(BLOCK_BYTES.saturating_sub(4)))?;
        let sum = crc32c::crc32c_append(crc32c::crc32c(id), rest);
        if sum != self.checksum {
            let found = format!("{:08x} over bytes of sum {sum:08x}", self.checksum);
            return Err(start.malformed("its checksum", found));
        }
        let stored = rest.get(BLOCK_BYTES.saturating_sub(4)..).unwrap_or_default();
        if stored.is_empty() {
            return Ok(Vec::new());
        }
        let length = usize::try_from(self.payload).unwrap_or(usize::MAX);
        let payload = zstd::bulk::decompress(stored, length)
            .map_err(|error| start.malformed("a compressed payload", error.to_string()))?;
        if payload.len() != length {
            let found = format!("{} bytes", payload.len());
            return Err(start.malformed("a payload of the stated length", found));
        }
        Ok(payload)
    }
}

#[cfg(test)]
mod tests;
