//! Sends items to the daemon: batched into messages, with a bounded number of messages that the
//! daemon has not answered yet. Contents of files that were read ahead are not copied into a
//! message: it is sent from where they are, which is kept until then.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use client::Connection;
use device::{Clock, SystemClock};
use indicatif::ProgressBar;
use wire::{Answer, Body, Call, Failure, FailureKind, Item, ItemError, Items, ListEntry};

use super::ahead::Contents;
use super::memory::{Memory, of_entries};
use super::verify::Sent;
use crate::failure::Result;
use crate::session;

/// A message is sent when it is this long, in bytes, ...
const BATCH_BYTES: usize = 256 << 10;

/// ... or holds this many items.
const BATCH_ITEMS: u64 = 512;

/// Shorter contents are copied: a piece of a message costs as much.
const APART_BYTES_MIN: usize = 2 << 10;

/// A message is sent when it has pieces of so many batches: their memory is kept until then.
const APART_BATCHES_MAX: usize = 8;

/// Messages that may be unanswered: enough that the daemon never waits, few enough that the
/// progress shown is what the daemon has done.
const WINDOW: usize = 8;

/// After sending nothing for this long, the command sends a sign of life:
/// the daemon ends an import that is silent for five minutes.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// A directory that was entered.
pub(super) struct Entered {
    /// Its entries.
    pub(super) existing: Vec<ListEntry>,
    pub(super) existed: bool,
    /// Whether an earlier import of this user made it, and did not finish it.
    pub(super) unfinished: bool,
}

/// The stream to the daemon.
pub(super) struct Stream {
    connection: Connection,
    items: Items,
    /// The contents that are apart in `items`: of which batch, and where.
    apart: Vec<(Arc<Contents>, Range<usize>)>,
    /// Of how many batches they are.
    batches: usize,
    count: u64,
    /// Flushes that are not answered yet: the request and the number of inodes that it covers.
    open: VecDeque<(u32, u64)>,
    errors: Vec<ItemError>,
    more_errors: u64,
    /// What was sent, if that is to be verified.
    sent_items: Option<Sent>,
    bar: ProgressBar,
    clock: SystemClock,
    /// When the last message was sent.
    sent: Duration,
}

impl Stream {
    pub(super) fn new(connection: Connection, bar: &ProgressBar) -> Stream {
        Stream {
            connection,
            items: Items::default(),
            apart: Vec::new(),
            batches: 0,
            count: 0,
            open: VecDeque::new(),
            errors: Vec::new(),
            more_errors: 0,
            sent_items: None,
            bar: bar.clone(),
            clock: SystemClock::new(),
            sent: Duration::ZERO,
        }
    }

    /// Keeps what is sent from now on, to be verified; `single`: as the only file.
    pub(super) fn keep(&mut self, single: bool) {
        self.sent_items = Some(Sent::new(single));
    }

    /// Whether sent items are kept.
    pub(super) fn keeps(&self) -> bool {
        self.sent_items.is_some()
    }

    /// What was kept.
    pub(super) fn take_kept(&mut self) -> Option<Sent> {
        self.sent_items.take()
    }

    /// Reports to the daemon that the walk continues, after a long time without items.
    pub(super) fn proceed(&mut self) -> Result<()> {
        if self.clock.monotonic().saturating_sub(self.sent) < SILENT_FOR {
            return Ok(());
        }
        if self.items.is_empty() {
            self.flush()?;
        } else {
            self.send()?;
        }
        self.drain()
    }

    /// Queues an item to be sent soon.
    pub(super) fn push(&mut self, item: &Item<'_>) -> Result<()> {
        self.items.push(item);
        self.pushed(item)
    }

    /// As [`Stream::push`], a file whose contents are those of a batch at `range`.
    pub(super) fn push_of(
        &mut self,
        item: &Item<'_>,
        batch: &Arc<Contents>,
        range: Range<usize>,
    ) -> Result<()> {
        if range.len() < APART_BYTES_MIN || !self.items.push_apart(item) {
            return self.push(item);
        }
        let last = self.apart.last();
        self.batches += usize::from(last.is_none_or(|(last, _)| !Arc::ptr_eq(last, batch)));
        self.apart.push((Arc::clone(batch), range));
        self.pushed(item)
    }

    /// Notes an item that was queued, and sends the message if it is full.
    fn pushed(&mut self, item: &Item<'_>) -> Result<()> {
        if let Some(sent) = &mut self.sent_items {
            sent.note(item);
        }
        // An item sent in several parts counts with its last part.
        let part = matches!(item, Item::Begin { .. } | Item::Data { .. } | Item::Leave { .. });
        self.count += u64::from(!part);
        let full = self.items.len() >= BATCH_BYTES || self.batches >= APART_BATCHES_MAX;
        if full || self.count >= BATCH_ITEMS {
            self.send()?;
            while self.open.len() > WINDOW {
                self.receive()?;
            }
        }
        Ok(())
    }

