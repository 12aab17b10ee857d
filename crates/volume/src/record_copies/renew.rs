//! Rebuilds one of the two trees of the volume's records from the other, in a volume that no other
//! process has open. The damaged one is dropped, not followed: its root may be what is damaged.
//!
//! The volume's own tree:
//!
//! 1. Readable records without a copy are stored beside the copies. An unreadable count of a
//!    subvolume's inodes is stored as 0, with a note that counts are not known until a check has
//!    corrected them.
//! 2. The tree is dropped, and a checkpoint made, so that its number is free. From now on until 4
//!    the volume opens for reading only, from the copies and what is stored beside them.
//! 3. The tree is rebuilt with all of that, in one commit.
//! 4. The records without a copy are removed from beside the copies.
//!
//! The log may have changes of a tree that could not be replayed into it. Then step 1 and dropping
//! the tree are one record of the log. The volume is opened again after it: the next replay ends
//! without that tree, and lacks nothing (`drop_unknown`).
//!
//! The copies: dropped, together with the note that they exist, and created as for a volume that
//! has none. After a crash anywhere the next repair continues.

use std::collections::BTreeSet;

use format::kept_twice::{RootCounter, UNCOUNTED_KEY, is_kept_twice};
use format::key;
use format::subvolume_record::{SubvolumeRecord, UsageRecord};
use store::{Batch, KeyRange, Need, Read, Result, Store, TreeId};
use vfs::FsResult;

use super::complete::{commit_from, complete, free_number};
use super::noted::{Noted, both};
use super::{COPY, ROOT, are_there, is_damage, root};
use crate::OpenError;
use crate::error::from_store;
use crate::readable::Scan;
use crate::subvol::VOLUME;

/// Bytes of one commit.
const COMMIT_BYTES: usize = 1 << 20;

/// Rebuilds the damaged one of the two trees; refused if both are damaged.
pub fn renew(engine: &dyn Store) -> std::result::Result<(), OpenError> {
    if let Some(why) = engine.read_only() {
        return Err(OpenError::Inconsistent(why.to_string().into()));
    }
    match (damage(engine, VOLUME)?, damage(engine, COPY)?) {
        (Some(own), Some(copy)) => Err(both(own, &copy).into()),
        (Some(own), None) if !are_there(engine)? => Err(own.into()),
        (Some(_), None) => renew_own(engine).map_err(OpenError::inconsistent),
        (None, Some(_)) => Ok(renew_copies(engine)?),
        (None, None) => Ok(remove_others(engine)?),
    }
}

/// Has the log drop the one of the two trees that is not fully known since it was replayed. Does so
/// if that tree alone keeps the store from accepting changes, and the other tree is complete.
/// Returns whether to open the store again.
pub fn drop_unknown(engine: &dyn Store) -> std::result::Result<bool, OpenError> {
    let mut batch = Batch::new();
    match engine.unknown()[..] {
        [VOLUME] if damage(engine, COPY)?.is_none() && are_there(engine)? => {
            gather_others(engine, &mut batch, &mut |_| Ok(())).map_err(OpenError::inconsistent)?;
            batch.drop_tree(VOLUME);
        }
        [COPY] if damage(engine, VOLUME)?.is_none() => record_none_and_drop(engine, &mut batch)?,
        _ => return Ok(false),
    }
    engine.commit(&batch)?;
    Ok(true)
}

/// The first damage in a tree.
fn damage(engine: &dyn Read, tree: TreeId) -> Result<Option<store::Error>> {
    let walk = || -> Result<()> {
        let mut cursor = engine.scan(tree, KeyRange::all())?;
        while cursor.next()?.is_some() {}
        Ok(())
    };
    match walk() {
        Err(error) if is_damage(&error) => Ok(Some(error)),
        walked => walked.map(|()| None),
    }
}

