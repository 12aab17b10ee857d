//! Writing and syncing a log of files: one thread at a time, the **leader**, takes all buffered
//! records.
//!
//! ```text
//! 1. note the last number, under the lock         records appended later go to the next write
//!    take the records up to it from all stages    without it: a thread that uses a stage needs it
//! 2. reach the barrier                            file data that these records name is durable
//! 3. write the bytes, segment by segment          a segment is synced before the next one begins
//! 4. sync, if a thread requested it
//! 5. write the mark                               states, for recovery, how far the sync reached
//! 6. publish how far the log is durable, under the lock, and wake the others
//! ```
//!
//! Only step 2 enforces the order "data before the record that names it"; a log of objects
//! (`objects/send.rs`) does so before it sends one. A failure anywhere latches. After a failed
//! write or sync the on-disk state is unknown, and a retry could report as durable what the kernel
//! has discarded.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::append::Log;
use super::reservation::Locked;
use super::segment::Writer;
use super::stage::Buffers;
use super::state::{Cut, State};
use crate::{Error, Lsn, Result};

/// Whether a write also syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Sync,
    Return,
}

/// What a leader took.
struct Taken {
    buffers: Buffers,
    cuts: Vec<Cut>,
    last: u64,
}

impl Log {
    /// Returns when the record, and all before it, are durable. Concurrent callers share one write
    /// and one sync.
    pub fn sync(&self, lsn: Lsn) -> Result<()> {
        if self.durable() >= lsn || device::mutated("answers before they are durable") {
            return Ok(());
        }
        let mut state = self.state.lock();
        assert!(lsn.0 < state.next, "record {} was never appended", lsn.0);
        state.waiters += 1;
        self.joined.notify_one();
        let done = self.sync_locked(&mut state, lsn);
        state.waiters -= 1;
        done
    }

    fn sync_locked(&self, state: &mut Locked<'_>, lsn: Lsn) -> Result<()> {
        while state.durable < lsn.0 {
            state.check_written()?;
            if state.writing {
                self.await_turn(state)?;
            } else if let Some(objects) = &self.objects {
                self.advance(state, objects, lsn.0)?;
            } else {
                self.gather(state);
                state.group = state.waiters;
                self.lead(state, Then::Sync);
            }
        }
        Ok(())
    }

    /// Waits for what another thread does. Fails if no caller waits for that any more.
    pub(super) fn await_turn(&self, state: &mut Locked<'_>) -> Result<()> {
        if !device::is_interruptible() {
            state.wait(&self.turn);
            return Ok(());
        }
        if device::is_interrupted() {
            let error = std::io::Error::from(std::io::ErrorKind::Interrupted);
            return Err(device::Error::new("sync", "the log", error).into());
        }
        state.wait_for(&self.turn, device::LOOK_EVERY);
        Ok(())
    }

    /// The thread that will sync for others waits until as many threads want to sync as the last
    /// sync served. The threads that the last sync woke are about to append their next records. A
    /// leader that begins without them makes them wait for two syncs.
    pub(super) fn gather(&self, state: &mut Locked<'_>) {
        if self.options.window.is_zero() || state.waiters >= state.group {
            return;
        }
        state.writing = true;
        while state.waiters < state.group {
            if state.wait_for(&self.joined, self.options.window) {
                break;
            }
        }
        state.writing = false;
    }

    /// Syncs when the oldest unsynced record is older than the interval, and writes what committers
    /// left to the caller of this. Returns how long until the next call is due.
    pub fn flush_if_due(&self) -> Result<Duration> {
        let mut state = self.state.lock();
        state.check_written()?;
        let interval = self.options.interval.min(self.drive(&mut state)?);
        if let Some(objects) = &self.objects
            && objects.has_idle()
        {
            // A thread gave up; this one continues.
            let last = Lsn(state.next - 1);
            drop(state);
            self.sync(last)?;
            return Ok(interval);
        }
        let Some(since) = state.dirty_since else { return Ok(interval) };
        let age = self.env.clock.monotonic().saturating_sub(since);
        let left = self.options.interval.checked_sub(age).filter(|left| !left.is_zero());
        if let Some(left) = left {
            return Ok(left.min(interval));
        }
        let last = Lsn(state.next - 1);
        if !state.writing && self.objects.is_none() {
            self.lead(&mut state, Then::Sync);
        }
        drop(state);
        self.sync(last)?;
        Ok(interval)
    }

    /// Ends the segment that committers have filled and left. Returns how long it takes, at the
    /// present rate, until half of what may be left has accumulated.
    fn drive(&self, state: &mut Locked<'_>) -> Result<Duration> {
        let now = self.env.clock.monotonic();
        let (then, before) = state.driven.unwrap_or((now, state.appended));
        state.driven = Some((now, state.appended));
        let appended = (state.appended - before).max(1) as f64;
        let pace = now.saturating_sub(then).as_secs_f64() / appended;
        match &self.objects {
            Some(objects) => {
                let due = state.buffered >= self.options.write_bytes;
                if due && !state.writing && objects.may_take() {
                    self.take_and_send(state, objects)?;
                }
            }
            None if !state.writing && !state.cuts.is_empty() => {
                self.lead(state, Then::Return);
                state.check_written()?;
            }
            None => {}
        }
        let half = self.left_bytes_max() as f64 / 2.0;
        let due = Duration::try_from_secs_f64(pace * half).unwrap_or(Duration::MAX);
        // The first call has no rate yet.
        Ok(if then == now { self.options.interval } else { due })
    }

    /// Bytes that committers leave to the thread that calls `flush_if_due`.
    fn left_bytes_max(&self) -> usize {
        self.options.buffer_bytes_max / 2
    }

