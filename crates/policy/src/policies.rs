//! The policies of a volume: quotas, and the trash.

use std::any::Any;

use format::directory_record::DirectoryRecord;
use format::inode_record::InodeRecord;
use format::quota::Charge;
use inode::{Caller, FsError, NodeId};
use ops::execute::Context;
use ops::object::Object;
use ops::plan::Plan;
use ops::policy::{Looked, Move, Policy, Removal, Share, Whose};
use ops::subvolumes::Ledger;
use vfs::{FsResult, StatFs};
use volume::QuotaInfo;
use volume::subvol::Subvol;
use volume::view::View;

use crate::charging::Charging;
use crate::quota::{check_adopted, check_same, domain_of};
use crate::{Governed, trash};

/// Quotas and trash, and for what a plan is made.
#[derive(Clone, Copy)]
pub struct Policies<'a> {
    fs: &'a Governed,
    purpose: Purpose,
}

/// What an operation is executed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A caller's request. What is removed is kept where there is a trash.
    Request,
    /// A caller's request. What is removed is deleted: there is no space to keep it.
    Delete,
    /// The trash takes an object, with the inode that was read before. The directory there is not
    /// written by a user, and keeps its times.
    IntoTrash(u64),
    /// An object is restored from the trash, whose directory keeps its times.
    OutOfTrash,
    /// The trash makes directories, in it and on the way out.
    Mirror,
}

impl Governed {
    /// The policies for callers' requests.
    #[inline]
    pub fn policies(&self) -> Policies<'_> {
        self.policies_for(Purpose::Request)
    }

    /// The policies for a purpose.
    #[inline]
    pub fn policies_for(&self, purpose: Purpose) -> Policies<'_> {
        Policies { fs: self, purpose }
    }
}

impl<'a> Policies<'a> {
    fn charging<'p>(&self, plan: &'p mut Plan) -> Charging<'p>
    where
        'a: 'p,
    {
        Charging::of(self.fs, plan)
    }

    fn is_request(&self) -> bool {
        matches!(self.purpose, Purpose::Request | Purpose::Delete)
    }
}

