//! What happens before a subvolume changes, moves or goes: each heir that inherits it gets a copy
//! (`inherit`). Heirs of the subvolumes that contain it get copies of these first, from the top.
//!
//! * One number shows whether anything is to be done: how many copies had been made when all had
//!   theirs.
//! * Many heirs get their copies in one commit, so that a first change costs little more beside
//!   many heirs than beside one.
//! * While the ledger is locked at most `HEIRS_AT_ONCE` heirs are looked at. [`Ops::give_before`]
//!   unlocks it between such parts; a verb calls that before it locks the ledger. With it locked,
//!   [`Ops::give_to_heirs`] then finds what was copied in between alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use device::sync::RwLockWriteGuard;
use inode::{FsError, NodeId, SubvolId};
use vfs::FsResult;
use volume::error::inconsistent;
use volume::subvol::{Subvol, VOLUME};
use volume::view::{NameBuf, View};

use super::inherit::{Aim, Lead, Need, Nested, Receiver};
use super::ledger::Ledger;
use super::mounts::Slot;
use super::nested::{Member, inherited_at};
use crate::Ops;
use crate::reach::Reach;

/// Most heirs that are looked at while the ledger is locked, and get copies by one commit.
const HEIRS_AT_ONCE: usize = 32;

/// Which heirs were looked at: each what changes, or what it is in, and an heir. An heir has its
/// copy, or needs none, from then on. So copies that others make meanwhile add those copies alone,
/// and a caller beside a stream of them ends.
pub type SeenHeirs = BTreeSet<(u64, u64)>;

