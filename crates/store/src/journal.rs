//! What every engine keeps beside its trees: its log, its counters, the checkpoint waker, and
//! whether and why it takes no changes.
//!
//! An engine is created before its log, because opening the log replays into the engine. The log is
//! set once, before the store is returned to its caller.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use device::Env;
use device::sync::Mutex;
use format::log_record::HEADER_BYTES;

use crate::{
    CheckReport, Cut, EngineOptions, Error, Finding, Log, LogPosition, Lsn, ObjectPlace, Opening,
    Remedy, Replay, Result, Stats, Waker,
};

/// The directory of the log in a volume. It may be a link to one on another disk.
pub const LOG_DIRECTORY: &str = "log";

/// Log bytes between two queries of the disk's free space.
const SPACE_QUERY_EVERY: u64 = 256 << 10;

/// Writers of data beside the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// A checkpoint, or pre-flushing before one.
    Checkpoint,
    /// A compaction of runs.
    Merge,
    /// An ingested run.
    Ingest,
}

/// Bytes and writes.
#[derive(Debug, Default)]
struct Written {
    bytes: AtomicU64,
    writes: AtomicU64,
}

/// The log of an engine, and its counters since it was opened.
pub struct Journal {
    env: Env,
    options: EngineOptions,
    log: OnceLock<Log>,
    /// The last record that was applied, while the log is replayed.
    replayed_to: AtomicU64,
    /// Why the log must refuse appends once it is open: a write during replay failed.
    refused: Mutex<Option<Arc<str>>>,
    /// Why the store was opened read-only, if it was.
    read_only: OnceLock<Arc<str>>,
    /// Log bytes at the last query of the disk's free space, and whether there was too little.
    space_queried_at: AtomicU64,
    tight: AtomicBool,
    /// The last record when the log was opened.
    opened_at: AtomicU64,
    /// Bytes of records that opening replayed. The log counts what is appended later: a counter
    /// here would be one more cache line that all commits write.
    replayed_bytes: AtomicU64,
    replayed: AtomicU64,
    /// Log bytes when the last checkpoint was frozen.
    checkpointed_bytes: AtomicU64,
    checkpoints: AtomicU64,
    last_checkpoint: AtomicI64,
    /// In the order of [`Writer`].
    written: [Written; 3],
    syncs: AtomicU64,
    /// Keys and values that bypassed the log.
    given_beside: AtomicU64,
    closed: AtomicBool,
    /// The opening, and the log that it continues, if the log is in an object store.
    place: Option<(ObjectPlace, LogPosition)>,
    /// Called once between two freezes when a checkpoint should start.
    waker: Mutex<Option<Waker>>,
    woken: AtomicBool,
}

impl Journal {
    /// Creates the log of a new store.
    pub fn create(env: &Env, options: &EngineOptions) -> Result<Journal> {
        refuse_objects(options)?;
        let journal = Journal::of_state(env, options, Lsn(0));
        journal.set_log(Log::create(env, LOG_DIRECTORY, options.volume, &options.log())?);
        Ok(journal)
    }

    /// The journal of a store whose state on disk contains all records up to `lsn`. The log is not
    /// open before [`Journal::replay`].
    pub fn of_state(env: &Env, options: &EngineOptions, lsn: Lsn) -> Journal {
        Journal {
            env: env.clone(),
            options: options.clone(),
            log: OnceLock::new(),
            replayed_to: AtomicU64::new(lsn.0),
            refused: Mutex::new(None),
            read_only: OnceLock::new(),
            space_queried_at: AtomicU64::new(0),
            tight: AtomicBool::new(false),
            opened_at: AtomicU64::new(0),
            replayed_bytes: AtomicU64::new(0),
            replayed: AtomicU64::new(0),
            checkpointed_bytes: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            last_checkpoint: AtomicI64::new(0),
            written: Default::default(),
            syncs: AtomicU64::new(0),
            given_beside: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            place: None,
            waker: Mutex::new(None),
            woken: AtomicBool::new(false),
        }
    }

