//! Where records go: framed, counted, and digested. Those that the receiver has already are
//! counted only; of an increment they must be the same steps.

use format::stream::{Head, Record, preamble};
use xxhash_rust::xxh3::Xxh3;

use crate::error::{Error, Result};
use crate::steps::Steps;

/// Bytes that are handed on at once.
const PART_BYTES: usize = 256 << 10;

/// Takes parts of the stream; `false`: nobody reads on.
pub(crate) type Emit<'a> = &'a mut dyn FnMut(&[u8]) -> bool;

/// A stream on its way out.
pub(crate) struct Out<'a> {
    emit: Emit<'a>,
    buffer: Vec<u8>,
    digest: Xxh3,
    /// Records left out at the start.
    skipped: u64,
    /// The steps left out so far, and what their digest must be at the end.
    steps: Option<(Steps, u64)>,
    scratch: Vec<u8>,
    /// Records so far, without the first, and with those left out.
    records: u64,
    /// Records and bytes of contents that left.
    sent: (u64, u64),
    /// Bytes of the stream.
    pub(crate) stream_bytes: u64,
    /// Whether nothing leaves, and contents are counted without being read.
    dry_run: bool,
    /// The file that contents belong to, while records are left out.
    open: Option<Vec<u8>>,
}

impl<'a> Out<'a> {
    /// Begins a stream. `steps`: the digest of those that are left out, if it is known.
    pub(crate) fn begin(
        emit: Emit<'a>,
        head: &Head<'_>,
        steps: Option<u64>,
        dry_run: bool,
    ) -> Out<'a> {
        let mut out = Out {
            emit,
            buffer: preamble().to_vec(),
            digest: Xxh3::new(),
            skipped: head.skipped,
            steps: steps.map(|expected| (Steps::default(), expected)),
            scratch: Vec::new(),
            records: 0,
            sent: (0, 0),
            stream_bytes: 0,
            dry_run,
            open: None,
        };
        Record::Head(head.clone()).encode(&mut out.buffer);
        out
    }

    /// Whether the bytes of the next record with contents matter.
    pub(crate) fn takes_bytes(&self) -> bool {
        !self.dry_run && self.records >= self.skipped
    }

    /// Records so far, and the bytes of contents that left.
    pub(crate) fn sent(&self) -> (u64, u64) {
        self.sent
    }

    /// Adds a record.
    pub(crate) fn push(&mut self, record: &Record<'_>) -> Result<()> {
        self.records += 1;
        if self.records <= self.skipped {
            self.note(record);
            if let Some((steps, _)) = &mut self.steps {
                steps.add(record, &mut self.scratch);
            }
            return self.check_steps();
        }
        if let Some(path) = self.open.take()
            && matches!(record, Record::Data { .. } | Record::Hole { .. } | Record::Size { .. })
        {
            Record::Resume { path: &path }.encode(&mut self.buffer);
        }
        self.sent.0 += 1;
        if let Record::Data { bytes, .. } = record {
            self.sent.1 += bytes.len() as u64;
        }
        record.encode(&mut self.buffer);
        if self.buffer.len() >= PART_BYTES { self.flush() } else { Ok(()) }
    }

    /// Counts a record with contents whose bytes do not matter.
    pub(crate) fn pass(&mut self, offset: u64, length: u64) -> Result<()> {
        self.records += 1;
        if self.records > self.skipped {
            self.sent.0 += 1;
            self.sent.1 += length;
            self.stream_bytes += length + 24;
            return Ok(());
        }
        if let Some((steps, _)) = &mut self.steps {
            steps.add_data(offset, length);
        }
        self.check_steps()
    }

    /// Refuses to continue a stream that began with other steps. Nothing has left by then.
    fn check_steps(&self) -> Result<()> {
        match self.steps {
            Some((steps, expected))
                if self.records == self.skipped && steps.value() != expected =>
            {
                Err(Error::refused(
                    "the increment differs from the interrupted one: its first records are \
                     different",
                    "send it from its beginning, without a token",
                ))
            }
            _ => Ok(()),
        }
    }

    fn note(&mut self, record: &Record<'_>) {
        match record {
            Record::Make { path, .. } | Record::Open { path } => self.open = Some(path.to_vec()),
            Record::Data { .. } | Record::Hole { .. } | Record::Size { .. } => {}
            _ => self.open = None,
        }
    }

    /// Ends the stream.
    pub(crate) fn end(&mut self) -> Result<()> {
        if self.records < self.skipped {
            return Err(Error::refused(
                "the token is of a longer stream",
                "use the token that `pando receive --token` shows now",
            ));
        }
        self.digest.update(&self.buffer);
        let digest = self.digest.digest128().to_be_bytes();
        let (records, bytes) = self.sent;
        let mut last = Vec::new();
        Record::End { records, bytes, digest }.encode(&mut last);
        self.hand_on()?;
        self.buffer = last;
        self.hand_on()
    }

    fn flush(&mut self) -> Result<()> {
        self.digest.update(&self.buffer);
        self.hand_on()
    }

    fn hand_on(&mut self) -> Result<()> {
        self.stream_bytes += self.buffer.len() as u64;
        let continues = self.dry_run || (self.emit)(&self.buffer);
        self.buffer.clear();
        if continues { Ok(()) } else { Err(Error::Interrupted) }
    }
}
