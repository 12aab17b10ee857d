//! A volume whose log is on a separate disk: two simulated disks, each with its own space.

use std::sync::Arc;

use device::{Device, File, Lock, Metadata, Result, Space};

use crate::SimDevice;

/// The directory on the other disk.
const LOG: &str = "log";

/// A volume directory on one disk, with the log's directory on another.
#[derive(Clone)]
pub struct SplitDevice {
    /// Disk of everything but the log.
    pub volume: SimDevice,
    /// Disk of the log.
    pub log: SimDevice,
}

impl SplitDevice {
    /// Two empty disks.
    pub fn new(seed: u64) -> SplitDevice {
        SplitDevice { volume: SimDevice::new(seed), log: SimDevice::new(!seed) }
    }

    fn of(&self, path: &str) -> &SimDevice {
        let below = path.strip_prefix(LOG);
        let is_log = below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if is_log { &self.log } else { &self.volume }
    }
}

impl Device for SplitDevice {
    fn open(&self, path: &str) -> Result<Arc<dyn File>> {
        self.of(path).open(path)
    }

    fn create(&self, path: &str) -> Result<Arc<dyn File>> {
        self.of(path).create(path)
    }

    fn metadata(&self, path: &str) -> Result<Option<Metadata>> {
        self.of(path).metadata(path)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        let mut names = self.of(directory).list(directory)?;
        if directory.is_empty() && self.log.metadata(LOG)?.is_some() {
            names.push(LOG.to_owned());
            names.sort();
        }
        Ok(names)
    }

    fn create_dir(&self, directory: &str) -> Result<()> {
        self.of(directory).create_dir(directory)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.of(from).rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<bool> {
        self.of(from).rename_new(from, to)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.of(path).remove(path)
    }

    fn sync_dir(&self, directory: &str) -> Result<()> {
        self.of(directory).sync_dir(directory)
    }

    fn is_elsewhere(&self, directory: &str) -> Result<bool> {
        Ok(directory == LOG)
    }

    fn space(&self) -> Result<Space> {
        self.volume.space()
    }

    fn try_lock(&self, path: &str) -> Result<Option<Box<dyn Lock>>> {
        self.volume.try_lock(path)
    }
}
