//! Appending: a record gets its number here, mostly of what the log's lock has lent (`loan`), and
//! its bytes are left, in memory, with those of its thread (`stage`), for whoever writes.
//!
//! Room for the record exists on disk before it gets a number, so a full disk is answered
//! here, before anything is applied, and never by the write that follows. Invariants of
//! [`State`]: the records `next - n .. next`, which are `buffered` bytes, are staged, or will be
//! when their threads let go of their stages; each entry of `cuts` tells with which of them a new
//! segment begins; `room` is what is left in the segment in which the last of them ends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use device::Env;
use format::log_record::{self, PAYLOAD_BYTES_MAX};
use format::log_segment::RECORDS_START;
use parking_lot::{Condvar, Mutex};

use super::loan::{Locked, Shared};
use super::segment::{Files, Spare, Writer};
use super::stage::{Buffers, Stages};
use super::{LogOptions, LogStats};
use crate::{Barrier, Error, Lsn, Result};

/// Spare segments that only [`Room::Reserve`] may use.
const SPARES_RESERVED: usize = 1;

/// Which room an append may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// What the disk gives.
    Normal,
    /// Also the segment kept back so that things can be deleted when the disk is full.
    Reserve,
}

/// The log of a store. Shared by all threads.
pub struct Log {
    pub(super) env: Env,
    pub(super) files: Files,
    pub(super) options: LogOptions,
    pub(super) barrier: OnceLock<Arc<dyn Barrier>>,
    pub(super) state: Shared,
    pub(super) stages: Stages,
    /// About how many bytes were appended since opening, for who asks often.
    appended_about: About,
    /// Told when a write has ended.
    pub(super) turn: Condvar,
    /// Told when somebody joins those who want to sync.
    pub(super) joined: Condvar,
    /// Files; locked by the one thread that writes, and for trimming.
    pub(super) writer: Mutex<Writer>,
    /// Held while a spare segment is made, so that committers do not make one each.
    preparing: Mutex<()>,
    /// Held by who gives segments up or other names. Taken after `preparing`, before the others.
    pub(super) trimming: Mutex<()>,
    /// A copy of that of `State`, for readers without the lock.
    pub(super) durable: AtomicU64,
    /// Whether so much is buffered that it should be written. Seldom changed, so that asking each
    /// time costs nothing.
    full: AtomicBool,
    /// Whether its medium is not that of the rest of the store.
    elsewhere: bool,
    /// How often that medium had no room for a record.
    refused: AtomicU64,
    pub(super) counters: Counters,
}

/// What there is no room for where the log has a disk of its own, and that one is full.
const ON_ITS_OWN: &str = "the log, on a medium of its own";

/// A number with a cache line of its own: it changes once in many appends, and looking at it
/// between must not fetch what each of them writes.
#[derive(Default)]
#[repr(align(128))]
struct About(AtomicU64);

/// How far behind the truth [`Log::appended_about`] may be, in bytes, and so how much is lent at
/// most.
const ABOUT_BYTES: u64 = 64 << 10;

/// What `stats` adds up.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) written_bytes: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) syncs: AtomicU64,
}

