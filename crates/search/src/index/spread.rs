//! Runs independent pieces of work on several threads. Each thread takes the next free piece, and
//! the results are returned in the order of the pieces.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use device::ScopedThread;
use device::sync::Mutex;

use crate::Result;

/// Runs pieces 0 to `count` on so many threads, including the caller; `None` if the caller
/// cancelled. The first error ends it.
pub(crate) fn spread<T: Send>(
    (threads, name): (usize, &str),
    count: usize,
    cancel: &AtomicBool,
    piece: &(dyn Fn(usize) -> Result<T> + Sync),
) -> Result<Option<Vec<T>>> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let done: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::default()).collect();
    let work = || -> Result<bool> {
        while !stop.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = done.get(at) else { return Ok(true) };
            if cancel.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let made = piece(at).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
            *slot.lock() = Some(made);
        }
        Ok(true)
    };
    let ends = device::scope(|scope| {
        let mut running: Vec<ScopedThread<'_, Result<bool>>> = Vec::new();
        for number in 1..threads.min(count) {
            // If the system refuses a thread, there are fewer.
            running.extend(device::spawn_in(scope, &format!("{name}-{number}"), work));
        }
        let mut ends = vec![work()];
        for thread in running {
            let end = thread.join();
            ends.push(end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        ends
    });
    for end in ends {
        if !end? {
            return Ok(None);
        }
    }
    let pieces = done.into_iter().map(Mutex::into_inner);
    Ok(Some(pieces.map(|piece| piece.expect("invariant: all pieces were done")).collect()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::spread;
    use crate::Error;

    #[test]
    fn each_part_is_done_once_and_returned_in_order() {
        for (threads, count) in [(1, 0), (1, 5), (4, 0), (4, 1), (4, 3), (3, 100)] {
            let calls = AtomicUsize::new(0);
            let made = spread((threads, "piece"), count, &AtomicBool::new(false), &|at| {
                calls.fetch_add(1, Ordering::Relaxed);
                Ok(at * 3)
            });
            let wanted: Vec<usize> = (0..count).map(|at| at * 3).collect();
            assert_eq!(made.expect("nothing fails"), Some(wanted), "{threads} threads");
            assert_eq!(calls.into_inner(), count);
        }
    }

    #[test]
    fn a_failing_part_is_reported_and_ends_the_work() {
        let calls = AtomicUsize::new(0);
        let made = spread((1, "piece"), 10, &AtomicBool::new(false), &|at| {
            calls.fetch_add(1, Ordering::Relaxed);
            if at == 3 { Err(Error::NotFound) } else { Ok(()) }
        });
        assert!(matches!(made, Err(Error::NotFound)));
        assert_eq!(calls.into_inner(), 4);
    }

    #[test]
    fn cancelled_work_is_not_begun() {
        let (cancel, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
        let made = spread((1, "piece"), 10, &cancel, &|at| {
            calls.fetch_add(1, Ordering::Relaxed);
            cancel.store(at == 2, Ordering::Relaxed);
            Ok(())
        });
        assert!(made.is_ok_and(|made| made.is_none()));
        assert_eq!(calls.into_inner(), 3);
    }
}