    /// Leaves a write to the thread that calls `flush_if_due` where the buffered records end a
    /// segment, which syncs it, or become an object. No commit waits for the disk or the store
    /// then, unless too much is buffered. Returns whether it was left.
    fn leave(&self, state: &mut State) -> bool {
        let most = self.left_bytes_max();
        let waits = !state.cuts.is_empty() || self.objects.is_some();
        let leave = state.driven.is_some() && waits && state.buffered < most;
        if leave {
            state.bounds[0] = most;
            self.emptied();
        }
        leave
    }

    /// Writes a full buffer, without syncing, unless another thread is writing.
    pub(super) fn write_if_full(&self) -> Result<()> {
        if !self.is_full() {
            return Ok(());
        }
        let mut state = self.state.lock();
        state.check_written()?;
        if let Some(objects) = &self.objects
            && objects.is_stalled()
        {
            // No more than this stays undurable while the store cannot be reached.
            let last = Lsn(state.next - 1);
            return self.sync_locked(&mut state, last);
        }
        if !state.writing && state.buffered >= state.bounds[0] && !self.leave(&mut state) {
            match &self.objects {
                Some(objects) if objects.may_take() => {
                    self.take_and_send(&mut state, objects)?;
                }
                Some(_) => {}
                None => self.lead(&mut state, Then::Return),
            }
        }
        state.check_written()
    }

    /// Waits while a log in objects has so much buffered that an append might wait.
    pub fn await_space(&self) -> Result<()> {
        if self.objects.is_none() || !self.is_full() {
            return Ok(());
        }
        let most = self.options.buffer_bytes_max / 4 * 3;
        let mut state = self.state.lock();
        while state.buffered > most {
            state.check_written()?;
            self.write_or_wait(&mut state)?;
        }
        Ok(())
    }

    /// Makes everything durable. No append may follow.
    pub fn close(&self) -> Result<()> {
        self.sync(self.last())
    }

    /// Makes space in the buffer: writes, or waits for the writing thread.
    pub(super) fn write_or_wait(&self, state: &mut Locked<'_>) -> Result<()> {
        if state.writing {
            return self.await_turn(state);
        }
        if let Some(objects) = &self.objects {
            let last = state.next - 1;
            return self.advance(state, objects, last);
        }
        self.lead(state, Then::Return);
        Ok(())
    }

    /// Writes the buffered records. The lock is released meanwhile. A failure is in `state.failed`.
    fn lead(&self, state: &mut Locked<'_>, then: Then) {
        debug_assert!(!state.writing, "one leader at a time");
        if state.failed.is_some() {
            // The on-disk state is unknown: bytes after a gap would turn it into damage.
            return;
        }
        state.writing = true;
        let taken = Taken {
            buffers: std::mem::take(&mut state.idle),
            cuts: std::mem::take(&mut state.cuts),
            last: state.next - 1,
        };
        state.buffered = 0;
        state.bounds[0] = self.options.write_bytes;
        self.emptied();
        if then == Then::Sync {
            state.dirty_since = None;
        }
        let (taken, written) = state.unlocked(|| {
            let mut taken = taken;
            self.stages.take(taken.last, &mut taken.buffers);
            let written = self.write(&mut taken, then);
            (taken, written)
        });
        match written {
            Ok(durable) => {
                state.durable = state.durable.max(durable);
                self.durable.store(state.durable, Ordering::Release);
            }
            Err(error) => {
                tracing::error!(%error, "the log is read-only from now on");
                let why = || Error::ReadOnly(Arc::from(error.to_string()));
                state.failed.get_or_insert_with(why);
            }
        }
        state.idle = taken.buffers;
        // They grew while the last leader waited for the disk.
        state.idle.clear(self.options.write_bytes.saturating_mul(4));
        state.writing = false;
        self.turn.notify_all();
        if state.failed.is_none() && self.wants_spare(state) {
            // Allocated in advance, so that committers do not wait for it. If it fails, the thread
            // that needs the space reports the error.
            let made = state.unlocked(|| self.prepare(1));
            if let Err(error) = made {
                tracing::debug!(%error, "cannot allocate a spare log segment");
            }
        }
    }

    /// Whether the last segment is half full and no spare exists.
    pub(super) fn wants_spare(&self, state: &State) -> bool {
        state.space < self.options.segment_bytes / 2 && state.spares.len() < 2
    }

    /// Steps 2 to 5. Returns the last record that is certainly durable.
    fn write(&self, taken: &mut Taken, then: Then) -> device::Result<u64> {
        let mut durable = 0;
        if let Some(barrier) = self.barrier.get().filter(|_| taken.buffers.len() > 0) {
            barrier.reach()?;
        }
        let mut writer = self.writer.lock();
        let records = taken.buffers.len() as u64;
        assert!(writer.next + records == taken.last + 1, "records are written without gaps");
        for cut in taken.cuts.drain(..) {
            self.put(&mut writer, &mut taken.buffers, cut.first)?;
            writer.rotate(&self.files, cut.first, &cut.spare, &self.counters)?;
            durable = cut.first - 1;
        }
        self.put(&mut writer, &mut taken.buffers, taken.last + 1)?;
        writer.next = taken.last + 1;
        if then == Then::Sync {
            writer.sync(&self.counters)?;
            writer.mark(self.files.seed)?;
            durable = taken.last;
        }
        Ok(durable)
    }

    /// Writes the records taken that are below `first` to the last segment.
    fn put(&self, writer: &mut Writer, taken: &mut Buffers, first: u64) -> device::Result<()> {
        loop {
            let bytes = taken.before(first);
            if bytes.is_empty() {
                return Ok(());
            }
            writer.put(bytes, &self.counters)?;
        }
    }
}
