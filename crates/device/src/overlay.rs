//! `Overlay`: a device that keeps changes in memory. A volume can be inspected as if it were
//! opened, with the log replayed, without changing it.
//!
//! Written data is kept in pages over the file below; memory is proportional to the data written.
//! Created directories and renamed or removed names are recorded separately.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::sync::{Mutex, RwLock};

use crate::{Device, Error, File, Lock, Metadata, Result, Space};

/// Bytes of a page.
const PAGE: u64 = 4096;

/// A device that is read, with changes that stay in memory.
pub struct Overlay {
    below: Arc<dyn Device>,
    /// Names that differ from the device below: `None`: removed.
    files: Mutex<BTreeMap<String, Option<Arc<OverlayFile>>>>,
    directories: Mutex<BTreeSet<String>>,
}

impl Overlay {
    /// An overlay over a device, without changes.
    pub fn new(below: Arc<dyn Device>) -> Overlay {
        Overlay { below, files: Mutex::default(), directories: Mutex::default() }
    }

    fn file(&self, path: &str, operation: &'static str) -> Result<Arc<OverlayFile>> {
        let mut files = self.files.lock();
        match files.get(path) {
            Some(Some(file)) => return Ok(Arc::clone(file)),
            Some(None) => return Err(not_found(operation, path)),
            None => {}
        }
        let below = self.below.open(path)?;
        let length = below.len()?;
        let state = OverlayState { length, below: length, pages: BTreeMap::new() };
        let file = Arc::new(OverlayFile { file: Some(below), state: RwLock::new(state) });
        files.insert(path.to_owned(), Some(Arc::clone(&file)));
        Ok(file)
    }
}

fn error(kind: std::io::ErrorKind, operation: &'static str, path: &str) -> Error {
    Error::new(operation, path, std::io::Error::from(kind))
}

fn not_found(operation: &'static str, path: &str) -> Error {
    error(std::io::ErrorKind::NotFound, operation, path)
}

/// The name of a path in a directory, if it is a direct child.
fn name_in<'p>(path: &'p str, directory: &str) -> Option<&'p str> {
    let name = if directory.is_empty() {
        path
    } else {
        path.strip_prefix(directory)?.strip_prefix('/')?
    };
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

impl Device for Overlay {
    fn open(&self, path: &str) -> Result<Arc<dyn File>> {
        Ok(self.file(path, "open")?)
    }

    fn create(&self, path: &str) -> Result<Arc<dyn File>> {
        if self.metadata(path)?.is_some() {
            return Err(error(std::io::ErrorKind::AlreadyExists, "create", path));
        }
        let file = Arc::new(OverlayFile { file: None, state: RwLock::default() });
        self.files.lock().insert(path.to_owned(), Some(Arc::clone(&file)));
        Ok(file)
    }

