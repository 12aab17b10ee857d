//! Removes what the trash kept: whole batches, oldest first, when they are old enough, when the
//! disk is full, and on request.
//!
//! A batch is removed like any tree: detached in one commit, reclaimed in steps. An operation that
//! finds no space although nothing waits to be freed (`foreground_reclaim`) removes the oldest hour
//! and reclaims its space. It is tried again, until there is space or the trash is empty. A removal
//! that finds no space for the trash then deletes, once it found itself that nothing is left.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::{Caller, FsError, IoFailure, NodeId, SubvolId};
use vfs::FsResult;
use volume::error::malformed;
use volume::subvol::{Subvol, VOLUME};
use volume::view::View;

use super::NAME;
use super::hour::Batch;
use super::place::{self, Climb};
use crate::Governed;

/// How long the background does not check the trash after it found nothing to do. Batches are of
/// hours, and operations that fill a disk search for space themselves.
const LOOK_EVERY: i64 = 60_000_000_000;
/// The part of the disk that the background keeps free of the trash.
const FREE_PART: u64 = 32;
/// Most batches that a step of the background deletes of one listing.
const STEP_BATCHES: usize = 256;
/// Most batches of an hour that an operation deletes before it searches for space again.
const SPACE_BATCHES: usize = 1000;

/// What happened to the trash for lack of space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purged {
    /// An hour of it was removed.
    Hour,
    /// There is none.
    Empty,
    /// Nothing in it was removed: that would not help, or failed.
    Nothing,
}

/// The trash of a directory.
struct Home {
    subvol: Arc<Subvol>,
    directory: u64,
    keep_seconds: u64,
}

impl Governed {
    /// Removes the oldest hour of all, or much of it; steps of upkeep then free its space.
    pub fn purge_oldest(&self) -> FsResult<Purged> {
        if !self.trash.is_on() {
            return Ok(Purged::Empty);
        }
        let Some((hour, home)) = oldest(self)? else { return Ok(Purged::Empty) };
        let gone = self.purge_for_space(&home, &hour)?;
        Ok(if gone == 0 { Purged::Nothing } else { Purged::Hour })
    }

    /// One step of background work: removes a batch that is old enough, or the oldest if the disk
    /// is nearly full.
    pub fn trash_step(&self, _budget: usize) -> FsResult<u64> {
        if self.options.read_only || !self.trash.is_on() {
            return Ok(0);
        }
        let now = self.env.clock.now().0;
        if now < self.trash.look_at.load(Ordering::Acquire) {
            return Ok(0);
        }
        let old = |home: &Home, batch: Batch| {
            let keep = i64::try_from(home.keep_seconds).unwrap_or(i64::MAX);
            batch.end().saturating_add(keep.saturating_mul(1_000_000_000)) <= now
        };
        for home in homes(self)? {
            let view = View::new(&*self.store, home.subvol.tree());
            let wanted = |batch| old(&home, batch);
            let some = (STEP_BATCHES, &wanted as &dyn Fn(Batch) -> bool);
            let old = place::some_batches(self, view, home.directory, some)?;
            if !old.is_empty() {
                let old: Vec<_> = old.iter().map(|(batch, _)| *batch).collect();
                return purge_all(self, &home, &old);
            }
        }
        self.trash.look_at.store(now.saturating_add(LOOK_EVERY), Ordering::Release);
        let space = self
            .env
            .device
            .space()
            .map_err(|error| FsError::Io(IoFailure::environment(error.to_string())))?;
        // What waits to be punched will be free without it.
        let free = space.free_bytes.saturating_add(self.bytes_to_come());
        let full = self.env.objects.is_none()
            && free < space.total_bytes / FREE_PART
            && !self.queue.has_new_orphans();
        let Some((hour, home)) = (if full { oldest(self)? } else { None }) else { return Ok(0) };
        self.purge_for_space(&home, &hour)
    }

    /// Removes an hour of a trash, and reports that in the log: nobody requested it, and its users
    /// find their trash empty.
    fn purge_for_space(&self, home: &Home, hour: &[Batch]) -> FsResult<u64> {
        let gone = purge_all(self, home, hour)?;
        if gone > 0 {
            tracing::warn!(
                subvolume = home.subvol.id.0,
                directory = home.directory,
                hour = hour.first().map(|batch| batch.name()),
                batches = gone,
                "the oldest hour of a trash was deleted, because the disk is full or nearly so"
            );
        }
        Ok(gone)
    }

