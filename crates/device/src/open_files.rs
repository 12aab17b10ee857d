//! Files of objects that stay open between reads, up to a maximum number.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sync::Mutex;
use crate::{Device, File, Result, descriptors};

/// Maximum number of files that one store keeps open.
const OPEN_FILES_MAX: usize = 256;

/// Open files by name. Closed when the process is out of descriptors.
pub(crate) struct OpenFiles(Arc<Mutex<State>>);

/// Open files by name, each with the time of its last use.
#[derive(Default)]
struct State {
    files: BTreeMap<String, (Arc<dyn File>, u64)>,
    now: u64,
    /// Number of deleted objects: a file opened before a deletion is not cached.
    deleted: u64,
}

impl State {
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

impl descriptors::OpenFiles for Mutex<State> {
    fn close_all(&self) -> usize {
        let files = std::mem::take(&mut self.lock().files);
        files.len()
    }
}

impl OpenFiles {
    pub(crate) fn new() -> OpenFiles {
        let open = Arc::default();
        descriptors::may_be_closed(&open);
        OpenFiles(open)
    }

    /// The file of an object; `opened` runs after a file was opened that was not open.
    pub(crate) fn file(
        &self,
        name: &str,
        device: &dyn Device,
        path: &str,
        opened: impl FnOnce() -> Result<()>,
    ) -> Result<Arc<dyn File>> {
        let mut open = self.0.lock();
        if let Some(file) = open.get(name) {
            return Ok(file);
        }
        let deleted = open.deleted;
        // Not under the lock: when descriptors run out, other files are closed.
        drop(open);
        let file = device.open(path)?;
        opened()?;
        let mut open = self.0.lock();
        if open.deleted == deleted {
            open.keep(name, Arc::clone(&file));
        }
        Ok(file)
    }

    /// Closes the file of an object that is deleted.
    pub(crate) fn forget(&self, name: &str) {
        let mut open = self.0.lock();
        open.files.remove(name);
        open.deleted += 1;
    }
}
