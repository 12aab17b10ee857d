//! Subvolumes in memory: the tree of each one, and the gate that its changes pass.
//!
//! Every change holds the gate shared from before its first read to after its commit. A thread
//! takes the gate exclusively for a snapshot, a clone, or the swap of a tree after pruning. It then
//! sees a subvolume in which nothing is half done. Reads do not pass the gate: they read the tree's
//! number, and retry when that tree is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::Map;
use device::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::{FsError, Ino, NodeId, Slot, SubvolId};
use store::{Read, Store, TreeId};
use vfs::FsResult;

use crate::error::{from_store, inconsistent, malformed};
use crate::nodes::NodeTable;
use crate::slots::Slots;

pub use crate::own_tree::VOLUME;

/// A subvolume that was used since the volume was opened.
pub struct Subvol {
    /// Its number.
    pub id: SubvolId,
    /// Inode of its root directory.
    pub root: u64,
    /// Whose snapshots it shares.
    pub lineage: u64,
    /// Whether nothing in it may change.
    pub read_only: bool,
    /// The first inode number that was handed out in it: what is below was inherited.
    first_own_ino: u64,
    /// Whether it is an index of another file system: only scans change it.
    index: AtomicBool,
    tree: AtomicU64,
    last_clone_epoch: AtomicU64,
    gone: AtomicBool,
    /// How many copies that inherit had been made when all had theirs of this subvolume.
    given_to: AtomicU64,
    /// Whether it inherits subvolumes that are not copied for it yet.
    inherits: AtomicBool,
    /// When a check found that no limit is in force in it ([`Unlimited`]).
    unlimited: AtomicU64,
    gate: RwLock<()>,
}

/// The quotas under which no limit is in force in a subvolume.
#[derive(Debug, Clone, Copy)]
pub struct Unlimited {
    /// How often quotas had changed.
    pub changes: u64,
    /// Whether it was checked as something in which nothing can change, which more refuses.
    pub as_read_only: bool,
}

impl Unlimited {
    /// Never 0, which means unknown.
    fn encoded(self) -> u64 {
        (self.changes << 1 | u64::from(self.as_read_only)) + 1
    }
}

/// A change to a subvolume in progress.
pub struct Entered<'a> {
    _gate: RwLockReadGuard<'a, ()>,
    /// The subvolume's tree, which does not change meanwhile.
    pub tree: TreeId,
}

impl Subvol {
    fn new(id: SubvolId, record: &SubvolumeRecord) -> Subvol {
        Subvol {
            id,
            root: record.root,
            lineage: record.lineage,
            read_only: record.read_only,
            first_own_ino: record.first_own_ino,
            index: AtomicBool::new(record.index),
            tree: AtomicU64::new(record.tree),
            last_clone_epoch: AtomicU64::new(record.last_clone_epoch),
            gone: AtomicBool::new(false),
            given_to: AtomicU64::new(0),
            inherits: AtomicBool::new(record.inherits),
            unlimited: AtomicU64::new(0),
            gate: RwLock::new(()),
        }
    }

    /// The tree, for reading.
    #[inline]
    pub fn tree(&self) -> TreeId {
        TreeId(self.tree.load(Ordering::Acquire))
    }

    /// Replaces the tree, with the gate held exclusively.
    pub fn set_tree(&self, tree: TreeId) {
        self.tree.store(tree.0, Ordering::Release);
    }

    /// Epoch of the last snapshot or clone of it: extents that are older may be shared.
    #[inline]
    pub fn last_clone_epoch(&self) -> u64 {
        self.last_clone_epoch.load(Ordering::Acquire)
    }

    /// Sets the epoch, with the gate held exclusively.
    pub fn set_last_clone_epoch(&self, epoch: u64) {
        self.last_clone_epoch.store(epoch, Ordering::Release);
    }

    /// The node of an inode of it.
    #[inline]
    pub fn node(&self, ino: u64) -> NodeId {
        NodeId::new(self.id, Ino(ino))
    }

    /// The node of its root.
    pub fn root_node(&self) -> NodeId {
        self.node(self.root)
    }

    /// Reads, and retries when the tree was replaced meanwhile.
    #[inline]
    pub fn read<T>(&self, mut read: impl FnMut(TreeId) -> FsResult<T>) -> FsResult<T> {
        loop {
            let tree = self.tree();
            match read(tree) {
                Err(FsError::Stale) if self.tree() != tree => {}
                result => return result,
            }
        }
    }

    /// Refuses if operations may not change it: in a snapshot, and in an index.
    #[inline]
    pub fn check_changes(&self) -> FsResult<()> {
        if self.read_only {
            return Err(FsError::ReadOnly("a snapshot".to_owned()));
        }
        if self.index.load(Ordering::Acquire) {
            return Err(FsError::ReadOnly("an index of another file system".to_owned()));
        }
        Ok(())
    }

    /// How many copies had been made when all that inherit this subvolume had copies of it.
    #[inline]
    pub fn given_to(&self) -> u64 {
        self.given_to.load(Ordering::Acquire)
    }

    /// Sets it. The ledger is locked.
    pub fn set_given_to(&self, copies: u64) {
        self.given_to.store(copies, Ordering::Release);
    }

    /// Whether it inherits subvolumes that are not copied for it yet.
    #[inline]
    pub fn inherits(&self) -> bool {
        self.inherits.load(Ordering::Acquire)
    }

    /// It has all that it inherited.
    pub fn set_complete(&self) {
        self.inherits.store(false, Ordering::Release);
    }

