//! `getattr`: the attributes of a node.

use inode::{Attr, NodeId};

use crate::load::load;
use crate::locks::Lock;
use crate::view::View;
use crate::{FsResult, Ops};

/// The attributes of a node. Any caller that holds the node may read them.
pub(crate) fn getattr(fs: &Ops, node: NodeId) -> FsResult<Attr> {
    let (subvol, ino) = fs.place(node)?;
    let node = subvol.node(ino);
    let _object = fs.locks.shared(Lock::Object { subvol: subvol.id.0, ino });
    subvol.read(|tree| Ok(load(fs, View::new(&*fs.store, tree), node, ino)?.attr(node)))
}
