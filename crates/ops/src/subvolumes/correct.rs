//! Points entries of copies to what the copies have, before a comparison reads trees.
//!
//! While the tree of an heir could not be read, a change of what it inherits made a copy apart. It
//! is mounted in the heir's entry, which still points to the original. Copies of the heir have that
//! entry, too. A look-up corrects an entry that it follows. Two trees with one wrong entry do not
//! differ in it, so a comparison would not follow it at all.
//!
//! The ledger knows each entry that may be wrong, so this costs nothing where there are none.
//! Entries that proved right are not looked at again.

use format::entry_record::Target;
use inode::{FsError, SubvolId};
use store::Pinned;
use vfs::FsResult;
use volume::error::from_store;
use volume::view::{NameBuf, View};

use super::inherit::{GIVEN_AT_ONCE, Need, Nested};
use super::ledger::Ledger;
use super::mounts::MountPoint;
use super::nested::inherited_at;
use crate::Ops;
use crate::reach::Reach;

impl Ops {
    /// Pins a state in which each entry below some directories, each a subvolume and an inode,
    /// points to what is mounted or inherited there. It fails where such an entry cannot be
    /// corrected.
    pub fn pin_corrected(&self, tops: &[(u64, u64)]) -> FsResult<Box<dyn Pinned>> {
        loop {
            let mut ledger = self.admin.lock_to_give(self);
            if !self.admin.may_inherit() || self.correct_some(&mut ledger, tops)? {
                // With the ledger locked, no entry becomes wrong before the state is pinned.
                return self.store.pin().map_err(from_store);
            }
        }
    }

    /// Corrects some of the entries that may be wrong; returns whether none is left.
    fn correct_some(&self, ledger: &mut Ledger, tops: &[(u64, u64)]) -> FsResult<bool> {
        let (mut after, mut corrected) = ((0, 0, 0), 0);
        while let Some(place) = ledger.any_doubted_after(self, after)? {
            // Each may be a copy, for which writers wait.
            if corrected == GIVEN_AT_ONCE {
                return Ok(false);
            }
            after = place;
            match self.correct(ledger, place, Need::Look) {
                Ok(Nested::Later) => return Ok(false),
                Ok(_) => corrected += 1,
                Err(error) if self.is_below_any((place.0, place.1), tops) => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, heir = place.0, "cannot correct an entry");
                }
            }
        }
        Ok(true)
    }

    /// Points an entry that may be wrong to what the heir has there. One that points to what the
    /// heir inherits stays.
    pub(super) fn correct(
        &self,
        ledger: &mut Ledger,
        place: MountPoint,
        need: Need,
    ) -> FsResult<Nested> {
        let (heir, slot) = (self.subvol(SubvolId(place.0))?, (place.1, place.2));
        let is_mounted = ledger.mounted_at(self, place)?.is_some();
        let corrected = if is_mounted || self.points_elsewhere(ledger, place)? {
            self.give(ledger, &heir, slot, need)?
        } else {
            Nested::Gone
        };
        if !matches!(corrected, Nested::Later) {
            ledger.unset_doubted(place);
        }
        Ok(corrected)
    }

    /// Whether an entry at which nothing is mounted can be reached, and points to something else
    /// than what the heir inherits there.
    fn points_elsewhere(&self, ledger: &mut Ledger, place: MountPoint) -> FsResult<bool> {
        let (heir, directory, cookie) = place;
        let heir = self.subvol(SubvolId(heir))?;
        let mut reach = Reach::new(heir.tree(), heir.root);
        if !self.shows(&heir, &mut reach, &[directory]).swap_remove(0)? {
            return Ok(false);
        }
        let (view, mut name) = (View::new(&*self.store, heir.tree()), NameBuf::empty());
        let entry = view.entry_at(directory, cookie, &mut name)?;
        let Some(Target::Subvolume(id)) = entry.map(|entry| entry.target) else { return Ok(false) };
        let inherited = inherited_at(self, ledger, place, Some(id))?;
        Ok(inherited.is_some_and(|(child, _)| child.subvol.id.0 != id))
    }

    /// Whether a directory is below one of some, as far as can be read.
    fn is_below_any(&self, directory: (u64, u64), tops: &[(u64, u64)]) -> bool {
        let is_below = |top: &(u64, u64)| match self.is_below(directory, *top) {
            Ok(is_below) => is_below,
            Err(FsError::Stale) => false,
            Err(_) => true,
        };
        tops.iter().any(is_below)
    }
}
