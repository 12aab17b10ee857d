//! Trees that no record names: leaked space, or the tree of a subvolume whose record is gone from
//! both trees of the volume's own records.
//!
//! A tree with directories is user data, and a repair restores it (decision 0101). So only a tree
//! that is proven to have none is dropped, by any code path. Contents that such trees name are not
//! freed while the trees exist.

use std::collections::BTreeSet;
use std::sync::Arc;

use format::detached_record::DetachedRecord;
use format::directory_record::DirectoryRecord;
use format::key::{self, Counter, INO_MAX, Parsed, Part};
use store::{Error, KeyRange, Pinned, TreeId};
use upkeep::Upkeep;
use vfs::FsResult;
use volume::error::{from_store, inconsistent};
use volume::readable::Scan;
use volume::subvol::VOLUME;

use super::look::{self, Look};
use super::table::Table;
use super::{Checker, Fix, Problem, ProblemKind, Stray, VolumeReport};

/// How many numbers after the last one handed out are searched for trees, too.
const TREES_BEYOND: u64 = 64;
/// The counter of the number that the next tree gets.
const NEXT_TREE: u8 = key::counter(Counter::NextTree)[1];
/// Most numbers of trees that are tried from either end of those that were handed out.
const TREES_LOOKED_FOR: u64 = 1 << 20;

impl Checker<'_, '_> {
    /// Reports them.
    pub(super) fn check_trees(&mut self) -> FsResult<()> {
        if !self.table.lost.is_empty() {
            return Ok(());
        }
        for tree in unnamed_trees(&self.table, self.pin, Damage::IsPassed)? {
            let what = format!("tree {tree} exists, but no record names it");
            let root = self.table.subvolumes.get(&self.table.root).map(|record| record.tree);
            let fix = match (top_of(&self.table, self.pin, tree)?, root) {
                (Look::Found(top), Some(above)) => {
                    let stray = Stray::Tree(tree, top);
                    Some(Fix::Keep(self.table.root, TreeId(above), stray))
                }
                (Look::Absent, _) => Some(Fix::DropTree(TreeId(tree))),
                (Look::Unknown | Look::Found(_), _) => None,
            };
            self.found(Problem { fix, ..Problem::new(ProblemKind::Lost, what) });
        }
        Ok(())
    }
}

/// Trees that a collection marks besides those that the records of subvolumes name: only the
/// copy of their record is left, or none. An operation names each tree that it creates in the
/// same commit, so all of them existed when the volume was opened.
pub fn trees_without_records(fs: &Upkeep, pin: &dyn Pinned) -> FsResult<Vec<TreeId>> {
    let mut known = fs.unnamed.lock();
    let trees = match &mut *known {
        Some(trees) => trees,
        none => {
            let table = Table::read(fs, pin, &mut VolumeReport::default())?;
            // The set of trees is known only if all of these records are.
            if let Some(lost) = table.lost.first() {
                return Err(from_store(Error::Corrupt(Arc::clone(&lost.damage))));
            }
            if !table.counters.contains_key(&NEXT_TREE) {
                return Err(inconsistent(VOLUME, "no counter has the number of trees", 0));
            }
            let mut trees = unnamed_trees(&table, pin, Damage::Ends)?;
            let of_copies = |id: &u64| table.from_copies.contains(key::subvolume(*id).as_slice());
            let of_copies = table.subvolumes.iter().filter(|(id, _)| of_copies(id));
            trees.extend(of_copies.map(|(_, record)| record.tree));
            none.insert(trees)
        }
    };
    let mut there = Vec::new();
    for tree in trees {
        if exists(pin, *tree, Damage::Ends)? {
            there.push(TreeId(*tree));
        }
    }
    Ok(there)
}

/// What to do if it cannot be read whether there is a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Damage {
    /// Treat it as absent, and conclude nothing from that.
    IsPassed,
    /// Return the error.
    Ends,
}

/// The trees that no record names.
pub(super) fn unnamed_trees(table: &Table, pin: &dyn Pinned, damage: Damage) -> FsResult<Vec<u64>> {
    let mut named: BTreeSet<u64> = table.trees().map(|tree| tree.0).collect();
    named.extend(table.bases.keys());
    named.extend(table.scans.values().map(|scan| scan.pending));
    named.extend(table.detached.values().filter_map(|record| match *record {
        DetachedRecord::Tree { tree } => Some(tree),
        _ => None,
    }));
    let next = table.counters.get(&NEXT_TREE).copied().unwrap_or(0);
    let mut unnamed = Vec::new();
    // A falsified counter or record must not make this endless: of more numbers than that, only the
    // first and the last are tried.
    let end = next.saturating_add(TREES_BEYOND);
    let first = key::FIRST_TREE..end.min(key::FIRST_TREE + TREES_LOOKED_FOR);
    let last = end.saturating_sub(TREES_LOOKED_FOR).max(first.end)..end;
    for tree in first.chain(last) {
        if !named.contains(&tree) && exists(pin, tree, damage)? {
            unnamed.push(tree);
        }
    }
    Ok(unnamed)
}

fn exists(pin: &dyn Pinned, tree: u64, damage: Damage) -> FsResult<bool> {
    let range = KeyRange { from: vec![0], to: Some(vec![0, 0]) };
    match pin.scan(TreeId(tree), range) {
        Ok(_) => Ok(true),
        Err(Error::NoTree(_)) => Ok(false),
        Err(Error::Corrupt(_)) if damage == Damage::IsPassed => Ok(false),
        Err(error) => Err(from_store(error)),
    }
}

/// The topmost directory of an unnamed tree: one that is its own parent, or else the first whose
/// parent is not in the tree. `Absent`: it is proven that it has no directories, or it is a base of
/// the index, which is a copy.
pub(super) fn top_of(table: &Table, pin: &dyn Pinned, tree: u64) -> FsResult<Look<u64>> {
    if table.subvolumes.values().any(|record| record.base == tree) {
        return Ok(Look::Absent);
    }
    let tree = TreeId(tree);
    let mut scan = Scan::new(pin, tree, &key::DIRECTORIES_PREFIX)?;
    let (mut top, mut any) = (None, false);
    while scan.advance()? {
        any = true;
        let Ok(Parsed::Entry { directory, cookie: 0, part: Part::Attributes }) =
            key::parse(&scan.key)
        else {
            continue;
        };
        let Ok(record) = DirectoryRecord::decode(&scan.value) else { continue };
        if directory > INO_MAX {
            // A falsified number: no subvolume can have it for a root.
            continue;
        }
        if record.parent == directory {
            return Ok(Look::Found(directory));
        }
        if top.is_none()
            && !record.detached
            && look::directory(pin, tree, record.parent)? == Look::Absent
        {
            top = Some(directory);
        }
    }
    Ok(match top {
        Some(top) => Look::Found(top),
        None if any || !scan.lost.is_empty() => Look::Unknown,
        None => Look::Absent,
    })
}