    /// Deletes everything in the trash of a directory, or in the one above it that keeps what is
    /// removed there. Root may, and the owner of the directory that has the trash. Returns how many
    /// batches were deleted.
    pub fn trash_empty(&self, caller: &Caller, dir: NodeId) -> FsResult<u64> {
        let (subvol, ino) = self.place(self.real(dir))?;
        if subvol.read_only {
            return Err(FsError::ReadOnly(
                "a directory in a snapshot cannot be a trash; name the one that it was taken of"
                    .to_owned(),
            ));
        }
        let view = View::new(&*self.store, subvol.tree());
        let Climb::Home { home, keep, .. } = place::climb(self, &subvol, view, ino)? else {
            return Err(FsError::InvalidArgument("no trash keeps what is removed there"));
        };
        let record = view.directory(home)?.ok_or(FsError::NotFound)?;
        if !volume::attributes::owned_directory(&record).is_owner(caller) {
            return Err(FsError::NotPermitted("only the owner of a trash empties it"));
        }
        let home = Home { subvol, directory: home, keep_seconds: keep };
        let all = place::batches(self, view, home.directory)?;
        purge_all(self, &home, &all.iter().map(|(batch, _)| *batch).collect::<Vec<_>>())
    }
}

impl Governed {
    /// The directories of the volume that have a trash of their own, and whether anything is in it.
    /// The roots of subvolumes below one are among them.
    pub fn trash_places(&self) -> FsResult<Vec<(NodeId, bool)>> {
        let mut places = Vec::new();
        for home in homes(self)? {
            let view = View::new(&*self.store, home.subvol.tree());
            let filled =
                !place::some_batches(self, view, home.directory, (1, &|_| true))?.is_empty();
            places.push((home.subvol.node(home.directory), filled));
        }
        Ok(places)
    }
}

/// All trash of the volume. What a snapshot holds is no trash.
fn homes(fs: &Governed) -> FsResult<Vec<Home>> {
    let mut live = Vec::new();
    fs.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |key, value| {
        let malformed = |error| malformed(VOLUME, &error);
        let record = SubvolumeRecord::decode(value).map_err(malformed)?;
        if !(record.read_only || record.detached || record.index) {
            live.push(key::parse_number(key).map_err(malformed)?);
        }
        Ok(())
    })?;
    let settings: Vec<_> = {
        let state = fs.trash.state.read();
        let mut all: Vec<_> = state.keep.keys().copied().collect();
        all.sort_unstable();
        all
    };
    let mut homes = Vec::new();
    for id in live {
        let subvol = match fs.subvol(SubvolId(id)) {
            Err(FsError::Stale) => continue,
            subvol => subvol?,
        };
        let view = View::new(&*fs.store, subvol.tree());
        let own = settings.iter().filter(|(lineage, _)| *lineage == subvol.lineage);
        let mut directories: Vec<u64> = own.map(|(_, dir)| *dir).collect();
        if !directories.contains(&subvol.root) {
            directories.push(subvol.root);
        }
        for directory in directories {
            // The tree may hold directories that nothing in it points to any more.
            if let Climb::Home { home, keep, .. } = place::climb(fs, &subvol, view, directory)?
                && home == directory
            {
                let subvol = Arc::clone(&subvol);
                homes.push(Home { subvol, directory, keep_seconds: keep });
            }
        }
    }
    Ok(homes)
}

/// The oldest hour of all, or much of it: one search for space covers many batches.
fn oldest(fs: &Governed) -> FsResult<Option<(Vec<Batch>, Home)>> {
    let mut oldest: Option<(Vec<Batch>, Home)> = None;
    for home in homes(fs)? {
        let view = View::new(&*fs.store, home.subvol.tree());
        let mut all: Vec<_> =
            place::batches(fs, view, home.directory)?.iter().map(|(batch, _)| *batch).collect();
        let Some(first) = all.first().copied() else { continue };
        if oldest.as_ref().is_none_or(|(other, _)| first < other[0]) {
            all.retain(|batch| batch.hour == first.hour);
            all.truncate(SPACE_BATCHES);
            oldest = Some((all, home));
        }
    }
    Ok(oldest)
}

/// Removes batches. Returns how many existed.
fn purge_all(fs: &Governed, home: &Home, batches: &[Batch]) -> FsResult<u64> {
    let mut gone = 0;
    for batch in batches {
        gone += u64::from(purge(fs, home, *batch)?);
    }
    Ok(gone)
}

/// Removes a batch. What is removed meanwhile goes into the next one. Returns whether it existed.
fn purge(fs: &Governed, home: &Home, batch: Batch) -> FsResult<bool> {
    let Home { subvol, directory, .. } = home;
    place::begin_next(fs, subvol, *directory, batch);
    let view = View::new(&*fs.store, subvol.tree());
    let Some(trash) = view.find_entry(*directory, fs.hash.hash(NAME), NAME)? else {
        return Ok(false);
    };
    let name = batch.name();
    match fs.rmr_now(&fs.policies(), &Caller::root(), subvol.node(trash.ino), name.as_bytes()) {
        Ok(_) => {
            fs.trash.forget();
            Ok(true)
        }
        Err(FsError::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}
