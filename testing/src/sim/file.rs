//! Open files and held locks of a simulated disk.

use std::io;

use device::{Error, File, Lock, Result};

use super::content::{BLOCK, Change};
use super::device::{Entered, SimDevice, State};
use super::disk::NodeNo;
use super::fault::Op;

/// One open file. The node exists as long as this does, whatever happens to its names.
pub(super) struct SimFile {
    device: SimDevice,
    node: NodeNo,
    path: String,
}

impl SimFile {
    /// A handle that is already in the node's count.
    pub(super) fn new(device: SimDevice, node: NodeNo, path: &str) -> SimFile {
        SimFile { device, node, path: path.to_owned() }
    }

    /// Runs a call; a failing call first runs `failed`.
    fn call<T>(
        &self,
        op: Op,
        operation: &'static str,
        body: impl FnOnce(&mut State) -> io::Result<T>,
        failed: impl FnOnce(&mut State),
    ) -> Result<T> {
        let run = || {
            let Entered { mut state, fault } = self.device.begin(op, &self.path)?;
            match fault {
                None => body(&mut state),
                Some(error) => {
                    failed(&mut state);
                    Err(error)
                }
            }
        };
        run().map_err(|error| Error::new(operation, &self.path, error))
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let whole = |state: &mut State| {
            state.counts.written_bytes += bytes.len() as u64;
            state.disk.change(self.node, Change::Write { offset, bytes: bytes.into() })
        };
        let partly = |state: &mut State| {
            let written = state.random.usize(0..=bytes.len());
            let change = Change::Write { offset, bytes: bytes[..written].into() };
            // The call fails either way.
            state.disk.change(self.node, change).ok();
        };
        self.call(Op::Write, "write", whole, partly)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.device.state.lock();
        state.disk.file(self.node).handles -= 1;
        state.disk.release(self.node);
    }
}

impl File for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let read = |state: &mut State| {
            let read = state.disk.file(self.node).current.read(buffer, offset);
            state.counts.read_bytes += read as u64;
            Ok(read)
        };
        self.call(Op::Read, "read", read, |_| ()).map_err(|error| error.at(offset))
    }

    fn prefetch(&self, offset: u64, length: u64) {
        // A hint, not an operation: a power cut after it leaves the same as one before.
        self.device.state.lock().counts.prefetched.push((self.path.clone(), offset, length));
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.write(bytes, offset)
    }

    fn sync_data(&self) -> Result<()> {
        let sync = |state: &mut State| {
            state.disk.sync_file(self.node);
            Ok(())
        };
        let failed = |state: &mut State| {
            state.disk.sync_file_failed(self.node, &mut state.random);
        };
        self.call(Op::Sync, "sync", sync, failed)
    }

    fn len(&self) -> Result<u64> {
        let look = |state: &mut State| Ok(state.disk.file(self.node).current.length());
        self.call(Op::Look, "stat", look, |_| ())
    }

    fn set_len(&self, length: u64) -> Result<()> {
        let change = |state: &mut State| state.disk.change(self.node, Change::SetLen(length));
        self.call(Op::SetLen, "set length", change, |_| ())
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        let range = offset..offset.saturating_add(length);
        let change = |state: &mut State| {
            if length == 0 {
                return Err(io::Error::from(io::ErrorKind::InvalidInput));
            }
            state.disk.change(self.node, Change::Allocate(range))
        };
        self.call(Op::Allocate, "allocate", change, |_| ())
    }

    fn punch(&self, offset: u64, length: u64) -> Result<bool> {
        let range = offset..offset.saturating_add(length);
        let change = |state: &mut State| {
            if length == 0 {
                return Err(io::Error::from(io::ErrorKind::InvalidInput));
            }
            state.disk.change(self.node, Change::Punch(range)).map(|()| true)
        };
        self.call(Op::Punch, "punch", change, |_| ())
    }

    fn disk_bytes(&self) -> Result<u64> {
        let look =
            |state: &mut State| Ok(state.disk.file(self.node).current.blocks_reserved() * BLOCK);
        self.call(Op::Look, "stat", look, |_| ())
    }

    fn occupied(&self, offset: u64, length: u64) -> Result<u64> {
        let look = |state: &mut State| {
            Ok(state.disk.file(self.node).current.blocks_in(offset, length) * BLOCK)
        };
        self.call(Op::Look, "seek", look, |_| ())
    }
}

/// A held lock.
pub(super) struct SimLock {
    file: SimFile,
}

impl SimLock {
    /// The lock of a file that is marked as locked.
    pub(super) fn new(file: SimFile) -> SimLock {
        SimLock { file }
    }
}

impl Lock for SimLock {
    fn describe(&self, text: &str) -> Result<()> {
        self.file.set_len(0)?;
        self.file.write(text.as_bytes(), 0)
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.file.device.state.lock().locked.remove(&self.file.node);
    }
}
