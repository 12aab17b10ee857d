//! Builds and keeps views: loads bases, folds differences, reads clusters, and evicts what no query
//! used lately.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use format::base_record::BaseRecord;
use format::cluster::ROWS_MAX;
use format::key;
use format::subvolume_record::SubvolumeRecord;
use store::{CommitToken, Pinned, TreeId};

use super::base::{Base, ClusterId, file};
use super::before::LookedUp;
use super::files::cluster_name;
use super::fold::{Folded, Touched, fold};
use super::folding::{Below, Folding, NEVER, Old};
use super::layer::Delta;
use super::view::{Known, Slot, View};
use super::{Index, build};
use crate::assemble::{CARRY_NOTHING, Records, VOLUME};
use crate::cluster::{BlobSource, Cluster};
use crate::{Error, Result, Searchable};

/// How long after the last query the rows and states of a subvolume are kept.
const KEPT: Duration = Duration::from_secs(60);
/// How long after the last query its state is kept.
const PINNED: Duration = Duration::from_secs(10);
/// Time between two checks whether a waiting query was cancelled.
const CANCEL_LOOK: Duration = Duration::from_millis(20);
/// Estimated memory of a row that differs, for the limit of subvolumes without a base.
const ROW_BYTES: usize = 110;

/// How a query of a subvolume would be answered, judged without reading the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// No query used it lately.
    Unknown,
    /// The index answers; so many rows, in so many bytes, differ from the base.
    Indexed {
        /// Rows.
        rows: usize,
        /// Their memory.
        bytes: usize,
    },
    /// More differs than memory holds: a walk answers.
    Walked,
}

impl Index {
    /// What a query sees of a subvolume; `None`: it has to walk, or was cancelled.
    pub(crate) fn view(
        &self,
        pinned: &Arc<dyn Pinned>,
        subvolume: u64,
        record: &SubvolumeRecord,
        cancel: &AtomicBool,
    ) -> Result<Option<View>> {
        let shared = Arc::clone(self.slots.lock().entry(subvolume).or_default());
        // Another query may be reading the differences for a while, for this one too.
        let mut slot = loop {
            if let Some(slot) = shared.try_lock_for(CANCEL_LOOK) {
                break slot;
            }
            if cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
        };
        let base_tree = if self.lost.lock().contains(&record.base) { 0 } else { record.base };
        let fits = |known: &Known| known.tree.0 == record.tree && known.base_tree == base_tree;
        let before = slot.memory_bytes();
        if !slot.known.as_ref().is_some_and(fits) {
            slot.known = None;
        }
        let delta_and_base =
            self.advance(&mut slot, pinned, record, (subvolume, base_tree, cancel));
        // A view that took long to build must not count as long unused.
        if let Some(known) = &mut slot.known {
            known.asked = self.clock.monotonic();
        }
        // The memory of a slot that was evicted meanwhile would be counted for ever.
        if !self.slots.lock().get(&subvolume).is_some_and(|kept| Arc::ptr_eq(kept, &shared)) {
            slot.known = None;
        }
        // Wraps to the right sum in any order of threads.
        let more = slot.memory_bytes().wrapping_sub(before);
        self.delta_bytes.fetch_add(more, Ordering::Relaxed);
        drop(slot);
        let delta_and_base = match delta_and_base {
            // Damage of the namespace in one place must not prevent results elsewhere.
            Err(error @ (Error::Malformed { .. } | Error::Inconsistent { .. })) => {
                tracing::warn!(%error, subvolume, "walking instead: index records are damaged");
                None
            }
            known => known?,
        };
        self.shrink(subvolume);
        Ok(delta_and_base.map(|(delta, base)| View {
            subvolume,
            tree: TreeId(record.tree),
            root: record.root,
            pinned: Arc::clone(pinned),
            base,
            delta,
        }))
    }