/// What appenders share.
pub(super) struct State {
    /// Bytes that are lent, from `next` on, while nobody has the lock.
    pub(super) lent: Option<u64>,
    /// Buffered bytes at which somebody is told to write, and at which appenders wait.
    pub(super) bounds: [usize; 2],
    /// When, and how many bytes after opening, the log was last driven (`flush_if_due`); never,
    /// where nobody drives it.
    pub(super) driven: Option<(Duration, u64)>,
    /// Number of the next record.
    pub(super) next: u64,
    /// Bytes left in the segment in which the buffer ends.
    pub(super) room: u64,
    /// Bytes of all records that were appended since opening.
    pub(super) appended: u64,
    /// Bytes of records that no writer has taken yet.
    pub(super) buffered: usize,
    /// The last record known to be durable.
    pub(super) durable: u64,
    /// When the oldest record was appended that no sync has taken.
    pub(super) dirty_since: Option<Duration>,
    /// Whether the segment in which the buffer ends is the one that was kept back: what is left of
    /// it is for records that delete too.
    pub(super) in_reserve: bool,
    /// Whether the next record begins a segment: what there is was found damaged.
    renew: bool,
    /// Why nothing can be written any more.
    pub(super) failed: Option<Arc<str>>,
    /// Why no more records are taken; those that were are written.
    refused: Option<Arc<str>>,
    /// What a writer takes records into, empty, while none has it.
    pub(super) idle: Buffers,
    /// Where in what is buffered segments begin.
    pub(super) cuts: Vec<Cut>,
    /// Segments that are allocated and not used yet.
    pub(super) spares: Vec<Spare>,
    /// Whether a thread is writing, or about to.
    pub(super) writing: bool,
    /// Threads that want a sync now, and that the last one was for.
    pub(super) waiters: usize,
    pub(super) group: usize,
}

/// A new segment begins with record `first`.
pub(super) struct Cut {
    pub(super) first: u64,
    pub(super) spare: Spare,
}

impl State {
    /// Fails when no more records are taken: an earlier write or sync failed, or the engine
    /// refuses.
    pub(super) fn check(&self) -> Result<()> {
        match self.failed.as_ref().or(self.refused.as_ref()) {
            Some(why) => Err(Error::ReadOnly(Arc::clone(why))),
            None => Ok(()),
        }
    }

    /// Fails when an earlier write or sync failed, so that nothing can be written.
    pub(super) fn check_written(&self) -> Result<()> {
        match &self.failed {
            Some(why) => Err(Error::ReadOnly(Arc::clone(why))),
            None => Ok(()),
        }
    }

    /// How many bytes others may take without the lock: as many as need nothing else than to be
    /// counted.
    pub(super) fn lendable(&self) -> u64 {
        if self.in_reserve || self.renew || self.dirty_since.is_none() || self.check().is_err() {
            return 0;
        }
        let [due, most] = self.bounds.map(|bound| bound.saturating_sub(self.buffered) as u64);
        // Whoever comes to these says so, so it is not lent that far.
        let due = if due > 0 { due - 1 } else { most };
        let told = ABOUT_BYTES - self.appended % ABOUT_BYTES - 1;
        self.room.min(due).min(most).min(told)
    }

    /// Counts records that have their numbers.
    #[inline]
    pub(super) fn taken(&mut self, records: u64, bytes: u64) {
        assert!(bytes <= self.room, "no more is taken than there is room for");
        self.next += records;
        self.room -= bytes;
        self.buffered += bytes as usize;
        self.appended += bytes;
    }

    /// Begins a new segment behind what is buffered.
    fn cut(&mut self, spare: Spare) {
        self.room = spare.bytes.saturating_sub(RECORDS_START);
        self.cuts.push(Cut { first: self.next, spare });
        self.renew = false;
    }

    /// Takes a spare segment that holds `need` bytes, if one may be used.
    fn take_spare(&mut self, need: u64, room: Room) -> Option<Spare> {
        let kept = if room == Room::Reserve { 0 } else { SPARES_RESERVED };
        let fits = |spare: &Spare| spare.bytes.saturating_sub(RECORDS_START) >= need;
        // The longest: the reserve may be short.
        let fitting = self.spares.iter().enumerate().filter(|(_, spare)| fits(spare));
        let (at, _) = fitting.max_by_key(|(_, spare)| spare.bytes)?;
        (self.spares.len() > kept).then(|| self.spares.remove(at))
    }
}

