//! Maintains the index in the background, in bounded steps: at most one new base at a time.
//!
//! Magellan's five conditions (4.1) for writing clusters are here:
//! 1. the cache is full: what differs from a base is more than is held in memory;
//! 2. dirty too long: something differs, and the base is older than an age;
//! 3. the journal is too long: rows that differ are more than a share of the base. That bounds both
//!    the work of the next query and the space that the base keeps;
//! 4. on request ([`Upkeep::index_flush`]);
//! 5. in the background, between two checks.
//!
//! A check covers all subvolumes when enough was committed since the last. That is so many commits,
//! or as many bytes, or a commit that replaces a whole tree. A check also runs when a base with
//! enough differences becomes old, even if nothing changes any more. [`search_due`] decides which
//! of them are due.
//!
//! A volume is often opened to run a query, and the first query reads the differences, as a check
//! does. So checks begin a little later, and never run during a query that reads.
//!
//! If space is short on disk, bases are dropped instead, their files first, which needs no commit:
//! they only make searches fast. Each step of making one checks for space first.

use std::sync::Arc;
use std::time::Duration;

use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::{FsError, NodeId};
use search::index::{Flush, FlushStep, Index};
use store::{KeyRange, Pinned, TreeId};
use vfs::FsResult;
use volume::error::{from_search, from_store, malformed};
use volume::subvol::VOLUME;

use crate::Upkeep;
use crate::rest::REST_AFTER_FAILURE;
use crate::search_bases;
use crate::search_due::{self, Due};
use crate::state::{Job, Work};

/// Most subvolumes that are checked in one step.
const LOOKED_AT_ONCE: usize = 64;
/// The size of a typical commit in bytes: larger ones count as several, because an import or a scan
/// puts thousands of files into one.
const COMMIT_BYTES: u64 = 128;
/// Most rounds within the age of a base that are only made because bases become old.
const ROUNDS_IN_AGE: u32 = 16;
/// Checks after opening before the first that reads what differs.
const LOOKS_BEFORE: u32 = 3;
/// Time between two searches for bases that are not named.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

impl Upkeep {
    /// Makes a new base for the subvolume of a node now, regardless of what differs. Without an
    /// index it does nothing.
    pub fn index_flush(&self, node: NodeId) -> FsResult<()> {
        let Some(index) = &self.index else { return Ok(()) };
        self.may_change()?;
        let (subvol, _) = self.place(node)?;
        let mut work = self.index_work.work.lock();
        while work.job.is_some() {
            advance(self, index, &mut work)?;
        }
        begin(self, &mut work, subvol.id.0)?;
        while work.job.is_some() {
            advance(self, index, &mut work)?;
        }
        sweep(self, index, &mut work)
    }

    /// Requests a new base for the subvolume of a node, in the background.
    pub fn index_request(&self, node: NodeId) -> FsResult<()> {
        let (subvol, _) = self.place(node)?;
        self.index_work.work.lock().asked.push_back((subvol.id.0, Duration::ZERO));
        Ok(())
    }

    /// One step of keeping the index.
    pub(crate) fn index_step(&self, _budget: usize) -> FsResult<u64> {
        let Some(index) = &self.index else { return Ok(0) };
        let Some(mut work) = self.index_work.work.try_lock() else { return Ok(0) };
        if self.options.read_only {
            look(self, index, &mut work)?;
            return Ok(0);
        }
        if work.job.is_some() {
            advance(self, index, &mut work)?;
            return Ok(1);
        }
        let now = self.env.clock.monotonic();
        let asked = work.asked.iter().position(|(_, rests_until)| now >= *rests_until);
        if let Some((id, _)) = asked.and_then(|at| work.asked.remove(at)) {
            if let Err(error) = begin(self, &mut work, id) {
                work.asked.push_back((id, self.env.clock.monotonic() + REST_AFTER_FAILURE));
                return Err(error);
            }
            return Ok(1);
        }
        if !look(self, index, &mut work)? {
            return Ok(0);
        }
        if is_short_of_space(self, index, 1) {
            return make_space(self, index, &mut work);
        }
        if work.swept.is_none_or(|swept| now >= swept + SWEEP_EVERY) {
            sweep(self, index, &mut work)?;
        }
        // One that is begun at the limit is given up again.
        if is_short_of_space(self, index, 2) {
            return Ok(0);
        }
        let Some(id) = pick(self, index, &mut work)? else { return Ok(0) };
        begin(self, &mut work, id)?;
        Ok(1)
    }
}

