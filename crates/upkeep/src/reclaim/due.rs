//! Decides which subvolume to prune; `prune` does it.
//!
//! A snapshot or clone keeps everything alive that it shares with its source. Garbage are records
//! outside of its directory that the source has changed or removed, and the contents that they
//! point to. A page of contents weighs as much as a record. Pruning costs as much as the directory
//! has records, and frees contents. It is due when the garbage weighs more than the directory has
//! records, or when the source is gone. Contents that the source still has are no garbage, even if
//! the file was moved or its attributes changed. Both are counted up to a limit that doubles while
//! neither count ends. They are counted again only after changes in proportion to what was read,
//! and after a rest in proportion to the time that took. A removed source is noticed at once. It
//! does not matter that other snapshots keep the same garbage alive: they are due as well, and
//! pruned snapshots of one directory still share.

use std::collections::BTreeMap;
use std::time::Duration;

use device::Set;
use format::entry_record::{EntryRecord, Target};
use format::extent::{self, CHUNK_BYTES, Extent};
use format::key::{self, Parsed, Part};
use format::subvolume_record::SubvolumeRecord;
use inode::SubvolId;
use ops::reach::Reach;
use policy::Governed;
use store::{KeyRange, Store, TreeId};
use vfs::FsResult;
use volume::error::{from_store, malformed};
use volume::subvol::VOLUME;

use crate::rest::REST_AFTER_FAILURE;

/// Most subvolumes that are measured in one step.
const MEASURED_AT_ONCE: usize = 64;
/// How much one commit changes at most, about: the removal of many names or extents.
const WEIGHT_A_COMMIT: u64 = 256 * 32;
/// How many differences may be looked at again for one commit.
const SEEN_A_COMMIT: u64 = 64;
/// Least rest between two measurements of a subvolume.
const REST: Duration = Duration::from_secs(1);
/// Rest after a measurement, as a multiple of the time that it took.
const REST_FACTOR: u32 = 50;
/// An extent has so many bytes, at most.
const EXTENT_SHIFT: u32 = 17;

/// What was learned of subvolumes; nothing of it need survive a crash.
#[derive(Default)]
pub(super) struct Watch {
    measured: BTreeMap<u64, Measured>,
    /// The last one that was examined.
    last: u64,
    /// The commit at which none was due.
    idle_at: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    /// The commit from which on it may be due.
    commit: u64,
    /// The time from which on it is measured again.
    time: Duration,
}

/// The inputs of a choice: subvolumes that share more than they reach, and all trees.
struct Field {
    candidates: Vec<(u64, SubvolumeRecord)>,
    trees: BTreeMap<u64, u64>,
}

impl Watch {
    /// Delays a subvolume that could not be pruned, or was just now.
    pub(super) fn rest(&mut self, fs: &Governed, id: u64) {
        let time = fs.env.clock.monotonic() + REST;
        self.measured.insert(id, Measured { commit: 0, time });
    }

    /// Delays a subvolume that cannot be pruned because of an error.
    pub(super) fn rest_long(&mut self, fs: &Governed, id: u64) {
        let time = fs.env.clock.monotonic() + REST_AFTER_FAILURE;
        self.measured.insert(id, Measured { commit: 0, time });
    }

