//! Ranges of a file: turned into a hole, or into a view of another range. Follows the rules of
//! `contents`: small contents in the tree, larger ones as extents, steps of one batch.

use data::{ExtentOwner, Side};
use format::inode_record::InodeRecord;
use vfs::FsResult;
use volume::error::from_store;

use crate::contents::{SMALL_CONTENTS_BYTES_MAX, Step};
use crate::edit::Edit;

/// Where the bytes of a reflink come from: a file with extents.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// Its range.
    pub side: Side,
    /// The inode that owns the extents; `None` if nothing of it changes.
    pub owner: Option<ExtentOwner>,
}

/// Makes `from..to` read as zeros, as a hole where possible. The size stays.
pub fn punch(edit: &mut Edit<'_>, from: u64, to: u64) -> FsResult<Step> {
    let inode = edit.file()?.inode;
    let to = to.min(inode.size);
    if from >= to {
        return Ok(Step::Done);
    }
    if !inode.has_extents {
        let mut bulk = edit.bulk()?;
        // A damaged inode may be longer than its contents: what is not there reads as zeros.
        let length = bulk.len() as u64;
        bulk[from.min(length) as usize..to.min(length) as usize].fill(0);
        edit.set_bulk(bulk);
        return Ok(Step::Done);
    }
    let owner = edit.fs.extent_owner(edit.subvol)?;
    let (file, store) = (edit.file_ref(), edit.view.store);
    let punched = edit
        .fs
        .data
        .punch(store, file, (from, to), owner, edit.plan.batch())
        .map_err(from_store)?;
    let gone = edit.covered(from, punched.done_to)?;
    edit.plan.frees(punched.freed);
    less(&mut edit.file()?.inode, gone);
    if punched.done_to < to {
        edit.plan.continues();
        return Ok(Step::More);
    }
    Ok(Step::Done)
}

/// Makes `length` bytes at `offset` share those of the source, or the first part of them, and
/// returns how many. `None` when the file's own contents had to move first: commit, and call again.
/// The file grows if needed.
pub fn share(
    edit: &mut Edit<'_>,
    offset: u64,
    source: Source,
    length: u64,
) -> FsResult<Option<u64>> {
    if !edit.file()?.inode.has_extents {
        let bulk = edit.bulk()?;
        edit.move_out(&bulk)?;
        if !bulk.is_empty() {
            return Ok(None);
        }
    }
    let owner = edit.fs.extent_owner(edit.subvol)?;
    let to = Side { file: edit.file_ref(), offset };
    let store = edit.view.store;
    let shared = edit
        .fs
        .data
        .share(store, (source.side, to), length, (source.owner, owner), edit.plan.batch())
        .map_err(from_store)?;
    let end = offset + shared.length;
    let known = edit.file()?.inode.size.min(end);
    let gone = if known > offset { edit.covered(offset, known)? } else { 0 };
    edit.plan.frees(shared.freed);
    let inode = &mut edit.file()?.inode;
    less(inode, gone);
    inode.allocated += shared.data;
    inode.size = inode.size.max(end);
    Ok(Some(shared.length))
}

/// Whether so few bytes are better copied than shared: a view of them would cost a record, and
/// pages that no change frees at once.
pub fn is_small(length: u64) -> bool {
    length <= SMALL_CONTENTS_BYTES_MAX as u64
}

fn less(inode: &mut InodeRecord, bytes: u64) {
    inode.allocated = inode.allocated.saturating_sub(bytes);
}
