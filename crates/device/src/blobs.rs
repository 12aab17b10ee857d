//! `Blobs`: immutable named objects, with the semantics of an object store.
//!
//! The trait requires only what S3, GCS, Azure, a local directory and memory all provide:
//! create-if-absent of a new name, ranged read, list, delete. It does not assume conditional
//! overwrite. Names are flat: ASCII letters, digits, `-`, `_` and `.`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sync::Mutex;

use crate::{Device, File, Result, descriptors};

/// Immutable named objects.
pub trait Blobs: Send + Sync {
    /// Creates `name` with these bytes, durable on return. `false`: the name exists, and nothing
    /// changed.
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool>;

    /// Creates `name` from a finished file of the volume's device, durable on return, and removes
    /// the file. `false`: the name exists, and the file stays. After a crash during the call, the
    /// file, the object, or both exist; the call may be repeated.
    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool>;

    /// Reads at `offset` until `buffer` is full or the object ends; returns the bytes read.
    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize>;

    /// Length in bytes, or `None` when there is no such object.
    fn length(&self, name: &str) -> Result<Option<u64>>;

    /// All names that start with `prefix`, sorted.
    fn list(&self, prefix: &str) -> Result<Vec<String>>;

    /// Deletes an object; an absent one is not an error.
    fn delete(&self, name: &str) -> Result<()>;

    /// Deallocates a range; it reads as zero afterwards. `false`: this store cannot punch holes (an
    /// object store), so the caller rewrites the object under another name.
    fn punch(&self, name: &str, offset: u64, length: u64) -> Result<bool>;

    /// Bytes occupied on disk by one object.
    fn disk_bytes(&self, name: &str) -> Result<u64>;

    /// Allocated bytes in a range of an object, excluding holes. A store that cannot find holes
    /// counts all of the object's bytes in the range.
    fn occupied(&self, name: &str, offset: u64, length: u64) -> Result<u64> {
        let end = offset.saturating_add(length).min(self.length(name)?.unwrap_or(0));
        Ok(end.saturating_sub(offset))
    }

    /// Bytes occupied on disk by all objects.
    fn disk_bytes_all(&self) -> Result<u64> {
        self.list("")?.iter().map(|name| self.disk_bytes(name)).sum()
    }

    /// Maximum length of an object in bytes.
    fn bytes_max(&self) -> u64 {
        u64::MAX
    }

    /// Whether a creation that returned an error may still have succeeded, or may succeed later,
    /// because the request or the answer was lost on the network.
    fn answers_may_be_lost(&self) -> bool {
        false
    }
}

/// Result of comparing the object under a name with the expected bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// No object.
    Nothing,
    /// An object with the same bytes.
    Same,
    /// An object with other bytes.
    Other,
}

/// Reads the expected bytes at an offset, until the buffer is full or they end.
pub type ReadPart<'a> = &'a dyn Fn(&mut [u8], u64) -> Result<usize>;

/// Bytes compared per step.
const COMPARED_BYTES: u64 = 1 << 20;

/// Compares an object with the `length` bytes it should hold: for a caller that does not know
/// whether its creation succeeded.
pub fn compare(blobs: &dyn Blobs, name: &str, length: u64, part: ReadPart<'_>) -> Result<Found> {
    match blobs.length(name)? {
        None => return Ok(Found::Nothing),
        Some(found) if found != length => return Ok(Found::Other),
        Some(_) => {}
    }
    let mut at = 0;
    while at < length {
        let bytes = (length - at).min(COMPARED_BYTES) as usize;
        let (mut found, mut expected) = (vec![0; bytes], vec![0; bytes]);
        let read = blobs.read_at(name, &mut found, at)?;
        if read != bytes || part(&mut expected, at)? != bytes || found != expected {
            return Ok(Found::Other);
        }
        at += bytes as u64;
    }
    Ok(Found::Same)
}

/// Copies the part of in-memory bytes that begins at an offset.
pub fn part_of(bytes: &[u8], buffer: &mut [u8], offset: u64) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    let count = rest.len().min(buffer.len());
    buffer[..count].copy_from_slice(&rest[..count]);
    count
}

/// Maximum number of files that [`LocalBlobs`] keeps open.
const OPEN_FILES_MAX: usize = 256;

/// Suffix of an object that is being written; never listed.
pub const STAGED: &str = ".staged";

/// Objects as files of one directory of a device.
pub struct LocalBlobs {
    device: Arc<dyn Device>,
    directory: String,
    open: Arc<Mutex<OpenFiles>>,
}

