//! The log's lock, and how records get their numbers without it.
//!
//! When a thread releases the lock, it reserves a range of the log: a number of bytes that fit the
//! last segment. A record takes its number and its bytes from this range by one addition to one
//! word. A thread that takes the lock ends the range first, and adds to the state what was taken.
//! So the lock holder sees the state as if each record had been numbered under the lock.
//!
//! The word is `number of the next record | ended | bytes`. The initial bytes are such that a
//! record that does not fit carries into `ended`. From then on additions take nothing, whatever
//! they do to the rest of the word. Only the thread of the record that did not fit knows the word's
//! previous value. It publishes that value at once, because a thread that takes the lock waits for
//! it.
//!
//! Invariants:
//! * `ended` is set whenever a thread holds the lock, and while there is no range.
//! * A thread that an ended range refused takes the lock before it tries again, and each lock
//!   holder sets the word again. So no more additions follow the end of a range
//!   than there are threads, of [`RECORD_BYTES_MAX`] each. That is not enough to carry once more
//!   and clear `ended`.
//! * A range is so short that it reaches none of the bounds at which a thread must act.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::sync::{Condvar, Mutex, MutexGuard};

use super::LogOptions;
use super::state::State;
use crate::Durability;

/// Maximum length of a record that takes its number from a range.
const RECORD_BYTES_MAX: usize = 4096;
/// Minimum length of a range.
const RESERVATION_BYTES_MIN: u64 = 256;

/// Set when the range has ended.
const ENDED: u64 = 1 << 32;
/// The bytes of the word.
const BYTES: u64 = ENDED - 1;
/// Position of the number, of which the word has the lower 31 bits.
const NUMBER_AT: u32 = 33;
/// One record.
const ONE: u64 = 1 << NUMBER_AT;
/// No word was published.
const UNKNOWN: u64 = u64::MAX;

/// Spins before a thread sleeps. The lock is usually held for less time than a sleep and a wake-up
/// take. When it is held longer (a segment is taken, a buffer exchanged), other threads sleep as
/// with any lock.
const LOOKS: u32 = 200;

/// State shared by appenders. What each append writes is in one cache line. When two threads append
/// alternately, the line moves between processors each time, which is most of the cost of sharing a
/// log.
#[repr(C, align(128))]
pub(super) struct Shared {
    word: AtomicU64,
    /// Number of the first record of the range.
    first: AtomicU64,
    /// The word's value before the record that ended the range.
    before_end: AtomicU64,
    /// Whether ranges are made.
    reserves: bool,
    state: Apart,
}

/// In cache lines that appends do not write.
#[repr(align(128))]
struct Apart(Mutex<State>);

/// The state, locked.
pub(super) struct Locked<'a> {
    shared: &'a Shared,
    guard: MutexGuard<'a, State>,
}

/// The number in a word. `near` is close enough that 31 bits suffice. It is of the same range, or
/// of one before later ranges, which the size of the buffer bounds.
#[inline]
fn number(word: u64, near: u64) -> u64 {
    let apart = (word >> NUMBER_AT).wrapping_sub(near) << NUMBER_AT;
    // Sign-extends from its top bit.
    near.wrapping_add_signed(apart as i64 >> NUMBER_AT)
}

impl Shared {
    pub(super) fn new(state: State, options: &LogOptions) -> Shared {
        Shared {
            word: AtomicU64::new(ENDED),
            first: AtomicU64::new(state.next),
            before_end: AtomicU64::new(UNKNOWN),
            // Where each commit waits for the disk, it takes the lock for that anyway.
            reserves: options.durability != Durability::Sync,
            state: Apart(Mutex::new(state)),
        }
    }

    /// Takes the number of a record of this length from the range. Returns `None` where there is no
    /// range, or too little of it left; the caller then takes the lock.
    #[inline]
    pub(super) fn take(&self, bytes: usize) -> Option<u64> {
        // Long records are refused at once, lest additions that take nothing carry far.
        if !self.reserves || bytes > RECORD_BYTES_MAX {
            return None;
        }
        let bytes = bytes as u64;
        // The thread that ends the range sees this, with the stage that this thread has locked.
        let before = self.word.fetch_add(ONE + bytes, Ordering::AcqRel);
        if before & ENDED != 0 {
            return None;
        }
        if (before & BYTES) + bytes > BYTES {
            self.before_end.store(before, Ordering::Release);
            return None;
        }
        Some(number(before, self.first.load(Ordering::Relaxed)))
    }

