//! Candidates for the next merge, of all layers of the durable trees, kept up to date.
//!
//! 1. A manifest has become durable, or layers were exchanged: the changed sections (`forest`) and
//!    stacks of trees are inspected again ([`CompactionCandidates::update`],
//!    [`CompactionCandidates::replace`]).
//! 2. Those in which a rule of `plan` would merge something, if there were no bound, are
//!    candidates. Estimating what a layer hides takes reading. So sections in which a layer may
//!    hide something are inspected when a merge is planned, in [`CompactionCandidates::unlooked`]
//!    and [`CompactionCandidates::looked`].
//! 3. [`CompactionCandidates::pick`] applies the rules to them, the oldest sections first.
//!
//! So choosing the next merge costs in proportion to the merge. A manifest costs in proportion to
//! its changes, however many other trees there are. The places of runs, and what they point to, are
//! summed up in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use format::run_manifest::LogRows;
use store::TreeId;

use crate::clean;
use crate::forest::{Exclusive, Forest, Touched};
use crate::layer::{Catalog, Layer, LayerId, Stack};
use crate::options::Policy;
use crate::plan::{
    DEPTH_MAX, Facts, LayerRange, Limits, Merge, TOMBSTONE_BYTES, by_size, deep, hiding,
};
use crate::run::Run;
use crate::sparse_blobs::Hosted;

/// Whether hidden bytes matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Only sections that were inspected; the rest must be inspected first.
    Hidden,
    /// Only sizes.
    Sizes,
}

/// Candidates for the next merge. Sections are named by their oldest layers, stacks by their
/// newest.
#[derive(Default)]
pub(crate) struct CompactionCandidates {
    policy: Policy,
    forest: Forest,
    /// Sections that have runs of one size to merge.
    sized: BTreeSet<LayerId>,
    /// Sections in which a layer may hide something, and that were not inspected.
    unlooked: BTreeSet<LayerId>,
    /// Sections in which a layer hides much.
    hiding: BTreeMap<LayerId, Vec<Facts>>,
    /// Stacks that are too deep.
    deep: BTreeSet<LayerId>,
    /// How many trees have each depth, in runs.
    depths: BTreeMap<usize, u64>,
    placed: Placed,
    /// Blobs of runs that are skipped.
    unreadable: BTreeSet<u64>,
    /// Sections and stacks that were inspected so far.
    looks: u64,
}

/// The places of runs, and what they point to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Placed {
    runs: u64,
    /// For each value log, the bytes of rows that runs point to, and those runs.
    logs: BTreeMap<u64, (u64, BTreeSet<LayerId>)>,
    /// For each blob, the bytes of the runs in it, and those runs, by their bytes.
    blobs: BTreeMap<u64, (u64, BTreeSet<(u64, LayerId)>)>,
}

impl CompactionCandidates {
    pub(crate) fn new(policy: Policy, catalog: &Catalog) -> CompactionCandidates {
        let mut candidates = CompactionCandidates { policy, ..CompactionCandidates::default() };
        candidates.update(&Catalog::new(), catalog);
        candidates
    }

    /// Replaces the durable trees.
    pub(crate) fn update(&mut self, old: &Catalog, new: &Catalog) {
        let (taken, put) = differing(old, new);
        self.replace(&taken, &put);
    }

    /// Some trees have other stacks than before, or were removed or added.
    pub(crate) fn replace(&mut self, taken: &[Made<'_>], put: &[Made<'_>]) {
        let mut touched = Touched::default();
        for (tree, stack) in taken {
            self.forest.take(*tree, stack, &mut touched);
            let depth = stack.layers.len();
            let count = self.depths.entry(depth).or_default();
            *count -= 1;
            if *count == 0 {
                self.depths.remove(&depth);
            }
        }
        for (tree, stack) in put {
            self.forest.put(*tree, stack, &mut touched);
            *self.depths.entry(stack.layers.len()).or_default() += 1;
        }
        for layer in &touched.gone {
            self.placed.remove(layer.durable_run());
        }
        for layer in &touched.came {
            self.placed.add(layer.durable_run());
        }
        let mut feet = BTreeSet::new();
        for &id in &touched.ids {
            self.sized.remove(&id);
            self.unlooked.remove(&id);
            self.hiding.remove(&id);
            self.deep.remove(&id);
            feet.extend(self.forest.foot(id));
        }
        for foot in feet {
            self.sort_section(foot);
        }
        for &top in touched.ids.iter().filter(|id| self.forest.is_top(**id)) {
            self.looks += 1;
            let stack = facts(&self.forest.stack(top));
            if stack.len() > DEPTH_MAX && deep(&stack, u64::MAX).is_some() {
                self.deep.insert(top);
            }
        }
    }

