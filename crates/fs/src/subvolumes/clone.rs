//! `clone_dir`: a directory as a writable subvolume under another name.

use std::sync::Arc;

use format::entry_record::{EntryRecord, Target};
use inode::{Caller, FsError, NodeId, SubvolId};

use super::access::directory_of;
use super::copy::{self, Purpose};
use super::gates::Gates;
use super::nested::{self, Member};
use super::snapshot::commit;
use crate::locks::{Lock, Mode};
use crate::subvol::Subvol;
use crate::txn::Txn;
use crate::view::{Search, Vacancy, View};
use crate::{CloneInfo, Fs, FsResult, permit};

/// How often a clone starts over because subvolumes came or went below its source.
const ATTEMPTS_MAX: usize = 100;

/// Where a new subvolume is to be mounted.
pub(super) struct Mount<'a> {
    pub(super) subvol: Arc<Subvol>,
    pub(super) dir: u64,
    pub(super) hash: u64,
    pub(super) name: &'a [u8],
}

impl<'a> Mount<'a> {
    pub(super) fn new(fs: &Fs, parent: NodeId, name: &'a [u8]) -> FsResult<Mount<'a>> {
        let name = fs.new_name(name)?.as_bytes();
        let (subvol, dir) = fs.place(parent)?;
        let view = View::new(&*fs.store, subvol.tree());
        crate::trash::check_outside(fs, &subvol, view, (dir, name))?;
        Ok(Mount { hash: fs.hash.hash(name), subvol, dir, name })
    }

    /// The locks that making the name takes.
    pub(super) fn locks(&self) -> [(Lock, Mode); 2] {
        let subvol = self.subvol.id.0;
        [
            (Lock::Name { subvol, dir: self.dir, hash: self.hash }, Mode::Exclusive),
            (Lock::Object { subvol, ino: self.dir }, Mode::Shared),
        ]
    }

    /// Room for the name, if the caller may make it. The locks are held.
    pub(super) fn vacancy(&self, fs: &Fs, caller: &Caller) -> FsResult<Vacancy> {
        let record = directory_of(fs, &self.subvol, self.dir)?;
        let view = self.view(fs);
        permit::directory(view, self.dir, &record, caller, inode::permissions::EXECUTE)?;
        match view.find(self.dir, self.hash, self.name)? {
            Search::Found(_) => Err(FsError::Exists),
            Search::Vacant(vacancy) => {
                permit::directory(view, self.dir, &record, caller, inode::permissions::WRITE)?;
                Ok(vacancy)
            }
        }
    }

    /// Adds the name to a batch.
    pub(super) fn plan(
        &self,
        fs: &Fs,
        txn: &mut Txn<'_>,
        vacancy: &Vacancy,
        (subvol, root): (u64, u64),
    ) -> FsResult<()> {
        let target = Target::Subvolume(subvol);
        let entry = EntryRecord { chained: false, ino: root, name: self.name, target };
        txn.insert_entry(self.view(fs), self.dir, vacancy, &entry)?;
        txn.touch_directory(self.subvol.tree(), self.dir, 1, 1);
        Ok(())
    }

    fn view<'v>(&self, fs: &'v Fs) -> View<'v> {
        View::new(&*fs.store, self.subvol.tree())
    }
}

impl Fs {
    /// Clones a directory, which may lie in a snapshot, with the subvolumes below it.
    ///
    /// Owners and modes stay as they are, and the way into the clone is the caller's own choice
    /// of a parent; so whoever could not read something below the source cannot read it in the
    /// clone. Only the owner of the source, or root, may: what is cloned outlives its removal.
    pub fn clone_dir(
        &self,
        caller: &Caller,
        source: NodeId,
        parent: NodeId,
        name: &[u8],
    ) -> FsResult<CloneInfo> {
        let (subvol, dir) = self.place(source)?;
        let record = directory_of(self, &subvol, dir)?;
        let mount = Mount::new(self, parent, name)?;
        if !crate::attributes::owned_directory(&record).is_owner(caller) {
            return Err(FsError::NotPermitted("only the owner of a directory clones it"));
        }
        self.check_copy(caller, subvol.id.0, dir)?;
        let mut ledger = self.admin.lock_for(self, caller)?;
        for _ in 0..ATTEMPTS_MAX {
            let members = nested::below(self, &mut ledger, &subvol, dir)?;
            let mut quiet = vec![Arc::clone(&subvol)];
            quiet.extend(members.iter().map(|member| Arc::clone(&member.subvol)));
            let gates = Gates::pass(self, &quiet, Some(&mount.subvol))?;
            let again = nested::below(self, &mut ledger, &subvol, dir)?;
            if !members.iter().map(|member| member.subvol.id).eq(again.iter().map(|m| m.subvol.id))
            {
                continue;
            }
            self.check_copy_of_mounted(caller, &again, (subvol.id.0, dir))?;
            let locks = self.locks.lock(&mount.locks());
            let vacancy = mount.vacancy(self, caller)?;
            let record = directory_of(self, &subvol, dir)?;
            self.check_clone_into(&directory_of(self, &mount.subvol, mount.dir)?, &record)?;
            let purpose = Purpose {
                snapshot: false,
                same_lineage: false,
                parent: (mount.subvol.id.0, mount.dir, vacancy.cookie),
                name,
            };
            let source = Member::get(self, subvol.id.0)?;
            let mut txn = Txn::new(self);
            let from = (&source, dir, &again[..]);
            let copied = copy::plan(self, &mut ledger, &mut txn, from, &purpose)?;
            mount.plan(self, &mut txn, &vacancy, (copied.id, dir))?;
            commit(&ledger, &mut txn)?;
            copied.settle(self, &mut ledger);
            drop((locks, gates, ledger));
            self.invalidate_entry(mount.subvol.node(mount.dir), name);
            self.invalidate_node(mount.subvol.node(mount.dir));
            return Ok(CloneInfo {
                subvol: SubvolId(copied.id),
                root: Fs::node_of(copied.id, dir),
                nested: copied.nested,
                lineage: copied.record.lineage,
            });
        }
        Err(FsError::Busy("subvolumes come and go below the directory"))
    }
}
