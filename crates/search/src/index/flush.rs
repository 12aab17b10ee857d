//! A flush: builds the next base of a subvolume, in bounded steps.
//!
//! 1. The caller has cloned the subvolume's tree and recorded the clone as a base that is building.
//! 2. Plan: the differences between the old base and the new one determine the touched clusters.
//!    Their directories, and the new ones, are divided into clusters again, which balances them. So
//!    are the directories of clusters built under other limits than the volume's, and of some small
//!    clusters ([`take_small`]). Without an old base, the plan has all directories.
//! 3. Write each of those clusters from the new base's tree, one per step.
//! 4. Write the manifest: the new clusters, and the untouched ones by reference.
//! 5. The caller commits that the base is complete, and that it describes the subvolume.
//!
//! A crash before 5 leaves a base that is building and blobs that no manifest names. The next open
//! of the volume removes both, and the old base stays valid.

use std::sync::Arc;

use device::{Map, Set};
use format::directory_record::DirectoryRecord;
use format::key::{self, Parsed, Part};
use format::manifest::{ClusterEntry, Manifest};
use format::subvolume_record::SubvolumeRecord;
use store::{KeyRange, Pinned, TreeId};

use super::base::{Base, BaseCluster, missing, read_manifest};
use super::files::{cluster_name, manifest_name, owner_of};
use super::fold::Touched;
use super::folding::{Folding, Logged, Old};
use super::partition::{ClusterLimits, Plan, Setting, Unit, partition, rows_of_one};
use super::{Index, build};
use crate::Result;
use crate::assemble::{Records, Searchable};

/// A flush in progress.
pub struct Flush {
    base: u64,
    subvolume: SubvolumeRecord,
    searchable: Searchable,
    setting: Setting,
    phase: Phase,
}

enum Phase {
    Plan,
    Write { plans: Vec<Plan>, next: usize, kept: Vec<ClusterEntry>, made: Vec<ClusterEntry> },
    Done { rows: u64 },
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushStep {
    /// More steps remain.
    More,
    /// Everything is written and durable: the base may be named. The value is its number of rows.
    Ready(u64),
}

impl Flush {
    /// Starts a flush of the tree `base`, a clone of a subvolume's tree. The subvolume's current
    /// base, if it has one, has described it so far.
    pub fn new(base: u64, subvolume: SubvolumeRecord) -> Flush {
        let setting = Setting { limits: ClusterLimits::default(), since: 0 };
        let searchable = Searchable::default();
        Flush { base, subvolume, searchable, setting, phase: Phase::Plan }
    }

    /// The tree that is being described.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The base whose clusters are reused: it must exist until the flush is done.
    pub fn old_base(&self) -> u64 {
        self.subvolume.base
    }

    /// Estimated clusters still to write; `None` before they are known.
    pub fn left(&self) -> Option<usize> {
        match &self.phase {
            Phase::Plan => None,
            Phase::Write { plans, next, .. } => Some(plans.len() - next),
            Phase::Done { .. } => Some(0),
        }
    }

    /// Rows that the base has; `None` before it is written.
    pub fn rows(&self) -> Option<u64> {
        match self.phase {
            Phase::Done { rows } => Some(rows),
            Phase::Plan | Phase::Write { .. } => None,
        }
    }

    /// Performs one step, on any state that has both trees.
    pub fn step(&mut self, index: &Index, pinned: &dyn Pinned) -> Result<FlushStep> {
        if matches!(self.phase, Phase::Plan) {
            // All clusters of a flush use the same settings, whatever is declared and set
            // meanwhile.
            self.searchable = Searchable::declared(pinned)?;
            self.setting = Setting::of(pinned, index.options.limits)?;
        }
        let searchable = &self.searchable;
        let records = Records { read: pinned, tree: TreeId(self.base), searchable };
        match &mut self.phase {
            Phase::Plan => {
                let began = index.clock.monotonic();
                self.phase = self.plan(index, pinned, records)?;
                let took = index.clock.monotonic().saturating_sub(began);
                tracing::debug!(base = self.base, clusters = self.left(), ?took, "planned");
                Ok(FlushStep::More)
            }
            Phase::Write { plans, next, made, .. } if *next < plans.len() => {
                let plan = &mut plans[*next];
                let rows_max = rows_of_one(plan, self.setting.limits);
                let (cluster, left) = build::make(records, plan, rows_max, index.hash)?;
                if let Some(cluster) = cluster {
                    let (owner, number) = (self.base, made.len() as u32);
                    index.files.write(&cluster_name((owner, number)), &cluster.bytes)?;
                    made.push(ClusterEntry { owner, number, ..cluster.entry });
                }
                // More rows than one cluster takes: the next step continues with them.
                *next += usize::from(left.is_empty());
                *plan = left;
                Ok(FlushStep::More)
            }
            Phase::Write { kept, made, .. } => {
                let clusters = [std::mem::take(made), std::mem::take(kept)].concat();
                let rows = clusters.iter().map(|cluster| u64::from(cluster.rows)).sum();
                let (volume, base) = (index.volume, self.base);
                let manifest = Manifest { volume, base, clusters };
                index.files.write(&manifest_name(base), &manifest.encode())?;
                self.phase = Phase::Done { rows };
                Ok(FlushStep::Ready(rows))
            }
            Phase::Done { rows } => Ok(FlushStep::Ready(*rows)),
        }
    }

