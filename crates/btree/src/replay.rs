//! Replays the log: requests the nodes that each record will touch from the disk, then applies it.
//!
//! Records of scattered changes each need a leaf of their own. Reading those one after the other
//! would take the latency of the disk times their number. So before a group of records is applied,
//! the paths to its keys are followed level by level. All nodes that are not in memory are
//! requested at once. The disk then works on many, and applying finds them read. Read errors are
//! ignored here: applying the record reports them.
//!
//! Changes of damaged nodes are skipped (`lost`). From then on no state is written; leaves are
//! pre-flushed, but no state points to them.
//!
//! The log may change more than the cache holds. Then changed leaves are pre-flushed, or a
//! checkpoint is made of the records replayed so far, as committers would do. Records in it are not
//! replayed another time. The log is made durable before that.
//!
//! The time of a replay is estimated from its work: records, bytes of log, and nodes to read, each
//! times its cost. The nodes to read are those that were made changed since the last checkpoint
//! froze. The costs are those of a reference machine. They are scaled by how long the replay at
//! opening took compared with its own estimate.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::Map;
use format::batch::{Op, Ops};
use store::{Error, Lsn, Replay, Result, TreeId};

use crate::cell::{Child, Node};
use crate::checkpoint::FREED_MAX;
use crate::core::Core;
use crate::nodes::{Nodes, unread};
use crate::tree::Root;
use crate::underfull::Underfull;

/// Cost of applying a record again, on a machine that has other work too.
const RECORD_COST: Duration = Duration::from_micros(3);
/// Cost of reading a kibibyte of log.
const LOG_KIB_COST: Duration = Duration::from_micros(5);
/// Cost of a node that has to be read, when many are requested at once.
const NODE_COST: Duration = Duration::from_micros(60);
/// Bounds of the scale, in 256ths. A replay that took less than expected may have found its nodes
/// in the page cache, so the estimate is never made smaller.
const SCALE_ONE: u64 = 256;
const SCALE_MAX: u64 = 16 * SCALE_ONE;
/// Shorter replays do not measure the machine.
const MEASURED_MIN: Duration = Duration::from_millis(100);

/// Applies records to a core that is being opened.
pub(crate) struct Replayer<'a> {
    core: &'a Core,
    /// The last record that is in the state that was opened.
    from: Lsn,
    /// Whether that state may be replaced by a later one, and no write has failed yet.
    writes: bool,
    /// Whether all replayed records are durable, and the leaves that they name are held.
    settled: bool,
    /// Changed bytes from which on a checkpoint is made.
    dirty_max: usize,
    /// Changed bytes from which on leaves are pre-flushed by a store that missed a change.
    lost_max: usize,
}

impl Replay for Replayer<'_> {
    fn prepare(&mut self, upcoming: &[&[u8]]) {
        self.core.prefetch(upcoming);
        self.core.shrink();
    }

    fn apply(&mut self, lsn: Lsn, payload: &[u8]) -> Result<()> {
        let core = self.core;
        core.journal.replays(payload);
        if !self.settled {
            core.hold_ingested(payload)?;
        }
        core.adopt_ingested(payload)?;
        let mut underfull = Underfull::default();
        core.apply_replayed(payload, &mut underfull)?;
        core.rebalance_underfull(&underfull);
        core.journal.replayed_to(lsn);
        self.relieve()?;
        core.shrink();
        core.evict_to_budget();
        Ok(())
    }
}