    /// The last assigned number.
    pub(super) fn last(&self) -> u64 {
        let first = self.first.load(Ordering::Acquire);
        let word = self.word.load(Ordering::Acquire);
        // Both are of one range; otherwise another range came in between.
        if word & ENDED == 0 && self.first.load(Ordering::Relaxed) == first {
            return number(word, first) - 1;
        }
        self.lock().next - 1
    }

    /// The state, including everything taken from the range.
    #[inline]
    pub(super) fn lock(&self) -> Locked<'_> {
        let guard = self.state.0.try_lock().unwrap_or_else(|| self.lock_contended());
        let mut locked = Locked { shared: self, guard };
        locked.end_range();
        locked
    }

    #[cold]
    fn lock_contended(&self) -> MutexGuard<'_, State> {
        for _ in 0..LOOKS {
            device::spin_loop();
            if !self.state.0.is_locked()
                && let Some(guard) = self.state.0.try_lock()
            {
                return guard;
            }
        }
        self.state.0.lock()
    }

    /// The word's value before the record that did not fit. Its thread is about to publish it.
    #[cold]
    fn wait_for_end(&self) -> u64 {
        let mut looks = 0;
        loop {
            let word = self.before_end.load(Ordering::Acquire);
            if word != UNKNOWN {
                return word;
            }
            looks += 1;
            if looks < LOOKS {
                device::spin_loop();
            } else {
                // That thread waits for a processor.
                device::yield_now();
            }
        }
    }
}

impl Locked<'_> {
    /// Ends the range, if there is one, and counts what was taken from it.
    #[inline]
    fn end_range(&mut self) {
        let word = self.shared.word.swap(ENDED, Ordering::AcqRel);
        let Some(reserved) = self.guard.reserved.take() else { return };
        let word = if word & ENDED == 0 { word } else { self.shared.wait_for_end() };
        let next = number(word, self.guard.next);
        let (records, bytes) = (next - self.guard.next, (word & BYTES) - (BYTES - reserved));
        self.guard.taken(records, bytes);
    }

    /// Reserves what other threads may take while no thread holds the lock.
    #[inline]
    fn reserve(&mut self) {
        if !self.shared.reserves || self.guard.reserved.is_some() {
            return;
        }
        let bytes = self.guard.reservable().min(BYTES);
        if bytes < RESERVATION_BYTES_MIN {
            return;
        }
        let next = self.guard.next;
        self.guard.reserved = Some(bytes);
        self.shared.first.store(next, Ordering::Release);
        self.shared.before_end.store(UNKNOWN, Ordering::Relaxed);
        let word = next << NUMBER_AT | (BYTES - bytes);
        self.shared.word.store(word, Ordering::Release);
    }

    /// Runs `act` without the lock.
    pub(super) fn unlocked<T>(&mut self, act: impl FnOnce() -> T) -> T {
        self.reserve();
        let done = MutexGuard::unlocked(&mut self.guard, act);
        self.end_range();
        done
    }

    /// Waits until `signal` is signalled.
    pub(super) fn wait(&mut self, signal: &Condvar) {
        self.reserve();
        signal.wait(&mut self.guard);
        self.end_range();
    }

    /// The same, with a timeout; returns whether it timed out.
    pub(super) fn wait_for(&mut self, signal: &Condvar, time: Duration) -> bool {
        self.reserve();
        let over = signal.wait_for(&mut self.guard, time).timed_out();
        self.end_range();
        over
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.reserve();
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        &self.guard
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_recovered_from_its_lower_bits_and_a_nearby_number() {
        for near in
            [1, 2, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, u64::from(u32::MAX), 1 << 40]
        {
            for apart in [0, 1, -1, 77, -77, 1 << 29, -(1 << 29)] {
                let Some(value) = u64::checked_add_signed(near, apart) else { continue };
                let word = value << NUMBER_AT | 0x1234;
                assert_eq!(number(word, near), value, "{apart} from {near}");
                assert_eq!(
                    number(word.wrapping_add(ONE + 300), near),
                    value + 1,
                    "{apart} from {near}"
                );
            }
        }
    }
}
