//! Locks on objects and names: striped, taken in one order, so that they cannot deadlock.
//!
//! An operation reads without locks to learn what it touches, takes all locks that it needs at
//! once with [`LockTable::lock`], and reads again. Nothing is locked while holding a [`LockSet`].

use std::hash::Hasher as _;

use device::FastHasher;
use device::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How many stripes there are: enough that 64 threads rarely meet by chance.
const STRIPES: usize = 4096;

/// What is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lock {
    /// An inode: its attributes, contents and place. Shared on a directory: it stays, its entries
    /// may change.
    Object { subvol: u64, ino: u64 },
    /// All names of one hash in a directory.
    Name { subvol: u64, dir: u64, hash: u64 },
    /// The position of a directory: shared on everything above a target, exclusive on what moves.
    Place { subvol: u64, ino: u64 },
}

/// How it is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Shared with others.
    Shared,
    /// Exclusive.
    Exclusive,
}

impl Lock {
    #[inline]
    fn stripe(self) -> u16 {
        let mut hasher = FastHasher::default();
        let (subvol, first, second) = match self {
            Lock::Object { subvol, ino } => (subvol, ino, 0),
            Lock::Name { subvol, dir, hash } => (subvol, dir, hash << 1 | 1),
            Lock::Place { subvol, ino } => (subvol, ino, 2),
        };
        hasher.write_u64(first ^ subvol << 40);
        hasher.write_u64(second);
        (hasher.finish() >> 32) as u16 & (STRIPES as u16 - 1)
    }
}

/// The stripes.
pub(crate) struct LockTable {
    stripes: Box<[RwLock<()>]>,
}

enum Guard<'a> {
    Shared(#[expect(dead_code, reason = "held")] RwLockReadGuard<'a, ()>),
    Exclusive(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'a, ()>),
}

/// Most locks that are held without allocation: a rename in its usual form.
const INLINE: usize = 8;

/// Held locks; dropping releases them.
pub(crate) struct LockSet<'a> {
    inline: [Option<Guard<'a>>; INLINE],
    more: Vec<Guard<'a>>,
}

impl LockTable {
    /// A table with nothing locked.
    pub(crate) fn new() -> LockTable {
        LockTable { stripes: (0..STRIPES).map(|_| RwLock::new(())).collect() }
    }

    /// Takes one lock shared.
    #[inline]
    pub(crate) fn shared(&self, lock: Lock) -> RwLockReadGuard<'_, ()> {
        self.stripes[usize::from(lock.stripe())].read()
    }

    /// Takes one lock exclusively.
    #[inline]
    pub(crate) fn exclusive(&self, lock: Lock) -> RwLockWriteGuard<'_, ()> {
        self.stripes[usize::from(lock.stripe())].write()
    }

    /// Takes several locks.
    #[inline]
    pub(crate) fn lock(&self, locks: &[(Lock, Mode)]) -> LockSet<'_> {
        if locks.len() <= INLINE {
            let mut wanted = [(u16::MAX, Mode::Shared); INLINE];
            for (slot, (lock, mode)) in wanted.iter_mut().zip(locks) {
                *slot = (lock.stripe(), *mode);
            }
            self.take(&mut wanted[..locks.len()])
        } else {
            let mut wanted: Vec<_> =
                locks.iter().map(|(lock, mode)| (lock.stripe(), *mode)).collect();
            self.take(&mut wanted)
        }
    }

    #[inline]
    fn take(&self, wanted: &mut [(u16, Mode)]) -> LockSet<'_> {
        // Of two modes for a stripe the exclusive one sorts last, and the last one is taken.
        if wanted.len() == 2 {
            if wanted[0] > wanted[1] {
                wanted.swap(0, 1);
            }
        } else {
            wanted.sort_unstable();
        }
        let mut set = LockSet { inline: [const { None }; INLINE], more: Vec::new() };
        let mut used = 0;
        for (at, &(stripe, mode)) in wanted.iter().enumerate() {
            if wanted.get(at + 1).is_some_and(|next| next.0 == stripe) {
                continue;
            }
            let lock = &self.stripes[usize::from(stripe)];
            let guard = match mode {
                Mode::Shared => Guard::Shared(lock.read()),
                Mode::Exclusive => Guard::Exclusive(lock.write()),
            };
            if used < INLINE {
                set.inline[used] = Some(guard);
                used += 1;
            } else {
                set.more.push(guard);
            }
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::{Lock, LockTable, Mode};

    #[test]
    fn a_stripe_requested_twice_is_locked_once_and_exclusively() {
        let table = LockTable::new();
        let object = Lock::Object { subvol: 1, ino: 2 };
        let held = table.lock(&[
            (object, Mode::Exclusive),
            (object, Mode::Shared),
            (Lock::Name { subvol: 1, dir: 2, hash: 3 }, Mode::Exclusive),
        ]);
        assert!(table.stripes[usize::from(object.stripe())].try_read().is_none());
        drop(held);
        assert!(table.stripes[usize::from(object.stripe())].try_write().is_some());
    }

    #[test]
    fn many_locks_are_held_and_released() {
        let table = LockTable::new();
        let locks: Vec<_> =
            (0..100).map(|ino| (Lock::Place { subvol: 1, ino }, Mode::Shared)).collect();
        let held = table.lock(&locks);
        for (lock, _) in &locks {
            assert!(table.stripes[usize::from(lock.stripe())].try_write().is_none());
        }
        drop(held);
        assert!(table.stripes.iter().all(|stripe| stripe.try_write().is_some()));
    }
}
