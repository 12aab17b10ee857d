//! Where the bytes of a cluster are read from.

use std::sync::Arc;

use device::Blobs;

/// Bytes that never change, read by place.
pub trait Source: Send + Sync {
    /// What errors call it: the file, relative to the volume.
    fn name(&self) -> &str;

    /// Reads at `offset` until `buffer` is full or the bytes end; returns the bytes read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> device::Result<usize>;

    /// Memory that the bytes take: none, where they lie in a file.
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
    /// The object that the last part of a path names, which must exist as long as this is used. The
    /// path, below the volume directory, is what damage is told with.
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

/// Bytes in memory: of a cluster that was just built, or whose file is held anyway.
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
