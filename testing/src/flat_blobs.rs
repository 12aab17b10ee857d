//! Objects whose names have parts, in a store of flat names. Its lists are in no order, because
//! nothing may rely on one.

use std::ops::Deref;

use device::{Blobs, Device};

/// Objects of a store that has one directory.
pub struct FlatBlobs<B>(pub B);

fn flat(name: &str) -> String {
    name.replace('/', "_")
}

impl<B: Deref<Target: Blobs> + Send + Sync> Blobs for FlatBlobs<B> {
    fn create(&self, name: &str, bytes: &[u8]) -> device::Result<bool> {
        self.0.create(&flat(name), bytes)
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> device::Result<bool> {
        self.0.adopt(&flat(name), device, path)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> device::Result<usize> {
        self.0.read_at(&flat(name), buffer, offset)
    }

    fn length(&self, name: &str) -> device::Result<Option<u64>> {
        self.0.length(&flat(name))
    }

    fn list(&self, prefix: &str) -> device::Result<Vec<String>> {
        let names = self.0.list(&flat(prefix))?;
        Ok(names.iter().rev().map(|name| name.replace('_', "/")).collect())
    }

    fn delete(&self, name: &str) -> device::Result<()> {
        self.0.delete(&flat(name))
    }

    fn punch(&self, name: &str, offset: u64, length: u64) -> device::Result<bool> {
        self.0.punch(&flat(name), offset, length)
    }

    fn disk_bytes(&self, name: &str) -> device::Result<u64> {
        self.0.disk_bytes(&flat(name))
    }

    fn answers_may_be_lost(&self) -> bool {
        self.0.answers_may_be_lost()
    }
}