    fn metadata(&self, path: &str) -> Result<Option<Metadata>> {
        match self.files.lock().get(path) {
            Some(Some(file)) => {
                let length = file.state.read().length;
                return Ok(Some(Metadata { length, disk_bytes: length, directory: false }));
            }
            Some(None) => return Ok(None),
            None => {}
        }
        if self.directories.lock().contains(path) {
            return Ok(Some(Metadata { length: 0, disk_bytes: 0, directory: true }));
        }
        self.below.metadata(path)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        let made = self.directories.lock().contains(directory);
        let mut names: BTreeSet<String> = match self.below.list(directory) {
            Ok(names) => names.into_iter().collect(),
            Err(error) if made && error.is_not_found() => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        for (path, file) in &*self.files.lock() {
            let Some(name) = name_in(path, directory) else { continue };
            if file.is_some() {
                names.insert(name.to_owned());
            } else {
                names.remove(name);
            }
        }
        for path in &*self.directories.lock() {
            names.extend(name_in(path, directory).map(str::to_owned));
        }
        Ok(names.into_iter().collect())
    }

    fn create_dir(&self, directory: &str) -> Result<()> {
        if self.metadata(directory)?.is_none() {
            self.directories.lock().insert(directory.to_owned());
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let file = self.file(from, "rename")?;
        let mut files = self.files.lock();
        files.insert(from.to_owned(), None);
        files.insert(to.to_owned(), Some(file));
        Ok(())
    }

    fn remove(&self, path: &str) -> Result<()> {
        if self.metadata(path)?.is_none() {
            return Err(not_found("remove", path));
        }
        self.files.lock().insert(path.to_owned(), None);
        Ok(())
    }

    fn sync_dir(&self, _directory: &str) -> Result<()> {
        Ok(())
    }

    fn space(&self) -> Result<Space> {
        // Overlay writes take no space on the device below.
        let space = self.below.space()?;
        Ok(Space { free_bytes: space.total_bytes, reserved_bytes: 0, ..space })
    }

    fn try_lock(&self, path: &str) -> Result<Option<Box<dyn Lock>>> {
        self.below.try_lock(path)
    }
}

/// A file with its overlaid writes.
struct OverlayFile {
    file: Option<Arc<dyn File>>,
    state: RwLock<OverlayState>,
}

#[derive(Default)]
struct OverlayState {
    length: u64,
    /// Up to here, bytes without a page are read from the file below.
    below: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl OverlayFile {
    /// Reads the bytes of a page that has no overlaid write.
    fn under(&self, state: &OverlayState, page: u64, buffer: &mut [u8]) -> Result<()> {
        buffer.fill(0);
        let (start, end) = (page * PAGE, (page + 1) * PAGE);
        let end = end.min(state.below);
        if let Some(file) = self.file.as_ref().filter(|_| end > start) {
            file.read_at(&mut buffer[..(end - start) as usize], start)?;
        }
        Ok(())
    }

    fn change(
        &self,
        offset: u64,
        length: u64,
        mut change: impl FnMut(&mut [u8], u64),
    ) -> Result<()> {
        let mut state = self.state.write();
        let mut at = offset;
        while at < offset + length {
            let page = at / PAGE;
            let until = ((page + 1) * PAGE).min(offset + length);
            if !state.pages.contains_key(&page) {
                let mut bytes = vec![0; PAGE as usize].into_boxed_slice();
                self.under(&state, page, &mut bytes)?;
                state.pages.insert(page, bytes);
            }
            let bytes = state.pages.get_mut(&page).expect("invariant: it was put there");
            let within = (at - page * PAGE) as usize..(until - page * PAGE) as usize;
            change(&mut bytes[within], at - offset);
            at = until;
        }
        Ok(())
    }
}

impl File for OverlayFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let state = self.state.read();
        let end = (offset + buffer.len() as u64).min(state.length);
        let mut at = offset;
        if state.pages.is_empty() && end <= state.below && end > offset {
            let file = self.file.as_ref().expect("invariant: something is below");
            return file.read_at(&mut buffer[..(end - offset) as usize], offset);
        }
        let mut page_bytes = vec![0; PAGE as usize];
        while at < end {
            let page = at / PAGE;
            let until = ((page + 1) * PAGE).min(end);
            let within = (at - page * PAGE) as usize..(until - page * PAGE) as usize;
            let out = &mut buffer[(at - offset) as usize..(until - offset) as usize];
            if let Some(bytes) = state.pages.get(&page) {
                out.copy_from_slice(&bytes[within]);
            } else {
                self.under(&state, page, &mut page_bytes)?;
                out.copy_from_slice(&page_bytes[within]);
            }
            at = until;
        }
        Ok(end.saturating_sub(offset) as usize)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.change(offset, bytes.len() as u64, |part, from| {
            let from = from as usize;
            part.copy_from_slice(&bytes[from..from + part.len()]);
        })?;
        let mut state = self.state.write();
        state.length = state.length.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.state.read().length)
    }

    fn set_len(&self, length: u64) -> Result<()> {
        let before = self.state.read().length;
        if length < before {
            // Truncated bytes read as zeros if the file grows again.
            self.change(length, (PAGE - length % PAGE) % PAGE, |part, _| part.fill(0))?;
            let mut state = self.state.write();
            state.below = state.below.min(length);
            state.pages.split_off(&length.div_ceil(PAGE));
        }
        self.state.write().length = length;
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        let mut state = self.state.write();
        state.length = state.length.max(offset + length);
        Ok(())
    }

    fn punch(&self, offset: u64, length: u64) -> Result<bool> {
        let end = (offset + length).min(self.state.read().length);
        self.change(offset, end.saturating_sub(offset), |part, _| part.fill(0))?;
        Ok(true)
    }

    fn disk_bytes(&self) -> Result<u64> {
        self.len()
    }
}
