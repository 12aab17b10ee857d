//! Catch-up: brings an extracted tree from one state of its source to a later one, at a cost
//! proportional to what changed between the two.
//!
//! Neither state may change meanwhile: clones taken for the purpose, or the live tree with the
//! subvolume's gate held. A directory that crosses the border of what is extracted takes everything
//! below it along, which no difference shows. Then a new extraction is needed.

use std::collections::{BTreeMap, BTreeSet};

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Parsed, Part};
use ops::reach::Reach;
use store::{Batch, Store, TreeId};
use vfs::FsResult;
use volume::error::{from_store, malformed};

use super::extract::{Records, Start, linked_records, scan_all, write_difference};

/// Trees of a catch-up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trees {
    /// What the target was extracted from, or last caught up with.
    pub old: TreeId,
    /// The state to reach.
    pub new: TreeId,
    /// What was extracted.
    pub target: TreeId,
}

/// The result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The target equals the new state; this many records differed.
    Caught(usize),
    /// More than `limit` records differ; nothing was written.
    TooMany,
    /// A directory crossed the border; nothing was written.
    Crossed,
}

/// Catches up, when at most `limit` records differ.
pub(super) fn catch_up(
    store: &dyn Store,
    trees: Trees,
    root: u64,
    limit: usize,
) -> FsResult<Outcome> {
    let mut changes = Changes {
        trees,
        before: Reach::new(trees.old, root),
        after: Reach::new(trees.new, root),
        batch: Batch::new(),
        extents: BTreeSet::new(),
        linked: BTreeSet::new(),
        files: BTreeMap::new(),
    };
    let Some(differences) = collect(store, trees, limit)? else { return Ok(Outcome::TooMany) };
    for difference in &differences {
        if !changes.take(store, difference)? {
            return Ok(Outcome::Crossed);
        }
    }
    changes.linked(store)?;
    changes.files(store)?;
    if changes.batch.check().is_err() {
        return Ok(Outcome::TooMany);
    }
    if !changes.batch.is_empty() {
        store.commit(&changes.batch).map_err(from_store)?;
    }
    Ok(Outcome::Caught(differences.len()))
}

struct Difference {
    key: Vec<u8>,
    old: Option<Vec<u8>>,
    new: Option<Vec<u8>>,
}

fn collect(store: &dyn Store, trees: Trees, limit: usize) -> FsResult<Option<Vec<Difference>>> {
    let mut differences = Vec::new();
    let mut bytes = 0;
    let mut cursor = store.diff(trees.old, trees.new).map_err(from_store)?;
    while let Some(diff) = cursor.next().map_err(from_store)? {
        bytes += diff.key.len() + diff.new.map_or(0, <[u8]>::len);
        // What is written must fit into one batch, with space for the extents of whole files.
        if differences.len() >= limit || bytes > Batch::BYTES_MAX / 4 {
            return Ok(None);
        }
        differences.push(Difference {
            key: diff.key.to_vec(),
            old: diff.old.map(<[u8]>::to_vec),
            new: diff.new.map(<[u8]>::to_vec),
        });
    }
    Ok(Some(differences))
}

/// What happened to a file whose entry changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// An entry that can be reached no longer points to it.
    Lost,
    /// An entry that can be reached points to it.
    Kept,
}

struct Changes {
    trees: Trees,
    before: Reach,
    after: Reach,
    batch: Batch,
    /// Files whose extents changed.
    extents: BTreeSet<u64>,
    /// Linked inodes that changed, or gained or lost a name.
    linked: BTreeSet<u64>,
    files: BTreeMap<u64, Fate>,
}

