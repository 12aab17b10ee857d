//! Records events: callers add them to a buffer, and one thread compresses and writes them.
//!
//! Invariants: a caller waits for a lock that is held for the copy of an event, never for the disk.
//! The buffer is bounded: when it is full, events are counted and dropped, and the next block
//! records how many. A write that fails ends the trace and nothing else; what was written stays
//! readable, because an incomplete block is truncated. Events reach the file within
//! [`FLUSH_EVERY`].

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use device::sync::{Condvar, Mutex};
use device::{Clock, Random, Thread};
use format::trace::{BlockKind, Event, Header, Writing, encode_block};

use crate::writer::{BLOCK_BYTES, EVENT_BYTES_MAX};

/// How long an event stays in memory at most.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// Where a trace goes.
pub trait Sink: Send {
    /// Appends bytes.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Cuts what was appended to this length, after a failure.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Sink for std::fs::File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        io::Write::write_all(self, bytes)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)?;
        io::Seek::seek(self, io::SeekFrom::Start(length)).map(drop)
    }
}

/// Bounds of a recorder.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of events that wait to be written.
    pub buffer_bytes: usize,
    /// Longest trace, in bytes: then it ends, and the mount continues.
    pub file_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { buffer_bytes: 16 << 20, file_bytes: u64::MAX }
    }
}

/// A block that waits to be written: its events, and how many were dropped before its end.
struct Waiting {
    writing: Writing,
    dropped: u64,
}

struct State {
    writing: Writing,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    dropped: u64,
    /// No more events come.
    ending: bool,
    /// The file takes no more.
    stopped: bool,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    limits: Limits,
}

/// A trace that is being recorded. Dropping it writes what is left, and ends the trace.
pub struct Recorder {
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    started: Duration,
    thread: Mutex<Option<Thread<()>>>,
}

impl Recorder {
    /// Begins a trace: writes its header, and starts the thread.
    pub fn start(
        mut sink: Box<dyn Sink>,
        (clock, random): (Arc<dyn Clock>, &dyn Random),
        limits: Limits,
        opens: bool,
    ) -> io::Result<Recorder> {
        let mut id = [0; 16];
        random.fill(&mut id);
        let (anonymised, generated) = (false, false);
        let started = clock.now().0;
        let root = inode::NodeId::ROOT.shown();
        let header = Header { id, started, root, anonymised, generated, opens }.encode();
        sink.append(&header)?;
        let state = State {
            writing: Writing::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            dropped: 0,
            ending: false,
            stopped: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), wake: Condvar::new(), limits });
        let file = File { sink, id, length: header.len() as u64, number: 0 };
        let started = clock.monotonic();
        let of_thread = Arc::clone(&shared);
        let thread = device::spawn("trace", move || of_thread.write(file))?;
        Ok(Recorder { shared, clock, started, thread: Mutex::new(Some(thread)) })
    }

    /// Time since the trace began.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        let since = self.clock.monotonic().saturating_sub(self.started);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Records an event; `fields` is a buffer for its fields.
    pub(crate) fn push(&self, event: &Event<'_>, fields: &mut Vec<u8>) {
        fields.clear();
        event.put_fields(fields);
        let mut state = self.shared.state.lock();
        if state.stopped || state.ending {
            return;
        }
        let space = self.shared.limits.buffer_bytes.saturating_sub(state.waiting_bytes);
        let bytes = state.writing.bytes() + fields.len();
        if fields.len() > EVENT_BYTES_MAX || bytes > space {
            state.dropped += 1;
            return;
        }
        state.writing.push(event, fields);
        if state.writing.bytes() >= BLOCK_BYTES {
            state.close_block();
            drop(state);
            self.shared.wake.notify_one();
        }
    }

    /// Writes what is left, and ends the trace. Later events are ignored.
    pub fn end(&self) {
        self.shared.state.lock().ending = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes the trace ended by a panic");
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

impl State {
    /// Moves the events so far to those that wait.
    fn close_block(&mut self) {
        let writing = std::mem::take(&mut self.writing);
        self.waiting_bytes += writing.bytes();
        self.waiting.push_back(Waiting { writing, dropped: self.dropped });
    }
}

impl Shared {
    /// Takes the next block; `None` if there is none any more.
    fn next(&self) -> Option<Waiting> {
        let mut state = self.state.lock();
        if state.waiting.is_empty() && !state.ending {
            self.wake.wait_for(&mut state, FLUSH_EVERY);
        }
        if state.waiting.is_empty() {
            if state.writing.bytes() == 0 && state.ending {
                return None;
            }
            state.close_block();
        }
        let waiting = state.waiting.pop_front()?;
        state.waiting_bytes = state.waiting_bytes.saturating_sub(waiting.writing.bytes());
        Some(waiting)
    }

    fn write(&self, mut file: File) {
        let mut end = BlockKind::Ended;
        while let Some(waiting) = self.next() {
            if waiting.writing.bytes() == 0 {
                continue;
            }
            let parts = waiting.writing.parts();
            if let Err(error) = file.block(waiting.dropped, BlockKind::Events, parts, &self.limits)
            {
                let mut state = self.state.lock();
                state.stopped = true;
                let waiting_events = |all: &VecDeque<Waiting>| -> u64 {
                    all.iter().map(|waiting| u64::from(waiting.writing.parts().0)).sum()
                };
                state.dropped += u64::from(parts.0)
                    + u64::from(state.writing.parts().0)
                    + waiting_events(&state.waiting);
                state.waiting.clear();
                state.writing = Writing::default();
                tracing::warn!(%error, "the trace ends here; the mount continues without it");
                end = BlockKind::Full;
                break;
            }
        }
        let dropped = self.state.lock().dropped;
        // On a full disk there may be no space for this either: then the trace is one that was cut.
        if let Err(error) = file.block(dropped, end, (0, &[]), &Limits::default()) {
            tracing::warn!(%error, "the end of the trace is not marked");
        }
    }
}

/// The file of a trace.
struct File {
    sink: Box<dyn Sink>,
    id: [u8; 16],
    length: u64,
    number: u64,
}

impl File {
    /// Appends a block, or leaves the file as it was.
    fn block(
        &mut self,
        dropped: u64,
        kind: BlockKind,
        events: (u32, &[u8]),
        limits: &Limits,
    ) -> io::Result<()> {
        let block = encode_block(&self.id, (self.number, dropped), kind, events)?;
        let length = self.length + block.len() as u64;
        if length > limits.file_bytes {
            let limit = format!("the trace has reached its limit, {} bytes", limits.file_bytes);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, limit));
        }
        if let Err(error) = self.sink.append(&block) {
            if let Err(error) = self.sink.cut(self.length) {
                tracing::warn!(%error, "an incomplete block stays at the end of the trace");
            }
            return Err(error);
        }
        self.length = length;
        self.number += 1;
        Ok(())
    }
}
