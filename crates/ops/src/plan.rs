//! A plan: everything that an operation does, as a value, before any of it is done.
//!
//! An operation reads, and describes here what it needs and what it changes. These are the locks, a
//! batch of writes, and the effects on what is kept in memory. Nothing that others see changes
//! until `execute` commits the batch and applies the effects. Only numbers of new inodes are taken
//! earlier, and the trash makes its own directories. The order:
//!
//! 1. what walks over trees must know of (`arrivals`), before the commit;
//! 2. effects on nodes and caches, after the commit and under the locks;
//! 3. notifications of front ends, without locks.
//!
//! The memory of a plan is kept by the thread from one plan to the next, so that building one
//! allocates nothing.

mod records;

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;

use data::{Data, Freed};
use device::Timestamp;
use format::candidate::COLLECT_KEY;
use format::directory_record::DirectoryRecord;
use format::inherited_record::Home;
use format::inode_record::InodeRecord;
use format::xattr_record::XattrRecord;
use inode::{Caller, NodeId};
use store::{Batch, CommitToken, Need, Store, TreeId};
use vfs::FsResult;
use volume::account::Change;
use volume::arrivals::{Arrival, Arrivals, UnderWay};
use volume::error::from_store;
use volume::locks::{Lock, Mode};
use volume::nodes::{Location, Orphan};
use volume::subvol::{Subvol, VOLUME};

use crate::subvolumes::Copied;

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

#[derive(Default)]
struct Scratch {
    locks: Vec<(Lock, Mode)>,
    batch: Batch,
    effects: Vec<Effect>,
    value: Vec<u8>,
    /// Directories, each a subvolume and a number, in which the plan makes directories.
    makes_in: Vec<(u64, u64)>,
}

/// Most memory that a thread keeps between plans.
const KEEP_BYTES: usize = 1 << 20;
/// Most locks and effects that a thread keeps memory for between plans.
const KEEP_ITEMS: usize = 1 << 10;