    /// Creates the log of a new store in an object store. [`Log::announce`] begins it.
    pub fn create_in_objects(env: &Env, options: &EngineOptions, opening: Opening) -> Journal {
        let start = LogPosition::start_of(opening);
        let journal = Journal::of_state_in_objects(env, options, Lsn(0), (opening, start));
        if let Some((place, _)) = &journal.place {
            journal.set_log(Log::create_in_objects(env, &options.log(), place));
        }
        journal
    }

    /// As [`Journal::of_state`], for a store whose log is in an object store. The caller has
    /// claimed the store as `opening`; the state is continued by the log at the position.
    pub fn of_state_in_objects(
        env: &Env,
        options: &EngineOptions,
        lsn: Lsn,
        (opening, position): (Opening, LogPosition),
    ) -> Journal {
        let objects = options.log_place.objects().cloned();
        let volume = options.volume;
        let place = objects.map(|objects| (ObjectPlace { objects, volume, opening }, position));
        Journal { place, ..Journal::of_state(env, options, lsn) }
    }

    /// The opening, if the log is in an object store.
    pub fn opening(&self) -> Option<Opening> {
        self.place.as_ref().map(|(place, _)| place.opening)
    }

    /// The opening, and where its log continues a state with all records up to this one.
    pub fn origin(&self, lsn: Lsn) -> Option<(Opening, LogPosition)> {
        let opening = self.opening()?;
        let position = self.log.get().and_then(|log| log.position(lsn));
        Some((opening, position.unwrap_or_else(|| LogPosition::start_of(opening))))
    }

    /// Opens the log, and passes its records after the state on disk to `replay`.
    pub fn replay(&self, replay: &mut dyn Replay) -> Result<()> {
        let from = Lsn(self.replayed_to.load(Ordering::Relaxed));
        let EngineOptions { volume, .. } = self.options;
        let options = self.options.log();
        let (log, _) = if let Some((place, position)) = &self.place {
            Log::open_in_objects(&self.env, &options, place, (*position, from), replay)?
        } else {
            refuse_objects(&self.options)?;
            Log::open(&self.env, LOG_DIRECTORY, volume, &options, from, replay)?
        };
        self.set_log(log);
        if let Some(why) = self.refused.lock().take() {
            tracing::error!(%why, "the volume is opened read-only");
            self.log().fail(&why);
        }
        Ok(())
    }

    /// Makes the log durable that is being replayed, from the record after `from` on, and passes
    /// its records to `visit`.
    pub fn settle_log(
        &self,
        from: Lsn,
        visit: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let EngineOptions { volume, .. } = self.options;
        Log::settle(&self.env, LOG_DIRECTORY, volume, &self.options.log(), from, visit)
    }

    /// Sets the log, which was opened by replaying into the engine.
    fn set_log(&self, log: Log) {
        self.opened_at.store(log.last().0, Ordering::Relaxed);
        assert!(self.log.set(log).is_ok(), "the log is set once");
    }

    /// The last record that was applied.
    pub fn last(&self) -> Lsn {
        self.log.get().map_or_else(|| Lsn(self.replayed_to.load(Ordering::Relaxed)), Log::last)
    }

    /// Notes the last record that was replayed.
    pub fn replayed_to(&self, lsn: Lsn) {
        self.replayed_to.store(lsn.0, Ordering::Relaxed);
    }

    /// Fails when the log refuses appends, or will refuse them once it is open.
    pub fn check_log(&self) -> Result<()> {
        if let Some(log) = self.log.get() {
            return log.check();
        }
        match &*self.refused.lock() {
            Some(why) => Err(Error::ReadOnly(Arc::clone(why))),
            None => Ok(()),
        }
    }

    /// Makes the log refuse appends; while it is replayed, from its opening on.
    pub fn fail_log(&self, why: &str) {
        match self.log.get() {
            Some(log) => log.fail(why),
            None => {
                self.refused.lock().get_or_insert_with(|| Arc::from(why));
            }
        }
    }

    /// Opens the store read-only. The first reason is kept.
    pub fn open_read_only(&self, why: String) {
        tracing::error!(why, "the volume is opened read-only");
        self.log().fail(&why);
        self.read_only.get_or_init(|| Arc::from(why));
    }

