//! Objects as files of one directory of a device, used by one process at a time.

use std::sync::Arc;

use crate::directories::Directories;
use crate::open_files::OpenFiles;
use crate::{Blobs, Device, File, Result, STAGED, check_name};

/// Objects as files of one directory of a device.
pub struct LocalBlobs {
    device: Arc<dyn Device>,
    directories: Directories,
    open: OpenFiles,
}

impl LocalBlobs {
    /// Opens the objects in `directory`, which is created when absent. All existing objects are
    /// durable on return, provided that the directory's own name is durable. An earlier process may
    /// have created the directory and been killed before syncing its parent, so whichever code
    /// opens the parent must sync it.
    pub fn open(device: Arc<dyn Device>, directory: &str) -> Result<LocalBlobs> {
        let directories = Directories::below(directory);
        if device.metadata(directory)?.is_none() {
            device.create_dir(directory)?;
            // Otherwise a power cut removes the directory and every object in it.
            device.sync_dir(directory.rsplit_once('/').map_or("", |(parent, _)| parent))?;
        } else {
            // The process that created the newest object may have been killed between its rename
            // and the sync. Callers discard what an object replaces because the object exists.
            directories.list(device.as_ref(), "", |path| device.sync_dir(path))?;
        }
        Ok(LocalBlobs { device, directories, open: OpenFiles::new() })
    }

    fn file(&self, name: &str) -> Result<Arc<dyn File>> {
        let path = self.directories.path(name);
        self.open.file(name, self.device.as_ref(), &path, || Ok(()))
    }
}

impl Blobs for LocalBlobs {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        check_name("create", name)?;
        if self.length(name)?.is_some() {
            return Ok(false);
        }
        self.directories.make(self.device.as_ref(), name)?;
        let staged = self.directories.path(&format!("{name}{STAGED}"));
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
        check_name("create", name)?;
        // One process owns a volume, so looking first is enough here.
        if self.length(name)?.is_some() {
            return Ok(false);
        }
        self.directories.make(self.device.as_ref(), name)?;
        device.open(path)?.sync_data()?;
        let directory = self.directories.of(name);
        device.rename(path, &self.directories.path(name))?;
        device.sync_dir(&directory)?;
        if let Some((parent, _)) = path.rsplit_once('/') {
            if parent != directory {
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
        let found = self.device.metadata(&self.directories.path(name))?;
        Ok(found.filter(|found| !found.directory).map(|found| found.length))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.directories.list(self.device.as_ref(), prefix, |_| Ok(()))
    }

    fn delete(&self, name: &str) -> Result<()> {
        let removed = self.device.remove(&self.directories.path(name));
        self.open.forget(name);
        match removed {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => self.device.sync_dir(&self.directories.of(name)),
        }
    }

    fn punch(&self, name: &str, offset: u64, length: u64) -> Result<bool> {
        self.file(name)?.punch(offset, length)
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        let found = self.device.metadata(&self.directories.path(name))?;
        Ok(found.map_or(0, |found| found.disk_bytes))
    }

    fn occupied(&self, name: &str, offset: u64, length: u64) -> Result<u64> {
        self.file(name)?.occupied(offset, length)
    }
}