    /// Whether a check under the same quotas found that no limit is in force in it.
    pub fn is_unlimited(&self, now: Unlimited) -> bool {
        let known = self.unlimited.load(Ordering::Acquire);
        known == now.encoded() || known == Unlimited { as_read_only: true, ..now }.encoded()
    }

    /// Notes that a check found so.
    pub fn set_unlimited(&self, now: Unlimited) {
        self.unlimited.store(now.encoded(), Ordering::Release);
    }

    /// Begins a change, for `Fs::enter`, which first provides the copies that inherit.
    #[inline]
    pub fn enter(&self) -> FsResult<Entered<'_>> {
        self.check_changes()?;
        let gate = self.gate.read();
        if self.gone.load(Ordering::Acquire) {
            return Err(FsError::Stale);
        }
        Ok(Entered { _gate: gate, tree: self.tree() })
    }

    /// Makes it an index, with the gate held exclusively.
    pub fn set_index(&self) {
        self.index.store(true, Ordering::Release);
    }

    /// Waits until no change is in progress, and blocks new ones.
    pub fn quiesce(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write()
    }

    /// Whether a thread keeps it from changing, for tests of what others wait for.
    pub fn is_quiet(&self) -> bool {
        self.gate.is_locked_exclusive()
    }

    /// Marks the subvolume as removed, with the gate held exclusively.
    pub fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Whether it was removed.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

/// The subvolumes that were used.
pub struct SubvolTable {
    /// By their slots.
    loaded: RwLock<Map<u64, Arc<Subvol>>>,
    /// Which of the others has which slot, and which slots are free.
    pub slots: Slots,
}

impl SubvolTable {
    /// An empty table.
    pub fn new(slots: Slots) -> SubvolTable {
        SubvolTable { loaded: RwLock::new(Map::default()), slots }
    }

    /// A subvolume, loaded on first use.
    #[inline]
    pub fn get(&self, store: &dyn Store, id: SubvolId) -> FsResult<Arc<Subvol>> {
        match self.loaded.read().get(&id.slot().0) {
            Some(subvol) if subvol.id == id => return Ok(Arc::clone(subvol)),
            _ => {}
        }
        self.load(store, id)
    }

    /// The subvolume that has a slot.
    #[inline]
    pub fn of_slot(&self, store: &dyn Store, slot: Slot) -> FsResult<Arc<Subvol>> {
        if let Some(subvol) = self.loaded.read().get(&slot.0) {
            return Ok(Arc::clone(subvol));
        }
        let id = self.slots.number(store, slot)?.ok_or(FsError::Stale)?;
        self.load(store, id)
    }

    #[cold]
    fn load(&self, store: &dyn Store, id: SubvolId) -> FsResult<Arc<Subvol>> {
        // The lock is held over the read, so that a removal cannot come between.
        let mut loaded = self.loaded.write();
        let other = match loaded.get(&id.slot().0) {
            Some(subvol) if subvol.id == id => return Ok(Arc::clone(subvol)),
            other => other.is_some(),
        };
        let record = read_record(store, id)?.ok_or(FsError::Stale)?;
        if other {
            return Err(inconsistent(VOLUME, "two subvolumes have one slot", id.0));
        }
        let subvol = Arc::new(Subvol::new(id, &record));
        loaded.insert(id.slot().0, Arc::clone(&subvol));
        Ok(subvol)
    }

    /// The first inode number that was handed out in a subvolume that was used, as any was in which
    /// something changes. Smaller numbers were inherited.
    pub fn first_own_ino(&self, id: u64) -> Option<u64> {
        let loaded = self.loaded.read();
        let subvol = loaded.get(&key::slot(id)).filter(|subvol| subvol.id.0 == id);
        subvol.map(|subvol| subvol.first_own_ino)
    }

    /// The subvolume that lives in a tree, if it was used.
    pub fn of_tree(&self, tree: TreeId) -> Option<Arc<Subvol>> {
        #[expect(clippy::iter_over_hash_type, reason = "there is at most one")]
        for subvol in self.loaded.read().values() {
            if subvol.tree() == tree {
                return Some(Arc::clone(subvol));
            }
        }
        None
    }

    /// Forgets a subvolume that was removed; its record is gone. Its slot is reused when no node of
    /// it is held.
    pub fn remove(&self, nodes: &NodeTable, id: SubvolId) {
        let mut loaded = self.loaded.write();
        if loaded.get(&id.slot().0).is_some_and(|subvol| subvol.id == id)
            && let Some(subvol) = loaded.remove(&id.slot().0)
        {
            subvol.set_gone();
        }
        self.slots.free(nodes, id);
    }
}

/// The record of a subvolume. One that no node could name is damage.
pub fn read_record(store: &dyn Read, id: SubvolId) -> FsResult<Option<SubvolumeRecord>> {
    let bytes = store.get(VOLUME, &key::subvolume(id.0)).map_err(from_store)?;
    let Some(bytes) = bytes else { return Ok(None) };
    let record = SubvolumeRecord::decode(&bytes).map_err(|error| malformed(VOLUME, &error))?;
    if !key::can_be_subvolume(id.0) || Ino(record.root) > Ino::MAX {
        return Err(inconsistent(VOLUME, "an impossible subvolume number", id.0));
    }
    Ok(Some(record))
}

/// The node of an inode of a subvolume.
#[inline]
pub fn node_of(subvol: u64, ino: u64) -> NodeId {
    NodeId::new(SubvolId(subvol), Ino(ino))
}
