//! `rmdir`: removes an empty directory.

use format::directory_record::DirectoryRecord;
use format::entry_record::Target;
use format::key::{self, Part};
use inode::{Caller, FsError, NodeId};
use vfs::FsResult;
use volume::permit;

use super::unlink::{Named, OldName};
use crate::Ops;
use crate::execute::{Context, Operation, Outcome, execute};
use crate::plan::{Effect, Plan};
use crate::policy::Policy;

/// Removes an empty directory.
pub fn rmdir(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    parent: NodeId,
    name: &[u8],
) -> FsResult<()> {
    let name = fs.old_name(name)?.as_bytes();
    let (subvol, dir) = fs.place(parent)?;
    let hash = fs.hash.hash(name);
    let mut removes = RemoveDirectory { name: OldName { caller, dir, hash, name } };
    match execute(fs, policy, &subvol, &mut removes)? {
        Removed::Directory => Ok(()),
        Removed::Subvolume => crate::subvolumes::remove_link(fs, policy, caller, parent, name),
    }
}

/// What has the name.
pub enum Removed {
    /// A directory, which is removed.
    Directory,
    /// A subvolume, of which nothing is done here.
    Subvolume,
}

/// The removal of an empty directory.
pub struct RemoveDirectory<'a> {
    /// Its name.
    pub name: OldName<'a>,
}

impl Operation for RemoveDirectory<'_> {
    type Reads = Named;
    type Answer = Removed;

    fn guess(&mut self, at: &Context<'_>) -> FsResult<Named> {
        self.name.guess(at)
    }

    fn aim(&mut self, at: &Context<'_>, guess: &Named, plan: &mut Plan) -> FsResult<()> {
        self.name.lock(at, guess, plan);
        match &guess.found {
            Some(found) if found.target == Target::Directory => {
                at.policy.removes(at, plan, &self.name.removal(found))
            }
            _ => Ok(()),
        }
    }

    fn look(&mut self, at: &Context<'_>) -> FsResult<Named> {
        self.name.look(at)
    }

    fn agree(guess: &Named, found: &Named) -> bool {
        guess.agrees_with(found)
    }

    fn plan(
        &mut self,
        at: &Context<'_>,
        read: Named,
        plan: &mut Plan,
    ) -> FsResult<Outcome<Removed>> {
        let OldName { caller, dir, .. } = self.name;
        let Named { directory: Some(directory), found: Some(found) } = &read else {
            return Ok(Outcome::Again);
        };
        match found.target {
            Target::Directory => {}
            Target::Subvolume(_) => return Ok(Outcome::Done(Removed::Subvolume)),
            _ => return Err(FsError::NotDirectory),
        }
        let view = at.view;
        let victim = view.directory(found.ino)?.ok_or_else(|| {
            volume::error::inconsistent(view.tree, "a name points to nothing", found.ino)
        })?;
        permit::removal(view, dir, directory, caller, victim.uid)?;
        if victim.entries != 0 {
            return Err(FsError::NotEmpty);
        }
        if !lose_directory(at, plan, (found.ino, &victim), true)? {
            return Ok(Outcome::Again);
        }
        plan.erase_entry(view, dir, found, false)?;
        plan.touch_directory(view.tree, dir, -1, -1);
        Ok(Outcome::Done(Removed::Directory))
    }
}

/// Plans what becomes of an empty directory that loses its name; the caller erases or replaces the
/// entry. `frees`: nothing is added in its place. `false`: start again.
pub(super) fn lose_directory(
    at: &Context<'_>,
    plan: &mut Plan,
    (ino, record): (u64, &DirectoryRecord),
    frees: bool,
) -> FsResult<bool> {
    if let Some(elsewhere) = plan.take_redirect() {
        if !at.policy.takes_directory(at, plan, (ino, record), &*elsewhere)? {
            return Ok(false);
        }
    } else {
        if frees {
            plan.removes();
        }
        erase_directory(at, plan, ino, record);
    }
    let gone = DirectoryRecord { ctime: plan.now, ..*record };
    plan.effect(Effect::Removed(at.subvol.node(ino), gone));
    Ok(true)
}

/// Plans the removal of an empty directory's own records.
fn erase_directory(at: &Context<'_>, plan: &mut Plan, ino: u64, record: &DirectoryRecord) {
    let tree = at.view.tree;
    plan.batch().delete(tree, &key::directory(ino, Part::Attributes));
    if record.has_xattrs {
        plan.batch().delete(tree, &key::directory(ino, Part::Xattrs));
    }
    plan.count(at.id(), -1, 0);
    at.policy.removes_directory(plan, (at.id(), ino), record);
}
