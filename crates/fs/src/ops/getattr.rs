//! `getattr`: the attributes of a node.

use inode::{Attr, Caller, NodeId};

use crate::load::load;
use crate::locks::Lock;
use crate::view::View;
use crate::{Fs, FsResult, snapdir};

/// The attributes of a node. Any caller that holds the node may read them.
pub(crate) fn getattr(fs: &Fs, caller: &Caller, node: NodeId) -> FsResult<Attr> {
    if snapdir::is_virtual(node) {
        return snapdir::getattr(fs, caller, node);
    }
    let (subvol, ino) = fs.place(node)?;
    let node = subvol.node(ino);
    let _object = fs.locks.shared(Lock::Object { subvol: subvol.id.0, ino });
    subvol.read(|tree| Ok(load(fs, View::new(&*fs.store, tree), node, ino)?.attr(node)))
}
