//! Counts the source beside the import, so that progress has a total. Only for a terminal.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressBar;

use crate::output::Output;

/// A count under way.
pub(super) struct Counter {
    stop: Arc<AtomicBool>,
}

impl Counter {
    /// Ends the count, complete or not.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Starts counting.
pub(super) fn start(source: &Path, bar: &ProgressBar, interrupted: &Arc<AtomicBool>) -> Counter {
    let stop = Arc::new(AtomicBool::new(false));
    if !bar.is_hidden() {
        let (source, bar) = (source.to_owned(), bar.clone());
        let (stop, interrupted) = (Arc::clone(&stop), Arc::clone(interrupted));
        let spawned = device::spawn("count", move || {
            let mut total = 0;
            for entry in walkdir::WalkDir::new(source) {
                if stop.load(Ordering::Relaxed) || interrupted.load(Ordering::Relaxed) {
                    return;
                }
                total += u64::from(entry.is_ok());
            }
            Output::progress_total(&bar, "names", total);
        });
        if let Err(error) = spawned {
            tracing::debug!(%error, "no count");
        }
    }
    Counter { stop }
}
