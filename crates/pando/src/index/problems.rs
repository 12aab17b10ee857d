//! What a scan could not read: counted, with the first few of each sort kept for the report at the
//! end.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use device::sync::Mutex;
use wire::{Failure, FailureKind};

use crate::failure;
use crate::output::{self, Output};

/// How many of one sort are reported in full.
const SHOWN: usize = 5;

/// Entries that were found and could not be read.
#[derive(Default)]
pub(super) struct Problems {
    sorts: Mutex<BTreeMap<String, Sort>>,
}

#[derive(Default)]
struct Sort {
    count: u64,
    first: Vec<Failure>,
}

impl Problems {
    /// Records a problem. A vanished file is none: the source may change while it is read.
    pub(super) fn note(&self, path: impl FnOnce() -> PathBuf, error: &io::Error) {
        if is_gone(error) {
            return;
        }
        let mut sorts = self.sorts.lock();
        let sort = sorts.entry(error.kind().to_string()).or_default();
        sort.count += 1;
        if sort.first.len() < SHOWN {
            sort.first.push(failure::source("cannot read", &path(), error));
        }
    }

    /// The number of problems.
    pub(super) fn count(&self) -> u64 {
        self.sorts.lock().values().map(|sort| sort.count).sum()
    }

    /// Reports the problems, and clears them.
    pub(super) fn report(&self, output: &mut Output) {
        for (sort, Sort { count, first }) in std::mem::take(&mut *self.sorts.lock()) {
            for failure in &first {
                output.failure(failure);
            }
            if count > first.len() as u64 {
                let more = output::number(count - first.len() as u64);
                let message = format!("and {more} more that could not be read: {sort}");
                let failure = Failure::new(FailureKind::Other, message);
                output.failure(
                    &failure.hint("remove the causes of the first ones, and run it again"),
                );
            }
        }
    }
}

/// Whether an error means that a file no longer exists, or was replaced by something else.
pub(super) fn is_gone(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(
        code,
        Some(
            rustix::io::Errno::NOENT
                | rustix::io::Errno::NOTDIR
                | rustix::io::Errno::LOOP
                | rustix::io::Errno::STALE
        )
    )
}
