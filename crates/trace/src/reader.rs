//! Reads a trace: block by block, in memory for one block.
//!
//! What a crash left out ends the trace ([`End::Cut`]). Bytes that are there and wrong are
//! an error.

use std::io::{ErrorKind, Read};

use format::Malformed;
use format::trace::{
    BLOCK_BYTES, BlockHead, BlockKind, Decoded, Event, Events, HEADER_BYTES, Header,
};

use crate::TraceError;

/// How a trace ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its mount ended, or its program.
    Whole,
    /// The disk was full, or could not be written.
    DiskFull,
    /// In the middle: the program or the machine died, or the file was cut.
    Cut,
}

impl End {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            End::Whole => "whole",
            End::DiskFull => "disk-full",
            End::Cut => "cut",
        }
    }
}

/// A trace that is being read.
#[derive(Debug)]
pub struct TraceReader<R: Read> {
    input: R,
    header: Header,
    /// Where the next block begins.
    at: u64,
    number: u64,
    dropped: u64,
    events: u64,
    end: Option<End>,
}

impl<R: Read> TraceReader<R> {
    /// Reads the header.
    pub fn new(mut input: R) -> Result<TraceReader<R>, TraceError> {
        let mut bytes = [0; HEADER_BYTES];
        let length = fill(&mut input, &mut bytes)?;
        let decoded = Header::decode(bytes.get(..length).unwrap_or_default());
        let header = match decoded.map_err(TraceError::NotATrace)? {
            Decoded::Newer(version) => return Err(TraceError::Newer(version)),
            Decoded::Header(header) => header,
        };
        let at = HEADER_BYTES as u64;
        Ok(TraceReader { input, header, at, number: 0, dropped: 0, events: 0, end: None })
    }

    /// Its header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Bytes read so far.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Number of events that were not recorded before the present place.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Number of events read so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// How it ends, once it was read to its end.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Passes each event of the trace to `take`, until that returns an error.
    pub fn read_all<E: From<TraceError>>(
        &mut self,
        mut take: impl FnMut(&Event<'_>) -> Result<(), E>,
    ) -> Result<End, E> {
        loop {
            if let Some(end) = self.end {
                return Ok(end);
            }
            self.read_block(&mut take)?;
        }
    }

    /// Passes each event of the next block to `take`. At the end of the trace it passes none, and
    /// [`TraceReader::end`] returns how it ends.
    pub fn read_block<E: From<TraceError>>(
        &mut self,
        mut take: impl FnMut(&Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let at = self.at;
        let damaged = |what: Malformed| TraceError::Damaged { at, what };
        let Some((head, payload)) = self.block()? else { return Ok(()) };
        for event in Events::new(&payload, head.events) {
            let event = event.map_err(damaged)?;
            self.events += 1;
            take(&event)?;
        }
        Ok(())
    }

    fn block(&mut self) -> Result<Option<(BlockHead, Vec<u8>)>, TraceError> {
        let at = self.at;
        let damaged = |what: Malformed| TraceError::Damaged { at, what };
        let mut bytes = vec![0; BLOCK_BYTES];
        if fill(&mut self.input, &mut bytes)? < BLOCK_BYTES {
            self.end = Some(End::Cut);
            return Ok(None);
        }
        let head = BlockHead::decode(&bytes).map_err(damaged)?;
        bytes.resize(BLOCK_BYTES + head.stored as usize, 0);
        let rest = bytes.get_mut(BLOCK_BYTES..).unwrap_or_default();
        if fill(&mut self.input, rest)? < head.stored as usize {
            self.end = Some(End::Cut);
            return Ok(None);
        }
        let payload = head.open(&self.header.id, &bytes).map_err(damaged)?;
        if head.number != self.number || head.dropped < self.dropped {
            let (expected, found) = (self.number, head.number);
            return Err(TraceError::OutOfOrder { at, expected, found });
        }
        self.number += 1;
        self.dropped = head.dropped;
        self.at += bytes.len() as u64;
        match head.kind {
            BlockKind::Events => return Ok(Some((head, payload))),
            BlockKind::Ended => self.end = Some(End::Whole),
            BlockKind::Full => self.end = Some(End::DiskFull),
        }
        if fill(&mut self.input, &mut [0])? > 0 {
            let (expected, found) = (self.number, self.number);
            return Err(TraceError::OutOfOrder { at: self.at, expected, found });
        }
        Ok(None)
    }
}

/// Reads until the buffer is full or the input ends; returns how many bytes.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize, TraceError> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}