    fn plan(&self, index: &Index, pinned: &dyn Pinned, records: Records<'_>) -> Result<Phase> {
        let SubvolumeRecord { root, base: old, .. } = self.subvolume;
        let old = if index.is_lost(old) { 0 } else { old };
        let limits = self.setting.limits;
        if let Some(old) = index.base(pinned, old)
            && let Some((units, kept)) =
                touched(index, pinned, records, (&old, &self.subvolume, self.setting))?
        {
            let plans = partition(&units, limits);
            return Ok(Phase::Write { plans, next: 0, kept, made: Vec::new() });
        }
        let plans = partition(&all_directories(records, root)?, limits);
        Ok(Phase::Write { plans, next: 0, kept: Vec::new(), made: Vec::new() })
    }
}

/// The directories of touched clusters together with new directories, and the other clusters.
/// Clusters written for a base before `since` were built under other limits.
fn touched(
    index: &Index,
    pinned: &dyn Pinned,
    records: Records<'_>,
    (old, subvolume, Setting { limits, since }): (&Arc<Base>, &SubvolumeRecord, Setting),
) -> Result<Option<(Vec<Unit>, Vec<ClusterEntry>)>> {
    let state = Old::State(pinned, old.tree);
    let bytes_max = index.options.differences_bytes();
    let helpers = index.helpers(Some(&old.table));
    // A subvolume's own tree has nothing outside its root.
    let root = (!subvolume.pruned).then_some(subvolume.root);
    let logged = if subvolume.pruned { index.logged(pinned, subvolume, old)? } else { None };
    let logged = logged.map(|logged| Logged { end: Some(records.tree), clusters: None, ..logged });
    let folding = Folding { helpers, logged, ..Folding::of(pinned, records, root, bytes_max) };
    let Some(touched) = Touched::collect(state, folding)? else {
        return Ok(None);
    };
    // Rows of older clusters lack attributes that were declared later.
    let stale = |cluster: &BaseCluster| {
        cluster.id.0 < since
            || index.is_damaged_cluster(cluster.id)
            || !cluster.carries(records.searchable)
    };
    let mut stale: Vec<bool> = old.clusters.iter().map(stale).collect();
    let mut fresh: Set<u64> = Set::default();
    let own = touched.directories.iter().map(|&ino| (ino, 0));
    for (directory, cookie) in touched.places.iter().copied().chain(own) {
        match old.table.cluster_of(directory, cookie) {
            Some(cluster) => stale[cluster as usize] = true,
            None => {
                fresh.insert(directory);
            }
        }
    }
    let mut fresh: Vec<u64> = fresh.into_iter().collect();
    fresh.sort_unstable();
    if !fresh.is_empty() || stale.contains(&true) {
        take_small(old, limits, &mut stale);
    }
    let mut units = Vec::new();
    let old_units = old.table.units_where(&|cluster| stale[cluster as usize]);
    let new_units =
        fresh.into_iter().map(|ino| Unit { ino, parent: 0, from: 0, to: u64::MAX, rows: 0 });
    for unit in old_units.into_iter().chain(new_units) {
        let Some(record) = records.directory(unit.ino)? else { continue };
        let share = u128::from(unit.to.min(key::COOKIE_MAX) - unit.from);
        let rows = u128::from(record.entries as u64) * share / u128::from(key::COOKIE_MAX);
        let rows = (rows as u64).saturating_add(1);
        units.push(Unit { parent: record.parent, rows, ..unit });
    }
    let kept = (0..old.clusters.len() as u32).filter(|&cluster| !stale[cluster as usize]);
    Ok(Some((units, kept.map(|cluster| old.entry(cluster)).collect())))
}

/// Adds clusters that are less than a quarter full to those to rewrite, smallest first. So clusters
/// that shrank without their neighbours are eventually merged. It adds at least two, so that there
/// is something to merge, and no more than the flush writes anyway plus one cluster. So the cost of
/// a flush stays proportional to the changes.
fn take_small(old: &Base, limits: ClusterLimits, stale: &mut [bool]) {
    let directories = old.table.directories_of_clusters(stale.len());
    let size =
        |cluster: usize| u64::from(old.clusters[cluster].rows) + u64::from(directories[cluster]);
    let is_small = |cluster: usize| {
        old.clusters[cluster].rows < limits.rows / 4
            && directories[cluster] < limits.directories / 4
    };
    let mut small: Vec<usize> =
        (0..stale.len()).filter(|&cluster| !stale[cluster] && is_small(cluster)).collect();
    small.sort_by_key(|&cluster| size(cluster));
    let written: u64 = (0..stale.len()).filter(|&cluster| stale[cluster]).map(size).sum();
    let mut left = written + u64::from(limits.rows);
    let taken = small.iter().take_while(|&&cluster| {
        let fits = size(cluster) <= left;
        left = left.saturating_sub(size(cluster));
        fits
    });
    let taken = taken.count();
    if taken >= 2 {
        small[..taken].iter().for_each(|&cluster| stale[cluster] = true);
    }
}

/// All directories at and below a root, with their number of names.
fn all_directories(records: Records<'_>, root: u64) -> Result<Vec<Unit>> {
    let range = KeyRange::prefix(&key::DIRECTORIES_PREFIX);
    let mut cursor = records.read.scan(records.tree, range)?;
    let mut found: Vec<Unit> = Vec::new();
    let mut children: Map<u64, Vec<u32>> = Map::default();
    let mut skipped = 0;
    // A removed directory may come back, and its contents may be moved out.
    let mut removed = Vec::new();
    while let Some(item) = cursor.next()? {
        let parsed = key::parse(item.key).map_err(|error| records.malformed(error))?;
        let Parsed::Entry { directory, cookie, part } = parsed else { continue };
        if cookie != 0 || part != Part::Attributes {
            // A large directory is not scanned.
            skipped += 1;
            if skipped > 64 {
                cursor.seek(&key::directory(directory + 1, Part::Attributes))?;
            }
            continue;
        }
        skipped = 0;
        let record =
            DirectoryRecord::decode(item.value).map_err(|error| records.malformed(error))?;
        if record.detached && directory != root {
            removed.push(found.len() as u32);
        } else if directory != root {
            children.entry(record.parent).or_default().push(found.len() as u32);
        }
        let rows = (record.entries as u64).saturating_add(1);
        found.push(Unit { ino: directory, parent: record.parent, from: 0, to: u64::MAX, rows });
    }
    let Some(start) = found.iter().position(|unit| unit.ino == root) else {
        return Ok(Vec::new());
    };
    let (mut reachable, mut left) = (Vec::new(), removed);
    left.push(start as u32);
    while let Some(at) = left.pop() {
        let unit = found[at as usize];
        reachable.push(unit);
        // Removed from the map, so that a cycle in damaged records ends.
        left.extend(children.remove(&unit.ino).unwrap_or_default());
    }
    Ok(reachable)
}

impl Index {
    /// Deletes blobs that no base names. `bases` lists all bases: the tree, and whether it is
    /// complete. Deletes nothing if a manifest cannot be read, or if `proves` fails. That is called
    /// once the blobs are listed, and proves that this process still owns the store: the blobs of
    /// another owner are no leftovers. Returns the number of deleted blobs.
    pub fn sweep(
        &self,
        bases: &[(u64, bool)],
        proves: &dyn Fn() -> store::Result<()>,
    ) -> Result<u64> {
        // A base that only an older state names need not be rebuilt.
        self.lost.lock().retain(|lost| bases.iter().any(|(tree, _)| tree == lost));
        let doubtful = self.unnamed(bases)?;
        if !doubtful.is_empty() {
            proves()?;
        }
        for name in &doubtful {
            self.files.delete(name)?;
        }
        Ok(doubtful.len() as u64)
    }

