//! `pando gc`: finds what nothing names, and deletes it in two phases.
//!
//! It marks from the trees of all subvolumes, snapshots included, and reports what is not marked.
//! That is pages of data segments, trees that no record names, and files of the index that no base
//! names. It does no more unless deletion is requested. It also marks from a tree that no record
//! names. It deletes such a tree only if it is proven to hold no directory (`unnamed`): a repair
//! restores any other.
//!
//! 1. It notes what it found, with the time, in a commit of its own.
//! 2. It deletes what was noted a grace period ago and is found again. It forgets notes of what is
//!    no longer found.
//!
//! So there is time between the first run and a deletion to see what would be deleted. Nothing is
//! deleted that another thread is about to name. Anything that cannot be read ends the call with
//! nothing deleted, and so does a segment's file whose header names another segment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use data::Swept;
use format::candidate::{self, CandidateKind};
use format::key;
use inode::FsError;
use ops::execute::execute_alone;
use ops::subvolumes::execute_with;
use store::{CheckProgress, TreeId};
use upkeep::search_upkeep;
use vfs::FsResult;
use volume::error::{from_store, malformed};
use volume::subvol::VOLUME;

use super::Checks;
use super::VolumeReport;
use super::look::Look;
use super::table::Table;
use super::unnamed::{Damage, top_of, unnamed_trees};

/// Nodes that are marked between two reports of progress.
const NODES_A_STEP: usize = 64;
/// How long to wait for another collection between two reports of progress.
const TURN_WAIT: Duration = Duration::from_millis(100);
/// What a node adds to the progress, in bytes.
const NODE_BYTES: u64 = 8 << 10;

/// What to do with garbage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gc {
    /// Report it.
    Report,
    /// Note it, and delete it if it was noted that long ago.
    Delete {
        /// How long ago.
        grace: Duration,
    },
}

/// The kind of garbage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GarbageKind {
    /// A data segment in which nothing is named.
    Segment,
    /// Pages of a data segment.
    Pages,
    /// A tree that no record names, and that is proven to hold no directory.
    Tree,
    /// A tree that holds directories, or may: the tree of a subvolume whose record is lost. A
    /// repair of the volume restores it, and it is never deleted.
    LostTree,
    /// A file of the index that no base names.
    IndexFile,
}

impl GarbageKind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            GarbageKind::Segment => "segment",
            GarbageKind::Pages => "pages",
            GarbageKind::Tree => "tree",
            GarbageKind::LostTree => "lost-tree",
            GarbageKind::IndexFile => "index-file",
        }
    }
}

/// One piece of garbage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Garbage {
    /// Its kind.
    pub kind: GarbageKind,
    /// Its file, or the tree's number.
    pub name: String,
    /// Bytes that it occupies; 0 for a tree, whose nodes may be shared.
    pub bytes: u64,
    /// When it was first noted, in nanoseconds since 1970; `None`: it was not.
    pub since: Option<i64>,
    /// Whether it was deleted now. For pages: whether space was reclaimed. A storage device that
    /// cannot punch holes frees a segment only when enough of it is dead.
    pub deleted: bool,
}

/// What a collection found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Bytes of contents that are named.
    pub live_bytes: u64,
    /// What nothing names.
    pub garbage: Vec<Garbage>,
    /// Bytes of what was deleted.
    pub freed_bytes: u64,
    /// Whether it was cancelled; then nothing was deleted.
    pub stopped: bool,
}

/// Something found, and the key under which it is noted.
struct FoundGarbage {
    key: Vec<u8>,
    number: u64,
    garbage: Garbage,
}