impl Ops {
    /// Gives all that inherit some subvolumes copies of these, before they change, move or go, as
    /// far as operations may change them. Others have the ledger in between.
    pub fn give_before<'s>(&self, changed: impl IntoIterator<Item = &'s Subvol>) -> FsResult<()> {
        let mut changed = changed.into_iter().filter(|subvol| subvol.check_changes().is_ok());
        changed.try_for_each(|subvol| self.give_in_parts(subvol))
    }

    /// The same of one, which need not be one that operations may change.
    pub(crate) fn give_in_parts(&self, subvol: &Subvol) -> FsResult<()> {
        let mut seen = SeenHeirs::default();
        while !self.give_part(subvol, &mut seen)? {}
        Ok(())
    }

    /// Gives some heirs of a subvolume theirs, with the ledger locked once; returns whether all
    /// have. `seen` is that of the parts before.
    pub fn give_part(&self, subvol: &Subvol, seen: &mut SeenHeirs) -> FsResult<bool> {
        Ok(subvol.given_to() == self.admin.copies()
            || self.give_to_some(&mut self.admin.lock_known(self), subvol, seen)?)
    }

    /// Whether a change has to give some copies first.
    #[inline]
    pub(crate) fn gives_first(&self, subvol: &Subvol) -> bool {
        subvol.given_to() != self.admin.copies()
    }

    /// Whether a change of a node, or a look-up in a directory, may have to copy subvolumes first.
    /// Nothing is read for the answer.
    pub fn copies_first(&self, node: NodeId, changes: bool) -> bool {
        if !self.admin.may_inherit() {
            return false;
        }
        self.place(node).is_ok_and(|(subvol, _)| {
            if changes { !subvol.read_only && self.gives_first(&subvol) } else { subvol.inherits() }
        })
    }

    /// Gives all that inherit a subvolume a copy of it, before it changes, moves or goes.
    #[cold]
    pub fn give_to_heirs(&self, ledger: &mut Ledger, subvol: &Subvol) -> FsResult<()> {
        let mut seen = SeenHeirs::default();
        while !self.give_to_some(ledger, subvol, &mut seen)? {}
        Ok(())
    }

    /// Begins a change beside which no other runs in the subvolume: its gate is held exclusively.
    /// `Stale`: it is gone. No gate is held before.
    pub fn enter_alone<'a>(&self, subvol: &'a Subvol) -> FsResult<RwLockWriteGuard<'a, ()>> {
        self.may_change()?;
        loop {
            let gate = subvol.quiesce();
            if subvol.is_gone() {
                return Err(FsError::Stale);
            }
            if subvol.given_to() == self.admin.copies() {
                return Ok(gate);
            }
            drop(gate);
            self.give_in_parts(subvol)?;
        }
    }

    /// Gives some heirs copies; returns whether all have theirs.
    fn give_to_some(
        &self,
        ledger: &mut Ledger,
        subvol: &Subvol,
        seen: &mut SeenHeirs,
    ) -> FsResult<bool> {
        let copies = self.admin.copies();
        if subvol.given_to() == copies {
            return Ok(true);
        }
        let mut left = HEIRS_AT_ONCE;
        // From the top: who inherits what it is in has that first.
        for (id, above) in self.chain(ledger, subvol.id.0)?.into_iter().rev() {
            let mut heirs = ledger.heirs(self, above)?;
            heirs.retain(|heir| !seen.contains(&(id, *heir)));
            heirs.truncate(left);
            if heirs.is_empty() {
                continue;
            }
            let changed = Member::get(self, id)?;
            if self.gives_to_source(ledger, &changed, Need::Change)? {
                return Ok(false);
            }
            let (_, directory, cookie) = changed.record.parent;
            self.give_to_each(ledger, (id, (directory, cookie)), &heirs)?;
            left -= heirs.len();
            seen.extend(heirs.into_iter().map(|heir| (id, heir)));
            if left == 0 {
                return Ok(false);
            }
        }
        subvol.set_given_to(copies);
        Ok(true)
    }

    /// A subvolume and those that contain it, each with the one in which it is mounted.
    fn chain(&self, ledger: &mut Ledger, mut at: u64) -> FsResult<Vec<(u64, u64)>> {
        let mut chain: Vec<(u64, u64)> = Vec::new();
        while let Some((above, ..)) = ledger.place(self, at)? {
            if chain.iter().any(|(id, _)| *id == at) {
                return Err(inconsistent(VOLUME, "subvolumes contain each other", at));
            }
            chain.push((at, above));
            at = above;
        }
        Ok(chain)
    }

    /// Gives some heirs of a home copies of a subvolume that is mounted there: one commit for those
    /// of each maker, if nothing prevents it.
    fn give_to_each(
        &self,
        ledger: &mut Ledger,
        (id, slot): (u64, Slot),
        heirs: &[u64],
    ) -> FsResult<()> {
        let mut have_entries = Vec::new();
        for &heir in heirs {
            if ledger.has_certainly(self, (heir, slot.0, slot.1))? {
                continue;
            }
            match self.heir_with(heir, slot) {
                Ok(heir) => have_entries.extend(heir),
                Err(error) => self.give_apart(ledger, (id, slot), heir, error)?,
            }
        }
        let (mut to, mut source) = (Vec::new(), None);
        for heir in &have_entries {
            match self.aim_of(ledger, heir, slot) {
                Ok(Aim::Inherited { id: led, child, home }) if child.subvol.id.0 == id => {
                    let lead = Lead { heir, slot, id: led };
                    to.push(Receiver::new(self, ledger, heir.id.0, home, Some(lead))?);
                    source = Some(child);
                }
                Ok(Aim::Own(_) | Aim::Nothing) => {}
                Ok(_) => self.give_alone(ledger, (id, slot), heir)?,
                Err(error) => self.give_apart(ledger, (id, slot), heir.id.0, error)?,
            }
        }
        let Some(child) = source else { return Ok(()) };
        self.may_change()?;
        to.sort_by_key(|to| to.maker);
        for to in to.chunk_by(|one, other| one.maker == other.maker) {
            match self.copy_for_heirs(ledger, (&*child, slot), Need::Change, to) {
                Ok(_) => {}
                // The change is refused. What other heirs have by now they keep, in some share.
                Err(error @ FsError::LimitReached(_)) => return Err(error),
                // One that is damaged does not keep the others from theirs.
                Err(_) => {
                    for heir in to.iter().filter_map(Receiver::subvol) {
                        self.give_alone(ledger, (id, slot), heir)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives one heir a copy.
    fn give_alone(
        &self,
        ledger: &mut Ledger,
        (id, slot): (u64, Slot),
        heir: &Subvol,
    ) -> FsResult<()> {
        loop {
            match self.give(ledger, heir, slot, Need::Change) {
                Ok(Nested::Later) => {}
                Ok(_) => return Ok(()),
                Err(error) => return self.give_apart(ledger, (id, slot), heir.id.0, error),
            }
        }
    }

    /// An heir could not be given its copy of a subvolume. Damage in a snapshot does not stop
    /// writes to its source: then the copy is made apart, if that is possible.
    fn give_apart(
        &self,
        ledger: &mut Ledger,
        (id, slot): (u64, Slot),
        heir: u64,
        error: FsError,
    ) -> FsResult<()> {
        if !matches!(error, FsError::Io(_)) {
            return Err(error);
        }
        tracing::warn!(%error, heir, subvolume = id, "cannot read a copy");
        match self.give_after_damage(ledger, heir, id, slot) {
            Err(error @ FsError::Io(_)) => {
                tracing::warn!(%error, heir, subvolume = id, "cannot copy for it");
                Ok(())
            }
            given => given,
        }
    }

    /// An heir, if it has an entry that can be reached. An error is about the heir's own tree.
    fn heir_with(&self, heir: u64, (directory, cookie): Slot) -> FsResult<Option<Arc<Subvol>>> {
        let heir = match self.subvol(SubvolId(heir)) {
            // There is none of this number: a record of what it inherits was left.
            Err(FsError::Stale) => return Ok(None),
            heir => heir?,
        };
        let mut reach = Reach::new(heir.tree(), heir.root);
        if !self.shows(&heir, &mut reach, &[directory]).swap_remove(0)? {
            return Ok(None);
        }
        View::new(&*self.store, heir.tree()).entry_at(directory, cookie, &mut NameBuf::empty())?;
        Ok(Some(heir))
    }

    /// Makes the copy of a subvolume for an heir whose tree is damaged. Its entry is pointed to the
    /// copy when it can be read and changed again. So what the heir inherits never changes.
    fn give_after_damage(
        &self,
        ledger: &mut Ledger,
        heir: u64,
        changed: u64,
        (directory, cookie): Slot,
    ) -> FsResult<()> {
        let place = (heir, directory, cookie);
        if ledger.mounted_at(self, place)?.is_some() {
            return Ok(());
        }
        let from = inherited_at(self, ledger, place, None)?;
        // Otherwise the heir inherits a copy of the one that changes, which remains as it is.
        let Some((child, home)) = from.filter(|(child, _)| child.subvol.id.0 == changed) else {
            return Ok(());
        };
        let to = Receiver::new(self, ledger, heir, home, None)?;
        self.copy_for_heirs(ledger, (&child, (directory, cookie)), Need::Change, &[to]).map(drop)
    }
}
