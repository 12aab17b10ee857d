//! The index of a volume: bases and clusters, what differs from them, and queries over both.
//!
//! `view` says what a query sees of a subvolume (base, difference, state); `run` answers from it.
//! `flush` makes the next base from the present tree: clusters that nothing touched are taken
//! over. All that is in memory counts towards one budget: directories and summaries of the bases
//! in use, differences, and with what is left the columns of clusters that were searched.
//!
//! Nothing here is needed to be right: a query that finds no index, or a damaged one, is answered
//! from the store.

mod ahead;
mod apart;
mod base;
mod before;
mod below;
mod build;
mod cache;
mod changes;
mod check;
mod compare;
mod count;
mod files;
mod flush;
mod fold;
mod fold_rows;
mod ground;
mod holding;
mod layer;
mod logged;
mod merged;
mod mounts;
mod packed;
mod partition;
mod parts;
mod plan;
mod run;
mod scope;
mod spread;
mod table;
mod totals;
mod totals_base;
mod view;
mod views;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use device::{Clock, Device};
use inode::NameHash;
use parking_lot::Mutex;
use store::Pinned;

pub use check::{Of, check_base, delete_all};
pub use files::DIRECTORY;
pub use flush::{Flush, FlushStep};
pub use partition::ClusterLimits;
pub use views::Reach;

use base::{Base, ClusterId};
use cache::ClusterCache;
use files::Files;
use mounts::Mounts;
use run::Run;
pub(crate) use scope::push_name;
use view::Slot;

use crate::request::{Emit, Match, Outcome, Request};
use crate::{Error, Result};

/// How the index of a volume is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexOptions {
    /// Memory for all of it, in bytes.
    pub cache_bytes: usize,
    /// Limits of a cluster.
    pub limits: ClusterLimits,
    /// Threads that search the clusters of one query.
    pub threads: usize,
    /// How long a query goes on without them: they cost about as much to start.
    pub alone: Duration,
    /// Differences from a base that one thread finds before others help.
    pub fold_alone: usize,
    /// Bytes of the log for each row of a base up to which the log is read to find out what
    /// differs, where there is more than that. Two trees have some four hundred a row, but seldom
    /// are all of them read.
    pub logged_row_bytes: u64,
    /// Rows of a subvolume without a base that are held in memory before it needs one.
    pub rows_without_base: usize,
    /// When bases are made.
    pub flush: FlushPolicy,
}

/// When a base is replaced by a newer one. A base keeps the old version of whatever changes until
/// then, so these bound the room that takes, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushPolicy {
    /// Rows that differ, in percent of those of the base, from which on it is due.
    pub share_percent: u32,
    /// Rows that must differ in any case.
    pub rows_min: usize,
    /// Age from which on a sixteenth of that is enough.
    pub age: Duration,
    /// Commits between two looks at whether one is due.
    pub commits: u64,
    /// Time between two looks.
    pub interval: Duration,
    /// Free room of the disk, in 1/1024, below which bases are dropped rather than kept: well
    /// above what the store keeps for its checkpoints, which the index must never take.
    pub room_min: u32,
    /// Free room that is enough however large the disk is, in bytes.
    pub room_max: u64,
}

impl Default for FlushPolicy {
    fn default() -> FlushPolicy {
        FlushPolicy {
            share_percent: 12,
            rows_min: 50_000,
            age: Duration::from_secs(900),
            commits: 4096,
            interval: Duration::from_secs(1),
            room_min: 96,
            room_max: 256 << 20,
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
    /// Memory that what differs from bases may take. A base is due long before
    /// (`fs::search_due`); the rest is for what is changed while it is made.
    pub(crate) fn differences_bytes(&self) -> usize {
        self.cache_bytes / 4 * 3
    }
}

/// What the index takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Bases in memory.
    pub bases: u64,
    /// Their clusters.
    pub clusters: u64,
    /// Rows of those.
    pub rows: u64,
    /// Rows that differ from the bases, of all subvolumes in memory.
    pub delta_rows: u64,
    /// Memory of summaries and directories.
    pub base_bytes: u64,
    /// Memory of differences.
    pub delta_bytes: u64,
    /// Memory of clusters.
    pub cluster_bytes: u64,
    /// Room on disk.
    pub disk_bytes: u64,
    /// States of the store that are held.
    pub pins: u64,
    /// How often, since opening, the log said what differs from a base.
    pub logged: u64,
    /// Directories of which, since opening, the log said how counts and times changed, and clusters
    /// the rest.
    pub merged: u64,
    /// How often, since opening, no more than what lies below one directory was compared with a
    /// base.
    pub below: u64,
    /// How often, since opening, trees were compared to count what differs from a base.
    pub compared: u64,
    /// Places that differ of which totals looked up, since opening, what a base had.
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
    /// Memory of all that is known in them.
    delta_bytes: AtomicUsize,
    /// How often the log said what differs.
    logged: AtomicU64,
    /// Directories whose rows were made of the log and clusters.
    merged: AtomicU64,
    /// How often only what lies below one directory was compared.
    below: AtomicU64,
    /// How often trees were compared to count what differs.
    compared: AtomicU64,
    /// Places that were looked up in a base.
    looked_up: AtomicU64,
    bases: Mutex<BTreeMap<u64, Weak<Base>>>,
    /// Clusters that could not be read: the next base has them again.
    damaged: Mutex<BTreeSet<ClusterId>>,
    /// Bases of which nothing could be read.
    lost: Mutex<BTreeSet<u64>>,
}

impl Index {
    /// The index of a volume. Nothing is read before a query asks.
    pub fn new(
        device: Arc<dyn Device>,
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
            files: Files::new(device),
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

    /// Answers a query over a state of the store.
    pub fn run(
        &self,
        pinned: Arc<dyn Pinned>,
        request: &Request<'_>,
        emit: Emit<'_>,
    ) -> Result<Outcome> {
        Run::new(self, pinned, request, emit).run()
    }

    /// As [`Index::run`], where nobody wants to see the matches: [`Outcome::matched`] is all there
    /// is to know, and there is no order.
    pub fn count(&self, pinned: Arc<dyn Pinned>, request: &Request<'_>) -> Result<Outcome> {
        let request = Request { order: None, limit: None, contents_first: false, ..*request };
        let mut emit = |_: &Match<'_>| ControlFlow::Continue(());
        Run::new(self, pinned, &request, &mut emit).counting().run()
    }

    /// What it takes.
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

/// Says that something of the index could not be used, and is rebuilt.
fn note_damage(what: &str, error: &Error) {
    tracing::warn!(%error, "{what} of the index is made anew from the store");
}
