//! `OverlayBlobs`: objects with changes that stay in memory, as [`crate::Overlay`] is of a device.
//! A check opens a volume over it, and the object store keeps what it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::sync::Mutex;

use crate::{Blobs, Device, Error, Result, part_of};

/// Objects that are read, with changes that stay in memory.
pub struct OverlayBlobs {
    below: Arc<dyn Blobs>,
    /// Names that differ from the store below.
    changed: Arc<Mutex<BTreeMap<String, Changed>>>,
}

/// How a name differs from the store below.
#[derive(Clone)]
enum Changed {
    Made(Arc<Vec<u8>>),
    Deleted,
}

impl Changed {
    fn length(&self) -> Option<u64> {
        match self {
            Changed::Made(bytes) => Some(bytes.len() as u64),
            Changed::Deleted => None,
        }
    }
}

impl OverlayBlobs {
    /// An overlay over a store, without changes.
    pub fn new(below: Arc<dyn Blobs>) -> OverlayBlobs {
        OverlayBlobs { below, changed: Arc::default() }
    }

    /// The same changes over another view of the same objects, such as one with a cache.
    #[must_use]
    pub fn over(&self, below: Arc<dyn Blobs>) -> OverlayBlobs {
        OverlayBlobs { below, changed: Arc::clone(&self.changed) }
    }

    fn changed(&self, name: &str) -> Option<Changed> {
        self.changed.lock().get(name).cloned()
    }
}

impl Blobs for OverlayBlobs {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        if self.length(name)?.is_some() {
            return Ok(false);
        }
        self.changed.lock().insert(name.to_owned(), Changed::Made(Arc::new(bytes.to_vec())));
        Ok(true)
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        let file = device.open(path)?;
        let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(usize::MAX)];
        let read = file.read_at(&mut bytes, 0)?;
        let made = self.create(name, bytes.get(..read).unwrap_or_default())?;
        if made {
            device.remove(path)?;
        }
        Ok(made)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        match self.changed(name) {
            None => self.below.read_at(name, buffer, offset),
            Some(Changed::Made(bytes)) => Ok(part_of(&bytes, buffer, offset)),
            Some(Changed::Deleted) => {
                Err(Error::new("read", name, std::io::ErrorKind::NotFound.into()))
            }
        }
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        match self.changed(name) {
            None => self.below.length(name),
            Some(changed) => Ok(changed.length()),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let mut names: BTreeSet<String> = self.below.list(prefix)?.into_iter().collect();
        for (name, changed) in &*self.changed.lock() {
            match changed {
                Changed::Made(_) if name.starts_with(prefix) => drop(names.insert(name.clone())),
                Changed::Made(_) => {}
                Changed::Deleted => drop(names.remove(name)),
            }
        }
        Ok(names.into_iter().collect())
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.changed.lock().insert(name.to_owned(), Changed::Deleted);
        Ok(())
    }

    fn punch(&self, _name: &str, _offset: u64, _length: u64) -> Result<bool> {
        Ok(false)
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        match self.changed(name) {
            None => self.below.disk_bytes(name),
            Some(changed) => Ok(changed.length().unwrap_or(0)),
        }
    }

    fn bytes_max(&self) -> u64 {
        self.below.bytes_max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalBlobs, LocalDevice};

    #[test]
    fn changes_are_seen_above_and_not_below() {
        let directory = tempfile::tempdir().unwrap();
        let device = Arc::new(LocalDevice::open(directory.path()).unwrap());
        let below = Arc::new(LocalBlobs::open(device, "objects").unwrap());
        below.create("old", b"before").unwrap();
        below.create("gone", b"before").unwrap();
        let over = OverlayBlobs::new(Arc::<LocalBlobs>::clone(&below));
        assert!(over.create("new", b"after").unwrap());
        assert!(!over.create("old", b"after").unwrap());
        over.delete("gone").unwrap();
        assert_eq!(over.list("").unwrap(), ["new", "old"]);
        let mut buffer = [0; 5];
        assert_eq!(over.read_at("new", &mut buffer, 1).unwrap(), 4);
        assert_eq!(&buffer[..4], b"fter");
        assert!(over.read_at("gone", &mut buffer, 0).unwrap_err().is_not_found());
        assert!(over.create("gone", b"again").unwrap());
        assert_eq!(over.length("gone").unwrap(), Some(5));
        assert_eq!(below.list("").unwrap(), ["gone", "old"]);
        assert_eq!(below.length("gone").unwrap(), Some(6));
    }
}
