//! `clone_dir`: a directory as a writable subvolume under another name.

use std::collections::BTreeSet;
use std::sync::Arc;

use format::detached_record::DetachedRecord;
use format::entry_record::{EntryRecord, Target};
use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::{Caller, FsError, NodeId, SubvolId};
use vfs::FsResult;
use volume::error::inconsistent;
use volume::locks::{Lock, Mode};
use volume::subvol::{Subvol, VOLUME, node_of};
use volume::view::{Search, Vacancy, View};
use volume::{CloneInfo, permit};

use super::access::{directory_in, directory_of};
use super::copy::{self, Purpose};
use super::execute::{Through, Verb, VerbContext, execute_step, execute_verb_step};
use super::ledger::Ledger;
use super::nested::Member;
use crate::Ops;
use crate::execute::{Context, notify};
use crate::plan::{Effect, Plan};
use crate::policy::Policy;

/// Where a new subvolume is to be mounted.
pub struct Mount<'a> {
    pub(super) subvol: Arc<Subvol>,
    pub(super) dir: u64,
    pub(super) hash: u64,
    pub(super) name: &'a [u8],
}

impl<'a> Mount<'a> {
    /// Under a name of a directory.
    pub fn new(
        fs: &Ops,
        policy: &dyn Policy,
        parent: NodeId,
        name: &'a [u8],
    ) -> FsResult<Mount<'a>> {
        let name = fs.new_name(name)?.as_bytes();
        let (subvol, dir) = fs.place(parent)?;
        policy.makes_name(&Context::new(fs, policy, &subvol, subvol.tree()), dir, name)?;
        Ok(Mount { hash: fs.hash.hash(name), subvol, dir, name })
    }

    /// Locks what making the name takes.
    pub(super) fn lock(&self, plan: &mut Plan) {
        let subvol = self.subvol.id.0;
        plan.lock(Lock::Name { subvol, dir: self.dir, hash: self.hash }, Mode::Exclusive);
        plan.lock(Lock::Object { subvol, ino: self.dir }, Mode::Shared);
    }

    /// Space for the name, if the caller may make it. The locks are held.
    pub(super) fn vacancy(&self, fs: &Ops, caller: &Caller) -> FsResult<Vacancy> {
        self.vacancy_in(fs, self.view(fs), caller)
    }

    /// Checks the same before the locks are taken.
    pub(super) fn check_vacancy(&self, fs: &Ops, caller: &Caller) -> FsResult<()> {
        let check = |tree| self.vacancy_in(fs, View::new(&*fs.store, tree), caller);
        self.subvol.read(check).map(drop)
    }

    /// The same in a view of the subvolume.
    pub(super) fn vacancy_in(
        &self,
        fs: &Ops,
        view: View<'_>,
        caller: &Caller,
    ) -> FsResult<Vacancy> {
        let record = directory_in(fs, &self.subvol, view, self.dir)?;
        permit::directory(view, self.dir, &record, caller, inode::permissions::EXECUTE)?;
        match view.find(self.dir, self.hash, self.name)? {
            Search::Found(_) => Err(FsError::Exists),
            Search::Vacant(vacancy) => {
                permit::directory(view, self.dir, &record, caller, inode::permissions::WRITE)?;
                Ok(vacancy)
            }
        }
    }

    /// Refuses a clone of a directory where a quota does not allow it.
    fn check_clone(
        &self,
        (fs, policy): (&Ops, &dyn Policy),
        (source, dir): (&Subvol, u64),
    ) -> FsResult<()> {
        let source = directory_of(fs, source, dir)?;
        policy.may_clone_into(&directory_of(fs, &self.subvol, self.dir)?, &source)
    }

    /// Plans the name.
    pub(super) fn plan(
        &self,
        fs: &Ops,
        plan: &mut Plan,
        vacancy: &Vacancy,
        subvol: (u64, u64),
    ) -> FsResult<()> {
        self.plan_in(self.view(fs), plan, vacancy, subvol)
    }

    /// The same in a view of the subvolume.
    pub(super) fn plan_in(
        &self,
        view: View<'_>,
        plan: &mut Plan,
        vacancy: &Vacancy,
        (subvol, root): (u64, u64),
    ) -> FsResult<()> {
        let target = Target::Subvolume(subvol);
        let entry = EntryRecord { chained: false, ino: root, name: self.name, target };
        plan.insert_entry(view, self.dir, vacancy, &entry)?;
        plan.touch_directory(self.subvol.tree(), self.dir, 1, 1);
        plan.effect(Effect::NameChanged(self.subvol.node(self.dir), self.name.into()));
        Ok(())
    }

    fn view<'v>(&self, fs: &'v Ops) -> View<'v> {
        View::new(&*fs.store, self.subvol.tree())
    }
}

