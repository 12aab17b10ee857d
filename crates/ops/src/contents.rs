//! Contents of a file: inside the tree while they are small, in extents after that.
//!
//! Both change in the same batch as length and times. A change too large for one batch is made in
//! several; each leaves the file in a state that ordinary operations could have produced.

use data::{FileRef, Freed};
use inode::permissions::without_set_id;
use inode::{Caller, FsError};
use store::CommitToken;
use vfs::FsResult;
use volume::error::from_store;
use volume::subvol::Subvol;
use volume::view::View;

use crate::Ops;
use crate::edit::Edit;

/// Longest contents that are stored in the tree, in bytes: one page, so that longer contents can be
/// punched and mapped by pages.
pub const SMALL_CONTENTS_BYTES_MAX: usize = 4096;
/// Greatest length of a file.
pub const FILE_BYTES_MAX: u64 = format::inode_record::InodeRecord::SIZE_MAX;
/// Where Linux keeps the capabilities of a file.
pub(crate) const CAPABILITIES: &[u8] = b"security.capability";
/// Dropped bytes that clones may share, from which on a collection is worth its cost.
const COLLECT_BYTES: u64 = 64 << 20;

/// Whether a change is done, or must be called again after its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// All of it is in the batch.
    Done,
    /// A part is in the batch that leaves the file unchanged, or shorter.
    More,
}

impl Ops {
    /// Which extents of a subvolume belong to it alone, and the epoch of new ones. Fails if the
    /// volume's epoch is before that of the last clone, which only damage causes: new data would be
    /// taken for shared. The two are equal while a clone is visible and its commit has not
    /// returned. What is written into it then counts as shared, and costs a garbage collection when
    /// it is replaced.
    pub fn extent_owner(&self, subvol: &Subvol) -> FsResult<data::ExtentOwner> {
        let (birth, last_clone) = (self.admin.epoch(), subvol.last_clone_epoch());
        if birth < last_clone {
            let what = format!("the epoch {birth} is before the last clone's, {last_clone}");
            return Err(volume::error::inconsistent(volume::subvol::VOLUME, &what, subvol.root));
        }
        Ok(data::ExtentOwner { birth, last_clone })
    }

    /// After a commit, or its refusal: punches what it freed once it is durable.
    pub(crate) fn settle_freed(
        &self,
        freed: Option<Freed>,
        committed: Result<CommitToken, &FsError>,
    ) {
        let Some(freed) = freed else { return };
        match committed {
            Ok(token) => {
                self.queue.count_shared(freed.shared_bytes, COLLECT_BYTES);
                self.data.reclaim_after(freed, token);
            }
            // Nothing was committed, so nothing will ever name what was written.
            Err(FsError::NoSpace) => self.data.abandon(freed),
            // In doubt garbage collection decides.
            Err(_) => drop(freed),
        }
    }
}

impl Edit<'_> {
    /// Called with a change of contents, before any part of it is committed: ends the privileges
    /// that the file grants to those who run it. One batch later, a crash would leave changed
    /// contents with the old privileges, and a chmod in between would be undone.
    pub(crate) fn end_rights(&mut self, caller: &Caller) -> FsResult<()> {
        if caller.ends_set_id() {
            let inode = &mut self.file()?.inode;
            inode.mode = without_set_id(inode.mode);
        }
        self.end_capabilities(caller)
    }

    /// Called with a change of contents or owner: removes the file's capabilities if the caller
    /// requests it.
    pub(crate) fn end_capabilities(&mut self, caller: &Caller) -> FsResult<()> {
        if caller.ends.capabilities && self.file()?.inode.has_xattrs {
            let mut xattrs = match self.xattrs() {
                // Capabilities that cannot be read are in effect for no one, and the contents are
                // sound.
                Err(FsError::Io(error)) => {
                    tracing::warn!(ino = self.ino, %error, "attributes of a file that changes");
                    return Ok(());
                }
                xattrs => xattrs?,
            };
            if xattrs.remove(CAPABILITIES) {
                self.set_xattrs(xattrs);
            }
        }
        Ok(())
    }

    /// The file's extents.
    pub(crate) fn file_ref(&self) -> FileRef {
        FileRef { tree: self.view.tree, ino: self.ino }
    }

    /// Bytes of a range that extents cover.
    pub fn covered(&self, from: u64, to: u64) -> FsResult<u64> {
        let file = self.file_ref();
        covered(self.fs, self.view, file, (from, to), usize::MAX).map(|(covered, _)| covered)
    }

    /// Plans extents for bytes, and counts them.
    fn write_extents(&mut self, offset: u64, bytes: &[u8]) -> FsResult<()> {
        let inode = self.file()?.inode;
        let known = inode.has_extents && offset < inode.size;
        let owner = self.fs.extent_owner(self.subvol)?;
        let (file, store) = (self.file_ref(), self.view.store);
        let freed = self
            .fs
            .data
            .write(store, file, offset, bytes, owner, self.plan.batch())
            .map_err(from_store)?;
        let before = if known { freed.replaced_bytes } else { 0 };
        self.plan.frees(freed);
        let inode = &mut self.file()?.inode;
        inode.has_extents = true;
        inode.allocated += bytes.len() as u64 - before;
        Ok(())
    }

    /// Moves contents out of the tree.
    pub(crate) fn move_out(&mut self, bulk: &[u8]) -> FsResult<()> {
        if bulk.is_empty() {
            self.file()?.inode.has_extents = true;
        } else {
            self.write_extents(0, bulk)?;
            self.set_bulk(Vec::new());
        }
        Ok(())
    }
}

