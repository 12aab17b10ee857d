//! Appending: a record gets its number here, mostly from a range reserved without the log's lock
//! (`reservation`). Its bytes stay in memory, in its thread's stage (`stage`), until a writer takes
//! them.
//!
//! Disk space for the record is allocated before it gets a number. So a full disk is reported here,
//! before anything is applied, and never by the later write.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use device::Env;
use device::sync::{Condvar, Mutex};
use format::log_record::{self, PAYLOAD_BYTES_MAX};
use format::log_segment::RECORDS_START;

use super::objects::{LogPosition, ObjectLog};
use super::reservation::{Locked, Shared};
use super::segment::{Counters, Files, Spare, Writer};
use super::stage::{Buffers, Stages};
use super::state::{ABOUT_BYTES, LogSpace, SPARES_RESERVED, State};
use super::{LogOptions, LogStats};
use crate::{Barrier, Error, Lsn, Result};

/// The log of a store. Shared by all threads.
pub struct Log {
    pub(super) env: Env,
    pub(super) files: Files,
    pub(super) options: LogOptions,
    pub(super) barrier: OnceLock<Arc<dyn Barrier>>,
    pub(super) state: Shared,
    pub(super) stages: Stages,
    /// Approximate bytes appended since opening, for frequent callers.
    appended_about: About,
    /// Signalled when a write has ended.
    pub(super) turn: Condvar,
    /// Signalled when a thread joins those that wait for a sync.
    pub(super) joined: Condvar,
    /// Where records go if not to files.
    pub(super) objects: Option<Arc<ObjectLog>>,
    /// Files; locked by the one writing thread, and for trimming.
    pub(super) writer: Mutex<Writer>,
    /// Held while a spare segment is made, so that concurrent committers do not make one each.
    preparing: Mutex<()>,
    /// Held to free or rename segments. Taken after `preparing`, before the others.
    pub(super) trimming: Mutex<()>,
    /// A copy of `State`'s field, for readers without the lock.
    pub(super) durable: AtomicU64,
    /// Whether the buffer is full enough to be written. It seldom changes, so checking it on each
    /// append is cheap.
    full: AtomicBool,
    /// Whether the log is on a different disk from the rest of the store.
    elsewhere: bool,
    /// How often that disk had no space for a record.
    refused: AtomicU64,
    pub(super) counters: Counters,
}

/// The subject of a no-space error when the log has a disk of its own that is full.
const ON_ITS_OWN: &str = "the log, on a device of its own";

/// Bytes of records that a log in objects takes: more than any has.
const OBJECT_SPACE: u64 = 1 << 62;

/// A number with a cache line of its own. It changes once in many appends, and reading it must not
/// fetch a line that each append writes.
#[derive(Default)]
#[repr(align(128))]
struct About(AtomicU64);

impl Log {
    /// Assembles a log from its existing files.
    pub(super) fn assemble(env: &Env, files: Files, options: &LogOptions, writer: Writer) -> Log {
        let next = writer.next;
        let state = State {
            reserved: None,
            bounds: [options.write_bytes, options.buffer_bytes_max],
            driven: None,
            next,
            durable: next - 1,
            buffered: 0,
            idle: Buffers::default(),
            cuts: Vec::new(),
            space: writer.space(),
            appended: 0,
            spares: Vec::new(),
            dirty_since: None,
            in_reserve: false,
            renew: false,
            writing: false,
            waiters: 0,
            group: 0,
            failed: None,
            refused: None,
        };
        Log {
            env: env.clone(),
            options: options.clone(),
            barrier: OnceLock::new(),
            state: Shared::new(state, options),
            stages: Stages::default(),
            appended_about: About::default(),
            turn: Condvar::new(),
            joined: Condvar::new(),
            objects: None,
            writer: Mutex::new(writer),
            preparing: Mutex::new(()),
            trimming: Mutex::new(()),
            durable: AtomicU64::new(next - 1),
            full: AtomicBool::new(false),
            // If that cannot be determined, freeing space on the other disk is assumed to help.
            elsewhere: files.device.is_elsewhere(&files.directory).unwrap_or(false),
            refused: AtomicU64::new(0),
            counters: Counters::default(),
            files,
        }
    }