impl Changes {
    /// Takes one difference; `false` when a directory crossed the border.
    fn take(&mut self, store: &dyn Store, difference: &Difference) -> FsResult<bool> {
        let parsed = key::parse(&difference.key);
        match parsed.map_err(|error| malformed(self.trees.new, &error))? {
            Parsed::Extent { ino, .. } => {
                self.extents.insert(ino);
            }
            Parsed::Linked { ino, .. } | Parsed::BackReference { ino, .. } => {
                self.linked.insert(ino);
            }
            Parsed::Entry { directory, cookie, part } => {
                let before = self.before.contains(store, directory)?;
                let after = self.after.contains(store, directory)?;
                if cookie == 0 && part == Part::Attributes {
                    let stays = difference.old.is_some() && difference.new.is_some();
                    let crossed = self.crossed(difference, before != after)?;
                    if stays && crossed {
                        return Ok(false);
                    }
                }
                if part == Part::Attributes && cookie != 0 {
                    self.entry(difference, before, after)?;
                }
                match &difference.new {
                    Some(value) if after => {
                        self.batch.put(self.trees.target, &difference.key, value);
                    }
                    _ if before => self.batch.delete(self.trees.target, &difference.key),
                    _ => {}
                }
            }
        }
        Ok(true)
    }

    /// Whether a directory whose record changed crossed the border, with everything below it.
    fn crossed(&self, difference: &Difference, crossed: bool) -> FsResult<bool> {
        let (Some(old), Some(new)) = (&difference.old, &difference.new) else { return Ok(false) };
        let decode = |bytes: &Vec<u8>| {
            DirectoryRecord::decode(bytes).map_err(|error| malformed(self.trees.new, &error))
        };
        let (old, new) = (decode(old)?, decode(new)?);
        Ok(crossed && (old.parent != new.parent || old.detached != new.detached))
    }

    fn entry(&mut self, difference: &Difference, before: bool, after: bool) -> FsResult<()> {
        for (value, reachable, fate) in
            [(&difference.old, before, Fate::Lost), (&difference.new, after, Fate::Kept)]
        {
            let Some(value) = value.as_ref().filter(|_| reachable) else { continue };
            let entry =
                EntryRecord::decode(value).map_err(|error| malformed(self.trees.new, &error))?;
            match entry.target {
                Target::Embedded(_) => {
                    let slot = self.files.entry(entry.ino).or_insert(fate);
                    if fate == Fate::Kept {
                        *slot = fate;
                    }
                }
                Target::Linked(_) => {
                    self.linked.insert(entry.ino);
                }
                Target::Tombstone | Target::Directory | Target::Subvolume(_) => {}
            }
        }
        Ok(())
    }

    /// Writes linked inodes again: a name outside may have been added or removed.
    fn linked(&mut self, store: &dyn Store) -> FsResult<()> {
        for &ino in &self.linked {
            let wanted = linked_records(store, &mut self.after, ino)?;
            let has = scan_all(store, self.trees.target, &key::linked_prefix(ino), Start::Similar)?;
            write_difference(&mut self.batch, self.trees.target, &has, &wanted);
            if !wanted.is_empty() {
                self.files.insert(ino, Fate::Kept);
            } else if !has.is_empty() {
                self.files.entry(ino).or_insert(Fate::Lost);
            }
        }
        Ok(())
    }

    /// Writes the extents of files that changed, appeared or disappeared.
    fn files(&mut self, store: &dyn Store) -> FsResult<()> {
        let target = self.trees.target;
        for &ino in &self.extents {
            if !self.files.contains_key(&ino)
                && !scan_all(store, target, &key::extent_prefix(ino), Start::Similar)?.is_empty()
            {
                self.files.insert(ino, Fate::Kept);
            }
        }
        for (&ino, &fate) in &self.files {
            let prefix = key::extent_prefix(ino);
            let has = scan_all(store, target, &prefix, Start::Similar)?;
            let wanted = match fate {
                Fate::Kept => scan_all(store, self.trees.new, &prefix, Start::Similar)?,
                Fate::Lost => Records::new(),
            };
            write_difference(&mut self.batch, target, &has, &wanted);
        }
        Ok(())
    }
}
