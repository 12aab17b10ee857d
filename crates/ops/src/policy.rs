//! What policies see of an operation before it is executed: quotas and the trash.
//!
//! An operation knows no policy. It describes what it is about to do, step by step, and each step
//! is shown to the policy while the plan is built. The policy adds to the plan, has what is removed
//! go elsewhere, or refuses; then nothing of the plan is done.

use std::any::Any;

use format::directory_record::DirectoryRecord;
use format::inode_record::InodeRecord;
use format::quota::Charge;
use inode::{Caller, NodeId};
use store::TreeId;
use vfs::{FsResult, StatFs};
use volume::locks::{Lock, Mode};
use volume::subvol::Subvol;
use volume::view::{FoundEntry, View};

use crate::Ops;
use crate::object::Object;
use crate::plan::Plan;
use crate::subvolumes::Ledger;

/// An inode of a subvolume: both numbers.
pub type Whose = (u64, u64);

/// A name that is about to lose its object.
#[derive(Clone, Copy)]
pub struct Removal<'a> {
    /// The directory.
    pub dir: u64,
    /// The name.
    pub name: &'a [u8],
    /// Its hash.
    pub hash: u64,
    /// What is there.
    pub found: &'a FoundEntry,
    /// The inode that gets the name; 0: none.
    pub successor: u64,
}

/// An object that is about to move to another name.
#[derive(Clone, Copy)]
pub struct Move<'a> {
    /// Its inode.
    pub ino: u64,
    /// What it is.
    pub object: &'a Object,
    /// The directory that it leaves.
    pub from: (u64, &'a DirectoryRecord),
    /// The one that it enters.
    pub to: (u64, &'a DirectoryRecord),
}

/// What a policy saw when it looked at what is mounted and inherited below a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Looked {
    /// The subvolume that is copied, and that of the directory.
    pub of: (u64, u64),
    /// When something was last mounted, moved or inherited in one of these, at any depth.
    pub mounts: u64,
    /// How often limits had changed.
    pub limits: u64,
    /// How often a directory had changed its parent, with what is mounted below it; 0 where no
    /// limit is in force.
    pub rehung: u64,
}

/// Who owns a new inode, and how many bytes it has.
pub type Share = ((u32, u32), u64);

/// What an operation reads from, and who sees its plan.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Tables and numbers.
    pub fs: &'a Ops,
    /// What sees the plan.
    pub policy: &'a dyn Policy,
    /// The subvolume.
    pub subvol: &'a Subvol,
    /// Its records.
    pub view: View<'a>,
}

impl<'a> Context<'a> {
    /// Of a subvolume whose gate the caller has passed.
    #[inline]
    pub fn new(
        fs: &'a Ops,
        policy: &'a dyn Policy,
        subvol: &'a Subvol,
        tree: TreeId,
    ) -> Context<'a> {
        Context { fs, policy, subvol, view: View::new(&*fs.store, tree) }
    }

    /// The number of the subvolume.
    #[inline]
    pub fn id(&self) -> u64 {
        self.subvol.id.0
    }

    /// The lock of an inode.
    #[inline]
    pub fn object(&self, ino: u64) -> Lock {
        Lock::Object { subvol: self.id(), ino }
    }

    /// The lock of the names of a hash.
    #[inline]
    pub fn name(&self, dir: u64, hash: u64) -> Lock {
        Lock::Name { subvol: self.id(), dir, hash }
    }

    /// Locks a directory so that it stays, and the names of a hash in it exclusively.
    #[inline]
    pub fn lock_name(&self, plan: &mut Plan, dir: u64, hash: u64) {
        plan.lock(self.object(dir), Mode::Shared);
        plan.lock(self.name(dir, hash), Mode::Exclusive);
    }
}

