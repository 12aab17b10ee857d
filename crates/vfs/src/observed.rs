//! Observes the calls of a front end: what was called, for how long, and how it ended.
//!
//! Invariants: [`Observed`] changes no argument and no result, and every call that reaches the file
//! system and can fail or take time is reported once, after it ends. Without an observer there is
//! no wrapper, so unobserved mounts pay nothing.

use std::sync::Arc;
use std::time::Duration;

use device::{Clock, Timestamp};
use inode::{Attr, Caller, FsError, NodeId, SetAttr};

use crate::{
    Allocate, DirEntry, Entry, FileLock, FileSystem, FsResult, Invalidate, Locked, NewNode,
    RenameMode, Seek, SetXattr, StatFs, SyncScope, Waits, WalkControl,
};

/// The kinds of calls, as reports name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// [`FileSystem::lookup`] and [`FileSystem::find_by_number`].
    Lookup,
    /// [`FileSystem::getattr`].
    Getattr,
    /// [`FileSystem::setattr`].
    Setattr,
    /// [`FileSystem::access`].
    Access,
    /// [`FileSystem::readlink`].
    Readlink,
    /// [`FileSystem::mknod`].
    Mknod,
    /// [`FileSystem::mkdir`].
    Mkdir,
    /// [`FileSystem::symlink`].
    Symlink,
    /// [`FileSystem::link`].
    Link,
    /// [`FileSystem::unlink`].
    Unlink,
    /// [`FileSystem::rmdir`].
    Rmdir,
    /// [`FileSystem::rename`].
    Rename,
    /// [`FileSystem::read`].
    Read,
    /// [`FileSystem::write`].
    Write,
    /// [`FileSystem::tmpfile`].
    Tmpfile,
    /// [`FileSystem::seek`].
    Seek,
    /// [`FileSystem::fallocate`].
    Fallocate,
    /// [`FileSystem::copy_range`].
    CopyRange,
    /// [`FileSystem::fsync`].
    Fsync,
    /// [`FileSystem::sync_all`].
    Sync,
    /// [`FileSystem::readdir`].
    Readdir,
    /// [`FileSystem::readdirplus`].
    Readdirplus,
    /// [`FileSystem::statfs`].
    Statfs,
    /// [`FileSystem::getxattr`].
    Getxattr,
    /// [`FileSystem::listxattr`].
    Listxattr,
    /// [`FileSystem::setxattr`].
    Setxattr,
    /// [`FileSystem::removexattr`].
    Removexattr,
}

impl Operation {
    /// All kinds, in the order of their declaration: `ALL[operation as usize]` is `operation`.
    pub const ALL: [Operation; 27] = [
        Operation::Lookup,
        Operation::Getattr,
        Operation::Setattr,
        Operation::Access,
        Operation::Readlink,
        Operation::Mknod,
        Operation::Mkdir,
        Operation::Symlink,
        Operation::Link,
        Operation::Unlink,
        Operation::Rmdir,
        Operation::Rename,
        Operation::Read,
        Operation::Write,
        Operation::Tmpfile,
        Operation::Seek,
        Operation::Fallocate,
        Operation::CopyRange,
        Operation::Fsync,
        Operation::Sync,
        Operation::Readdir,
        Operation::Readdirplus,
        Operation::Statfs,
        Operation::Getxattr,
        Operation::Listxattr,
        Operation::Setxattr,
        Operation::Removexattr,
    ];

    /// The name in reports: the call's, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Lookup => "lookup",
            Operation::Getattr => "getattr",
            Operation::Setattr => "setattr",
            Operation::Access => "access",
            Operation::Readlink => "readlink",
            Operation::Mknod => "mknod",
            Operation::Mkdir => "mkdir",
            Operation::Symlink => "symlink",
            Operation::Link => "link",
            Operation::Unlink => "unlink",
            Operation::Rmdir => "rmdir",
            Operation::Rename => "rename",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Tmpfile => "tmpfile",
            Operation::Seek => "seek",
            Operation::Fallocate => "fallocate",
            Operation::CopyRange => "copy_range",
            Operation::Fsync => "fsync",
            Operation::Sync => "sync",
            Operation::Readdir => "readdir",
            Operation::Readdirplus => "readdirplus",
            Operation::Statfs => "statfs",
            Operation::Getxattr => "getxattr",
            Operation::Listxattr => "listxattr",
            Operation::Setxattr => "setxattr",
            Operation::Removexattr => "removexattr",
        }
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With a result.
    Done,
    /// With an answer of POSIX that is not a result, such as "no such file" or "no space left".
    Refused,
    /// With damage, or a failed read or write: EIO.
    Failed,
}

impl Outcome {
    /// The outcome of a result.
    pub fn of<T>(result: &FsResult<T>) -> Outcome {
        match result {
            Ok(_) => Outcome::Done,
            Err(FsError::Io(_)) => Outcome::Failed,
            Err(_) => Outcome::Refused,
        }
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Refused => "refused",
            Outcome::Failed => "failed",
        }
    }
}

