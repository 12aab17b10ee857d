//! `Device`: the files of one volume directory.
//!
//! Paths are relative to the volume directory, in UTF-8, with `/` between components, without `..`.
//! `docs/guide/crash-safety.md` states the assumptions about the disk. Until `sync_data` returns,
//! any subset of the writes since the last one may be on disk, whole or torn at any 512-byte
//! sector. Until `sync_dir` returns, any subset of the creations, renames and removals in that
//! directory may be.

use std::io;
use std::sync::Arc;

use crate::{Error, Result};

/// The files of one volume directory.
pub trait Device: Send + Sync {
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &str) -> Result<Arc<dyn File>>;

    /// Creates a file that must not exist, for reading and writing.
    fn create(&self, path: &str) -> Result<Arc<dyn File>>;

    /// Metadata of a path, or `None` when it does not exist.
    fn metadata(&self, path: &str) -> Result<Option<Metadata>>;

    /// The names in a directory, sorted. An absent directory is an error.
    fn list(&self, directory: &str) -> Result<Vec<String>>;

    /// The same names, each with whether it is a directory.
    fn entries(&self, directory: &str) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for name in self.list(directory)? {
            let path =
                if directory.is_empty() { name.clone() } else { format!("{directory}/{name}") };
            // It may have been removed since.
            if let Some(found) = self.metadata(&path)? {
                entries.push(Entry { name, directory: found.directory });
            }
        }
        Ok(entries)
    }

    /// Creates a directory; its parent must exist. An existing directory is not an error.
    fn create_dir(&self, directory: &str) -> Result<()>;

    /// Renames a file, replacing an existing `to`. Durable after `sync_dir` of both directories.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Renames a file unless `to` exists; of several callers, also on several hosts, one succeeds.
    /// `false`: `to` exists, and nothing changed. Durable after `sync_dir` of both directories.
    fn rename_new(&self, from: &str, to: &str) -> Result<bool> {
        let why = format!("this device cannot rename to {to} only if that is absent");
        Err(Error::new("rename", from, io::Error::new(io::ErrorKind::Unsupported, why)))
    }

    /// Removes a file. Durable after `sync_dir`.
    fn remove(&self, path: &str) -> Result<()>;

    /// Makes creations, renames and removals in a directory durable. `""` is the volume directory.
    fn sync_dir(&self, directory: &str) -> Result<()>;

    /// Whether a directory is on a different disk from the volume directory: space freed on one
    /// does not help the other.
    fn is_elsewhere(&self, _directory: &str) -> Result<bool> {
        Ok(false)
    }

    /// Disk space of the volume directory.
    fn space(&self) -> Result<Space>;

    /// Takes the exclusive advisory lock of a file (created if absent), or returns `None` when
    /// another process holds it. Released when the guard drops or the process dies. All locks in
    /// the volume directory have one holder: removing the file does not let a second process lock.
    fn try_lock(&self, path: &str) -> Result<Option<Box<dyn Lock>>>;
}

/// One open file. Reads and writes are positional, so that threads share it.
pub trait File: Send + Sync {
    /// Reads at `offset` until `buffer` is full or the file ends; returns the bytes read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;

    /// Hints that a range will be read soon, so that the disk may start; returns without waiting.
    /// The later read reports any error.
    fn prefetch(&self, _offset: u64, _length: u64) {}

    /// Starts to write to the disk a range that was just written to the file. Does not wait; a
    /// later sync has less to do. A hint: nothing is durable by it.
    fn start_write(&self, _offset: u64, _length: u64) {}

    /// Writes all of `bytes` at `offset`, growing the file where needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()>;

    /// Makes the file's bytes and length durable (`fdatasync`).
    fn sync_data(&self) -> Result<()>;

    /// Length in bytes.
    fn len(&self) -> Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Truncates or extends the file; new bytes read as zero.
    fn set_len(&self, length: u64) -> Result<()>;

    /// Reserves space for `offset..offset + length`, growing the file to cover it; later writes
    /// there do not fail for lack of space.
    fn allocate(&self, offset: u64, length: u64) -> Result<()>;

    /// Deallocates a range; it reads as zero. The length does not change. A disk that cannot punch
    /// holes writes nothing and returns `false`.
    fn punch(&self, offset: u64, length: u64) -> Result<bool>;

    /// Bytes that the file occupies on disk.
    fn disk_bytes(&self) -> Result<u64>;

    /// Allocated bytes in a range, excluding holes, in the disk's hole granularity. A disk that
    /// cannot find holes counts all of the file's bytes in the range.
    fn occupied(&self, offset: u64, length: u64) -> Result<u64> {
        let end = offset.saturating_add(length).min(self.len()?);
        Ok(end.saturating_sub(offset))
    }
}

/// A held lock; dropping it releases the lock.
pub trait Lock: Send + Sync {
    /// Replaces the contents of the lock file (the holder, in text for people).
    fn describe(&self, text: &str) -> Result<()>;

    /// Whether the locked file is still the one at its path. If the file was removed, another
    /// process could lock a new file there.
    fn is_there(&self) -> Result<bool> {
        Ok(true)
    }
}

/// One name of a directory ([`Device::entries`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name in the directory.
    pub name: String,
    /// Whether it is a directory.
    pub directory: bool,
}

/// Result of [`Device::metadata`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Length in bytes (0 for a directory).
    pub length: u64,
    /// Bytes occupied on disk.
    pub disk_bytes: u64,
    /// Whether it is a directory.
    pub directory: bool,
}

/// Result of [`Device::space`], in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Size of the disk.
    pub total_bytes: u64,
    /// Free space that this process may use.
    pub free_bytes: u64,
    /// Further free space, reserved for the superuser.
    pub reserved_bytes: u64,
}
