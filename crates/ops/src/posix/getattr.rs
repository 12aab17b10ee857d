//! `getattr`: the attributes of a node.

use inode::{Attr, NodeId};
use vfs::FsResult;
use volume::load::load;
use volume::locks::Lock;
use volume::view::View;

use crate::Ops;

/// The attributes of a node. Any caller that holds the node may read them.
pub fn getattr(fs: &Ops, node: NodeId) -> FsResult<Attr> {
    let (subvol, ino) = fs.place(node)?;
    let node = subvol.node(ino);
    let _object = fs.locks.shared(Lock::Object { subvol: subvol.id.0, ino });
    subvol.read(|tree| Ok(load(fs, View::new(&*fs.store, tree), node, ino)?.attr(node)))
}