    /// Updates the cached data of a subvolume to a state.
    fn advance(
        &self,
        slot: &mut Slot,
        pinned: &Arc<dyn Pinned>,
        record: &SubvolumeRecord,
        (subvolume, base_tree, cancel): (u64, u64, &AtomicBool),
    ) -> Result<Option<(Delta, Option<Arc<Base>>)>> {
        let (tree, commit) = (TreeId(record.tree), pinned.commit());
        let records = Records { read: &**pinned, tree, searchable: &CARRY_NOTHING };
        let root = (!record.pruned).then_some(record.root);
        let asked = self.clock.monotonic();
        if let Some(known) = &mut slot.known {
            known.asked = asked;
            let Some(delta) = &known.delta else { return Ok(None) };
            if known.commit == commit {
                known.pinned.get_or_insert_with(|| Arc::clone(pinned));
                return Ok(Some((delta.clone(), known.base.clone())));
            }
            if let Some(old) = known.pinned.clone() {
                let budget = self.delta_budget(known.base.is_some());
                let left = budget.saturating_sub(delta.rows_bytes());
                let folding = Folding::of(&**pinned, records, root, left).until(cancel);
                let folded = fold(Old::State(&*old, tree), folding)?;
                if cancel.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                let delta = match folded {
                    Folded::Layer(layer) => Some(delta.with(layer)),
                    Folded::TooLarge => None,
                };
                let base = known.base.clone();
                if commit > known.commit {
                    known.commit = commit;
                    known.pinned = Some(Arc::clone(pinned));
                    known.delta.clone_from(&delta);
                    let is_over = |delta: &&Delta| delta.memory_bytes() > budget;
                    if let Some(delta) = delta.as_ref().filter(is_over) {
                        // Changed rows matter more than rows that can be looked up again.
                        delta.forget_before();
                    }
                }
                return Ok(delta.map(|delta| (delta, base)));
            }
        }
        let (base, folded) = self.compare(pinned, record, (subvolume, base_tree, cancel))?;
        if cancel.load(Ordering::Relaxed) {
            // The result may be incomplete.
            return Ok(None);
        }
        let delta = match folded {
            Folded::Layer(layer) => Some(Delta::default().with(layer)),
            Folded::TooLarge => None,
        };
        let rows = delta.as_ref().map(Delta::len);
        let took = self.clock.monotonic().saturating_sub(asked);
        tracing::debug!(
            tree = tree.0,
            base_tree,
            ?root,
            rows,
            ?took,
            "computed the difference to a base"
        );
        let older = slot.known.as_ref().is_none_or(|known| known.commit <= commit);
        if older {
            slot.known = Some(Known {
                tree,
                base_tree,
                commit,
                pinned: delta.is_some().then(|| Arc::clone(pinned)),
                base: base.clone(),
                delta: delta.clone(),
                asked,
            });
        }
        Ok(delta.map(|delta| (delta, base)))
    }

    pub(super) fn delta_budget(&self, has_base: bool) -> usize {
        let all = self.options.differences_bytes();
        if has_base { all } else { all.min(self.options.rows_without_base * ROW_BYTES) }
    }

    /// A base, from memory or from its files; `None` if there is none, or it is unreadable.
    pub(crate) fn base(&self, pinned: &dyn Pinned, tree: u64) -> Option<Arc<Base>> {
        if tree == 0 {
            return None;
        }
        if let Some(base) = self.base_in_memory(tree) {
            return Some(base);
        }
        match self.load(pinned, tree) {
            Ok(Some(base)) => {
                let base = Arc::new(base);
                let mut bases = self.bases.lock();
                bases.retain(|_, base| base.strong_count() > 0);
                bases.insert(tree, Arc::downgrade(&base));
                Some(base)
            }
            Ok(None) => None,
            Err(error) => {
                super::damage::note_damage("a base", &error);
                if error.is_of_index() {
                    self.lost.lock().insert(tree);
                }
                None
            }
        }
    }

    /// A base, if it is in memory.
    pub(super) fn base_in_memory(&self, tree: u64) -> Option<Arc<Base>> {
        self.bases.lock().get(&tree).and_then(|base| base.upgrade())
    }

    fn load(&self, pinned: &dyn Pinned, tree: u64) -> Result<Option<Base>> {
        let records = Records { read: pinned, tree: VOLUME, searchable: &CARRY_NOTHING };
        let record = records.decode(&key::base(tree), BaseRecord::decode)?;
        if !record.is_some_and(|record| record.complete) {
            return Ok(None);
        }
        // A base built shortly before or after shares most of it.
        let like = {
            let bases = self.bases.lock();
            let before = bases.range(..tree).rev().find_map(|(_, base)| base.upgrade());
            before.or_else(|| bases.range(tree..).find_map(|(_, base)| base.upgrade()))
        };
        Base::load(&self.files, self.volume, tree, like.as_deref()).map(Some)
    }

    /// Whether nothing of a base could be read, so that a new one is needed.
    pub fn is_lost(&self, base: u64) -> bool {
        self.lost.lock().contains(&base)
    }

