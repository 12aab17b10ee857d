//! The names of a store's objects where the log is in the same object store.
//!
//! There `manifest-N` is `manifest/N`, and so for copies and runs: some stores list only prefixes
//! that end with `/`. The engine and its messages use the names that files have.

use std::sync::Arc;

use device::{Blobs, Device, Result};

use crate::names::{BLOB_PREFIX, COPY_PREFIX, MANIFEST_PREFIX};

/// Objects under names with a `/` in place of the first `-`.
pub(crate) struct Nested(pub(crate) Arc<dyn Blobs>);

/// The name in the object store.
fn outer(name: &str) -> String {
    name.replacen('-', "/", 1)
}

impl Blobs for Nested {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.0.create(&outer(name), bytes)
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        self.0.adopt(&outer(name), device, path)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.0.read_at(&outer(name), buffer, offset)
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        self.0.length(&outer(name))
    }

    /// Names of this engine only, whatever else is in the object store.
    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for kind in [MANIFEST_PREFIX, COPY_PREFIX, BLOB_PREFIX] {
            // Whole kinds, whose prefix ends with a slash.
            if !kind.starts_with(prefix) && !prefix.starts_with(kind) {
                continue;
            }
            let listed = self.0.list(&outer(kind))?;
            let inner = listed.iter().map(|name| name.replacen('/', "-", 1));
            names.extend(inner.filter(|name| name.starts_with(prefix)));
        }
        names.sort_unstable();
        Ok(names)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.0.delete(&outer(name))
    }

    fn punch(&self, name: &str, offset: u64, length: u64) -> Result<bool> {
        self.0.punch(&outer(name), offset, length)
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        self.0.disk_bytes(&outer(name))
    }

    fn occupied(&self, name: &str, offset: u64, length: u64) -> Result<u64> {
        self.0.occupied(&outer(name), offset, length)
    }

    fn bytes_max(&self) -> u64 {
        self.0.bytes_max()
    }

    /// Always: any other process may have been replaced, and its requests may still arrive.
    fn answers_may_be_lost(&self) -> bool {
        true
    }
}
