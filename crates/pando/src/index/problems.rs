//! What a scan could not read: counted, and the first of each sort kept, to be told at the end.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use parking_lot::Mutex;
use wire::{Failure, FailureKind};

use crate::failure;
use crate::output::{self, Output};

/// How many of one sort are told in full.
const TOLD: usize = 5;

/// What was found and could not be read.
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
    /// Notes one. What vanished is none: the source may change while it is read.
    pub(super) fn note(&self, path: impl FnOnce() -> PathBuf, error: &io::Error) {
        if is_gone(error) {
            return;
        }
        let mut sorts = self.sorts.lock();
        let sort = sorts.entry(error.kind().to_string()).or_default();
        sort.count += 1;
        if sort.first.len() < TOLD {
            sort.first.push(failure::source("cannot read", &path(), error));
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.sorts.lock().values().map(|sort| sort.count).sum()
    }

    /// Tells of them, and forgets them.
    pub(super) fn tell(&self, output: &mut Output) {
        for (sort, Sort { count, first }) in std::mem::take(&mut *self.sorts.lock()) {
            for failure in &first {
                output.failure(failure);
            }
            if count > first.len() as u64 {
                let more = output::number(count - first.len() as u64);
                let message = format!("and {more} more that could not be read: {sort}");
                output.failure(&Failure::new(FailureKind::Other, message));
            }
        }
    }
}

/// Whether an error says that something is not there any more, or is something else by now.
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
