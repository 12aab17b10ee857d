//! `access`: whether a caller may read, write or execute.

use inode::{Caller, FsError, NodeId};
use vfs::FsResult;
use volume::load::load;
use volume::locks::Lock;
use volume::permit;
use volume::view::View;

use crate::Ops;

/// Checks the bits of `mask`, even if the kernel enforces permissions otherwise.
pub fn access(fs: &Ops, caller: &Caller, node: NodeId, mask: u32) -> FsResult<()> {
    let (subvol, ino) = fs.place(node)?;
    let node = subvol.node(ino);
    let _object = fs.locks.shared(Lock::Object { subvol: subvol.id.0, ino });
    let allowed = subvol.read(|tree| {
        let view = View::new(&*fs.store, tree);
        let inode = load(fs, view, node, ino)?;
        inode.owned().allows(caller, mask, || permit::of_inode(fs, view, node, ino, &inode))
    })?;
    let writes = mask & inode::permissions::WRITE != 0;
    if writes && subvol.read_only {
        return Err(FsError::ReadOnly("a snapshot".to_owned()));
    }
    if writes {
        fs.may_change()?;
    }
    if allowed { Ok(()) } else { Err(FsError::AccessDenied) }
}
