//! Folds a large difference on several threads. The remaining directories are divided into parts of
//! similar size, each thread takes the next free part, and the results are joined in order.
//!
//! A part ends at the start of a directory, so all differences in one directory are in one part.
//! Small differences never get here: one thread finishes them before others have started.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use device::ScopedThread;
use device::sync::Mutex;
use format::key::{self, Parsed};
use store::KeyRange;

use super::folding::{Folding, Helpers, Together};
use super::table::Table;
use crate::Result;

/// Parts for each thread: parts differ in size, and a thread that finishes takes another.
pub(super) const PARTS_A_THREAD: usize = 16;

/// Divides a range of entries into parts that begin with directories of a table.
fn divide(range: KeyRange, table: &Table, parts: usize) -> Vec<KeyRange> {
    let first = match key::parse(&range.from) {
        Ok(Parsed::Entry { directory, .. }) => table.behind(directory),
        _ => 0,
    };
    let left = table.len() - first;
    let mut ranges = Vec::with_capacity(parts);
    let mut from = range.from;
    for part in 1..parts.min(left) {
        let (directory, ..) = table.at(first + left * part / parts.min(left));
        let to = key::directory_prefix(directory).to_vec();
        ranges.push(KeyRange { from, to: Some(to.clone()) });
        from = to;
    }
    ranges.push(KeyRange { from, to: range.to });
    ranges
}

/// Finds the differences in a range of entries; `false` if they exceed the memory limit.
pub(crate) type Each<'a, T> = &'a (dyn Fn(Folding<'_>, KeyRange) -> Result<(bool, T)> + Sync);

/// The differences in a range of entries, in order; `None` if they exceed the memory limit.
pub(crate) fn fold<T: Send>(
    folding: Folding<'_>,
    helpers: Helpers<'_>,
    range: KeyRange,
    each: Each<'_, T>,
) -> Result<Option<Vec<T>>> {
    let ranges = divide(range, helpers.table, helpers.threads * PARTS_A_THREAD);
    let (together, next) = (Together::default(), AtomicUsize::new(0));
    let stop = AtomicBool::new(false);
    let folding = Folding { helpers: None, together: Some(&together), ..folding };
    let done: Vec<Mutex<Option<T>>> = ranges.iter().map(|_| Mutex::default()).collect();
    let work = || -> Result<bool> {
        while !stop.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(range) = ranges.get(at) else { return Ok(true) };
            match each(folding, range.clone()) {
                Ok((true, found)) => *done[at].lock() = Some(found),
                other => {
                    stop.store(true, Ordering::Relaxed);
                    return other.map(|(whole, _)| whole);
                }
            }
        }
        Ok(true)
    };
    let ends = device::scope(|scope| {
        let mut running: Vec<ScopedThread<'_, Result<bool>>> = Vec::new();
        for number in 1..helpers.threads {
            // If the system refuses a thread, there are fewer.
            running.extend(device::spawn_in(scope, &format!("fold-{number}"), work));
        }
        let own = work();
        let others = running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        std::iter::once(own).chain(others.collect::<Vec<_>>()).collect::<Vec<_>>()
    });
    for end in ends {
        if !end? {
            return Ok(None);
        }
    }
    let parts = done.into_iter().map(Mutex::into_inner);
    Ok(Some(parts.map(|part| part.expect("invariant: all parts were taken")).collect()))
}
