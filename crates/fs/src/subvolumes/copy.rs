//! Copying a directory as a subvolume of its own: the batch that snapshot, clone and rollback
//! share.
//!
//! For the directory, and for each subvolume mounted below it: clone the tree, write a record,
//! and point the entry where the copy of a nested one is mounted to the copy. Nothing else is
//! touched, so the cost is that of the nested subvolumes. The root of a subvolume is known by
//! the subvolume's record, so that not even its own record is rewritten: a copy shares every
//! node until something in it changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::entry_record::{EntryRecord, Target};
use format::key;
use format::subvolume_record::{SubvolumeRecord, UsageRecord};

use super::ledger::Ledger;
use super::nested::Member;
use crate::error::inconsistent;
use crate::search_bases;
use crate::subvol::{Subvol, VOLUME};
use crate::txn::Txn;
use crate::view::{NameBuf, View};
use crate::{Fs, FsResult};

/// What a copy is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Purpose<'a> {
    /// Whether it is a snapshot: read-only and not mounted.
    pub(crate) snapshot: bool,
    /// Whether it belongs to the lineage of its source, or to a new one.
    pub(crate) same_lineage: bool,
    /// Where it is mounted: subvolume, directory, cookie.
    pub(crate) parent: (u64, u64, u64),
    /// Its name.
    pub(crate) name: &'a [u8],
}

/// A copy that stands in a batch.
pub(crate) struct Copied {
    /// Its number.
    pub(crate) id: u64,
    /// Its record.
    pub(crate) record: SubvolumeRecord,
    /// Copies of nested subvolumes.
    pub(crate) nested: u64,
    /// What it was taken from, and the last epoch in which any of that may be shared.
    sources: Vec<(Arc<Subvol>, u64)>,
    mounted: Vec<(u64, (u64, u64))>,
    ended: u64,
}

/// Adds the copy of directory `dir` of `source`, with the subvolumes `nested` below it, to a
/// batch. The gates of all of them are held.
pub(crate) fn plan(
    fs: &Fs,
    ledger: &mut Ledger,
    txn: &mut Txn<'_>,
    (source, dir, nested): (&Member, u64, &[Member]),
    purpose: &Purpose<'_>,
) -> FsResult<Copied> {
    let ended = fs.admin.end_epoch(ledger, txn.batch());
    let mut copies: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut mounted = Vec::new();
    let mut sources = Vec::new();
    let mut root = None;
    for (at, member) in std::iter::once(source).chain(nested).enumerate() {
        let id = ledger.new_subvolume(fs)?;
        let tree = ledger.new_tree();
        copies.insert(member.subvol.id.0, (id, tree.0));
        txn.batch().clone_tree(member.subvol.tree(), tree);
        let from = &member.record;
        // A damaged counter of epochs may be before the last one that ended.
        let last_clone_epoch = ended.max(from.last_clone_epoch);
        let parent = match copies.get(&from.parent.0) {
            Some((parent, _)) if at > 0 => (*parent, from.parent.1, from.parent.2),
            _ => purpose.parent,
        };
        let directory = if at == 0 { dir } else { from.root };
        let record = SubvolumeRecord {
            tree: tree.0,
            root: directory,
            lineage: if purpose.same_lineage { from.lineage } else { id },
            parent,
            source: (member.subvol.id.0, directory),
            created: txn.now,
            last_clone_epoch,
            first_own_ino: fs.numbers.peek(),
            read_only: purpose.snapshot,
            snapshot: purpose.snapshot && at == 0,
            pruned: from.pruned && directory == from.root,
            detached: false,
            index: from.index,
            name: if at == 0 { purpose.name.to_vec() } else { from.name.clone() },
            base: inherited_base(fs, ledger, from)?,
            maker: ledger.maker(),
        };
        txn.batch().put(VOLUME, &key::subvolume(id), &record.encode());
        inherit_usage(fs, txn, member, (id, directory))?;
        if parent.0 != 0 {
            mounted.push((id, (parent.0, parent.1)));
        }
        if at == 0 {
            root = Some((id, record));
        } else {
            mount_copy(fs, txn, member, &copies, id)?;
        }
        if !from.read_only {
            let record = SubvolumeRecord { last_clone_epoch, ..from.clone() };
            txn.batch().put(VOLUME, &key::subvolume(member.subvol.id.0), &record.encode());
            sources.push((Arc::clone(&member.subvol), last_clone_epoch));
        }
    }
    let (id, record) = root.expect("invariant: the source is the first that is copied");
    Ok(Copied { id, record, nested: nested.len() as u64, sources, mounted, ended })
}

/// The base of a copy. Its clusters are inherited by reference: what differs is found by comparing
/// trees. One that was removed keeps no base, though its record names it: that may be gone.
fn inherited_base(fs: &Fs, _ledger: &Ledger, from: &SubvolumeRecord) -> FsResult<u64> {
    if from.base == 0 || !from.detached {
        return Ok(from.base);
    }
    let base = search_bases::get(fs, from.base)?;
    Ok(if base.is_some_and(|base| base.complete) { from.base } else { 0 })
}

/// The counts of the copy of a whole subvolume are those of its source; those of any other copy
/// are counted later. What waits to be reclaimed is in the counts of the source only.
fn inherit_usage(
    fs: &Fs,
    txn: &mut Txn<'_>,
    member: &Member,
    (id, directory): (u64, u64),
) -> FsResult<()> {
    if directory == member.record.root && fs.queue.detached() == 0 {
        let view = View::new(&*fs.store, VOLUME);
        let usage = view.read(&key::usage(member.subvol.id.0), UsageRecord::decode)?;
        if let Some(usage) = usage.filter(|usage| usage.counted) {
            txn.batch().put(VOLUME, &key::usage(id), &usage.encode());
            return Ok(());
        }
    }
    fs.reclaim.note_uncounted();
    Ok(())
}

/// Points the entry where a nested subvolume is mounted to its copy, in the copy above.
fn mount_copy(
    fs: &Fs,
    txn: &mut Txn<'_>,
    member: &Member,
    copies: &BTreeMap<u64, (u64, u64)>,
    copy: u64,
) -> FsResult<()> {
    let (above, dir, cookie) = member.record.parent;
    let above_tree = fs.subvol(inode::SubvolId(above))?.tree();
    let mut name = NameBuf::empty();
    let view = View::new(&*fs.store, above_tree);
    let found = view.entry_at(dir, cookie, &mut name)?;
    let found = found.filter(|found| found.target == Target::Subvolume(member.subvol.id.0));
    let Some(found) = found else {
        return Err(inconsistent(above_tree, "a subvolume is not where it is mounted", dir));
    };
    // The records were read one after the other: damaged ones may not agree.
    let Some(&(_, tree)) = copies.get(&above) else {
        return Err(inconsistent(VOLUME, "a subvolume is mounted in none that is copied", dir));
    };
    let entry = EntryRecord {
        chained: found.chained,
        ino: found.ino,
        name: name.as_bytes(),
        target: Target::Subvolume(copy),
    };
    txn.put_entry(store::TreeId(tree), dir, cookie, &entry);
    Ok(())
}

impl Copied {
    /// After the commit, before the gates open.
    pub(crate) fn settle(&self, fs: &Fs, ledger: &mut Ledger) {
        for (source, last_clone_epoch) in &self.sources {
            source.set_last_clone_epoch(*last_clone_epoch);
        }
        for &(subvol, parent) in &self.mounted {
            ledger.moved(subvol, Some(parent));
        }
        fs.admin.begin_epoch_after(self.ended);
    }
}
