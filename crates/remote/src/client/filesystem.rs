//! `RemoteFs`: a file system whose every call is a message to a server. It caches nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use device::sync::Mutex;
use device::{Clock, Timestamp};
use inode::{Attr, Caller, Kind, NodeId, SetAttr};
use vfs::{
    Allocate, DirEntry, Entry, FileLock, FileSystem, FsResult, Invalidate, Locked, NewNode,
    RenameMode, Seek, SetXattr, StatFs, SyncScope, Waits, WalkControl,
};
use wire::PAYLOAD_BYTES_MAX;
use wire::remote::{
    Asker, FsAnswer, FsCall, Listed, LockKind, LockRange, OPEN_EXEC, OPEN_READ, OPEN_WRITE,
    WRITE_APPEND,
};

use super::kept::Kept;
use super::remote::Remote;
use crate::convert;

/// Bytes of a listing that are requested first: what fits one page of a kernel.
const LIST_BYTES_FIRST: u32 = 4 << 10;
/// And at most.
const LIST_BYTES_MAX: u32 = 128 << 10;

/// A file system of a server.
pub struct RemoteFs {
    remote: Arc<Remote>,
    kept: Arc<Kept>,
    clock: Arc<dyn Clock>,
    /// Owners of locks of fcntl(2), and their files: a close ends these, and only then needs a
    /// message.
    lockers: Mutex<BTreeSet<(NodeId, u64)>>,
}

/// Flags of open(2).
const ACCESS_MODE: u32 = 3;
const WRITE_ONLY: u32 = 1;
const READ_WRITE: u32 = 2;
/// Of the kernel: the file is opened to run it.
const TO_RUN: u32 = 0x20;

fn open_flags(flags: u32) -> u8 {
    let access = match flags & ACCESS_MODE {
        WRITE_ONLY => OPEN_WRITE,
        READ_WRITE => OPEN_READ | OPEN_WRITE,
        _ => OPEN_READ,
    };
    if flags & TO_RUN != 0 { access | OPEN_EXEC } else { access }
}

