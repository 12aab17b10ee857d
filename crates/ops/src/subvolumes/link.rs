//! The name of a subvolume in the directory where it is mounted.

use format::entry_record::Target;
use inode::{Caller, FsError, NodeId, SubvolId};
use vfs::FsResult;
use volume::locks::{Lock, Mode};
use volume::permit;
use volume::view::{FoundEntry, View};

use super::execute::{Through, execute};
use super::snapshot::plan_detach;
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
    let (subvol, dir) = fs.place(parent)?;
    let hash = fs.hash.hash(name);
    fs.give_before([&*subvol])?;
    let mut ledger = fs.admin.lock_to_give(fs);
    let view_of = |tree| View::new(&*fs.store, tree);
    let seen = view_of(subvol.tree()).find_entry(dir, hash, name)?.ok_or(FsError::NotFound)?;
    let FoundEntry { target: Target::Subvolume(_), cookie, .. } = seen else {
        return Err(FsError::Busy("the name was changed concurrently; try again"));
    };
    let child = fs.nested_with(&mut ledger, &subvol, (dir, cookie))?;
    let quiet = [fs.subvol(SubvolId(child))?];
    fs.give_to_heirs(&mut ledger, &quiet[0])?;
    let through = Through { quiet: &quiet, changed: Some(&subvol) };
    let aim = |plan: &mut Plan| {
        plan.lock(Lock::Object { subvol: subvol.id.0, ino: dir }, Mode::Shared);
        plan.lock(Lock::Name { subvol: subvol.id.0, dir, hash }, Mode::Exclusive);
        Ok(())
    };
    execute(fs, ledger, through, aim, |ledger, plan| {
        let view = view_of(subvol.tree());
        let directory = parent_directory(fs, &subvol, view, caller, dir)?;
        let found = view.find_entry(dir, hash, name)?.ok_or(FsError::NotFound)?;
        if found.target != Target::Subvolume(child) {
            return Err(FsError::Busy("the name was changed concurrently; try again"));
        }
        let root_view = view_of(quiet[0].tree());
        let root = root_view.directory(quiet[0].root)?.ok_or(FsError::Stale)?;
        permit::removal(view, dir, &directory, caller, root.uid)?;
        if root.entries != 0 && !policy.is_empty((&quiet[0], root_view), &root)? {
            return Err(FsError::NotEmpty);
        }
        plan.erase_entry(view, dir, &found, false)?;
        plan.touch_directory(view.tree, dir, -1, -1);
        plan_detach(fs, ledger, plan, child).map(drop)
    })
}
