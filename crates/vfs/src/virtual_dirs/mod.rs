//! `VirtualDirs`: directories that a file system does not store, over any file system.
//!
//! Every directory has a directory of snapshots; the root of a mount has `.search`. Both are found
//! by name only and are not listed. The file system below knows neither: what is asked of it beside
//! the calls of [`FileSystem`] are [`Snapshots`] and [`Search`].

mod invalidate;
mod level;
mod snapshots;
mod search;
mod links;

use std::ops::Deref;
use std::sync::Arc;

use device::sync::Mutex;
use device::{Clock, Timestamp};
use inode::permissions::WRITE;
use inode::{Attr, Caller, FsError, NodeId, SetAttr};

pub use search::{Query, Search};
pub use snapshots::{ListedSnapshot, Snapshots, name_of_number, number_in_name};

use self::level::{Level, below, place};
use self::search::Searches;
use crate::resolve::{Name, resolve_by};
use crate::{
    Allocate, DirEntry, Entry, FileLock, FileSystem, Follow, FsResult, Invalidate, Locked, NewNode,
    RenameMode, Seek, SetXattr, StatFs, SyncScope, Waits, WalkControl,
};

/// A file system with virtual directories. Calls that are not of [`FileSystem`] go to that below.
pub struct VirtualDirs<F> {
    inner: Arc<F>,
    clock: Arc<dyn Clock>,
    /// Name of the directory of snapshots that every directory has.
    snapshots: Vec<u8>,
    /// `None`: there is no `.search`.
    searches: Option<Searches>,
    /// What the mount shows as its root.
    shown: Arc<Mutex<NodeId>>,
    /// Snapshots that were listed last.
    listed: Mutex<snapshots::Page>,
}

impl<F> Deref for VirtualDirs<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.inner
    }
}

impl<F: Snapshots> VirtualDirs<F> {
    /// Adds a directory of snapshots of the given name to every directory.
    pub fn new(inner: Arc<F>, clock: Arc<dyn Clock>, snapshots: &[u8]) -> VirtualDirs<F> {
        let shown = Arc::new(Mutex::new(NodeId::ROOT));
        let (snapshots, listed) = (snapshots.to_vec(), Mutex::default());
        VirtualDirs { inner, clock, snapshots, searches: None, shown, listed }
    }

    /// Adds `.search` to the root of the mount.
    #[must_use]
    pub fn with_search(mut self, search: Arc<dyn Search>) -> VirtualDirs<F> {
        let (clock, shown) = (Arc::clone(&self.clock), Arc::clone(&self.shown));
        self.searches = Some(Searches::new(search, clock, shown));
        self
    }

    /// The file system below.
    pub fn inner(&self) -> &Arc<F> {
        &self.inner
    }

    /// Whether a node is a virtual directory, or in one: the file system below has no such node.
    pub fn is_virtual(node: NodeId) -> bool {
        snapshots::is_virtual(node)
    }

    /// Walks a path from the root, as [`crate::resolve()`].
    ///
    /// `/.snapshots/#17` points to the snapshot of that number, of any directory, for root and the
    /// owner of what it shows. It reaches snapshots of removed directories. No symbolic link points
    /// there, and the kernel has no such name: it would admit any user where another one was.
    pub fn resolve(&self, caller: &Caller, path: &[u8], follow: Follow) -> FsResult<Entry> {
        // The root of a snapshot that was reached by its number.
        let mut by_number = None;
        resolve_by(self, caller, (path, follow), &mut |at, Name { bytes: name, is_given }| {
            if name == b".." && by_number == Some(at.node) {
                // Its directory may be where the caller has no access, or be removed.
                return snapshots::enter(&*self.inner, caller, NodeId::ROOT);
            }
            // Any snapshot with such a name, from before such names were refused.
            if let Some(number) = number_in_name(name).filter(|_| is_given)
                && self.is_of_root(at.node)?
            {
                let entry = self.inner.find_numbered_snapshot(caller, number)?;
                by_number = Some(entry.node);
                return Ok(entry);
            }
            // Searches are for the kernel's calls, which can be cancelled: a path that a caller
            // sends finds an object of this name only.
            if name == search::NAME && matches!(place(at.node), Level::Below) {
                return self.inner.lookup(caller, at.node, name);
            }
            self.lookup(caller, at.node, name)
        })
    }

    /// Like [`VirtualDirs::resolve`], but refuses virtual directories.
    pub fn resolve_below(&self, caller: &Caller, path: &[u8], follow: Follow) -> FsResult<Entry> {
        let entry = self.resolve(caller, path, follow)?;
        below(entry.node).inspect_err(|_| self.forget(entry.node, 1))?;
        Ok(entry)
    }

