//! Writes a trace from events that a program has: no thread, no limit, and an error ends it.

use std::io::Write;

use format::trace::{BlockKind, Event, Header, PAYLOAD_BYTES_MAX, Writing, encode_block};

use crate::TraceError;

/// Bytes of events from which a block is written.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;
/// Longest event: larger ones do not fit into a block behind others.
pub(crate) const EVENT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - BLOCK_BYTES - 64;

/// A trace that is being written.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    out: W,
    id: [u8; 16],
    writing: Writing,
    fields: Vec<u8>,
    number: u64,
    dropped: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace.
    pub fn new(mut out: W, header: &Header) -> Result<TraceWriter<W>, TraceError> {
        out.write_all(&header.encode())?;
        let (writing, fields) = (Writing::default(), Vec::new());
        Ok(TraceWriter { out, id: header.id, writing, fields, number: 0, dropped: 0 })
    }

    /// Sets how many events, since the trace began, were not recorded.
    pub fn set_dropped(&mut self, dropped: u64) {
        self.dropped = dropped;
    }

    /// Adds an event. One that is too long for a block is counted as dropped.
    pub fn push(&mut self, event: &Event<'_>) -> Result<(), TraceError> {
        self.fields.clear();
        event.put_fields(&mut self.fields);
        if self.fields.len() > EVENT_BYTES_MAX {
            self.dropped += 1;
            return Ok(());
        }
        self.writing.push(event, &self.fields);
        if self.writing.bytes() >= BLOCK_BYTES { self.block(BlockKind::Events) } else { Ok(()) }
    }

    fn block(&mut self, kind: BlockKind) -> Result<(), TraceError> {
        let place = (self.number, self.dropped);
        let block = encode_block(&self.id, place, kind, self.writing.parts())?;
        self.out.write_all(&block)?;
        self.number += 1;
        self.writing = Writing::default();
        Ok(())
    }

    /// Writes what is left, and the block that ends the trace.
    pub fn end(mut self) -> Result<W, TraceError> {
        if self.writing.bytes() > 0 {
            self.block(BlockKind::Events)?;
        }
        self.block(BlockKind::Ended)?;
        self.out.flush()?;
        Ok(self.out)
    }
}
