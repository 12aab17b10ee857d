//! File contents: read, write, sync.
//!
//! The kernel checks permissions, once, when a file is opened. Reads and writes through the open
//! file are not checked again.

use std::cell::RefCell;

use inode::permissions::without_set_id;
use inode::{Caller, Ends, FsError, NodeId};
use vfs::{Allocate, Seek, SyncScope};

use super::{Adapter, Answer, Who, failed};
use crate::capability;
use crate::errno::Errno;

/// Longest read that the kernel sends: the negotiated largest request.
const READ_BYTES_MAX: usize = 1 << 20;
/// Longest copy that is answered as one.
const COPY_BYTES_MAX: u64 = 1 << 30;

thread_local! {
    /// One buffer per thread, so that a read costs no allocation and no clearing.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Adapter {
    /// Reads at most `size` bytes at `offset` and passes them to `send`; `flags` are those that the
    /// file was opened with.
    pub(crate) fn read(
        &self,
        who: Who,
        number: u64,
        (offset, size): (u64, u32),
        flags: i32,
        send: impl FnOnce(Answer<&[u8]>),
    ) {
        // Until the answer is sent.
        let _reading = self.is_remote.then(|| self.reads.begin(number));
        let caller = self.caller(who);
        let node = self.node(number);
        let size = (size as usize).min(READ_BYTES_MAX);
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let buffer = &mut buffer[..size];
            let read = match flags & libc::O_NOATIME {
                0 => self.fs.read(&caller, node, offset, buffer),
                _ => self.fs.read_untimed(&caller, node, offset, buffer),
            };
            match read {
                Ok(length) => send(Ok(&buffer[..length])),
                Err(error) => send(Err(failed("read", number)(error))),
            }
        });
    }

    /// Writes at `offset`. `ends_rights`: the kernel found that the writer's change ends the rights
    /// that the file gives to users who execute it.
    pub(crate) fn write(
        &self,
        who: Who,
        number: u64,
        offset: u64,
        bytes: &[u8],
        ends_rights: bool,
    ) -> Answer<()> {
        let mut caller = self.caller(who);
        caller.ends = Ends { set_id: ends_rights, capabilities: ends_rights };
        self.fs.write(&caller, self.node(number), offset, bytes).map_err(failed("write", number))
    }

    /// Like `write`, for pages that the kernel cached from stores into a map. If a snapshot refuses
    /// a write, it is not in the file, so it must not be read from the kernel's cache either. (No
    /// more is dropped: the kernel would first write what was stored since, and wait for that.)
    pub(crate) fn write_kept(
        &self,
        who: Who,
        number: u64,
        offset: u64,
        bytes: &[u8],
        ends_rights: bool,
    ) -> Answer<()> {
        let owner = self.owner_of(who, number);
        let done = owner.and_then(|owner| self.write(owner, number, offset, bytes, ends_rights));
        if let (Err(Errno(libc::EROFS)), Some(notices)) = (&done, self.notices()) {
            notices.refused(number, offset, bytes.len() as u64);
        }
        done
    }

    /// The owner of a file, in place of an unknown writer: quotas apply to the owner.
    fn owner_of(&self, who: Who, number: u64) -> Answer<Who> {
        let attr = self.fs.getattr(&self.caller(who), self.node(number));
        let attr = attr.map_err(failed("write", number))?;
        Ok(Who { uid: attr.uid, gid: attr.gid, ..who })
    }

    /// The rights for a change of contents if the kernel does not send what it ends. The code
    /// checks for the superuser only if there are bits to keep.
    fn changing(&self, who: Who, node: NodeId) -> Caller {
        let mut caller = self.caller(who);
        let bears = |mode| without_set_id(mode) != mode;
        let set_id = caller.is_root()
            && self.fs.getattr(&caller, node).is_ok_and(|attr| bears(attr.mode))
            && !capability::keeps_set_id(who.pid);
        caller.ends = Ends { set_id, capabilities: true };
        caller
    }

    /// The next data or hole; `what` is that of lseek(2).
    ///
    /// A hole may have pages that a program stored into a shared map and the kernel has not written
    /// yet. The kernel does not write them before it sends this request. So each hole that an
    /// answer relies on is written back first, and then checked again. Data stays cached. This
    /// waits for requests of the kernel: a thread that serves those must not call it.
    pub(crate) fn seek(&self, who: Who, number: u64, offset: i64, what: i32) -> Answer<u64> {
        let what = match what {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::INVALID),
        };
        let offset = u64::try_from(offset).map_err(|_| Errno::NO_DATA_THERE)?;
        let (caller, node) = (self.caller(who), self.node(number));
        let seek = |offset, what| match self.fs.seek(&caller, node, offset, what) {
            Err(FsError::PastEnd) => Ok(None),
            found => found.map(Some),
        };
        let mut written_to = offset;
        loop {
            let found = seek(offset, what).map_err(failed("seek", number))?;
            let size = self.fs.getattr(&caller, node).map_err(failed("seek", number))?.size;
            let hole = match (what, found) {
                (Seek::Data, found) => (offset, found.unwrap_or(size)),
                (Seek::Hole, Some(at)) if at < size => {
                    let next = seek(at, Seek::Data).map_err(failed("seek", number))?;
                    (at, next.unwrap_or(size))
                }
                (Seek::Hole, _) => (size, size),
            };
            let (from, to) = (hole.0.max(written_to), hole.1);
            match self.notices() {
                Some(notices) if from < to => notices.write_back(number, from, to - from),
                _ => return found.ok_or(Errno::NO_DATA_THERE),
            }
            written_to = to;
        }
    }

    /// Allocates, or makes holes; `mode` is that of fallocate(2).
    pub(crate) fn fallocate(
        &self,
        who: Who,
        number: u64,
        range: (u64, u64),
        mode: i32,
    ) -> Answer<()> {
        const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
        const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
        const ZERO_KEEP: i32 = ZERO | KEEP;
        let mode = match mode {
            0 => Allocate::Grow,
            KEEP => Allocate::Keep,
            PUNCH => Allocate::Punch,
            ZERO => Allocate::Zero,
            ZERO_KEEP => Allocate::ZeroKeep,
            _ => return Err(Errno::NOT_SUPPORTED),
        };
        let node = self.node(number);
        self.fs
            .fallocate(&self.changing(who, node), node, range, mode)
            .map_err(failed("fallocate", number))
    }

    /// Copies between open files, or within one.
    pub(crate) fn copy_range(
        &self,
        who: Who,
        from: (u64, u64),
        to: (u64, u64),
        length: u64,
    ) -> Answer<u32> {
        // The answer has 32 bits; the caller continues from there.
        let length = length.min(COPY_BYTES_MAX);
        let (source, target) = ((self.node(from.0), from.1), (self.node(to.0), to.1));
        self.fs
            .copy_range(&self.changing(who, target.0), source, target, length)
            .map(|copied| copied as u32)
            .map_err(failed("copy_range", to.0))
    }

    /// What a handle of the kernel names: the session with the server in which it was opened.
    pub(crate) fn epoch(&self) -> u64 {
        self.fs.epoch()
    }

    /// Reports an open to the file system.
    pub(crate) fn opened(&self, who: Who, number: u64, flags: u32) -> Answer<()> {
        let opened = self.fs.opened(&self.caller(who), self.node(number), flags);
        opened.map_err(failed("open", number))
    }

    /// Opens a file of another machine; returns whether the kernel may keep the pages that it has.
    pub(crate) fn open(&self, who: Who, number: u64, flags: u32) -> Answer<bool> {
        let opened = self.fs.open(&self.caller(who), self.node(number), flags);
        let keeps = opened.map_err(failed("open", number))?;
        Ok(self.reads.opened(number, keeps))
    }

    /// Writes at the end of a file that others write to, too.
    pub(crate) fn append(
        &self,
        who: Who,
        number: u64,
        bytes: &[u8],
        ends_rights: bool,
    ) -> Answer<()> {
        let mut caller = self.caller(who);
        caller.ends = Ends { set_id: ends_rights, capabilities: ends_rights };
        self.fs.append(&caller, self.node(number), bytes).map_err(failed("write", number))
    }

    /// Reports a close to the file system.
    pub(crate) fn released(&self, who: Who, number: u64) {
        self.fs.released(&self.caller(who), self.node(number));
    }

    /// Syncs a file or directory.
    pub(crate) fn fsync(&self, number: u64, data_only: bool) -> Answer<()> {
        let scope = if data_only { SyncScope::Data } else { SyncScope::All };
        self.fs.fsync(self.node(number), scope).map_err(failed("fsync", number))
    }

    /// The target of a symbolic link.
    pub(crate) fn readlink(&self, who: Who, number: u64) -> Answer<Vec<u8>> {
        self.fs.readlink(&self.caller(who), self.node(number)).map_err(failed("readlink", number))
    }
}
