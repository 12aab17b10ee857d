//! Bases of the index as they are stored: each change is one commit.
//!
//! A base begins as a clone of a subvolume's tree. The commit that names it in the subvolume's
//! record puts it in place. It is removed, with its tree, when no record names it. Snapshots and
//! clones have the base of their source because they copy its record.

use std::collections::{BTreeMap, BTreeSet};

use format::base_record::BaseRecord;
use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::{FsError, SubvolId};
use ops::execute::execute_alone;
use ops::plan::Plan;
use ops::subvolumes::execute_with;
use policy::Governed;
use store::{CommitToken, KeyRange, Lsn, Need, TreeId};
use vfs::FsResult;
use volume::error::{from_store, malformed};
use volume::subvol::{VOLUME, read_record};
use volume::view::View;

/// Records of one commit that removes references to a base: as many as fit into the log's reserve.
const RECORDS_AT_ONCE: usize = 64;

/// A base as it is recorded.
#[derive(Debug, Clone, Copy)]
pub struct Recorded {
    /// Its tree.
    pub tree: u64,
    /// Its record.
    pub record: BaseRecord,
}

/// Clones the tree of a subvolume as a base that is building. `None`: there is no such subvolume.
pub fn begin(fs: &Governed, id: u64) -> FsResult<Option<(Recorded, SubvolumeRecord)>> {
    execute_with(fs, &mut fs.admin.lock(), |ledger, plan| {
        let Some(record) = read_record(&*fs.store, SubvolId(id))? else { return Ok(None) };
        if record.detached {
            return Ok(None);
        }
        // What is committed from here on is a later difference from the base.
        let mut wanted = wanted_of_log(fs)?;
        wanted.push(fs.store.last_commit());
        fs.store.keep_log(&wanted).map_err(from_store)?;
        let tree = ledger.new_tree();
        let base = BaseRecord {
            complete: false,
            subvolume: id,
            root: record.root,
            commit: fs.store.last_commit().0.0,
            created: plan.now,
            rows: 0,
        };
        // No row depends on extents.
        let prefixes = [&key::DIRECTORIES_PREFIX[..], &key::LINKED_PREFIX];
        plan.batch().clone_prefixes(TreeId(record.tree), tree, &prefixes);
        plan.batch().put(VOLUME, &key::base(tree.0), &base.encode());
        Ok(Some((Recorded { tree: tree.0, record: base }, record)))
    })
}

/// Puts a base in place, whose files are durable. `false`: the subvolume is gone, or was rolled
/// back to a state with another base, and this one is unusable.
///
/// A tree that replaced the one that the base was cloned from, as every scan's does, has a
/// difference from the base like any other. Only its size depends on what the tree is a clone of:
/// one with the same base before is near.
pub fn complete(
    fs: &Governed,
    base: &Recorded,
    before: &SubvolumeRecord,
    rows: u64,
) -> FsResult<bool> {
    execute_with(fs, &mut fs.admin.lock(), |_, plan| {
        let id = base.record.subvolume;
        let Some(mut record) = read_record(&*fs.store, SubvolId(id))? else { return Ok(false) };
        if record.detached || record.tree != before.tree && record.base != before.base {
            return Ok(false);
        }
        record.base = base.tree;
        plan.batch().put(VOLUME, &key::subvolume(id), &record.encode());
        let complete = BaseRecord { complete: true, rows, ..base.record };
        plan.batch().put(VOLUME, &key::base(base.tree), &complete.encode());
        Ok(true)
    })
}

/// Drops the tree of a base with its record.
pub fn remove(fs: &Governed, tree: u64) -> FsResult<()> {
    remove_named(fs, tree, &[])
}

fn plan_removal(fs: &Governed, plan: &mut Plan, tree: u64) -> FsResult<()> {
    plan.batch().delete(VOLUME, &key::base(tree));
    if fs.store.tree_exists(TreeId(tree)).map_err(from_store)? {
        plan.batch().drop_tree(TreeId(tree));
    }
    Ok(())
}

/// Removes bases that no subvolume names; returns how many there were.
pub(crate) fn remove_unnamed(fs: &Governed) -> FsResult<u64> {
    let mut removed = 0;
    if unnamed(fs)?.is_empty() {
        return Ok(removed);
    }
    // A thread that gives a base to another subvolume checks that it exists, and holds the ledger.
    let _ledger = fs.admin.lock();
    for base in unnamed(fs)? {
        remove(fs, base)?;
        removed += 1;
    }
    Ok(removed)
}

fn unnamed(fs: &Governed) -> FsResult<Vec<u64>> {
    let named = named(fs)?;
    let trees = all(fs)?.into_iter().map(|base| base.tree);
    Ok(trees.filter(|tree| !named.contains(tree)).collect())
}

