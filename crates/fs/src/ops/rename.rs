//! `rename`: moves a name, atomically.

use inode::{Caller, FsError, NodeId};

use crate::{Fs, FsResult, RenameMode, snapdir};

/// Renames.
pub(crate) fn rename(
    fs: &Fs,
    caller: &Caller,
    from: (NodeId, &[u8]),
    to: (NodeId, &[u8]),
    mode: RenameMode,
) -> FsResult<()> {
    if snapdir::is_virtual(from.0) && snapdir::is_virtual(to.0) {
        return snapdir::rename(fs, caller, from, to);
    }
    let _ = mode;
    Err(FsError::NotSupported("rename"))
}