/// Learns of calls. Called by the threads that serve them, after each call.
pub trait Observer: Send + Sync {
    /// A call ended after this time.
    fn called(&self, operation: Operation, outcome: Outcome, took: Duration);
}

/// A file system whose calls an [`Observer`] learns of.
pub struct Observed {
    inner: Arc<dyn FileSystem>,
    observer: Arc<dyn Observer>,
    clock: Arc<dyn Clock>,
}

impl Observed {
    /// Observes the calls of `inner`; `clock` measures them.
    pub fn new(
        inner: Arc<dyn FileSystem>,
        observer: Arc<dyn Observer>,
        clock: Arc<dyn Clock>,
    ) -> Observed {
        Observed { inner, observer, clock }
    }

    fn time<T>(
        &self,
        operation: Operation,
        call: impl FnOnce(&dyn FileSystem) -> FsResult<T>,
    ) -> FsResult<T> {
        let began = self.clock.monotonic();
        let result = call(&*self.inner);
        let took = self.clock.monotonic().saturating_sub(began);
        self.observer.called(operation, Outcome::of(&result), took);
        result
    }
}

impl FileSystem for Observed {
    fn lookup(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<Entry> {
        self.time(Operation::Lookup, |fs| fs.lookup(caller, parent, name))
    }

    fn find_by_number(&self, top: NodeId, node: NodeId) -> FsResult<Entry> {
        self.time(Operation::Lookup, |fs| fs.find_by_number(top, node))
    }

    fn generation(&self, node: NodeId) -> u64 {
        self.inner.generation(node)
    }

    fn may_be_held(&self, node: NodeId) -> bool {
        self.inner.may_be_held(node)
    }

    fn inode_uppers(&self) -> Vec<u64> {
        self.inner.inode_uppers()
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        self.inner.forget(node, lookups);
    }

    fn getattr(&self, caller: &Caller, node: NodeId) -> FsResult<Attr> {
        self.time(Operation::Getattr, |fs| fs.getattr(caller, node))
    }

    fn setattr(&self, caller: &Caller, node: NodeId, changes: &SetAttr) -> FsResult<Attr> {
        self.time(Operation::Setattr, |fs| fs.setattr(caller, node, changes))
    }

    fn access(&self, caller: &Caller, node: NodeId, mask: u32) -> FsResult<()> {
        self.time(Operation::Access, |fs| fs.access(caller, node, mask))
    }

    fn readlink(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        self.time(Operation::Readlink, |fs| fs.readlink(caller, node))
    }

    fn readlink_untimed(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        self.time(Operation::Readlink, |fs| fs.readlink_untimed(caller, node))
    }

    fn mknod(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        new: &NewNode,
    ) -> FsResult<Entry> {
        self.time(Operation::Mknod, |fs| fs.mknod(caller, parent, name, new))
    }

    fn mkdir(&self, caller: &Caller, parent: NodeId, name: &[u8], mode: u32) -> FsResult<Entry> {
        self.time(Operation::Mkdir, |fs| fs.mkdir(caller, parent, name, mode))
    }

    fn symlink(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> FsResult<Entry> {
        self.time(Operation::Symlink, |fs| fs.symlink(caller, parent, name, target))
    }

    fn link(&self, caller: &Caller, node: NodeId, parent: NodeId, name: &[u8]) -> FsResult<Entry> {
        self.time(Operation::Link, |fs| fs.link(caller, node, parent, name))
    }

    fn unlink(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<()> {
        self.time(Operation::Unlink, |fs| fs.unlink(caller, parent, name))
    }

    fn rmdir(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<()> {
        self.time(Operation::Rmdir, |fs| fs.rmdir(caller, parent, name))
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        mode: RenameMode,
    ) -> FsResult<()> {
        self.time(Operation::Rename, |fs| fs.rename(caller, from, to, mode))
    }

    fn read(
        &self,
        caller: &Caller,
        node: NodeId,
        offset: u64,
        buffer: &mut [u8],
    ) -> FsResult<usize> {
        self.time(Operation::Read, |fs| fs.read(caller, node, offset, buffer))
    }

    fn read_untimed(
        &self,
        caller: &Caller,
        node: NodeId,
        offset: u64,
        buffer: &mut [u8],
    ) -> FsResult<usize> {
        self.time(Operation::Read, |fs| fs.read_untimed(caller, node, offset, buffer))
    }

    fn write(&self, caller: &Caller, node: NodeId, offset: u64, bytes: &[u8]) -> FsResult<()> {
        self.time(Operation::Write, |fs| fs.write(caller, node, offset, bytes))
    }

    fn create(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        how: (u32, u32),
    ) -> FsResult<Entry> {
        self.time(Operation::Mknod, |fs| fs.create(caller, parent, name, how))
    }

    fn append(&self, caller: &Caller, node: NodeId, bytes: &[u8]) -> FsResult<()> {
        self.time(Operation::Write, |fs| fs.append(caller, node, bytes))
    }

    fn open(&self, caller: &Caller, node: NodeId, flags: u32) -> FsResult<bool> {
        self.inner.open(caller, node, flags)
    }

    fn epoch(&self) -> u64 {
        self.inner.epoch()
    }

    fn keeps_locks(&self) -> bool {
        self.inner.keeps_locks()
    }

    fn lock(&self, caller: &Caller, node: NodeId, lock: &FileLock, wait: bool) -> FsResult<Locked> {
        self.inner.lock(caller, node, lock, wait)
    }

    fn test_lock(
        &self,
        caller: &Caller,
        node: NodeId,
        lock: &FileLock,
    ) -> FsResult<Option<FileLock>> {
        self.inner.test_lock(caller, node, lock)
    }

    fn unlock(&self, caller: &Caller, node: NodeId, owner: u64, whole: bool) -> FsResult<()> {
        self.inner.unlock(caller, node, owner, whole)
    }

    fn tmpfile(&self, caller: &Caller, parent: NodeId, mode: u32) -> FsResult<Entry> {
        self.time(Operation::Tmpfile, |fs| fs.tmpfile(caller, parent, mode))
    }

    fn seek(&self, caller: &Caller, node: NodeId, offset: u64, what: Seek) -> FsResult<u64> {
        self.time(Operation::Seek, |fs| fs.seek(caller, node, offset, what))
    }

    fn fallocate(
        &self,
        caller: &Caller,
        node: NodeId,
        range: (u64, u64),
        mode: Allocate,
    ) -> FsResult<()> {
        self.time(Operation::Fallocate, |fs| fs.fallocate(caller, node, range, mode))
    }

    fn copy_range(
        &self,
        caller: &Caller,
        from: (NodeId, u64),
        to: (NodeId, u64),
        length: u64,
    ) -> FsResult<u64> {
        self.time(Operation::CopyRange, |fs| fs.copy_range(caller, from, to, length))
    }

    fn fsync(&self, node: NodeId, scope: SyncScope) -> FsResult<()> {
        self.time(Operation::Fsync, |fs| fs.fsync(node, scope))
    }

    fn sync_all(&self) -> FsResult<()> {
        self.time(Operation::Sync, |fs| fs.sync_all())
    }

    fn settle(&self) -> FsResult<()> {
        self.inner.settle()
    }

    fn readdir(
        &self,
        caller: &Caller,
        directory: NodeId,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        self.time(Operation::Readdir, |fs| fs.readdir(caller, directory, cookie, take))
    }

    fn readdirplus(
        &self,
        caller: &Caller,
        directory: NodeId,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        self.time(Operation::Readdirplus, |fs| fs.readdirplus(caller, directory, cookie, take))
    }

    fn statfs(&self, node: NodeId) -> FsResult<StatFs> {
        self.time(Operation::Statfs, |fs| fs.statfs(node))
    }

    fn getxattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<Vec<u8>> {
        self.time(Operation::Getxattr, |fs| fs.getxattr(caller, node, name))
    }

    fn listxattr(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        self.time(Operation::Listxattr, |fs| fs.listxattr(caller, node))
    }

    fn setxattr(
        &self,
        caller: &Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        mode: SetXattr,
    ) -> FsResult<()> {
        self.time(Operation::Setxattr, |fs| fs.setxattr(caller, node, name, value, mode))
    }

    fn removexattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<()> {
        self.time(Operation::Removexattr, |fs| fs.removexattr(caller, node, name))
    }

    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn set_invalidate(&self, invalidate: Arc<dyn Invalidate>) {
        self.inner.set_invalidate(invalidate);
    }

    fn is_in_snapshot(&self, node: NodeId) -> bool {
        self.inner.is_in_snapshot(node)
    }

    fn holds_name(&self, directory: NodeId, name: &[u8]) -> bool {
        self.inner.holds_name(directory, name)
    }

    fn opened(&self, caller: &Caller, node: NodeId, flags: u32) -> FsResult<()> {
        self.inner.opened(caller, node, flags)
    }

    fn released(&self, caller: &Caller, node: NodeId) {
        self.inner.released(caller, node);
    }

    fn set_shown_root(&self, root: NodeId) {
        self.inner.set_shown_root(root);
    }

    fn is_volatile(&self, node: NodeId) -> bool {
        self.inner.is_volatile(node)
    }

    fn waits(&self) -> Waits {
        self.inner.waits()
    }

    fn takes_snapshots(&self, directory: NodeId) -> bool {
        self.inner.takes_snapshots(directory)
    }

    fn is_computed(&self, xattr: &[u8]) -> bool {
        self.inner.is_computed(xattr)
    }
}
