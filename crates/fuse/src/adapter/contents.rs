//! File contents: opening, reading, writing, making durable.
//!
//! Where the kernel checks permissions there is nothing to do at open, and it is told so: it
//! never asks again, and open and close cost no request. Otherwise opening is where permissions
//! are checked, once, and reading and writing through the open file are not checked again.

use std::cell::RefCell;

use fs::SyncScope;
use inode::{Caller, Enforce, NodeId, SetAttr, SetTime};

use super::{Adapter, Answer, Who, failed};
use crate::options::Atime;
use crate::set_id;

/// Longest read that the kernel sends: what was agreed as its largest request.
const READ_BYTES_MAX: usize = 1 << 20;
/// `relatime` brings the time of last read up to date after this long, in nanoseconds.
const DAY_NANOS: i64 = 86_400_000_000_000;
/// Set in the flags of an open that is for running the file; not in any header for programs.
const FOR_RUNNING: i32 = 0o40;

thread_local! {
    /// One buffer a thread, so that a read costs no allocation and no clearing.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What an open leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// The kernel need not ask again, for any file.
    NeverAsk,
    /// This file may be opened.
    Permitted,
}

impl Adapter {
    /// Opens a file; `flags` are those of open(2).
    pub(crate) fn open(&self, who: Who, number: u64, flags: i32) -> Answer<Opening> {
        if self.enforce == Enforce::Kernel {
            return Ok(Opening::NeverAsk);
        }
        let mask = match flags & libc::O_ACCMODE {
            libc::O_RDONLY if flags & FOR_RUNNING != 0 => 1,
            libc::O_RDONLY => 4,
            libc::O_WRONLY => 2,
            _ => 6,
        };
        self.access(who, number, mask)?;
        Ok(Opening::Permitted)
    }

    /// Opens a directory.
    pub(crate) fn opendir(&self, who: Who, number: u64) -> Answer<Opening> {
        self.open(who, number, libc::O_RDONLY)
    }

    /// Reads at most `size` bytes at `offset` and hands them to `send`.
    pub(crate) fn read(
        &self,
        who: Who,
        number: u64,
        offset: u64,
        size: u32,
        send: impl FnOnce(Answer<&[u8]>),
    ) {
        let caller = Adapter::opened(who);
        let node = self.node(number);
        let size = (size as usize).min(READ_BYTES_MAX);
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let read = self.fs.read(&caller, node, offset, &mut buffer[..size]);
            if read.is_ok() && self.atime == Atime::Relative {
                self.touch(&caller, node);
            }
            match read {
                Ok(length) => send(Ok(&buffer[..length])),
                Err(error) => send(Err(failed("read", number)(error))),
            }
        });
    }

    /// Brings the time of last read up to date, under the rule of `relatime`. A failure is not
    /// the reader's: the bytes were read.
    fn touch(&self, caller: &Caller, node: NodeId) {
        let Ok(attr) = self.fs.getattr(caller, node) else { return };
        let old = attr.atime <= attr.mtime
            || attr.atime <= attr.ctime
            || self.fs.now().0.saturating_sub(attr.atime.0) > DAY_NANOS;
        if old {
            let changes = SetAttr { atime: Some(SetTime::Now), ..SetAttr::default() };
            if let Err(error) = self.fs.setattr(caller, node, &changes) {
                tracing::debug!(node = node.0, %error, "the time of last read was not kept");
            }
        }
    }

    /// Writes at `offset`. `drop_set_id`: the kernel found that set-id bits must go.
    pub(crate) fn write(
        &self,
        who: Who,
        number: u64,
        offset: u64,
        bytes: &[u8],
        drop_set_id: bool,
    ) -> Answer<()> {
        let node = self.node(number);
        self.fs
            .write(&Adapter::opened(who), node, offset, bytes)
            .and_then(|()| if drop_set_id { set_id::after_write(&*self.fs, node) } else { Ok(()) })
            .map_err(failed("write", number))
    }

    /// Makes a file or directory durable.
    pub(crate) fn fsync(&self, number: u64, data_only: bool) -> Answer<()> {
        let scope = if data_only { SyncScope::Data } else { SyncScope::All };
        self.fs.fsync(self.node(number), scope).map_err(failed("fsync", number))
    }

    /// The target of a symbolic link.
    pub(crate) fn readlink(&self, who: Who, number: u64) -> Answer<Vec<u8>> {
        self.fs.readlink(&self.caller(who), self.node(number)).map_err(failed("readlink", number))
    }
}
