//! Snapshots and clones, by what differs from a tree that was found right: what they share with it
//! is right there, too.
//!
//! A relation between two records can be wrong only where one of them differs. So everything that
//! a differing record takes part in is looked at again, by the same checks as in a whole tree: the
//! directories whose records or entries differ, those that differing entries lead to or differing
//! records are in, the inodes under their own number, and the extents of files. The granule is a
//! directory: one that differs in an entry is gone through.
//!
//! This only proves a tree right. Whatever it finds or cannot tell (a record that does not decode,
//! an extent whose owner is not among what differs) has the tree gone through as a whole, which
//! tells what is wrong. So does a tree beside which none was found right.

use std::collections::{BTreeMap, BTreeSet};

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::extent::{Extent, decode};
use format::inode_record::LinkedRecord;
use format::key::{self, Parsed, Part};
use format::subvolume_record::SubvolumeRecord;
use store::{Diff, Error, KeyRange, TreeId};

use super::Checker;
use super::look::{self, Look, Scan};
use super::sets::InoSet;
use super::tree::Tree;
use crate::FsResult;
use crate::error::from_store;

/// A tree in which nothing was found wrong.
#[derive(Clone)]
pub(super) struct Clean {
    tree: TreeId,
    whole: bool,
    /// Inodes that stand beside their names.
    embedded: InoSet,
    /// Directories in which subvolumes are mounted: whether that is right stands in other records.
    mounts: BTreeSet<u64>,
}

/// The last tree of each directory (lineage and inode) in which nothing was found wrong, and the
/// last clone of it.
#[derive(Default)]
pub(super) struct CleanTrees {
    own: BTreeMap<(u64, u64), Clean>,
    clones: BTreeMap<(u64, u64), Clean>,
}

/// What differs, by what has to be looked at.
#[derive(Default)]
struct Differing {
    directories: BTreeSet<u64>,
    linked: BTreeSet<u64>,
    /// Inodes beside names of differing entries.
    embedded: BTreeSet<u64>,
    /// Bytes that extents cover: less of it in the base, for each file.
    extents: BTreeMap<u64, i64>,
    /// Files of which extents were in the base.
    had_extents: BTreeSet<u64>,
}

impl Differing {
    /// Takes a difference; `None`: this is not to be told from what differs.
    fn take(&mut self, difference: &Diff<'_>) -> Option<()> {
        let values = [difference.old, difference.new];
        match key::parse(difference.key).ok()? {
            Parsed::Entry { directory, cookie: 0, part } => {
                self.directories.insert(directory);
                if part == Part::Attributes {
                    let mut places = BTreeSet::new();
                    for value in values {
                        let record = value.map(DirectoryRecord::decode).transpose().ok()?;
                        let place = |record: DirectoryRecord| {
                            (record.parent, record.parent_cookie, record.detached)
                        };
                        places.insert(record.map(place));
                    }
                    // Where it is in the same place, the entry that leads to it is right still.
                    if places.len() > 1 {
                        let above = places.into_iter().flatten().map(|(parent, ..)| parent);
                        self.directories.extend(above);
                    }
                }
            }
            Parsed::Entry { directory, part, .. } => {
                self.directories.insert(directory);
                if part == Part::Attributes {
                    for value in values.into_iter().flatten() {
                        self.entry(&EntryRecord::decode(value).ok()?);
                    }
                }
            }
            Parsed::Linked { ino, part } => {
                self.linked.insert(ino);
                if part == Part::Attributes {
                    // Entries say the kind, too, and need not differ.
                    let kind = |value| LinkedRecord::decode(value).map(|record| record.inode.kind);
                    let kinds: Result<BTreeSet<_>, _> =
                        values.into_iter().flatten().map(kind).collect();
                    if kinds.ok()?.len() > 1 {
                        return None;
                    }
                }
            }
            Parsed::BackReference { ino, directory, .. } => {
                self.linked.insert(ino);
                self.directories.insert(directory);
            }
            Parsed::Extent { ino, .. } => {
                let covered = self.extents.entry(ino).or_default();
                for (value, sign) in values.into_iter().zip([-1, 1]) {
                    let Some(value) = value else { continue };
                    let length = match decode(value).ok()? {
                        Extent::Inline(bytes) => bytes.len() as i64,
                        Extent::Stored(stored) => i64::from(stored.length),
                    };
                    *covered = covered.wrapping_add(sign * length);
                }
                if difference.old.is_some() {
                    self.had_extents.insert(ino);
                }
            }
        }
        Some(())
    }

