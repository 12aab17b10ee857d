//! `fallocate`: growing a file, and making ranges of it holes or zeros.
//!
//! Segments are written in order and nothing in them is kept free for a file, so that allocating
//! reserves nothing: it fails when there is not room enough now, and grows the file with a hole.

use inode::permissions::WRITE;
use inode::{Caller, FsError, Kind, NodeId};

use crate::contents::{self, FILE_BYTES_MAX, Step};
use crate::edit::{Edit, edit};
use crate::ranges;
use crate::{Allocate, Fs, FsResult};

/// Does what `mode` says with `length` bytes at `offset`.
pub(crate) fn fallocate(
    fs: &Fs,
    caller: &Caller,
    node: NodeId,
    (offset, length): (u64, u64),
    mode: Allocate,
) -> FsResult<()> {
    if length == 0 {
        return Err(FsError::InvalidArgument("a range of no bytes"));
    }
    let end = offset
        .checked_add(length)
        .filter(|&end| end <= FILE_BYTES_MAX)
        .ok_or(FsError::FileTooLarge)?;
    let room = match mode {
        Allocate::Grow | Allocate::Keep => {
            let room = super::statfs::statfs(fs)?;
            room.blocks_available.saturating_mul(u64::from(room.block_bytes))
        }
        Allocate::Punch | Allocate::Zero | Allocate::ZeroKeep => u64::MAX,
    };
    loop {
        let (step, _) = edit(fs, node, |edit| apply(edit, caller, (offset, end), mode, room))?;
        if step == Step::Done {
            return Ok(());
        }
    }
}

fn apply(
    edit: &mut Edit<'_>,
    caller: &Caller,
    (offset, end): (u64, u64),
    mode: Allocate,
    room: u64,
) -> FsResult<Step> {
    edit.txn.on_behalf(caller);
    let owned = edit.inode.owned();
    match owned.kind {
        Kind::File => owned.check(caller, WRITE, || edit.acl())?,
        Kind::Directory => return Err(FsError::IsDirectory),
        _ => return Err(FsError::InvalidArgument("only files have contents")),
    }
    edit.end_rights(caller)?;
    let inode = edit.file()?.inode;
    match mode {
        Allocate::Grow | Allocate::Keep => {
            let held = if inode.has_extents {
                edit.covered(offset, end)?
            } else {
                inode.size.min(end).saturating_sub(offset)
            };
            if (end - offset).saturating_sub(held) > room {
                return Err(FsError::NoSpace);
            }
        }
        Allocate::Punch | Allocate::Zero | Allocate::ZeroKeep => {
            edit.removes();
            if ranges::punch(edit, offset, end)? == Step::More {
                return Ok(Step::More);
            }
        }
    }
    let grows = matches!(mode, Allocate::Grow | Allocate::Zero) && end > inode.size;
    if grows && contents::set_size(edit, end)? == Step::More {
        return Ok(Step::More);
    }
    let now = edit.txn.now;
    let inode = &mut edit.file()?.inode;
    inode.mtime = now;
    inode.ctime = now;
    Ok(Step::Done)
}