    /// Whether a node is the directory of snapshots of the root.
    fn is_of_root(&self, node: NodeId) -> FsResult<bool> {
        if !matches!(place(node), Level::Snapshots) {
            return Ok(false);
        }
        let root = self.inner.getattr(&Caller::root(), NodeId::ROOT)?;
        Ok(node == snapshots::node_of(root.node))
    }

    fn searches(&self) -> FsResult<&Searches> {
        self.searches.as_ref().ok_or(FsError::Stale)
    }

    /// Refuses to create a name that a virtual directory hides.
    #[inline]
    fn is_free(&self, name: &[u8]) -> FsResult<()> {
        if name == self.snapshots { Err(FsError::Exists) } else { Ok(()) }
    }

    /// Refuses to remove the name of a virtual directory.
    #[inline]
    fn is_stored(&self, name: &[u8]) -> FsResult<()> {
        if name == self.snapshots { Err(snapshots::REFUSED) } else { Ok(()) }
    }
}

impl<F: Snapshots> FileSystem for VirtualDirs<F> {
    fn find_by_number(&self, top: NodeId, node: NodeId) -> FsResult<Entry> {
        match place(node) {
            Level::Below => self.inner.find_by_number(top, node),
            Level::Snapshots => snapshots::find(&*self.inner, top, node),
            Level::Search => Err(FsError::Stale),
        }
    }

    #[inline]
    fn generation(&self, node: NodeId) -> u64 {
        match place(node) {
            Level::Below => self.inner.generation(node),
            Level::Snapshots => self.inner.generation(snapshots::directory_of(node)),
            Level::Search => 0,
        }
    }

    fn may_be_held(&self, node: NodeId) -> bool {
        // Look-ups of virtual directories are not counted.
        !matches!(place(node), Level::Below) || self.inner.may_be_held(node)
    }

    fn inode_uppers(&self) -> Vec<u64> {
        self.inner.inode_uppers()
    }

