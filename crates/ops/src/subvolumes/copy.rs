//! Copying a directory as a subvolume of its own: the batch that snapshot, clone and rollback
//! share.
//!
//! The tree is cloned and a record written. Nothing else is touched, so that the cost depends on
//! nothing that is in the directory: what is mounted below it is inherited (`inherit`). The root
//! of a subvolume is known by the subvolume's record, so that not even its own record is rewritten.
//! A copy shares every node until something in it changes.

use std::cell::Cell;
use std::sync::Arc;

use device::sync::MutexGuard;
use format::base_record::BaseRecord;
use format::inherited_record::{HOMES_MAX, InheritedRecord};
use format::kept_twice::Features;
use format::key;
use format::subvolume_record::{SubvolumeRecord, UsageRecord};
use inode::{Caller, FsError};
use vfs::FsResult;
use volume::subvol::{Subvol, VOLUME};
use volume::view::View;

use super::copied::Copied;
use super::ledger::Ledger;
use super::nested::{Member, homes_of};
use crate::Ops;
use crate::plan::Plan;
use crate::policy::Policy;

/// What a copy is to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Purpose<'a> {
    /// Whether nothing in it changes.
    pub read_only: bool,
    /// Whether it is a snapshot: read-only and not mounted.
    pub snapshot: bool,
    /// Whether it belongs to the lineage of its source, or to a new one.
    pub same_lineage: bool,
    /// Where it is mounted: subvolume, directory, cookie.
    pub parent: (u64, u64, u64),
    /// Its name.
    pub name: &'a [u8],
}

/// Why something that inherits from too many is not copied.
const HOMES_DAMAGED: &str = "what is copied inherits from 64 subvolumes, of which something is \
                             damaged in each; `pando fsck` shows it";

thread_local! {
    static COPIES: Cell<u64> = const { Cell::new(0) };
}

/// How many copies this thread had made for callers, or refused. The daemon compares it with what
/// it counted a request as before it began.
pub fn copies_of_this_thread() -> u64 {
    COPIES.get()
}

/// How often a caller looks at what is below a directory before it does so with the ledger locked.
const LOOKS: usize = 4;

impl Ops {
    /// The ledger, for a caller that has a directory (subvolume, number) copied from a source: the
    /// directory, or a snapshot of it. No policy refuses the copy while the ledger is locked.
    pub(super) fn lock_to_copy(
        &self,
        (policy, caller): (&dyn Policy, &Caller),
        source: (&Subvol, u64),
        directory: (u64, u64),
    ) -> FsResult<MutexGuard<'_, Ledger>> {
        COPIES.set(COPIES.get() + 1);
        self.admin.learn(self);
        for look in 1.. {
            let looked = policy.may_copy(caller, source, directory)?;
            // A caller that may make none at all causes no work either.
            self.admin.lock_for(self, caller)?.may_make_one(self)?;
            self.spare_heirs(source, caller)?;
            let mut ledger = self.admin.lock_for(self, caller)?;
            if policy.may_still_copy(caller, &ledger, looked) {
                return Ok(ledger);
            }
            if look == LOOKS {
                policy.may_copy_below(caller, &mut ledger, source)?;
                return Ok(ledger);
            }
        }
        unreachable!("invariant: the last look returns")
    }
}

