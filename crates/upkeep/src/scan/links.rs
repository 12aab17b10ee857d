//! Inodes with several names: which number of ours represents which inode of the other file system,
//! so that all its names point to one record.
//!
//! Kept in memory while the volume is open, some 40 bytes each, and read from the tree once.

use device::{Map, Set};
use format::inode_record::{Elsewhere, LinkedRecord};
use format::key::{self, Parsed, Part};
use store::{KeyRange, Store, TreeId};
use vfs::FsResult;
use volume::error::{from_store, malformed};

/// Linked inodes of one tree.
#[derive(Default)]
pub(super) struct Links {
    known: Map<(u64, u64), Link>,
    /// Numbers that lost a name, and may have none now.
    touched: Set<u64>,
}

/// A linked inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    /// Our number.
    pub(super) ino: u64,
    /// A hash of the last scanned state, so that the same state is not compared and written for
    /// every name. `None` before the scan met it.
    pub(super) hash: Option<u64>,
}

impl Links {
    /// Reads those of a tree.
    pub(super) fn load(store: &dyn Store, tree: TreeId) -> FsResult<Links> {
        let mut links = Links::default();
        // An inode without a name, as an unfinished scan leaves it, must be examined.
        let mut nameless = None;
        let mut cursor = store.scan(tree, KeyRange::prefix(b"L")).map_err(from_store)?;
        while let Some(item) = cursor.next().map_err(from_store)? {
            let malformed = |error| malformed(tree, &error);
            let parsed = key::parse(item.key).map_err(malformed)?;
            if let Parsed::BackReference { .. } = parsed {
                nameless = None;
            }
            let Parsed::Linked { ino, part: Part::Attributes } = parsed else { continue };
            links.touched.extend(nameless.replace(ino));
            let record = LinkedRecord::decode(item.value).map_err(malformed)?;
            if let Some(of) = record.inode.elsewhere {
                links.set(of, Link { ino, hash: None });
            }
        }
        links.touched.extend(nameless);
        Ok(links)
    }

    /// The inode that represents one of the other file system.
    pub(super) fn get(&self, of: Elsewhere) -> Option<Link> {
        self.known.get(&(of.device, of.number)).copied()
    }

    pub(super) fn set(&mut self, of: Elsewhere, link: Link) {
        self.known.insert((of.device, of.number), link);
    }

    /// Forgets an inode that has no name.
    pub(super) fn remove(&mut self, of: Elsewhere, ino: u64) {
        if self.get(of).is_some_and(|link| link.ino == ino) {
            self.known.remove(&(of.device, of.number));
        }
    }

    /// Begins a scan, which has received nothing yet.
    pub(super) fn begin(&mut self) {
        #[expect(clippy::iter_over_hash_type, reason = "each is changed alike")]
        for link in self.known.values_mut() {
            link.hash = None;
        }
    }

    /// Notes that a number lost a name.
    pub(super) fn touch(&mut self, ino: u64) {
        self.touched.insert(ino);
    }

    /// Numbers that lost a name since this was asked.
    pub(super) fn take_touched(&mut self) -> Vec<u64> {
        let mut touched: Vec<u64> = std::mem::take(&mut self.touched).into_iter().collect();
        touched.sort_unstable();
        touched
    }
}
