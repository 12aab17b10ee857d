//! What a query sees of one subvolume: its base, the differences from it, and the state of the
//! store that both belong to. Also how views are kept between queries.

use std::sync::Arc;
use std::time::Duration;

use inode::{Kind, Owned};
use store::{CommitToken, Pinned, TreeId};

use super::base::Base;
use super::layer::Delta;
use crate::Result;
use crate::assemble::{NamedEntry, Records};

/// Memory of a subvolume besides its differences: slot, lock, and its place in the map.
const OVERHEAD_BYTES: usize = 256;

/// What a query sees of a subvolume.
#[derive(Clone)]
pub(crate) struct View {
    /// The subvolume.
    pub(crate) subvolume: u64,
    /// Its tree.
    pub(crate) tree: TreeId,
    /// Its root directory.
    pub(crate) root: u64,
    /// The state.
    pub(crate) pinned: Arc<dyn Pinned>,
    /// What clusters describe; `None`: nothing, and all rows are in the delta.
    pub(crate) base: Option<Arc<Base>>,
    /// The differences from the base.
    pub(crate) delta: Delta,
}

impl View {
    /// The parent of a directory, and the fields that permissions on it depend on; `None` if it is
    /// missing or detached.
    pub(crate) fn place(&self, records: Records<'_>, ino: u64) -> Result<Option<(u64, Owned)>> {
        if let Some(facts) = self.base.as_ref().and_then(|base| base.table.facts(ino))
            && !self.delta.has_directory(ino)
        {
            let owned = owned(facts.mode, facts.uid, facts.gid);
            return Ok(Some((facts.parent, owned)));
        }
        let record = records.directory(ino)?.filter(|record| !record.detached);
        Ok(record.map(|record| (record.parent, owned(record.mode, record.uid, record.gid))))
    }

    /// The parent of a directory, and its name there.
    pub(crate) fn name(&self, records: Records<'_>, ino: u64) -> Result<(u64, Vec<u8>)> {
        if let Some(facts) = self.base.as_ref().and_then(|base| base.table.facts(ino))
            && !facts.name.is_empty()
            && !self.delta.has_directory(ino)
        {
            return Ok((facts.parent, facts.name.to_vec()));
        }
        let damage = || records.inconsistent("a directory has no name", ino);
        let record = records.directory(ino)?.ok_or_else(damage)?;
        let mut found = NamedEntry::default();
        records.entry(record.parent, record.parent_cookie, &mut found)?;
        if found.ino != ino || found.target.is_none() {
            return Err(damage());
        }
        Ok((record.parent, found.name))
    }
}

/// What is cached for a subvolume since the last query.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) known: Option<Known>,
}

/// A subvolume as of some commit.
pub(crate) struct Known {
    /// Its tree.
    pub(crate) tree: TreeId,
    /// Its base, as recorded.
    pub(crate) base_tree: u64,
    /// The last commit it was brought up to.
    pub(crate) commit: CommitToken,
    /// That state, to find later differences from. `None` after it was released, so that it does
    /// not hold the space of deleted data while no query runs.
    pub(crate) pinned: Option<Arc<dyn Pinned>>,
    /// Its base, loaded.
    pub(crate) base: Option<Arc<Base>>,
    /// The differences; `None`: too many to hold in memory.
    pub(crate) delta: Option<Delta>,
    /// Time of the last query of it.
    pub(crate) asked: Duration,
}

impl Known {
    /// Memory that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        OVERHEAD_BYTES + self.delta.as_ref().map_or(0, Delta::memory_bytes)
    }
}

impl Slot {
    /// Memory that what is known takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.known.as_ref().map_or(0, Known::memory_bytes)
    }
}

/// The fields that permissions on a directory depend on.
pub(crate) fn owned(mode: u32, uid: u32, gid: u32) -> Owned {
    Owned { kind: Kind::Directory, uid, gid, mode }
}