    /// A log whose records go to objects after the record `last`. There is always space for a
    /// record: the bound of the last segment is not reached.
    pub(super) fn assemble_objects(
        env: &Env,
        options: &LogOptions,
        objects: Arc<ObjectLog>,
        last: u64,
    ) -> Log {
        let files = Files::new(Arc::clone(&env.device), "", [0; 16], options.key);
        let mut log = Log::assemble(env, files, options, Writer::without_files(last + 1));
        log.objects = Some(objects);
        // No other thread has it yet.
        log.state.lock().space = OBJECT_SPACE;
        log
    }

    /// Sets what must be durable before log bytes are written. Call once, before the first append.
    pub fn set_barrier(&self, barrier: Arc<dyn Barrier>) {
        assert!(self.barrier.set(barrier).is_ok(), "the barrier is set once");
    }

    /// Numbers a record and buffers it. Records become durable in the order of their numbers.
    ///
    /// Costs a checksum and a copy; waits only when the buffer is full or a new segment must be
    /// allocated. `NoSpace`: the disk has no space for the record, and nothing happened. The caller
    /// may hold locks, but none that [`Barrier::reach`] needs.
    pub fn append(&self, payload: &[u8], space: LogSpace) -> Result<Lsn> {
        assert!(!payload.is_empty() && payload.len() <= PAYLOAD_BYTES_MAX, "payload out of bounds");
        let sum = log_record::sum_payload(self.files.seed, payload);
        let bytes = log_record::HEADER_BYTES + payload.len();
        // The stage first: the writer of the record waits for the stage until its bytes are there.
        let mut stage = self.stages.of_thread();
        if let Some(lsn) = self.state.take(bytes) {
            let header = log_record::encode(sum, payload.len() as u32, lsn, self.durable().0);
            stage.push(lsn, &header, payload);
            return Ok(Lsn(lsn));
        }
        let mut state = self.state.lock();
        if !self.has_space(&state, bytes, space)? {
            // A thread that makes space may have to write, which takes all stages. The space it
            // made, perhaps from the reserve, must be its own: no other thread gets a number in
            // between.
            drop(stage);
            self.make_space(&mut state, bytes, space).inspect_err(|error| {
                if matches!(error, Error::NoSpace(ON_ITS_OWN)) {
                    self.refused.fetch_add(1, Ordering::Release);
                }
            })?;
            stage = self.stages.made_space();
        }
        let (lsn, durable, before) = (state.next, state.durable, state.appended);
        state.taken(1, bytes as u64);
        if state.dirty_since.is_none() {
            state.dirty_since = Some(self.env.clock.monotonic());
        }
        if state.buffered >= state.bounds[0] && !self.full.load(Ordering::Relaxed) {
            self.full.store(true, Ordering::Relaxed);
        }
        if before / ABOUT_BYTES != state.appended / ABOUT_BYTES {
            self.appended_about.0.store(state.appended, Ordering::Relaxed);
        }
        drop(state);
        let header = log_record::encode(sum, payload.len() as u32, lsn, durable);
        stage.push(lsn, &header, payload);
        Ok(Lsn(lsn))
    }

