//! Objects as files of one directory that many hosts and processes use at once.
//!
//! Invariants: an object appears under its name whole and durable, by one rename that replaces
//! nothing. So of several that create a name, also on several hosts, one succeeds. A process that
//! was paused for hours can add nothing to what exists. No file is changed after that. What a
//! caller learned of an object is durable: that it exists, its bytes, that it is listed. Another
//! process may have been killed between its rename and its sync, so this one syncs too.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::directories::Directories;
use crate::open_files::OpenFiles;
use crate::{
    Blobs, Clock, Device, Error, File, Random, Result, STAGED, check_name, remove_adopted,
};

/// The directory of objects that are being written. Names of objects do not begin with `.`.
const STAGING: &str = ".staged";
/// Age from which a file there is removed: the process that wrote it was killed. If it was paused
/// instead, its creation fails, and nothing was acknowledged.
const STALE: Duration = Duration::from_secs(24 * 3600);
/// Bytes copied at a time.
const COPIED_BYTES: usize = 1 << 20;

/// Objects as files of a device whose directory other hosts use too.
pub struct SharedDir {
    device: Arc<dyn Device>,
    random: Arc<dyn Random>,
    clock: Arc<dyn Clock>,
    directories: Directories,
    open: OpenFiles,
}

impl SharedDir {
    /// Opens the objects in the device's own directory, which must exist. A directory that was made
    /// here might be below the mount point of a share that is not mounted.
    pub fn open(
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<SharedDir> {
        device.entries("")?;
        Ok(SharedDir {
            device,
            random,
            clock,
            directories: Directories::below(""),
            open: OpenFiles::new(),
        })
    }

    /// Removes what processes that were killed long ago left unfinished. Returns how many files.
    pub fn remove_stale(&self) -> Result<usize> {
        let entries = match self.device.entries(STAGING) {
            Err(error) if error.is_not_found() => return Ok(0),
            entries => entries?,
        };
        let (now, mut removed) = (self.seconds(), 0);
        for entry in entries {
            let written = entry.name.split('-').next();
            let written = written.and_then(|text| u64::from_str_radix(text, 16).ok());
            if written.is_some_and(|written| now.saturating_sub(written) > STALE.as_secs()) {
                match self.device.remove(&format!("{STAGING}/{}", entry.name)) {
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => removed += 1,
                }
            }
        }
        Ok(removed)
    }

    /// Wall-clock seconds.
    fn seconds(&self) -> u64 {
        u64::try_from(self.clock.now().0 / 1_000_000_000).unwrap_or(0)
    }

    /// Creates a file of these bytes, durable, under a name that nobody else uses.
    fn stage(&self, write: impl FnOnce(&dyn File) -> Result<()>) -> Result<String> {
        let own = format!("{STAGING}/{:x}-{:016x}{STAGED}", self.seconds(), self.random.next_u64());
        self.directories.make(self.device.as_ref(), &own)?;
        let file = match self.device.create(&own) {
            Err(error) if error.is_not_found() => {
                // A person removed the directory.
                self.directories.forget();
                self.directories.make(self.device.as_ref(), &own)?;
                self.device.create(&own)?
            }
            created => created?,
        };
        let written = write(file.as_ref()).and_then(|()| file.sync_data());
        drop(file);
        if let Err(error) = written {
            self.unstage(&own);
            return Err(error);
        }
        Ok(own)
    }

    /// Removes a file that became no object. If that fails, `remove_stale` finds it later.
    fn unstage(&self, own: &str) {
        self.device.remove(own).ok();
    }

    /// Gives a durable file the name of an object.
    fn publish(&self, name: &str, own: &str) -> Result<bool> {
        let device = self.device.as_ref();
        let publish = || {
            self.directories.make(device, name)?;
            let made = match device.rename_new(own, &self.directories.path(name)) {
                Err(error) if error.is_not_found() => {
                    self.directories.forget();
                    self.directories.make(device, name)?;
                    device.rename_new(own, &self.directories.path(name))?
                }
                made => made?,
            };
            // Also if the object is another's, which may not have synced it yet.
            device.sync_dir(&self.directories.of(name))?;
            Ok(made)
        };
        let made = publish();
        if !matches!(made, Ok(true)) {
            self.unstage(own);
        }
        made
    }

    /// The open file of an object, which is durable.
    fn file(&self, name: &str) -> Result<Arc<dyn File>> {
        let path = self.directories.path(name);
        let sync = || self.device.sync_dir(&self.directories.of(name));
        self.open.file(name, self.device.as_ref(), &path, sync)
    }
}

impl Blobs for SharedDir {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        check_name("create", name)?;
        if self.length(name)?.is_some() {
            return Ok(false);
        }
        let own = self.stage(|file| file.write_at(bytes, 0))?;
        self.publish(name, &own)
    }

    /// The file is on another device, so it is copied.
    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        check_name("create", name)?;
        if self.length(name)?.is_some() {
            return Ok(false);
        }
        let source = device.open(path)?;
        let length = source.len()?;
        let own = self.stage(|file| {
            let mut buffer = vec![0; COPIED_BYTES.min(length as usize)];
            let mut at = 0;
            while at < length {
                let read = source.read_at(&mut buffer, at)?;
                if read == 0 {
                    let short = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(Error::new("read", path, short).at(at));
                }
                file.write_at(&buffer[..read], at)?;
                at += read as u64;
            }
            Ok(())
        })?;
        drop(source);
        let made = self.publish(name, &own)?;
        if made {
            remove_adopted(device, path);
        }
        Ok(made)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        check_name("read", name)?;
        match self.file(name)?.read_at(buffer, offset) {
            // Another host deleted a file that is open here.
            Err(error) if error.os == Some(libc::ESTALE) => {
                self.open.forget(name);
                self.file(name)?.read_at(buffer, offset)
            }
            read => read,
        }
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        check_name("stat", name)?;
        let path = self.directories.path(name);
        let found = self.device.metadata(&path)?.filter(|found| !found.directory);
        if found.is_some() {
            self.device.sync_dir(&self.directories.of(name))?;
        }
        Ok(found.map(|found| found.length))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let device = self.device.as_ref();
        self.directories.list(device, prefix, |path| device.sync_dir(path))
    }

    fn delete(&self, name: &str) -> Result<()> {
        check_name("delete", name)?;
        let removed = self.device.remove(&self.directories.path(name));
        self.open.forget(name);
        match removed {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => self.device.sync_dir(&self.directories.of(name)),
        }
    }

    fn delete_all(&self, names: &[String]) -> Result<()> {
        let mut directories = BTreeSet::new();
        for name in names {
            check_name("delete", name)?;
            let removed = self.device.remove(&self.directories.path(name));
            self.open.forget(name);
            match removed {
                Err(error) if error.is_not_found() => {}
                removed => removed?,
            }
            directories.insert(self.directories.of(name));
        }
        for directory in directories {
            match self.device.sync_dir(&directory) {
                Err(error) if error.is_not_found() => {}
                synced => synced?,
            }
        }
        Ok(())
    }

    /// Objects do not change once they exist: hosts may have them in their caches.
    fn punch(&self, _name: &str, _offset: u64, _length: u64) -> Result<bool> {
        Ok(false)
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        let found = self.device.metadata(&self.directories.path(name))?;
        Ok(found.map_or(0, |found| found.disk_bytes))
    }

    fn answers_may_be_lost(&self) -> bool {
        true
    }
}