    /// A subvolume that is due, if any is found.
    pub(super) fn pick(&mut self, fs: &Governed) -> FsResult<Option<SubvolId>> {
        let commit = fs.store.last_commit().0.0;
        if self.idle_at == Some(commit) {
            return Ok(None);
        }
        let field = survey(fs)?;
        self.measured.retain(|id, _| field.trees.contains_key(id));
        let start = field.candidates.partition_point(|(id, _)| *id <= self.last);
        let (before, after) = field.candidates.split_at(start);
        let (mut measured, mut resting) = (0, false);
        for (id, record) in after.iter().chain(before) {
            let now = fs.env.clock.monotonic();
            if let Some(known) = self.measured.get(id) {
                // Once its source is gone it is due whatever was counted, and nothing more may
                // happen for a long time.
                let has_source = field.trees.contains_key(&record.source.0);
                if has_source && commit < known.commit {
                    continue;
                }
                if now < known.time {
                    resting = true;
                    continue;
                }
            }
            if measured == MEASURED_AT_ONCE {
                return Ok(None);
            }
            measured += 1;
            self.last = *id;
            let (missing, seen) = measure(fs, &field, record)?;
            if missing == 0 {
                self.measured.remove(id);
                return Ok(Some(SubvolId(*id)));
            }
            let took = fs.env.clock.monotonic().saturating_sub(now);
            let known = Measured {
                commit: commit
                    + (missing as u64 / WEIGHT_A_COMMIT).max(seen / SEEN_A_COMMIT).max(1),
                time: now + REST + took * REST_FACTOR,
            };
            self.measured.insert(*id, known);
        }
        self.idle_at = (!resting).then_some(commit);
        Ok(None)
    }
}

fn survey(fs: &Governed) -> FsResult<Field> {
    let mut field = Field { candidates: Vec::new(), trees: BTreeMap::new() };
    fs.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |key, value| {
        let malformed = |error| malformed(VOLUME, &error);
        let id = key::parse_number(key).map_err(malformed)?;
        let record = SubvolumeRecord::decode(value).map_err(malformed)?;
        if record.detached {
            return Ok(());
        }
        field.trees.insert(id, record.tree);
        // An heir changes without a change in it.
        if !record.pruned && !record.inherits {
            field.candidates.push((id, record));
        }
        Ok(())
    })?;
    Ok(field)
}

/// How much more garbage there must be before a subvolume is due (0 when it is), and how many
/// differences were looked at.
fn measure(fs: &Governed, field: &Field, record: &SubvolumeRecord) -> FsResult<(usize, u64)> {
    let source = field.trees.get(&record.source.0).map(|&tree| TreeId(tree));
    let mut limit = fs.options.prune_records.max(2);
    let mut seen = 0;
    loop {
        let garbage = match source {
            Some(source) => garbage(fs, source, record, limit, &mut seen)?,
            None => limit,
        };
        if garbage < limit {
            return Ok((limit - garbage, seen));
        }
        if reachable(fs, record, limit)? < limit {
            return Ok((0, seen));
        }
        limit *= 2;
    }
}

/// The weight of what is in a subvolume's tree, outside of its directory, and no longer in its
/// source, up to a limit.
fn garbage(
    fs: &Governed,
    source: TreeId,
    record: &SubvolumeRecord,
    limit: usize,
    seen: &mut u64,
) -> FsResult<usize> {
    let tree = TreeId(record.tree);
    let mut outside = Outside::new(tree, record.root);
    let mut cursor = match fs.store.diff(source, tree) {
        // It was removed since it was listed.
        Err(store::Error::NoTree(_)) => return Ok(limit),
        cursor => cursor.map_err(from_store)?,
    };
    let mut weight = 0;
    while weight < limit {
        let Some(diff) = cursor.next().map_err(from_store)? else { break };
        *seen += 1;
        if let Some(value) = diff.new {
            weight += outside.weight(&*fs.store, diff.key, value)?;
        }
    }
    Ok(weight.min(limit))
}

/// Determines what is outside of a directory. Records are passed in the order of their keys, those
/// of entries and inodes before extents. An inode whose extents differ has changed, too.
struct Outside {
    tree: TreeId,
    reach: Reach,
    /// Inodes outside that were shown: no more than what was shown weighs.
    inodes: Set<u64>,
    /// The inode of several names that was requested last, and whether all of them are outside.
    linked: Option<(u64, bool)>,
}

impl Outside {
    fn new(tree: TreeId, root: u64) -> Outside {
        let reach = Reach::new(tree, root);
        Outside { tree, reach, inodes: Set::default(), linked: None }
    }