    /// How often a record was refused because the log's disk is full, where that is not the disk of
    /// the rest of the store.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Acquire)
    }

    /// Whether the last segment and the buffer can hold a record of `bytes`.
    #[inline]
    fn has_space(&self, state: &State, bytes: usize, space: LogSpace) -> Result<bool> {
        state.check()?;
        let fits = state.buffered == 0 || state.buffered + bytes <= self.options.buffer_bytes_max;
        let may = !state.in_reserve || space == LogSpace::Reserve;
        Ok(fits && may && !state.renew && bytes as u64 <= state.space)
    }

    /// Whether the buffer is full enough to be written.
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Records that a writer has taken the buffered records, or that they are left for one.
    pub(super) fn emptied(&self) {
        self.set_full(false);
    }

    /// Sets whether committers look at the buffer.
    pub(super) fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    /// Fails when no write is possible.
    pub(super) fn check_written(&self) -> Result<()> {
        self.state.lock().check_written()
    }

    /// A manifest that was listed as the newest names this log, if it is in objects: records may be
    /// written.
    pub fn announce(&self) {
        if let Some(objects) = &self.objects {
            objects.announce();
        }
    }

    /// Where the log continues after a state with all records up to this one, if it is in objects.
    pub fn position(&self, lsn: Lsn) -> Option<LogPosition> {
        self.objects.as_ref().map(|objects| objects.position(lsn))
    }

    /// Whether recovery would read so many objects that a checkpoint is due.
    pub fn is_long(&self) -> bool {
        self.objects.as_ref().is_some_and(|objects| objects.is_long())
    }

    /// Returns when there is space for a record of `bytes`, which belongs to the caller while it
    /// holds the lock. The caller holds no stage.
    fn make_space(&self, state: &mut Locked<'_>, bytes: usize, space: LogSpace) -> Result<()> {
        while !self.has_space(state, bytes, space)? {
            let buffered = state.buffered;
            if buffered > 0 && buffered + bytes > self.options.buffer_bytes_max {
                self.write_or_wait(state)?;
            } else if let Some(spare) = state.take_spare(bytes as u64, LogSpace::Normal) {
                state.cut(spare);
                state.in_reserve = false;
            } else {
                let made = state.unlocked(|| self.prepare(bytes as u64));
                match made {
                    Ok(()) => {}
                    // The damaged segment has space, so no append is refused.
                    Err(Error::NoSpace(_)) if state.renew => state.renew = false,
                    Err(Error::NoSpace(what)) if space == LogSpace::Reserve => {
                        if self.has_space(state, bytes, space)? {
                            // Another thread has begun the reserved segment.
                            break;
                        }
                        // A record that deletes may use the reserved segment.
                        let spare = state.take_spare(bytes as u64, LogSpace::Reserve);
                        state.cut(spare.ok_or(Error::NoSpace(what))?);
                        state.in_reserve = true;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Ensures that a spare segment of at least `need` bytes exists beside the reserve.
    pub(super) fn prepare(&self, need: u64) -> Result<()> {
        let _one = self.preparing.lock();
        let fits = |spare: &Spare| spare.bytes.saturating_sub(RECORDS_START) >= need;
        loop {
            let state = self.state.lock();
            if state.spares.len() > SPARES_RESERVED && state.spares.iter().any(fits) {
                return Ok(());
            }
            drop(state);
            let bytes = self.options.segment_bytes.max(need + RECORDS_START);
            // Segments that are only kept are freed before any append is refused.
            let needed = 2 * bytes;
            if self.env.device.space()?.free_bytes < needed && self.gives_up_what_is_kept() {
                continue;
            }
            // A log that takes the last space is never trimmed: trimming takes a checkpoint, and
            // the checkpoint takes space.
            if self.env.device.space()?.free_bytes < needed {
                return Err(Error::NoSpace("the log"));
            }
            match self.files.make_spare(bytes) {
                // The log may be on a different disk from the one that reports its free space.
                Err(Error::NoSpace(_)) if self.gives_up_what_is_kept() => {}
                // The rest of the store had space.
                Err(Error::NoSpace(_)) if self.elsewhere => {
                    return Err(Error::NoSpace(ON_ITS_OWN));
                }
                spare => self.state.lock().spares.push(spare?),
            }
        }
    }

    /// Frees segments that are only kept; returns whether there were any. Logs errors.
    fn gives_up_what_is_kept(&self) -> bool {
        self.keep_nothing().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot drop retained log segments");
            false
        })
    }

    /// Makes the next record begin a segment, so that the next checkpoint makes the present one
    /// unnecessary. In the present one, records that recovery needs were found damaged.
    pub(super) fn renew(&self) {
        self.state.lock().renew = true;
    }

    /// Called after a commit was applied and its locks were released: waits for the disk in sync
    /// mode, and writes a full buffer in others.
    pub fn committed(&self, lsn: Lsn) -> Result<()> {
        match self.options.durability {
            crate::Durability::Sync => return self.sync_committed(lsn),
            crate::Durability::Settled | crate::Durability::Async => self.write_if_full(),
        }
        .inspect_err(|error| self.refuse_after(error))
    }

    /// Waits until a commit that was applied is durable.
    pub fn sync_committed(&self, lsn: Lsn) -> Result<()> {
        self.sync(lsn).inspect_err(|error| self.refuse_after(error))
    }

    /// A commit that was applied failed: its caller relies on it that no other succeeds. A log in
    /// files has latched; one in objects accepts no more from now on, and still writes what it has.
    #[cold]
    fn refuse_after(&self, error: &Error) {
        if self.objects.is_some() {
            self.fail(&format!("a commit could not be written: {error}"));
        }
    }

    /// The last record that was appended; 0 when there is none.
    pub fn last(&self) -> Lsn {
        Lsn(self.state.last())
    }

    /// Bytes of all records appended since opening, headers included. Takes the log's lock.
    pub fn appended_bytes(&self) -> u64 {
        self.state.lock().appended
    }

    /// The same, but without the lock, and low by up to 64 KiB and a record.
    pub fn appended_about(&self) -> u64 {
        self.appended_about.0.load(Ordering::Relaxed)
    }

    /// The last record known to be durable.
    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Fails when the log accepts no more records: a write or sync failed, or the engine refuses.
    pub fn check(&self) -> Result<()> {
        self.state.lock().check()
    }

    /// Whether only further records are refused, in a log in objects: those that have numbers are
    /// still written.
    pub fn only_refuses(&self) -> bool {
        let state = self.state.lock();
        self.objects.is_some() && state.failed.is_none() && state.refused.is_some()
    }

    /// Refuses further records, because the engine could not write the data that belongs to them.
    /// Records that have numbers were acknowledged, or will be, and are still written.
    pub fn fail(&self, why: &str) {
        self.state.lock().refused.get_or_insert_with(|| Arc::from(why));
        self.turn.notify_all();
    }

    /// Makes one more record durable where the engine refuses all others (`fail`). No other thread
    /// appends.
    pub fn append_last(&self, payload: &[u8]) -> Result<()> {
        let refused = self.state.lock().refused.take();
        let appended = self.append(payload, LogSpace::Reserve).and_then(|lsn| self.sync(lsn));
        let mut state = self.state.lock();
        state.refused = state.refused.take().or(refused);
        appended
    }

    /// Refuses further records, and writes none of the buffered ones: its place belongs to another
    /// log.
    pub fn abandon(&self, why: &str) {
        self.state.lock().failed.get_or_insert_with(|| Error::ReadOnly(Arc::from(why)));
        self.turn.notify_all();
    }

    /// Counters.
    pub fn stats(&self) -> LogStats {
        let (segments, used) = {
            let writer = self.writer.lock();
            let used = writer.segments.iter().map(|segment| segment.bytes).sum::<u64>();
            (writer.segments.len() as u64, used + writer.kept.bytes())
        };
        let (segments, used) = match &self.objects {
            Some(objects) => objects.extent(),
            None => (segments, used),
        };
        let state = self.state.lock();
        let cut = state.cuts.iter().map(|cut| cut.spare.bytes).sum::<u64>();
        let spare = state.spares.iter().map(|spare| spare.bytes).sum::<u64>();
        LogStats {
            last: Lsn(state.next - 1),
            durable: Lsn(state.durable),
            disk_bytes: used + cut + spare,
            segments,
            appended_bytes: state.appended,
            written_bytes: self.counters.written_bytes.load(Ordering::Relaxed),
            writes: self.counters.writes.load(Ordering::Relaxed),
            syncs: self.counters.syncs.load(Ordering::Relaxed),
        }
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
