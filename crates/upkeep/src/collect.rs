//! Collects contents that nothing names any more, in bounded steps while other operations run.
//!
//! A collection is requested when a tree was dropped, or when enough data was dropped that clones
//! may share. The request for a dropped tree is also a record, in the batch that drops the tree. An
//! opening finds it, and the end of a collection that began later deletes it.
//!
//! A collection pins a state, marks what all trees name, and then sweeps a few segments at a time.
//! The B-tree marks a few nodes a step; the log-structured engine marks everything in one. It gives
//! up at the first record that it cannot read, and begins again after a rest: an unread record is
//! never treated as absent. A segment that cannot be swept does not end it. Another collection
//! follows then, too, after a rest.
//!
//! Background steps and foreground calls take turns (`Upkeep::collecting`). A call runs from its
//! marking to the end of its sweep. A stepwise collection that a call overtook between two steps
//! begins again.

use std::collections::BTreeSet;
use std::time::Duration;

use data::{Marking, Swept};
use format::candidate::COLLECT_KEY;
use format::key;
use format::subvolume_record::SubvolumeRecord;
use ops::subvolumes::execute_with;
use store::{KeyRange, Pinned, TreeId};
use vfs::FsResult;
use volume::error::{from_store, malformed};
use volume::subvol::VOLUME;

use crate::Upkeep;
use crate::foreground_reclaim::Reclaimed;
use crate::state::{Collecting, Stage};

/// Nodes that one step marks.
const NODES_A_STEP: usize = 64;
/// Segments that one step sweeps.
const SEGMENTS_A_STEP: usize = 16;

/// What follows a step.
enum Next {
    Stage(Stage),
    /// The end, with so many segments that could not be swept.
    End(u64),
}

impl Upkeep {
    /// One step of the collection that is in progress or was requested; returns how much was done.
    pub(crate) fn collect_step(&self) -> FsResult<u64> {
        let done = match self.collecting.try_lock() {
            Some(mut collecting) => self.collect_within(&mut collecting, false)?,
            None => 0,
        };
        // Without that lock: a thread that has the ledger may wait for it.
        if done == 0 && self.queue.was_collected() { self.forget_request() } else { Ok(done) }
    }

    /// Deletes the record of a collection that was due, after one that began later has ended.
    fn forget_request(&self) -> FsResult<u64> {
        let forgotten = execute_with(self, &mut self.admin.lock(), |_, plan| {
            let can_go = self.queue.take_collected();
            let exists = || self.store.get(VOLUME, &COLLECT_KEY).map_err(from_store);
            if can_go && exists()?.is_some() {
                plan.removes();
                plan.batch().delete(VOLUME, &COLLECT_KEY);
            }
            Ok(u64::from(can_go))
        });
        // The record only costs a needless collection after the next opening.
        forgotten.or_else(|error| {
            tracing::debug!(%error, "cannot delete the record of a collection that has ended");
            Ok(0)
        })
    }

    /// Continues the collection that is in progress or was requested, and takes turns with a thread
    /// that is at it. Ends with the collection, or when the monotonic clock reaches `until`, but
    /// does at least one step. If a call takes it to its end, more may follow.
    pub(crate) fn collect_until(&self, until: Duration) -> FsResult<Reclaimed> {
        let mut any = false;
        loop {
            let left = until.saturating_sub(self.env.clock.monotonic());
            let Some(mut collecting) = self.collecting.try_lock_for(left) else {
                return Ok(Reclaimed { any, more: true });
            };
            if self.collect_within(&mut collecting, true)? == 0 {
                break;
            }
            any = true;
            if self.env.clock.monotonic() >= until {
                return Ok(Reclaimed { any, more: true });
            }
        }
        Ok(Reclaimed { any, more: false })
    }

