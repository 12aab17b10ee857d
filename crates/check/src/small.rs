//! Small contents, which are stored beside an inode: its record has the flag, and its size is
//! theirs.
//!
//! Both are always written together, and so are those of files without data in a segment. So if
//! they contradict each other a record was damaged. The stored bytes are what was written: nothing
//! was after their end. Contents that an inode with extents does not mention are kept beside it.

use format::inode_record::{FileKind, InodeRecord};
use format::key;
use ops::contents::SMALL_CONTENTS_BYTES_MAX;
use store::TreeId;
use vfs::FsResult;
use volume::readable::Scan;

use super::{Checker, ProblemKind};

/// What is wrong with small contents.
pub(super) struct Wrong {
    pub(super) kind: ProblemKind,
    pub(super) what: String,
    pub(super) remedy: Remedy,
}

/// The repair.
pub(super) enum Remedy {
    /// The inode is corrected.
    Note(&'static str, InodeRecord),
    /// The contents are kept as a separate file.
    Keep,
    /// Nothing.
    Nothing,
}

impl Checker<'_, '_> {
    /// Compares what an inode records of small contents with the bytes that are stored.
    pub(super) fn small_contents(
        &self,
        tree: TreeId,
        ino: u64,
        inode: &InodeRecord,
        found: Option<u64>,
    ) -> FsResult<Option<Wrong>> {
        let is_file = inode.kind == FileKind::File;
        let is_index = inode.elsewhere.is_some();
        let (kind, what, remedy) = match (inode.has_bulk, found) {
            (true, None) => {
                // A link without a target stays unchanged: nothing could be put there.
                let size = if inode.has_extents { inode.size } else { 0 };
                let less = InodeRecord { has_bulk: false, size, ..*inode };
                let note = Remedy::Note("clear the flag for them", less);
                let remedy = if is_file { note } else { Remedy::Nothing };
                (ProblemKind::Contents, "its contents are gone".to_owned(), remedy)
            }
            (false, Some(length)) => {
                let what =
                    format!("{length} bytes of small contents for which the inode has no flag");
                let may_have = is_file || inode.kind == FileKind::Symlink;
                let remedy = if !may_have || self.has_extents(tree, ino, inode)? {
                    Remedy::Keep
                } else {
                    let size = if is_index { inode.size } else { length };
                    let right = InodeRecord { has_bulk: true, size, ..*inode };
                    Remedy::Note("set the flag for them", right)
                };
                (ProblemKind::Contents, what, remedy)
            }
            (true, Some(_)) if !is_file || is_index || inode.has_extents => return Ok(None),
            (true, Some(length)) if length != inode.size => {
                let size = inode.size;
                let what = format!("{length} bytes of small contents, and the inode has {size}");
                let right = InodeRecord { size: length, ..*inode };
                (ProblemKind::Contents, what, Remedy::Note("set the size to theirs", right))
            }
            (true, Some(length)) if length > SMALL_CONTENTS_BYTES_MAX as u64 => {
                let what = format!("{length} bytes of small contents, which are too many");
                (ProblemKind::Structure, what, Remedy::Nothing)
            }
            (false, None) | (true, Some(_)) => return Ok(None),
        };
        Ok(Some(Wrong { kind, what, remedy }))
    }

    /// Whether a file has extents, regardless of its inode; unsure counts as yes.
    fn has_extents(&self, tree: TreeId, ino: u64, inode: &InodeRecord) -> FsResult<bool> {
        if inode.has_extents {
            return Ok(true);
        }
        let mut scan = Scan::new(self.pin, tree, &key::extent_prefix(ino))?;
        Ok(scan.advance()? || !scan.lost.is_empty())
    }
}
