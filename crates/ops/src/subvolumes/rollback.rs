//! `rollback`: puts a directory back to one of its snapshots, in one commit.
//!
//! A writable copy of the snapshot takes the directory's place. The entry of a plain directory
//! points to the copy from now on. Where a subvolume was mounted, the copy is mounted. In place of
//! the volume's root, the copy is the root. A mount that shows the directory as its root shows the
//! copy. What was there waits to be reclaimed until nobody holds it: open files and working
//! directories keep the old tree.

use std::cell::{Cell, RefCell};
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
use volume::subvol::{Subvol, node_of};
use volume::view::NameBuf;

use super::access::{directory_in, directory_of};
use super::copied::Copied;
use super::copy::{self, Purpose};
use super::execute::{Through, Verb, VerbContext, execute_verb};
use super::ledger::Ledger;
use super::nested::Member;
use super::owned::OwnedTree;
use super::snapshot::plan_detach_in;
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
            return Err(FsError::ReadOnly(
                "a snapshot cannot be rolled back; name the directory that it was taken of"
                    .to_owned(),
            ));
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
        self.give_to_heirs(&mut ledger, &subvol)?;
        let verb = RollBack::new(self, dir, id, owned)?;
        execute_verb(&VerbContext::new(self, policy), ledger, &verb)
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

/// The roll-back of a directory to a snapshot.
pub struct RollBack<'a, 'o> {
    dir: NodeId,
    source: Member,
    old: Member,
    /// The subvolume that the directory is in, alone.
    quiet: [Arc<Subvol>; 1],
    /// What it is mounted in.
    above: Option<Arc<Subvol>>,
    owned: RefCell<&'a mut OwnedTree<'o>>,
    /// What holds behind the gate.
    seen: Cell<Option<(Hangs, DirectoryRecord)>>,
}

impl<'a, 'o> RollBack<'a, 'o> {
    /// Of a directory, to the snapshot of a number, as far as the caller owns what is there. The
    /// ledger is locked, and the heirs of the directory's subvolume have theirs.
    pub fn new(
        fs: &Ops,
        dir: NodeId,
        snapshot: u64,
        owned: &'a mut OwnedTree<'o>,
    ) -> FsResult<RollBack<'a, 'o>> {
        let (subvol, _) = fs.place(dir)?;
        let old = Member::get(fs, subvol.id.0)?;
        let above = match old.record.parent.0 {
            0 => None,
            above => Some(fs.subvol(SubvolId(above))?),
        };
        let (source, owned) = (Member::get(fs, snapshot)?, RefCell::new(owned));
        Ok(RollBack { dir, source, old, quiet: [subvol], above, owned, seen: Cell::new(None) })
    }

    fn ino(&self) -> u64 {
        self.dir.ino().0
    }

    fn is_root(&self) -> bool {
        self.ino() == self.quiet[0].root
    }

    /// Plans the copy that takes the place of a directory.
    fn plan_copy(
        &self,
        fs: &Ops,
        ledger: &mut Ledger,
        plan: &mut Plan,
        hangs: Hangs,
    ) -> FsResult<Copied> {
        let parent = match hangs {
            Hangs::In { subvol, dir, cookie } => (subvol, dir, cookie),
            Hangs::Nowhere => (0, 0, 0),
        };
        let (read_only, snapshot, same_lineage) = (false, false, true);
        let purpose = Purpose { read_only, snapshot, same_lineage, parent, name: b"" };
        copy::plan(fs, ledger, plan, (&self.source, self.source.record.root), &purpose)
    }

    /// Where the directory hangs.
    fn hangs(&self, fs: &Ops, record: &DirectoryRecord) -> FsResult<Hangs> {
        let of = &self.old;
        let is_root = self.dir == of.subvol.root_node();
        Ok(match (is_root, of.record.parent) {
            (true, (0, ..)) if self.dir == fs.root() => Hangs::Nowhere,
            (true, (0, ..)) => return Err(FsError::NotFound),
            (true, (subvol, dir, cookie)) => Hangs::In { subvol, dir, cookie },
            (false, _) => {
                let (dir, cookie) = (record.parent, record.parent_cookie);
                Hangs::In { subvol: of.subvol.id.0, dir, cookie }
            }
        })
    }

