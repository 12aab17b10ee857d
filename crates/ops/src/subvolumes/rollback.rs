//! `rollback`: puts a directory back to one of its snapshots, in one commit.
//!
//! A writable copy of the snapshot takes the directory's place. The entry of a plain directory
//! points to the copy from now on. Where a subvolume was mounted, the copy is mounted. In place of
//! the volume's root, the copy is the root. A mount that shows the directory as its root shows the
//! copy. What was there waits to be reclaimed until nobody holds it: open files and working
//! directories keep the old tree.

use std::cell::Cell;
use std::sync::Arc;

use format::detached_record::DetachedRecord;
use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryHead, EntryRecord, Target};
use format::key::{self, Parsed, Part};
use inode::{Caller, FsError, NodeId, SubvolId};
use store::KeyRange;
use vfs::FsResult;
use volume::error::{from_store, inconsistent, malformed};
use volume::locks::{Lock, Mode};
use volume::subvol::node_of;
use volume::view::{NameBuf, View};

use super::access::directory_of;
use super::copied::Copied;
use super::copy::{self, Purpose};
use super::execute::{Through, execute};
use super::ledger::Ledger;
use super::nested::Member;
use super::owned::OwnedTree;
use super::snapshot::plan_detach;
use crate::Ops;
use crate::plan::{Effect, Plan};
use crate::policy::Policy;

/// Where the directory hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hangs {
    /// In a directory of its own subvolume, or as the root of one in a directory of another.
    In { subvol: u64, dir: u64, cookie: u64 },
    /// It is the root of the volume.
    Nowhere,
}

impl Ops {
    /// Puts a directory back to one of its snapshots. Root may, and a user who owns every directory
    /// below it, but where a limit holds: what comes back is charged to nobody.
    pub fn rollback(
        &self,
        policy: &dyn Policy,
        caller: &Caller,
        dir: NodeId,
        snapshot: &[u8],
    ) -> FsResult<()> {
        let dir = self.real(dir);
        let (subvol, ino) = self.place(dir)?;
        if subvol.read_only {
            return Err(FsError::ReadOnly("a snapshot cannot be rolled back".to_owned()));
        }
        directory_of(self, &subvol, ino)?;
        let mut owned = OwnedTree::check(self, caller, subvol.id, ino)?;
        while !self.rollback_owned((policy, caller), dir, snapshot, &mut owned)? {
            owned.catch_up()?;
        }
        Ok(())
    }

    /// As `rollback`, of a tree that the caller owns. `false`: so much changed in it since that
    /// was checked that nothing was done.
    fn rollback_owned(
        &self,
        (policy, caller): (&dyn Policy, &Caller),
        dir: NodeId,
        snapshot: &[u8],
        owned: &mut OwnedTree<'_>,
    ) -> FsResult<bool> {
        let (subvol, ino) = self.place(dir)?;
        let name_key = key::snapshot_name(subvol.lineage, ino, snapshot);
        let id = self.snapshot_id(&name_key)?.ok_or(FsError::NotFound)?;
        let snapshot = self.subvol(SubvolId(id))?;
        let from = (&*snapshot, snapshot.root);
        let is_root = ino == subvol.root;
        let above = match Member::get(self, subvol.id.0)?.record.parent.0 {
            above if is_root && above != 0 => Some(self.subvol(SubvolId(above))?),
            _ => None,
        };
        self.give_before(above.as_deref().into_iter().chain([&*subvol]))?;
        let mut ledger = self.lock_to_copy((policy, caller), from, (subvol.id.0, ino))?;
        if self.snapshot_id(&name_key)? != Some(id) {
            return Err(FsError::Busy("the snapshot was replaced meanwhile; try again"));
        }
        let source = Member::get(self, id)?;
        self.give_to_heirs(&mut ledger, &subvol)?;
        let old = Member::get(self, subvol.id.0)?;
        let above = match old.record.parent.0 {
            0 => None,
            above => Some(self.subvol(SubvolId(above))?),
        };
        let quiet = [Arc::clone(&subvol)];
        // Where a plain directory was, its own subvolume gets the name that points to the copy.
        let changed = if is_root { above.as_ref() } else { quiet.first() };
        // What holds behind the gate.
        let seen = Cell::new(None);
        let aim = |plan: &mut Plan| {
            let record = directory_of(self, &subvol, ino)?;
            let hangs = self.hangs(dir, &old, &record)?;
            if let Hangs::In { subvol, dir, cookie } = hangs {
                plan.lock(Lock::Name { subvol, dir, hash: cookie >> 8 }, Mode::Exclusive);
                plan.lock(Lock::Object { subvol, ino: dir }, Mode::Shared);
            }
            seen.set(Some((hangs, record)));
            Ok(())
        };
        let through = Through { quiet: &quiet, changed };
        execute(self, ledger, through, aim, |ledger, plan| {
            let Some((hangs, record)) = seen.take() else { return Ok(false) };
            if !owned.holds(plan)? {
                return Ok(false);
            }
            let copied = self.plan_copy(ledger, plan, &source, hangs)?;
            let new = node_of(copied.id, copied.record.root);
            let name = self.hang(policy, (ledger, plan), hangs, &copied)?;
            plan.effect(Effect::Copied(Box::new(copied)));
            if hangs == Hangs::Nowhere || self.is_shown(dir) {
                // What cannot be read cannot be in a cache either, or will time out there.
                let old_names = self.names_in(dir).unwrap_or_default();
                plan.effect(Effect::TopReplaced(dir, new));
                plan.effect(Effect::TopChanged(new, old_names));
            }
            self.detach_old(ledger, plan, &old, (ino, is_root), &record)?;
            plan.effect(Effect::DirectoriesMoved);
            plan.effect(Effect::DirectoryRehung);
            plan.effect(Effect::ReplacedMuch);
            if let Hangs::In { subvol, dir, .. } = hangs {
                plan.effect(Effect::NameChanged(node_of(subvol, dir), name.into()));
            }
            Ok(true)
        })
    }