    /// Whether clusters of a base in memory could not be read.
    pub fn is_damaged(&self, base: u64) -> bool {
        let Some(base) = self.bases.lock().get(&base).and_then(|base| base.upgrade()) else {
            return false;
        };
        let damaged = self.damaged.lock();
        !damaged.is_empty() && base.clusters.iter().any(|cluster| damaged.contains(&cluster.id))
    }

    /// Number of records of a subvolume that differ from its base, up to `most`; without a base,
    /// its number of records.
    pub fn differing(
        &self,
        pinned: &dyn Pinned,
        record: &SubvolumeRecord,
        most: usize,
    ) -> Result<usize> {
        self.compared.fetch_add(1, Ordering::Relaxed);
        let (tree, root) = (TreeId(record.tree), (!record.pruned).then_some(record.root));
        let records = Records { read: pinned, tree, searchable: &CARRY_NOTHING };
        // If the base is in memory, only the part below a clone's root is compared.
        let base = root.and_then(|_| self.base_in_memory(record.base));
        let (detached, count) = (&[][..], &self.below);
        let below = base.as_ref().map(|base| Below { table: &base.table, detached, count });
        let folding = Folding { below, ..Folding::of(pinned, records, root, usize::MAX) };
        let old = match record.base {
            0 => Old::Nothing,
            base => Old::State(pinned, TreeId(base)),
        };
        match Touched::count(old, folding, most) {
            // The base's tree is gone: treat everything as different.
            Err(Error::Store(store::Error::NoTree(_))) => Ok(most),
            counted => counted,
        }
    }

    /// Whether clusters of a base in memory lack declared attributes.
    pub fn lags(&self, base: u64, searchable: &Searchable) -> bool {
        let base = self.bases.lock().get(&base).and_then(|base| base.upgrade());
        base.is_some_and(|base| base.clusters.iter().any(|cluster| !cluster.carries(searchable)))
    }

    pub(crate) fn is_damaged_cluster(&self, id: ClusterId) -> bool {
        self.damaged.lock().contains(&id)
    }

    /// Calls `run` with a cluster of a base. An unreadable cluster is rebuilt in memory from the
    /// tree of the base, and marked for the next flush. `run` may then be called a second time.
    pub(crate) fn with_cluster(
        &self,
        view: &View,
        base: &Base,
        number: u32,
        run: &mut dyn FnMut(&Cluster) -> Result<()>,
    ) -> Result<()> {
        let id = base.clusters[number as usize].id;
        let opened = self.cache.get(id, || self.open(id));
        let failed = match opened.and_then(|cluster| run(&cluster)) {
            Err(error) if error.is_of_index() => error,
            result => return result,
        };
        super::damage::note_damage("a cluster", &failed);
        self.damaged.lock().insert(id);
        self.cache.remove(id);
        let records = Records { read: &*view.pinned, tree: base.tree, searchable: &CARRY_NOTHING };
        let units = base.table.units_where(&|cluster| cluster == number);
        let made = build::make(records, &units, ROWS_MAX, self.hash);
        let (made, _none) = made.inspect_err(|error| self.note_gone(error))?;
        let Some(made) = made else { return Ok(()) };
        if made.entry.rows == 0 {
            return Ok(());
        }
        // Another query may have opened the damaged cluster again meanwhile.
        let cluster = Arc::new(Cluster::open(Arc::new(made.bytes), self.hash)?);
        self.cache.put(id, Arc::clone(&cluster));
        run(&cluster)
    }

    /// Notes that a base was dropped for its disk space: the next query does without it.
    pub(super) fn note_gone(&self, error: &Error) {
        if let Error::Store(store::Error::NoTree(tree)) = error {
            self.lost.lock().insert(tree.0);
        }
    }

    pub(super) fn open(&self, id: ClusterId) -> Result<Cluster> {
        let name = cluster_name(id);
        let Some(blobs) = self.files.blobs()? else { return Err(super::base::missing(&name)) };
        Cluster::open(Arc::new(BlobSource::new(blobs, file(&name))), self.hash)
    }

    /// Accounts for the memory of a cluster after a search.
    pub(crate) fn settle(&self, id: ClusterId) {
        self.cache.settle(id, self.cluster_budget());
    }

    /// Sorts clusters in memory first.
    pub(crate) fn cached_first(&self, base: &Base, chosen: &mut [u32]) {
        self.cache.held_first(chosen, |number| base.clusters[number as usize].id);
    }

