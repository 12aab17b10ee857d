//! What a query sees of one subvolume: its base, what differs from that, and the state of the
//! store that both are of. How views are kept between queries, and made.

use std::sync::Arc;
use std::time::Duration;

use inode::Owned;
use store::{CommitToken, Pinned, TreeId};

use super::base::Base;
use super::layer::Delta;
use super::scope::owned;
use crate::Result;
use crate::assemble::{NamedEntry, Records};

/// What a subvolume takes beside its differences: slot, lock, and its place in the map.
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
    /// What differs from that.
    pub(crate) delta: Delta,
}

impl View {
    /// The directory above a directory, and what permissions on it depend on; `None` when it is
    /// not there, or was detached.
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

    /// The directory above a directory, and its name there.
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

/// What is known of a subvolume since it was last looked at.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) known: Option<Known>,
}

/// A subvolume as of some commit.
pub(crate) struct Known {
    /// Its tree.
    pub(crate) tree: TreeId,
    /// Its base, as its record says.
    pub(crate) base_tree: u64,
    /// The last commit it was brought up to.
    pub(crate) commit: CommitToken,
    /// That state, to find later differences by; `None` when it was let go of, so that the room
    /// of what is deleted is not held while nobody asks.
    pub(crate) pinned: Option<Arc<dyn Pinned>>,
    /// Its base, loaded.
    pub(crate) base: Option<Arc<Base>>,
    /// What differs; `None`: too much to be held.
    pub(crate) delta: Option<Delta>,
    /// When a query last asked for it.
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
