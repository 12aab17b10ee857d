//! `write`: bytes into a file, with its length and times in the same batch.

use inode::permissions::WRITE;
use inode::{Caller, FsError, Kind, NodeId};
use vfs::FsResult;

use crate::Ops;
use crate::contents::{self, Step};
use crate::edit::{Edit, edit};
use crate::policy::Policy;

/// Most bytes of one batch: a longer write is several, as `write` may be.
const PIECE_BYTES: usize = 8 << 20;

/// Writes all of `bytes` at `offset`.
pub fn write(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    node: NodeId,
    offset: u64,
    bytes: &[u8],
) -> FsResult<()> {
    let mut rest = bytes;
    let mut at = offset;
    loop {
        let (piece, left) = rest.split_at(rest.len().min(PIECE_BYTES));
        // Before the file is locked: this may wait for the disk or an object store.
        fs.make_space(piece.len() as u64)?;
        let step = edit(fs, policy, node, |edit| write_piece(edit, caller, at, piece))?;
        if step == Step::Done {
            if left.is_empty() {
                return Ok(());
            }
            at += piece.len() as u64;
            rest = left;
        }
    }
}

fn write_piece(edit: &mut Edit<'_>, caller: &Caller, offset: u64, bytes: &[u8]) -> FsResult<Step> {
    edit.plan.on_behalf(caller);
    let owned = edit.inode.owned();
    match owned.kind {
        Kind::File => owned.check(caller, WRITE, || edit.acl())?,
        Kind::Directory => return Err(FsError::IsDirectory),
        _ => return Err(FsError::InvalidArgument("only files have contents")),
    }
    if bytes.is_empty() {
        return Ok(Step::Done);
    }
    edit.end_rights(caller)?;
    if contents::write(edit, offset, bytes)? == Step::More {
        return Ok(Step::More);
    }
    let now = edit.plan.now;
    let inode = &mut edit.file()?.inode;
    inode.mtime = now;
    inode.ctime = now;
    Ok(Step::Done)
}