    /// Records what may be merged in a section.
    fn sort_section(&mut self, foot: LayerId) {
        self.looks += 1;
        let section = self.forest.section(foot);
        if by_size(self.policy, &facts(&section), u64::MAX).is_some() {
            self.sized.insert(foot);
        }
        let (_, above) = section.split_last().expect("invariant: a section has layers");
        if above.iter().any(|layer| may_hide(layer.durable_run())) {
            self.unlooked.insert(foot);
        }
    }

    /// A section that still needs inspection, newest layer first.
    pub(crate) fn unlooked(&self) -> Option<Vec<Arc<Layer>>> {
        let foot = *self.unlooked.first()?;
        Some(self.forest.section(foot).into_iter().cloned().collect())
    }

    /// A section was inspected: records what each of its layers hides of those below it. If it has
    /// changed meanwhile, it still needs inspection.
    pub(crate) fn looked(&mut self, section: &[Arc<Layer>], hides: &[u64]) {
        let Some(foot) = section.last().map(|layer| layer.id) else { return };
        let now = self.forest.section(foot);
        let same = now.len() == section.len()
            && now.iter().zip(section).all(|(now, then)| Arc::ptr_eq(now, then));
        if !same || !self.unlooked.remove(&foot) {
            return;
        }
        self.looks += 1;
        let facts = facts(&now);
        let facts = facts.into_iter().zip(hides).map(|(of, &hides)| Facts { hides, ..of });
        let facts: Vec<Facts> = facts.collect();
        if hiding(&facts, false, u64::MAX).is_some() {
            self.hiding.insert(foot, facts);
        }
    }

    /// A run is skipped from now on (`quarantine`): its weight changes.
    pub(crate) fn skipped(&mut self, id: LayerId) {
        let Some(foot) = self.forest.foot(id) else { return };
        self.unreadable.extend(self.forest.layer(id).map(|layer| layer.durable_run().entry.blob));
        self.sized.remove(&foot);
        self.hiding.remove(&foot);
        self.sort_section(foot);
    }

    /// The next merge within limits. None if no merge is due, or nothing fits.
    pub(crate) fn pick(&mut self, look: Look, limits: Limits) -> Option<Merge> {
        let mut looks = 0;
        let picked = self.pick_counted(look, limits, &mut looks);
        self.looks += looks;
        picked
    }

    fn pick_counted(&self, look: Look, limits: Limits, looks: &mut u64) -> Option<Merge> {
        let forest = &self.forest;
        let of = |facts: &[Facts], found: LayerRange, is_lowest: bool, returns| {
            let (from, to) = found?;
            let layers = facts[from..to].iter().map(|layer| layer.id).collect();
            Some(Merge { layers, lowest: is_lowest && to == facts.len(), returns })
        };
        if look == Look::Hidden {
            for (foot, facts) in &self.hiding {
                *looks += 1;
                let lowest = forest.is_lowest(*foot);
                let merge = of(facts, hiding(facts, lowest, limits.returning), lowest, true);
                if merge.is_some() {
                    return merge;
                }
            }
        }
        for foot in &self.sized {
            *looks += 1;
            let facts = facts(&forest.section(*foot));
            let found = by_size(self.policy, &facts, limits.bytes);
            let merge = of(&facts, found, forest.is_lowest(*foot), false);
            if merge.is_some() {
                return merge;
            }
        }
        for top in &self.deep {
            *looks += 1;
            let facts = facts(&forest.stack(*top));
            let merge = of(&facts, deep(&facts, limits.bytes), true, false);
            if merge.is_some() {
                return merge;
            }
        }
        None
    }

    /// Existing layers, by their numbers.
    pub(crate) fn layers(&self, ids: &[LayerId]) -> Vec<Arc<Layer>> {
        ids.iter().filter_map(|id| self.forest.layer(*id)).cloned().collect()
    }

    /// The trees that have a layer.
    pub(crate) fn trees_with(&self, id: LayerId, found: &mut BTreeSet<TreeId>) {
        self.forest.trees_with(id, found);
    }

    /// What only these trees have, which end at these layers.
    pub(crate) fn exclusive(&self, trees: &BTreeMap<TreeId, LayerId>) -> Exclusive {
        self.forest.exclusive(trees)
    }

    /// The value logs of which less than half is live, and their live bytes.
    pub(crate) fn sparse(&self, logs: &BTreeMap<u64, LogRows>) -> BTreeMap<u64, u64> {
        let live = self.placed.logs.iter().map(|(&log, (bytes, _))| (log, *bytes)).collect();
        clean::sparse(logs, live)
    }

