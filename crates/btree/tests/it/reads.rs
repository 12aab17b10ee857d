//! A disk whose reads of the nodes fail as a test sets.

use std::sync::Arc;

use device::{Device, Env, File, Lock, Metadata, Result, Space};

pub(crate) const NODES: &str = "btree/nodes";

/// What becomes of a read: where it was, and what it gave.
pub(crate) type Wrong = Arc<dyn Fn(u64, &mut [u8]) -> Result<()> + Send + Sync>;

/// An environment of which reads of the nodes go through `wrong`.
pub(crate) fn through(env: Env, wrong: Wrong) -> Env {
    let inner = Arc::clone(&env.device);
    Env { device: Arc::new(BadDisk { inner, wrong }), ..env }
}

struct BadDisk {
    inner: Arc<dyn Device>,
    wrong: Wrong,
}

struct Nodes {
    inner: Arc<dyn File>,
    wrong: Wrong,
}

impl Device for BadDisk {
    fn open(&self, path: &str) -> Result<Arc<dyn File>> {
        let inner = self.inner.open(path)?;
        let wrong = Arc::clone(&self.wrong);
        Ok(if path == NODES { Arc::new(Nodes { inner, wrong }) } else { inner })
    }

    fn create(&self, path: &str) -> Result<Arc<dyn File>> {
        self.inner.create(path)
    }

    fn metadata(&self, path: &str) -> Result<Option<Metadata>> {
        self.inner.metadata(path)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        self.inner.list(directory)
    }

    fn create_dir(&self, directory: &str) -> Result<()> {
        self.inner.create_dir(directory)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.inner.remove(path)
    }

    fn sync_dir(&self, directory: &str) -> Result<()> {
        self.inner.sync_dir(directory)
    }

    fn space(&self) -> Result<Space> {
        self.inner.space()
    }

    fn try_lock(&self, path: &str) -> Result<Option<Box<dyn Lock>>> {
        self.inner.try_lock(path)
    }
}

impl File for Nodes {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let read = self.inner.read_at(buffer, offset)?;
        (self.wrong)(offset, &mut buffer[..read])?;
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.inner.write_at(bytes, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.inner.sync_data()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.inner.set_len(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.inner.allocate(offset, length)
    }

    fn punch(&self, offset: u64, length: u64) -> Result<bool> {
        self.inner.punch(offset, length)
    }

    fn disk_bytes(&self) -> Result<u64> {
        self.inner.disk_bytes()
    }
}