impl Ops {
    /// Clones a directory, which may be in a snapshot, with the subvolumes below it, which the
    /// clone inherits.
    ///
    /// Owners and modes stay as they are, so a user who could not read a file below the source
    /// cannot read it in the clone. The caller chooses the clone's parent, and so the way into it.
    /// Only the owner of the source, or root, may clone it: the clone outlives the removal of its
    /// source.
    pub fn clone_dir(
        &self,
        policy: &dyn Policy,
        caller: &Caller,
        source: NodeId,
        parent: NodeId,
        name: &[u8],
    ) -> FsResult<CloneInfo> {
        let (subvol, dir) = self.place(source)?;
        let record = directory_of(self, &subvol, dir)?;
        let mount = Mount::new(self, policy, parent, name)?;
        if !volume::attributes::owned_directory(&record).is_owner(caller) {
            return Err(FsError::NotPermitted("only the owner of a directory clones it"));
        }
        // For a caller that is refused, nothing is copied for others. The plan reads it again under
        // the locks.
        mount.check_vacancy(self, caller)?;
        mount.check_clone((self, policy), (&subvol, dir))?;
        self.admin.lock_for(self, caller)?.may_make_one(self)?;
        self.give_before([&*mount.subvol])?;
        let of = (subvol.id.0, dir);
        let mut ledger = self.lock_to_copy((policy, caller), (&subvol, dir), of)?;
        let source = (&subvol, dir);
        let mut plan = Plan::new();
        let (id, lineage) = if self.is_in(&mut ledger, mount.subvol.id.0, subvol.id.0)? {
            self.clone_into_inherited((policy, caller), (&mut ledger, &mut plan), source, &mount)?
        } else {
            let verb = CloneDirectory::new(caller, source, &mount);
            execute_verb_step(&VerbContext::new(self, policy), (&mut ledger, &mut plan), &verb)?
        };
        drop(ledger);
        plan.notify(|notice| notify(self, notice));
        Ok(CloneInfo { subvol: SubvolId(id), root: node_of(id, dir), lineage })
    }

    /// Clones into a subvolume that the clone inherits. That changes when the clone is mounted, and
    /// the clone is to have it as it was. So the clone is made first, waiting to be reclaimed as
    /// after a removal, and mounted by a second commit. A crash between the two leaves what is
    /// reclaimed.
    fn clone_into_inherited(
        &self,
        (policy, caller): (&dyn Policy, &Caller),
        (ledger, plan): (&mut Ledger, &mut Plan),
        (subvol, dir): (&Arc<Subvol>, u64),
        mount: &Mount<'_>,
    ) -> FsResult<(u64, u64)> {
        let quiet = [Arc::clone(subvol)];
        let through = Through { quiet: &quiet, changed: None };
        let change = |ledger: &mut Ledger, plan: &mut Plan| {
            mount.check_clone((self, policy), (subvol, dir))?;
            mount.check_vacancy(self, caller)?;
            let source = Member::get(self, subvol.id.0)?;
            let purpose = purpose((0, 0, 0), mount.name);
            let copied = copy::plan(self, ledger, plan, (&source, dir), &purpose)?;
            let waiting = SubvolumeRecord { detached: true, ..copied.record.clone() };
            plan.batch().put(VOLUME, &key::subvolume(copied.id), &waiting.encode());
            let waits = DetachedRecord::Subvolume { subvolume: copied.id };
            let sequence = ledger.detach(plan.batch(), waits);
            let known = (copied.record.clone(), copied.id, sequence);
            plan.effect(Effect::Copied(Box::new(copied)));
            Ok(known)
        };
        let (mut record, id, sequence) =
            execute_step(self, ledger, plan, through, (|_: &mut Plan| Ok(()), change))?;
        plan.restart(&self.data);
        let known = (&mut record, id, sequence);
        let mounted = self.mount_clone(caller, (ledger, plan), mount, known);
        if mounted.is_err() {
            ledger.moved(id, None);
            self.queue.add_detached(1);
        }
        mounted.map(|()| (id, record.lineage))
    }