    fn cluster_budget(&self) -> usize {
        let bases: usize = self.loaded().iter().map(|base| base.memory_bytes()).sum();
        let budget = self.options.cache_bytes;
        let deltas = self.delta_bytes.load(Ordering::Relaxed);
        budget.saturating_sub(bases + deltas).max(budget / 8)
    }

    /// Evicts differences until all fit their part of the budget, and together with bases the whole
    /// budget; those of `but` stay.
    fn shrink(&self, but: u64) {
        let is_over = || {
            let deltas = self.delta_bytes.load(Ordering::Relaxed);
            let bases: usize = self.loaded().iter().map(|base| base.memory_bytes()).sum();
            deltas > self.options.differences_bytes() || deltas + bases > self.options.cache_bytes
        };
        self.forget_before(but, &is_over);
        while is_over() {
            let asked = |slot: &Arc<Mutex<Slot>>| Some(slot.try_lock()?.known.as_ref()?.asked);
            let mut slots = self.slots.lock();
            let others = slots.iter().filter(|(subvolume, _)| **subvolume != but);
            let oldest = others.filter_map(|(id, slot)| Some((asked(slot)?, *id))).min();
            let Some((_, id)) = oldest else { return };
            let slot = slots.remove(&id);
            // A thread with a slot's lock takes the lock of the whole map.
            drop(slots);
            if let Some(slot) = slot {
                self.let_go(&mut slot.lock());
            }
        }
    }

    /// Discards the known rows of bases, least recently used first, while memory is over the limit;
    /// those of `but` stay.
    fn forget_before(&self, but: u64, is_over: &dyn Fn() -> bool) {
        if !is_over() {
            return;
        }
        let asked = |slot: &Arc<Mutex<Slot>>| Some(slot.try_lock()?.known.as_ref()?.asked);
        let slots = self.slots.lock();
        let others = slots.iter().filter(|(subvolume, _)| **subvolume != but);
        let mut others: Vec<_> =
            others.filter_map(|(_, slot)| Some((asked(slot)?, Arc::clone(slot)))).collect();
        drop(slots);
        others.sort_by_key(|(asked, _)| *asked);
        for (_, slot) in others {
            if !is_over() {
                return;
            }
            let Some(slot) = slot.try_lock() else { continue };
            let before = slot.memory_bytes();
            if let Some(delta) = slot.known.as_ref().and_then(|known| known.delta.as_ref()) {
                delta.forget_before();
            }
            let less = before.wrapping_sub(slot.memory_bytes());
            self.delta_bytes.fetch_sub(less, Ordering::Relaxed);
        }
    }

    /// Memory left for more known rows of a view's base.
    pub(super) fn space_for_before(&self, view: &View) -> usize {
        let all = self.delta_bytes.load(Ordering::Relaxed).max(view.delta.memory_bytes());
        self.options.differences_bytes().saturating_sub(all)
    }

    /// Keeps the rows read from the base of a view for the next totals, unless other threads are
    /// using the subvolume.
    pub(super) fn keep_before(&self, view: &View, read: &[LookedUp]) {
        let slot = self.slots.lock().get(&view.subvolume).cloned();
        let Some(slot) = slot else { return };
        let Some(slot) = slot.try_lock_for(CANCEL_LOOK) else { return };
        let delta = slot.known.as_ref().and_then(|known| known.delta.as_ref());
        // Nothing, if the subvolume was evicted: memory without a slot would not be counted.
        let Some(delta) = delta else { return };
        let before = slot.memory_bytes();
        for (depth, known, all) in read {
            // It may have advanced from these layers to others.
            if delta.has_layer_of(&view.delta, *depth) {
                delta.keep(*depth, known, all);
            }
        }
        let more = slot.memory_bytes().wrapping_sub(before);
        self.delta_bytes.fetch_add(more, Ordering::Relaxed);
    }

    /// Discards the cached data in a slot.
    fn let_go(&self, slot: &mut Slot) {
        self.delta_bytes.fetch_sub(slot.memory_bytes(), Ordering::Relaxed);
        slot.known = None;
    }

    /// How a query of a subvolume would be answered.
    pub fn reach(&self, subvolume: u64) -> Reach {
        let slot = self.slots.lock().get(&subvolume).cloned();
        let Some(slot) = slot else { return Reach::Unknown };
        let slot = slot.lock();
        match &slot.known {
            None => Reach::Unknown,
            Some(Known { delta: Some(delta), .. }) => {
                Reach::Indexed { rows: delta.len(), bytes: delta.rows_bytes() }
            }
            Some(_) => Reach::Walked,
        }
    }