    fn entry(&mut self, entry: &EntryRecord<'_>) {
        match entry.target {
            Target::Directory => self.directories.insert(entry.ino),
            Target::Linked(_) => self.linked.insert(entry.ino),
            Target::Embedded(_) => self.embedded.insert(entry.ino),
            Target::Subvolume(_) | Target::Tombstone => false,
        };
    }
}

impl Checker<'_, '_> {
    /// Remembers a tree in which nothing was found wrong.
    pub(super) fn note_clean(&mut self, tree: Tree, record: &SubvolumeRecord) {
        let tree_of = tree.subvol;
        let clean = Clean {
            tree: tree.id,
            whole: tree.whole,
            embedded: tree.embedded,
            mounts: tree.mounts,
        };
        let of = record.source.0;
        if of != 0 && !record.read_only {
            // Of clones that nothing was taken of only the last is remembered.
            let lineage = self.table.subvolumes.get(&of).map_or(0, |source| source.lineage);
            self.clean.clones.insert((lineage, record.root), clean.clone());
            if !self.table.sources.contains(&tree_of) {
                return;
            }
        }
        self.clean.own.insert((record.lineage, record.root), clean);
    }

    /// Looks at a snapshot or a clone by what differs from a tree that was found right; `false`:
    /// nothing is proven by that, and nothing was told.
    pub(super) fn by_difference(&mut self, record: &SubvolumeRecord, id: u64) -> FsResult<bool> {
        let mut tree = Tree::new(id, record);
        if tree.original || self.counts_anew && !record.read_only {
            return Ok(false);
        }
        let Some(base) = self.base_of(&tree, record) else { return Ok(false) };
        // It is missed by nothing else: no entry leads to it.
        if !matches!(look::directory(self.pin, tree.id, tree.root)?, Look::Found(_)) {
            return Ok(false);
        }
        let Some(differing) = self.differing(&base, tree.id)? else { return Ok(false) };
        let report = &self.report;
        let at = report.at();
        let counted = (report.directories, report.files);
        let right = self.prove(&mut tree, &base, &differing)?;
        let right = right && !tree.is_unsure() && !self.report.stopped;
        let report = &mut self.report;
        if right && report.at() == at {
            self.note_clean(tree, record);
            return Ok(true);
        }
        report.take_back(at);
        (report.directories, report.files) = counted;
        Ok(false)
    }

    fn prove(&mut self, tree: &mut Tree, base: &Clean, differing: &Differing) -> FsResult<bool> {
        // A mount is right or not by the table of subvolumes, which says other than of the base.
        let directories: BTreeSet<u64> =
            differing.directories.iter().chain(&base.mounts).copied().collect();
        tree.embedded = base.embedded.clone();
        for &directory in &directories {
            self.forget_entries(base.tree, tree, directory)?;
        }
        for &directory in &directories {
            self.directories(tree, &key::directory_prefix(directory))?;
        }
        for &ino in &differing.linked {
            let prefix = key::linked_prefix(ino);
            self.linked_inodes(tree, &prefix)?;
            // Entries that lead to it do not differ when its record alone is gone: the notes of
            // them are left.
            let key = key::linked(ino, Part::Attributes);
            if look::exists(self.pin, tree.id, &key)? != Look::Found(())
                && Scan::new(self.pin, tree.id, &prefix)?.advance()?
            {
                return Ok(false);
            }
        }
        self.extents_have_owners(tree, differing)
    }