/// All bases.
pub fn all(fs: &Governed) -> FsResult<Vec<Recorded>> {
    let mut bases = Vec::new();
    fs.visit_volume(&key::BASES_PREFIX, &mut |key, value| {
        let malformed = |error| malformed(VOLUME, &error);
        let tree = key::parse_number(key).map_err(malformed)?;
        bases.push(Recorded { tree, record: BaseRecord::decode(value).map_err(malformed)? });
        Ok(())
    })?;
    Ok(bases)
}

/// The record of a base.
pub fn get(fs: &Governed, tree: u64) -> FsResult<Option<BaseRecord>> {
    View::new(&*fs.store, VOLUME).read(&key::base(tree), BaseRecord::decode)
}

/// The existing bases that subvolumes name.
fn named(fs: &Governed) -> FsResult<BTreeSet<u64>> {
    let mut named = BTreeSet::new();
    fs.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |_, value| {
        let record = SubvolumeRecord::decode(value).map_err(|error| malformed(VOLUME, &error))?;
        if record.base != 0 && !record.detached {
            named.insert(record.base);
        }
        Ok(())
    })?;
    Ok(named)
}

/// The commits after which the log is useful. It contains the differences from the bases of
/// subvolumes that are still in the tree that their base was cloned from. It also contains those
/// from bases that are being built.
pub(crate) fn wanted_of_log(fs: &Governed) -> FsResult<Vec<CommitToken>> {
    let bases = all(fs)?;
    let behind = |base: &Recorded| CommitToken(Lsn(base.record.commit));
    let building = bases.iter().filter(|base| !base.record.complete);
    let mut wanted: Vec<_> = building.map(behind).collect();
    fs.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |key, value| {
        let malformed = |error| malformed(VOLUME, &error);
        let id = key::parse_number(key).map_err(malformed)?;
        let record = SubvolumeRecord::decode(value).map_err(malformed)?;
        let base = bases.binary_search_by_key(&record.base, |base| base.tree);
        if let Ok(at) = base
            && bases[at].record.subvolume == id
            && !record.read_only
            && !record.detached
        {
            wanted.push(behind(&bases[at]));
        }
        Ok(())
    })?;
    Ok(wanted)
}

/// Whether there is a base.
pub fn any(fs: &Governed) -> FsResult<bool> {
    let range = KeyRange::prefix(&key::BASES_PREFIX);
    let mut cursor = fs.store.scan(VOLUME, range).map_err(from_store)?;
    Ok(cursor.next().map_err(from_store)?.is_some())
}

/// Removes all bases: there is no space for what they keep. Searches walk until there are new ones.
/// Returns how many there were.
pub fn remove_all(fs: &Governed) -> FsResult<u64> {
    let _ledger = fs.admin.lock();
    let mut naming: BTreeMap<u64, Vec<Naming>> = BTreeMap::new();
    fs.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |key, value| {
        let record = SubvolumeRecord::decode(value).map_err(|error| malformed(VOLUME, &error))?;
        if record.base != 0 {
            let none = SubvolumeRecord { base: 0, ..record }.encode();
            naming.entry(record.base).or_default().push((key.to_vec(), none));
        }
        Ok(())
    })?;
    let (mut removed, mut refused) = (0, None);
    for base in all(fs)? {
        match remove_named(fs, base.tree, &naming.remove(&base.tree).unwrap_or_default()) {
            Ok(()) => removed += 1,
            // Another may be named by fewer.
            Err(error @ FsError::NoSpace) => refused = Some(error),
            Err(error) => return Err(error),
        }
    }
    // A leftover of an older program that had no space: a check reports it.
    for records in naming.into_values() {
        match forget_base(fs, &records, |_| Ok(())) {
            Err(FsError::NoSpace) => break,
            done => done?,
        }
    }
    match refused {
        Some(error) if removed == 0 => Err(error),
        _ => Ok(removed),
    }
}

/// Key of the record of a subvolume that names a base, and the record without it.
type Naming = (Vec<u8>, Vec<u8>);

/// Removes a base from all records that name it, and drops it with the last of them, so that none
/// names a missing base. This frees space, so it succeeds where nothing may be added.
fn remove_named(fs: &Governed, tree: u64, naming: &[Naming]) -> FsResult<()> {
    forget_base(fs, naming, |plan| plan_removal(fs, plan, tree))?;
    if let Some(index) = &fs.index {
        index.forget(tree);
    }
    Ok(())
}

/// Writes records, in commits of which the last is planned further by `end`.
fn forget_base(
    fs: &Governed,
    naming: &[Naming],
    end: impl Fn(&mut Plan) -> FsResult<()>,
) -> FsResult<()> {
    let mut chunks = naming.chunks(RECORDS_AT_ONCE).peekable();
    loop {
        let chunk = chunks.next().unwrap_or_default();
        let is_last = chunks.peek().is_none();
        execute_alone(fs, |plan| {
            for (key, record) in chunk {
                plan.batch().put(VOLUME, key, record);
            }
            if is_last {
                return end(plan);
            }
            // The tree follows.
            plan.batch().mark(Need::Relieves);
            Ok(())
        })?;
        if is_last {
            return Ok(());
        }
    }
}