/// A change of one subvolume (or two) that is being planned.
pub struct Plan {
    scratch: Box<Scratch>,
    /// Which of the effects are there that are not applied under the locks.
    has: Has,
    /// What it reserves of accounts: it counts when the batch is committed.
    reserved: Reserved,
    /// Contents that the batch frees, or that were written for it.
    freed: Option<Freed>,
    /// Whether the locks of places that are shared are of no use any more.
    frees_ancestors: bool,
    /// The watch that was closed for it, and opens after the commit.
    closed: Option<usize>,
    /// Where a policy has what is removed go.
    redirect: Option<Box<dyn Any>>,
    /// A directory whose times stay as they are; 0: none.
    untimed: u64,
    /// Whether more batches of the same change follow.
    is_part: bool,
    /// Whether the caller is exempt from the limits of users and groups.
    privileged: bool,
    /// When the change happens, in nanoseconds since 1970.
    pub now: i64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Has {
    arrivals: bool,
    notices: bool,
}

/// A setting of which a policy keeps a copy in memory.
pub trait Setting {
    /// The setting is committed.
    fn take_effect(&self);
}

/// What a plan changes in memory once its batch is committed.
pub enum Effect {
    /// A directory or a subvolume that a walk over trees must know of: noted before the commit.
    Arrives(Arrival, Option<u32>),
    /// The caller holds a node, which is stored there.
    LookUp(NodeId, Location),
    /// A node is stored elsewhere.
    Relocate(NodeId, Location),
    /// An inode lost its last name.
    Lost(LastName),
    /// A directory was removed: what its holders see of it.
    Removed(NodeId, DirectoryRecord),
    /// An inode was created without a name.
    HoldUnnamed(NodeId, Orphan),
    /// An inode that was created without a name has one.
    NameUnnamed(NodeId),
    /// An inode without a name changed in memory.
    SetOrphan(NodeId, Orphan),
    /// An inode without a name is stored on disk from now on.
    StoreOrphan(NodeId),
    /// Directories moved, or have other rights.
    DirectoriesMoved,
    /// A directory is in another one, or was detached.
    DirectoryRehung,
    /// A subvolume is mounted at an entry now (subvolume, directory, cookie), or nowhere.
    Mounted(u64, Option<(u64, u64, u64)>),
    /// A directory was copied as a subvolume.
    Copied(Box<Copied>),
    /// An heir was given a copy of what it inherited.
    Given(Box<Copied>),
    /// It was given one to which its entry (subvolume, directory, cookie) does not point yet.
    Doubted((u64, u64, u64)),
    /// An heir inherits from these homes alone, and nothing if there are none.
    Inherits(u64, Vec<Home>),
    /// One more directory or subvolume waits to be reclaimed.
    Detached,
    /// An epoch ended: the next one begins.
    EpochEnded(u64),
    /// A subvolume is an index of another file system from now on.
    BecameIndex(Arc<Subvol>),
    /// A subvolume has another tree.
    TreeReplaced(Arc<Subvol>, TreeId),
    /// A subvolume was removed, that somebody had made.
    SubvolumeGone(Arc<Subvol>, u32),
    /// Much may be garbage now.
    CollectSoon,
    /// Something large was replaced.
    ReplacedMuch,
    /// Another directory is the root of the volume, or of a mount.
    TopReplaced(NodeId, NodeId),
    /// A setting changed, of which a policy keeps a copy in memory.
    Set(Box<dyn Setting>),
    /// Front ends that hold a node are notified that it changed.
    HeldChanged(NodeId),
    /// Front ends that hold a directory are notified that a name of it points to something else.
    HeldNameChanged(NodeId, Box<[u8]>),
    /// Front ends that know a directory are notified that a name of it points to nothing.
    HeldEntryGone(NodeId, Box<[u8]>),
    /// Front ends that hold a node are notified that its attributes changed.
    HeldAttributesChanged(NodeId),
    /// All front ends are notified that a name of a directory points to something else.
    NameChanged(NodeId, Box<[u8]>),
    /// All front ends are notified that a directory changed.
    DirectoryChanged(NodeId),
    /// All front ends are notified that a directory replaced another, which had these names: every
    /// name in it, old and new, points to something else.
    TopChanged(NodeId, Vec<Vec<u8>>),
    /// All front ends are notified of the name of a snapshot of a directory.
    SnapshotChanged(NodeId, Box<[u8]>),
}

impl Effect {
    /// Whether it is a notification of front ends, which is sent without locks.
    pub(crate) fn is_notice(&self) -> bool {
        matches!(
            self,
            Effect::HeldChanged(_)
                | Effect::HeldNameChanged(..)
                | Effect::HeldEntryGone(..)
                | Effect::HeldAttributesChanged(_)
                | Effect::NameChanged(..)
                | Effect::DirectoryChanged(_)
                | Effect::TopChanged(..)
                | Effect::SnapshotChanged(..)
        )
    }
}

/// An inode that loses its last name in a batch, and what happens to it after the commit.
pub struct LastName {
    pub(crate) subvol: u64,
    pub(crate) ino: u64,
    pub(crate) inode: InodeRecord,
    pub(crate) attached: Attached,
    /// Whether it stays on disk.
    pub(crate) stored: bool,
}

/// What goes where the name of an entry is: contents and extended attributes beside it.
#[derive(Debug, Clone, Default)]
pub struct Attached {
    /// Target or contents.
    pub bulk: Option<Vec<u8>>,
    /// Extended attributes.
    pub xattrs: Option<XattrRecord>,
}

/// Parts of accounts that are reserved. What is not committed is given up.
#[derive(Default)]
struct Reserved(Vec<Change>);

impl Reserved {
    #[inline]
    fn settle(&mut self, settle: fn(&Change)) {
        if !self.0.is_empty() {
            self.0.drain(..).for_each(|change| settle(&change));
        }
    }
}

impl Drop for Reserved {
    #[inline]
    fn drop(&mut self) {
        self.settle(Change::given_up);
    }
}

impl Default for Plan {
    fn default() -> Plan {
        Plan::new()
    }
}

impl Plan {
    /// An empty plan, of no time yet.
    #[inline]
    pub fn new() -> Plan {
        let mut scratch = SCRATCH.take().unwrap_or_default();
        scratch.batch.clear();
        scratch.locks.clear();
        scratch.effects.clear();
        scratch.makes_in.clear();
        Plan {
            scratch,
            has: Has::default(),
            reserved: Reserved::default(),
            freed: None,
            frees_ancestors: false,
            closed: None,
            redirect: None,
            untimed: 0,
            is_part: false,
            privileged: false,
            now: 0,
        }
    }

    /// Sets the time of the change to the present. Called under the locks, so that the times of
    /// what is locked do not go backwards.
    #[inline]
    pub fn set_time(&mut self, now: Timestamp) {
        Timestamp(self.now) = now;
    }

    /// Ends the plan; the thread keeps its memory for the next one.
    #[inline]
    pub fn end(self) {
        let Plan { mut scratch, .. } = self;
        // Of a plan that failed: contents of an inode, perhaps.
        scratch.effects.clear();
        let bytes = scratch.batch.as_bytes().len().max(scratch.value.capacity());
        let items = scratch.locks.capacity().max(scratch.effects.capacity());
        if bytes <= KEEP_BYTES && items <= KEEP_ITEMS {
            SCRATCH.with(|kept| kept.set(Some(scratch)));
        }
    }