/// Begins a flush. One that fails leaves nothing, and its subvolume rests.
fn begin(fs: &Upkeep, work: &mut Work, id: u64) -> FsResult<()> {
    let given = fs.store.stats().given_bytes;
    if let Some((base, record)) = search_bases::begin(fs, id)? {
        // In an object store the base's number names its objects: another owner must not assign it
        // again.
        if fs.env.objects.is_some()
            && let Err(error) = fs.sync()
        {
            work.resting.insert(id, fs.env.clock.monotonic() + REST_AFTER_FAILURE);
            // What is not removed here, the next sweep removes.
            work.swept = None;
            search_bases::remove(fs, base.tree)?;
            return Err(error);
        }
        work.changes.begun(base.tree, given, record.tree);
        let flush = Flush::new(base.tree, record.clone());
        tracing::debug!(
            subvolume = id,
            base = base.tree,
            old = record.base,
            "building an index base"
        );
        work.job = Some(Job { base, before: record, flush });
    }
    Ok(())
}

/// Advances the current flush. One that fails is abandoned, and its subvolume rests.
fn advance(fs: &Upkeep, index: &Index, work: &mut Work) -> FsResult<()> {
    let Some(mut job) = work.job.take() else { return Ok(()) };
    let mut step = || -> FsResult<Option<u64>> {
        if is_short_of_space(fs, index, 1) {
            return Err(FsError::NoSpace);
        }
        // Nobody changes these, so that no create copies a node for it.
        let trees = [VOLUME, TreeId(job.base.tree), TreeId(job.flush.old_base())];
        let pinned = fs.store.pin_trees(&trees).map_err(from_store)?;
        match job.flush.step(index, &*pinned).map_err(from_search)? {
            FlushStep::More => Ok(None),
            FlushStep::Ready(rows) => Ok(Some(rows)),
        }
    };
    let placed = match step() {
        Ok(None) => {
            work.job = Some(job);
            return Ok(());
        }
        Ok(Some(rows)) => search_bases::complete(fs, &job.base, &job.before, rows),
        Err(error) => Err(error),
    };
    work.swept = None;
    let (base, rows) = (job.base.tree, job.flush.rows());
    if matches!(placed, Ok(true)) {
        tracing::debug!(base, rows, "an index base is complete");
        return Ok(());
    }
    tracing::debug!(base, error = ?placed.as_ref().err(), "an index base was abandoned");
    let id = job.base.record.subvolume;
    work.resting.insert(id, fs.env.clock.monotonic() + REST_AFTER_FAILURE);
    let removed = search_bases::remove(fs, job.base.tree);
    placed?;
    removed
}

/// Updates what queries left in memory; returns whether a check is due.
fn look(fs: &Upkeep, index: &Index, work: &mut Work) -> FsResult<bool> {
    let now = fs.env.clock.monotonic();
    let interval = index.options().flush.interval;
    if work.looked.is_some_and(|looked| now < looked + interval) {
        return Ok(false);
    }
    work.looked = Some(now);
    work.looks = work.looks.saturating_add(1);
    index.rest();
    if index.is_behind(fs.store.last_commit()) {
        let pinned: Arc<dyn Pinned> = Arc::from(fs.store.pin().map_err(from_store)?);
        index.refresh(&pinned).map_err(from_search)?;
    }
    Ok(true)
}

/// Whether there is less free space than `times` what bases must leave.
fn is_short_of_space(fs: &Upkeep, index: &Index, times: u64) -> bool {
    if fs.env.objects.is_some() {
        return false;
    }
    let Ok(space) = fs.env.device.space() else { return false };
    let policy = index.options().flush;
    let least = (space.total_bytes / 1024 * u64::from(policy.space_min)).min(policy.space_max);
    space.free_bytes < least * times
}

/// Frees all space of the index, the files even if no commit succeeds any more.
fn make_space(fs: &Upkeep, index: &Index, work: &mut Work) -> FsResult<u64> {
    work.asked.clear();
    fs.store.keep_log(&[]).map_err(from_store)?;
    let files = index.sweep(&[], &|| fs.store.prove_not_replaced()).map_err(from_search)?;
    Ok(files + search_bases::remove_all(fs)?)
}

