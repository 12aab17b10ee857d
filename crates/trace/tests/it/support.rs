//! A file system whose calls are recorded into memory, and traces in memory.

use std::io;
use std::sync::Arc;

use device::sync::Mutex;
use device::{Clock, SystemClock, SystemRandom};
use format::trace::{Event, Header};
use testing::memory_fs::MemoryFs;
use trace::{Limits, Recorder, Sink, TraceError, TraceReader, TraceWriter, Traced};

/// Bytes that a recorder wrote; appending fails from `full_at` on, in the middle of an append.
#[derive(Clone, Default)]
pub(crate) struct Tape {
    pub(crate) bytes: Arc<Mutex<Vec<u8>>>,
    pub(crate) full_at: Option<usize>,
    /// Held by a test, it stops the thread that writes.
    pub(crate) gate: Arc<Mutex<()>>,
}

impl Sink for Tape {
    fn append(&mut self, new: &[u8]) -> io::Result<()> {
        let _open = self.gate.lock();
        let mut bytes = self.bytes.lock();
        let left = self.full_at.map_or(usize::MAX, |full_at| full_at.saturating_sub(bytes.len()));
        bytes.extend_from_slice(&new[..new.len().min(left)]);
        if new.len() > left { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.bytes.lock().truncate(length as usize);
        Ok(())
    }
}

impl Tape {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().clone()
    }
}

/// A file system in memory, its recorder, and what that wrote.
pub(crate) fn traced(tape: &Tape, limits: Limits) -> (Traced, Arc<Recorder>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let sink = Box::new(tape.clone());
    let recorder = Recorder::start(sink, (clock, &SystemRandom), limits, false).unwrap();
    let recorder = Arc::new(recorder);
    (Traced::new(Arc::new(MemoryFs::new()), Arc::clone(&recorder)), recorder)
}

/// A trace of these events.
pub(crate) fn written(events: &[Event<'_>]) -> Vec<u8> {
    let header = Header {
        id: [4; 16],
        started: 5,
        root: 1,
        anonymised: false,
        generated: false,
        opens: false,
    };
    let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
    for event in events {
        writer.push(event).unwrap();
    }
    writer.end().unwrap()
}

/// Reads a trace to its end; the events are passed to `take`.
pub(crate) fn read(
    bytes: &[u8],
    mut take: impl FnMut(&Event<'_>),
) -> Result<(trace::End, u64, u64), TraceError> {
    let mut reader = TraceReader::new(bytes)?;
    let end = reader.read_all(|event| {
        take(event);
        Ok::<(), TraceError>(())
    })?;
    Ok((end, reader.events(), reader.dropped()))
}