    /// Begins again with other locks: nothing of what was planned is done.
    #[cold]
    pub fn restart(&mut self, data: &Data) {
        self.give_up(data);
        self.scratch.locks.clear();
        self.scratch.batch.clear();
        self.scratch.effects.clear();
        (self.has, self.redirect, self.untimed) = (Has::default(), None, 0);
        (self.closed, self.is_part, self.frees_ancestors) = (None, false, false);
        self.scratch.makes_in.clear();
    }

    /// It makes a directory in another one: not if that is taken away while the commit waits for a
    /// removal by its owner. What is made in a tree that was removed before goes with that tree.
    pub(crate) fn makes_in(&mut self, directory: (u64, u64)) {
        self.scratch.makes_in.push(directory);
    }

    /// The directories in which it makes directories.
    pub(crate) fn made_in(&self) -> &[(u64, u64)] {
        &self.scratch.makes_in
    }

    /// More batches of the same change follow this one.
    pub(crate) fn continues(&mut self) {
        self.is_part = true;
    }

    /// Whether more batches of the same change follow.
    pub(crate) fn is_part(&self) -> bool {
        self.is_part
    }

    /// The node that the change makes, or gives a name.
    pub(crate) fn made(&self) -> Option<NodeId> {
        self.scratch.effects.iter().find_map(|effect| match effect {
            Effect::LookUp(node, _) | Effect::HoldUnnamed(node, _) => Some(*node),
            // A client that made a snapshot as a directory may not hold that of snapshots any more.
            Effect::Copied(copied) => Some(copied.root_node()),
            _ => None,
        })
    }

    /// Drops what was reserved and written for the plan.
    #[cold]
    pub fn give_up(&mut self, data: &Data) {
        self.reserved.settle(Change::given_up);
        if let Some(freed) = self.freed.take() {
            data.abandon(freed);
        }
    }

    /// Empties the plan but for what it reserved: the same changes are planned again.
    pub(crate) fn plan_again(&mut self) {
        self.scratch.locks.clear();
        self.scratch.batch.clear();
        self.scratch.effects.clear();
        self.scratch.makes_in.clear();
        self.has = Has::default();
    }

    /// Adds a lock.
    #[inline]
    pub fn lock(&mut self, lock: Lock, mode: Mode) {
        self.scratch.locks.push((lock, mode));
    }

    /// All locks.
    #[inline]
    pub fn locks(&self) -> &[(Lock, Mode)] {
        &self.scratch.locks
    }

    /// Requests a collection, because the batch drops a tree. The record outlives the process: a
    /// collection that began later deletes it at its end. The caller holds the ledger.
    pub fn collects(&mut self) {
        self.batch().put(VOLUME, &COLLECT_KEY, b"");
        self.effect(Effect::CollectSoon);
    }

    /// Adds an effect.
    #[inline]
    pub fn effect(&mut self, effect: Effect) {
        self.has.notices |= effect.is_notice();
        self.scratch.effects.push(effect);
    }

    /// All effects.
    pub fn effects(&self) -> &[Effect] {
        &self.scratch.effects
    }

    /// Whether front ends are to be notified.
    pub(crate) fn has_notices(&self) -> bool {
        self.has.notices
    }

    /// Notes what a walk over trees must know of.
    #[inline]
    fn arrives(&mut self, arrival: Arrival, uid: Option<u32>) {
        self.has.arrivals = true;
        self.scratch.effects.push(Effect::Arrives(arrival, uid));
    }

    /// What was read of directories above a place has served: their places need not be locked
    /// until the commit.
    pub(crate) fn frees_ancestors(&mut self) {
        self.frees_ancestors = true;
    }

    /// Whether that is so.
    pub(crate) fn has_freed_ancestors(&self) -> bool {
        self.frees_ancestors
    }

    /// Another tree takes the place of one, from the commit on.
    pub fn replaces_tree(&mut self, subvol: Arc<Subvol>, old: TreeId, new: TreeId) {
        self.arrives(Arrival::Replaced(old), None);
        self.effect(Effect::TreeReplaced(subvol, new));
    }

    /// A watch over trees was closed for this plan: it opens when the plan is committed.
    pub fn opens(&mut self, watch: usize) {
        self.closed = Some(watch);
    }

    /// Sets the caller: for root the limits of users and groups are not in force.
    #[inline]
    pub fn on_behalf(&mut self, caller: &Caller) {
        self.privileged = caller.is_root();
    }

