//! `Fs` as a [`FileSystem`]: each call is one file in `ops/`.

use std::sync::Arc;

use device::Timestamp;
use inode::{Attr, Caller, FsError, NodeId, SetAttr};

use crate::{
    DirEntry, Entry, FileSystem, Fs, FsResult, Invalidate, NewNode, RenameMode, SetXattr, StatFs,
    SyncScope, WalkControl,
};

#[expect(unused_variables, reason = "the bodies follow")]
impl FileSystem for Fs {
    fn lookup(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<Entry> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn forget(&self, node: NodeId, lookups: u64) {}

    fn getattr(&self, caller: &Caller, node: NodeId) -> FsResult<Attr> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn setattr(&self, caller: &Caller, node: NodeId, changes: &SetAttr) -> FsResult<Attr> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn access(&self, caller: &Caller, node: NodeId, mask: u32) -> FsResult<()> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn readlink(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn mknod(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        new: &NewNode,
    ) -> FsResult<Entry> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn mkdir(&self, caller: &Caller, parent: NodeId, name: &[u8], mode: u32) -> FsResult<Entry> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn symlink(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> FsResult<Entry> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn link(&self, caller: &Caller, node: NodeId, parent: NodeId, name: &[u8]) -> FsResult<Entry> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn unlink(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<()> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn rmdir(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<()> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        mode: RenameMode,
    ) -> FsResult<()> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn read(
        &self,
        caller: &Caller,
        node: NodeId,
        offset: u64,
        buffer: &mut [u8],
    ) -> FsResult<usize> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn write(&self, caller: &Caller, node: NodeId, offset: u64, bytes: &[u8]) -> FsResult<()> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn fsync(&self, node: NodeId, scope: SyncScope) -> FsResult<()> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn sync_all(&self) -> FsResult<()> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn readdir(
        &self,
        caller: &Caller,
        directory: NodeId,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn readdirplus(
        &self,
        caller: &Caller,
        directory: NodeId,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn statfs(&self) -> FsResult<StatFs> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn getxattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<Vec<u8>> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn listxattr(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn setxattr(
        &self,
        caller: &Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        mode: SetXattr,
    ) -> FsResult<()> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn removexattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<()> {
        Err(FsError::NotSupported("not built yet"))
    }

    fn now(&self) -> Timestamp {
        Timestamp(0)
    }

    fn set_invalidate(&self, invalidate: Arc<dyn Invalidate>) {}
}
