//! `Fs` as a [`FileSystem`]: each call is one file in `ops/`.

use std::sync::Arc;

use device::Timestamp;
use inode::{Attr, Caller, FsError, NodeId, SetAttr, SubvolId};
use ops::handles;
use ops::posix::{
    access, copy_range, fallocate, forget, fsync, getattr, link, lookup, mkdir, mknod, read,
    readdir, readlink, rename, rmdir, seek, setattr, statfs, symlink, tmpfile, totals, unlink,
    write, xattr,
};
use store::{CommitToken, Durability, Lsn};
use vfs::{
    Allocate, DirEntry, Entry, FileSystem, FsResult, Invalidate, NewNode, RenameMode, Seek,
    SetXattr, StatFs, SyncScope, Waits, WalkControl,
};
use volume::Atime;
use volume::error::from_store;

use crate::Fs;

impl FileSystem for Fs {
    fn find_by_number(&self, top: NodeId, node: NodeId) -> FsResult<Entry> {
        handles::find(self, top, node)
    }

    #[inline]
    fn generation(&self, node: NodeId) -> u64 {
        if self.subvols.slots.are_first() {
            return 0;
        }
        self.subvolume_of(node).map_or(0, SubvolId::generation)
    }

    fn may_be_held(&self, node: NodeId) -> bool {
        self.nodes.is_held(node)
    }

    fn inode_uppers(&self) -> Vec<u64> {
        self.numbers.uppers()
    }