    /// Why the store was opened read-only, if it was.
    #[inline]
    pub fn read_only(&self) -> Option<&Arc<str>> {
        self.read_only.get()
    }

    /// Makes the log durable up to the last record of a checkpoint, and fails if it refuses
    /// appends. While it is replayed, [`Journal::settle_log`] does that.
    pub fn sync_for_checkpoint(&self, last: Lsn) -> Result<()> {
        self.log.get().map_or(Ok(()), |log| log.sync(last).and_then(|()| log.check()))
    }

    /// Releases the part of the log that a checkpoint made superfluous; while it is replayed,
    /// nothing.
    pub fn trim(&self, up_to: Lsn) -> Result<()> {
        self.log.get().map_or(Ok(()), |log| log.trim(up_to))
    }

    /// Reads the log that a crash would have replayed on top of a checkpoint that contains all
    /// records up to `from`.
    pub fn check_beside(&self, from: Lsn) -> Result<Vec<Finding>> {
        let mut found = Vec::new();
        let mut failed = None;
        self.log().verify_beside(from, &mut |error| match Finding::of_error("the log", error) {
            Ok(finding) => found.push(finding.with(Remedy::Checkpoint)),
            Err(error) => failed = Some(error),
        });
        failed.map_or(Ok(found), Err)
    }

    /// Whether the free space of the disk was not queried for a while, in log bytes.
    #[inline]
    pub fn is_space_query_due(&self) -> bool {
        let queried = self.space_queried_at.load(Ordering::Relaxed);
        self.log_bytes_about().wrapping_sub(queried) >= SPACE_QUERY_EVERY
    }

    /// The free space of the disk is queried now.
    pub fn queries_space(&self) {
        self.space_queried_at.store(self.log_bytes_about(), Ordering::Relaxed);
    }

    /// Whether there was too little free space at the last query.
    #[inline]
    pub fn is_tight(&self) -> bool {
        self.tight.load(Ordering::Relaxed)
    }

    /// Notes whether there is too little free space.
    pub fn set_tight(&self, tight: bool) {
        self.tight.store(tight, Ordering::Relaxed);
    }

    /// Whether a checkpoint is due for the length of the log, or for the disk's free space. Not in
    /// a store that was opened read-only.
    pub fn is_checkpoint_due(&self) -> bool {
        let since = self.log_bytes_since();
        since >= self.options.checkpoint_bytes
            || self.is_tight() && since > 0
            || self.log().is_long()
    }

    /// The log of a store that is open.
    #[inline]
    pub fn log(&self) -> &Log {
        self.log.get().expect("invariant: the log is set before the store is handed out")
    }

    /// Counts a record that opening replays.
    pub fn replays(&self, payload: &[u8]) {
        let bytes = (HEADER_BYTES + payload.len()) as u64;
        self.replayed_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.replayed.fetch_add(1, Ordering::Relaxed);
    }

    /// Records appended since opening.
    pub fn commits(&self) -> u64 {
        let last = self.log.get().map_or(0, |log| log.last().0);
        last.saturating_sub(self.opened_at.load(Ordering::Relaxed))
    }

    /// Bytes of log records that were replayed or appended.
    pub fn log_bytes(&self) -> u64 {
        let appended = self.log.get().map_or(0, Log::appended_bytes);
        self.replayed_bytes.load(Ordering::Relaxed) + appended
    }

    /// The same, approximately: it may report less, but reads no cache line that all commits write.
    #[inline]
    pub fn log_bytes_about(&self) -> u64 {
        let appended = self.log.get().map_or(0, Log::appended_about);
        self.replayed_bytes.load(Ordering::Relaxed) + appended
    }

    /// Records that were replayed or appended.
    pub fn log_records(&self) -> u64 {
        self.replayed.load(Ordering::Relaxed) + self.commits()
    }

    /// Log bytes since the last checkpoint was frozen.
    pub fn log_bytes_since(&self) -> u64 {
        self.log_bytes().saturating_sub(self.checkpointed_bytes.load(Ordering::Relaxed))
    }