    fn collect_within(&self, collecting: &mut Collecting, for_space: bool) -> FsResult<u64> {
        let may_begin = collecting.rests.may_begin(self.env.clock.monotonic(), for_space);
        if collecting.is_idle() && (!may_begin || !self.queue.take_request()) {
            return Ok(0);
        }
        let stage = std::mem::take(&mut collecting.stage);
        match self.collect_on(stage) {
            Ok(Next::Stage(next)) => collecting.stage = next,
            Ok(Next::End(0)) => {
                collecting.rests.succeeded();
                self.queue.note_collected();
            }
            Ok(Next::End(_)) => self.collect_later(collecting),
            Err(error) => {
                self.collect_later(collecting);
                return Err(error);
            }
        }
        Ok(1)
    }

    /// Requests another collection after one with a failure.
    fn collect_later(&self, collecting: &mut Collecting) {
        collecting.rests.failed(self.env.clock.monotonic());
        self.queue.request_collection();
    }

    fn collect_on(&self, stage: Stage) -> FsResult<Next> {
        match stage {
            Stage::Idle => self.mark_again(),
            Stage::Marking(pin, mut marking) => {
                let step = self.data.mark_step(&mut marking, &*pin, NODES_A_STEP);
                if step.map_err(from_store)? {
                    return Ok(Next::Stage(Stage::Marking(pin, marking)));
                }
                let marked = self.data.marked(marking, &*pin).map_err(from_store)?;
                Ok(Next::Stage(Stage::Sweeping(Box::new(marked), 0, 0)))
            }
            Stage::Sweeping(marked, from, failed) => {
                let part = (from, SEGMENTS_A_STEP);
                let mut swept = Swept { failed, ..Swept::default() };
                let next = self.data.sweep_step(&*self.store, &marked, part, &mut swept);
                let next = next.map_err(from_store)?;
                if swept.outdated {
                    return self.mark_again();
                }
                Ok(next.map_or(Next::End(swept.failed), |next| {
                    Next::Stage(Stage::Sweeping(marked, next, swept.failed))
                }))
            }
        }
    }

    fn mark_again(&self) -> FsResult<Next> {
        let (pin, marking) = self.begin_marking()?;
        Ok(Next::Stage(Stage::Marking(pin, marking)))
    }

    /// Begins to mark what the trees of a pinned state name, trees without a record included.
    pub fn begin_marking(&self) -> FsResult<(Box<dyn Pinned>, Marking)> {
        let horizon = self.data.horizon();
        // Extents of an import that are not counted yet would be counted twice.
        let pinned = ops::unfinished::pin_whole(self)?;
        let mut trees = Vec::new();
        let mut cursor =
            pinned.scan(VOLUME, KeyRange::prefix(&key::SUBVOLUMES_PREFIX)).map_err(from_store)?;
        while let Some(item) = cursor.next().map_err(from_store)? {
            let record =
                SubvolumeRecord::decode(item.value).map_err(|error| malformed(VOLUME, &error))?;
            trees.push(TreeId(record.tree));
        }
        drop(cursor);
        // What a repair would restore is not freed before.
        let known: BTreeSet<TreeId> = trees.iter().copied().collect();
        let others = (self.find_trees)(self, &*pinned)?;
        trees.extend(others.into_iter().filter(|tree| !known.contains(tree)));
        Ok((pinned, Marking::new(horizon, trees)))
    }

    /// Finds what no extent names any more, from the roots of all trees, and frees it: one complete
    /// collection.
    pub fn collect_garbage(&self) -> FsResult<Swept> {
        let _turn = self.collecting.lock();
        let (pinned, mut marking) = self.begin_marking()?;
        while self.data.mark_step(&mut marking, &*pinned, NODES_A_STEP).map_err(from_store)? {}
        let marked = self.data.marked(marking, &*pinned).map_err(from_store)?;
        drop(pinned);
        let swept = self.data.sweep(&*self.store, &marked).map_err(from_store)?;
        assert!(!swept.outdated, "collections take turns");
        Ok(swept)
    }
}
