//! Which copies quotas refuse. What a snapshot or a clone inherits is charged to nobody, even when
//! the original is gone. So it would let a user hold more than a limit allows.
//!
//! What is mounted below the copied directory counts, too. It may itself be inherited
//! (`subvolumes::inherit`): then it is as what it is inherited from. Each nested subvolume is read
//! once after a limit changed, before the ledger is locked for the copy. Memory keeps that no limit
//! is in force in anything in a subvolume, until something is mounted or inherited there, or a
//! limit changes. Until then a copy looks at none of them.
//!
//! Where one is in force, those below the copied directory are listed, also before the ledger is
//! locked. During several such lists, something may be mounted or inherited there, or a directory
//! may change its parent. Only then a copy lists them with the ledger locked.

use format::directory_record::DirectoryRecord;
use inode::{Caller, FsError, NodeId, SubvolId};
use ops::policy::Looked;
use ops::subvolumes::{self, Access, Inside, Ledger};
use vfs::FsResult;
use volume::subvol::{Subvol, Unlimited, node_of, read_record};
use volume::view::{NameBuf, View};

use crate::Governed;
use crate::quota::{self, domain_of};

/// Most subvolumes of which it is kept whether a limit is in force in what they contain.
const INSIDE_MAX: usize = 1024;

/// Why a copy is refused.
const COPIED: FsError = FsError::RootOnly(
    "a quota applies here, and a copy is charged to nobody: only root may make one",
);

impl Governed {
    /// Refuses a snapshot, a clone or a rollback of a directory to a user for whom a limit is in
    /// force in it. Root may. `source` is what is copied: the directory, or a snapshot of it.
    pub(crate) fn check_copy(
        &self,
        caller: &Caller,
        source: (&Subvol, u64),
        (subvolume, dir): (u64, u64),
    ) -> FsResult<Looked> {
        if caller.is_root() {
            return Ok(Looked::default());
        }
        let looked = self.looks(&self.admin.lock(), (source.0.id.0, subvolume));
        if self.quotas.owners.limit(caller)
            || self.is_owner_limited(subvolume, dir)?
            || self.is_limited_at(node_of(subvolume, dir))?
        {
            return Err(COPIED);
        }
        for domain in self.quotas.limited() {
            if self.is_below((domain.subvolume, domain.directory), (subvolume, dir))? {
                return Err(COPIED);
            }
        }
        self.check_inherited(subvolume, (subvolume, dir))?;
        if self.quotas.limited().is_empty() {
            return Ok(looked);
        }
        if self.is_limited_in(Access::Looks(&self.admin), source.0)? {
            let source = (source.0, Some(source.1));
            self.check_all(&subvolumes::inside(self, Access::Looks(&self.admin), source)?)?;
        }
        Ok(looked)
    }

    fn check_all(&self, all: &[Inside]) -> FsResult<()> {
        for inside in all {
            if self.is_limited_inside(inside)? {
                return Err(COPIED);
            }
        }
        Ok(())
    }

    /// Whether a limit is in force in anything that is mounted or inherited in a subvolume, also
    /// where no name reaches it.
    fn is_limited_in(&self, mut access: Access<'_>, subvol: &Subvol) -> FsResult<bool> {
        let id = subvol.id.0;
        // Read first: what changes from here on is looked at again.
        let at = (self.quotas.changes(), access.look(|ledger| Ok(ledger.changed_inside(id)))?);
        let known = self.quotas.inside.lock().get(&id).copied();
        if let Some(known) = known.filter(|known| known.at == at) {
            return Ok(known.is_limited);
        }
        let mut is_limited = false;
        for inside in subvolumes::inside(self, access, (subvol, None))? {
            if self.is_limited_inside(&inside)? {
                is_limited = true;
                break;
            }
        }
        let mut all = self.quotas.inside.lock();
        if all.len() >= INSIDE_MAX {
            all.clear();
        }
        all.insert(id, quota::Inside { at, is_limited });
        Ok(is_limited)
    }

    /// The state that a check of nested subvolumes sees: it holds as long as this does.
    pub(crate) fn looks(&self, ledger: &Ledger, of: (u64, u64)) -> Looked {
        let rehung = if self.quotas.limited().is_empty() { 0 } else { self.rehung() };
        // A later change in either has a greater number than both.
        let mounts = ledger.changed_inside(of.0).max(ledger.changed_inside(of.1));
        Looked { of, mounts, limits: self.quotas.changes(), rehung }
    }

    /// Like `check_copy`, with the ledger locked, for the subvolumes that are mounted or inherited
    /// below: clones among them have quotas that begin elsewhere.
    pub(crate) fn check_copy_below(
        &self,
        caller: &Caller,
        ledger: &mut Ledger,
        source: (&Subvol, u64),
    ) -> FsResult<()> {
        if caller.is_root() || self.quotas.limited().is_empty() {
            return Ok(());
        }
        if !self.is_limited_in(Access::Held(ledger), source.0)? {
            return Ok(());
        }
        let source = (source.0, Some(source.1));
        self.check_all(&subvolumes::inside(self, Access::Held(ledger), source)?)
    }

