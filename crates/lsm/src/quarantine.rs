//! The quarantine of merges: runs and value logs in which damage was met are skipped until the
//! store is opened again. Otherwise a merge that cannot be made would be the next one after every
//! manifest, and no other would ever be made.
//!
//! A run that is skipped stays in its place, and counts for more bytes than any merge may write.
//! The runs above it and below it are merged as usual. No rows are taken out of a value log that
//! cannot be read, and merges copy pointers to them.

use std::collections::BTreeSet;

use store::Error;

use crate::files::blob_number;
use crate::layer::LayerId;
use crate::run::Run;

/// What is skipped from now on.
pub(crate) enum Quarantined {
    Run(LayerId),
    /// A value log.
    Log,
}

/// Finds the run, among these runs, or the value log that an error names, and passes it over. None
/// if the error names none, or it was skipped before.
pub(crate) fn note(error: &Error, runs: &[&Run], logs: &mut BTreeSet<u64>) -> Option<Quarantined> {
    let Error::Corrupt(bad) = error else { return None };
    let blob = blob_number(&bad.file)?;
    if let Some(run) = runs.iter().find(|run| run.is_at(blob, bad.offset)) {
        return run.pass_over().then_some(Quarantined::Run(run.entry.number));
    }
    let points = |run: &&Run| run.uses.iter().any(|rows| rows.log == blob);
    (runs.iter().any(points) && logs.insert(blob)).then_some(Quarantined::Log)
}