impl<'a> Replayer<'a> {
    pub(crate) fn new(core: &'a Core, from: Lsn, writes: bool) -> Replayer<'a> {
        let options = &core.options;
        let dirty_max = if core.preflushes() {
            options.dirty_bytes_max()
        } else {
            // The process had no more changed bytes when it ended, so in most cases no checkpoint
            // is made.
            options.common.dirty_bytes_limit()
        };
        let lost_max = options.dirty_bytes_due();
        Replayer { core, from, writes, settled: false, dirty_max, lost_max }
    }

    /// Whether anything was written, or was about to be.
    pub(crate) fn wrote(&self) -> bool {
        self.settled
    }

    /// Writes some of the changed nodes, or all of them, when there are too many. If that fails,
    /// the volume must open all the same: the replayed changes stay in memory. It opens read-only
    /// if it is not known what is on disk.
    fn relieve(&mut self) -> Result<()> {
        let core = self.core;
        if !core.is_whole() {
            return self.relieve_lost();
        }
        let preflushes = core.preflushes();
        let due = if preflushes { core.options.dirty_bytes_due() } else { self.dirty_max };
        if !self.writes || core.dirty() <= due {
            return Ok(());
        }
        self.settle()?;
        let Err(error) = self.write(preflushes, due) else { return Ok(()) };
        tracing::warn!(%error, "cannot evict replayed changes");
        if error.is_no_space() && core.journal.check_log().is_ok() {
            let dirty = core.dirty();
            self.dirty_max = dirty + dirty / 4;
            return Ok(());
        }
        self.writes = false;
        // The next user of a damaged page of the map reports it; it is harmless until then.
        if !matches!(error, Error::Corrupt(_)) {
            core.journal.fail_log(&format!("what was replayed could not be written: {error}"));
        }
        Ok(())
    }

    /// The same for a store that missed a change. It makes no checkpoint, so the written leaves are
    /// part of no state. The next opening finds units that the map calls free, and the log. Leaves
    /// that cannot be written stay in memory, and are tried again when more bytes have changed.
    fn relieve_lost(&mut self) -> Result<()> {
        let core = self.core;
        if !self.writes || core.dirty() <= self.lost_max {
            return Ok(());
        }
        self.settle()?;
        let due = core.options.dirty_bytes_due();
        let mut state = core.checkpoint.lock();
        while core.dirty() > due {
            match core.preflush_locked(&mut state) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(%error, "cannot evict replayed changes");
                    self.writes = false;
                    break;
                }
            }
        }
        let dirty = core.dirty();
        self.lost_max = if dirty > due { dirty + dirty / 16 } else { due };
        Ok(())
    }

    fn write(&self, preflushes: bool, due: usize) -> Result<()> {
        let core = self.core;
        let mut state = core.checkpoint.lock();
        while preflushes && core.dirty() > due && core.preflush_locked(&mut state)? {}
        if core.dirty() <= self.dirty_max {
            return Ok(());
        }
        core.checkpoint_locked(&mut state, FREED_MAX)
    }

    /// Called before the first write outside the log. A killed process may have left records that
    /// are not synced, and the next power cut may lose them. A state that contains them must not be
    /// all there is then. Leaves that later records name must not be overwritten.
    fn settle(&mut self) -> Result<()> {
        let core = self.core;
        if self.settled {
            return Ok(());
        }
        let replayed = core.journal.last();
        let mut hold = |lsn: Lsn, payload: &[u8]| {
            if lsn > replayed { core.hold_ingested(payload) } else { Ok(()) }
        };
        core.journal.settle_log(self.from, &mut hold)?;
        self.settled = true;
        Ok(())
    }
}

/// The work of a replay.
#[derive(Debug, Clone, Copy)]
struct Load {
    records: u64,
    bytes: u64,
    nodes: u64,
}

impl Load {
    fn cost(self) -> Duration {
        let nanos = |cost: Duration, times: u64| (cost.as_nanos() as u64).saturating_mul(times);
        let log = nanos(RECORD_COST, self.records) + nanos(LOG_KIB_COST, self.bytes >> 10);
        Duration::from_nanos(log.saturating_add(nanos(NODE_COST, self.nodes)))
    }
}

impl Core {
    fn load(&self) -> Load {
        let records = self.journal.log_records();
        Load {
            records: records.saturating_sub(self.checkpointed_records.load(Ordering::Relaxed)),
            bytes: self.journal.log_bytes_since(),
            nodes: self.nodes.budget.shadowed(),
        }
    }

    /// How long opening would take for the records that are only in the log, if the process ended
    /// now.
    pub(crate) fn replay_estimate(&self) -> Duration {
        let scale = self.replay_scale.load(Ordering::Relaxed);
        let nanos = self.load().cost().as_nanos() as u64;
        Duration::from_nanos(nanos / SCALE_ONE * scale)
    }

    /// Adjusts the scale to the replay that has just ended.
    pub(crate) fn measured_replay(&self, took: Duration) {
        let expected = self.load().cost();
        if expected >= MEASURED_MIN {
            let scale = took.as_nanos() as u64 * SCALE_ONE / expected.as_nanos() as u64;
            self.replay_scale.store(scale.clamp(SCALE_ONE, SCALE_MAX), Ordering::Relaxed);
        }
        tracing::info!(?took, ?expected, "replayed the log");
    }