    /// Sends a request that the daemon must answer before the walk continues; returns the entries
    /// in the answer and what else it has. Entries beyond the memory are not kept: the directory is
    /// left then.
    pub(super) fn ask(&mut self, call: Call<'_>, memory: &Memory) -> Result<Entered> {
        self.drain()?;
        let (mut existing, mut bytes) = (Vec::new(), 0);
        let entered = match call {
            Call::ImportEnter { name } => Some(name),
            _ => None,
        };
        let answer = self.connection.call(call, &mut |body| {
            if let Body::Entries { entries, .. } = body {
                bytes += of_entries(&entries);
                if memory.allows(bytes) {
                    existing.extend(entries);
                } else {
                    existing = Vec::new();
                }
            }
            Ok(())
        })?;
        match answer {
            Answer::Entered { .. } if !memory.allows(bytes) => {
                if entered.is_some() {
                    self.items.push(&Item::Back);
                }
                Err(memory.exceeded())
            }
            Answer::Entered { existed, unfinished } => {
                if let (Some(sent), Some(name)) = (&mut self.sent_items, entered) {
                    sent.enter(name);
                }
                Ok(Entered { existing, existed, unfinished })
            }
            other => Err(session::unexpected(&other)),
        }
    }

    /// Waits until everything sent is done.
    pub(super) fn wait(&mut self) -> Result<()> {
        self.drain()
    }

    /// Sends another request of the import, after everything sent is done.
    pub(super) fn request(&mut self, call: Call<'_>) -> Result<Answer> {
        self.drain()?;
        self.connection.ask(call)
    }

    /// Whether a file of the volume has these contents.
    pub(super) fn has_contents(&mut self, path: &[u8], contents: &[u8]) -> Result<bool> {
        let mut rest = contents;
        let same = self.reads(path, &mut |bytes| {
            let more = rest.strip_prefix(bytes);
            rest = more.unwrap_or_default();
            more.is_some()
        })?;
        Ok(same && rest.is_empty())
    }

    /// Reads a file of the volume, and compares each part in order. `false`: a part differs, or
    /// it cannot be read.
    pub(super) fn reads(
        &mut self,
        path: &[u8],
        is_same: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<bool> {
        self.drain()?;
        let mut same = true;
        let read = self.connection.call(Call::Read { path }, &mut |body| {
            if let Body::Data(bytes) = body {
                same = same && is_same(&bytes.0);
            }
            Ok(())
        });
        match read {
            Ok(_) => Ok(same),
            // It is made again, which returns why it cannot be.
            Err(failure) if failure.kind != FailureKind::Interrupted => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Ends the import; everything sent is durable then.
    pub(super) fn close(&mut self) -> Result<()> {
        self.drain()?;
        let answer = self.connection.ask(Call::ImportClose)?;
        self.note(answer)
    }

    /// The failed items since the last call.
    pub(super) fn take_errors(&mut self) -> (Vec<ItemError>, u64) {
        (std::mem::take(&mut self.errors), std::mem::take(&mut self.more_errors))
    }

    /// Whether there are failed items to take.
    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    fn drain(&mut self) -> Result<()> {
        self.send()?;
        while !self.open.is_empty() {
            self.receive()?;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        if self.items.is_empty() {
            return Ok(());
        }
        let contents = self.apart.iter().map(|(batch, range)| &batch.all()[range.clone()]);
        let sent = self.connection.send_items(&self.items.pieces(contents));
        // What cannot be sent would end the rest, too.
        self.items.clear();
        self.apart.clear();
        self.batches = 0;
        sent?;
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        let id = self.connection.send(Call::ImportFlush)?;
        self.open.push_back((id, std::mem::take(&mut self.count)));
        self.sent = self.clock.monotonic();
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        let reply = self.connection.receive()?;
        let Some((id, count)) = self.open.pop_front() else { return Ok(()) };
        if reply.id != id {
            let message = "the daemon's answers are out of sequence";
            return Err(Failure::new(FailureKind::Protocol, message));
        }
        self.bar.inc(count);
        match reply.body {
            Body::Done(answer) => self.note(answer),
            Body::Failed(failure) => Err(failure),
            _ => {
                Err(Failure::new(FailureKind::Protocol, "an unexpected partial answer to a flush"))
            }
        }
    }

    fn note(&mut self, answer: Answer) -> Result<()> {
        match answer {
            Answer::Imported { errors, more } => {
                if let Some(sent) = &mut self.sent_items {
                    for error in &errors {
                        sent.failed(&error.path.0);
                    }
                }
                self.errors.extend(errors);
                self.more_errors += more;
                Ok(())
            }
            other => Err(session::unexpected(&other)),
        }
    }
}