    /// The runs that point into one of these value logs, the oldest first.
    pub(crate) fn pointing(&self, logs: impl Iterator<Item = u64>) -> Vec<Arc<Run>> {
        let runs = logs.filter_map(|log| self.placed.logs.get(&log));
        let ids: BTreeSet<LayerId> = runs.flat_map(|(_, runs)| runs.iter().copied()).collect();
        let layers = ids.into_iter().filter_map(|id| self.forest.layer(id)?.as_run());
        layers.collect()
    }

    /// What is known of the runs in a blob, if there are any and none is skipped.
    pub(crate) fn hosted(&self, blob: u64) -> Option<Hosted> {
        let (bytes, runs) = self.placed.blobs.get(&blob)?;
        if self.unreadable.contains(&blob) {
            return None;
        }
        let (&(_, shortest), &(longest_bytes, _)) = (runs.first()?, runs.last()?);
        Some(Hosted { runs: runs.len() as u64, bytes: *bytes, longest_bytes, shortest })
    }

    /// Runs of the deepest tree.
    pub(crate) fn depth(&self) -> usize {
        self.depths.last_key_value().map_or(0, |(depth, _)| *depth)
    }

    /// How many runs there are.
    pub(crate) fn runs(&self) -> u64 {
        self.placed.runs
    }

    /// Sections and stacks that were inspected so far.
    #[cfg(test)]
    pub(crate) fn looks(&self) -> u64 {
        self.looks
    }
}

impl Placed {
    fn add(&mut self, run: &Run) {
        let (id, bytes) = (run.entry.number, run.bytes());
        self.runs += 1;
        for rows in &*run.uses {
            let (live, runs) = self.logs.entry(rows.log).or_default();
            *live += rows.bytes;
            runs.insert(id);
        }
        let (all, runs) = self.blobs.entry(run.entry.blob).or_default();
        *all += bytes;
        assert!(runs.insert((bytes, id)), "run {id} came twice");
    }

    fn remove(&mut self, run: &Run) {
        let (id, bytes) = (run.entry.number, run.bytes());
        self.runs -= 1;
        for rows in &*run.uses {
            let (live, runs) = self.logs.entry(rows.log).or_default();
            *live -= rows.bytes;
            runs.remove(&id);
            if runs.is_empty() {
                self.logs.remove(&rows.log);
            }
        }
        let (all, runs) = self.blobs.entry(run.entry.blob).or_default();
        *all -= bytes;
        assert!(runs.remove(&(bytes, id)), "run {id} went twice");
        if runs.is_empty() {
            self.blobs.remove(&run.entry.blob);
        }
    }
}

/// A tree and what it is made of.
pub(crate) type Made<'c> = (TreeId, &'c Arc<Stack>);

/// The trees of one catalog that another lacks, or for which it has other stacks; and the reverse.
fn differing<'c>(old: &'c Catalog, new: &'c Catalog) -> (Vec<Made<'c>>, Vec<Made<'c>>) {
    let (mut taken, mut put) = (Vec::new(), Vec::new());
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let (before, after) = match (old.peek(), new.peek()) {
            (None, None) => return (taken, put),
            (Some((a, _)), Some((b, _))) => (a <= b, b <= a),
            (before, after) => (before.is_some(), after.is_some()),
        };
        let before = if before { old.next() } else { None };
        let after = if after { new.next() } else { None };
        let same = before.zip(after).is_some_and(|((_, a), (_, b))| Arc::ptr_eq(a, b));
        if !same {
            taken.extend(before.map(|(id, stack)| (*id, stack)));
            put.extend(after.map(|(id, stack)| (*id, stack)));
        }
    }
}

/// The input of the rules, with nothing hidden.
fn facts(layers: &[&Arc<Layer>]) -> Vec<Facts> {
    let of = |layer: &&Arc<Layer>| Facts {
        id: layer.id,
        bytes: layer.durable_run().bytes_to_merge(),
        hides: 0,
        ends: bytes_of_tombstones(layer.durable_run()),
    };
    layers.iter().map(of).collect()
}

/// Estimated bytes of a run that are tombstones and ranges.
fn bytes_of_tombstones(run: &Run) -> u64 {
    let count = run.entry.tombstones + u64::from(run.entry.ranges);
    (count * TOMBSTONE_BYTES).min(run.bytes_to_merge())
}

/// Whether a run may hide anything in the runs below it.
fn may_hide(run: &Run) -> bool {
    run.entry.ranges > 0 || run.entry.tombstones > 0
}

#[cfg(test)]
mod tests;
