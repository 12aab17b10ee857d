//! What every workload gets: the arguments, and how it reports progress and is interrupted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use program::failure::Result;
use wire::{Failure, FailureKind};

use crate::cli::BenchArgs;

/// The input of all workloads.
pub(crate) struct Run<'a> {
    pub(crate) args: &'a BenchArgs,
    pub(crate) interrupted: Arc<AtomicBool>,
    pub(crate) bar: indicatif::ProgressBar,
}

impl Run<'_> {
    /// Fails when Ctrl-C was pressed.
    pub(crate) fn check(&self) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            Err(Failure::new(FailureKind::Interrupted, "interrupted; the volume is removed"))
        } else {
            Ok(())
        }
    }
}
