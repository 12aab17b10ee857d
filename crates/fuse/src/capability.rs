//! File capabilities end when a file changes hands or contents, as set-id bits do.
//!
//! The kernel leaves both to us (`FUSE_HANDLE_KILLPRIV_V2`): if it did it itself, it would have
//! to ask for the capabilities of the file before every write(2), one more request each. The bits
//! are the namespace's rule; capabilities are an extended attribute that means something to Linux
//! alone, and so end here.

use fs::{FileSystem, FsResult};
use inode::{Attr, Caller, Enforce, Kind, NodeId};

const ANY_EXECUTE: u32 = 0o111;
const NAME: &[u8] = b"security.capability";

/// Takes the capabilities of a file away.
pub(crate) fn drop_from(fs: &dyn FileSystem, node: NodeId, attr: &Attr) -> FsResult<()> {
    // Only what can be run has capabilities that matter, and most changes are to other files.
    if attr.kind != Kind::File || attr.mode & ANY_EXECUTE == 0 {
        return Ok(());
    }
    // Taking rights away needs none of its own.
    let trusted = Caller { enforce: Enforce::Kernel, ..Caller::root() };
    if fs.getxattr(&trusted, node, NAME).is_ok() {
        fs.removexattr(&trusted, node, NAME)?;
    }
    Ok(())
}
