//! A file system whose calls are recorded.
//!
//! Invariants: [`Traced`] changes no argument and no result, and every call that can fail or take
//! time is recorded once, after it ended. Contents are not recorded, neither of files nor of
//! extended attributes: only their lengths are.

use format::trace::{Call, Event, Seeking};
use inode::{Attr, Caller, Kind, NodeId, SetAttr};
use vfs::{
    Allocate, DirEntry, Entry, FileSystem, FsResult, Layer, NewNode, RenameMode, Seek, SetXattr,
    StatFs, SyncScope, WalkControl,
};

use crate::fields::{allocating, attr, entry, kind, renaming, setting_xattr, settings};
use crate::record_call::Traced;

impl Layer for Traced {
    fn below(&self) -> &(dyn FileSystem + 'static) {
        &*self.inner
    }

    fn lookup(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<Entry> {
        self.call(
            Some(caller),
            |fs| fs.lookup(caller, parent, name),
            |found| Event {
                node: parent.shown(),
                name,
                found: entry(found),
                ..Event::new(Call::Lookup)
            },
        )
    }

    fn find_by_number(&self, top: NodeId, node: NodeId) -> FsResult<Entry> {
        self.call(
            None,
            |fs| fs.find_by_number(top, node),
            |found| Event {
                node: node.shown(),
                name: b".",
                found: entry(found),
                ..Event::new(Call::Lookup)
            },
        )
    }

    fn getattr(&self, caller: &Caller, node: NodeId) -> FsResult<Attr> {
        self.call(
            Some(caller),
            |fs| fs.getattr(caller, node),
            |found| Event {
                node: node.shown(),
                found: attr(node, found),
                ..Event::new(Call::Getattr)
            },
        )
    }

    fn setattr(&self, caller: &Caller, node: NodeId, changes: &SetAttr) -> FsResult<Attr> {
        self.call(
            Some(caller),
            |fs| fs.setattr(caller, node, changes),
            |found| Event { node: node.shown(), found: attr(node, found), ..settings(changes) },
        )
    }

    fn access(&self, caller: &Caller, node: NodeId, mask: u32) -> FsResult<()> {
        self.call(
            Some(caller),
            |fs| fs.access(caller, node, mask),
            |_| Event { node: node.shown(), how: mask, ..Event::new(Call::Access) },
        )
    }

    fn readlink(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        self.readlink_by(caller, node, |fs| fs.readlink(caller, node))
    }

    fn readlink_untimed(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        self.readlink_by(caller, node, |fs| fs.readlink_untimed(caller, node))
    }

    fn mknod(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        new: &NewNode,
    ) -> FsResult<Entry> {
        self.call(
            Some(caller),
            |fs| fs.mknod(caller, parent, name, new),
            |found| Event {
                node: parent.shown(),
                name,
                mode: new.mode,
                device: new.rdev,
                how: kind(new.kind).into(),
                found: entry(found),
                ..Event::new(Call::Mknod)
            },
        )
    }

    fn mkdir(&self, caller: &Caller, parent: NodeId, name: &[u8], mode: u32) -> FsResult<Entry> {
        self.call(
            Some(caller),
            |fs| fs.mkdir(caller, parent, name, mode),
            |found| Event {
                node: parent.shown(),
                name,
                mode,
                found: entry(found),
                ..Event::new(Call::Mkdir)
            },
        )
    }

    fn symlink(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> FsResult<Entry> {
        self.call(
            Some(caller),
            |fs| fs.symlink(caller, parent, name, target),
            |found| Event {
                node: parent.shown(),
                name,
                other_name: target,
                found: entry(found),
                ..Event::new(Call::Symlink)
            },
        )
    }

    fn link(&self, caller: &Caller, node: NodeId, parent: NodeId, name: &[u8]) -> FsResult<Entry> {
        self.call(
            Some(caller),
            |fs| fs.link(caller, node, parent, name),
            |found| Event {
                node: parent.shown(),
                name,
                other: node.shown(),
                found: entry(found),
                ..Event::new(Call::Link)
            },
        )
    }

    fn unlink(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<()> {
        self.call(
            Some(caller),
            |fs| fs.unlink(caller, parent, name),
            |_| Event { node: parent.shown(), name, ..Event::new(Call::Unlink) },
        )
    }

    fn rmdir(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<()> {
        self.call(
            Some(caller),
            |fs| fs.rmdir(caller, parent, name),
            |_| Event { node: parent.shown(), name, ..Event::new(Call::Rmdir) },
        )
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        mode: RenameMode,
    ) -> FsResult<()> {
        self.call(
            Some(caller),
            |fs| fs.rename(caller, from, to, mode),
            |_| Event {
                node: from.0.shown(),
                name: from.1,
                other: to.0.shown(),
                other_name: to.1,
                how: renaming(mode),
                ..Event::new(Call::Rename)
            },
        )
    }

    fn read(
        &self,
        caller: &Caller,
        node: NodeId,
        offset: u64,
        buffer: &mut [u8],
    ) -> FsResult<usize> {
        let length = buffer.len() as u64;
        self.call(
            Some(caller),
            |fs| fs.read(caller, node, offset, buffer),
            |read| reading(node, (offset, length), read),
        )
    }

    fn read_untimed(
        &self,
        caller: &Caller,
        node: NodeId,
        offset: u64,
        buffer: &mut [u8],
    ) -> FsResult<usize> {
        let length = buffer.len() as u64;
        self.call(
            Some(caller),
            |fs| fs.read_untimed(caller, node, offset, buffer),
            |read| reading(node, (offset, length), read),
        )
    }

    fn write(&self, caller: &Caller, node: NodeId, offset: u64, bytes: &[u8]) -> FsResult<()> {
        self.call(
            Some(caller),
            |fs| fs.write(caller, node, offset, bytes),
            |_| Event {
                node: node.shown(),
                offset,
                length: bytes.len() as u64,
                ..Event::new(Call::Write)
            },
        )
    }

    fn create(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        (mode, flags): (u32, u32),
    ) -> FsResult<Entry> {
        self.call(
            Some(caller),
            |fs| fs.create(caller, parent, name, (mode, flags)),
            |found| Event {
                node: parent.shown(),
                name,
                mode,
                how: kind(Kind::File).into(),
                found: entry(found),
                ..Event::new(Call::Mknod)
            },
        )
    }

    /// Recorded as a write at the end that the file has when it is recorded.
    fn append(&self, caller: &Caller, node: NodeId, bytes: &[u8]) -> FsResult<()> {
        let end = self.inner.getattr(caller, node).map_or(0, |attr| attr.size);
        self.call(
            Some(caller),
            |fs| fs.append(caller, node, bytes),
            |_| Event {
                node: node.shown(),
                offset: end,
                length: bytes.len() as u64,
                ..Event::new(Call::Write)
            },
        )
    }

    fn open(&self, caller: &Caller, node: NodeId, flags: u32) -> FsResult<bool> {
        self.call(
            Some(caller),
            |fs| fs.open(caller, node, flags),
            |_| Event { node: node.shown(), how: flags, ..Event::new(Call::Open) },
        )
    }

    fn tmpfile(&self, caller: &Caller, parent: NodeId, mode: u32) -> FsResult<Entry> {
        self.call(
            Some(caller),
            |fs| fs.tmpfile(caller, parent, mode),
            |found| Event {
                node: parent.shown(),
                mode,
                found: entry(found),
                ..Event::new(Call::Tmpfile)
            },
        )
    }

    fn seek(&self, caller: &Caller, node: NodeId, offset: u64, what: Seek) -> FsResult<u64> {
        let how = match what {
            Seek::Data => Seeking::DATA,
            Seek::Hole => Seeking::HOLE,
        };
        self.call(
            Some(caller),
            |fs| fs.seek(caller, node, offset, what),
            |found| {
                let returned = found.as_ref().map_or(0, |at| *at);
                Event { node: node.shown(), offset, how, returned, ..Event::new(Call::Seek) }
            },
        )
    }

    fn fallocate(
        &self,
        caller: &Caller,
        node: NodeId,
        range: (u64, u64),
        mode: Allocate,
    ) -> FsResult<()> {
        self.call(
            Some(caller),
            |fs| fs.fallocate(caller, node, range, mode),
            |_| Event {
                node: node.shown(),
                offset: range.0,
                length: range.1,
                how: allocating(mode),
                ..Event::new(Call::Fallocate)
            },
        )
    }

    fn copy_range(
        &self,
        caller: &Caller,
        from: (NodeId, u64),
        to: (NodeId, u64),
        length: u64,
    ) -> FsResult<u64> {
        self.call(
            Some(caller),
            |fs| fs.copy_range(caller, from, to, length),
            |copied| Event {
                node: from.0.shown(),
                offset: from.1,
                other: to.0.shown(),
                other_offset: to.1,
                length,
                returned: copied.as_ref().map_or(0, |bytes| *bytes),
                ..Event::new(Call::CopyRange)
            },
        )
    }

    fn fsync(&self, node: NodeId, scope: SyncScope) -> FsResult<()> {
        let how = u32::from(scope == SyncScope::Data);
        self.call(
            None,
            |fs| fs.fsync(node, scope),
            |_| Event { node: node.shown(), how, ..Event::new(Call::Fsync) },
        )
    }

    fn sync_all(&self) -> FsResult<()> {
        self.call(None, |fs| fs.sync_all(), |_| Event::new(Call::Sync))
    }

    fn readdir(
        &self,
        caller: &Caller,
        directory: NodeId,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        self.list(Call::Readdir, (caller, directory, cookie), take)
    }

    fn readdirplus(
        &self,
        caller: &Caller,
        directory: NodeId,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        self.list(Call::Readdirplus, (caller, directory, cookie), take)
    }

    fn statfs(&self, node: NodeId) -> FsResult<StatFs> {
        self.call(
            None,
            |fs| fs.statfs(node),
            |_| Event { node: node.shown(), ..Event::new(Call::Statfs) },
        )
    }

    fn getxattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<Vec<u8>> {
        self.call(
            Some(caller),
            |fs| fs.getxattr(caller, node, name),
            |got| Event {
                node: node.shown(),
                name,
                returned: got.as_ref().map_or(0, |bytes| bytes.len() as u64),
                ..Event::new(Call::Getxattr)
            },
        )
    }

    fn listxattr(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        self.call(
            Some(caller),
            |fs| fs.listxattr(caller, node),
            |got| Event {
                node: node.shown(),
                returned: got.as_ref().map_or(0, |bytes| bytes.len() as u64),
                ..Event::new(Call::Listxattr)
            },
        )
    }

    fn setxattr(
        &self,
        caller: &Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        mode: SetXattr,
    ) -> FsResult<()> {
        self.call(
            Some(caller),
            |fs| fs.setxattr(caller, node, name, value, mode),
            |_| Event {
                node: node.shown(),
                name,
                length: value.len() as u64,
                how: setting_xattr(mode),
                ..Event::new(Call::Setxattr)
            },
        )
    }

    fn removexattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<()> {
        self.call(
            Some(caller),
            |fs| fs.removexattr(caller, node, name),
            |_| Event { node: node.shown(), name, ..Event::new(Call::Removexattr) },
        )
    }

    fn opened(&self, caller: &Caller, node: NodeId, flags: u32) -> FsResult<()> {
        self.call(
            Some(caller),
            |fs| fs.opened(caller, node, flags),
            |_| Event { node: node.shown(), how: flags, ..Event::new(Call::Open) },
        )
    }

    fn released(&self, caller: &Caller, node: NodeId) {
        let release = |fs: &dyn FileSystem| {
            fs.released(caller, node);
            Ok(())
        };
        let describe = |_: &_| Event { node: node.shown(), ..Event::new(Call::Release) };
        self.call(Some(caller), release, describe).unwrap_or_default();
    }
}

/// A read of bytes, at a place and as long as requested.
fn reading(node: NodeId, (offset, length): (u64, u64), read: &FsResult<usize>) -> Event<'static> {
    Event {
        node: node.shown(),
        offset,
        length,
        returned: read.as_ref().map_or(0, |length| *length as u64),
        ..Event::new(Call::Read)
    }
}
