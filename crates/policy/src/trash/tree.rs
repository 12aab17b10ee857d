//! `rmr` into the trash: a directory with all below it.

use format::entry_record::Target;
use inode::{Caller, FsError, NodeId};
use ops::subvolumes::Gates;
use vfs::FsResult;
use volume::RmrInfo;
use volume::view::View;

use super::keep::keep_tree;
use crate::Governed;

impl Governed {
    /// Moves a directory with all below it into the trash. `None`: there is no trash for it.
    pub fn rmr_into_trash(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
    ) -> FsResult<Option<RmrInfo>> {
        let name = self.old_name(name)?.as_bytes();
        let (seen, mut owned) = self.rmr_victim(caller, parent, name)?;
        let Target::Directory = seen.target else { return Ok(None) };
        let (subvol, dir) = self.place(parent)?;
        let (mut members, mut gates);
        loop {
            members = owned.members();
            gates = Gates::pass(self, &mut self.admin.lock(), &members, Some(&subvol))?;
            if owned.holds()? {
                break;
            }
            drop(gates);
            owned.catch_up()?;
        }
        let view = View::new(&*self.store, subvol.tree());
        let entries = view.directory(seen.ino)?.ok_or(FsError::NotFound)?.entries as u64;
        let kept = keep_tree(self, (&subvol, view), (dir, name), &seen)?;
        drop(gates);
        if kept {
            self.invalidate_entry(subvol.node(dir), name);
            self.invalidate_node(subvol.node(dir));
        }
        Ok(kept.then_some(RmrInfo { detached: 0, entries }))
    }
}