    /// Records that a checkpoint was frozen at this many log bytes.
    pub fn checkpointed(&self, log_bytes: u64) {
        self.checkpointed_bytes.store(log_bytes, Ordering::Relaxed);
    }

    /// Sets the wall-clock time of the last checkpoint, in nanoseconds since 1970, as read from
    /// disk.
    pub fn found_checkpoint(&self, time: i64) {
        self.last_checkpoint.store(time, Ordering::Relaxed);
    }

    /// Counts a checkpoint made at this time.
    pub fn made_checkpoint(&self, time: i64) {
        self.last_checkpoint.store(time, Ordering::Relaxed);
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts data written beside the log.
    pub fn wrote(&self, writer: Writer, bytes: u64, writes: u64) {
        let written = &self.written[writer as usize];
        written.bytes.fetch_add(bytes, Ordering::Relaxed);
        written.writes.fetch_add(writes, Ordering::Relaxed);
    }

    /// Counts callers' keys and values that bypassed the log.
    pub fn gave(&self, bytes: u64) {
        self.given_beside.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts syncs beside those of the log.
    pub fn synced(&self, syncs: u64) {
        self.syncs.fetch_add(syncs, Ordering::Relaxed);
    }

    /// Bytes that compactions wrote.
    pub fn merged_bytes(&self) -> u64 {
        self.written[Writer::Merge as usize].bytes.load(Ordering::Relaxed)
    }

    /// Fails if the store was closed.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        if self.is_closed() {
            return Err(Error::ReadOnly(Arc::from("the store was closed")));
        }
        Ok(())
    }

    /// Refuses further commits.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Whether the store was closed.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Sets the function to call when a checkpoint should start.
    pub fn set_waker(&self, wake: Waker) {
        *self.waker.lock() = Some(wake);
    }

    /// Whether a waker is set.
    pub fn has_waker(&self) -> bool {
        self.waker.lock().is_some()
    }

    /// Calls the waker, once between two freezes, because a checkpoint should start.
    pub fn wake(&self) {
        if !self.woken.load(Ordering::Relaxed)
            && !self.woken.swap(true, Ordering::Relaxed)
            && let Some(wake) = self.waker.lock().clone()
        {
            wake();
        }
    }

    /// A checkpoint was frozen: the waker may be called for the next one.
    pub fn may_wake(&self) {
        self.woken.store(false, Ordering::Relaxed);
    }

    /// The counters that all engines have; the others are zero.
    pub fn stats(&self, engine: &'static str) -> Stats {
        let log = self.log().stats();
        let of = |writer: Writer| {
            let written = &self.written[writer as usize];
            (written.bytes.load(Ordering::Relaxed), written.writes.load(Ordering::Relaxed))
        };
        let [checkpoint, merge, ingest] =
            [Writer::Checkpoint, Writer::Merge, Writer::Ingest].map(of);
        let last_checkpoint = self.last_checkpoint.load(Ordering::Relaxed);
        Stats {
            engine,
            durability: self.options.durability,
            trees: 0,
            dropping: 0,
            disk_bytes: 0,
            log_bytes: log.disk_bytes,
            log_bytes_since_checkpoint: self.log_bytes_since(),
            written_bytes: log.written_bytes + checkpoint.0 + merge.0 + ingest.0,
            writes: log.writes + checkpoint.1 + merge.1 + ingest.1,
            checkpoint_bytes: checkpoint.0,
            checkpoint_writes: checkpoint.1,
            merge_bytes: merge.0,
            ingest_bytes: ingest.0,
            given_bytes: log.appended_bytes + self.given_beside.load(Ordering::Relaxed),
            commits: self.commits(),
            syncs: log.syncs + self.syncs.load(Ordering::Relaxed),
            cache_bytes: 0,
            last_checkpoint: (last_checkpoint != 0).then_some(last_checkpoint),
            checkpoints: self.checkpoints.load(Ordering::Relaxed),
            replayed: self.replayed.load(Ordering::Relaxed),
            merges: None,
        }
    }
}