    /// Whether nothing is cached for a subvolume, and no thread is reading it.
    pub(super) fn is_unread(&self, subvolume: u64) -> bool {
        let slot = self.slots.lock().get(&subvolume).cloned();
        slot.is_none_or(|slot| slot.try_lock().is_some_and(|slot| slot.known.is_none()))
    }

    /// Whether a query had to walk a subvolume, or met a damaged cluster.
    pub fn wants_base(&self) -> bool {
        let walked = |slot: &Arc<Mutex<Slot>>| {
            let slot = slot.try_lock();
            slot.is_some_and(|slot| slot.known.as_ref().is_some_and(|known| known.delta.is_none()))
        };
        self.has_damage() || !self.lost.lock().is_empty() || self.slots.lock().values().any(walked)
    }

    /// Whether a query is reading the differences from a base.
    pub fn is_reading(&self) -> bool {
        self.slots.lock().values().any(|slot| slot.is_locked())
    }

    /// Whether a pinned state is older than a commit.
    pub fn is_behind(&self, commit: CommitToken) -> bool {
        let behind = |slot: &Arc<Mutex<Slot>>| {
            let slot = slot.try_lock();
            slot.is_some_and(|slot| {
                let known = slot.known.as_ref();
                known.is_some_and(|known| known.pinned.is_some() && known.commit < commit)
            })
        };
        self.slots.lock().values().any(behind)
    }

    /// Releases states, and later rows, that no query used lately. A state holds the space of data
    /// deleted since.
    pub fn rest(&self) {
        let now = self.clock.monotonic();
        let mut pins = false;
        self.slots.lock().retain(|_, slot| {
            let Some(mut slot) = slot.try_lock() else { return true };
            let Some(known) = &mut slot.known else { return false };
            let idle = now.saturating_sub(known.asked);
            if idle >= PINNED {
                known.pinned = None;
            }
            pins |= known.pinned.is_some();
            if idle >= KEPT {
                self.let_go(&mut slot);
            }
            idle < KEPT
        });
        if !pins {
            self.mounts.rest();
        }
    }

    /// Updates the cached data to a state, so that the next query has little to do and no old state
    /// is pinned. Returns whether there was anything to do.
    pub fn refresh(&self, pinned: &Arc<dyn Pinned>) -> Result<bool> {
        let stale: Vec<u64> = {
            let slots = self.slots.lock();
            let stale = slots.iter().filter(|(_, slot)| {
                slot.try_lock().is_some_and(|slot| {
                    let known = slot.known.as_ref();
                    known.is_some_and(|known| {
                        known.pinned.is_some() && known.commit < pinned.commit()
                    })
                })
            });
            stale.map(|(subvolume, _)| *subvolume).collect()
        };
        let any = Records { read: &**pinned, tree: VOLUME, searchable: &CARRY_NOTHING };
        for &subvolume in &stale {
            let slot = self.slots.lock().get(&subvolume).cloned();
            let asked = slot.and_then(|slot| Some(slot.lock().known.as_ref()?.asked));
            match any.subvolume(subvolume)? {
                None => {
                    let slot = self.slots.lock().remove(&subvolume);
                    if let Some(slot) = slot {
                        self.let_go(&mut slot.lock());
                    }
                }
                Some(record) => {
                    self.view(pinned, subvolume, &record, &NEVER)?;
                    let slot = self.slots.lock().get(&subvolume).cloned();
                    if let (Some(slot), Some(asked)) = (slot, asked)
                        && let Some(known) = &mut slot.lock().known
                    {
                        known.asked = asked;
                    }
                }
            }
        }
        self.mounts.of(pinned)?;
        Ok(!stale.is_empty())
    }

    /// Forgets a base that was dropped.
    pub fn forget(&self, base: u64) {
        self.bases.lock().remove(&base);
        self.lost.lock().remove(&base);
        // Clusters outlive the base that they were built for, if other bases reuse them.
        let loaded = self.loaded();
        self.damaged.lock().retain(|id| loaded.iter().any(|base| base.has(*id)));
    }

    /// Whether a base in memory has a cluster that could not be read.
    fn has_damage(&self) -> bool {
        let damaged = self.damaged.lock().clone();
        !damaged.is_empty()
            && self.loaded().iter().any(|base| damaged.iter().any(|id| base.has(*id)))
    }
}