impl Log {
    /// Puts together a log whose files stand.
    pub(super) fn assemble(env: &Env, files: Files, options: &LogOptions, writer: Writer) -> Log {
        let next = writer.next;
        let state = State {
            lent: None,
            bounds: [options.write_bytes, options.buffer_bytes_max],
            driven: None,
            next,
            durable: next - 1,
            buffered: 0,
            idle: Buffers::default(),
            cuts: Vec::new(),
            room: writer.room(),
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
            writer: Mutex::new(writer),
            preparing: Mutex::new(()),
            trimming: Mutex::new(()),
            durable: AtomicU64::new(next - 1),
            full: AtomicBool::new(false),
            // Where that cannot be told, room of the other medium is taken for of use.
            elsewhere: files.device.is_elsewhere(&files.directory).unwrap_or(false),
            refused: AtomicU64::new(0),
            counters: Counters::default(),
            files,
        }
    }

    /// Sets what must be durable before log bytes are written. Once, before the first append.
    pub fn set_barrier(&self, barrier: Arc<dyn Barrier>) {
        assert!(self.barrier.set(barrier).is_ok(), "the barrier is set once");
    }

    /// Numbers a record and buffers it. Records are durable in the order of their numbers.
    ///
    /// Costs a checksum and a copy; waits only when too much is buffered or a new segment has to be
    /// allocated. `NoSpace`: the disk has no room for the record, and nothing happened. The
    /// caller may hold locks, but none that [`Barrier::reach`] needs.
    pub fn append(&self, payload: &[u8], room: Room) -> Result<Lsn> {
        assert!(!payload.is_empty() && payload.len() <= PAYLOAD_BYTES_MAX, "payload out of bounds");
        let sum = log_record::sum_payload(self.files.seed, payload);
        let bytes = log_record::HEADER_BYTES + payload.len();
        // The stage first: whoever writes the record waits for the stage until its bytes are there.
        let mut stage = self.stages.own();
        if let Some(lsn) = self.state.take(bytes) {
            let header = log_record::encode(sum, payload.len() as u32, lsn, self.durable().0);
            stage.push(lsn, &header, payload);
            return Ok(Lsn(lsn));
        }
        let mut state = self.state.lock();
        if !self.has_room(&state, bytes, room)? {
            // Whoever makes room may have to write, and takes all stages for that. What was made,
            // perhaps of the reserve, must be his: nobody gets a number between.
            drop(stage);
            self.make_room(&mut state, bytes, room).inspect_err(|error| {
                if matches!(error, Error::NoSpace(ON_ITS_OWN)) {
                    self.refused.fetch_add(1, Ordering::Release);
                }
            })?;
            stage = self.stages.made_room();
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

    /// How often a record was refused because the disk of the log, which is none of the rest of
    /// the store, is full.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Acquire)
    }

    /// Whether the last segment, and what may be buffered, take a record of `bytes`.
    #[inline]
    fn has_room(&self, state: &State, bytes: usize, room: Room) -> Result<bool> {
        state.check()?;
        let fits = state.buffered == 0 || state.buffered + bytes <= self.options.buffer_bytes_max;
        let may = !state.in_reserve || room == Room::Reserve;
        Ok(fits && may && !state.renew && bytes as u64 <= state.room)
    }

    /// Whether so much is buffered that it should be written.
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Says that a writer has taken what was buffered, or that it is left for one.
    pub(super) fn emptied(&self) {
        self.full.store(false, Ordering::Relaxed);
    }

    /// Returns when there is room for a record of `bytes`, which is the caller's while he has the
    /// lock. He has no stage.
    fn make_room(&self, state: &mut Locked<'_>, bytes: usize, room: Room) -> Result<()> {
        while !self.has_room(state, bytes, room)? {
            let buffered = state.buffered;
            if buffered > 0 && buffered + bytes > self.options.buffer_bytes_max {
                self.write_or_wait(state);
            } else if let Some(spare) = state.take_spare(bytes as u64, Room::Normal) {
                state.cut(spare);
                state.in_reserve = false;
            } else {
                let made = state.unlocked(|| self.prepare(bytes as u64));
                match made {
                    Ok(()) => {}
                    // The damaged one has room, and nobody is refused for it.
                    Err(Error::NoSpace(_)) if state.renew => state.renew = false,
                    Err(Error::NoSpace(what)) if room == Room::Reserve => {
                        if self.has_room(state, bytes, room)? {
                            // Somebody else has begun the segment that was kept back.
                            break;
                        }
                        // A record that deletes may use the segment that was kept back.
                        let spare = state.take_spare(bytes as u64, Room::Reserve);
                        state.cut(spare.ok_or(Error::NoSpace(what))?);
                        state.in_reserve = true;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Sees to it that there is a spare segment beside the reserve which holds `need` bytes.
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
            // What is only kept goes before anybody is refused.
            let needed = 2 * bytes;
            if self.env.device.space()?.free_bytes < needed && self.gives_up_what_is_kept() {
                continue;
            }
            // A log that takes the last room is never trimmed: that takes a checkpoint, and the
            // checkpoint takes room.
            if self.env.device.space()?.free_bytes < needed {
                return Err(Error::NoSpace("the log"));
            }
            match self.files.make_spare(bytes) {
                // The log may be on another disk than the one that tells its room.
                Err(Error::NoSpace(_)) if self.gives_up_what_is_kept() => {}
                // Where the rest is there was room.
                Err(Error::NoSpace(_)) if self.elsewhere => {
                    return Err(Error::NoSpace(ON_ITS_OWN));
                }
                spare => self.state.lock().spares.push(spare?),
            }
        }
    }

    /// Gives up what is only kept; tells whether there was any. Nobody fails of it.
    fn gives_up_what_is_kept(&self) -> bool {
        self.keep_nothing().unwrap_or_else(|error| {
            tracing::warn!(%error, "segments that are only kept cannot be given up");
            false
        })
    }

    /// Has the next record begin a segment, so that the one before is superfluous with the next
    /// checkpoint: what recovery needs of it was found damaged.
    pub(super) fn renew(&self) {
        self.state.lock().renew = true;
    }

    /// Called after a commit was applied and its locks were released: waits for the disk in
    /// sync mode, and writes a full buffer out in async mode.
    pub fn committed(&self, lsn: Lsn) -> Result<()> {
        match self.options.durability {
            crate::Durability::Sync => self.sync(lsn),
            crate::Durability::Async => self.write_if_full(),
        }
    }

    /// The last record that was appended; 0 when there never was one.
    pub fn last(&self) -> Lsn {
        Lsn(self.state.last())
    }

    /// Bytes of all records that were appended since opening, headers included. Takes the log's
    /// lock.
    pub fn appended_bytes(&self) -> u64 {
        self.state.lock().appended
    }

    /// The same, but up to 64 KiB and a record less, without the lock.
    pub fn appended_about(&self) -> u64 {
        self.appended_about.0.load(Ordering::Relaxed)
    }

    /// The last record known to be durable.
    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Fails when the log takes no more records: a write or sync failed, or the engine refuses.
    pub fn check(&self) -> Result<()> {
        self.state.lock().check()
    }

    /// Takes no more records, because the engine could not write what belongs to them. Those that
    /// have their numbers were acknowledged, or will be, and are written as ever.
    pub fn fail(&self, why: &str) {
        self.state.lock().refused.get_or_insert_with(|| Arc::from(why));
        self.turn.notify_all();
    }

    /// Makes one more record durable where the engine refuses all (`fail`). Nobody else appends.
    pub fn append_last(&self, payload: &[u8]) -> Result<()> {
        let refused = self.state.lock().refused.take();
        let appended = self.append(payload, Room::Reserve).and_then(|lsn| self.sync(lsn));
        let mut state = self.state.lock();
        state.refused = state.refused.take().or(refused);
        appended
    }

    /// Takes no more records, and writes none of those that it has: its place is another's.
    pub fn abandon(&self, why: &str) {
        self.state.lock().failed.get_or_insert_with(|| Arc::from(why));
        self.turn.notify_all();
    }

    /// Counters.
    pub fn stats(&self) -> LogStats {
        let (segments, used) = {
            let writer = self.writer.lock();
            let used = writer.segments.iter().map(|segment| segment.bytes).sum::<u64>();
            (writer.segments.len() as u64, used + writer.kept.bytes())
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
