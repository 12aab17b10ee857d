//! `OverBlobs`: a wrapper around objects implements the calls that it changes, and this passes the
//! others to the objects below.
//!
//! Invariant: a wrapper that changes `delete` sees each name of `delete_all`, too.

use crate::{Blobs, Device, Result};

/// Objects over other ones. A wrapper that changes `length` or `list` also decides what
/// `occupied` and `disk_bytes_below` return, which are of the objects below otherwise.
pub trait OverBlobs: Send + Sync {
    /// The objects below.
    fn below(&self) -> &dyn Blobs;

    /// See [`Blobs::create`].
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.below().create(name, bytes)
    }

    /// See [`Blobs::adopt`].
    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        self.below().adopt(name, device, path)
    }

    /// See [`Blobs::read_at`].
    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.below().read_at(name, buffer, offset)
    }

    /// See [`Blobs::length`].
    fn length(&self, name: &str) -> Result<Option<u64>> {
        self.below().length(name)
    }

    /// See [`Blobs::list`].
    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.below().list(prefix)
    }

    /// See [`Blobs::delete`].
    fn delete(&self, name: &str) -> Result<()> {
        self.below().delete(name)
    }

    /// See [`Blobs::delete_all`]; a wrapper that changes no deletion passes it on.
    fn delete_all(&self, names: &[String]) -> Result<()> {
        names.iter().try_for_each(|name| OverBlobs::delete(self, name))
    }

    /// See [`Blobs::punch`].
    fn punch(&self, name: &str, offset: u64, length: u64) -> Result<bool> {
        self.below().punch(name, offset, length)
    }
}

impl<B: OverBlobs> Blobs for B {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        OverBlobs::create(self, name, bytes)
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        OverBlobs::adopt(self, name, device, path)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        OverBlobs::read_at(self, name, buffer, offset)
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        OverBlobs::length(self, name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        OverBlobs::list(self, prefix)
    }

    fn delete(&self, name: &str) -> Result<()> {
        OverBlobs::delete(self, name)
    }

    fn delete_all(&self, names: &[String]) -> Result<()> {
        OverBlobs::delete_all(self, names)
    }

    fn punch(&self, name: &str, offset: u64, length: u64) -> Result<bool> {
        OverBlobs::punch(self, name, offset, length)
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        self.below().disk_bytes(name)
    }

    fn occupied(&self, name: &str, offset: u64, length: u64) -> Result<u64> {
        self.below().occupied(name, offset, length)
    }

    fn disk_bytes_below(&self, prefix: &str) -> Result<u64> {
        self.below().disk_bytes_below(prefix)
    }

    fn bytes_max(&self) -> u64 {
        self.below().bytes_max()
    }

    fn answers_may_be_lost(&self) -> bool {
        self.below().answers_may_be_lost()
    }
}