fn asker(caller: &Caller) -> Asker {
    let ends = u8::from(caller.ends.set_id) | u8::from(caller.ends.capabilities) << 1;
    Asker {
        uid: caller.uid,
        gid: caller.gid,
        groups: caller.groups.clone(),
        umask: caller.umask,
        ends,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it takes an answer apart")]
fn nothing(answer: FsAnswer<'_>) -> Option<()> {
    matches!(answer, FsAnswer::Nothing).then_some(())
}

#[expect(clippy::needless_pass_by_value, reason = "it takes an answer apart")]
fn number(answer: FsAnswer<'_>) -> Option<u64> {
    match answer {
        FsAnswer::Number(number) => Some(number),
        _ => None,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it takes an answer apart")]
fn attr(answer: FsAnswer<'_>) -> Option<Attr> {
    match answer {
        FsAnswer::Attr(attr) => convert::attr(&attr),
        _ => None,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it takes an answer apart")]
fn bytes(answer: FsAnswer<'_>) -> Option<Vec<u8>> {
    match answer {
        FsAnswer::Bytes(bytes) => Some(bytes.to_vec()),
        _ => None,
    }
}

fn lock_to_wire(lock: &FileLock) -> LockRange {
    let kind = match lock.kind {
        vfs::LockKind::Unlocked => LockKind::None,
        vfs::LockKind::Shared => LockKind::Shared,
        vfs::LockKind::Exclusive => LockKind::Exclusive,
    };
    let FileLock { owner, pid, start, end, whole, .. } = *lock;
    LockRange { owner, pid, kind, start, end, whole }
}

impl RemoteFs {
    /// The file system at the other end of a connection.
    pub fn new(remote: Arc<Remote>) -> RemoteFs {
        let (kept, lockers) = (Arc::clone(remote.kept()), Mutex::default());
        let clock = Arc::clone(&remote.clock);
        RemoteFs { remote, kept, clock, lockers }
    }

    fn ask<T>(
        &self,
        caller: &Caller,
        call: FsCall<'_>,
        read: impl FnOnce(FsAnswer<'_>) -> Option<T>,
    ) -> FsResult<T> {
        self.remote.call(asker(caller), call, read)
    }

    fn find(&self, caller: &Caller, call: FsCall<'_>) -> FsResult<Entry> {
        let opened = match call {
            FsCall::Create { flags, .. } | FsCall::TmpFile { flags, .. } => Some(flags),
            _ => None,
        };
        self.ask(caller, call, |answer| match answer {
            FsAnswer::Entry(entry) => self.found(&entry, opened),
            _ => None,
        })
    }

    fn found(&self, entry: &wire::remote::Entry, opened: Option<u8>) -> Option<Entry> {
        let (node, attr) = (convert::node(entry.node)?, convert::attr(&entry.attr)?);
        if node != NodeId::ROOT {
            self.kept.found(node, (entry.generation, entry.in_snapshot), entry.proof, opened);
        }
        Some(Entry { node, attr })
    }

    fn read_from(
        &self,
        caller: &Caller,
        node: NodeId,
        (mut offset, untimed): (u64, bool),
        buffer: &mut [u8],
    ) -> FsResult<usize> {
        let mut filled = 0;
        for part in buffer.chunks_mut(PAYLOAD_BYTES_MAX) {
            let length = part.len() as u32;
            let node = convert::node_to_wire(node);
            let call = FsCall::Read { node, offset, length, untimed };
            let count = self.ask(caller, call, |answer| match answer {
                FsAnswer::Bytes(bytes) => {
                    part.get_mut(..bytes.len())?.copy_from_slice(bytes);
                    Some(bytes.len())
                }
                _ => None,
            })?;
            filled += count;
            offset += count as u64;
            if count < part.len() {
                break;
            }
        }
        Ok(filled)
    }

    fn list(
        &self,
        caller: &Caller,
        directory: NodeId,
        mut cookie: u64,
        attributes: bool,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        let directory = convert::node_to_wire(directory);
        let mut bytes = LIST_BYTES_FIRST;
        loop {
            let call = FsCall::List { directory, cookie, attributes, bytes };
            let (listed, last) = self.ask(caller, call, |answer| match answer {
                FsAnswer::Listing(listed, last) => Some((listed, last)),
                _ => None,
            })?;
            let is_empty = listed.is_empty();
            let mut stopped = false;
            for Listed { name, node, kind, cookie: next, entry } in listed {
                let Some(node) = convert::node(node) else { continue };
                let entry = entry.and_then(|entry| self.found(&entry, None));
                if !stopped {
                    let attr = entry.as_ref().map(|entry| &entry.attr);
                    let cookie = next;
                    let control = take(&DirEntry { name: &name.0, node, kind, cookie, attr });
                    stopped = control == WalkControl::Stop;
                }
                if stopped {
                    // It was not taken.
                    if entry.is_some() {
                        self.forget(node, 1);
                    }
                    continue;
                }
                cookie = next;
            }
            if stopped || last || is_empty {
                return Ok(());
            }
            bytes = (bytes * 2).min(LIST_BYTES_MAX);
        }
    }

    fn write_with(
        &self,
        caller: &Caller,
        node: NodeId,
        (mut offset, flags): (u64, u8),
        bytes: &[u8],
    ) -> FsResult<()> {
        let node = convert::node_to_wire(node);
        for bytes in bytes.chunks(PAYLOAD_BYTES_MAX) {
            let call = FsCall::Write { node, offset, flags, bytes };
            self.ask(caller, call, nothing)?;
            offset = offset.saturating_add(bytes.len() as u64);
        }
        if bytes.is_empty() {
            let call = FsCall::Write { node, offset, flags, bytes };
            self.ask(caller, call, nothing)?;
        }
        Ok(())
    }
}

impl FileSystem for RemoteFs {
    fn lookup(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<Entry> {
        self.find(caller, FsCall::Lookup { parent: convert::node_to_wire(parent), name })
    }

    fn generation(&self, node: NodeId) -> u64 {
        self.kept.generation(node)
    }

    fn is_in_snapshot(&self, node: NodeId) -> bool {
        self.kept.is_in_snapshot(node)
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        if node != NodeId::ROOT {
            self.remote.forget(node, lookups);
        }
    }

    fn getattr(&self, caller: &Caller, node: NodeId) -> FsResult<Attr> {
        self.ask(caller, FsCall::GetAttr { node: convert::node_to_wire(node) }, attr)
    }

    fn setattr(&self, caller: &Caller, node: NodeId, changes: &SetAttr) -> FsResult<Attr> {
        let (node, changes) = (convert::node_to_wire(node), convert::changes_to_wire(changes));
        self.ask(caller, FsCall::SetAttr { node, changes }, attr)
    }

    fn access(&self, caller: &Caller, node: NodeId, mask: u32) -> FsResult<()> {
        self.ask(caller, FsCall::Access { node: convert::node_to_wire(node), mask }, nothing)
    }

    fn readlink(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        let node = convert::node_to_wire(node);
        self.ask(caller, FsCall::ReadLink { node, untimed: false }, bytes)
    }

    fn readlink_untimed(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        let node = convert::node_to_wire(node);
        self.ask(caller, FsCall::ReadLink { node, untimed: true }, bytes)
    }

    fn mknod(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        new: &NewNode,
    ) -> FsResult<Entry> {
        let (parent, NewNode { kind, mode, rdev }) = (convert::node_to_wire(parent), *new);
        self.find(caller, FsCall::MakeNode { parent, name, kind, mode, rdev })
    }

    fn create(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        (mode, flags): (u32, u32),
    ) -> FsResult<Entry> {
        let (parent, flags) = (convert::node_to_wire(parent), open_flags(flags));
        self.find(caller, FsCall::Create { parent, name, mode, flags })
    }

    fn mkdir(&self, caller: &Caller, parent: NodeId, name: &[u8], mode: u32) -> FsResult<Entry> {
        self.find(caller, FsCall::MakeDir { parent: convert::node_to_wire(parent), name, mode })
    }

    fn symlink(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> FsResult<Entry> {
        self.find(caller, FsCall::SymLink { parent: convert::node_to_wire(parent), name, target })
    }

    fn link(&self, caller: &Caller, node: NodeId, parent: NodeId, name: &[u8]) -> FsResult<Entry> {
        let (node, parent) = (convert::node_to_wire(node), convert::node_to_wire(parent));
        self.find(caller, FsCall::Link { node, parent, name })
    }

    fn unlink(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<()> {
        self.ask(caller, FsCall::Unlink { parent: convert::node_to_wire(parent), name }, nothing)
    }

    fn rmdir(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<()> {
        let parent = convert::node_to_wire(parent);
        self.ask(caller, FsCall::RemoveDir { parent, name }, nothing)
    }

    fn rename(
        &self,
        caller: &Caller,
        (from, from_name): (NodeId, &[u8]),
        (to, to_name): (NodeId, &[u8]),
        mode: RenameMode,
    ) -> FsResult<()> {
        let (from, to) = (convert::node_to_wire(from), convert::node_to_wire(to));
        let how = convert::renaming_to_wire(mode);
        self.ask(caller, FsCall::Rename { from, from_name, to, to_name, how }, nothing)
    }

    fn read(
        &self,
        caller: &Caller,
        node: NodeId,
        offset: u64,
        buffer: &mut [u8],
    ) -> FsResult<usize> {
        self.read_from(caller, node, (offset, false), buffer)
    }

    fn read_untimed(
        &self,
        caller: &Caller,
        node: NodeId,
        offset: u64,
        buffer: &mut [u8],
    ) -> FsResult<usize> {
        self.read_from(caller, node, (offset, true), buffer)
    }

    fn write(&self, caller: &Caller, node: NodeId, offset: u64, bytes: &[u8]) -> FsResult<()> {
        self.write_with(caller, node, (offset, 0), bytes)
    }

    fn append(&self, caller: &Caller, node: NodeId, bytes: &[u8]) -> FsResult<()> {
        self.write_with(caller, node, (0, WRITE_APPEND), bytes)
    }

    fn tmpfile(&self, caller: &Caller, parent: NodeId, mode: u32) -> FsResult<Entry> {
        let parent = convert::node_to_wire(parent);
        let flags = OPEN_READ | OPEN_WRITE;
        self.find(caller, FsCall::TmpFile { parent, mode, flags })
    }

    fn seek(&self, caller: &Caller, node: NodeId, offset: u64, what: Seek) -> FsResult<u64> {
        let node = convert::node_to_wire(node);
        self.ask(caller, FsCall::Seek { node, offset, hole: what == Seek::Hole }, number)
    }

    fn fallocate(
        &self,
        caller: &Caller,
        node: NodeId,
        (offset, length): (u64, u64),
        mode: Allocate,
    ) -> FsResult<()> {
        let (node, mode) = (convert::node_to_wire(node), convert::allocate_to_wire(mode));
        self.ask(caller, FsCall::Allocate { node, offset, length, mode }, nothing)
    }

    fn copy_range(
        &self,
        caller: &Caller,
        (from, from_offset): (NodeId, u64),
        (to, to_offset): (NodeId, u64),
        length: u64,
    ) -> FsResult<u64> {
        let (from, to) = (convert::node_to_wire(from), convert::node_to_wire(to));
        let call = FsCall::CopyRange { from, from_offset, to, to_offset, length };
        self.ask(caller, call, number)
    }

    fn fsync(&self, node: NodeId, scope: SyncScope) -> FsResult<()> {
        let node = convert::node_to_wire(node);
        let call = FsCall::Sync { node, data: scope == SyncScope::Data };
        self.remote.call(Asker::default(), call, nothing)
    }

    fn sync_all(&self) -> FsResult<()> {
        self.remote.call(Asker::default(), FsCall::SyncAll, nothing)
    }

    fn readdir(
        &self,
        caller: &Caller,
        directory: NodeId,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        self.list(caller, directory, cookie, false, take)
    }

    fn readdirplus(
        &self,
        caller: &Caller,
        directory: NodeId,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        self.list(caller, directory, cookie, true, take)
    }

    fn statfs(&self, node: NodeId) -> FsResult<StatFs> {
        let call = FsCall::Space { node: convert::node_to_wire(node) };
        self.remote.call(Asker::default(), call, |answer| match answer {
            FsAnswer::Space(space) => Some(convert::space(&space)),
            _ => None,
        })
    }

    fn getxattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<Vec<u8>> {
        self.ask(caller, FsCall::GetXattr { node: convert::node_to_wire(node), name }, bytes)
    }

    fn listxattr(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        self.ask(caller, FsCall::ListXattr { node: convert::node_to_wire(node) }, bytes)
    }

    fn setxattr(
        &self,
        caller: &Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        mode: SetXattr,
    ) -> FsResult<()> {
        let (node, how) = (convert::node_to_wire(node), convert::set_xattr_to_wire(mode));
        self.ask(caller, FsCall::SetXattr { node, name, value, how }, nothing)
    }

    fn removexattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<()> {
        self.ask(caller, FsCall::RemoveXattr { node: convert::node_to_wire(node), name }, nothing)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Nothing changes behind a front end that caches nothing.
    fn set_invalidate(&self, _invalidate: Arc<dyn Invalidate>) {}

    fn opened(&self, caller: &Caller, node: NodeId, flags: u32) -> FsResult<()> {
        self.open(caller, node, flags).map(drop)
    }

    fn open(&self, caller: &Caller, node: NodeId, flags: u32) -> FsResult<bool> {
        let flags = open_flags(flags);
        let call = FsCall::Open { node: convert::node_to_wire(node), flags };
        let attr = self.ask(caller, call, |answer| match answer {
            FsAnswer::Opened(attr, proof) => {
                let attr = convert::attr(&attr)?;
                self.kept.was_opened(node, flags, proof);
                Some(attr)
            }
            _ => None,
        })?;
        Ok(attr.kind == Kind::File && self.kept.opened(node, &attr))
    }

    fn released(&self, _caller: &Caller, node: NodeId) {
        self.remote.release(node);
    }

    fn waits(&self) -> Waits {
        Waits::All
    }

    fn lock(&self, caller: &Caller, node: NodeId, lock: &FileLock, wait: bool) -> FsResult<Locked> {
        if !lock.whole && lock.kind != vfs::LockKind::Unlocked {
            self.lockers.lock().insert((node, lock.owner));
        }
        let call =
            FsCall::Lock { node: convert::node_to_wire(node), lock: lock_to_wire(lock), wait };
        // Noted as part of reading: it is claimed from a server that takes over since.
        let read = |answer: FsAnswer<'_>| {
            let outcome = match answer {
                FsAnswer::Nothing => 0,
                answer => number(answer)?,
            };
            if outcome == 0 {
                self.remote.note_lock(node, lock_to_wire(lock));
            }
            Some(outcome)
        };
        match self.ask(caller, call, read)? {
            0 => Ok(Locked::Done),
            1 => Ok(Locked::Busy),
            3 => Ok(Locked::Deadlock),
            _ => Ok(Locked::TooMany),
        }
    }

    fn test_lock(
        &self,
        caller: &Caller,
        node: NodeId,
        lock: &FileLock,
    ) -> FsResult<Option<FileLock>> {
        let node = convert::node_to_wire(node);
        self.ask(caller, FsCall::TestLock { node, lock: lock_to_wire(lock) }, |answer| {
            let FsAnswer::Locked(found) = answer else { return None };
            Some(found.map(|found| FileLock {
                owner: found.owner,
                pid: found.pid,
                kind: match found.kind {
                    LockKind::None => vfs::LockKind::Unlocked,
                    LockKind::Shared => vfs::LockKind::Shared,
                    LockKind::Exclusive => vfs::LockKind::Exclusive,
                },
                start: found.start,
                end: found.end,
                whole: found.whole,
            }))
        })
    }

    fn unlock(&self, caller: &Caller, node: NodeId, owner: u64, whole: bool) -> FsResult<()> {
        if !whole && !self.lockers.lock().remove(&(node, owner)) {
            return Ok(());
        }
        self.remote.unlock(asker(caller), convert::node_to_wire(node), owner, whole)
    }

    fn epoch(&self) -> u64 {
        self.remote.epoch()
    }

    fn keeps_locks(&self) -> bool {
        true
    }
}
