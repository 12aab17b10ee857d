//! The index of a volume: bases and clusters, the differences from them, and queries over both.
//!
//! `view` determines what a query sees of a subvolume (base, difference, state); `run` answers from
//! it. `flush` builds the next base from the current tree and reuses untouched clusters. All memory
//! counts towards one budget: directories and summaries of the bases in use, differences, and, with
//! the rest, the columns of searched clusters.
//!
//! Correct answers never depend on the index: if it is missing or damaged, the store answers the
//! query.
//!
//! Which module decides what:
//! * `views`, `view`, `mounts`: what a query sees, and what stays in memory
//! * `run`, `plan`, `scope`, `worker`: a query: subvolumes, clusters, rights, threads
//! * `count`, `totals`, `totals_base`, `holding`, `before`: counts and sums
//! * `compare`, `logged`, `changes`, `below`, `directory_ranges`: what differs from a base: from
//!   the log, or by trees
//! * `fold`, `fold_rows`, `parts`, `merged`, `layer`, `packed`: differences as rows
//! * `flush`, `build`, `partition`: the next base, and which directories share a cluster
//! * `base`, `table`, `cache`, `files`: a base and its clusters in memory and on disk
//! * `damage`, `classified`, `spread`, `ahead`, `check`: classes of directories, threads, reads
//!   ahead, verification

// A query.
mod count;
mod run;
mod ahead;
mod worker;
mod plan;
mod classified;

// Totals, and the largest directories.
mod totals_base;
mod before;
mod totals;
mod scope;
mod before_list;
mod holding;

// The next base, and checks of what is there.
mod flush;
mod build;
mod check;
mod partition;

// Views: a base, and what differs from it.
mod mounts;
mod views;
mod compare;
mod fold_rows;
mod logged;
mod merged;
mod below;
mod changes;
mod fold;
mod parts;
mod folding;
mod everything;
mod directory_ranges;
mod view;
mod layer;
mod packed;
#[cfg(test)]
mod layer_rivals;

// A base in memory, and its files.
mod cache;
mod base;
mod table;
mod files;
mod damage;
mod spread;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use device::Clock;
use device::sync::Mutex;
use inode::NameHash;

pub use check::{Of, check_base, delete_all};
pub use files::{DIRECTORY, Home};
pub use flush::{Flush, FlushStep};
pub use partition::ClusterLimits;
pub use views::Reach;

use base::{Base, ClusterId};
use cache::ClusterCache;
use files::Files;
use mounts::Mounts;
use view::Slot;

use crate::Result;

/// Options of a volume's index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexOptions {
    /// Memory for the whole index, in bytes.
    pub cache_bytes: usize,
    /// Limits of a cluster.
    pub limits: ClusterLimits,
    /// Threads that search the clusters of one query.
    pub threads: usize,
    /// How long a query runs without other threads: starting them costs about as much.
    pub alone: Duration,
    /// Differences from a base that one thread finds before others help.
    pub fold_alone: usize,
    /// Maximum bytes of the log, for each row of a base, with which the log is read to find the
    /// differences. Two trees have some four hundred bytes a row, but are seldom read whole.
    pub logged_row_bytes: u64,
    /// Rows of a subvolume without a base that memory holds before it needs one.
    pub rows_without_base: usize,
    /// When bases are built.
    pub flush: FlushPolicy,
}

/// When a newer base replaces a base. Until then a base keeps the old version of everything that
/// changes, so these limits also bound the disk space for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushPolicy {
    /// Changed rows, in percent of the base's rows, that make a new base due.
    pub share_percent: u32,
    /// Minimum changed rows in any case.
    pub rows_min: usize,
    /// Age from which a sixteenth of that is enough.
    pub age: Duration,
    /// Commits between two checks whether a base is due.
    pub commits: u64,
    /// Time between two checks.
    pub interval: Duration,
    /// Free disk space, in 1/1024, below which bases are dropped. It is well above the space that
    /// the store keeps for its checkpoints, which the index must never take.
    pub space_min: u32,
    /// Free space that is enough however large the disk is, in bytes.
    pub space_max: u64,
}

impl Default for FlushPolicy {
    fn default() -> FlushPolicy {
        FlushPolicy {
            share_percent: 12,
            rows_min: 50_000,
            age: Duration::from_secs(900),
            commits: 4096,
            interval: Duration::from_secs(1),
            space_min: 96,
            space_max: 256 << 20,
        }
    }
}

impl Default for IndexOptions {
    fn default() -> IndexOptions {
        IndexOptions {
            cache_bytes: 256 << 20,
            limits: ClusterLimits::default(),
            threads: 2,
            alone: Duration::from_micros(100),
            fold_alone: 4096,
            logged_row_bytes: 192,
            rows_without_base: 20_000,
            flush: FlushPolicy::default(),
        }
    }
}

