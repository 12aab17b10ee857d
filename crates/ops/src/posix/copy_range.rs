//! `copy_range` copies bytes of one file into another (or elsewhere in the same). It makes a
//! reflink if both are large enough to be extents, and copies otherwise.
//!
//! 1. Both inodes are locked at once, the source's exclusively too if it may change. The batch that
//!    names its extents from the target also flags them as shared.
//! 2. The source may be in a snapshot: nothing of it changes, and the caller holds its inode, so
//!    that the snapshot is not removed meanwhile. It may not be in another writable subvolume: the
//!    caller copies then, as between file systems.

use data::{FileRef, Side};
use format::acl::Acl;
use inode::permissions::{READ, WRITE};
use inode::{Caller, FsError, Kind, NodeId, Owned};
use vfs::FsResult;
use volume::error::from_store;
use volume::load::{FileInode, Inode, load, load_bulk};
use volume::permit;
use volume::subvol::Subvol;
use volume::view::View;

use crate::Ops;
use crate::contents::{self, FILE_BYTES_MAX, Step};
use crate::edit::{Edit, edit_beside};
use crate::policy::Policy;
use crate::ranges::{self, Source};

/// What one change of the target did.
enum Progress {
    /// This many bytes were copied.
    Copied(u64),
    /// The target's own contents had to move first; the caller tries again.
    Again,
}

/// Copies up to `length` bytes from (file, offset) to (file, offset), and returns how many. That is
/// none at the end of the source, and fewer than requested if one batch would be too large.
pub fn copy_range(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    from: (NodeId, u64),
    to: (NodeId, u64),
    length: u64,
) -> FsResult<u64> {
    let (source, ino) = fs.place(from.0)?;
    let (target, target_ino) = fs.place(to.0)?;
    let same = source.id == target.id;
    if !same && !source.read_only {
        return Err(FsError::CrossSubvolume("extents of a subvolume that changes"));
    }
    if same && ino == target_ino && from.1 < to.1.saturating_add(length) {
        let overlap = to.1 < from.1.saturating_add(length);
        if overlap && length > 0 {
            return Err(FsError::InvalidArgument("a range copied onto itself"));
        }
    }
    let beside = (same && ino != target_ino).then_some(ino);
    loop {
        let progress = edit_beside(fs, policy, to.0, beside, |edit| {
            let reader = Reader { fs, source: &source, ino, offset: from.1 };
            apply(edit, caller, &reader, to.1, length)
        })?;
        match progress {
            Progress::Copied(bytes) => return Ok(bytes),
            Progress::Again => {}
        }
    }
}

fn check(
    owned: &Owned,
    caller: &Caller,
    mask: u32,
    acl: impl FnOnce() -> FsResult<Acl>,
) -> FsResult<()> {
    match owned.kind {
        Kind::File => owned.check(caller, mask, acl),
        Kind::Directory => Err(FsError::IsDirectory),
        _ => Err(FsError::InvalidArgument("only files have contents")),
    }
}

fn apply(
    edit: &mut Edit<'_>,
    caller: &Caller,
    reader: &Reader<'_>,
    offset: u64,
    length: u64,
) -> FsResult<Progress> {
    edit.plan.on_behalf(caller);
    check(&edit.inode.owned(), caller, WRITE, || edit.acl())?;
    let progress = reader.with(|view, inode| {
        let node = reader.source.node(reader.ino);
        check(&inode.owned(), caller, READ, || {
            permit::of_inode(reader.fs, view, node, reader.ino, inode)
        })?;
        let Inode::File(file) = inode else { return Err(FsError::IsDirectory) };
        if file.inode.elsewhere.is_some() {
            return Err(FsError::Elsewhere);
        }
        let length = length.min(file.inode.size.saturating_sub(reader.offset));
        if length == 0 {
            return Ok(Progress::Copied(0));
        }
        if offset.checked_add(length).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(FsError::FileTooLarge);
        }
        edit.end_rights(caller)?;
        if !file.inode.has_extents || ranges::is_small(length) {
            let bytes = reader.bytes(view, file, length)?;
            return Ok(match contents::write(edit, offset, &bytes)? {
                Step::Done => Progress::Copied(length),
                Step::More => Progress::Again,
            });
        }
        let fs = reader.fs;
        let changes = !reader.source.read_only;
        let source = Source {
            side: Side {
                file: FileRef { tree: view.tree, ino: reader.ino },
                offset: reader.offset,
            },
            owner: changes.then(|| fs.extent_owner(reader.source)).transpose()?,
        };
        let shared = ranges::share(edit, offset, source, length)?;
        if shared.is_none() {
            edit.plan.continues();
        }
        Ok(shared.map_or(Progress::Again, Progress::Copied))
    })?;
    if let Progress::Copied(bytes) = progress {
        vfs::note_number(bytes);
    }
    if matches!(progress, Progress::Copied(1..)) {
        let now = edit.plan.now;
        let inode = &mut edit.file()?.inode;
        inode.mtime = now;
        inode.ctime = now;
    }
    Ok(progress)
}

/// The source.
struct Reader<'a> {
    fs: &'a Ops,
    source: &'a Subvol,
    ino: u64,
    offset: u64,
}

impl Reader<'_> {
    fn with<T>(&self, mut read: impl FnMut(View<'_>, &Inode) -> FsResult<T>) -> FsResult<T> {
        self.source.read(|tree| {
            let view = View::new(&*self.fs.store, tree);
            read(view, &load(self.fs, view, self.source.node(self.ino), self.ino)?)
        })
    }

    /// Bytes of the source: a small part, or everything that is stored in the tree.
    fn bytes(&self, view: View<'_>, file: &FileInode, length: u64) -> FsResult<Vec<u8>> {
        let node = self.source.node(self.ino);
        if file.inode.has_extents {
            let mut bytes = vec![0; length as usize];
            let extents = FileRef { tree: view.tree, ino: self.ino };
            let (fs, size) = (self.fs, file.inode.size);
            let read = fs.data.read(view.store, extents, size, self.offset, &mut bytes);
            let read = read.map_err(from_store)?;
            bytes.truncate(read);
            return Ok(bytes);
        }
        let bulk = load_bulk(self.fs, view, node, self.ino, file)?;
        let from = (self.offset as usize).min(bulk.len());
        let to = (from + length as usize).min(bulk.len());
        Ok(bulk[from..to].to_vec())
    }
}