    /// Requests the leaves of a group of records.
    fn prefetch(&self, records: &[&[u8]]) {
        let mut trees: Map<TreeId, Vec<&[u8]>> = Map::default();
        for op in records.iter().flat_map(|record| Ops::new(record)) {
            // Applying a record that is malformed, or names no tree, reports the error.
            let Ok(op) = op else { break };
            let (tree, key) = match op {
                Op::Put { tree, key, .. }
                | Op::Delete { tree, key }
                | Op::Merge { tree, key, .. } => (tree, key),
                Op::DeleteRange { tree, from, .. } => (tree, from),
                _ => continue,
            };
            trees.entry(TreeId(tree)).or_default().push(key);
        }
        let mut trees: Vec<_> = trees.into_iter().collect();
        trees.sort_unstable_by_key(|(id, _)| *id);
        for (id, mut keys) in trees {
            let Ok(tree) = self.tree(id) else { continue };
            if tree.resident.load(Ordering::Relaxed) {
                continue;
            }
            keys.sort_unstable();
            keys.dedup();
            self.nodes.prefetch(&tree.state.read(), &keys);
        }
    }
}

impl Nodes {
    /// Loads the interior nodes on the paths to sorted keys, level by level, and requests the
    /// leaves.
    pub(crate) fn prefetch(&self, root: &Root, keys: &[&[u8]]) {
        let mut front: Vec<(&Child, Range<usize>)> = vec![(&root.child, 0..keys.len())];
        for level in (0..=root.level).rev() {
            self.ask_for(front.iter().filter_map(|(child, _)| unread(child)).collect());
            if level == 0 {
                return;
            }
            let mut below = Vec::new();
            for (child, range) in front {
                if child.cell.get().is_none() {
                    let pointer = child.disk.expect("invariant: a slot has a cell or a pointer");
                    let Ok(node) = self.load(pointer, level) else { continue };
                    child.cell.get_or_init(|| node);
                }
                let Some(Node::Interior(interior)) = child.cell.get() else { continue };
                let mut at = range.start;
                while at < range.end {
                    let index = interior.route(keys[at]);
                    let more = &keys[at..range.end];
                    let count = match interior.keys.len() {
                        last if index == last => more.len(),
                        _ => {
                            let fence = interior.keys.key(index);
                            more.partition_point(|key| *key < fence.as_slice())
                        }
                    };
                    // A key is at least in the child that it was routed to.
                    let end = at + count.max(1);
                    below.push((&interior.children[index], at..end));
                    at = end;
                }
            }
            front = below;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BtreeStore, Options};

    #[test]
    fn the_replay_estimate_follows_the_last_replay() {
        let sim = testing::sim_env(1);
        let store = BtreeStore::create(&sim.env(), &Options::default()).expect("create");
        let core = store.engine();
        let scale = || core.replay_scale.load(Ordering::Relaxed);
        core.nodes.budget.take_shadowed();
        core.nodes.budget.add_shadowed(1000);
        let usual = core.replay_estimate();
        assert!((Duration::from_millis(60)..MEASURED_MIN).contains(&usual), "{usual:?}");
        // Too short to measure anything.
        core.measured_replay(100 * usual);
        assert_eq!(scale(), SCALE_ONE);
        core.nodes.budget.add_shadowed(4000);
        let expected = core.replay_estimate();
        assert!(expected > 4 * usual, "{usual:?} became {expected:?}");
        for (took, times) in [(1, 1), (3, 3), (2, 2), (0, 1), (40, 16)] {
            // Add what is below the resolution of the estimate.
            core.measured_replay(took * expected + Duration::from_micros(1));
            assert_eq!(scale(), times * SCALE_ONE, "{took} times as long as expected");
            let estimate = core.replay_estimate();
            let exact = times as u32 * expected;
            assert!(estimate.abs_diff(exact) < exact / 100, "{estimate:?}, not {exact:?}");
        }
        // A checkpoint is also due for less.
        core.replay_scale.store(SCALE_ONE, Ordering::Relaxed);
        let max = core.options.replay_max;
        assert!(expected < max && 4 * expected > max, "{expected:?} of {max:?}");
        assert!(!store::Maintain::checkpoint_due(store.as_ref()));
        core.measured_replay(4 * expected);
        assert!(store::Maintain::checkpoint_due(store.as_ref()));
    }
}
