//! `rmr`: takes a directory away with all below it, in one commit; its space comes back in the
//! background.

use std::sync::Arc;

use format::detached_record::DetachedRecord;
use format::directory_record::DirectoryRecord;
use format::entry_record::Target;
use inode::{Caller, FsError, NodeId, SubvolId};
use vfs::FsResult;
use volume::locks::{Lock, Mode};
use volume::subvol::Subvol;
use volume::view::{FoundEntry, View};
use volume::{RmrInfo, permit};

use super::execute::{Through, execute};
use super::owned::OwnedTree;
use super::snapshot::plan_detach;
use crate::Ops;
use crate::plan::{Effect, Plan};
use crate::posix::mknod::parent_directory;

/// How an attempt to remove a directory ended.
enum Removal {
    Done(RmrInfo),
    /// The name points to another directory by now.
    Another,
    /// So much changed below that who owns it is to be checked first.
    Changed,
}

impl Ops {
    /// Removes a directory with all below it, with a trash too.
    pub fn rmr_now(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<RmrInfo> {
        let name = self.old_name(name)?.as_bytes();
        let (subvol, dir) = self.place(parent)?;
        loop {
            let (seen, mut owned) = self.rmr_victim(caller, parent, name)?;
            loop {
                match self.rmr_owned(caller, (&subvol, dir), name, (&seen, &mut owned))? {
                    Removal::Done(info) => return Ok(info),
                    Removal::Another => break,
                    Removal::Changed => owned.catch_up()?,
                }
            }
        }
    }

    /// Removes a directory all of which the caller owned when that was checked.
    fn rmr_owned(
        &self,
        caller: &Caller,
        (subvol, dir): (&Arc<Subvol>, u64),
        name: &[u8],
        (seen, owned): (&FoundEntry, &mut OwnedTree<'_>),
    ) -> FsResult<Removal> {
        let (hash, id) = (self.hash.hash(name), subvol.id.0);
        let child = match seen.target {
            Target::Subvolume(child) => Some(self.subvol(SubvolId(child))?),
            _ => None,
        };
        self.give_before(child.as_deref().into_iter().chain([&**subvol]))?;
        let mut ledger = self.admin.lock_to_give(self);
        if let Some(child) = &child {
            self.give_to_heirs(&mut ledger, child)?;
        }
        let through = Through { quiet: &[], changed: Some(subvol) };
        let aim = |plan: &mut Plan| {
            plan.lock(Lock::Object { subvol: id, ino: dir }, Mode::Shared);
            plan.lock(Lock::Name { subvol: id, dir, hash }, Mode::Exclusive);
            plan.lock(Lock::Object { subvol: id, ino: seen.ino }, Mode::Exclusive);
            plan.lock(Lock::Place { subvol: id, ino: seen.ino }, Mode::Exclusive);
            Ok(())
        };
        execute(self, ledger, through, aim, |ledger, plan| {
            if !owned.holds(plan)? {
                return Ok(Removal::Changed);
            }
            let view = View::new(&*self.store, subvol.tree());
            let directory = parent_directory(self, subvol, view, caller, dir)?;
            let found = view.find_entry(dir, hash, name)?.ok_or(FsError::NotFound)?;
            if found.ino != seen.ino || found.target != seen.target {
                return Ok(Removal::Another);
            }
            let (root_subvol, victim) = self.root_record(view, &found)?;
            permit::removal(view, dir, &directory, caller, victim.uid)?;
            plan.erase_entry(view, dir, &found, false)?;
            plan.touch_directory(view.tree, dir, -1, -1);
            let detached = if let Some(child) = root_subvol {
                plan_detach(self, ledger, plan, child)?
            } else {
                let record = DirectoryRecord { detached: true, ..victim };
                plan.put_directory(view.tree, found.ino, &record);
                let (directory, kept_while_held) = (found.ino, false);
                let waits = DetachedRecord::Directory { subvolume: id, directory, kept_while_held };
                plan.effect(Effect::Detached);
                ledger.detach(plan.batch(), waits)
            };
            plan.effect(Effect::DirectoriesMoved);
            // What was read of directories above a target may be detached now.
            plan.effect(Effect::DirectoryRehung);
            plan.effect(Effect::NameChanged(subvol.node(dir), name.into()));
            Ok(Removal::Done(RmrInfo { detached, entries: victim.entries as u64 }))
        })
    }

    /// What is to be removed, if the caller may; the walk that this takes is done without locks.
    pub fn rmr_victim<'a>(
        &'a self,
        caller: &'a Caller,
        parent: NodeId,
        name: &[u8],
    ) -> FsResult<(FoundEntry, OwnedTree<'a>)> {
        let (subvol, dir) = self.place(parent)?;
        let view = View::new(&*self.store, subvol.tree());
        let directory = parent_directory(self, &subvol, view, caller, dir)?;
        let found = view.find_entry(dir, self.hash.hash(name), name)?;
        let mut found = found.ok_or(FsError::NotFound)?;
        if !found.is_directory() {
            return Err(FsError::NotDirectory);
        }
        if let Target::Subvolume(child) = found.target {
            let child = self.nested_at(&subvol, (dir, found.cookie), child)?;
            found.target = Target::Subvolume(child);
        }
        let (child, victim) = self.root_record(view, &found)?;
        permit::removal(view, dir, &directory, caller, victim.uid)?;
        let within = child.map_or(subvol.id, SubvolId);
        let owned = OwnedTree::check(self, caller, within, found.ino)?;
        Ok((found, owned))
    }

    /// The record of the directory that an entry points to, and the subvolume that it is the
    /// root of.
    fn root_record(
        &self,
        view: View<'_>,
        found: &FoundEntry,
    ) -> FsResult<(Option<u64>, DirectoryRecord)> {
        match found.target {
            Target::Directory => {
                let record = view.directory(found.ino)?.ok_or(FsError::Stale)?;
                Ok((None, record))
            }
            Target::Subvolume(child) => {
                let subvol = self.subvol(SubvolId(child))?;
                let view = View::new(&*self.store, subvol.tree());
                let record = view.directory(subvol.root)?.ok_or(FsError::Stale)?;
                Ok((Some(child), record))
            }
            _ => Err(FsError::NotDirectory),
        }
    }
}