    /// A tree beside which a copy is looked at: of the same directory, or one that holds it.
    fn base_of(&self, tree: &Tree, record: &SubvolumeRecord) -> Option<Clean> {
        let fits = |base: &&Clean| base.whole || !tree.whole;
        let same = self.clean.own.get(&(record.lineage, record.root)).filter(fits);
        let last = || {
            let source = self.table.subvolumes.get(&record.source.0)?;
            self.clean.clones.get(&(source.lineage, record.root)).filter(fits)
        };
        let above = || {
            // What was pruned shares nothing with the tree that it was taken from.
            let source = self.table.subvolumes.get(&record.source.0).filter(|_| !tree.whole)?;
            let base = self.clean.own.get(&(source.lineage, source.root))?;
            // Of a copy of the same directory all is right that this one reaches.
            (base.whole || source.root == record.root).then_some(base)
        };
        same.or_else(last).or_else(above).cloned()
    }

    fn differing(&mut self, base: &Clean, tree: TreeId) -> FsResult<Option<Differing>> {
        let mut differing = Differing::default();
        let pin = self.pin;
        let mut cursor = match pin.diff(base.tree, pin, tree, KeyRange::prefix(b"")) {
            Ok(cursor) => cursor,
            Err(Error::Corrupt(_) | Error::NoTree(_)) => return Ok(None),
            Err(error) => return Err(from_store(error)),
        };
        loop {
            match cursor.next() {
                Ok(None) => return Ok(Some(differing)),
                Ok(Some(difference)) => {
                    if differing.take(&difference).is_none() || !self.did_record() {
                        return Ok(None);
                    }
                }
                Err(Error::Corrupt(_)) => return Ok(None),
                Err(error) => return Err(from_store(error)),
            }
        }
    }

    /// Whether each file that has extents, and of which something differs, was looked at, or has
    /// as many bytes as in the base, where an inode that does not differ owned them.
    fn extents_have_owners(&mut self, tree: &Tree, differing: &Differing) -> FsResult<bool> {
        let (embedded, linked) = (&differing.embedded, &differing.linked);
        for &ino in differing.extents.keys().chain(embedded).chain(linked) {
            if tree.extended.contains(ino) {
                continue;
            }
            let differs = embedded.contains(&ino) || linked.contains(&ino);
            let moved = differing.extents.get(&ino).copied().unwrap_or(0);
            if differs {
                let mut scan = Scan::new(self.pin, tree.id, &key::extent_prefix(ino))?;
                if scan.advance()? || !scan.lost.is_empty() {
                    return Ok(false);
                }
            } else if !differing.had_extents.contains(&ino)
                || moved != 0
                || !self.extents_read(tree, ino)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the extents of a file do not overlap, and none of them is suspect: what was synced
    /// often is moved to other extents beside an inode that stays.
    fn extents_read(&mut self, tree: &Tree, ino: u64) -> FsResult<bool> {
        let mut scan = Scan::new(self.pin, tree.id, &key::extent_prefix(ino))?;
        let mut end = 0;
        while scan.advance()? {
            let Ok(Parsed::Extent { offset, .. }) = key::parse(&scan.key) else {
                return Ok(false);
            };
            let length = match decode(&scan.value) {
                Ok(Extent::Inline(bytes)) => bytes.len() as u64,
                Ok(Extent::Stored(stored))
                    if !self.contents.is_suspect(&stored)
                        && !self.takes_from_another(tree, &stored) =>
                {
                    u64::from(stored.length)
                }
                _ => return Ok(false),
            };
            if offset < end || !self.did_record() {
                return Ok(false);
            }
            end = offset.saturating_add(length);
        }
        Ok(scan.lost.is_empty())
    }

    /// Takes the inodes of a directory's entries out of those that are known: they are met again.
    fn forget_entries(&self, base: TreeId, tree: &mut Tree, directory: u64) -> FsResult<()> {
        let mut scan = Scan::new(self.pin, base, &key::directory_prefix(directory))?;
        while scan.advance()? {
            let parsed = key::parse(&scan.key);
            if let Ok(Parsed::Entry { cookie: 1.., part: Part::Attributes, .. }) = parsed
                && let Ok(entry) = EntryRecord::decode(&scan.value)
                && let Target::Embedded(_) = entry.target
            {
                tree.embedded.remove(entry.ino);
            }
        }
        Ok(())
    }
}
