//! How many of the threads that serve one user may have at a time with requests that may take
//! long: the others are left to everybody else. What is beyond that goes to the threads for
//! requests that take long, of which one user has a few.

use std::sync::atomic::{AtomicU64, Ordering};

use super::numbers::op;
use super::request::Request;

/// No user: the thread serves nothing that may take long.
const NOBODY: u64 = u64::MAX;

/// Who is served by which thread.
pub(super) struct Shares {
    serves: Vec<AtomicU64>,
    most: usize,
}

/// A thread that serves a user, until this is dropped.
pub(super) struct Share<'a>(&'a AtomicU64);

impl Shares {
    /// For so many threads. A quarter of them, and one at least, is nobody's to keep.
    pub(super) fn new(threads: usize) -> Shares {
        let serves = (0..threads).map(|_| AtomicU64::new(NOBODY)).collect();
        Shares { serves, most: threads - (threads / 4).clamp(1, threads) }
    }

    /// A thread is about to serve a request. `None`: its user has all that one may have.
    pub(super) fn take(&self, thread: usize, request: &Request<'_>) -> Option<Share<'_>> {
        let own = &self.serves[thread];
        let user = u64::from(request.who.uid);
        // What the kernel writes back by itself is root's, and waits for nothing.
        if user == 0 || !may_take_long(request) {
            return Some(Share(own));
        }
        own.store(user, Ordering::SeqCst);
        let share = Share(own);
        let has = self.serves.iter().filter(|serves| serves.load(Ordering::SeqCst) == user);
        (has.count() <= self.most).then_some(share)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.0.store(NOBODY, Ordering::SeqCst);
    }
}

/// Whether a request takes time in proportion to the file that it is about, or waits for a disk.
fn may_take_long(request: &Request<'_>) -> bool {
    matches!(
        request.opcode,
        op::SETATTR | op::FALLOCATE | op::COPY_FILE_RANGE | op::LSEEK | op::FSYNC
    )
}