impl Policy for Policies<'_> {
    #[inline]
    fn makes_name(&self, at: &Context<'_>, dir: u64, name: &[u8]) -> FsResult<()> {
        if self.fs.trash.is_on() && self.is_request() {
            trash::check_outside(self.fs, at.subvol, at.view, (dir, name))?;
        }
        Ok(())
    }

    #[inline]
    fn removes(&self, at: &Context<'_>, plan: &mut Plan, removal: &Removal<'_>) -> FsResult<()> {
        if self.fs.trash.is_on() && self.purpose == Purpose::Request {
            trash::keep(self.fs, at, plan, removal)?;
        }
        Ok(())
    }

    #[inline]
    fn creates(
        &self,
        plan: &mut Plan,
        subvol: u64,
        directory: &DirectoryRecord,
        share: Share,
    ) -> FsResult<Option<Charge>> {
        if directory.charge.is_none() && !self.fs.quotas.owners.is_on() {
            return Ok(None);
        }
        self.charging(plan).charge_new(subvol, directory, share)
    }

    fn creates_unnamed(&self, directory: &DirectoryRecord) -> Option<Charge> {
        // It is charged when it gets a name, or extents.
        directory.charge.map(|charge| Charge { subvolume: 0, ..charge })
    }

    #[inline]
    fn changes(
        &self,
        plan: &mut Plan,
        (subvol, ino): Whose,
        (before, inode): (Option<&InodeRecord>, &mut InodeRecord),
        own: bool,
    ) -> FsResult<()> {
        if inode.charge.is_none() && !self.fs.quotas.owners.is_on() {
            return Ok(());
        }
        self.charging(plan).charge_changed(subvol, ino, (before, inode), own)
    }

    fn changes_directory(
        &self,
        plan: &mut Plan,
        (subvol, ino): Whose,
        record: &DirectoryRecord,
        before: (u32, u32),
    ) -> FsResult<()> {
        self.charging(plan).charge_chown(subvol, ino, record, before)
    }

    fn may_name(&self, inode: &InodeRecord, directory: &DirectoryRecord) -> FsResult<()> {
        let domain = inode.charge.map_or(0, |charge| charge.domain);
        check_same(domain, domain_of(directory))
    }

    fn adds_name(&self, plan: &mut Plan, whose: Whose, inode: &mut InodeRecord) -> FsResult<()> {
        let had = *inode;
        inode.charged_names = had.charged_names.saturating_add(1);
        self.changes(plan, whose, (Some(&had), inode), true)
    }

    fn drops_name(
        &self,
        plan: &mut Plan,
        whose: Whose,
        inode: &mut InodeRecord,
        left: u32,
    ) -> FsResult<()> {
        let had = *inode;
        inode.charged_names = had.charged_names.saturating_sub(1).min(left.saturating_sub(1));
        self.changes(plan, whose, (Some(&had), inode), false)
    }

    #[inline]
    fn removes_inode(
        &self,
        plan: &mut Plan,
        (subvol, ino): Whose,
        inode: &InodeRecord,
    ) -> Option<Charge> {
        if inode.charge.is_some() || self.fs.quotas.owners.is_on() {
            self.charging(plan).credit_inode(subvol, ino, inode);
        }
        inode.charge.map(|charge| Charge { subvolume: 0, ..charge })
    }

    fn removes_directory(&self, plan: &mut Plan, (subvol, ino): Whose, record: &DirectoryRecord) {
        self.charging(plan).credit_directory(subvol, ino, record);
    }

    fn may_move(&self, _at: &Context<'_>, plan: &mut Plan, moves: &Move<'_>) -> FsResult<()> {
        match self.purpose {
            Purpose::IntoTrash(ino) if ino != moves.ino => {
                return Err(FsError::Busy("the name was changed concurrently; try again"));
            }
            Purpose::IntoTrash(_) => plan.keep_times(moves.to.0),
            Purpose::OutOfTrash => plan.keep_times(moves.from.0),
            Purpose::Request | Purpose::Delete | Purpose::Mirror => {}
        }
        let single = matches!(moves.object, Object::File { nlink: 1, .. });
        if single && self.purpose == Purpose::OutOfTrash {
            // It is charged to the quota that holds there now.
            return Ok(());
        }
        check_same(domain_of(moves.from.1), domain_of(moves.to.1))
    }

    fn may_leave(&self, above: &DirectoryRecord, moved: &DirectoryRecord) -> FsResult<()> {
        check_adopted(above, moved)
    }

    fn moves(
        &self,
        plan: &mut Plan,
        (subvol, ino): Whose,
        object: &mut Object,
        to: &DirectoryRecord,
    ) -> FsResult<()> {
        match object {
            Object::Directory(_) if matches!(self.purpose, Purpose::IntoTrash(_)) => Ok(()),
            Object::Directory(record) => {
                record.charge = self.charging(plan).charge_out_of_trash((subvol, ino), record)?;
                Ok(())
            }
            Object::File { inode, .. } if self.purpose == Purpose::OutOfTrash => {
                self.charging(plan).move_to_domain((subvol, ino), inode, domain_of(to))
            }
            Object::File { .. } => Ok(()),
        }
    }

    fn takes_file(
        &self,
        at: &Context<'_>,
        plan: &mut Plan,
        removal: &Removal<'_>,
        to: &dyn Any,
    ) -> FsResult<bool> {
        trash::take_file(self.fs, at, plan, (removal, to))
    }

    fn takes_directory(
        &self,
        at: &Context<'_>,
        plan: &mut Plan,
        removed: (u64, &DirectoryRecord),
        to: &dyn Any,
    ) -> FsResult<bool> {
        trash::take_directory(self.fs, at, plan, (removed, to))
    }

    fn may_replace(&self, (subvol, view): (&Subvol, View<'_>), name: (u64, &[u8])) -> FsResult<()> {
        trash::check_name(self.fs, subvol, view, name)
    }

    fn is_empty(
        &self,
        (subvol, view): (&Subvol, View<'_>),
        record: &DirectoryRecord,
    ) -> FsResult<bool> {
        Ok(record.entries == 0 || trash::is_all(self.fs, subvol, view, record)?)
    }

    fn may_move_mount(&self, from: &DirectoryRecord, to: &DirectoryRecord) -> FsResult<()> {
        check_same(domain_of(from), domain_of(to))
    }

    fn may_copy(
        &self,
        caller: &Caller,
        source: (&Subvol, u64),
        directory: (u64, u64),
    ) -> FsResult<Looked> {
        self.fs.check_copy(caller, source, directory)
    }

    fn may_still_copy(&self, caller: &Caller, ledger: &Ledger, looked: Looked) -> bool {
        caller.is_root() || looked == self.fs.looks(ledger, looked.of)
    }

    fn may_copy_below(
        &self,
        caller: &Caller,
        ledger: &mut Ledger,
        source: (&Subvol, u64),
    ) -> FsResult<()> {
        self.fs.check_copy_below(caller, ledger, source)
    }

    fn may_clone_into(
        &self,
        mounted_in: &DirectoryRecord,
        source: &DirectoryRecord,
    ) -> FsResult<()> {
        self.fs.check_clone_into(mounted_in, source)
    }

    fn charges_owners(&self) -> bool {
        self.fs.quotas.owners.is_on()
    }

    fn limit_space(&self, node: NodeId, space: StatFs) -> StatFs {
        match self.fs.quota_get(node) {
            Ok(Some(quota)) => limited(space, &quota),
            // What has no record (a directory of snapshots), or one that cannot be read, has no
            // quota.
            Ok(None) | Err(_) => space,
        }
    }
}

/// The space and inodes that a quota leaves, as XFS reports them for projects.
fn limited(mut space: StatFs, quota: &QuotaInfo) -> StatFs {
    let block = u64::from(space.block_bytes);
    if let Some(most) = quota.limits.bytes {
        let left = most.saturating_sub(quota.bytes) / block;
        let free = space.blocks_free.min(left);
        (space.blocks_free, space.blocks_available) = (free, space.blocks_available.min(left));
        space.blocks = space.blocks.min(quota.bytes.div_ceil(block).saturating_add(left));
        space.blocks = space.blocks.max(free);
    }
    if let Some(most) = quota.limits.inodes {
        let left = most.saturating_sub(quota.inodes);
        space.inodes_free = space.inodes_free.min(left);
        space.inodes = space.inodes.min(quota.inodes.saturating_add(left));
    }
    space
}
