//! Decides when the space of dropped trees is worth a checkpoint.
//!
//! The durable state holds the runs of a dropped tree until a manifest without it is durable. That
//! manifest lists all runs of all trees, and a checkpoint adds a run to each tree that changed. So
//! where many trees are dropped one by one, a checkpoint for each costs more than it frees. It also
//! makes trees deeper than the merges beside it can undo. Dropped trees therefore share
//! checkpoints:
//!
//! ```text
//! what waits                                       what a step of reclaiming does
//! nothing, or only trees whose layers others have  no checkpoint: the next one has the drops
//! little, and more trees are dropped               waits, and reports that there is more to do
//! enough bytes, or trees                           a checkpoint
//! little, and none was dropped for some steps      a checkpoint
//! any, and the disk is nearly full                 a checkpoint
//! any, and the last checkpoint failed              a checkpoint, so that the caller sees the error
//! ```
//!
//! Invariant: a caller that repeats steps until one has nothing to do has all space of the trees
//! that were dropped before, or an error. A failed checkpoint never counts as waiting: a caller
//! that repeats steps while they report work would then repeat the failure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::TreeId;

use crate::core::Core;
use crate::durable::{DroppedTrees, Durable};
use crate::layer::{Catalog, LayerId};
use crate::run::Run;

/// With so many dropped trees a checkpoint is made, although more are dropped.
const TREES_MAX: u64 = 1024;
/// Steps of reclaiming during which no tree was dropped, after which no more are expected. In
/// between, the caller does other work, for example removes what the next tree to be dropped holds.
const QUIET_STEPS: u32 = 16;
/// Least bytes that are worth a checkpoint while more trees are dropped.
const BYTES_MIN: u64 = 1 << 20;
/// The same as a multiple of the bytes of both manifests.
const MANIFESTS: u64 = 4;

/// What a step does for dropped trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// A checkpoint, in a later step.
    Later,
    Checkpoint,
}

impl Core {
    /// What a step of reclaiming does for dropped trees.
    pub(crate) fn drops_due(&self, state: &mut Durable) -> Due {
        let trees = self.drops.load(Ordering::Relaxed);
        if trees == 0 {
            return Due::Nothing;
        }
        if trees == state.dropped.trees {
            state.dropped.quiet = state.dropped.quiet.saturating_add(1);
        } else {
            let failed = state.dropped.failed;
            state.dropped = DroppedTrees { failed, ..self.weigh_drops(state, trees) };
        }
        let DroppedTrees { bytes, matter, quiet, failed, .. } = state.dropped;
        let manifests = 2 * self.manifest_bytes.load(Ordering::Relaxed);
        let worth = BYTES_MIN.max(manifests.saturating_mul(MANIFESTS));
        let is_due = || {
            // Commits that find no space may wait for it.
            let is_tight = || self.is_tight(0).unwrap_or(true);
            quiet >= QUIET_STEPS || bytes >= worth || failed || is_tight()
        };
        match matter {
            _ if trees >= TREES_MAX => Due::Checkpoint,
            true if is_due() => Due::Checkpoint,
            true => Due::Later,
            false => Due::Nothing,
        }
    }

    /// What the trees hold that were dropped since the last checkpoint.
    fn weigh_drops(&self, state: &Durable, trees: u64) -> DroppedTrees {
        let catalog = Arc::clone(&self.catalog.lock());
        let dropped = self.dropped_trees(&catalog);
        let candidates = self.candidates.lock();
        let exclusive = candidates.exclusive(&dropped);
        let layers = candidates.layers(&exclusive.layers);
        drop(candidates);
        let weight = |run: &Run| run.bytes() + run.far_bytes();
        // No durable tree has them yet: what was ingested and dropped.
        let linked = state.linked.iter().filter(|(_, run)| Arc::strong_count(run) == 1);
        let linked: u64 = linked.map(|(_, run)| weight(run)).sum();
        let of_layers: u64 = layers.iter().map(|layer| weight(layer.durable_run())).sum();
        let matter = exclusive.trees > 0 || linked > 0;
        let needless = if linked > 0 { 0 } else { trees.saturating_sub(exclusive.trees) };
        self.needless_drops.store(needless, Ordering::Relaxed);
        DroppedTrees { trees, bytes: of_layers + linked, matter, quiet: 0, failed: false }
    }

    /// The dropped trees that the durable state has, and their newest layers.
    fn dropped_trees(&self, catalog: &Catalog) -> BTreeMap<TreeId, LayerId> {
        let changed = self.changed.lock();
        let gone = changed.values().filter(|tree| tree.dropped.load(Ordering::Relaxed));
        let durable = gone.filter_map(|tree| {
            let newest = catalog.get(&tree.id)?.layers.first()?;
            Some((tree.id, newest.id))
        });
        durable.collect()
    }

    /// Trees whose space waits for a checkpoint.
    pub(crate) fn drops_waiting(&self) -> u64 {
        let drops = self.drops.load(Ordering::Relaxed);
        drops.saturating_sub(self.needless_drops.load(Ordering::Relaxed))
    }
}
