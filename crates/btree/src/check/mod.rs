//! Checks everything: for tests, and for volume checks.
//!
//! The durable state is walked on disk, past the cache (`walk`). The walk verifies each node once:
//! its checksum, which its parent holds, and its own address. It also verifies the order of its
//! keys, the bounds that its parent's separators give, its weight, and its level. References are
//! recounted from the roots and compared with the map, unit by unit (`counts`). Tests also walk the
//! nodes in memory, for the same structure (`memory`).
//!
//! There are three entry points. [`check_all`] is for tests, and blocks checkpoints.
//! [`Core::check_beside`] pins the state and lets commits and checkpoints continue. [`inspect`] is
//! for a store that no process has open, and changes nothing, not even a torn log. [`repair()`]
//! rebuilds the counts.

mod repair;
mod offline;
mod memory;
mod counts;
mod walk;
mod pages;
mod beside;

#[cfg(test)]
mod forged;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use store::{CheckProgress, CheckReport, Result};

pub use offline::inspect;
pub(crate) use repair::closed_log;
pub use repair::repair;

use crate::core::Core;
use crate::pin::Pin;
use pages::Pages;
use walk::{NodeWalk, Roots};

/// Checks a store, nodes in memory too. Commits may continue; checkpoints wait.
pub(crate) fn check_all(core: &Core) -> Result<CheckReport> {
    let mut state = core.checkpoint.lock();
    let roots = Roots { directory: state.space.directory, catalog: state.catalog };
    let pages = Pages::take(&core.nodes, &mut state.space)?;
    let mut proceed = |_, _| ControlFlow::Continue(());
    let mut walk = NodeWalk::new(&core.nodes, &pages, &mut proceed);
    walk.durable(&roots)?;
    let mut report = walk.compare(&pages);
    memory::walk(core, &mut report);
    Ok(report)
}

impl Core {
    /// Checks the durable state concurrently with commits and checkpoints.
    pub(crate) fn check_beside(
        self: &std::sync::Arc<Core>,
        progress: CheckProgress<'_>,
    ) -> Result<CheckReport> {
        let mut found = Vec::new();
        let (pin, roots, pages, from) = {
            // While no checkpoint runs, the pinned state's durable part is this one.
            let mut state = self.checkpoint.lock();
            let roots = Roots { directory: state.space.directory, catalog: state.catalog };
            // Superblocks are not written while no checkpoint runs.
            beside::superblocks(self, &state, &mut found)?;
            (Pin::new(self), roots, Pages::take(&self.nodes, &mut state.space)?, state.lsn)
        };
        found.extend(self.journal.check_beside(from)?);
        let mut walk = NodeWalk::new(&self.nodes, &pages, progress);
        walk.durable(&roots)?;
        let mut report = walk.compare(&pages);
        // Until here no node that was walked could be reused.
        drop(pin);
        for finding in found {
            report.add(finding);
        }
        report.log_records = self.log().last().0.saturating_sub(self.checkpoint.lock().lsn.0);
        Ok(report)
    }
}
