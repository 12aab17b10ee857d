//! `seek`: where the next data, or the next hole, of a file begins (SEEK_DATA, SEEK_HOLE).

use inode::{Caller, FsError, Kind, NodeId};
use vfs::{FsResult, Seek};
use volume::error::from_store;
use volume::load::{Inode, load};
use volume::locks::Lock;
use volume::permit;
use volume::view::View;

use crate::Ops;

/// The first place from `offset` on that is `what`; the end of a file counts as a hole.
pub fn seek(fs: &Ops, caller: &Caller, node: NodeId, offset: u64, what: Seek) -> FsResult<u64> {
    let (subvol, ino) = fs.place(node)?;
    let node = subvol.node(ino);
    let _object = fs.locks.shared(Lock::Object { subvol: subvol.id.0, ino });
    subvol.read(|tree| {
        let view = View::new(&*fs.store, tree);
        let inode = load(fs, view, node, ino)?;
        let owned = inode.owned();
        match owned.kind {
            Kind::File => owned.check(caller, inode::permissions::READ, || {
                permit::of_inode(fs, view, node, ino, &inode)
            })?,
            Kind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::InvalidArgument("only files have contents")),
        }
        let Inode::File(file) = inode else { return Err(FsError::IsDirectory) };
        let size = file.inode.size;
        if offset >= size {
            return Err(FsError::PastEnd);
        }
        if !file.inode.has_extents {
            // What is stored in the tree is data throughout.
            return Ok(if what == Seek::Data { offset } else { size });
        }
        let extents = data::FileRef { tree, ino };
        let mut extents =
            fs.data.extents_to_read(view.store, extents, (offset, size)).map_err(from_store)?;
        let mut at = offset;
        while let Some(extent) = extents.next().map_err(from_store)? {
            if what == Seek::Data {
                return Ok(extent.offset.max(offset));
            }
            if extent.offset > at {
                return Ok(at);
            }
            at = at.max(extent.end().min(size));
        }
        if what == Seek::Data { Err(FsError::PastEnd) } else { Ok(at) }
    })
}
