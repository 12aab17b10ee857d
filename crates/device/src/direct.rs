//! Reads that bypass the operating system's page cache, for measuring the disk: a file is read with
//! `O_DIRECT` and otherwise as [`LocalDevice`] reads it.
//!
//! Writes use the page cache. The kernel writes dirty pages of a range before it reads the range
//! directly, so a read sees every earlier write.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::OFlags;

use crate::{Device, Entry, Error, File, LocalDevice, Lock, Metadata, Result, Space};

/// Alignment of offsets, lengths and memory: enough for every disk.
const ALIGNMENT: usize = 4096;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Files below a directory, read without the page cache.
#[derive(Debug)]
pub struct DirectDevice {
    local: LocalDevice,
    reads: Arc<AtomicU64>,
}

impl DirectDevice {
    /// The directory must exist, on a file system that supports direct reads.
    pub fn open(root: &Path) -> Result<DirectDevice> {
        Ok(DirectDevice::over(LocalDevice::open(root)?))
    }

    /// The same for a directory that is open.
    pub fn over(local: LocalDevice) -> DirectDevice {
        DirectDevice { local, reads: Arc::default() }
    }

    /// Number of reads so far, of all files.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    fn direct(&self, path: &str, file: Arc<dyn File>) -> Result<Arc<dyn File>> {
        let direct = self
            .local
            .open_at(path, OFlags::RDONLY | OFlags::DIRECT)
            .map_err(|error| Error::new("open for direct reads", path, error))?;
        let (path, reads) = (path.to_owned(), Arc::clone(&self.reads));
        Ok(Arc::new(DirectFile { file, direct, path, reads }))
    }
}

impl Device for DirectDevice {
    fn open(&self, path: &str) -> Result<Arc<dyn File>> {
        self.direct(path, self.local.open(path)?)
    }

    fn create(&self, path: &str) -> Result<Arc<dyn File>> {
        self.direct(path, self.local.create(path)?)
    }

    fn metadata(&self, path: &str) -> Result<Option<Metadata>> {
        self.local.metadata(path)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        self.local.list(directory)
    }

    fn create_dir(&self, directory: &str) -> Result<()> {
        self.local.create_dir(directory)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.local.rename(from, to)
    }

    fn entries(&self, directory: &str) -> Result<Vec<Entry>> {
        self.local.entries(directory)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<bool> {
        self.local.rename_new(from, to)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.local.remove(path)
    }

    fn sync_dir(&self, directory: &str) -> Result<()> {
        self.local.sync_dir(directory)
    }

    fn is_elsewhere(&self, directory: &str) -> Result<bool> {
        self.local.is_elsewhere(directory)
    }

    fn space(&self) -> Result<Space> {
        self.local.space()
    }

    fn try_lock(&self, path: &str) -> Result<Option<Box<dyn Lock>>> {
        self.local.try_lock(path)
    }
}

struct DirectFile {
    file: Arc<dyn File>,
    direct: fs::File,
    path: String,
    reads: Arc<AtomicU64>,
}

impl DirectFile {
    /// Reads the aligned range around `offset..offset + buffer.len()` and copies the middle out.
    fn read(&self, scratch: &mut Vec<u8>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let before = offset as usize % ALIGNMENT;
        let wanted = (before + buffer.len()).next_multiple_of(ALIGNMENT);
        scratch.resize(scratch.len().max(wanted + ALIGNMENT), 0);
        let start = scratch.as_ptr().align_offset(ALIGNMENT);
        let aligned = &mut scratch[start..start + wanted];
        let mut filled = 0;
        while filled < wanted {
            let at = offset - before as u64 + filled as u64;
            match self.direct.read_at(&mut aligned[filled..], at) {
                Ok(0) => break,
                // A read of unaligned length ends at the end of the file.
                Ok(read) if read % ALIGNMENT != 0 => {
                    filled += read;
                    break;
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let read = filled.saturating_sub(before).min(buffer.len());
        buffer[..read].copy_from_slice(&aligned[before..before + read]);
        Ok(read)
    }
}

impl File for DirectFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        BUFFER
            .with_borrow_mut(|scratch| self.read(scratch, buffer, offset))
            .map_err(|error| Error::new("read", &self.path, error))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.file.set_len(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.file.allocate(offset, length)
    }

    fn punch(&self, offset: u64, length: u64) -> Result<bool> {
        self.file.punch(offset, length)
    }

    fn disk_bytes(&self) -> Result<u64> {
        self.file.disk_bytes()
    }

    fn occupied(&self, offset: u64, length: u64) -> Result<u64> {
        self.file.occupied(offset, length)
    }
}
