//! Locks and condition variables that ask the scheduler before they wait.
//!
//! Each has the ordinary lock inside. A driven thread never blocks on that: it tries, and if the
//! lock is taken, waits in the scheduler for the lock's address.

#![expect(unsafe_code, reason = "what guards a value is an unsafe trait")]

use std::ptr;
use std::time::{Duration, Instant};

use parking_lot::lock_api::{self, GuardSend, RawMutex as _, RawRwLock as _};

use super::{Point, now, pause, wake, with};

/// A value, and the mutex that guards it.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// A locked mutex.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// A value, and the lock that guards it.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// A lock that is shared.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// A lock that is held exclusively.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// The address by which the scheduler knows an object.
fn address<T>(of: &T) -> usize {
    ptr::from_ref(of).addr()
}

/// Takes a lock by trying; returns whether it was taken before the time was over, or `None` if this
/// thread is not driven.
fn driven_lock(on: usize, most: Option<Duration>, mut take: impl FnMut() -> bool) -> Option<bool> {
    let now = now()?;
    let until = most.map(|most| now.saturating_add(most));
    pause(Point::Lock);
    loop {
        if take() {
            return Some(true);
        }
        if !with(|scheduler, me| scheduler.wait(me, on, until))? {
            return Some(false);
        }
    }
}

fn wake_all(on: usize) {
    wake(on, usize::MAX);
}

/// A mutex without a value.
pub struct RawMutex(parking_lot::RawMutex);

// SAFETY: the lock inside is held exactly while this one is.
unsafe impl lock_api::RawMutex for RawMutex {
    const INIT: RawMutex = RawMutex(parking_lot::RawMutex::INIT);

    // As those of the lock inside: the feature `send_guard` of `parking_lot`.
    type GuardMarker = GuardSend;

    fn lock(&self) {
        if driven_lock(address(self), None, || self.0.try_lock()).is_none() {
            self.0.lock();
        }
    }

    fn try_lock(&self) -> bool {
        pause(Point::Lock);
        self.0.try_lock()
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller holds this mutex, and so the one inside.
        unsafe { self.0.unlock() };
        wake_all(address(self));
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, most: Duration) -> bool {
        driven_lock(address(self), Some(most), || self.0.try_lock())
            .unwrap_or_else(|| self.0.try_lock_for(most))
    }

    /// Only for threads that are not driven: an `Instant` is real time.
    fn try_lock_until(&self, until: Instant) -> bool {
        self.0.try_lock_until(until)
    }
}

/// A lock that is shared or exclusive, without a value.
pub struct RawRwLock(parking_lot::RawRwLock);

impl RawRwLock {
    /// Whether a thread holds it exclusively.
    pub(crate) fn is_locked_exclusive(&self) -> bool {
        self.0.is_locked_exclusive()
    }
}

// SAFETY: the lock inside is held, in the same way, exactly while this one is.
unsafe impl lock_api::RawRwLock for RawRwLock {
    const INIT: RawRwLock = RawRwLock(parking_lot::RawRwLock::INIT);

    // As those of the lock inside: the feature `send_guard` of `parking_lot`.
    type GuardMarker = GuardSend;

    fn lock_shared(&self) {
        if driven_lock(address(self), None, || self.0.try_lock_shared()).is_none() {
            self.0.lock_shared();
        }
    }

    fn try_lock_shared(&self) -> bool {
        pause(Point::Lock);
        self.0.try_lock_shared()
    }

    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller shares this lock, and so the one inside.
        unsafe { self.0.unlock_shared() };
        wake_all(address(self));
    }

    fn lock_exclusive(&self) {
        if driven_lock(address(self), None, || self.0.try_lock_exclusive()).is_none() {
            self.0.lock_exclusive();
        }
    }

    fn try_lock_exclusive(&self) -> bool {
        pause(Point::Lock);
        self.0.try_lock_exclusive()
    }

    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller holds this lock exclusively, and so the one inside.
        unsafe { self.0.unlock_exclusive() };
        wake_all(address(self));
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockTimed for RawRwLock {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_shared_for(&self, most: Duration) -> bool {
        driven_lock(address(self), Some(most), || self.0.try_lock_shared())
            .unwrap_or_else(|| self.0.try_lock_shared_for(most))
    }

    /// Only for threads that are not driven: an `Instant` is real time.
    fn try_lock_shared_until(&self, until: Instant) -> bool {
        self.0.try_lock_shared_until(until)
    }

    fn try_lock_exclusive_for(&self, most: Duration) -> bool {
        driven_lock(address(self), Some(most), || self.0.try_lock_exclusive())
            .unwrap_or_else(|| self.0.try_lock_exclusive_for(most))
    }

    /// Only for threads that are not driven: an `Instant` is real time.
    fn try_lock_exclusive_until(&self, until: Instant) -> bool {
        self.0.try_lock_exclusive_until(until)
    }
}

