//! The files of the index: immutable blobs in `index/`, which a user may delete at any time.

use std::sync::Arc;

use device::sync::Mutex;
use device::{Blobs, BlobsBelow, Compared, Device, Env, LocalBlobs, compare, part_of};

use crate::Result;

/// The directory of the volume that holds them.
pub const DIRECTORY: &str = "index";

/// How often a blob that is left from earlier work is replaced: requests of an earlier process may
/// make it again.
const TRIES: usize = 8;

/// Where the files of an index are.
#[derive(Clone)]
pub struct Home {
    /// The volume directory.
    pub device: Arc<dyn Device>,
    /// The objects, if the index is in an object store.
    pub objects: Option<Arc<dyn Blobs>>,
}

impl Home {
    /// The home of the index of a volume.
    pub fn of(env: &Env) -> Home {
        let below = |objects: &device::Objects| {
            Arc::new(BlobsBelow::new(Arc::clone(&objects.cached), DIRECTORY)) as Arc<dyn Blobs>
        };
        Home { device: Arc::clone(&env.device), objects: env.objects.as_ref().map(below) }
    }
}

/// Blobs of the index; the first write creates the directory.
pub(crate) struct Files {
    home: Home,
    open: Mutex<Option<Arc<dyn Blobs>>>,
}

/// Name of a base's manifest.
pub(crate) fn manifest_name(base: u64) -> String {
    format!("manifest-{base:016x}")
}

/// Name of a cluster's blob.
pub(crate) fn cluster_name((owner, number): (u64, u32)) -> String {
    format!("cluster-{owner:016x}-{number:08x}")
}

/// The base that a blob was written for, from its name.
pub(crate) fn owner_of(name: &str) -> Option<u64> {
    let rest = name.strip_prefix("manifest-").or_else(|| name.strip_prefix("cluster-"))?;
    u64::from_str_radix(rest.get(..16)?, 16).ok()
}

impl Files {
    /// The files of a volume.
    pub(crate) fn new(home: Home) -> Files {
        let open = Mutex::new(home.objects.clone());
        Files { home, open }
    }

    /// Whether there is a directory: one on the device may be deleted at any time.
    fn is_there(&self) -> Result<bool> {
        Ok(self.home.objects.is_some() || self.home.device.metadata(DIRECTORY)?.is_some())
    }

    /// The blobs; `None` when there is no directory yet.
    pub(crate) fn blobs(&self) -> Result<Option<Arc<dyn Blobs>>> {
        let mut open = self.open.lock();
        if open.is_none() && self.is_there()? {
            *open = Some(Arc::new(LocalBlobs::open(Arc::clone(&self.home.device), DIRECTORY)?));
        }
        Ok(open.clone())
    }

    fn made(&self) -> Result<Arc<dyn Blobs>> {
        let mut open = self.open.lock();
        if !self.is_there()? {
            // Never created, or deleted while the volume is open.
            *open = None;
        }
        if open.is_none() {
            *open = Some(Arc::new(LocalBlobs::open(Arc::clone(&self.home.device), DIRECTORY)?));
        }
        Ok(Arc::clone(open.as_ref().expect("invariant: it was opened")))
    }

    /// Writes a blob, durable on return. An existing blob of that name is left from the same work
    /// before a crash: nothing refers to it.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let blobs = self.made()?;
        let part = |buffer: &mut [u8], at: u64| Ok(part_of(bytes, buffer, at));
        for _ in 0..TRIES {
            if blobs.create(name, bytes)?
                || compare(&*blobs, name, bytes.len() as u64, &part)? == Compared::Same
            {
                return Ok(());
            }
            blobs.delete(name)?;
        }
        let exists = std::io::ErrorKind::AlreadyExists.into();
        Err(device::Error::new("replace", name, exists).into())
    }

    /// Reads a part of a blob; returns fewer bytes at its end.
    pub(crate) fn read(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
        let Some(blobs) = self.blobs()? else { return Ok(Vec::new()) };
        let mut bytes = vec![0; length];
        let read = blobs.read_at(name, &mut bytes, offset)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Length of a blob, if it is there.
    pub(crate) fn length(&self, name: &str) -> Result<Option<u64>> {
        match self.blobs()? {
            Some(blobs) => Ok(blobs.length(name)?),
            None => Ok(None),
        }
    }

    /// Names of all blobs.
    pub(crate) fn list(&self) -> Result<Vec<String>> {
        if !self.is_there()? {
            return Ok(Vec::new());
        }
        match self.blobs()? {
            Some(blobs) => Ok(blobs.list("")?),
            None => Ok(Vec::new()),
        }
    }

    /// Deletes a blob.
    pub(crate) fn delete(&self, name: &str) -> Result<()> {
        match self.blobs()? {
            Some(blobs) => Ok(blobs.delete(name)?),
            None => Ok(()),
        }
    }

    /// Bytes that all blobs occupy on disk.
    pub(crate) fn disk_bytes(&self) -> Result<u64> {
        let Some(blobs) = self.blobs()? else { return Ok(0) };
        let mut bytes = 0;
        for name in self.list()? {
            bytes += blobs.disk_bytes(&name)?;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{cluster_name, manifest_name, owner_of};

    #[test]
    fn names_encode_their_owner() {
        assert_eq!(owner_of(&manifest_name(77)), Some(77));
        assert_eq!(owner_of(&cluster_name((u64::MAX, 3))), Some(u64::MAX));
        for strange in ["manifest-", "cluster-12", "other", "manifest-zzzzzzzzzzzzzzzz"] {
            assert_eq!(owner_of(strange), None);
        }
    }
}
