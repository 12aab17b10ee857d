//! Checkpoints (BabuDB II.B): in-memory trees become runs, and the log is trimmed.
//!
//! ```text
//! 1. freeze          the gate, exclusively: each changed tree's active part becomes a layer
//! 2. write           all layers that are in memory, as runs of one blob; the log up to the freeze
//! 3. exchange        trees, clones and pins read the runs from now on; memory is free
//! 4. manifest        which runs each tree is made of, under the next number: the new state
//! 5. trim            the log, older manifests, some of the blobs that no state needs
//! ```
//!
//! The durable state is locked until the end. So slow work that can be done before or after a
//! checkpoint is done there (the blob of a merge, freeing many blobs). Commits wait for the next
//! checkpoint if too much is in memory.
//!
//! Commits continue, except during the freeze. Adjacent layers that the same trees share are
//! written as one run. A crash before step 4 is durable leaves the log, which was not trimmed, and
//! a blob that nothing names, which the next opening deletes. A failure at any step leaves the old
//! state: what was exchanged is equivalent, and what was frozen is written again. A manifest that
//! may exist in spite of the failure is a state too, and what it needs stays (`manifest`).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Map, Set};
use format::run_manifest::{LogRows, RunEntry, RunManifest};
use store::{Lsn, Result, TreeId, Writer};

use crate::blob::{BlobWriter, Finished, Numbers, Written};
use crate::clean;
use crate::collect::{COLLECTED_AT_ONCE, NotedRuns, Stuck};
use crate::core::{Catalog, Core};
use crate::drops::DroppedTrees;
use crate::exchange::Exchange;
use crate::files::{blob_name, path};
use crate::id_allocator::IdAllocator;
use crate::layer::{Layer, Stack, View};
use crate::manifest::Attempt;
use crate::merge::{Direction, From, Merge, Tombstones};
use crate::names::BLOBS_AT_ONCE;
use crate::newest::Alone;
use crate::ranges::Ranges;
use crate::rows::Content;
use crate::run::{Caching, Run};

/// The durable state, and what is on disk beside it. The default is that of a store without
/// anything; an opening names every field.
#[derive(Default)]
pub struct Durable {
    /// The number of its manifest.
    pub(crate) number: u64,
    /// The number of the next attempt to write a manifest.
    pub(crate) next_manifest: u64,
    /// Where assigned numbers are recorded, if requests may arrive late.
    pub(crate) allocator: Option<IdAllocator>,
    /// In an object store with the log: blobs have numbers below this until the next manifest.
    pub(crate) blob_limit: Option<u64>,
    /// Whether an earlier process made its manifest. The last requests of that process may still
    /// arrive, also for a manifest with a greater number. Until this process has made a manifest it
    /// deletes nothing, because such a manifest may name all of it.
    pub(crate) inherited: bool,
    /// Blobs that were found and that nothing of this state names. They are deleted once this
    /// process has made a manifest.
    pub(crate) left: Vec<u64>,
    /// Attempts since then whose outcome is unknown.
    pub(crate) uncertain: Vec<Attempt>,
    /// Copies that are missing of its manifests, because there was no space.
    pub(crate) alone: Option<Alone>,
    /// Names of manifests that could not be read when the store was opened.
    pub(crate) unread: Vec<String>,
    pub(crate) lsn: Lsn,
    pub(crate) next_blob: u64,
    /// Lengths of all existing blobs.
    pub(crate) blobs: BTreeMap<u64, u64>,
    /// The value logs among them, with all that was written to them.
    pub(crate) logs: BTreeMap<u64, LogRows>,
    /// Existing runs; a run that nothing holds any more is reclaimed.
    pub(crate) runs: NotedRuns,
    /// Parts of blobs that nothing needs: number, begin, end.
    pub(crate) gaps: Vec<(u64, u64, u64)>,
    /// Parts that could not be freed, and blobs that could not be deleted: retried when the next
    /// manifest is durable.
    pub(crate) stuck: Stuck,
    /// Bytes of blobs that nothing needs and that can be freed only with the whole blob.
    pub(crate) dead: BTreeMap<u64, u64>,
    /// Runs that log records name and no manifest does yet, with those records. Replaying the
    /// records needs the runs, even if their trees were dropped.
    pub(crate) linked: Vec<(Lsn, Arc<Run>)>,
    /// Exchanges that the trees have and the manifest has not: the exchanges hold what it names.
    pub(crate) pending: Vec<Exchange>,
    /// Bytes of the runs that they merged.
    pub(crate) pending_bytes: u64,
    /// What dropped trees hold until the next checkpoint.
    pub(crate) dropped: DroppedTrees,
}

