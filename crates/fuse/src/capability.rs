//! File capabilities end when a file changes hands or contents, as set-id bits do.
//!
//! The kernel leaves both to us (`FUSE_HANDLE_KILLPRIV_V2`): if it did it itself, it would have
//! to ask for the capabilities of the file before every write(2), one more request each. It asks
//! before the first one all the same, and then removes what it finds. The bits are the namespace's
//! rule; capabilities are an extended attribute that means something to Linux alone, and so end
//! here.

use fs::{FileSystem, FsResult};
use inode::{Caller, Enforce, NodeId};

const NAME: &[u8] = b"security.capability";

/// Whether an extended attribute is that of capabilities. The kernel asks by itself whether
/// somebody may remove it, and removes it in the name of whoever changes the file.
pub(crate) fn are_in(name: &[u8]) -> bool {
    name == NAME
}

/// Who takes them away: that needs no rights of its own.
pub(crate) fn taker() -> Caller {
    Caller { enforce: Enforce::Kernel, ..Caller::root() }
}

/// Takes the capabilities of a file away: also of one that nobody may run, for its owner may let it
/// be run again, with whatever he has put into it meanwhile.
pub(crate) fn drop_from(fs: &dyn FileSystem, node: NodeId) -> FsResult<()> {
    let taker = taker();
    if fs.getxattr(&taker, node, NAME).is_ok() {
        fs.removexattr(&taker, node, NAME)?;
    }
    Ok(())
}