/// Bytes of a range that extents cover, each once: in a damaged file they may overlap. Reads at
/// most the given number of extents; returns how far it got.
pub fn covered(
    fs: &Ops,
    view: View<'_>,
    file: FileRef,
    (from, to): (u64, u64),
    extents_max: usize,
) -> FsResult<(u64, u64)> {
    let mut extents = fs.data.extents(view.store, file, (from, to)).map_err(from_store)?;
    let (mut covered, mut at, mut count) = (0, from, 0);
    while let Some(extent) = extents.next().map_err(from_store)? {
        let end = extent.end().min(to);
        covered += end.saturating_sub(extent.offset.max(at));
        at = at.max(end);
        count += 1;
        if count == extents_max {
            return Ok((covered, at));
        }
    }
    Ok((covered, to))
}

/// Writes bytes into a file, growing it where needed.
pub fn write(edit: &mut Edit<'_>, offset: u64, bytes: &[u8]) -> FsResult<Step> {
    let end = offset
        .checked_add(bytes.len() as u64)
        .filter(|&end| end <= FILE_BYTES_MAX)
        .ok_or(FsError::FileTooLarge)?;
    let inode = edit.file()?.inode;
    let size = inode.size.max(end);
    if inode.has_extents {
        edit.write_extents(offset, bytes)?;
    } else if size <= SMALL_CONTENTS_BYTES_MAX as u64 {
        let mut bulk = edit.bulk()?;
        bulk.resize(size as usize, 0);
        bulk[offset as usize..end as usize].copy_from_slice(bytes);
        edit.set_bulk(bulk);
    } else {
        let mut bulk = edit.bulk()?;
        if offset > bulk.len() as u64 && !bulk.is_empty() {
            // One plan for each file and batch: the old bytes move first, the new ones follow.
            edit.move_out(&bulk)?;
            edit.plan.continues();
            return Ok(Step::More);
        }
        if bulk.is_empty() {
            edit.write_extents(offset, bytes)?;
        } else {
            let offset = offset as usize;
            let kept = bulk.split_off((offset + bytes.len()).min(bulk.len()));
            bulk.truncate(offset);
            bulk.extend_from_slice(bytes);
            bulk.extend_from_slice(&kept);
            edit.move_out(&bulk)?;
        }
    }
    edit.file()?.inode.size = size;
    Ok(Step::Done)
}

/// Truncates or grows a file.
pub(crate) fn set_size(edit: &mut Edit<'_>, size: u64) -> FsResult<Step> {
    if size > FILE_BYTES_MAX {
        return Err(FsError::FileTooLarge);
    }
    let inode = edit.file()?.inode;
    if size == inode.size {
        return Ok(Step::Done);
    }
    if size < inode.size {
        edit.removes();
    }
    if !inode.has_extents {
        let mut bulk = edit.bulk()?;
        if size <= SMALL_CONTENTS_BYTES_MAX as u64 {
            bulk.resize(size as usize, 0);
            edit.set_bulk(bulk);
        } else {
            edit.move_out(&bulk)?;
        }
        edit.file()?.inode.size = size;
        return Ok(Step::Done);
    }
    if size > inode.size {
        edit.file()?.inode.size = size;
        return Ok(Step::Done);
    }
    let owner = edit.fs.extent_owner(edit.subvol)?;
    let (file, store) = (edit.file_ref(), edit.view.store);
    let cut = edit
        .fs
        .data
        .truncate(store, file, (inode.size, size), owner, edit.plan.batch())
        .map_err(from_store)?;
    edit.plan.frees(cut.freed);
    let gone = edit.covered(cut.size, cut.end)?;
    let inode = &mut edit.file()?.inode;
    inode.size = cut.size;
    inode.allocated = inode.allocated.saturating_sub(gone);
    if cut.size == 0 {
        inode.has_extents = false;
        inode.allocated = 0;
    }
    if cut.size > size {
        edit.plan.continues();
        return Ok(Step::More);
    }
    Ok(Step::Done)
}