    fn lookup(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<Entry> {
        match place(parent) {
            Level::Below => {}
            Level::Snapshots => return snapshots::lookup(&*self.inner, caller, parent, name),
            Level::Search => {
                let found = self.searches()?.lookup(caller, parent, name)?;
                // Copied: no lock is held over a call of the file system below.
                let shown = *self.shown.lock();
                let root = || self.inner.lookup(caller, shown, b".");
                return found.map_or_else(root, Ok);
            }
        }
        if name == self.snapshots {
            return snapshots::enter(&*self.inner, caller, parent);
        }
        match (self.inner.lookup(caller, parent, name), &self.searches) {
            // Another object of this name hides it.
            (Err(FsError::NotFound), Some(searches))
                if name == search::NAME && parent == *self.shown.lock() =>
            {
                Ok(searches.enter(caller))
            }
            (found, _) => found,
        }
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        if !snapshots::is_virtual(node) {
            self.inner.forget(node, lookups);
        }
    }

    fn getattr(&self, caller: &Caller, node: NodeId) -> FsResult<Attr> {
        match place(node) {
            Level::Below => self.inner.getattr(caller, node),
            Level::Snapshots => snapshots::getattr(&*self.inner, caller, node),
            Level::Search => self.searches()?.getattr(caller, node),
        }
    }

    fn setattr(&self, caller: &Caller, node: NodeId, changes: &SetAttr) -> FsResult<Attr> {
        self.inner.setattr(caller, below(node)?, changes)
    }

    fn access(&self, caller: &Caller, node: NodeId, mask: u32) -> FsResult<()> {
        match place(node) {
            Level::Below => self.inner.access(caller, node, mask),
            Level::Snapshots => self.inner.access(caller, snapshots::directory_of(node), mask),
            Level::Search if mask & WRITE == 0 => Ok(()),
            Level::Search => Err(search::REFUSED),
        }
    }

    fn readlink(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        match place(node) {
            Level::Search => self.searches()?.readlink(node),
            _ => self.inner.readlink(caller, below(node)?),
        }
    }

    fn readlink_untimed(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        match place(node) {
            Level::Search => self.searches()?.readlink(node),
            _ => self.inner.readlink_untimed(caller, below(node)?),
        }
    }

    fn mknod(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        new: &NewNode,
    ) -> FsResult<Entry> {
        self.is_free(name)?;
        self.inner.mknod(caller, below(parent)?, name, new)
    }

    /// In a directory of snapshots this takes a snapshot.
    fn mkdir(&self, caller: &Caller, parent: NodeId, name: &[u8], mode: u32) -> FsResult<Entry> {
        if matches!(place(parent), Level::Snapshots) {
            let directory = snapshots::directory_of(parent);
            self.inner.take_snapshot(caller, directory, name)?;
            return self.inner.find_snapshot(caller, directory, name);
        }
        self.is_free(name)?;
        self.inner.mkdir(caller, below(parent)?, name, mode)
    }

    fn symlink(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> FsResult<Entry> {
        self.is_free(name)?;
        self.inner.symlink(caller, below(parent)?, name, target)
    }

    fn link(&self, caller: &Caller, node: NodeId, parent: NodeId, name: &[u8]) -> FsResult<Entry> {
        self.is_free(name)?;
        self.inner.link(caller, below(node)?, below(parent)?, name)
    }

    fn unlink(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<()> {
        if matches!(place(parent), Level::Snapshots) {
            return Err(FsError::IsDirectory);
        }
        self.is_stored(name)?;
        self.inner.unlink(caller, below(parent)?, name)
    }

    /// In a directory of snapshots this deletes a snapshot, whether it is empty or not.
    fn rmdir(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<()> {
        if matches!(place(parent), Level::Snapshots) {
            return self.inner.delete_snapshot(caller, snapshots::directory_of(parent), name);
        }
        self.is_stored(name)?;
        self.inner.rmdir(caller, below(parent)?, name)
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        mode: RenameMode,
    ) -> FsResult<()> {
        match (place(from.0), place(to.0)) {
            (Level::Below, Level::Below) => {}
            (Level::Search, _) | (_, Level::Search) => return Err(search::REFUSED),
            (Level::Snapshots, Level::Snapshots) => {
                return snapshots::rename(&*self.inner, caller, from, to, mode);
            }
            _ => return Err(FsError::CrossSubvolume("a directory of snapshots")),
        }
        self.is_stored(from.1)?;
        self.is_free(to.1)?;
        self.inner.rename(caller, from, to, mode)
    }

    fn read(
        &self,
        caller: &Caller,
        node: NodeId,
        offset: u64,
        buffer: &mut [u8],
    ) -> FsResult<usize> {
        self.inner.read(caller, below(node)?, offset, buffer)
    }

    fn read_untimed(
        &self,
        caller: &Caller,
        node: NodeId,
        offset: u64,
        buffer: &mut [u8],
    ) -> FsResult<usize> {
        self.inner.read_untimed(caller, below(node)?, offset, buffer)
    }

    fn write(&self, caller: &Caller, node: NodeId, offset: u64, bytes: &[u8]) -> FsResult<()> {
        self.inner.write(caller, below(node)?, offset, bytes)
    }

    fn tmpfile(&self, caller: &Caller, parent: NodeId, mode: u32) -> FsResult<Entry> {
        self.inner.tmpfile(caller, below(parent)?, mode)
    }

    fn seek(&self, caller: &Caller, node: NodeId, offset: u64, what: Seek) -> FsResult<u64> {
        self.inner.seek(caller, below(node)?, offset, what)
    }

    fn fallocate(
        &self,
        caller: &Caller,
        node: NodeId,
        range: (u64, u64),
        mode: Allocate,
    ) -> FsResult<()> {
        self.inner.fallocate(caller, below(node)?, range, mode)
    }

    fn copy_range(
        &self,
        caller: &Caller,
        from: (NodeId, u64),
        to: (NodeId, u64),
        length: u64,
    ) -> FsResult<u64> {
        let (from, to) = ((below(from.0)?, from.1), (below(to.0)?, to.1));
        self.inner.copy_range(caller, from, to, length)
    }

    fn fsync(&self, node: NodeId, scope: SyncScope) -> FsResult<()> {
        match place(node) {
            Level::Below => self.inner.fsync(node, scope),
            Level::Snapshots => self.inner.fsync(snapshots::directory_of(node), scope),
            Level::Search => Ok(()),
        }
    }

    fn sync_all(&self) -> FsResult<()> {
        self.inner.sync_all()
    }

    fn unsettled(&self) -> Option<u64> {
        self.inner.unsettled()
    }

    fn settle(&self, position: u64) -> FsResult<()> {
        self.inner.settle(position)
    }

    fn readdir(
        &self,
        caller: &Caller,
        directory: NodeId,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        let from = (cookie, false);
        match place(directory) {
            Level::Below => self.inner.readdir(caller, directory, cookie, take),
            Level::Snapshots => {
                snapshots::readdir(&*self.inner, caller, directory, from, &self.listed, take)
            }
            Level::Search => self.searches()?.readdir(caller, directory, from, take),
        }
    }

    fn readdirplus(
        &self,
        caller: &Caller,
        directory: NodeId,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        let from = (cookie, true);
        match place(directory) {
            Level::Below => self.inner.readdirplus(caller, directory, cookie, take),
            Level::Snapshots => {
                snapshots::readdir(&*self.inner, caller, directory, from, &self.listed, take)
            }
            Level::Search => self.searches()?.readdir(caller, directory, from, take),
        }
    }

    fn statfs(&self, node: NodeId) -> FsResult<StatFs> {
        match place(node) {
            Level::Below => self.inner.statfs(node),
            Level::Snapshots => self.inner.statfs(snapshots::directory_of(node)),
            Level::Search => {
                let shown = *self.shown.lock();
                self.inner.statfs(shown)
            }
        }
    }

    fn getxattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<Vec<u8>> {
        match place(node) {
            Level::Below => self.inner.getxattr(caller, node, name),
            // On a mount the kernel reads the list of a virtual directory like any other's.
            Level::Snapshots => snapshots::getxattr(&*self.inner, caller, node, name),
            Level::Search => Err(FsError::NoAttribute),
        }
    }

    fn listxattr(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        match place(node) {
            Level::Below => self.inner.listxattr(caller, node),
            Level::Snapshots => snapshots::listxattr(&*self.inner, caller, node),
            Level::Search => Ok(Vec::new()),
        }
    }

    fn setxattr(
        &self,
        caller: &Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        mode: SetXattr,
    ) -> FsResult<()> {
        self.inner.setxattr(caller, below(node)?, name, value, mode)
    }

    fn removexattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<()> {
        self.inner.removexattr(caller, below(node)?, name)
    }

    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn set_invalidate(&self, invalidate: Arc<dyn Invalidate>) {
        self.inner.set_invalidate(Arc::new(invalidate::Forward {
            to: invalidate,
            snapshots: self.snapshots.clone(),
            shown: Arc::clone(&self.shown),
        }));
    }

    fn is_in_snapshot(&self, node: NodeId) -> bool {
        !snapshots::is_virtual(node) && self.inner.is_in_snapshot(node)
    }

    fn holds_name(&self, directory: NodeId, name: &[u8]) -> bool {
        match place(directory) {
            Level::Below => self.inner.holds_name(directory, name),
            Level::Snapshots => self.inner.holds_snapshot(snapshots::directory_of(directory), name),
            Level::Search => false,
        }
    }

    fn set_shown_root(&self, root: NodeId) {
        *self.shown.lock() = root;
        self.inner.set_shown_root(root);
    }

    #[inline]
    fn opened(&self, caller: &Caller, node: NodeId, flags: u32) -> FsResult<()> {
        match place(node) {
            Level::Below => self.inner.opened(caller, node, flags),
            Level::Snapshots | Level::Search => Ok(()),
        }
    }

    fn create(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        how: (u32, u32),
    ) -> FsResult<Entry> {
        self.is_free(name)?;
        self.inner.create(caller, below(parent)?, name, how)
    }

    fn append(&self, caller: &Caller, node: NodeId, bytes: &[u8]) -> FsResult<()> {
        self.inner.append(caller, below(node)?, bytes)
    }

    fn open(&self, caller: &Caller, node: NodeId, flags: u32) -> FsResult<bool> {
        match place(node) {
            Level::Below => self.inner.open(caller, node, flags),
            Level::Snapshots | Level::Search => Ok(true),
        }
    }

    fn epoch(&self) -> u64 {
        self.inner.epoch()
    }

    fn keeps_locks(&self) -> bool {
        self.inner.keeps_locks()
    }

    fn lock(&self, caller: &Caller, node: NodeId, lock: &FileLock, wait: bool) -> FsResult<Locked> {
        self.inner.lock(caller, below(node)?, lock, wait)
    }

    fn test_lock(
        &self,
        caller: &Caller,
        node: NodeId,
        lock: &FileLock,
    ) -> FsResult<Option<FileLock>> {
        self.inner.test_lock(caller, below(node)?, lock)
    }

    fn unlock(&self, caller: &Caller, node: NodeId, owner: u64, whole: bool) -> FsResult<()> {
        match place(node) {
            Level::Below => self.inner.unlock(caller, node, owner, whole),
            // Nothing is locked there.
            Level::Snapshots | Level::Search => Ok(()),
        }
    }

    fn released(&self, caller: &Caller, node: NodeId) {
        if let Level::Below = place(node) {
            self.inner.released(caller, node);
        }
    }

    fn waits(&self) -> Waits {
        self.inner.waits()
    }

    fn is_volatile(&self, node: NodeId) -> bool {
        search::is_volatile(node) || self.inner.is_volatile(node)
    }

    fn takes_snapshots(&self, directory: NodeId) -> bool {
        matches!(place(directory), Level::Snapshots)
    }

    fn copies_first(&self, node: NodeId, changes: bool) -> bool {
        matches!(place(node), Level::Below) && self.inner.copies_first(node, changes)
    }

    fn is_computed(&self, xattr: &[u8]) -> bool {
        self.inner.is_computed(xattr)
    }
}