    /// Has what was there wait to be reclaimed.
    fn detach_old(
        &self,
        at: &VerbContext<'_>,
        ledger: &mut Ledger,
        plan: &mut Plan,
        record: &DirectoryRecord,
    ) -> FsResult<()> {
        let (old, ino) = (&self.old.subvol, self.ino());
        if self.is_root() {
            return plan_detach_in(at.reads, ledger, plan, old.id.0).map(drop);
        }
        let record = DirectoryRecord { detached: true, ..*record };
        plan.put_directory(old.tree(), ino, &record);
        let waits = DetachedRecord::Directory {
            subvolume: old.id.0,
            directory: ino,
            kept_while_held: true,
        };
        ledger.detach(plan.batch(), waits);
        plan.effect(Effect::Detached);
        Ok(())
    }
}

/// Points the name, or the volume's root, to the copy.
fn hang(
    at: &VerbContext<'_>,
    (ledger, plan): (&mut Ledger, &mut Plan),
    hangs: Hangs,
    copied: &Copied,
) -> FsResult<Vec<u8>> {
    let Hangs::In { subvol, dir, cookie } = hangs else {
        ledger.set_root(plan.batch(), copied.id);
        return Ok(Vec::new());
    };
    let above = at.fs.subvol(SubvolId(subvol))?;
    let (view, mut name) = (at.view(&above), NameBuf::empty());
    let found = view.entry_at(dir, cookie, &mut name)?;
    let found = found.filter(|found| found.ino == copied.record.root).ok_or_else(|| {
        inconsistent(view.tree, "a directory is not in its recorded parent", copied.record.root)
    })?;
    at.policy.may_replace((&above, view), (dir, name.as_bytes()))?;
    let entry = EntryRecord {
        chained: found.chained,
        ino: found.ino,
        name: name.as_bytes(),
        target: Target::Subvolume(copied.id),
    };
    plan.put_entry(view.tree, dir, cookie, &entry);
    Ok(name.as_bytes().to_vec())
}

impl Verb for RollBack<'_, '_> {
    /// `false`: so much changed in what is there since that was checked that nothing is planned.
    type Answer = bool;

    fn through(&self) -> Through<'_> {
        // Where a plain directory was, its own subvolume gets the name that points to the copy.
        let changed = if self.is_root() { self.above.as_ref() } else { self.quiet.first() };
        Through { quiet: &self.quiet, changed }
    }

    fn aim(&self, at: &VerbContext<'_>, plan: &mut Plan) -> FsResult<()> {
        let [subvol] = &self.quiet;
        let record = directory_in(at.fs, subvol, at.view(subvol), self.ino())?;
        let hangs = self.hangs(at.fs, &record)?;
        if let Hangs::In { subvol, dir, cookie } = hangs {
            plan.lock(Lock::Name { subvol, dir, hash: cookie >> 8 }, Mode::Exclusive);
            plan.lock(Lock::Object { subvol, ino: dir }, Mode::Shared);
        }
        self.seen.set(Some((hangs, record)));
        Ok(())
    }

    fn plan(&self, at: &VerbContext<'_>, ledger: &mut Ledger, plan: &mut Plan) -> FsResult<bool> {
        let (fs, dir) = (at.fs, self.dir);
        let Some((hangs, record)) = self.seen.take() else { return Ok(false) };
        if !self.owned.borrow_mut().holds(plan)? {
            return Ok(false);
        }
        let copied = self.plan_copy(fs, ledger, plan, hangs)?;
        let new = node_of(copied.id, copied.record.root);
        let name = hang(at, (ledger, plan), hangs, &copied)?;
        plan.effect(Effect::Copied(Box::new(copied)));
        if hangs == Hangs::Nowhere || fs.is_shown(dir) {
            // What cannot be read cannot be in a cache either, or will time out there.
            let old_names = fs.names_in(dir).unwrap_or_default();
            plan.effect(Effect::TopReplaced(dir, new));
            plan.effect(Effect::TopChanged(new, old_names));
        }
        self.detach_old(at, ledger, plan, &record)?;
        plan.effect(Effect::DirectoriesMoved);
        plan.effect(Effect::DirectoryRehung);
        plan.effect(Effect::ReplacedMuch);
        if let Hangs::In { subvol, dir, .. } = hangs {
            plan.effect(Effect::NameChanged(node_of(subvol, dir), name.into()));
        }
        Ok(true)
    }
}