impl Durable {
    /// Registers a run that is on disk.
    pub(crate) fn take_note(&mut self, run: Run) -> Arc<Run> {
        let run = Arc::new(run);
        self.runs.note(&run);
        run
    }

    /// The numbers of new blobs.
    pub(crate) fn take_numbers(&mut self, values_from: u64) -> Result<Numbers> {
        let blob = self.next_blob;
        let log = (values_from > 0).then_some(blob + 1);
        let last = log.unwrap_or(blob);
        self.reserve(last)?;
        self.next_blob = last + 1;
        Ok(Numbers { blob, log })
    }

    /// The number of a new manifest: never the same twice, whatever the outcome.
    fn take_number(&mut self) -> Result<u64> {
        let number = self.next_manifest;
        if self.blob_limit.is_some() {
            // The next manifest has it until one exists (`fenced`).
            return Ok(number);
        }
        self.reserve(number)?;
        self.next_manifest += 1;
        Ok(number)
    }

    /// Makes sure that no later process assigns a number that this one uses.
    fn reserve(&mut self, last: u64) -> Result<()> {
        if self.blob_limit.is_some_and(|limit| last >= limit) {
            let why = "too many blobs were made since the last manifest";
            let error = std::io::Error::other(why);
            return Err(device::Error::new("create", &path(&blob_name(last)), error).into());
        }
        self.allocator.as_mut().map_or(Ok(()), |allocator| allocator.reserve(last))
    }
}

/// What a checkpoint froze: the stacks of the trees that changed.
pub(crate) type Frozen = BTreeMap<TreeId, Option<Arc<Stack>>>;

/// The same, in a list, for a pin.
pub(crate) type Collected = Vec<(TreeId, Option<Arc<Stack>>)>;

/// Layers that become one run.
struct Group {
    layers: Vec<Arc<Layer>>,
    /// Whether nothing is below them.
    lowest: bool,
    /// Whether they are copies of what is in another tree: damage of one disk block must not hit
    /// both.
    isolated: bool,
}

impl Core {
    /// Makes a checkpoint with the durable state locked. If there is no space for it, and a merge
    /// in progress holds some, the merge is aborted first.
    pub(crate) fn checkpoint_locked(&self, state: &mut Durable) -> Result<()> {
        let done = match self.try_checkpoint(state) {
            Err(error) if error.is_no_space() && self.give_up_merge(true) => {
                self.collect(state, usize::MAX);
                self.try_checkpoint(state)
            }
            done => done,
        };
        state.dropped.checkpointed(done.is_ok());
        done
    }

    fn try_checkpoint(&self, state: &mut Durable) -> Result<()> {
        self.log().check()?;
        let (lsn, counted) = self.freeze();
        let done = self.write(state).and_then(|()| {
            self.log().sync(lsn)?;
            self.publish(state, lsn)
        });
        if let Err(error) = done {
            self.thaw(counted);
            return Err(error);
        }
        self.log().trim(lsn)?;
        self.journal.made_checkpoint(self.env.clock.now().0);
        self.collect(state, COLLECTED_AT_ONCE);
        Ok(())
    }

