//! `readlink`: the target of a symbolic link.

use inode::{Caller, FsError, Kind, NodeId};

use crate::load::{Inode, load, load_bulk};
use crate::locks::Lock;
use crate::view::View;
use crate::{Fs, FsResult};

/// The target of a symbolic link.
pub(crate) fn readlink(fs: &Fs, _caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
    let (subvol, ino) = fs.place(node)?;
    let node = subvol.node(ino);
    let _object = fs.locks.shared(Lock::Object { subvol: subvol.id.0, ino });
    subvol.read(|tree| {
        let view = View::new(&*fs.store, tree);
        match load(fs, view, node, ino)? {
            Inode::File(file) if crate::attributes::kind(file.inode.kind) == Kind::Symlink => {
                load_bulk(fs, view, node, ino, &file)
            }
            _ => Err(FsError::InvalidArgument("not a symbolic link")),
        }
    })
}
