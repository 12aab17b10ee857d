//! `write` and `append`: bytes into a file, with its length and times in the same batch.

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
    write_from(fs, policy, caller, (node, Some(offset)), bytes)
}

/// Writes all of `bytes` at the end of a file, as it is when the first piece is written. Nothing
/// else changes the file between the look and that.
pub fn append(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    node: NodeId,
    bytes: &[u8],
) -> FsResult<()> {
    write_from(fs, policy, caller, (node, None), bytes)
}

/// `at`: where; `None`: at the end.
fn write_from(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    (node, mut at): (NodeId, Option<u64>),
    bytes: &[u8],
) -> FsResult<()> {
    let mut rest = bytes;
    loop {
        let (piece, left) = rest.split_at(rest.len().min(PIECE_BYTES));
        // Before the file is locked: this may wait for the disk or an object store.
        fs.make_space(piece.len() as u64)?;
        let (step, offset) = edit(fs, policy, node, |edit| write_piece(edit, caller, at, piece))?;
        if step == Step::Done {
            if left.is_empty() {
                return Ok(());
            }
            at = Some(offset + piece.len() as u64);
            rest = left;
        }
    }
}

/// Writes bytes of one batch into a file that is being edited, at a place or (`None`) at its end.
/// Returns the place as well.
pub fn write_piece(
    edit: &mut Edit<'_>,
    caller: &Caller,
    at: Option<u64>,
    bytes: &[u8],
) -> FsResult<(Step, u64)> {
    edit.plan.on_behalf(caller);
    let owned = edit.inode.owned();
    match owned.kind {
        Kind::File => owned.check(caller, WRITE, || edit.acl())?,
        Kind::Directory => return Err(FsError::IsDirectory),
        _ => return Err(FsError::InvalidArgument("only files have contents")),
    }
    let offset = match at {
        Some(offset) => offset,
        None => edit.file()?.inode.size,
    };
    if bytes.is_empty() {
        return Ok((Step::Done, offset));
    }
    edit.end_rights(caller)?;
    if contents::write(edit, offset, bytes)? == Step::More {
        return Ok((Step::More, offset));
    }
    let now = edit.plan.now;
    let inode = &mut edit.file()?.inode;
    inode.mtime = now;
    inode.ctime = now;
    Ok((Step::Done, offset))
}