    /// Step 1; returns the last commit that is in what was frozen, and how many bytes of the log
    /// were counted as checkpointed before.
    fn freeze(&self) -> (Lsn, u64) {
        let _turn = self.pinning.turn();
        self.freeze_beside_commits();
        let _gate = self.gate.write();
        let counted = self.journal.log_bytes().saturating_sub(self.journal.log_bytes_since());
        let mut in_flight = self.in_flight.lock();
        assert!(in_flight.is_empty(), "one checkpoint at a time");
        let frozen = std::mem::take(&mut *self.changed.lock()).into_iter().map(|(id, tree)| {
            tree.changed.store(false, Ordering::Relaxed);
            (id, self.freeze_tree(&tree))
        });
        *in_flight = Arc::new(frozen.collect());
        self.ids.freeze();
        self.dirty_in_flight.store(self.dirty.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        self.drops.store(0, Ordering::Relaxed);
        self.needless_drops.store(0, Ordering::Relaxed);
        self.journal.checkpointed(self.journal.log_bytes());
        self.journal.may_wake();
        (self.log().last(), counted)
    }

    /// Undoes a freeze: what was frozen differs from the durable state as before, and a checkpoint
    /// is due as before.
    fn thaw(&self, counted: u64) {
        let _turn = self.pinning.turn();
        let _gate = self.gate.write();
        self.ids.thaw();
        self.journal.checkpointed(counted);
        let trees = self.trees.read();
        let mut changed = self.changed.lock();
        let frozen = std::mem::take(&mut *self.in_flight.lock());
        for (id, stack) in Arc::unwrap_or_clone(frozen) {
            if let Some(tree) = trees.get(&id) {
                tree.changed.store(true, Ordering::Relaxed);
                changed.insert(id, Arc::clone(tree));
            } else if let std::collections::btree_map::Entry::Vacant(gone) = changed.entry(id) {
                // Dropped, before the freeze or after it.
                let tree = crate::tree::Tree::new(id, stack.unwrap_or_default());
                tree.dropped.store(true, Ordering::Relaxed);
                gone.insert(Arc::new(tree));
                self.drops.fetch_add(1, Ordering::Relaxed);
            }
        }
        let back = self.dirty_in_flight.swap(0, Ordering::Relaxed);
        self.dirty.fetch_add(back, Ordering::Relaxed);
    }

    /// Steps 2 and 3.
    fn write(&self, state: &mut Durable) -> Result<()> {
        let groups = groups(&self.in_flight.lock(), self.options.common.isolated_tree);
        if groups.is_empty() {
            return Ok(());
        }
        let numbers = state.take_numbers(self.options.values_from)?;
        let mut blob = BlobWriter::create(&self.files, &self.env.device, &self.options, numbers)?;
        let mut written: Vec<(Group, u64, Option<Written>)> = Vec::new();
        let mut after_isolated = false;
        for group in groups {
            if group.isolated || after_isolated {
                blob.begin_isolated()?;
            }
            after_isolated = group.isolated;
            let id = match group.layers.as_slice() {
                [layer] => layer.id,
                _ => self.ids.take(),
            };
            let views: Vec<View> = group.layers.iter().map(|layer| layer.view()).collect();
            let entry = write_run(&mut blob, id, &views, group.lowest)?;
            written.push((group, id, entry));
        }
        if written.iter().any(|(_, _, entry)| entry.is_some()) {
            let finished = blob.finish(self)?;
            self.keep(state, Writer::Checkpoint, finished);
        }
        let mut exchanges = Vec::new();
        for (group, id, entry) in written {
            let run = entry.map(|written| self.register(state, written));
            match (group.layers.as_slice(), run) {
                ([layer], Some(run)) => layer.written(run),
                (_, run) => exchanges.push(exchange(group.layers, id, run)),
            }
        }
        self.exchange(&exchanges);
        Ok(())
    }

    /// Registers blobs that were written, before the runs in them.
    pub(crate) fn keep(&self, state: &mut Durable, writer: Writer, finished: Finished) {
        self.wrote(writer, finished.bytes(), finished.writes);
        state.blobs.insert(finished.blob.number, finished.blob.length);
        if let Some(log) = finished.log {
            state.blobs.insert(log.blob.number, log.blob.length);
            state.logs.insert(log.blob.number, log.rows);
            self.log_bytes_written.fetch_add(log.blob.length, Ordering::Relaxed);
            self.journal.synced(1);
        }
    }

    /// Counts a blob that was written to the disk.
    pub(crate) fn wrote(&self, writer: Writer, bytes: u64, writes: u64) {
        self.journal.wrote(writer, bytes, writes);
        self.journal.synced(1);
    }

    /// Registers a run that was just written.
    pub(crate) fn register(&self, state: &mut Durable, written: Written) -> Arc<Run> {
        state.take_note(Run::written(&self.files, written))
    }

    /// Step 4.
    fn publish(&self, state: &mut Durable, lsn: Lsn) -> Result<()> {
        let mut catalog: Catalog = (**self.catalog.lock()).clone();
        for (id, stack) in &**self.in_flight.lock() {
            match stack {
                Some(stack) => {
                    catalog.insert(*id, Arc::clone(stack));
                }
                None => {
                    catalog.remove(id);
                }
            }
        }
        self.make_durable(state, catalog, lsn)?;
        *self.in_flight.lock() = Arc::default();
        self.dirty_in_flight.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Records what the durable state contains.
    pub(crate) fn note_durable(&self, manifest: &RunManifest) {
        *self.log_stats.lock() = clean::stats(manifest);
        let alive = |run: &RunEntry| run.entries.saturating_sub(run.tombstones);
        let blobs = manifest.blobs.iter().map(|blob| blob.length).sum();
        self.blob_bytes.store(blobs, Ordering::Relaxed);
        self.durable_entries.store(manifest.runs.iter().map(alive).sum(), Ordering::Relaxed);
    }

    /// Writes the manifest of a catalog, which is the durable state from then on.
    pub(crate) fn make_durable(
        &self,
        state: &mut Durable,
        catalog: Catalog,
        lsn: Lsn,
    ) -> Result<()> {
        self.look_after(state)?;
        self.withdraw(state);
        let number = state.take_number()?;
        let catalog = Arc::new(catalog);
        let manifest = self.describe(&catalog, number, lsn, state);
        self.write_manifest(state, &manifest, &catalog)?;
        let old = std::mem::replace(&mut state.number, number);
        if state.blob_limit.is_some() {
            state.next_manifest = number + 1;
            state.blob_limit = Some(manifest.next_blob + BLOBS_AT_ONCE);
        }
        state.inherited = false;
        let uncertain = std::mem::take(&mut state.uncertain);
        state.lsn = lsn;
        state.pending.clear();
        state.pending_bytes = 0;
        // From now on replay starts after these.
        state.linked.retain(|(record, _)| *record > lsn);
        self.note_durable(&manifest);
        // Pins read the catalog and what is in flight together.
        let before = {
            let _gate = self.gate.write();
            std::mem::replace(&mut *self.catalog.lock(), Arc::clone(&catalog))
        };
        let mut candidates = self.candidates.lock();
        candidates.update(&before, &catalog);
        self.depth.store(candidates.depth(), Ordering::Relaxed);
        drop(candidates);
        self.delete_older(old, &uncertain, &state.unread);
        self.make_pair(state);
        state.stuck.try_again(&mut state.gaps);
        Ok(())
    }
}

/// The exchange of a group for its run.
pub(crate) fn exchange(old: Vec<Arc<Layer>>, id: u64, run: Option<Arc<Run>>) -> Exchange {
    let origin = origin(&old, id);
    let new = run.map(|run| Arc::new(Layer::run(id, origin, run)));
    Exchange { old, new }
}

/// The origins of a layer that is equivalent to several others.
pub(crate) fn origin(of: &[Arc<Layer>], id: u64) -> Arc<[u64]> {
    let origin: Vec<u64> = of.iter().flat_map(|layer| layer.origin.iter().copied()).collect();
    if origin.len() > ORIGINS_MAX { Arc::from([id]) } else { Arc::from(origin) }
}

/// Most origins that a layer records.
const ORIGINS_MAX: usize = 4096;

/// Merges layers into a run of a blob. If nothing is below them, tombstones and ranges are left
/// out.
fn write_run(
    blob: &mut BlobWriter,
    id: u64,
    views: &[View],
    lowest: bool,
) -> Result<Option<Written>> {
    blob.begin(id);
    let mut part = MergePart { begin: Bound::Unbounded, lowest, bytes: u64::MAX };
    part.write(blob, views)?;
    end_run(blob, views, lowest)
}

/// A part of a merge into a run.
pub(crate) struct MergePart {
    /// Where the part before ended.
    pub(crate) begin: Bound<Vec<u8>>,
    pub(crate) lowest: bool,
    /// Bytes after which it ends: bytes written, or bytes read that produce nothing.
    pub(crate) bytes: u64,
}

impl MergePart {
    /// Continues merging; `false` when nothing is left.
    pub(crate) fn write(&mut self, blob: &mut BlobWriter, views: &[View]) -> Result<bool> {
        let tombstones = if self.lowest { Tombstones::Skip } else { Tombstones::Keep };
        let bound = self.begin.as_ref().map(Vec::as_slice);
        let from = From { direction: Direction::Forward, bound, caching: Caching::Bypass };
        let mut merge = Merge::new(views.iter(), from)?;
        let mut passed = 0;
        // In addition to the blocks in which it begins.
        let most = merge.loaded_bytes().saturating_add(self.bytes);
        while merge.advance_within(tombstones, most)? {
            let Some((key, content)) = merge.current() else {
                let Some(next) = merge.next_key() else { break };
                self.begin = Bound::Included(next.to_vec());
                return Ok(true);
            };
            let before = blob.bytes();
            blob.push(key, content)?;
            let inline = match content {
                Content::Value(value) => value.len(),
                Content::Deleted | Content::Far(_) | Content::Unknown(_) => 0,
            };
            // Rewriting rows, if there are any, is what takes time.
            passed += ((key.len() + inline) as u64).max(blob.bytes().saturating_sub(before));
            if passed >= self.bytes || merge.loaded_bytes() >= most {
                self.begin = Bound::Excluded(key.to_vec());
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Ends a run, whose entries were all written.
pub(crate) fn end_run(
    blob: &mut BlobWriter,
    views: &[View],
    lowest: bool,
) -> Result<Option<Written>> {
    if !lowest {
        let mut ranges = Ranges::default();
        for view in views {
            ranges.add_all(view.ranges()?);
        }
        for (from, to) in ranges.iter() {
            blob.push_range(from, to);
        }
    }
    blob.end()
}

/// The layers that are in memory, each once, grouped by the trees that share them. An ingested run
/// may be between them.
fn groups(frozen: &Frozen, isolated_tree: Option<TreeId>) -> Vec<Group> {
    let address = |layer: &Arc<Layer>| Arc::as_ptr(layer) as usize;
    let mut sharers: Map<usize, usize> = Map::default();
    for stack in frozen.values().flatten() {
        for layer in stack.layers.iter().filter(|layer| layer.in_memory()) {
            *sharers.entry(address(layer)).or_default() += 1;
        }
    }
    let mut grouped: Set<usize> = Set::default();
    let mut groups = Vec::new();
    for (tree, stack) in frozen {
        let Some(stack) = stack else { continue };
        let isolated = Some(*tree) == isolated_tree;
        let mut at = 0;
        while let Some(first) = stack.layers.get(at) {
            // Layers on disk have no sharers here.
            let shared = sharers.get(&address(first));
            let same = |layer: &&Arc<Layer>| sharers.get(&address(layer)) == shared;
            let from = at;
            at += stack.layers[at..].iter().take_while(same).count();
            if shared.is_some() && grouped.insert(address(first)) {
                let layers = stack.layers[from..at].to_vec();
                groups.push(Group { layers, lowest: at == stack.layers.len(), isolated });
            }
        }
    }
    groups
}
