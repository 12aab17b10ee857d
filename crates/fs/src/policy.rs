//! What policies see of an operation before it is executed: quotas and the trash.
//!
//! An operation knows no policy. It describes what it is about to do, step by step, and each step
//! is shown to the policy while the plan is built. The policy adds to the plan, has what is removed
//! go elsewhere, or refuses; then nothing of the plan is done.

use format::directory_record::DirectoryRecord;
use format::inode_record::InodeRecord;
use format::owner_quota::Owner;
use format::quota::{Charge, Charged};

use crate::FsResult;
use crate::execute::Context;
use crate::ops::object::Object;
use crate::plan::Plan;
use crate::view::Found;

/// An inode of a subvolume: both numbers.
pub(crate) type Whose = (u64, u64);

/// A name that is about to lose its object.
#[derive(Clone, Copy)]
pub(crate) struct Removal<'a> {
    /// The directory.
    pub(crate) dir: u64,
    /// The name.
    pub(crate) name: &'a [u8],
    /// Its hash.
    pub(crate) hash: u64,
    /// What is there.
    pub(crate) found: &'a Found,
    /// The inode that gets the name; 0: none.
    pub(crate) successor: u64,
}

/// An object that is about to move to another name.
#[derive(Clone, Copy)]
pub(crate) struct Move<'a> {
    /// Its inode.
    pub(crate) ino: u64,
    /// What it is.
    pub(crate) object: &'a Object,
    /// The directory that it leaves.
    pub(crate) from: (u64, &'a DirectoryRecord),
    /// The one that it enters.
    pub(crate) to: (u64, &'a DirectoryRecord),
}

/// Who owns a new inode, and how many bytes it has.
pub(crate) type Share = ((u32, u32), u64);

/// What a policy keeps in memory of the settings in the store.
#[derive(Debug, Clone)]
pub(crate) enum Setting {
    /// A directory (lineage, inode) has a trash that keeps for so many seconds, or has none.
    Trash((u64, u64), Option<u64>),
    /// The limits of a user or a group, as records have them.
    OwnerLimits(Owner, (u64, u64)),
    /// The inodes of all owners are being counted.
    OwnersCounting,
    /// They were counted: what was there when that began.
    OwnersCounted(Vec<(Owner, Charged)>),
    /// All that was in the directory of a quota is charged.
    Adopted(u64),
}

/// Sees the steps of a plan.
pub(crate) trait Policy {
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

    /// Directories moved, or have other rights. Called after the commit.
    fn directories_moved(&self);

    /// A setting changed. Called after the commit.
    fn set(&self, setting: &Setting);
}

/// Where a policy has what is removed go. The locks that it named are held.
pub(crate) trait Redirect {
    /// Plans that what is not a directory goes there; the caller erases or replaces the entry.
    /// `false`: the place changed since it was found, start again.
    fn take_file(&self, at: &Context<'_>, plan: &mut Plan, removal: &Removal<'_>)
    -> FsResult<bool>;

    /// As `take_file`, for an empty directory.
    fn take_directory(
        &self,
        at: &Context<'_>,
        plan: &mut Plan,
        removed: (u64, &DirectoryRecord),
    ) -> FsResult<bool>;
}