/// Whether a wait ended because its time was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time was over.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

/// A condition variable.
///
/// For threads that are not driven it has a count of notifications and an ordinary condition
/// variable. `notify_one` wakes one that waits, and any that has not begun to: as without this
/// feature, code that should have woken all of them fails.
#[derive(Debug, Default)]
pub struct Condvar {
    notified: parking_lot::Mutex<u64>,
    changed: parking_lot::Condvar,
}

impl Condvar {
    /// A condition variable that no thread waits for.
    pub const fn new() -> Condvar {
        Condvar { notified: parking_lot::const_mutex(0), changed: parking_lot::Condvar::new() }
    }

    /// Wakes a thread.
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all threads.
    pub fn notify_all(&self) {
        self.notify(usize::MAX);
    }

    fn notify(&self, most: usize) {
        wake(address(self), most);
        let mut notified = self.notified.lock();
        *notified += 1;
        // Under the lock: each thread that waits now began before this count, so whichever is
        // woken continues.
        if most == 1 {
            self.changed.notify_one();
        } else {
            self.changed.notify_all();
        }
    }

    /// Ends the waits of driven threads at a simulated time, as if theirs were over then: they need
    /// not run now to learn of it. Other threads are woken.
    pub fn notify_all_at(&self, at: Duration) {
        if with(|scheduler, _| scheduler.wake_at(address(self), at)).is_none() {
            self.notify(usize::MAX);
        }
    }

    /// Releases the mutex, waits, and takes it again.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_at_most(guard, None);
    }

    /// The same, for a limited time.
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        most: Duration,
    ) -> WaitTimeoutResult {
        WaitTimeoutResult(!self.wait_at_most(guard, Some(most)))
    }

    /// Waits while a condition holds.
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(&mut **guard) {
            self.wait(guard);
        }
    }

    /// Waits while a condition holds, for a limited time.
    pub fn wait_while_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        most: Duration,
    ) -> WaitTimeoutResult {
        let clock = crate::SystemClock::new();
        let begun = crate::Clock::monotonic(&clock);
        while condition(&mut **guard) {
            let passed = crate::Clock::monotonic(&clock).saturating_sub(begun);
            let left = most.saturating_sub(passed);
            if left.is_zero() || !self.wait_at_most(guard, Some(left)) {
                return WaitTimeoutResult(condition(&mut **guard));
            }
        }
        WaitTimeoutResult(false)
    }

    /// Returns whether it was notified.
    fn wait_at_most<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        most: Option<Duration>,
    ) -> bool {
        let before = *self.notified.lock();
        // Nothing runs between the release of the mutex and the scheduler's wait, so no
        // notification is lost.
        MutexGuard::unlocked(guard, || {
            let driven = with(|scheduler, me| {
                let until = most.map(|most| scheduler.now().saturating_add(most));
                scheduler.wait(me, address(self), until)
            });
            driven.unwrap_or_else(|| self.wait_undriven(before, most))
        })
    }

    fn wait_undriven(&self, before: u64, most: Option<Duration>) -> bool {
        let mut notified = self.notified.lock();
        let unchanged = |notified: &mut u64| *notified == before;
        match most {
            None => {
                self.changed.wait_while(&mut notified, unchanged);
                true
            }
            Some(most) => !self.changed.wait_while_for(&mut notified, unchanged, most).timed_out(),
        }
    }
}
