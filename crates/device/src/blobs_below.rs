//! `BlobsBelow`: the objects whose names begin with a prefix, under the rest of their names.

use std::sync::Arc;

use crate::{Blobs, Device, Result};

/// The objects of a store that are below a prefix. Errors have the whole names.
pub struct BlobsBelow {
    blobs: Arc<dyn Blobs>,
    prefix: String,
}

impl BlobsBelow {
    /// The objects below `directory`, a name without a slash at its end.
    pub fn new(blobs: Arc<dyn Blobs>, directory: &str) -> BlobsBelow {
        BlobsBelow { blobs, prefix: format!("{directory}/") }
    }

    fn whole(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Blobs for BlobsBelow {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.blobs.create(&self.whole(name), bytes)
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        self.blobs.adopt(&self.whole(name), device, path)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.blobs.read_at(&self.whole(name), buffer, offset)
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        self.blobs.length(&self.whole(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let names = self.blobs.list(&self.whole(prefix))?;
        let below = names.iter().filter_map(|name| name.strip_prefix(&self.prefix));
        Ok(below.map(str::to_owned).collect())
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.blobs.delete(&self.whole(name))
    }

    fn punch(&self, name: &str, offset: u64, length: u64) -> Result<bool> {
        self.blobs.punch(&self.whole(name), offset, length)
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        self.blobs.disk_bytes(&self.whole(name))
    }

    fn occupied(&self, name: &str, offset: u64, length: u64) -> Result<u64> {
        self.blobs.occupied(&self.whole(name), offset, length)
    }

    fn delete_all(&self, names: &[String]) -> Result<()> {
        let names: Vec<String> = names.iter().map(|name| self.whole(name)).collect();
        self.blobs.delete_all(&names)
    }

    fn disk_bytes_below(&self, prefix: &str) -> Result<u64> {
        self.blobs.disk_bytes_below(&self.whole(prefix))
    }

    fn bytes_max(&self) -> u64 {
        self.blobs.bytes_max()
    }

    fn answers_may_be_lost(&self) -> bool {
        self.blobs.answers_may_be_lost()
    }
}