    /// The weight of a record that differs; 0 if it is not outside.
    fn weight(&mut self, store: &dyn Store, key: &[u8], value: &[u8]) -> FsResult<usize> {
        let tree = self.tree;
        let malformed = |error| malformed(tree, &error);
        match key::parse(key).map_err(malformed)? {
            Parsed::Entry { directory, cookie, part } => {
                if self.reach.contains(store, directory)? {
                    return Ok(0);
                }
                if cookie > 0 && part == Part::Attributes {
                    let entry = EntryRecord::decode(value).map_err(malformed)?;
                    if let Target::Embedded(_) = entry.target {
                        self.inodes.insert(entry.ino);
                    }
                }
                Ok(1)
            }
            Parsed::Extent { ino, .. } => {
                if !self.inodes.contains(&ino) {
                    return Ok(0);
                }
                Ok(match extent::decode(value).map_err(malformed)? {
                    Extent::Stored(stored) => stored.length.div_ceil(CHUNK_BYTES).max(1) as usize,
                    Extent::Inline(_) => 1,
                })
            }
            Parsed::Linked { ino, .. } => {
                let is_outside = self.is_linked_outside(store, ino)?;
                if is_outside {
                    self.inodes.insert(ino);
                }
                Ok(usize::from(is_outside))
            }
            Parsed::BackReference { .. } => Ok(0),
        }
    }

    /// Whether an inode has names beside which it is not stored, all of them outside.
    fn is_linked_outside(&mut self, store: &dyn Store, ino: u64) -> FsResult<bool> {
        if let Some((_, is_outside)) = self.linked.filter(|(known, _)| *known == ino) {
            return Ok(is_outside);
        }
        let range = KeyRange::prefix(&key::back_reference_prefix(ino));
        let mut cursor = store.scan(self.tree, range).map_err(from_store)?;
        let (mut names, mut is_inside) = (0, false);
        while !is_inside && let Some(item) = cursor.next().map_err(from_store)? {
            let parsed = key::parse(item.key).map_err(|error| malformed(self.tree, &error))?;
            if let Parsed::BackReference { directory, .. } = parsed {
                names += 1;
                is_inside = self.reach.contains(store, directory)?;
            }
        }
        let is_outside = names > 0 && !is_inside;
        self.linked = Some((ino, is_outside));
        Ok(is_outside)
    }
}

/// How many records differ between two trees, up to a limit.
pub(super) fn differing(
    store: &dyn Store,
    one: TreeId,
    two: TreeId,
    limit: usize,
) -> FsResult<usize> {
    let mut cursor = match store.diff(one, two) {
        // It was removed since it was listed.
        Err(store::Error::NoTree(_)) => return Ok(limit),
        cursor => cursor.map_err(from_store)?,
    };
    let mut count = 0;
    while count < limit && cursor.next().map_err(from_store)?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// How many records are reachable in a subvolume, up to a limit.
fn reachable(fs: &Governed, record: &SubvolumeRecord, limit: usize) -> FsResult<usize> {
    let tree = TreeId(record.tree);
    let malformed = |error| malformed(tree, &error);
    let mut left = vec![record.root];
    // Damaged entries may form a loop.
    let mut known: Set<u64> = Set::default();
    let mut count = 0;
    while let Some(directory) = left.pop() {
        if !known.insert(directory) {
            continue;
        }
        let range = KeyRange::prefix(&key::directory_prefix(directory));
        let mut cursor = fs.store.scan(tree, range).map_err(from_store)?;
        while let Some(item) = cursor.next().map_err(from_store)? {
            count += 1;
            if count >= limit {
                return Ok(count);
            }
            let parsed = key::parse(item.key).map_err(malformed)?;
            let Parsed::Entry { cookie: 1.., part: Part::Attributes, .. } = parsed else {
                continue;
            };
            let entry = EntryRecord::decode(item.value).map_err(malformed)?;
            match entry.target {
                Target::Directory => left.push(entry.ino),
                Target::Embedded(inode) => count += (inode.allocated >> EXTENT_SHIFT) as usize,
                _ => {}
            }
        }
    }
    Ok(count)
}
