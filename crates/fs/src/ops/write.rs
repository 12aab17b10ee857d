//! `write`: bytes into a file, with its length and times in the same batch.

use inode::permissions::{WRITE, without_set_id};
use inode::{Caller, FsError, Kind, NodeId};

use crate::edit::edit;
use crate::{Fs, FsResult, attributes, contents};

/// Writes all of `bytes` at `offset`.
pub(crate) fn write(
    fs: &Fs,
    caller: &Caller,
    node: NodeId,
    offset: u64,
    bytes: &[u8],
) -> FsResult<()> {
    edit(fs, node, |edit| {
        let owned = edit.inode.owned();
        match owned.kind {
            Kind::File => owned.check(caller, WRITE)?,
            Kind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::InvalidArgument("only files have contents")),
        }
        if bytes.is_empty() {
            return Ok(());
        }
        contents::write(edit, offset, bytes)?;
        let now = edit.txn.now;
        let file = edit.file()?;
        file.inode.mtime = now;
        file.inode.ctime = now;
        if !caller.is_root() {
            file.inode.mode = without_set_id(attributes::owned(&file.inode).mode);
        }
        Ok(())
    })?;
    Ok(())
}