    /// Mounts a clone that waits to be reclaimed under a number.
    fn mount_clone(
        &self,
        caller: &Caller,
        (ledger, plan): (&mut Ledger, &mut Plan),
        mount: &Mount<'_>,
        (record, id, sequence): (&mut SubvolumeRecord, u64, u64),
    ) -> FsResult<()> {
        let through = Through { changed: Some(&mount.subvol), ..Through::default() };
        let aim = |plan: &mut Plan| {
            mount.lock(plan);
            Ok(())
        };
        let change = |_: &mut Ledger, plan: &mut Plan| {
            let vacancy = mount.vacancy(self, caller)?;
            record.parent = (mount.subvol.id.0, mount.dir, vacancy.cookie);
            // It may have been given all by now.
            record.inherits = Member::get(self, id)?.record.inherits;
            plan.batch().put(VOLUME, &key::subvolume(id), &record.encode());
            plan.batch().delete(VOLUME, &key::detached(sequence));
            mount.plan(self, plan, &vacancy, (id, record.root))?;
            plan.effect(Effect::Mounted(id, Some(record.parent)));
            Ok(())
        };
        execute_step(self, ledger, plan, through, (aim, change))
    }

    /// Whether a subvolume is mounted in another one, at any height.
    fn is_in(&self, ledger: &mut Ledger, subvol: u64, other: u64) -> FsResult<bool> {
        let (mut at, mut seen) = (subvol, BTreeSet::new());
        while let Some((above, ..)) = ledger.place(self, at)? {
            if above == other {
                return Ok(true);
            }
            if !seen.insert(at) {
                return Err(inconsistent(VOLUME, "subvolumes contain each other", at));
            }
            at = above;
        }
        Ok(false)
    }
}

/// A clone that is mounted in the same commit.
pub struct CloneDirectory<'a> {
    caller: &'a Caller,
    /// What is copied, alone.
    source: [Arc<Subvol>; 1],
    dir: u64,
    mount: &'a Mount<'a>,
}

impl<'a> CloneDirectory<'a> {
    /// Of a directory of a subvolume, which is mounted below none that it inherits.
    pub fn new(
        caller: &'a Caller,
        (source, dir): (&Arc<Subvol>, u64),
        mount: &'a Mount<'a>,
    ) -> CloneDirectory<'a> {
        CloneDirectory { caller, source: [Arc::clone(source)], dir, mount }
    }
}

impl Verb for CloneDirectory<'_> {
    /// The number of the clone, and its lineage.
    type Answer = (u64, u64);

    fn through(&self) -> Through<'_> {
        Through { quiet: &self.source, changed: Some(&self.mount.subvol) }
    }

    fn aim(&self, _at: &VerbContext<'_>, plan: &mut Plan) -> FsResult<()> {
        self.mount.lock(plan);
        Ok(())
    }

    fn plan(
        &self,
        at: &VerbContext<'_>,
        ledger: &mut Ledger,
        plan: &mut Plan,
    ) -> FsResult<(u64, u64)> {
        let CloneDirectory { caller, source: [source], dir, mount } = self;
        let (fs, dir) = (at.fs, *dir);
        let view = at.view(&mount.subvol);
        let vacancy = mount.vacancy_in(fs, view, caller)?;
        mount.check_clone((fs, at.policy), (source, dir))?;
        let purpose = purpose((mount.subvol.id.0, mount.dir, vacancy.cookie), mount.name);
        let member = Member::get(fs, source.id.0)?;
        let copied = copy::plan(fs, ledger, plan, (&member, dir), &purpose)?;
        mount.plan_in(view, plan, &vacancy, (copied.id, dir))?;
        let known = (copied.id, copied.record.lineage);
        plan.effect(Effect::Copied(Box::new(copied)));
        Ok(known)
    }
}

/// What a clone is.
fn purpose(parent: (u64, u64, u64), name: &[u8]) -> Purpose<'_> {
    Purpose { read_only: false, snapshot: false, same_lineage: false, parent, name }
}