/// Refuses a log in an object store, for an engine that cannot have it there.
fn refuse_objects(options: &EngineOptions) -> Result<()> {
    if options.log_place.objects().is_none() {
        return Ok(());
    }
    let why = "a log in an object store is not supported by this engine";
    let error = std::io::Error::new(std::io::ErrorKind::Unsupported, why);
    Err(device::Error::new("open", LOG_DIRECTORY, error).into())
}

/// A log that no process has open, behind a state of a store.
pub struct ClosedLog<'a> {
    /// Where it is.
    pub env: &'a Env,
    /// The options of its store.
    pub options: &'a EngineOptions,
    /// The last record that the state contains.
    pub from: Lsn,
    /// Whether there can be no later state.
    pub certain: bool,
    /// Why it may not be truncated, if it may not.
    pub keep: Option<Error>,
    /// Where it continues the state, if it is in an object store.
    pub position: Option<LogPosition>,
}

impl ClosedLog<'_> {
    /// Checks what an opening would replay, and passes its intact records to `visit`.
    pub fn check(
        &self,
        report: &mut CheckReport,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let (volume, options) = (self.options.volume, self.options.log());
        let checked = match self.in_objects() {
            Some((place, position)) => {
                Log::verify_in_objects(&options, &place, (position, self.from), visit)
            }
            None => Log::verify(self.env, LOG_DIRECTORY, volume, &options, self.from, visit),
        };
        for finding in checked.findings {
            report.add(finding);
        }
        match checked.end {
            Ok(recovery) => report.log_records = recovery.replayed,
            Err(error @ (Error::Corrupt(_) | Error::Device(_) | Error::Missing { .. }))
                if self.position.is_some() =>
            {
                report.add(Finding::of_error("the log", error)?);
            }
            Err(error @ (Error::Corrupt(_) | Error::Device(_))) => {
                report.add(Finding::of_error("the log", error)?.with(Remedy::CutLog));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The log, if it is in an object store. It is only read, so no opening is stated.
    fn in_objects(&self) -> Option<(ObjectPlace, LogPosition)> {
        let (objects, position) = (self.options.log_place.objects()?.clone(), self.position?);
        let opening = Opening { epoch: position.epoch, id: [0; 16] };
        Some((ObjectPlace { objects, volume: self.options.volume, opening }, position))
    }

    /// Refuses to change a log in an object store.
    fn refuse_objects(&self) -> Result<()> {
        if self.position.is_none() {
            return Ok(());
        }
        let why = "a log in an object store is not truncated; restore the missing or damaged \
                   object from a copy, or use a backup of the volume";
        let error = std::io::Error::new(std::io::ErrorKind::Unsupported, why);
        Err(device::Error::new("truncate", LOG_DIRECTORY, error).into())
    }

    /// Truncates it at its first damage; later records are lost. Fails, with nothing changed, when
    /// it is likely that of a later state.
    pub fn cut(&self) -> Result<Cut> {
        let (volume, options) = (self.options.volume, self.options.log());
        self.refuse_objects()?;
        if let Some(why) = &self.keep {
            return Err(why.clone());
        }
        Log::cut_off(self.env, LOG_DIRECTORY, volume, &options, self.from, self.certain)
    }

    /// The result that [`ClosedLog::cut`] would have, with nothing changed.
    pub fn cost_of_cut(&self) -> Result<Cut> {
        let (volume, options) = (self.options.volume, self.options.log());
        self.refuse_objects()?;
        if let Some(why) = &self.keep {
            return Err(why.clone());
        }
        Log::cost_of_cut(self.env, LOG_DIRECTORY, volume, &options, self.from, self.certain)
    }

    /// Rewrites headers of files that have no other damage, as a check reported.
    pub fn repair(&self) -> Result<()> {
        if self.position.is_some() {
            // An object has no header that can be rewritten.
            return Ok(());
        }
        let (volume, options) = (self.options.volume, self.options.log());
        Log::write_headers(self.env, LOG_DIRECTORY, volume, &options, self.from)
    }
}