impl IndexOptions {
    /// Memory for differences from bases. A base is due long before this limit
    /// (`upkeep::search_due`); the rest is for changes while it is built.
    pub(crate) fn differences_bytes(&self) -> usize {
        self.cache_bytes / 4 * 3
    }
}

/// Resource usage of the index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Bases in memory.
    pub bases: u64,
    /// Their clusters.
    pub clusters: u64,
    /// Rows of those clusters.
    pub rows: u64,
    /// Rows that differ from the bases, for all subvolumes in memory.
    pub delta_rows: u64,
    /// Memory of summaries and directories.
    pub base_bytes: u64,
    /// Memory of differences.
    pub delta_bytes: u64,
    /// Memory of clusters.
    pub cluster_bytes: u64,
    /// Disk space in bytes.
    pub disk_bytes: u64,
    /// States of the store that the index pins.
    pub pins: u64,
    /// How often, since opening, the log supplied the differences from a base.
    pub logged: u64,
    /// Directories whose rows, since opening, were built from the log's counts and times and the
    /// clusters' other fields.
    pub merged: u64,
    /// How often, since opening, only the part below one directory was compared with a base.
    pub below: u64,
    /// How often, since opening, trees were compared to count differences from a base.
    pub compared: u64,
    /// Differing places for which totals, since opening, looked up the base's row.
    pub looked_up: u64,
}

/// The index of a volume.
pub struct Index {
    pub(crate) options: IndexOptions,
    pub(crate) mounts: Mounts,
    volume: [u8; 16],
    hash: NameHash,
    clock: Arc<dyn Clock>,
    files: Files,
    cache: ClusterCache,
    slots: Mutex<BTreeMap<u64, Arc<Mutex<Slot>>>>,
    /// Memory of everything known in the slots.
    delta_bytes: AtomicUsize,
    /// How often the log supplied the differences.
    logged: AtomicU64,
    /// Directories whose rows were built from the log and clusters.
    merged: AtomicU64,
    /// How often only the part below one directory was compared.
    below: AtomicU64,
    /// How often trees were compared to count differences.
    compared: AtomicU64,
    /// Places that were looked up in a base.
    looked_up: AtomicU64,
    bases: Mutex<BTreeMap<u64, Weak<Base>>>,
    /// Unreadable clusters: the next base rewrites them.
    damaged: Mutex<BTreeSet<ClusterId>>,
    /// Bases that are entirely unreadable.
    lost: Mutex<BTreeSet<u64>>,
}

impl Index {
    /// The index of a volume. It reads nothing before the first query.
    pub fn new(
        home: Home,
        clock: Arc<dyn Clock>,
        volume: [u8; 16],
        hash: NameHash,
        options: IndexOptions,
    ) -> Index {
        Index {
            options,
            mounts: Mounts::default(),
            volume,
            hash,
            clock,
            files: Files::new(home),
            cache: ClusterCache::new(),
            slots: Mutex::default(),
            delta_bytes: AtomicUsize::new(0),
            logged: AtomicU64::new(0),
            merged: AtomicU64::new(0),
            below: AtomicU64::new(0),
            compared: AtomicU64::new(0),
            looked_up: AtomicU64::new(0),
            bases: Mutex::default(),
            damaged: Mutex::default(),
            lost: Mutex::default(),
        }
    }

    /// The options.
    pub fn options(&self) -> &IndexOptions {
        &self.options
    }

    /// Its resource usage.
    pub fn stats(&self) -> Result<IndexStats> {
        let mut stats = IndexStats { disk_bytes: self.files.disk_bytes()?, ..Default::default() };
        for slot in self.slots() {
            let Some(slot) = slot.try_lock() else { continue };
            let Some(known) = &slot.known else { continue };
            stats.delta_rows += known.delta.as_ref().map_or(0, |delta| delta.len() as u64);
            stats.delta_bytes += known.memory_bytes() as u64;
            stats.pins += u64::from(known.pinned.is_some());
        }
        for base in self.loaded() {
            stats.bases += 1;
            stats.clusters += base.clusters.len() as u64;
            stats.rows += base.clusters.iter().map(|cluster| u64::from(cluster.rows)).sum::<u64>();
            stats.base_bytes += base.memory_bytes() as u64;
        }
        stats.logged = self.logged.load(Ordering::Relaxed);
        stats.merged = self.merged.load(Ordering::Relaxed);
        stats.below = self.below.load(Ordering::Relaxed);
        stats.compared = self.compared.load(Ordering::Relaxed);
        stats.looked_up = self.looked_up.load(Ordering::Relaxed);
        stats.cluster_bytes = self.cache.memory_bytes() as u64;
        Ok(stats)
    }

    fn slots(&self) -> Vec<Arc<Mutex<Slot>>> {
        self.slots.lock().values().map(Arc::clone).collect()
    }

    fn loaded(&self) -> Vec<Arc<Base>> {
        self.bases.lock().values().filter_map(Weak::upgrade).collect()
    }
}