    /// The files that none of the bases (their trees, and whether they are complete) names.
    pub fn unnamed(&self, bases: &[(u64, bool)]) -> Result<Vec<String>> {
        let names = self.files.list()?;
        let known: Set<u64> = bases.iter().map(|(tree, _)| *tree).collect();
        let mut doubtful: Vec<String> = names
            .into_iter()
            .filter(|name| owner_of(name).is_none_or(|owner| !known.contains(&owner)))
            .collect();
        if doubtful.is_empty() {
            return Ok(doubtful);
        }
        let mut named: Set<String> = Set::default();
        for (tree, complete) in bases {
            // A missing file names nothing.
            if !complete || self.files.length(&manifest_name(*tree))?.is_none() {
                continue;
            }
            for cluster in read_manifest(&self.files, self.volume, *tree)?.clusters {
                named.insert(cluster_name((cluster.owner, cluster.number)));
            }
        }
        doubtful.retain(|name| owner_of(name).is_some() && !named.contains(name));
        Ok(doubtful)
    }

    /// Deletes a file that no base names.
    pub fn delete(&self, name: &str) -> Result<()> {
        self.files.delete(name)
    }

    /// Bytes of a file; 0 when there is none.
    pub fn file_bytes(&self, name: &str) -> Result<u64> {
        Ok(self.files.length(name)?.unwrap_or(0))
    }

    /// Whether a base's manifest exists: a user may have deleted the files.
    pub fn check(&self, base: u64) -> Result<()> {
        let name = manifest_name(base);
        match self.files.length(&name)? {
            Some(_) => Ok(()),
            None => Err(missing(&name)),
        }
    }
}
