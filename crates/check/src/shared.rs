//! Checks snapshots and clones by their differences from a verified tree: what they share with it
//! is right in them, too.
//!
//! A relation between two records can be wrong only if one of them differs. So everything related
//! to a differing record is checked again, by the same checks as in a whole tree. Checked are the
//! directories whose records or entries differ, and those that differing entries point to or
//! differing records are in. So are the inodes under their own number, and the extents of files.
//! The granule is a directory: one that differs in an entry is walked.
//!
//! This only proves a tree right. It may find a problem, or be unable to decide: a record does not
//! decode, or an extent's owner is not among the differences. Then the tree is checked as a whole,
//! which reports the problem. So is a tree for which there is no verified tree to compare with.

use std::collections::{BTreeMap, BTreeSet};

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::extent::{Extent, decode};
use format::inode_record::LinkedRecord;
use format::key::{self, Parsed, Part};
use format::subvolume_record::SubvolumeRecord;
use store::{Diff, Error, KeyRange, TreeId};
use vfs::FsResult;
use volume::error::from_store;
use volume::readable::Scan;

use super::Checker;
use super::look::{self, Look};
use super::sets::InoSet;
use super::tree::Tree;

/// A tree in which nothing was found wrong.
#[derive(Clone)]
pub(super) struct Clean {
    tree: TreeId,
    whole: bool,
    /// Inodes that are stored beside their names.
    embedded: InoSet,
    /// Directories in which subvolumes are mounted: other records determine whether that is right.
    mounts: BTreeSet<u64>,
}

/// The last tree of each directory (lineage and inode) in which nothing was found wrong, and the
/// last clone of it.
#[derive(Default)]
pub(super) struct CleanTrees {
    own: BTreeMap<(u64, u64), Clean>,
    clones: BTreeMap<(u64, u64), Clean>,
}

/// The differences, grouped by what has to be checked.
#[derive(Default)]
struct Differing {
    directories: BTreeSet<u64>,
    linked: BTreeSet<u64>,
    /// Inodes beside names of differing entries.
    embedded: BTreeSet<u64>,
    /// Bytes that extents cover, minus those in the base, for each file.
    extents: BTreeMap<u64, i64>,
    /// Files that had extents in the base.
    had_extents: BTreeSet<u64>,
}

impl Differing {
    /// Takes a difference; `None`: the differences do not decide this.
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
                    // If it is in the same place, the entry that points to it is still right.
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
                    // Entries contain the kind, too, and need not differ.
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
            // If no copy was taken of clones, only the last is remembered.
            let lineage = self.table.subvolumes.get(&of).map_or(0, |source| source.lineage);
            self.clean.clones.insert((lineage, record.root), clean.clone());
            if !self.table.sources.contains(&tree_of) {
                return;
            }
        }
        self.clean.own.insert((record.lineage, record.root), clean);
    }

    /// Checks a snapshot or a clone by its differences from a verified tree; `false`: that proves
    /// nothing, and nothing was reported.
    pub(super) fn by_difference(&mut self, record: &SubvolumeRecord, id: u64) -> FsResult<bool> {
        let mut tree = Tree::new(id, record);
        if tree.original || self.recounts && !record.read_only {
            return Ok(false);
        }
        let Some(base) = self.base_of(&tree, record) else { return Ok(false) };
        // No other check finds it missing: no entry points to it.
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
        // The table of subvolumes decides whether a mount is right, and it differs from the base's.
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
            // Entries that point to it do not differ when only its record is gone: the notes of
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

    /// A tree with which a copy is compared: of the same directory, or one that holds it.
    fn base_of(&self, tree: &Tree, record: &SubvolumeRecord) -> Option<Clean> {
        let fits = |base: &&Clean| base.whole || !tree.whole;
        let same = self.clean.own.get(&(record.lineage, record.root)).filter(fits);
        let last = || {
            let source = self.table.subvolumes.get(&record.source.0)?;
            self.clean.clones.get(&(source.lineage, record.root)).filter(fits)
        };
        let above = || {
            // A pruned tree shares nothing with the tree that it was taken from.
            let source = self.table.subvolumes.get(&record.source.0).filter(|_| !tree.whole)?;
            let base = self.clean.own.get(&(source.lineage, source.root))?;
            // In a copy of the same directory everything that this one reaches is right.
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

    /// Whether each file that has extents and differs was checked. Otherwise, whether it has as
    /// many bytes as in the base, where an inode that does not differ owned them.
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

    /// Whether the extents of a file do not overlap, and none of them is suspect. A frequently
    /// synced file is moved to other extents while its inode does not change.
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

    /// Removes the inodes of a directory's entries from the known ones: they are met again.
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