/// Adds the copy of directory `dir` of `source` to a batch. The gate of the source is held, unless
/// that is read-only.
pub(super) fn plan(
    fs: &Ops,
    ledger: &mut Ledger,
    plan: &mut Plan,
    (source, dir): (&Member, u64),
    purpose: &Purpose<'_>,
) -> FsResult<Copied> {
    let ended = fs.admin.end_epoch(ledger, plan.batch());
    let from = &source.record;
    let homes = homes_of(fs, ledger, (&source.subvol, dir), purpose.same_lineage)?;
    if homes.len() > HOMES_MAX {
        // Only damage in each of them keeps a copy from having few.
        return Err(FsError::LimitReached(HOMES_DAMAGED));
    }
    let id = ledger.new_subvolume(fs)?;
    let tree = ledger.new_tree();
    plan.batch().clone_tree(source.subvol.tree(), tree);
    // A damaged counter of epochs may be before the last one that ended.
    let last_clone_epoch = ended.max(from.last_clone_epoch);
    let record = SubvolumeRecord {
        tree: tree.0,
        root: dir,
        lineage: if purpose.same_lineage { from.lineage } else { id },
        parent: purpose.parent,
        source: (source.subvol.id.0, dir),
        created: plan.now,
        last_clone_epoch,
        first_own_ino: fs.numbers.peek(),
        read_only: purpose.read_only,
        snapshot: purpose.snapshot,
        pruned: from.pruned && dir == from.root,
        detached: false,
        index: from.index,
        inherits: !homes.is_empty(),
        name: purpose.name.to_vec(),
        base: inherited_base(fs, ledger, from)?,
        maker: ledger.maker(),
    };
    plan.batch().put(VOLUME, &key::subvolume(id), &record.encode());
    if !homes.is_empty() {
        ledger.require(fs, Features { inheritance: true, ..Features::NONE })?;
        let inherited = InheritedRecord { homes: homes.clone() };
        plan.batch().put(VOLUME, &format::inherited_record::inherited(id), &inherited.encode());
    }
    inherit_usage(fs, plan, source, (id, dir))?;
    let mut sources = None;
    if !from.read_only {
        let record = SubvolumeRecord { last_clone_epoch, ..from.clone() };
        plan.batch().put(VOLUME, &key::subvolume(source.subvol.id.0), &record.encode());
        sources = Some((Arc::clone(&source.subvol), last_clone_epoch));
    }
    let counts_with = record.maker;
    Ok(Copied { id, record, homes, counts_with, source: sources, ended })
}

/// The base of a copy. Its clusters are inherited by reference: what differs is found by comparing
/// trees. One that was removed keeps no base, though its record names it: that may be gone.
fn inherited_base(fs: &Ops, _ledger: &Ledger, from: &SubvolumeRecord) -> FsResult<u64> {
    if from.base == 0 || !from.detached {
        return Ok(from.base);
    }
    let base = View::new(&*fs.store, VOLUME).read(&key::base(from.base), BaseRecord::decode)?;
    Ok(if base.is_some_and(|base| base.complete) { from.base } else { 0 })
}

/// The counts of the copy of a whole subvolume are those of its source; those of any other copy
/// are counted later. What waits to be reclaimed is in the counts of the source only.
fn inherit_usage(
    fs: &Ops,
    plan: &mut Plan,
    member: &Member,
    (id, directory): (u64, u64),
) -> FsResult<()> {
    if directory == member.record.root && fs.queue.detached() == 0 {
        let view = View::new(&*fs.store, VOLUME);
        let usage = view.read(&key::usage(member.subvol.id.0), UsageRecord::decode)?;
        if let Some(usage) = usage.filter(|usage| usage.counted) {
            plan.batch().put(VOLUME, &key::usage(id), &usage.encode());
            return Ok(());
        }
    }
    fs.queue.note_uncounted();
    Ok(())
}

impl Copied {
    /// After the commit, before the gates open: has each change from here on see the copy.
    pub(super) fn settle_and_count(&self, fs: &Ops, ledger: &mut Ledger) {
        self.settle(fs, ledger);
        self.count(fs, ledger);
    }

    /// After the commit, before the gates open.
    pub(super) fn settle(&self, fs: &Ops, ledger: &mut Ledger) {
        if let Some((source, last_clone_epoch)) = &self.source {
            source.set_last_clone_epoch(*last_clone_epoch);
        }
        if self.record.parent.0 != 0 {
            ledger.moved(self.id, Some(self.record.parent));
        }
        ledger.inherited(self.id, self.homes.clone(), self.counts_with);
        fs.admin.begin_epoch_after(self.ended);
    }

    /// Has every change from here on see to this copy, if it inherits: after the commit and before
    /// the gate of the source opens. Not for a copy that an heir is given, which no subvolume
    /// below its source has been given to without.
    fn count(&self, fs: &Ops, ledger: &Ledger) {
        if !self.homes.is_empty() {
            fs.admin.note_copy(ledger);
        }
    }
}