    fn lookup(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<Entry> {
        lookup::lookup(self, caller, parent, name)
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        forget::forget(self, node, lookups);
    }

    fn getattr(&self, _caller: &Caller, node: NodeId) -> FsResult<Attr> {
        getattr::getattr(self, node)
    }

    fn setattr(&self, caller: &Caller, node: NodeId, changes: &SetAttr) -> FsResult<Attr> {
        self.with_space(|| setattr::setattr(self, &self.policies(), caller, node, changes))
    }

    fn access(&self, caller: &Caller, node: NodeId, mask: u32) -> FsResult<()> {
        access::access(self, caller, node, mask)
    }

    fn readlink(&self, _caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        readlink::readlink(self, &self.policies(), node, self.options.atime)
    }

    fn readlink_untimed(&self, _caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        readlink::readlink(self, &self.policies(), node, Atime::Never)
    }

    fn mknod(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        new: &NewNode,
    ) -> FsResult<Entry> {
        self.with_space(|| mknod::mknod(self, &self.policies(), caller, parent, name, new))
    }

    fn mkdir(&self, caller: &Caller, parent: NodeId, name: &[u8], mode: u32) -> FsResult<Entry> {
        self.with_space(|| mkdir::mkdir(self, &self.policies(), caller, parent, name, mode))
    }

    fn symlink(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> FsResult<Entry> {
        self.with_space(|| symlink::symlink(self, &self.policies(), caller, parent, name, target))
    }

    fn link(&self, caller: &Caller, node: NodeId, parent: NodeId, name: &[u8]) -> FsResult<Entry> {
        self.with_space(|| link::link(self, &self.policies(), caller, node, parent, name))
    }

    fn unlink(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<()> {
        self.removing(|policy| unlink::unlink(self, policy, caller, parent, name))
    }

    fn rmdir(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<()> {
        self.removing(|policy| rmdir::rmdir(self, policy, caller, parent, name))
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        mode: RenameMode,
    ) -> FsResult<()> {
        self.removing(|policy| rename::rename(self, policy, caller, from, to, mode))
    }

    fn read(
        &self,
        caller: &Caller,
        node: NodeId,
        offset: u64,
        buffer: &mut [u8],
    ) -> FsResult<usize> {
        read::read(self, &self.policies(), caller, node, (offset, self.options.atime), buffer)
    }

    fn read_untimed(
        &self,
        caller: &Caller,
        node: NodeId,
        offset: u64,
        buffer: &mut [u8],
    ) -> FsResult<usize> {
        read::read(self, &self.policies(), caller, node, (offset, Atime::Never), buffer)
    }

    fn write(&self, caller: &Caller, node: NodeId, offset: u64, bytes: &[u8]) -> FsResult<()> {
        self.with_space(|| write::write(self, &self.policies(), caller, node, offset, bytes))
    }

    fn append(&self, caller: &Caller, node: NodeId, bytes: &[u8]) -> FsResult<()> {
        self.with_space(|| write::append(self, &self.policies(), caller, node, bytes))
    }

    fn tmpfile(&self, caller: &Caller, parent: NodeId, mode: u32) -> FsResult<Entry> {
        self.with_space(|| tmpfile::tmpfile(self, &self.policies(), caller, parent, mode))
    }

    fn seek(&self, caller: &Caller, node: NodeId, offset: u64, what: Seek) -> FsResult<u64> {
        seek::seek(self, caller, node, offset, what)
    }

    fn fallocate(
        &self,
        caller: &Caller,
        node: NodeId,
        range: (u64, u64),
        mode: Allocate,
    ) -> FsResult<()> {
        let run = || fallocate::fallocate(self, &self.policies(), caller, node, range, mode);
        match mode {
            // A failed request for space does not empty the trash: otherwise anyone could have the
            // trash deleted by requesting much.
            Allocate::Grow | Allocate::Keep => run(),
            Allocate::Punch | Allocate::Zero | Allocate::ZeroKeep => self.with_space(run),
        }
    }

    fn copy_range(
        &self,
        caller: &Caller,
        from: (NodeId, u64),
        to: (NodeId, u64),
        length: u64,
    ) -> FsResult<u64> {
        self.with_space(|| copy_range::copy_range(self, &self.policies(), caller, from, to, length))
    }

    fn fsync(&self, node: NodeId, scope: SyncScope) -> FsResult<()> {
        fsync::fsync(self, node, scope)
    }

    fn sync_all(&self) -> FsResult<()> {
        self.sync()
    }

    fn unsettled(&self) -> Option<u64> {
        let seen = self.store.last_commit();
        let is_settled = self.options.durability == Durability::Async
            || self.store.durable() >= seen
            || device::mutated("answers rest on what is not durable");
        (!is_settled).then_some(seen.0.0)
    }

    fn settle(&self, position: u64) -> FsResult<()> {
        self.store.settle(CommitToken(Lsn(position))).map_err(from_store)
    }

    fn readdir(
        &self,
        caller: &Caller,
        directory: NodeId,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        readdir::readdir(self, &self.policies(), caller, directory, cookie, take)
    }

    fn readdirplus(
        &self,
        caller: &Caller,
        directory: NodeId,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        readdir::readdirplus(self, &self.policies(), caller, directory, cookie, take)
    }

    fn statfs(&self, node: NodeId) -> FsResult<StatFs> {
        statfs::statfs_at(self, &self.policies(), node)
    }

    fn getxattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<Vec<u8>> {
        xattr::getxattr(self, caller, node, name)
    }

    fn listxattr(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        xattr::listxattr(self, caller, node)
    }

    fn setxattr(
        &self,
        caller: &Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        mode: SetXattr,
    ) -> FsResult<()> {
        match self
            .with_space(|| xattr::setxattr(self, &self.policies(), caller, node, name, value, mode))
        {
            Err(FsError::FileTooLarge) => Err(FsError::NoSpace),
            result => result,
        }
    }

    fn removexattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<()> {
        xattr::removexattr(self, &self.policies(), caller, node, name)
    }

    fn now(&self) -> Timestamp {
        self.env.clock.now()
    }

    fn waits(&self) -> Waits {
        volume::Core::waits(self)
    }

    fn set_invalidate(&self, invalidate: Arc<dyn Invalidate>) {
        self.register_invalidate(invalidate);
    }

    fn is_in_snapshot(&self, node: NodeId) -> bool {
        self.place(node).is_ok_and(|(subvol, _)| subvol.read_only)
    }

    fn copies_first(&self, node: NodeId, changes: bool) -> bool {
        ops::Ops::copies_first(self, node, changes)
    }

    fn holds_name(&self, directory: NodeId, name: &[u8]) -> bool {
        lookup::holds(self, directory, name)
    }

    fn set_shown_root(&self, root: NodeId) {
        self.show(root);
    }
    fn is_computed(&self, xattr: &[u8]) -> bool {
        totals::is_total(xattr)
    }
}
