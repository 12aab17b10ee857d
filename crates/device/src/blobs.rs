//! `Blobs`: immutable named objects, as an object store has them.
//!
//! Only what S3, GCS, Azure, a local directory and memory all give is asked for: create-if-absent
//! of a new name, ranged read, list, delete. Conditional overwrite is not assumed. Names are
//! flat: ASCII letters, digits, `-`, `_` and `.`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Device, File, Result, descriptors};

/// Immutable named objects.
pub trait Blobs: Send + Sync {
    /// Creates `name` with these bytes, durable on return. `false`: the name is taken, and
    /// nothing changed.
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool>;

    /// Creates `name` from a finished file of the volume's device, durable on return, and removes
    /// the file. `false`: the name is taken, and the file stays. After a crash in the middle
    /// either the file or the object is there, or both; the call may be repeated.
    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool>;

    /// Reads at `offset` until `buffer` is full or the object ends; returns the bytes read.
    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize>;

    /// Length in bytes, or `None` when there is no such object.
    fn length(&self, name: &str) -> Result<Option<u64>>;

    /// All names that start with `prefix`, sorted.
    fn list(&self, prefix: &str) -> Result<Vec<String>>;

    /// Deletes an object; an absent one is not an error.
    fn delete(&self, name: &str) -> Result<()>;

    /// Gives the room of a range back; it reads as zero afterwards. `false`: this store cannot
    /// (an object store), so that the caller rewrites the object under another name.
    fn punch(&self, name: &str, offset: u64, length: u64) -> Result<bool>;

    /// Bytes occupied on disk by one object.
    fn disk_bytes(&self, name: &str) -> Result<u64>;

    /// Bytes of a range of an object that are no hole: all that lies in the object where the store
    /// cannot tell.
    fn occupied(&self, name: &str, offset: u64, length: u64) -> Result<u64> {
        let end = offset.saturating_add(length).min(self.length(name)?.unwrap_or(0));
        Ok(end.saturating_sub(offset))
    }

    /// Bytes occupied on disk by all objects.
    fn disk_bytes_all(&self) -> Result<u64> {
        self.list("")?.iter().map(|name| self.disk_bytes(name)).sum()
    }

    /// Most bytes that an object may have.
    fn bytes_max(&self) -> u64 {
        u64::MAX
    }

    /// Whether an object that could not be made, as it seemed, may be there all the same, now or
    /// later: what is asked for travels, and so does the answer.
    fn answers_may_be_lost(&self) -> bool {
        false
    }
}

/// What is under a name, compared with what was to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// No object.
    Nothing,
    /// An object of the same bytes.
    Same,
    /// One of others.
    Other,
}

/// Reads bytes of what is compared at an offset, until the buffer is full or it ends.
pub type ReadPart<'a> = &'a dyn Fn(&mut [u8], u64) -> Result<usize>;

/// Bytes that are compared at a time.
const COMPARED_BYTES: u64 = 1 << 20;

/// Compares an object with `length` bytes that were to be there: for one who does not know what
/// became of making it.
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

/// The part of bytes in memory that begins at an offset.
pub fn part_of(bytes: &[u8], buffer: &mut [u8], offset: u64) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    let count = rest.len().min(buffer.len());
    buffer[..count].copy_from_slice(&rest[..count]);
    count
}

/// Most files that [`LocalBlobs`] keeps open.
const OPEN_FILES_MAX: usize = 256;

/// Suffix of an object that is being written; never listed.
pub const STAGED: &str = ".staged";

/// Objects as files of one directory of a device.
pub struct LocalBlobs {
    device: Arc<dyn Device>,
    directory: String,
    open: Arc<Mutex<OpenFiles>>,
}

/// Files that are open, by name, and when each was asked for last.
#[derive(Default)]
struct OpenFiles {
    files: BTreeMap<String, (Arc<dyn File>, u64)>,
    now: u64,
    /// How many objects were deleted: one that was opened before that is not kept.
    deleted: u64,
}

impl OpenFiles {
    fn get(&mut self, name: &str) -> Option<Arc<dyn File>> {
        self.now += 1;
        let (file, used) = self.files.get_mut(name)?;
        *used = self.now;
        Some(Arc::clone(file))
    }

    /// Keeps a file, in the place of the one that was asked for longest ago.
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
    /// Objects in `directory`, which is created when absent. All that are there are durable on
    /// return, if the directory's own name is: where an earlier process made it and may have been
    /// killed before that was so, whoever opens its parent syncs that.
    pub fn open(device: Arc<dyn Device>, directory: &str) -> Result<LocalBlobs> {
        if device.metadata(directory)?.is_none() {
            device.create_dir(directory)?;
            // Or else a power cut takes the directory, and every object in it.
            device.sync_dir(directory.rsplit_once('/').map_or("", |(parent, _)| parent))?;
        } else {
            // Who made the newest may have been killed between its rename and the sync, and what
            // it stands for is given up on the strength of its being there.
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
        // Not under the lock: where descriptors run out, others are closed.
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
            // No later attempt need have the same name. Where this fails too, whoever opens the
            // directory next finds it; what is told is what became of the object.
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
