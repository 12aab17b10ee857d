//! `rmr`: takes a directory away with all below it, in one commit; its space is reclaimed in the
//! background.

use std::cell::RefCell;
use std::sync::Arc;

use format::detached_record::DetachedRecord;
use format::directory_record::DirectoryRecord;
use format::entry_record::Target;
use inode::{Caller, FsError, NodeId, SubvolId};
use store::Read;
use vfs::FsResult;
use volume::locks::{Lock, Mode};
use volume::subvol::Subvol;
use volume::view::{FoundEntry, View};
use volume::{RmrInfo, permit};

use super::execute::{Through, Verb, VerbContext, execute_verb};
use super::ledger::Ledger;
use super::owned::OwnedTree;
use super::snapshot::plan_detach_in;
use crate::Ops;
use crate::plan::{Effect, Plan};
use crate::policy::Policy;
use crate::posix::mknod::parent_directory;

/// How an attempt to remove a directory ended.
#[derive(Debug)]
pub enum Attempt {
    /// It is removed once that is committed.
    Done(RmrInfo),
    /// The name points to another directory by now.
    Another,
    /// So much changed below that who owns it is to be checked first.
    Changed,
}

impl Ops {
    /// Removes a directory with all below it, with a trash too.
    pub fn rmr_now(
        &self,
        policy: &dyn Policy,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
    ) -> FsResult<RmrInfo> {
        let name = self.old_name(name)?.as_bytes();
        loop {
            let (seen, mut owned) = self.rmr_victim(caller, parent, name)?;
            loop {
                let verb = RemoveTree::new(self, caller, (parent, name), (&seen, &mut owned))?;
                match self.rmr_owned(policy, &verb)? {
                    Attempt::Done(info) => return Ok(info),
                    Attempt::Another => break,
                    Attempt::Changed => owned.catch_up()?,
                }
            }
        }
    }

    /// Removes a directory all of which the caller owned when that was checked.
    fn rmr_owned(&self, policy: &dyn Policy, verb: &RemoveTree<'_, '_>) -> FsResult<Attempt> {
        self.give_before(verb.child.as_deref().into_iter().chain([&*verb.subvol]))?;
        let mut ledger = self.admin.lock_to_give(self);
        if let Some(child) = &verb.child {
            self.give_to_heirs(&mut ledger, child)?;
        }
        execute_verb(&VerbContext::new(self, policy), ledger, verb)
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
        let (child, victim) = root_record(self, (&*self.store, view), &found)?;
        permit::removal(view, dir, &directory, caller, victim.uid)?;
        let within = child.map_or(subvol.id, SubvolId);
        let mut owned = OwnedTree::check(self, caller, within, found.ino)?;
        owned.set_named_in(subvol.id);
        Ok((found, owned))
    }
}

/// The removal of a directory with all below it.
pub struct RemoveTree<'a, 'o> {
    caller: &'a Caller,
    subvol: Arc<Subvol>,
    dir: u64,
    hash: u64,
    name: &'a [u8],
    /// What the name pointed to when who owns it was checked.
    seen: &'a FoundEntry,
    /// The same if that is a subvolume.
    child: Option<Arc<Subvol>>,
    owned: RefCell<&'a mut OwnedTree<'o>>,
}

impl<'a, 'o> RemoveTree<'a, 'o> {
    /// Of what [`Ops::rmr_victim`] found, as far as the caller owns it.
    pub fn new(
        fs: &Ops,
        caller: &'a Caller,
        (parent, name): (NodeId, &'a [u8]),
        (seen, owned): (&'a FoundEntry, &'a mut OwnedTree<'o>),
    ) -> FsResult<RemoveTree<'a, 'o>> {
        let (subvol, dir) = fs.place(parent)?;
        let child = match seen.target {
            Target::Subvolume(child) => Some(fs.subvol(SubvolId(child))?),
            _ => None,
        };
        let (hash, owned) = (fs.hash.hash(name), RefCell::new(owned));
        Ok(RemoveTree { caller, subvol, dir, hash, name, seen, child, owned })
    }
}

impl Verb for RemoveTree<'_, '_> {
    type Answer = Attempt;

    fn through(&self) -> Through<'_> {
        Through { quiet: &[], changed: Some(&self.subvol) }
    }

    fn aim(&self, _at: &VerbContext<'_>, plan: &mut Plan) -> FsResult<()> {
        let (subvol, ino) = (self.subvol.id.0, self.seen.ino);
        plan.lock(Lock::Object { subvol, ino: self.dir }, Mode::Shared);
        plan.lock(Lock::Name { subvol, dir: self.dir, hash: self.hash }, Mode::Exclusive);
        plan.lock(Lock::Object { subvol, ino }, Mode::Exclusive);
        plan.lock(Lock::Place { subvol, ino }, Mode::Exclusive);
        Ok(())
    }

    fn plan(
        &self,
        at: &VerbContext<'_>,
        ledger: &mut Ledger,
        plan: &mut Plan,
    ) -> FsResult<Attempt> {
        if !self.owned.borrow_mut().holds(plan)? {
            return Ok(Attempt::Changed);
        }
        let RemoveTree { caller, subvol, dir, hash, name, seen, .. } = self;
        // The volume's root is another subvolume after its rollback.
        if !self.owned.borrow().is_named_in(subvol.id) {
            return Ok(Attempt::Another);
        }
        let (view, dir) = (at.view(subvol), *dir);
        let directory = parent_directory(at.fs, subvol, view, caller, dir)?;
        let found = view.find_entry(dir, *hash, name)?.ok_or(FsError::NotFound)?;
        if found.ino != seen.ino || found.target != seen.target {
            return Ok(Attempt::Another);
        }
        let (root_subvol, victim) = root_record(at.fs, (at.reads, view), &found)?;
        permit::removal(view, dir, &directory, caller, victim.uid)?;
        plan.erase_entry(view, dir, &found, false)?;
        plan.touch_directory(view.tree, dir, -1, -1);
        let detached = if let Some(child) = root_subvol {
            plan_detach_in(at.reads, ledger, plan, child)?
        } else {
            let record = DirectoryRecord { detached: true, ..victim };
            plan.put_directory(view.tree, found.ino, &record);
            let (subvolume, directory, kept_while_held) = (subvol.id.0, found.ino, false);
            let waits = DetachedRecord::Directory { subvolume, directory, kept_while_held };
            plan.effect(Effect::Detached);
            ledger.detach(plan.batch(), waits)
        };
        plan.effect(Effect::DirectoriesMoved);
        // What was read of directories above a target may be detached now.
        plan.effect(Effect::DirectoryRehung);
        plan.effect(Effect::NameChanged(subvol.node(dir), (*name).into()));
        Ok(Attempt::Done(RmrInfo { detached, entries: victim.entries as u64 }))
    }
}

/// The record of the directory that an entry points to, and the subvolume that it is the root of.
fn root_record(
    fs: &Ops,
    (reads, view): (&dyn Read, View<'_>),
    found: &FoundEntry,
) -> FsResult<(Option<u64>, DirectoryRecord)> {
    match found.target {
        Target::Directory => {
            let record = view.directory(found.ino)?.ok_or(FsError::Stale)?;
            Ok((None, record))
        }
        Target::Subvolume(child) => {
            let subvol = fs.subvol(SubvolId(child))?;
            let view = View::new(reads, subvol.tree());
            let record = view.directory(subvol.root)?.ok_or(FsError::Stale)?;
            Ok((Some(child), record))
        }
        _ => Err(FsError::NotDirectory),
    }
}