impl Checks<'_> {
    /// Finds what nothing names, while other operations run, and deletes it if requested.
    pub fn gc(&self, how: Gc, progress: CheckProgress<'_>) -> FsResult<GcReport> {
        // No other collection sweeps until this one is done.
        let _turn = loop {
            if let Some(turn) = self.collecting.try_lock_for(TURN_WAIT) {
                break turn;
            }
            if progress(0, 1).is_break() {
                return Ok(GcReport { stopped: true, ..GcReport::default() });
            }
        };
        let (pin, mut marking) = self.begin_marking()?;
        let mut ignored = VolumeReport::default();
        let table = Table::read(self, &*pin, &mut ignored)?;
        if let Some(first) = ignored.problems.first() {
            let place = if first.file.is_empty() {
                String::new()
            } else {
                format!(" ({}, byte {})", first.file, first.offset)
            };
            let what = format!("{}{place}: no garbage is collected", first.what);
            return Err(FsError::Io(what.into()));
        }
        let total = table.content_bytes() / 16;
        let mut done = 0;
        let more = |marking: &mut data::Marking| {
            self.data.mark_step(marking, &*pin, NODES_A_STEP).map_err(from_store)
        };
        while more(&mut marking)? {
            done += NODES_A_STEP as u64 * NODE_BYTES;
            if progress(done, total.max(done)).is_break() {
                return Ok(GcReport { stopped: true, ..GcReport::default() });
            }
        }
        let marked = self.data.marked(marking, &*pin).map_err(from_store)?;
        if let Some(error) = marked.unread() {
            return Err(from_store(error.clone().into()));
        }
        if let Some(bad) = marked.unproven().first() {
            return Err(FsError::Io(format!("{bad}: no garbage is collected").into()));
        }
        let mut found = Vec::new();
        for segment in &marked.report().segments {
            if segment.dead_bytes > 0 {
                let kind = if segment.whole { GarbageKind::Segment } else { GarbageKind::Pages };
                let key = key::candidate(CandidateKind::Segment, segment.segment, 0);
                let name = self.data.segment_path(segment.segment);
                found.push(FoundGarbage::new(
                    &key,
                    segment.segment,
                    kind,
                    name,
                    segment.dead_bytes,
                ));
            }
        }
        for tree in unnamed_trees(&table, &*pin, Damage::Ends)? {
            let key = key::candidate(CandidateKind::Tree, tree, 0);
            let is_empty = top_of(&table, &*pin, tree)? == Look::Absent;
            let kind = if is_empty { GarbageKind::Tree } else { GarbageKind::LostTree };
            found.push(FoundGarbage::new(&key, tree, kind, tree.to_string(), 0));
        }
        drop(pin);
        for (name, bytes) in search_upkeep::unnamed_files(self)? {
            let Some(key) = key_of_file(&name) else { continue };
            found.push(FoundGarbage::new(&key, 0, GarbageKind::IndexFile, name, bytes));
        }
        let live_bytes = marked.report().live_bytes;
        let mut report = GcReport { live_bytes, ..GcReport::default() };
        let noted = self.candidates()?;
        for found in found.iter_mut().filter(|found| found.may_go()) {
            found.garbage.since = noted.get(&found.key).copied();
        }
        if let Gc::Delete { grace } = how {
            self.delete(&mut found, (noted, grace), &marked, &mut report)?;
        }
        report.garbage = found.into_iter().map(|found| found.garbage).collect();
        Ok(report)
    }

    /// What was noted, and when.
    fn candidates(self) -> FsResult<BTreeMap<Vec<u8>, i64>> {
        let mut noted = BTreeMap::new();
        self.visit_volume(&key::CANDIDATES_PREFIX, &mut |key, value| {
            let since = candidate::decode(value).map_err(|error| malformed(VOLUME, &error))?;
            noted.insert(key.to_vec(), since);
            Ok(())
        })?;
        Ok(noted)
    }

    /// Both phases: notes new garbage, deletes what was noted long enough ago.
    fn delete(
        self,
        found: &mut [FoundGarbage],
        (noted, grace): (BTreeMap<Vec<u8>, i64>, Duration),
        marked: &data::Marked,
        report: &mut GcReport,
    ) -> FsResult<()> {
        self.may_change()?;
        let now = self.env.clock.now().0;
        let keys = found.iter().filter(|found| found.may_go()).map(|found| found.key.as_slice());
        let keys: BTreeSet<&[u8]> = keys.collect();
        execute_alone(&self, |plan| {
            plan.removes();
            for key in noted.keys().filter(|key| !keys.contains(key.as_slice())) {
                plan.batch().delete(VOLUME, key);
            }
            let is_new = |found: &&FoundGarbage| found.may_go() && found.garbage.since.is_none();
            for found in found.iter().filter(is_new) {
                plan.batch().put(VOLUME, &found.key, &candidate::encode(now));
            }
            Ok(())
        })?;
        self.store.sync(self.store.last_commit()).map_err(from_store)?;
        let grace = i64::try_from(grace.as_nanos()).unwrap_or(i64::MAX);
        for found in found.iter_mut().filter(|found| found.may_go()) {
            let since = *found.garbage.since.get_or_insert(now);
            if now.saturating_sub(since) < grace {
                continue;
            }
            found.garbage.deleted = match found.garbage.kind {
                GarbageKind::Segment | GarbageKind::Pages => {
                    let mut swept = Swept::default();
                    let swept_now =
                        self.data.sweep_now(&*self.store, marked, found.number, &mut swept);
                    swept_now.map_err(from_store)?;
                    assert!(!swept.outdated, "collections take turns");
                    report.freed_bytes += swept.freed_bytes;
                    swept.freed_bytes > 0
                }
                GarbageKind::Tree => self.drop_unnamed(found.number, &found.key)?,
                GarbageKind::LostTree => unreachable!("it may not go"),
                GarbageKind::IndexFile => {
                    let deleted = search_upkeep::delete_unnamed(&self, &found.garbage.name)?;
                    report.freed_bytes += if deleted { found.garbage.bytes } else { 0 };
                    deleted
                }
            };
        }
        self.sync()
    }

    /// Drops a tree that no record names, verified again here, and that holds no directory.
    fn drop_unnamed(self, tree: u64, key: &[u8]) -> FsResult<bool> {
        execute_with(&self, &mut self.admin.lock(), |_, plan| {
            let pin = self.store.pin().map_err(from_store)?;
            let mut ignored = VolumeReport::default();
            let table = Table::read(&self, &*pin, &mut ignored)?;
            let is_whole = ignored.problems_count == 0 && table.lost.is_empty();
            if !is_whole
                || !unnamed_trees(&table, &*pin, Damage::Ends)?.contains(&tree)
                || top_of(&table, &*pin, tree)? != Look::Absent
            {
                return Ok(false);
            }
            plan.batch().drop_tree(TreeId(tree));
            plan.batch().delete(VOLUME, key);
            plan.collects();
            Ok(true)
        })
    }
}

impl FoundGarbage {
    fn new(key: &[u8], number: u64, kind: GarbageKind, name: String, bytes: u64) -> FoundGarbage {
        let garbage = Garbage { kind, name, bytes, since: None, deleted: false };
        FoundGarbage { key: key.to_vec(), number, garbage }
    }

    /// Whether it is noted, and deleted when its time comes.
    fn may_go(&self) -> bool {
        self.garbage.kind != GarbageKind::LostTree
    }
}

/// The key under which a file of the index is noted.
fn key_of_file(name: &str) -> Option<Vec<u8>> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    if let Some(rest) = name.strip_prefix("manifest-") {
        return Some(key::candidate(CandidateKind::Manifest, hex(rest)?, 0).to_vec());
    }
    let (owner, number) = name.strip_prefix("cluster-")?.split_once('-')?;
    let number = u32::from_str_radix(number, 16).ok()?;
    Some(key::candidate(CandidateKind::Cluster, hex(owner)?, number).to_vec())
}