/// Open files by name, each with the time of its last use.
#[derive(Default)]
struct OpenFiles {
    files: BTreeMap<String, (Arc<dyn File>, u64)>,
    now: u64,
    /// Number of deleted objects: a file opened before a deletion is not cached.
    deleted: u64,
}

impl OpenFiles {
    fn get(&mut self, name: &str) -> Option<Arc<dyn File>> {
        self.now += 1;
        let (file, used) = self.files.get_mut(name)?;
        *used = self.now;
        Some(Arc::clone(file))
    }

    /// Caches a file and evicts the least recently used one.
    fn keep(&mut self, name: &str, file: Arc<dyn File>) {
        if self.files.len() >= OPEN_FILES_MAX {
            let oldest = self.files.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.files.remove(&oldest);
            }
        }
        self.files.insert(name.to_owned(), (file, self.now));
    }
}

impl descriptors::OpenFiles for Mutex<OpenFiles> {
    fn close_all(&self) -> usize {
        let files = std::mem::take(&mut self.lock().files);
        files.len()
    }
}

impl LocalBlobs {
    /// Opens the objects in `directory`, which is created when absent. All existing objects are
    /// durable on return, provided that the directory's own name is durable. An earlier process may
    /// have created the directory and been killed before syncing its parent, so whichever code
    /// opens the parent must sync it.
    pub fn open(device: Arc<dyn Device>, directory: &str) -> Result<LocalBlobs> {
        if device.metadata(directory)?.is_none() {
            device.create_dir(directory)?;
            // Otherwise a power cut removes the directory and every object in it.
            device.sync_dir(directory.rsplit_once('/').map_or("", |(parent, _)| parent))?;
        } else {
            // The process that created the newest object may have been killed between its rename
            // and the sync. Callers discard what an object replaces because the object exists.
            device.sync_dir(directory)?;
        }
        let open = Arc::default();
        descriptors::may_be_closed(&open);
        Ok(LocalBlobs { device, directory: directory.to_owned(), open })
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    fn file(&self, name: &str) -> Result<Arc<dyn File>> {
        let mut open = self.open.lock();
        if let Some(file) = open.get(name) {
            return Ok(file);
        }
        let deleted = open.deleted;
        // Not under the lock: when descriptors run out, other files are closed.
        drop(open);
        let file = self.device.open(&self.path(name))?;
        let mut open = self.open.lock();
        if open.deleted == deleted {
            open.keep(name, Arc::clone(&file));
        }
        Ok(file)
    }
}

impl Blobs for LocalBlobs {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        if self.length(name)?.is_some() {
            return Ok(false);
        }
        let staged = self.path(&format!("{name}{STAGED}"));
        if self.device.metadata(&staged)?.is_some() {
            // Left by a crash; nothing ever read it.
            self.device.remove(&staged)?;
        }
        let file = self.device.create(&staged)?;
        let made =
            file.write_at(bytes, 0).and_then(|()| self.adopt(name, self.device.as_ref(), &staged));
        drop(file);
        if !matches!(made, Ok(true)) {
            // No later attempt need use the same name. If this fails too, the next process that
            // opens the directory finds the file; the error returned is that of creating the
            // object.
            self.device.remove(&staged).ok();
        }
        made
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        // One process owns a volume, so looking first is enough here.
        if self.device.metadata(&self.path(name))?.is_some() {
            return Ok(false);
        }
        device.open(path)?.sync_data()?;
        device.rename(path, &self.path(name))?;
        device.sync_dir(&self.directory)?;
        if let Some((parent, _)) = path.rsplit_once('/') {
            if parent != self.directory {
                device.sync_dir(parent)?;
            }
        } else {
            device.sync_dir("")?;
        }
        Ok(true)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.file(name)?.read_at(buffer, offset)
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        Ok(self.device.metadata(&self.path(name))?.map(|found| found.length))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let mut names = self.device.list(&self.directory)?;
        names.retain(|name| name.starts_with(prefix) && !name.ends_with(STAGED));
        Ok(names)
    }

    fn delete(&self, name: &str) -> Result<()> {
        let removed = self.device.remove(&self.path(name));
        let mut open = self.open.lock();
        open.files.remove(name);
        open.deleted += 1;
        drop(open);
        match removed {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => self.device.sync_dir(&self.directory),
        }
    }

    fn punch(&self, name: &str, offset: u64, length: u64) -> Result<bool> {
        self.file(name)?.punch(offset, length)
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        Ok(self.device.metadata(&self.path(name))?.map_or(0, |found| found.disk_bytes))
    }

    fn occupied(&self, name: &str, offset: u64, length: u64) -> Result<u64> {
        self.file(name)?.occupied(offset, length)
    }
}
