//! What is above a subvolume: the directory that it is mounted in, or that shows it.

use inode::{FsError, NodeId};
use vfs::FsResult;
use volume::subvol::{node_of, read_record};

use crate::Ops;

/// The directory above the root of a subvolume; the root itself where there is none.
pub fn parent_of_root(fs: &Ops, node: NodeId) -> FsResult<NodeId> {
    let id = fs.subvol_of(node)?.id;
    let record = read_record(&*fs.store, id)?.ok_or(FsError::Stale)?;
    if record.parent.0 != 0 {
        return Ok(node_of(record.parent.0, record.parent.1));
    }
    if !record.snapshot || record.detached {
        return Ok(node);
    }
    // Above a snapshot is the virtual directory of the directory that shows it; and the kernel asks
    // for nothing else than a directory.
    Ok(fs.shown_in(&record)?.map_or(node, |(above, dir)| node_of(above, dir)))
}