    /// Whether the limits of users and groups are not in force.
    pub fn is_privileged(&self) -> bool {
        self.privileged
    }

    /// Reserves a part of an account: it counts when the batch is committed.
    pub fn reserve(&mut self, change: Change) {
        self.reserved.0.push(change);
    }

    /// Takes what another plan reserved.
    pub(crate) fn absorb(&mut self, other: &mut Plan) {
        self.reserved.0.append(&mut other.reserved.0);
    }

    /// The plan frees space: names, contents or records are removed, and little is added. It may
    /// use the space that is reserved for that on a full disk.
    pub fn removes(&mut self) {
        self.batch().mark(Need::Removes);
    }

    /// Sets the contents that the batch frees, or that were written for it.
    pub fn frees(&mut self, freed: Freed) {
        self.freed = Some(freed);
    }

    /// Whether the batch frees contents, or contents were written for it.
    pub(crate) fn changes_contents(&self) -> bool {
        self.freed.is_some()
    }

    /// The times of a directory stay as they are, whatever is counted in it.
    pub fn keep_times(&mut self, dir: u64) {
        self.untimed = dir;
    }

    /// Redirects what is removed: only the policy that calls this knows where.
    pub fn redirect(&mut self, redirect: Box<dyn Any>) {
        self.redirect = Some(redirect);
    }

    /// Where what is removed goes; `None`: it is deleted.
    #[inline]
    pub(crate) fn take_redirect(&mut self) -> Option<Box<dyn Any>> {
        self.redirect.take()
    }

    /// The batch, for what has no method here.
    pub fn batch(&mut self) -> &mut Batch {
        &mut self.scratch.batch
    }

    /// Whether there is nothing to commit.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.scratch.batch.is_empty()
    }

    /// As `commit_after`, for an executor that commits the batch in another way.
    #[inline]
    pub fn commit_by<T>(
        &mut self,
        arrivals: &Arrivals,
        commit: impl FnOnce(&Batch) -> FsResult<T>,
    ) -> FsResult<T> {
        self.commit_noted(arrivals, |_| Ok(()), commit)
    }

    /// Applies the batch, after what must be noted before it. `waited` is called before if the
    /// batch waited for a walk that took a tree away: with an error nothing is committed. The
    /// caller settles what the batch freed (`take_freed`).
    #[inline]
    pub(crate) fn commit_after(
        &mut self,
        store: &dyn Store,
        arrivals: &Arrivals,
        waited: impl FnOnce(&Plan) -> FsResult<()>,
    ) -> FsResult<CommitToken> {
        self.commit_noted(arrivals, waited, |batch| store.commit(batch).map_err(from_store))
    }

    #[inline]
    fn commit_noted<T>(
        &mut self,
        arrivals: &Arrivals,
        waited: impl FnOnce(&Plan) -> FsResult<()>,
        commit: impl FnOnce(&Batch) -> FsResult<T>,
    ) -> FsResult<T> {
        let under_way = if self.has.arrivals { self.note_arrivals(arrivals) } else { None };
        if under_way.as_ref().is_some_and(UnderWay::waited) {
            waited(self)?;
        }
        let committed = commit(&self.scratch.batch);
        drop(under_way);
        if let Some(watch) = self.closed.take() {
            arrivals.open(watch);
        }
        let committed = committed?;
        self.reserved.settle(Change::committed);
        Ok(committed)
    }

    #[cold]
    fn note_arrivals<'a>(&self, arrivals: &'a Arrivals) -> Option<UnderWay<'a>> {
        let notes = self.scratch.effects.iter().filter_map(|effect| match effect {
            Effect::Arrives(arrival, uid) => Some((*arrival, *uid)),
            _ => None,
        });
        arrivals.note(notes, self.closed)
    }

    /// Contents that the batch freed, or that were written for it.
    #[inline]
    pub(crate) fn take_freed(&mut self) -> Option<Freed> {
        self.freed.take()
    }

    /// Applies the effects that belong under the locks; notifications stay.
    #[inline]
    pub fn apply(&mut self, apply: impl FnMut(&mut Effect)) {
        self.scratch.effects.iter_mut().for_each(apply);
        if self.has.notices {
            self.scratch.effects.retain(Effect::is_notice);
        } else {
            self.scratch.effects.clear();
        }
    }

    /// Sends the notifications of front ends.
    #[inline]
    pub fn notify(&mut self, notify: impl FnMut(Effect)) {
        if self.has.notices {
            self.scratch.effects.drain(..).for_each(notify);
        }
    }
}