/// Removes bases that no subvolume names, and files that no base names.
fn sweep(fs: &Upkeep, index: &Index, work: &mut Work) -> FsResult<()> {
    work.swept = Some(fs.env.clock.monotonic());
    if search_bases::remove_unnamed(fs)? > 0 {
        // A crash must not bring back a record whose files are gone.
        fs.sync()?;
    }
    let bases = search_bases::all(fs)?;
    let kept: Vec<_> = bases.iter().map(|base| (base.tree, base.record.complete)).collect();
    if let Err(error) = index.sweep(&kept, &|| fs.store.prove_not_replaced()) {
        tracing::warn!(%error, "cannot delete unneeded index files");
    }
    fs.store.keep_log(&search_bases::wanted_of_log(fs)?).map_err(from_store)
}

/// Files of the index that no base names, with their bytes. If no index is kept, it reports none.
pub fn unnamed_files(fs: &Upkeep) -> FsResult<Vec<(String, u64)>> {
    let Some(index) = &fs.index else { return Ok(Vec::new()) };
    // No base is begun meanwhile, whose files would be there before it is known.
    let _work = fs.index_work.work.lock();
    let bases = search_bases::all(fs)?;
    let known: Vec<_> = bases.iter().map(|base| (base.tree, base.record.complete)).collect();
    let names = index.unnamed(&known).map_err(from_search)?;
    let sized = names.into_iter().map(|name| {
        let bytes = index.file_bytes(&name).map_err(from_search)?;
        Ok((name, bytes))
    });
    sized.collect()
}

/// Deletes a file of the index that no base names, verified again here; returns whether it did.
pub fn delete_unnamed(fs: &Upkeep, name: &str) -> FsResult<bool> {
    let Some(index) = &fs.index else { return Ok(false) };
    let _work = fs.index_work.work.lock();
    let bases = search_bases::all(fs)?;
    let known: Vec<_> = bases.iter().map(|base| (base.tree, base.record.complete)).collect();
    if !index.unnamed(&known).map_err(from_search)?.iter().any(|other| other == name) {
        return Ok(false);
    }
    fs.store.prove_not_replaced().map_err(from_store)?;
    index.delete(name).map_err(from_search)?;
    Ok(true)
}

/// The next subvolume that needs a new base.
fn pick(fs: &Upkeep, index: &Index, work: &mut Work) -> FsResult<Option<u64>> {
    let now = fs.env.clock.monotonic();
    work.resting.retain(|_, until| *until > now);
    let commit = fs.store.last_commit().0.0;
    let policy = index.options().flush;
    let is_early = work.looks <= LOOKS_BEFORE && !index.wants_base();
    if is_early || index.is_reading() {
        return Ok(None);
    }
    if work.last == 0 {
        // A new round when enough happened, or when queries are worse than they could be.
        let old = now >= work.round_time + policy.age && commit > work.round_at;
        let large = fs.queue.take_large();
        let aged = work.next_round.is_some_and(|next| now >= next);
        let enough = commit >= work.round_at + policy.commits;
        let due = large || enough || old || aged || index.wants_base();
        let given = fs.store.stats().given_bytes;
        let much = given.saturating_sub(work.round_given) >= policy.commits * COMMIT_BYTES;
        if work.round_at != 0 && !due && !much {
            return Ok(None);
        }
        work.round_given = given;
        work.round_at = commit.max(1);
        work.round_time = now;
        work.next_round = None;
    }
    work.changes.look_at(fs.store.stats().given_bytes);
    let pinned = fs.store.pin().map_err(from_store)?;
    let from = key::subvolume(work.last + 1);
    let end = store::prefix_end(&key::SUBVOLUMES_PREFIX);
    let range = KeyRange { from: from.to_vec(), to: end };
    let mut cursor = pinned.scan(VOLUME, range).map_err(from_store)?;
    for _ in 0..LOOKED_AT_ONCE {
        let Some(item) = cursor.next().map_err(from_store)? else {
            work.last = 0;
            return Ok(None);
        };
        let malformed = |error| malformed(VOLUME, &error);
        let id = key::parse_number(item.key).map_err(malformed)?;
        let record = SubvolumeRecord::decode(item.value).map_err(malformed)?;
        work.last = id;
        if let Some(until) = work.resting.get(&id).copied() {
            // If nothing changes any more, no other code would check it again.
            work.look_after(now, until.saturating_sub(now));
            continue;
        }
        match search_due::is_due(fs, index, &mut work.changes, &*pinned, (id, &record))? {
            Due::Now => return Ok(Some(id)),
            // Bases of different ages do not make for more rounds than a few.
            Due::After(wait) => work.look_after(now, wait.max(policy.age / ROUNDS_IN_AGE)),
            Due::Not => {}
        }
    }
    Ok(None)
}
