//! Faults on order: which call fails, and how. Given as data, before or during a run.

use std::io;

/// A call of `Device` or `File`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// `Device::open`.
    Open,
    /// `metadata`, `list`, `len`, `disk_bytes`, `space`.
    Look,
    /// `read_at`.
    Read,
    /// `write_at`, and `Lock::describe`.
    Write,
    /// `sync_data`.
    Sync,
    /// `set_len`.
    SetLen,
    /// `allocate`.
    Allocate,
    /// `punch`.
    Punch,
    /// `Device::create`, and `try_lock` of an absent file.
    Create,
    /// `create_dir`.
    CreateDir,
    /// `rename`.
    Rename,
    /// `remove`.
    Remove,
    /// `sync_dir`.
    SyncDir,
}

impl Op {
    /// Whether it changes the disk, and is counted by `SimDevice::ops`.
    pub fn changes(self) -> bool {
        !matches!(self, Op::Open | Op::Look | Op::Read)
    }
}

/// Which calls a fault counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultOn {
    /// One kind of call.
    Only(Op),
    /// Every call that changes the disk.
    AnyChange,
    /// `sync_data` and `sync_dir`.
    AnySync,
    /// Every call.
    Any,
}

impl FaultOn {
    fn matches(self, op: Op) -> bool {
        match self {
            FaultOn::Only(only) => only == op,
            FaultOn::AnyChange => op.changes(),
            FaultOn::AnySync => matches!(op, Op::Sync | Op::SyncDir),
            FaultOn::Any => true,
        }
    }
}

/// The error that a failing call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultError {
    /// EIO.
    Io,
    /// ENOSPC.
    NoSpace,
}

impl FaultError {
    /// As the operating system reports it.
    pub(super) fn to_io(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            FaultError::Io => 5,
            FaultError::NoSpace => 28,
        })
    }
}

/// A planned fault.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The calls that are counted.
    pub on: FaultOn,
    /// Number of them that pass before one fails, counted from the injection of the fault.
    pub after: u64,
    /// The error of the failing call.
    pub error: FaultError,
    /// Number of calls that fail from then on; `u64::MAX` for all.
    pub times: u64,
    /// Only calls on paths that start with this are counted.
    pub path: String,
}

impl Fault {
    /// One call fails with EIO.
    pub fn io(on: FaultOn, after: u64) -> Fault {
        Fault { on, after, error: FaultError::Io, times: 1, path: String::new() }
    }

    /// One call fails with ENOSPC.
    pub fn no_space(on: FaultOn, after: u64) -> Fault {
        Fault { on, after, error: FaultError::NoSpace, times: 1, path: String::new() }
    }

    /// The same fault on every counted call from the first failure on.
    #[must_use]
    pub fn forever(self) -> Fault {
        Fault { times: u64::MAX, ..self }
    }

    /// The same fault on paths that start with `path`.
    #[must_use]
    pub fn below(self, path: &str) -> Fault {
        Fault { path: path.to_owned(), ..self }
    }

    /// Counts a call, and returns whether it fails.
    pub(super) fn strikes(&mut self, op: Op, path: &str) -> bool {
        if self.times == 0 || !self.on.matches(op) || !path.starts_with(&self.path) {
            false
        } else if self.after > 0 {
            self.after -= 1;
            false
        } else {
            self.times = if self.times == u64::MAX { u64::MAX } else { self.times - 1 };
            true
        }
    }
}
