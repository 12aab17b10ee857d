//! The calls of a simulated disk, its open files and held locks.

use std::io;
use std::sync::Arc;

use device::{Device, Entry, Error, File, Lock, Metadata, Result, Space};

use super::content::{BLOCK, Change};
use super::device::{Entered, SimDevice, State};
use super::disk::NodeNo;
use super::fault::Op;

/// Size of a disk without a set capacity, in bytes.
const UNBOUNDED: u64 = 1 << 44;

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

impl Device for SimDevice {
    fn open(&self, path: &str) -> Result<Arc<dyn File>> {
        let node = self.simple(Op::Open, "open", path, |state| {
            let node = state.disk.find_file(path)?;
            state.disk.file(node).handles += 1;
            Ok(node)
        })?;
        Ok(Arc::new(SimFile::new(self.clone(), node, path)))
    }

    fn create(&self, path: &str) -> Result<Arc<dyn File>> {
        let node = self.simple(Op::Create, "open", path, |state| {
            let node = state.disk.create(path)?;
            state.disk.file(node).handles += 1;
            Ok(node)
        })?;
        Ok(Arc::new(SimFile::new(self.clone(), node, path)))
    }

    fn metadata(&self, path: &str) -> Result<Option<Metadata>> {
        self.simple(Op::Look, "stat", path, |state| match state.disk.find(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(node) => Ok(Some(match state.disk.files.get(&node) {
                None => Metadata { length: 0, disk_bytes: 0, directory: true },
                Some(file) => Metadata {
                    length: file.current.length(),
                    disk_bytes: file.current.blocks_reserved() * BLOCK,
                    directory: false,
                },
            })),
        })
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        self.simple(Op::Look, "list", directory, |state| {
            let node = state.disk.find_dir(directory)?;
            Ok(state.disk.dirs[&node].current.keys().cloned().collect())
        })
    }

    fn entries(&self, directory: &str) -> Result<Vec<Entry>> {
        self.simple(Op::Look, "list", directory, |state| {
            let node = state.disk.find_dir(directory)?;
            let entry = |(name, node): (&String, &NodeNo)| Entry {
                name: name.clone(),
                directory: state.disk.dirs.contains_key(node),
            };
            Ok(state.disk.dirs[&node].current.iter().map(entry).collect())
        })
    }

    fn create_dir(&self, directory: &str) -> Result<()> {
        self.simple(Op::CreateDir, "create directory", directory, |state| {
            state.disk.create_dir(directory)
        })
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.simple(Op::Rename, "rename", from, |state| state.disk.rename(from, to))
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<bool> {
        self.simple(Op::Rename, "rename", from, |state| match state.disk.find(to) {
            Ok(_) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                state.disk.rename(from, to).map(|()| true)
            }
            Err(error) => Err(error),
        })
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.simple(Op::Remove, "remove", path, |state| state.disk.remove(path))
    }

    fn sync_dir(&self, directory: &str) -> Result<()> {
        self.simple(Op::SyncDir, "sync directory", directory, |state| {
            state.disk.sync_dir(directory)
        })
    }

    fn space(&self) -> Result<Space> {
        self.simple(Op::Look, "statvfs", "", |state| {
            if let Some(bytes) = state.disk.stated {
                return Ok(Space { total_bytes: bytes, free_bytes: bytes, reserved_bytes: 0 });
            }
            let total_bytes = state.disk.blocks_max.map_or(UNBOUNDED, |blocks| blocks * BLOCK);
            let used_bytes = state.disk.blocks_used * BLOCK;
            let free_bytes = total_bytes.saturating_sub(used_bytes);
            Ok(Space { total_bytes, free_bytes, reserved_bytes: 0 })
        })
    }

    fn try_lock(&self, path: &str) -> Result<Option<Box<dyn Lock>>> {
        let exists = self.metadata(path)?.is_some();
        let op = if exists { Op::Open } else { Op::Create };
        let node = self.simple(op, "lock", path, |state| {
            let node = match state.disk.find_file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => state.disk.create(path)?,
                found => found?,
            };
            Ok(state.locked.insert(node).then(|| {
                state.disk.file(node).handles += 1;
                node
            }))
        })?;
        Ok(node.map(|node| {
            let file = SimFile::new(self.clone(), node, path);
            Box::new(SimLock::new(file)) as Box<dyn Lock>
        }))
    }
}
