//! Sources that the bytes of a cluster are read from.

use std::sync::Arc;

use device::Blobs;

/// Immutable bytes, read by offset.
pub trait Source: Send + Sync {
    /// Its name in errors: the file, relative to the volume.
    fn name(&self) -> &str;

    /// Reads at `offset` until `buffer` is full or the bytes end; returns the bytes read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> device::Result<usize>;

    /// Memory that the bytes take: none if they are in a file.
    fn memory_bytes(&self) -> usize {
        0
    }
}

/// A named object of a blob store.
pub struct BlobSource {
    blobs: Arc<dyn Blobs>,
    path: String,
}

impl BlobSource {
    /// The object named by the last part of a path; it must exist as long as this is used. Reports
    /// of damage use the path, relative to the volume directory.
    pub fn new(blobs: Arc<dyn Blobs>, path: String) -> BlobSource {
        BlobSource { blobs, path }
    }
}

impl Source for BlobSource {
    fn name(&self) -> &str {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> device::Result<usize> {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        self.blobs.read_at(name, buffer, offset)
    }
}

/// Bytes in memory, for a cluster that was just built, or whose file is in memory anyway.
impl Source for Vec<u8> {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> device::Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        let bytes = &self[from..];
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn memory_bytes(&self) -> usize {
        self.capacity()
    }
}
