//! Trash: if it is on, removed objects move into a hidden directory instead.
//!
//! A directory that has a trash keeps in `.trash` what is removed in it and below, as
//! `.trash/HOUR/path/of/the/name`. That includes its subvolume and those mounted below it. These
//! are ordinary directories and names, created by ordinary batches, so that everything else
//! (snapshots, quotas, checks, searches) handles them already.
//!
//! 1. `place` finds where a directory's names go, climbing to the directory that has the trash.
//!    `mirror` creates the directories that mirror the path there; both are remembered.
//! 2. `keep` adds to the batch of a removal that the removed object moves there.
//! 3. `purge` removes whole hours, when they are old and when the disk is full.
//! 4. `restore` moves back, `list` lists.
//!
//! If no directory of the volume has a trash, a removal reads one flag in memory.

mod restore;
mod list;
mod tree;
mod keep;
mod purge;
mod place;
mod state;
mod mirror;
mod hour;

use format::key;
use format::trash::TrashRecord;
use inode::{Caller, FsError, NodeId};
use ops::execute::execute_alone;
use ops::subvolumes::access::directory_of;
use vfs::FsResult;
use volume::TrashSetting;
use volume::subvol::VOLUME;
use volume::view::View;

use crate::Governed;
use crate::settings::Setting;

pub use self::keep::{keep, take_directory, take_file};
pub use self::place::{check_name, check_outside, is_all};
pub use self::purge::Purged;
pub use self::state::{Trash, Version};

/// Name of the directory of a trash.
pub const NAME: &[u8] = b".trash";

impl Governed {
    /// Gives a directory a trash that keeps for so many seconds what is removed in it and below.
    /// `None`: it has none from now on, and what is in it stays, as ordinary files. Only root may.
    pub fn trash_set(&self, caller: &Caller, dir: NodeId, keep: Option<u64>) -> FsResult<()> {
        if !caller.is_root() {
            return Err(FsError::RootOnly("only root turns a trash on or off"));
        }
        let (subvol, ino) = self.place(self.real(dir))?;
        directory_of(self, &subvol, ino)?;
        if subvol.read_only {
            // The setting is that of the lineage, and so of the directory itself.
            return Err(FsError::ReadOnly(
                "a snapshot has no trash setting of its own; name the one it was taken of"
                    .to_owned(),
            ));
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
