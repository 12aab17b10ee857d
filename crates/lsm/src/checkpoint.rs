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

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Map, Set};
use format::run_manifest::{RunEntry, RunManifest};
use store::{Lsn, Result, TreeId, Writer};

use crate::blob::{BlobWriter, Finished};
use crate::clean;
use crate::collect::COLLECTED_AT_ONCE;
use crate::core::Core;
use crate::durable::{Durable, Exchange, Frozen};
use crate::layer::{Catalog, Layer, View};
use crate::merging::{MergePart, end_run};
use crate::names::BLOBS_AT_ONCE;
use crate::run::{Run, Written};

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
            let finished = blob.finish(&self.journal)?;
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
