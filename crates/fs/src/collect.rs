//! Collecting contents that nothing names any more, in bounded steps beside everything else.
//!
//! A collection is asked for when a tree was dropped, or so much that clones may share that it is
//! worth its cost. It pins a state, marks what all trees name a few nodes at a time, and then
//! sweeps a few segments at a time. It is given up at the first thing that cannot be read, and
//! begins again after a rest: an unread record is never taken for no record.
//!
//! Collections take turns with their steps and calls (`Queue::collecting`): a call goes
//! on from its marking to the end of its sweep, and one that is under way in steps, and was
//! overtaken by a call between two of them, begins again.

use std::collections::BTreeSet;
use std::time::Duration;

use data::{Marked, Marking, Swept};
use format::key;
use format::subvolume_record::SubvolumeRecord;
use store::{KeyRange, Pinned, TreeId};

use crate::error::{from_store, malformed};
use crate::room::Given;
use crate::subvol::VOLUME;
use crate::{Fs, FsResult};

/// Nodes that one step marks.
const NODES_A_STEP: usize = 64;
/// Segments that one step sweeps.
const SEGMENTS_A_STEP: usize = 16;
/// How long a collection rests that could not read something.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(60);

/// The collection under way; nothing of it need survive a crash.
#[derive(Default)]
pub(crate) struct Collecting {
    stage: Stage,
    /// Until when nothing is begun.
    rest: Duration,
}

impl Collecting {
    /// Whether none is begun yet, after one that could not read something.
    pub(crate) fn rests(&self, now: Duration) -> bool {
        now < self.rest
    }

    /// Whether none is under way.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }
}

#[derive(Default)]
enum Stage {
    #[default]
    Idle,
    Marking(Box<dyn Pinned>, Marking),
    Sweeping(Box<Marked>, u64),
}

impl Fs {
    /// One step of the collection that is under way or was asked for; returns how much was done.
    pub(crate) fn collect_step(&self) -> FsResult<u64> {
        match self.queue.collecting.try_lock() {
            Some(mut collecting) => self.collect_within(&mut collecting),
            None => Ok(0),
        }
    }

    /// Goes on with the collection that is under way or was asked for to its end, or until the
    /// monotonic clock says `until`, but one step in any case, taking turns with who is at it.
    /// Where a call has it to its end, more may come.
    pub(crate) fn collect_until(&self, until: Duration) -> FsResult<Given> {
        let mut any = false;
        loop {
            let left = until.saturating_sub(self.env.clock.monotonic());
            let Some(mut collecting) = self.queue.collecting.try_lock_for(left) else {
                return Ok(Given { any, more: true });
            };
            if self.collect_within(&mut collecting)? == 0 {
                break;
            }
            any = true;
            if self.env.clock.monotonic() >= until {
                return Ok(Given { any, more: true });
            }
        }
        Ok(Given { any, more: false })
    }

    fn collect_within(&self, collecting: &mut Collecting) -> FsResult<u64> {
        let now = self.env.clock.monotonic();
        if collecting.is_idle() && (now < collecting.rest || !self.queue.take_request()) {
            return Ok(0);
        }
        let stage = std::mem::take(&mut collecting.stage);
        match self.collect_on(stage) {
            Ok(next) => {
                collecting.stage = next;
                Ok(1)
            }
            Err(error) => {
                collecting.rest = now + REST_AFTER_FAILURE;
                self.queue.request_collection();
                Err(error)
            }
        }
    }

    fn collect_on(&self, stage: Stage) -> FsResult<Stage> {
        match stage {
            Stage::Idle => {
                let (pin, marking) = self.begin_marking()?;
                Ok(Stage::Marking(pin, marking))
            }
            Stage::Marking(pin, mut marking) => {
                let step = self.data.mark_step(&mut marking, &*pin, NODES_A_STEP);
                if step.map_err(from_store)? {
                    return Ok(Stage::Marking(pin, marking));
                }
                let marked = self.data.marked(marking, &*pin).map_err(from_store)?;
                Ok(Stage::Sweeping(Box::new(marked), 0))
            }
            Stage::Sweeping(marked, from) => {
                let part = (from, SEGMENTS_A_STEP);
                let mut swept = Swept::default();
                let next = self.data.sweep_step(&*self.store, &marked, part, &mut swept);
                let next = next.map_err(from_store)?;
                if swept.outdated {
                    let (pin, marking) = self.begin_marking()?;
                    return Ok(Stage::Marking(pin, marking));
                }
                Ok(match next {
                    Some(next) => Stage::Sweeping(marked, next),
                    None => Stage::Idle,
                })
            }
        }
    }

    /// Begins to mark what the trees of a pinned state name: those that no record names, too.
    pub(crate) fn begin_marking(&self) -> FsResult<(Box<dyn Pinned>, Marking)> {
        let horizon = self.data.horizon();
        let pinned = self.store.pin().map_err(from_store)?;
        let mut trees = Vec::new();
        let mut cursor =
            pinned.scan(VOLUME, KeyRange::prefix(&key::SUBVOLUMES_PREFIX)).map_err(from_store)?;
        while let Some(item) = cursor.next().map_err(from_store)? {
            let record =
                SubvolumeRecord::decode(item.value).map_err(|error| malformed(VOLUME, &error))?;
            trees.push(TreeId(record.tree));
        }
        drop(cursor);
        // What a repair would put back is not given back before.
        let known: BTreeSet<TreeId> = trees.iter().copied().collect();
        let others = self.trees_without_records(&*pinned)?;
        trees.extend(others.into_iter().filter(|tree| !known.contains(tree)));
        Ok((pinned, Marking::new(horizon, trees)))
    }

    /// Finds what no extent names any more, from the roots of all trees, and gives it back: a
    /// whole collection at once.
    pub fn collect_garbage(&self) -> FsResult<Swept> {
        let _turn = self.queue.collecting.lock();
        let (pinned, mut marking) = self.begin_marking()?;
        while self.data.mark_step(&mut marking, &*pinned, NODES_A_STEP).map_err(from_store)? {}
        let marked = self.data.marked(marking, &*pinned).map_err(from_store)?;
        drop(pinned);
        let swept = self.data.sweep(&*self.store, &marked).map_err(from_store)?;
        assert!(!swept.outdated, "collections take turns");
        Ok(swept)
    }
}
