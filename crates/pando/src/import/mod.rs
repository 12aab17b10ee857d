//! The command's side of an import. It walks the source with the caller's own rights and streams it
//! to the daemon, reading ahead while the daemon writes.
//!
//! The walk waits for no single file. For a directory that existed before, the daemon first
//! returns its entries, and the walk skips files with the same kind, size and time. So an
//! interrupted import continues where it was.
//!
//! Which module decides what:
//! * `source`, `ahead`, `count`: how the source is read
//! * `walk`, `tree`: what is sent, and what is there already
//! * `stream`: how much is under way
//! * `archived`, `listed`: archives, lists
//! * `verify`, `itself`: comparison at the end; a tree in itself

mod archived;
mod listed;
mod bucket;
mod walk;
mod fetch;
mod tree;
mod stream;
mod ahead;
mod memory;
mod verify;
mod source;
mod count;
mod itself;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::Connection;
use device::{Clock, SystemClock};
use indicatif::ProgressBar;
use wire::{FailureKind, ImportStop, QUOTA_HINT};

use crate::cli::OnConflict;
use crate::failure::Result;
use crate::output::Output;
pub(crate) use archived::{Archived, Options};
pub(crate) use bucket::Bucket;
pub(crate) use itself::refuse as refuse_itself;
pub(crate) use listed::Listed;
pub(crate) use tree::Visible;
pub(crate) use verify::{Comparison, Sent};

/// What to import.
pub(crate) struct Import<'a> {
    /// The source, a path of the operating system.
    pub(crate) source: &'a Path,
    /// The destination, a path inside the volume, and how it becomes visible.
    pub(crate) destination: (&'a [u8], Visible<'a>),
    pub(crate) on_conflict: OnConflict,
    /// Whether to keep what is sent, to be verified.
    pub(crate) verify: bool,
    /// Whether the rest gets its name although something failed.
    pub(crate) keep_going: bool,
    /// Bytes of memory.
    pub(crate) memory: usize,
    /// Where progress is shown.
    pub(crate) bar: &'a ProgressBar,
}

/// The outcome of an import.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Inodes and links made.
    pub(crate) imported: u64,
    /// Entries that the destination already has unchanged.
    pub(crate) unchanged: u64,
    /// Entries of the destination that were kept, though they differ.
    pub(crate) kept: u64,
    /// Bytes of contents sent.
    pub(crate) bytes: u64,
    /// Entries not imported, each with its reason on standard error.
    pub(crate) failed: u64,
    /// The worst reason.
    pub(crate) worst: Option<FailureKind>,
    /// How long it took.
    pub(crate) seconds: f64,
    /// Whether it was interrupted.
    pub(crate) interrupted: bool,
    /// What was sent, if it was kept.
    pub(crate) sent: Option<Sent>,
}

impl Outcome {
    /// Counts a failure.
    fn fail(&mut self, kind: FailureKind) {
        self.failed += 1;
        self.worst.get_or_insert(kind);
    }
}

/// What the user does before the same import can continue.
fn before_another_try(stop: ImportStop) -> &'static str {
    match stop {
        ImportStop::Full => "free space on the disk of the volume",
        ImportStop::Quota => QUOTA_HINT,
        ImportStop::Limit => "import less into this volume, or the rest into another",
        ImportStop::ReadOnly => "`pando status` shows why the volume takes no writes",
    }
}

impl Import<'_> {
    /// Runs to the end, or until `interrupted` is set. Either way everything sent is durable.
    pub(crate) fn run(
        &self,
        connection: Connection,
        interrupted: &Arc<AtomicBool>,
        output: &mut Output,
    ) -> Result<Outcome> {
        let clock = SystemClock::new();
        // The walk holds a descriptor per level.
        device::raise_descriptor_limit();
        let counter = count::start(self.source, self.bar, interrupted);
        let mut walk = walk::Walk::new(connection, self.on_conflict, self.bar, interrupted, output);
        walk.limit_memory(self.memory);
        if self.keep_going {
            walk.keep_going();
        }
        let walked = walk.run(self.source, self.destination, self.verify);
        let mut outcome = walk.into_outcome();
        counter.stop();
        walked?;
        outcome.interrupted = interrupted.load(Ordering::Relaxed);
        outcome.seconds = clock.monotonic().as_secs_f64();
        Ok(outcome)
    }
}
