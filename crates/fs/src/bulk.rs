//! Many inodes at once, as programs call it: `ops::bulk` with the policies of the volume. Without
//! space it reclaims some in the foreground.

use std::cell::RefCell;
use std::sync::Arc;

use inode::{Caller, FsError, NodeId, SetAttr};
use ops::bulk::{Bulk as Drafts, DirId, Draft, Drafted, FileId, Maker, Refusal};
use vfs::{FsResult, NewNode};

use crate::Fs;

/// Drafts of new inodes, made by one caller in one subvolume. They become visible by
/// [`Bulk::flush`]; those that were not flushed are dropped with this.
pub struct Bulk<'a> {
    fs: &'a Fs,
    caller: Caller,
    drafts: RefCell<Drafts>,
}

impl Fs {
    /// Begins to make inodes below a directory, with bytes of memory for them.
    pub fn bulk(&self, caller: &Caller, top: NodeId, memory: usize) -> FsResult<Bulk<'_>> {
        let (subvol, _) = self.place(top)?;
        let drafts = RefCell::new(Drafts::new(Arc::clone(&subvol), memory));
        Ok(Bulk { fs: self, caller: caller.clone(), drafts })
    }
}

impl Bulk<'_> {
    /// Runs something that may need space; space is sought where there is none.
    fn with<T>(&self, run: impl Fn(&mut Drafts, &Maker<'_>) -> Drafted<T>) -> Drafted<T> {
        let policy = self.fs.policies();
        let maker = Maker { fs: self.fs, policy: &policy, caller: &self.caller };
        let done = self.fs.with_space(|| match run(&mut self.drafts.borrow_mut(), &maker) {
            Err(Refusal::Error(error)) => Err(error),
            refused => Ok(refused),
        });
        done?
    }

    /// Whether drafts can be made in a directory of the volume: it is in the subvolume.
    pub fn reaches(&self, node: NodeId) -> bool {
        let id = self.drafts.borrow().subvol().id;
        self.fs.subvolume_of(node).is_ok_and(|of| of == id)
    }

    /// Whether there are drafts in a directory of the volume.
    pub fn is_base(&self, node: NodeId) -> bool {
        let place = self.fs.place(node);
        place.is_ok_and(|(_, ino)| self.drafts.borrow().is_base(ino))
    }

    /// A directory of the volume, in which drafts are to be made.
    pub fn base(&self, node: NodeId) -> Drafted<DirId> {
        let (_, ino) = self.fs.place(node)?;
        self.with(|drafts, maker| drafts.base(maker, ino))
    }

    /// As [`ops::bulk::Bulk::find`].
    pub fn find(&self, dir: DirId, name: &[u8]) -> Option<Draft> {
        let policy = self.fs.policies();
        let maker = Maker { fs: self.fs, policy: &policy, caller: &self.caller };
        self.drafts.borrow().find(&maker, dir, name)
    }

    /// As [`ops::bulk::Bulk::make`].
    pub fn make(&self, dir: DirId, name: &[u8], new: &NewNode) -> Drafted<FileId> {
        self.with(|drafts, maker| drafts.make(maker, dir, name, new))
    }

    /// As [`ops::bulk::Bulk::symlink`].
    pub fn symlink(&self, dir: DirId, name: &[u8], target: &[u8]) -> Drafted<FileId> {
        self.with(|drafts, maker| drafts.symlink(maker, dir, name, target))
    }

    /// As [`ops::bulk::Bulk::mkdir`].
    pub fn mkdir(&self, dir: DirId, name: &[u8], mode: u32) -> Drafted<DirId> {
        self.with(|drafts, maker| drafts.mkdir(maker, dir, name, mode))
    }

    /// As [`ops::bulk::Bulk::write`].
    pub fn write(&self, file: FileId, offset: u64, bytes: &[u8]) -> Drafted<()> {
        self.with(|drafts, maker| drafts.write(maker, file, offset, bytes))
    }

    /// As [`ops::bulk::Bulk::set_size`].
    pub fn set_size(&self, file: FileId, size: u64) -> Drafted<()> {
        self.with(|drafts, maker| drafts.set_size(maker, file, size))
    }

    /// As [`ops::bulk::Bulk::mode_and_group`].
    pub fn mode_and_group(&self, draft: Draft) -> (u32, u32) {
        self.drafts.borrow().mode_and_group(draft)
    }

    /// As [`ops::bulk::Bulk::has_xattr`].
    pub fn has_xattr(&self, draft: Draft, name: &[u8]) -> bool {
        self.drafts.borrow().has_xattr(draft, name)
    }

    /// As [`ops::bulk::Bulk::setxattr`].
    pub fn setxattr(&self, draft: Draft, name: &[u8], value: &[u8]) -> Drafted<()> {
        self.with(|drafts, maker| drafts.setxattr(maker, draft, name, value))
    }

    /// As [`ops::bulk::Bulk::remove_list`].
    pub fn remove_list(&self, draft: Draft, name: &[u8]) -> Drafted<()> {
        self.with(|drafts, maker| drafts.remove_list(maker, draft, name))
    }

    /// As [`ops::bulk::Bulk::setattr`].
    pub fn setattr(&self, draft: Draft, changes: &SetAttr) -> Drafted<()> {
        self.with(|drafts, maker| drafts.setattr(maker, draft, changes))
    }

    /// As [`ops::bulk::Bulk::keep`].
    pub fn keep(&self, draft: Draft, keep: bool) {
        self.drafts.borrow_mut().keep(draft, keep);
    }

    /// As [`ops::bulk::Bulk::node`].
    pub fn node(&self, draft: Draft) -> NodeId {
        self.drafts.borrow().node(draft)
    }

    /// Whether there are no drafts.
    pub fn is_empty(&self) -> bool {
        self.drafts.borrow().is_empty()
    }

    /// Whether a flush is due.
    pub fn is_full(&self) -> bool {
        self.drafts.borrow().is_full()
    }

    /// How many drafts there are.
    pub fn count(&self) -> usize {
        self.drafts.borrow().count()
    }

    /// Makes all drafts visible, in one commit; after an error none is, and all are dropped.
    pub fn flush(&self) -> FsResult<()> {
        let flushed = self.with(|drafts, maker| drafts.flush(maker).map_err(Refusal::Error));
        flushed
            .map_err(|refusal| match refusal {
                Refusal::Error(error) => error,
                Refusal::Flush | Refusal::Stored => FsError::Stale,
            })
            .inspect_err(|_| self.drafts.borrow_mut().abandon(self.fs))
    }
}

impl Drop for Bulk<'_> {
    fn drop(&mut self) {
        self.drafts.borrow_mut().abandon(self.fs);
    }
}
