//! Trash: if it is on, removed objects move into a hidden directory instead.
//!
//! A directory that has a trash keeps in `.trash` what is removed in it and below, in its subvolume
//! and in those mounted below it: `.trash/HOUR/path/of/the/name`. These are ordinary directories
//! and names, created by ordinary batches, so that everything else (snapshots, quotas, checks,
//! searches) handles them already.
//!
//! 1. `place` finds where a directory's names go, climbing to the directory that has the trash, and
//!    `mirror` creates the directories that mirror the path there; both are remembered.
//! 2. `keep` adds to the batch of a removal that the removed object moves there.
//! 3. `purge` removes whole hours, when they are old and when the disk is full.
//! 4. `restore` moves back, `list` lists.
//!
//! If no directory of the volume has a trash, a removal reads one flag in memory.

mod hour;
mod keep;
mod list;
mod mirror;
mod place;
mod purge;
mod restore;
mod tree;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use device::Map;
use device::sync::{Mutex, RwLock};
use format::key;
use format::trash::TrashRecord;
use inode::{Caller, FsError, NodeId};
use ops::Ops;
use ops::execute::execute_alone;
use ops::subvolumes::access::directory_of;
use vfs::FsResult;
use volume::TrashSetting;
use volume::error::malformed;
use volume::subvol::{Subvol, VOLUME};
use volume::view::View;

use self::hour::Batch;
use self::place::Place;
use crate::Governed;
use crate::settings::Setting;

pub use self::keep::{keep, take_directory, take_file};
pub use self::place::{check_name, check_outside, is_all};
pub use self::purge::Purged;

/// Name of the directory of a trash.
pub const NAME: &[u8] = b".trash";

/// Most directories whose places are remembered; then all are forgotten.
const PLACES_MAX: usize = 1 << 16;
/// Versions of a name of one owner that an hour keeps, and batches that the rights of one
/// directory have begin in it.
const VERSIONS_MAX: u32 = 1000;
/// Most of what has batches begin that is counted; then counting begins again, and more is kept.
const COUNTED_MAX: usize = 1 << 16;

/// What causes batches to begin, and is counted for that: by its identity and its owner, so that no
/// user causes the removed files of others to be deleted.
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

/// The trash of a volume: who has one, and where names go.
#[derive(Default)]
pub struct Trash {
    /// Whether any directory has one.
    on: AtomicBool,
    state: RwLock<TrashState>,
    /// Held while settings are changed, so that those in memory are those of the last commit.
    setting: Mutex<()>,
    /// Held while directories of a trash are made: two removals would make the same.
    making: Mutex<()>,
    /// When the background looks at the trash again, in nanoseconds since 1970.
    look_at: AtomicI64,
}

/// When a place was sought: it is remembered if nothing that makes it untrue happened since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    generation: u64,
    moves: u64,
}

#[derive(Default)]
struct TrashState {
    /// Directories that have a trash, by lineage and inode, and how many seconds they keep.
    keep: Map<(u64, u64), u64>,
    /// Counts what makes places untrue: a setting, or a batch that begins.
    generation: u64,
    /// How often directories had moved, or got other rights, when places were remembered.
    moves: u64,
    /// By subvolume and directory.
    places: Map<(u64, u64), Place>,
    /// The present batch of a trash, by the subvolume and the directory that has it.
    current: Map<(u64, u64), Batch>,
    /// Batches that began for something, and the hour of which they are.
    begun: Map<Version, (i64, u32)>,
}

impl Trash {
    /// Reads the settings of a volume.
    pub fn load(&self, fs: &Governed) -> FsResult<()> {
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
    fn known(&self, fs: &Ops, of: (u64, u64)) -> (Option<Place>, Seen) {
        // First: what moves meanwhile makes the answer untrue later.
        let moves = fs.moves();
        let state = self.state.read();
        let place = state.places.get(&of).filter(|_| state.moves == moves).copied();
        (place, Seen { generation: state.generation, moves })
    }

    /// The places that are remembered, if what is to be added to them is still true.
    fn places<'s>(
        state: &'s mut TrashState,
        fs: &Ops,
        seen: Seen,
    ) -> Option<&'s mut Map<(u64, u64), Place>> {
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
    fn forget(&self) {
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
    fn counts(&self, of: Version, batch: Batch) -> bool {
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
    fn keep_of(&self, subvol: &Subvol, dir: u64) -> Option<u64> {
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

impl Governed {
    /// Gives a directory a trash that keeps for so many seconds what is removed in it and below;
    /// `None`: it has none from now on, and what is in it stays, as ordinary files. Only root may.
    pub fn trash_set(&self, caller: &Caller, dir: NodeId, keep: Option<u64>) -> FsResult<()> {
        if !caller.is_root() {
            return Err(FsError::RootOnly("only root turns a trash on or off"));
        }
        let (subvol, ino) = self.place(self.real(dir))?;
        directory_of(self, &subvol, ino)?;
        if subvol.read_only {
            // The setting is that of the lineage, and so of the directory itself.
            return Err(FsError::ReadOnly("a snapshot has no trash setting of its own".to_owned()));
        }
        let _setting = self.trash.setting.lock();
        if keep.is_some() {
            place::adopt(self, &subvol, ino)?;
        } else if self.trash.keep_of(&subvol, ino).is_none() {
            return Err(FsError::NotFound);
        }
        execute_alone(self, |plan| {
            let place = (subvol.lineage, ino);
            let key = key::trash(place.0, place.1);
            match keep {
                Some(keep_seconds) => {
                    plan.batch().put(VOLUME, &key, &TrashRecord { keep_seconds }.encode());
                }
                None => plan.batch().delete(VOLUME, &key),
            }
            plan.effect(self.setting(Setting::Trash(place, keep)));
            Ok(())
        })
    }

    /// The trash that keeps what is removed in a directory, if any: where it is, and how long it
    /// keeps. Any caller that holds the directory may read it.
    pub fn trash_get(&self, dir: NodeId) -> FsResult<Option<TrashSetting>> {
        let (subvol, ino) = self.place(self.real(dir))?;
        directory_of(self, &subvol, ino)?;
        let view = View::new(&*self.store, subvol.tree());
        Ok(match place::climb(self, &subvol, view, ino)? {
            place::Climb::Home { home, keep, .. } => {
                Some(TrashSetting { directory: subvol.node(home), keep_seconds: keep })
            }
            place::Climb::Off | place::Climb::Inside => None,
        })
    }
}
