//! Background work, in bounded steps that the daemon's threads drive.
//!
//! One step does the first of these that is due: writing the log, a checkpoint, removing unnamed
//! inodes that nobody holds. Reclaiming what was detached and emptying expired trash follow. Then
//! come freeing the nodes of dropped trees, freeing space of contents, counting for quotas, and
//! upkeep of the index. A steady load of removals would starve everything later in that list. So
//! every other step begins with one of the others, in turn.

use std::sync::atomic::Ordering;
use std::time::Duration;

use inode::FsError;
use ops::execute::{Context, execute_locked};
use vfs::FsResult;
use volume::Progress;
use volume::error::from_store;
use volume::locks::Mode;

use crate::Upkeep;

/// How long a worker sleeps at most: work comes without being announced.
const IDLE: Duration = Duration::from_millis(500);
/// How long a thread that needs space waits for another one that is removing an inode.
const TURN_WAIT: Duration = Duration::from_millis(500);

/// Does part of a task, about so many records or nodes; returns how much. 0: nothing is due.
type Work = fn(&Upkeep, usize) -> FsResult<u64>;

impl Upkeep {
    /// One bounded step of background work, about `budget` records or nodes.
    ///
    /// A failure does not keep the rest from being done: on a full disk a checkpoint has no space
    /// until other work frees some. The first failure is returned if nothing was done.
    pub fn background_step(&self, budget: usize) -> FsResult<Progress> {
        let done = self.first_due(budget);
        if matches!(done, Err(FsError::NoSpace)) {
            self.reclaim.failures.note_no_space(self.env.clock.monotonic());
        }
        done
    }

    fn first_due(&self, budget: usize) -> FsResult<Progress> {
        let due_in = self.flush_if_due()?;
        let mut failed = None;
        // The turn is only taken if no checkpoint is made.
        let works = std::iter::once_with(|| self.works()).flatten();
        for work in std::iter::once(Upkeep::checkpoint_step as Work).chain(works) {
            match work(self, budget) {
                Ok(0) => {}
                Ok(done) => return Ok(Progress { more: true, due_in: Duration::ZERO, done }),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(Progress { more: false, due_in: due_in.min(IDLE), done: 0 }),
        }
    }

    /// What there may be to do, in the order of this step.
    fn works(&self) -> impl Iterator<Item = Work> {
        const WORKS: [Work; 7] = [
            Upkeep::orphan_and_data_step,
            Upkeep::removal_step,
            |upkeep, budget| upkeep.trash_step(budget),
            Upkeep::node_step,
            Upkeep::data_step,
            |upkeep, budget| upkeep.adopt_step(budget),
            Upkeep::index_step,
        ];
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let first = if turn.is_multiple_of(2) { 0 } else { turn / 2 % WORKS.len() };
        WORKS.into_iter().cycle().skip(first).take(WORKS.len())
    }

    /// The part of a step that must not wait for the others, for a dedicated thread. Writes the log
    /// if that is due, and returns how long until it next will be.
    pub fn flush_if_due(&self) -> FsResult<Duration> {
        self.store.flush_if_due().map_err(from_store)
    }

    /// Registers `wake`, which is called when there is work to begin at once.
    pub fn set_waker(&self, wake: store::Waker) {
        self.store.set_waker(wake);
    }

    /// A checkpoint, if one is due.
    fn checkpoint_step(&self, _budget: usize) -> FsResult<u64> {
        let done = self.store.checkpoint_due() && self.store.checkpoint().map_err(from_store)?;
        Ok(u64::from(done))
    }

    /// Removes part of an inode, and frees some of what that released. While an inode waits, no
    /// later task of a step runs, and the memory for what waits is bounded. A failure to free space
    /// does not delay the removal: data has a turn of its own, which returns it.
    fn orphan_and_data_step(&self, budget: usize) -> FsResult<u64> {
        let done = self.orphan_step(budget)?;
        if done > 0
            && let Err(error) = self.data_step(budget)
        {
            tracing::debug!(?error, "inodes are removed, and their space is not freed");
        }
        Ok(done)
    }

    /// Removes part of an inode that nobody holds any more.
    fn orphan_step(&self, budget: usize) -> FsResult<u64> {
        if self.options.read_only {
            Ok(0)
        } else {
            ops::orphan::reclaim_step(self, &self.policies(), budget)
        }
    }

    /// Removes part of a detached tree, counts, or prunes.
    fn removal_step(&self, budget: usize) -> FsResult<u64> {
        if self.options.read_only {
            Ok(0)
        } else {
            crate::reclaim::reclaim_step(self, &self.reclaim, budget)
        }
    }

    /// Like `removal_step`, for detached trees only; waits for a thread that is already at it.
    pub fn detached_step(&self, budget: usize) -> FsResult<u64> {
        if self.options.read_only {
            Ok(0)
        } else {
            crate::reclaim::detached_step(self, &self.reclaim, budget)
        }
    }

    /// Like `orphan_step`; waits for a thread that is already at it. A thread that takes long, with
    /// a large file, counts as progress.
    pub(crate) fn orphans_at_once(&self, budget: usize) -> FsResult<u64> {
        let at_it = self.queue.removing.try_write_for(TURN_WAIT).is_none();
        Ok(self.orphan_step(budget)? + u64::from(at_it))
    }

    /// Frees nodes of dropped trees.
    pub(crate) fn node_step(&self, budget: usize) -> FsResult<u64> {
        let went = self.store.reclaim_step(budget).map_err(from_store);
        self.reclaim.failures.note_nodes(&went);
        Ok(if went? { budget as u64 } else { 0 })
    }

    /// One step of cleaning the segments of data.
    fn data_step(&self, _budget: usize) -> FsResult<u64> {
        if self.options.read_only {
            return Ok(0);
        }
        // Where a file cannot settle, for lack of space or because it is damaged, cleaning
        // continues.
        let settled = self
            .data
            .settle_due()
            .map(|file| self.settle_file(file).inspect_err(|_| self.data.rest_from_settling(file)));
        if let Some(Ok(())) = settled {
            return Ok(1);
        }
        let cleaned = self.data.clean_step(&*self.store);
        if let Ok(true) = cleaned {
            self.reclaim.failures.gave_back();
            return Ok(1);
        }
        // Cleaning may find no space where a collection frees some.
        match (self.collect_step()?, cleaned, settled) {
            (0, Err(error), _) => Err(from_store(error)),
            (0, _, Some(Err(error))) => Err(error),
            (done, _, _) => Ok(done),
        }
    }

    /// Moves small writes of a frequently synced file out of the tree.
    fn settle_file(&self, file: data::FileRef) -> FsResult<()> {
        let Some(subvol) = self.subvols.of_tree(file.tree) else {
            self.data.forget(file);
            return Ok(());
        };
        let mut from = Some(0);
        while let Some(at) = from {
            let (entered, policies) = (self.enter(&subvol)?, self.policies());
            if entered.tree != file.tree {
                break;
            }
            let place = Context::new(self, &policies, &subvol, entered.tree);
            let object = [(place.object(file.ino), Mode::Exclusive)];
            from = execute_locked(entered, &place, &object, |_, plan| {
                plan.removes();
                let owner = self.extent_owner(&subvol)?;
                let settled = self
                    .data
                    .settle(&*self.store, file, at, owner, plan.batch())
                    .map_err(from_store)?;
                plan.frees(settled.freed);
                Ok(settled.next)
            })?;
        }
        Ok(())
    }
}
