//! Contents of a file: inside the tree while small, as extents from then on.

use inode::FsError;

use crate::FsResult;
use crate::edit::Edit;

/// Longest contents that live in the tree, in bytes: one page, so that what is bigger can be
/// mapped and punched by pages.
pub(crate) const INLINE_BYTES_MAX: usize = 4096;
/// Greatest length of a file.
pub(crate) const FILE_BYTES_MAX: u64 = format::inode_record::InodeRecord::SIZE_MAX;

const NO_EXTENTS: FsError = FsError::NotSupported("contents of more than 4 KiB");

/// Writes bytes into a file, growing it where needed.
pub(crate) fn write(edit: &mut Edit<'_>, offset: u64, bytes: &[u8]) -> FsResult<()> {
    let end = offset
        .checked_add(bytes.len() as u64)
        .filter(|&end| end <= FILE_BYTES_MAX)
        .ok_or(FsError::FileTooLarge)?;
    let size = edit.file()?.inode.size.max(end);
    if edit.file()?.inode.has_extents || size > INLINE_BYTES_MAX as u64 {
        return Err(NO_EXTENTS);
    }
    let mut bulk = edit.bulk()?;
    bulk.resize(size as usize, 0);
    bulk[offset as usize..end as usize].copy_from_slice(bytes);
    edit.set_bulk(bulk);
    edit.file()?.inode.size = size;
    Ok(())
}

/// Cuts or grows a file.
pub(crate) fn set_size(edit: &mut Edit<'_>, size: u64) -> FsResult<()> {
    if size > FILE_BYTES_MAX {
        return Err(FsError::FileTooLarge);
    }
    let inode = edit.file()?.inode;
    if inode.has_extents || size > INLINE_BYTES_MAX as u64 {
        return Err(NO_EXTENTS);
    }
    if size != inode.size {
        let mut bulk = edit.bulk()?;
        bulk.resize(size as usize, 0);
        edit.set_bulk(bulk);
        edit.file()?.inode.size = size;
    }
    Ok(())
}
