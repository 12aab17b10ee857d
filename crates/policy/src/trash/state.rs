//! What is remembered of the trashes of a volume: which directories have one, and where the names
//! of directories go.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use device::Map;
use device::sync::{Mutex, RwLock};
use format::key;
use format::trash::TrashRecord;
use ops::Ops;
use vfs::FsResult;
use volume::error::malformed;
use volume::subvol::{Subvol, VOLUME};

use super::hour::Batch;

/// Most directories whose places are remembered; then all are forgotten.
pub(super) const PLACES_MAX: usize = 1 << 16;
/// Versions of a name of one owner that an hour keeps, and batches that the rights of one
/// directory have begin in it.
const VERSIONS_MAX: u32 = 1000;
/// Most of what has batches begin that is counted; then counting begins again, and more is kept.
const COUNTED_MAX: usize = 1 << 16;

/// What causes batches to begin, and is counted for that. It is counted by its identity and its
/// owner, so that no user causes the removed files of others to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    subvol: u64,
    dir: u64,
    hash: u64,
    uid: u32,
}

impl Version {
    /// A name that was removed before, of something of a user.
    pub fn of_name(subvol: u64, dir: u64, hash: u64, uid: u32) -> Version {
        Version { subvol, dir, hash, uid }
    }

    /// A directory whose way in the trash does not fit.
    pub fn of_way(subvol: u64, dir: u64) -> Version {
        Version { subvol, dir, hash: u64::MAX, uid: 0 }
    }
}

/// Where removed names of a directory go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    /// Nowhere: it has no trash.
    Off,
    /// Nowhere: it is in a trash.
    Inside,
    /// Into its mirror.
    Mirror {
        /// The directory in the trash.
        mirror: u64,
        /// The directory that has the trash.
        home: u64,
        /// The batch that the mirror is in.
        batch: Batch,
    },
}

/// The trash of a volume: which users have one, and where names go.
#[derive(Default)]
pub struct Trash {
    /// Whether any directory has one.
    on: AtomicBool,
    pub(super) state: RwLock<TrashState>,
    /// Held while settings are changed, so that those in memory are those of the last commit.
    pub(super) setting: Mutex<()>,
    /// Held while directories of a trash are made: two removals would make the same.
    pub(super) making: Mutex<()>,
    /// When the background looks at the trash again, in nanoseconds since 1970.
    pub(super) look_at: AtomicI64,
}

/// When a place was sought: it is remembered if nothing that makes it untrue happened since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    generation: u64,
    moves: u64,
}

#[derive(Default)]
pub(super) struct TrashState {
    /// Directories that have a trash, by lineage and inode, and how many seconds they keep.
    pub(super) keep: Map<(u64, u64), u64>,
    /// Counts what makes places untrue: a setting, or a batch that begins.
    pub(super) generation: u64,
    /// How often directories had moved, or got other rights, when places were remembered.
    moves: u64,
    /// By subvolume and directory.
    pub(super) places: Map<(u64, u64), Destination>,
    /// The present batch of a trash, by the subvolume and the directory that has it.
    pub(super) current: Map<(u64, u64), Batch>,
    /// Batches that began for something, and the hour of which they are.
    begun: Map<Version, (i64, u32)>,
}

impl Trash {
    /// Reads the settings of a volume.
    pub fn load(&self, fs: &Ops) -> FsResult<()> {
        let mut keep = Map::default();
        fs.visit_volume(&key::TRASH_PREFIX, &mut |key, value| {
            let malformed = |error| malformed(VOLUME, &error);
            let place = key::parse_trash(key).map_err(malformed)?;
            // A setting that does not decode does not prevent opening; a check reports it.
            if let Ok(record) = TrashRecord::decode(value) {
                keep.insert(place, record.keep_seconds);
            }
            Ok(())
        })?;
        self.on.store(!keep.is_empty(), Ordering::Release);
        self.state.write().keep = keep;
        Ok(())
    }

    /// Whether any directory has a trash.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// Where a directory's names go, if that is remembered, and what it must be remembered with.
    pub(super) fn known(&self, fs: &Ops, of: (u64, u64)) -> (Option<Destination>, Seen) {
        // First: what moves meanwhile makes the answer untrue later.
        let moves = fs.moves();
        let state = self.state.read();
        let place = state.places.get(&of).filter(|_| state.moves == moves).copied();
        (place, Seen { generation: state.generation, moves })
    }

    /// The places that are remembered, if what is to be added to them is still true.
    pub(super) fn places<'s>(
        state: &'s mut TrashState,
        fs: &Ops,
        seen: Seen,
    ) -> Option<&'s mut Map<(u64, u64), Destination>> {
        if state.generation != seen.generation || fs.moves() != seen.moves {
            return None;
        }
        if state.moves != seen.moves {
            state.places.clear();
            state.moves = seen.moves;
        }
        Some(&mut state.places)
    }

    #[cold]
    pub(super) fn forget(&self) {
        let mut state = self.state.write();
        state.generation += 1;
        state.places.clear();
    }

    /// Whether something had so many batches begin of an hour that it has to do without another.
    pub fn had_enough(&self, of: &Version, batch: Batch) -> bool {
        let begun = self.state.read().begun.get(of).copied();
        batch.is_crowded()
            && begun.is_some_and(|(hour, count)| hour == batch.hour && count >= VERSIONS_MAX - 1)
    }

    /// Counts that something needs the batch after one; `false`: it had enough.
    pub(super) fn counts(&self, of: Version, batch: Batch) -> bool {
        if self.had_enough(&of, batch) {
            return false;
        }
        let mut state = self.state.write();
        if state.begun.len() >= COUNTED_MAX {
            state.begun.clear();
        }
        let (hour, count) = state.begun.entry(of).or_insert((batch.hour, 0));
        if *hour != batch.hour {
            (*hour, *count) = (batch.hour, 0);
        }
        *count = count.saturating_add(1);
        true
    }

    /// How long a directory of a subvolume keeps, if it has a trash.
    pub(super) fn keep_of(&self, subvol: &Subvol, dir: u64) -> Option<u64> {
        self.state.read().keep.get(&(subvol.lineage, dir)).copied()
    }

    /// Keeps a setting in memory, after the commit.
    pub fn set(&self, place: (u64, u64), keep: Option<u64>) {
        let mut state = self.state.write();
        match keep {
            Some(keep) => state.keep.insert(place, keep),
            None => state.keep.remove(&place),
        };
        self.on.store(!state.keep.is_empty(), Ordering::Release);
        drop(state);
        self.forget();
        self.look_at.store(0, Ordering::Release);
    }
}