    /// Whether a limit is in force in a subvolume below what is copied.
    fn is_limited_inside(&self, inside: &Inside) -> FsResult<bool> {
        let subvol = match self.subvol(SubvolId(inside.id)) {
            Err(FsError::Stale) => return Ok(false),
            subvol => subvol?,
        };
        let is_read_only = inside.of_read_only.unwrap_or(subvol.read_only);
        let now = Unlimited { changes: self.quotas.changes(), as_read_only: is_read_only };
        if subvol.is_unlimited(now) {
            return Ok(false);
        }
        let is_limited = self.is_limited_at(subvol.root_node())?
            || self.has_inherited(&subvol, inside.of_read_only)?;
        if !is_limited {
            // What a writable copy inherits was not looked at: the source itself may be limited.
            if inside.of_read_only != Some(false) {
                subvol.set_unlimited(now);
            }
            return Ok(false);
        }
        // Otherwise the copy has its own by now, which is checked.
        Ok(inside.of_read_only.is_none() || self.points_to(inside)?)
    }

    /// Whether the entry of a copy points to a subvolume that the copy may inherit.
    fn points_to(&self, inside: &Inside) -> FsResult<bool> {
        let (holder, directory) = inside.holder;
        let Some(record) = read_record(&*self.store, SubvolId(inside.id))? else {
            return Ok(false);
        };
        let tree = self.subvol(SubvolId(holder))?.tree();
        let view = View::new(&*self.store, tree);
        let found = view.entry_at(directory, record.parent.2, &mut NameBuf::empty())?;
        let target = format::entry_record::Target::Subvolume(inside.id);
        Ok(found.is_some_and(|found| found.target == target))
    }

    /// Whether a copied subvolume has contents of quotas that begin elsewhere. They are charged in
    /// it or, where nothing in it can change, with the directory of the quota.
    fn has_inherited(&self, subvol: &Subvol, of_read_only: Option<bool>) -> FsResult<bool> {
        let domains = match of_read_only {
            // Its copy is charged to nobody.
            Some(false) => return Ok(false),
            Some(true) => self.quotas.limited(),
            None => return self.inherited_at(subvol.id.0, (subvol.id.0, subvol.root)),
        };
        for domain in domains {
            let directory = (subvol.id.0, domain.directory);
            if self.is_below(directory, (subvol.id.0, subvol.root))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a limit is in force for the owners of a directory: not every group of a caller is
    /// known.
    fn is_owner_limited(&self, subvolume: u64, dir: u64) -> FsResult<bool> {
        if !self.quotas.owners.is_on() {
            return Ok(false);
        }
        let subvol = self.subvol(SubvolId(subvolume))?;
        let record = subvol.read(|tree| View::new(&*self.store, tree).directory(dir))?;
        Ok(record.is_some_and(|record| self.quotas.owners.limited((record.uid, record.gid))))
    }

    /// Whether a quota with a limit is in force in a directory.
    fn is_limited_at(&self, node: NodeId) -> FsResult<bool> {
        Ok(self.domain_at(node)?.is_some_and(|domain| domain.is_limited()))
    }

    /// Refuses to copy what is charged in a clone to quotas whose directories it inherited, and a
    /// snapshot with such a directory. Its contents are charged once, as long as the original
    /// exists.
    fn check_inherited(&self, clone: u64, of: (u64, u64)) -> FsResult<()> {
        if self.inherited_at(clone, of)? { Err(COPIED) } else { Ok(()) }
    }

    fn inherited_at(&self, clone: u64, of: (u64, u64)) -> FsResult<bool> {
        let domains = if self.subvol(SubvolId(clone))?.read_only {
            self.quotas.limited()
        } else {
            self.quotas.charged_in(clone)
        };
        for domain in domains {
            let inherited = domain.subvolume != clone && domain.is_limited();
            if inherited && self.is_below((clone, domain.directory), of)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Refuses a clone where a limit is in force, except of a directory in which one is in force,
    /// too. What is created in the clone would be charged to neither.
    pub(crate) fn check_clone_into(
        &self,
        mounted_in: &DirectoryRecord,
        source: &DirectoryRecord,
    ) -> FsResult<()> {
        let limited = |record: &DirectoryRecord| {
            self.quotas.get(domain_of(record)).is_some_and(|domain| domain.is_limited())
        };
        if limited(mounted_in) && !limited(source) {
            return Err(FsError::CrossSubvolume(
                "a quota holds there that would not hold in the clone: set one on its source",
            ));
        }
        Ok(())
    }
}