fn renew_own(engine: &dyn Store) -> FsResult<()> {
    if engine.tree_exists(VOLUME).map_err(from_store)? {
        keep_others(engine)?;
        let mut batch = Batch::new();
        batch.drop_tree(VOLUME);
        engine.commit(&batch).map_err(from_store)?;
    }
    free_number(engine).map_err(from_store)?;
    let mut run = engine.scan(COPY, KeyRange::all()).map_err(from_store)?;
    let token = engine.ingest_new(VOLUME, &mut run).map_err(from_store)?;
    drop(run);
    engine.sync(token).map_err(from_store)?;
    remove_others(engine).map_err(from_store)
}

/// What is called with a batch that grows.
type Grown<'g> = &'g mut dyn FnMut(&mut Batch) -> Result<()>;

/// Stores readable records without a copy beside the copies.
fn keep_others(engine: &dyn Store) -> FsResult<()> {
    let mut batch = Batch::new();
    let mut grown = |batch: &mut Batch| commit_from(engine, batch, COMMIT_BYTES);
    gather_others(engine, &mut batch, &mut grown)?;
    commit_from(engine, &mut batch, 0).map_err(from_store)
}

fn gather_others(engine: &dyn Store, batch: &mut Batch, grown: Grown<'_>) -> FsResult<()> {
    // Those of an interrupted repair may be older.
    gather_removals(engine, batch, grown).map_err(from_store)?;
    let pin = engine.pin().map_err(from_store)?;
    let mut counted = BTreeSet::new();
    let mut scan = Scan::new(&*pin, VOLUME, &[])?;
    while scan.advance()? {
        if !is_kept_twice(&scan.key) {
            batch.put(COPY, &scan.key, &scan.value);
            grown(batch).map_err(from_store)?;
            counted.insert(scan.key.clone());
        }
    }
    let subvolumes = KeyRange::prefix(&key::SUBVOLUMES_PREFIX);
    let mut cursor = pin.scan(COPY, subvolumes).map_err(from_store)?;
    while let Some(item) = cursor.next().map_err(from_store)? {
        let (Ok(id), Ok(record)) =
            (key::parse_number(item.key), SubvolumeRecord::decode(item.value))
        else {
            continue;
        };
        let usage = key::usage(id);
        if !record.read_only && !counted.contains(usage.as_slice()) {
            let nothing = UsageRecord { files: 0, bytes: 0, counted: true };
            batch.put(COPY, &usage, &nothing.encode());
            grown(batch).map_err(from_store)?;
        }
    }
    // The disk may be able to read later what it cannot now: nothing is rebuilt without it.
    if let Some(lost) = scan.lost.iter().find(|lost| lost.damage.unread) {
        return Err(from_store((*lost.damage).clone().into()));
    }
    if !scan.lost.is_empty() {
        batch.put(COPY, &UNCOUNTED_KEY, b"");
    }
    Ok(())
}

/// Removes records without a copy from beside the copies.
fn remove_others(engine: &dyn Store) -> Result<()> {
    let mut batch = Batch::new();
    let mut grown = |batch: &mut Batch| {
        batch.mark(Need::Removes);
        commit_from(engine, batch, COMMIT_BYTES)
    };
    gather_removals(engine, &mut batch, &mut grown)?;
    batch.mark(Need::Removes);
    commit_from(engine, &mut batch, 0)
}

fn gather_removals(engine: &dyn Store, batch: &mut Batch, grown: Grown<'_>) -> Result<()> {
    let mut cursor = engine.scan(COPY, KeyRange::all())?;
    while let Some(item) = cursor.next()? {
        if !is_kept_twice(item.key) {
            batch.delete(COPY, item.key);
            grown(batch)?;
        }
    }
    Ok(())
}

fn record_none_and_drop(engine: &dyn Store, batch: &mut Batch) -> Result<()> {
    if let Some(root) = root(engine, VOLUME)? {
        batch.put(VOLUME, &ROOT, &RootCounter { copies: false, ..root }.encode());
    }
    if engine.tree_exists(COPY)? {
        batch.drop_tree(COPY);
    }
    Ok(())
}

fn renew_copies(engine: &dyn Store) -> Result<()> {
    let mut batch = Batch::new();
    record_none_and_drop(engine, &mut batch)?;
    engine.commit(&batch)?;
    free_number(engine)?;
    complete(engine, &Noted::new(false))
}
