//! The name of a subvolume in the directory where it is mounted.

use std::sync::Arc;

use format::directory_record::DirectoryRecord;
use format::entry_record::Target;
use inode::{Caller, FsError, NodeId, SubvolId};
use vfs::FsResult;
use volume::locks::{Lock, Mode};
use volume::permit;
use volume::subvol::Subvol;
use volume::view::{FoundEntry, View};

use super::execute::{Through, Verb, VerbContext, execute_verb};
use super::ledger::Ledger;
use super::snapshot::plan_detach_in;
use crate::Ops;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::posix::mknod::parent_directory;

/// Removes the name of an empty subvolume, and with it the subvolume, as `rmdir` does with a
/// directory.
pub fn remove_link(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    parent: NodeId,
    name: &[u8],
) -> FsResult<()> {
    let (subvol, child) = victim(fs, caller, parent, name)?;
    fs.give_before([&*child, &*subvol])?;
    let mut ledger = fs.admin.lock_to_give(fs);
    let verb = RemoveSubvolume::new(fs, &mut ledger, caller, (parent, name))?;
    fs.give_to_heirs(&mut ledger, &verb.child[0])?;
    execute_verb(&VerbContext::new(fs, policy), ledger, &verb)
}

/// The subvolume that a name is in, and the one that has it, if the caller may remove the name.
/// The plan reads this again under the locks. Nothing is copied for others before.
fn victim(
    fs: &Ops,
    caller: &Caller,
    parent: NodeId,
    name: &[u8],
) -> FsResult<(Arc<Subvol>, Arc<Subvol>)> {
    let (subvol, dir) = fs.place(parent)?;
    let (cookie, id) = subvol.read(|tree| {
        let view = View::new(&*fs.store, tree);
        let directory = parent_directory(fs, &subvol, view, caller, dir)?;
        let found = view.find_entry(dir, fs.hash.hash(name), name)?.ok_or(FsError::NotFound)?;
        let Target::Subvolume(id) = found.target else { return Err(CHANGED) };
        check_removal(fs, view, (dir, &directory), caller, id)?;
        Ok((found.cookie, id))
    })?;
    let child = fs.nested_at(&subvol, (dir, cookie), id)?;
    Ok((subvol, fs.subvol(SubvolId(child))?))
}

/// Checks that a caller may remove a name that points to a subvolume. One that is inherited has the
/// owner that its copy will have.
pub(super) fn check_removal(
    fs: &Ops,
    view: View<'_>,
    (dir, directory): (u64, &DirectoryRecord),
    caller: &Caller,
    id: u64,
) -> FsResult<()> {
    let root = match fs.subvol(SubvolId(id)) {
        Ok(child) => child.read(|tree| View::new(&*fs.store, tree).directory(child.root))?,
        // The entry points elsewhere than to what the copy has there.
        Err(FsError::Stale) => None,
        Err(error) => return Err(error),
    };
    permit::removal(view, dir, directory, caller, root.map_or(directory.uid, |root| root.uid))
}

/// The removal of an empty subvolume.
pub struct RemoveSubvolume<'a> {
    caller: &'a Caller,
    subvol: Arc<Subvol>,
    dir: u64,
    hash: u64,
    name: &'a [u8],
    /// What has the name, alone.
    child: [Arc<Subvol>; 1],
}

impl<'a> RemoveSubvolume<'a> {
    /// Of the subvolume that has a name now.
    pub fn new(
        fs: &Ops,
        ledger: &mut Ledger,
        caller: &'a Caller,
        (parent, name): (NodeId, &'a [u8]),
    ) -> FsResult<RemoveSubvolume<'a>> {
        let (subvol, dir) = fs.place(parent)?;
        let hash = fs.hash.hash(name);
        let seen = View::new(&*fs.store, subvol.tree()).find_entry(dir, hash, name)?;
        let FoundEntry { target: Target::Subvolume(_), cookie, .. } =
            seen.ok_or(FsError::NotFound)?
        else {
            return Err(CHANGED);
        };
        let child = fs.nested_with(ledger, &subvol, (dir, cookie))?;
        let child = [fs.subvol(SubvolId(child))?];
        Ok(RemoveSubvolume { caller, subvol, dir, hash, name, child })
    }
}

const CHANGED: FsError = FsError::Busy("the name was changed concurrently; try again");

impl Verb for RemoveSubvolume<'_> {
    type Answer = ();

    fn through(&self) -> Through<'_> {
        Through { quiet: &self.child, changed: Some(&self.subvol) }
    }

    fn aim(&self, _at: &VerbContext<'_>, plan: &mut Plan) -> FsResult<()> {
        let subvol = self.subvol.id.0;
        plan.lock(Lock::Object { subvol, ino: self.dir }, Mode::Shared);
        plan.lock(Lock::Name { subvol, dir: self.dir, hash: self.hash }, Mode::Exclusive);
        Ok(())
    }

    fn plan(&self, at: &VerbContext<'_>, ledger: &mut Ledger, plan: &mut Plan) -> FsResult<()> {
        let RemoveSubvolume { caller, subvol, dir, hash, name, child: [child] } = self;
        let (view, dir) = (at.view(subvol), *dir);
        let directory = parent_directory(at.fs, subvol, view, caller, dir)?;
        let found = view.find_entry(dir, *hash, name)?.ok_or(FsError::NotFound)?;
        if found.target != Target::Subvolume(child.id.0) {
            return Err(CHANGED);
        }
        let root_view = at.view(child);
        let root = root_view.directory(child.root)?.ok_or(FsError::Stale)?;
        permit::removal(view, dir, &directory, caller, root.uid)?;
        if root.entries != 0 && !at.policy.is_empty((child, root_view), &root)? {
            return Err(FsError::NotEmpty);
        }
        plan.erase_entry(view, dir, &found, false)?;
        plan.touch_directory(view.tree, dir, -1, -1);
        plan_detach_in(at.reads, ledger, plan, child.id.0).map(drop)
    }
}