    /// Plans the copy that takes the place of a directory.
    fn plan_copy(
        &self,
        ledger: &mut Ledger,
        plan: &mut Plan,
        source: &Member,
        hangs: Hangs,
    ) -> FsResult<Copied> {
        let parent = match hangs {
            Hangs::In { subvol, dir, cookie } => (subvol, dir, cookie),
            Hangs::Nowhere => (0, 0, 0),
        };
        let (read_only, snapshot, same_lineage) = (false, false, true);
        let purpose = Purpose { read_only, snapshot, same_lineage, parent, name: b"" };
        copy::plan(self, ledger, plan, (source, source.record.root), &purpose)
    }

    /// Where a directory of a subvolume hangs.
    fn hangs(&self, dir: NodeId, of: &Member, record: &DirectoryRecord) -> FsResult<Hangs> {
        let is_root = dir == of.subvol.root_node();
        Ok(match (is_root, of.record.parent) {
            (true, (0, ..)) if dir == self.root() => Hangs::Nowhere,
            (true, (0, ..)) => return Err(FsError::NotFound),
            (true, (subvol, dir, cookie)) => Hangs::In { subvol, dir, cookie },
            (false, _) => {
                let (dir, cookie) = (record.parent, record.parent_cookie);
                Hangs::In { subvol: of.subvol.id.0, dir, cookie }
            }
        })
    }

    /// Points the name, or the volume's root, to the copy.
    fn hang(
        &self,
        policy: &dyn Policy,
        (ledger, plan): (&mut Ledger, &mut Plan),
        hangs: Hangs,
        copied: &Copied,
    ) -> FsResult<Vec<u8>> {
        let Hangs::In { subvol, dir, cookie } = hangs else {
            ledger.set_root(plan.batch(), copied.id);
            return Ok(Vec::new());
        };
        let above = self.subvol(SubvolId(subvol))?;
        let tree = above.tree();
        let (view, mut name) = (View::new(&*self.store, tree), NameBuf::empty());
        let found = view.entry_at(dir, cookie, &mut name)?;
        let found = found.filter(|found| found.ino == copied.record.root).ok_or_else(|| {
            inconsistent(tree, "a directory is not in its recorded parent", copied.record.root)
        })?;
        policy.may_replace((&above, view), (dir, name.as_bytes()))?;
        let entry = EntryRecord {
            chained: found.chained,
            ino: found.ino,
            name: name.as_bytes(),
            target: Target::Subvolume(copied.id),
        };
        plan.put_entry(tree, dir, cookie, &entry);
        Ok(name.as_bytes().to_vec())
    }

    /// Has what was there wait to be reclaimed.
    fn detach_old(
        &self,
        ledger: &mut Ledger,
        plan: &mut Plan,
        old: &Member,
        (ino, is_root): (u64, bool),
        record: &DirectoryRecord,
    ) -> FsResult<()> {
        if is_root {
            return plan_detach(self, ledger, plan, old.subvol.id.0).map(drop);
        }
        let record = DirectoryRecord { detached: true, ..*record };
        plan.put_directory(old.subvol.tree(), ino, &record);
        let waits = DetachedRecord::Directory {
            subvolume: old.subvol.id.0,
            directory: ino,
            kept_while_held: true,
        };
        ledger.detach(plan.batch(), waits);
        plan.effect(Effect::Detached);
        Ok(())
    }

    /// The names of a directory.
    pub(crate) fn names_in(&self, directory: NodeId) -> FsResult<Vec<Vec<u8>>> {
        let (subvol, dir) = self.place(directory)?;
        let tree = subvol.tree();
        let range = KeyRange::prefix(&key::directory_prefix(dir));
        let mut cursor = self.store.scan(tree, range).map_err(from_store)?;
        let mut names = Vec::new();
        while let Some(item) = cursor.next().map_err(from_store)? {
            let malformed = |error| malformed(tree, &error);
            let parsed = key::parse(item.key).map_err(malformed)?;
            if let Parsed::Entry { cookie: 1.., part: Part::Attributes, .. } = parsed {
                let head = EntryHead::decode(item.value).map_err(malformed)?;
                if head.kind.is_some() {
                    names.push(head.name.to_vec());
                }
            }
        }
        Ok(names)
    }
}