/// Sees the steps of a plan.
pub trait Policy {
    /// A name is about to be made. Called without locks.
    fn makes_name(&self, at: &Context<'_>, dir: u64, name: &[u8]) -> FsResult<()>;

    /// A name is about to lose its object. May lock more, and set where the object goes
    /// ([`Plan::redirect`]). Called without locks.
    fn removes(&self, at: &Context<'_>, plan: &mut Plan, removal: &Removal<'_>) -> FsResult<()>;

    /// An inode is created in a directory; returns its mark.
    fn creates(
        &self,
        plan: &mut Plan,
        subvol: u64,
        directory: &DirectoryRecord,
        share: Share,
    ) -> FsResult<Option<Charge>>;

    /// The mark of an inode that is created without a name, beside a directory.
    fn creates_unnamed(&self, directory: &DirectoryRecord) -> Option<Charge>;

    /// The contents or owners of an inode change from what was stored before, if anything was.
    /// `own`: it belongs to this subvolume from now on, even if it was inherited.
    fn changes(
        &self,
        plan: &mut Plan,
        whose: Whose,
        change: (Option<&InodeRecord>, &mut InodeRecord),
        own: bool,
    ) -> FsResult<()>;

    /// A directory whose owners were `before` is written.
    fn changes_directory(
        &self,
        plan: &mut Plan,
        whose: Whose,
        record: &DirectoryRecord,
        before: (u32, u32),
    ) -> FsResult<()>;

    /// An inode is about to get a name in a directory.
    fn may_name(&self, inode: &InodeRecord, directory: &DirectoryRecord) -> FsResult<()>;

    /// An inode with names gets a further one.
    fn adds_name(&self, plan: &mut Plan, whose: Whose, inode: &mut InodeRecord) -> FsResult<()>;

    /// An inode loses a name, and keeps `left` others.
    fn drops_name(
        &self,
        plan: &mut Plan,
        whose: Whose,
        inode: &mut InodeRecord,
        left: u32,
    ) -> FsResult<()>;

    /// An inode is removed; returns the mark of what its holders keep in memory.
    fn removes_inode(&self, plan: &mut Plan, whose: Whose, inode: &InodeRecord) -> Option<Charge>;

    /// An empty directory is removed.
    fn removes_directory(&self, plan: &mut Plan, whose: Whose, record: &DirectoryRecord);

    /// An object is about to move.
    fn may_move(&self, at: &Context<'_>, plan: &mut Plan, moves: &Move<'_>) -> FsResult<()>;

    /// A directory is about to leave another.
    fn may_leave(&self, above: &DirectoryRecord, moved: &DirectoryRecord) -> FsResult<()>;

    /// An object moves into a directory: its records may be changed on the way. `replaces`: what
    /// had the name goes.
    fn moves(
        &self,
        plan: &mut Plan,
        whose: Whose,
        object: &mut Object,
        to: &DirectoryRecord,
    ) -> FsResult<()>;

    /// Plans that what is not a directory goes where this policy redirected it; the caller erases
    /// or replaces the entry. The locks that it named are held. `false`: the place changed since it
    /// was found, start again.
    fn takes_file(
        &self,
        at: &Context<'_>,
        plan: &mut Plan,
        removal: &Removal<'_>,
        to: &dyn Any,
    ) -> FsResult<bool>;

    /// As `takes_file`, for an empty directory.
    fn takes_directory(
        &self,
        at: &Context<'_>,
        plan: &mut Plan,
        removed: (u64, &DirectoryRecord),
        to: &dyn Any,
    ) -> FsResult<bool>;

    /// A name is about to point to something else.
    fn may_replace(&self, at: (&Subvol, View<'_>), name: (u64, &[u8])) -> FsResult<()>;

    /// Whether what is in the root directory of a subvolume does not keep it from being removed as
    /// an empty one.
    fn is_empty(&self, root: (&Subvol, View<'_>), record: &DirectoryRecord) -> FsResult<bool>;

    /// A subvolume is about to get a name in another directory.
    fn may_move_mount(&self, from: &DirectoryRecord, to: &DirectoryRecord) -> FsResult<()>;

    /// A caller is about to have a directory (subvolume, number) copied from a source: the
    /// directory, or a snapshot of it.
    fn may_copy(
        &self,
        caller: &Caller,
        source: (&Subvol, u64),
        directory: (u64, u64),
    ) -> FsResult<Looked>;

    /// With the ledger locked: whether `may_copy` is still true of the subvolumes that are mounted
    /// or inherited below the source. `false`: it is not known, as something has changed.
    fn may_still_copy(&self, caller: &Caller, ledger: &Ledger, looked: Looked) -> bool;

    /// As `may_copy`, with the ledger locked, for those subvolumes. It takes time in proportion to
    /// their number.
    fn may_copy_below(
        &self,
        caller: &Caller,
        ledger: &mut Ledger,
        source: (&Subvol, u64),
    ) -> FsResult<()>;

    /// A clone of a directory is about to be mounted in another one.
    fn may_clone_into(
        &self,
        mounted_in: &DirectoryRecord,
        source: &DirectoryRecord,
    ) -> FsResult<()>;

    /// Whether inodes are charged to their owners. It changes while the gates of all subvolumes are
    /// held.
    fn charges_owners(&self) -> bool {
        false
    }

    /// The space that is reported at a node, of what the disk has.
    fn limit_space(&self, node: NodeId, space: StatFs) -> StatFs {
        let _ = node;
        space
    }
}
