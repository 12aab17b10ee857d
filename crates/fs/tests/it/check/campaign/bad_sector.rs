//! A disk that cannot read one place of a volume.

use std::sync::Arc;

use device::{Device, Env, File, Lock, Metadata, Space};
use testing::SimDevice;

use super::anatomy::DamageSite;
use super::media::Media;

/// A device that fails reads of one place.
pub(super) struct BadSector {
    device: SimDevice,
    place: DamageSite,
}

struct BadFile {
    file: Arc<dyn File>,
    place: DamageSite,
}

impl BadSector {
    pub(super) fn env(media: &Media, place: &DamageSite) -> Env {
        let device = BadSector { device: media.volume.clone(), place: place.clone() };
        Env { device: Arc::new(device), ..media.env() }
    }
}

impl Device for BadSector {
    fn open(&self, path: &str) -> device::Result<Arc<dyn File>> {
        let file = self.device.open(path)?;
        if path != self.place.path {
            return Ok(file);
        }
        Ok(Arc::new(BadFile { file, place: self.place.clone() }))
    }

    fn create(&self, path: &str) -> device::Result<Arc<dyn File>> {
        self.device.create(path)
    }

    fn metadata(&self, path: &str) -> device::Result<Option<Metadata>> {
        self.device.metadata(path)
    }

    fn list(&self, directory: &str) -> device::Result<Vec<String>> {
        self.device.list(directory)
    }

    fn create_dir(&self, directory: &str) -> device::Result<()> {
        self.device.create_dir(directory)
    }

    fn rename(&self, from: &str, to: &str) -> device::Result<()> {
        self.device.rename(from, to)
    }

    fn remove(&self, path: &str) -> device::Result<()> {
        self.device.remove(path)
    }

    fn sync_dir(&self, directory: &str) -> device::Result<()> {
        self.device.sync_dir(directory)
    }

    fn is_elsewhere(&self, directory: &str) -> device::Result<bool> {
        self.device.is_elsewhere(directory)
    }

    fn space(&self) -> device::Result<Space> {
        self.device.space()
    }

    fn try_lock(&self, path: &str) -> device::Result<Option<Box<dyn Lock>>> {
        self.device.try_lock(path)
    }
}

impl File for BadFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> device::Result<usize> {
        if offset < self.place.end() && self.place.offset < offset + buffer.len() as u64 {
            let error = std::io::Error::from_raw_os_error(5);
            let error = device::Error::new("read", &self.place.path, error);
            return Err(error.at(offset.max(self.place.offset)));
        }
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> device::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> device::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> device::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, length: u64) -> device::Result<()> {
        self.file.set_len(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> device::Result<()> {
        self.file.allocate(offset, length)
    }

    fn punch(&self, offset: u64, length: u64) -> device::Result<bool> {
        self.file.punch(offset, length)
    }

    fn disk_bytes(&self) -> device::Result<u64> {
        self.file.disk_bytes()
    }
}
