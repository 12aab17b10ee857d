//! Locks on objects and names: striped, taken in one order, so that they cannot deadlock.
//!
//! An operation reads without locks to learn what it touches, takes all locks that it needs at
//! once with [`LockTable::lock`], and reads again. Nothing is locked while holding a [`LockSet`].

use std::hash::Hasher as _;

use device::FastHasher;
use device::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How many stripes objects and names have, and how many places have: enough that 64 threads rarely
/// meet by chance. Places have stripes of their own, because a directory that moves locks those of
/// all directories above its target: of a deep one all stripes. No creation, write or removal waits
/// for it.
const STRIPES: usize = 4096;

/// What is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// An inode: its attributes, contents and place. Shared on a directory: it stays, its entries
    /// may change.
    Object {
        /// The subvolume.
        subvol: u64,
        /// The inode.
        ino: u64,
    },
    /// All names of one hash in a directory.
    Name {
        /// The subvolume.
        subvol: u64,
        /// The directory.
        dir: u64,
        /// The hash.
        hash: u64,
    },
    /// The position of a directory: shared on everything above a target, exclusive on what moves.
    Place {
        /// The subvolume.
        subvol: u64,
        /// The inode.
        ino: u64,
    },
}

/// How it is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Shared with others.
    Shared,
    /// Exclusive.
    Exclusive,
}

impl Lock {
    #[inline]
    fn stripe(self) -> u16 {
        let mut hasher = FastHasher::default();
        let (subvol, first, second, of) = match self {
            Lock::Object { subvol, ino } => (subvol, ino, 0, 0),
            Lock::Name { subvol, dir, hash } => (subvol, dir, hash << 1 | 1, 0),
            Lock::Place { subvol, ino } => (subvol, ino, 2, STRIPES as u16),
        };
        hasher.write_u64(first ^ subvol << 40);
        hasher.write_u64(second);
        (hasher.finish() >> 32) as u16 & (STRIPES as u16 - 1) | of
    }
}

/// The stripes.
pub struct LockTable {
    stripes: Box<[RwLock<()>]>,
}

enum Guard<'a> {
    Shared(#[expect(dead_code, reason = "held")] RwLockReadGuard<'a, ()>),
    Exclusive(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'a, ()>),
}

/// Most locks that are held without allocation: a rename in its usual form.
const INLINE: usize = 8;

/// Held locks; dropping releases them. They belong to the value, and move with it to
/// another thread.
pub struct LockSet<'a> {
    held: Held<'a>,
}

#[expect(dead_code, reason = "held")]
enum Held<'a> {
    None,
    One(Guard<'a>),
    Few([Option<Guard<'a>>; INLINE]),
    Many(Vec<(u16, Guard<'a>)>),
}

impl LockSet<'_> {
    /// Releases the places that are locked shared, if they are many. A directory that moves needs
    /// those of what is above its target only until it is known that it is not one of them.
    pub fn free_shared_places(&mut self) {
        if let Held::Many(held) = &mut self.held {
            held.retain(|(stripe, guard)| {
                usize::from(*stripe) < STRIPES || matches!(guard, Guard::Exclusive(_))
            });
        }
    }
}

impl Default for LockTable {
    fn default() -> LockTable {
        LockTable::new()
    }
}

impl LockTable {
    /// A table with nothing locked.
    pub fn new() -> LockTable {
        LockTable { stripes: (0..2 * STRIPES).map(|_| RwLock::new(())).collect() }
    }

    /// Takes one lock shared.
    #[inline]
    pub fn shared(&self, lock: Lock) -> RwLockReadGuard<'_, ()> {
        self.stripes[usize::from(lock.stripe())].read()
    }

    /// Takes several locks.
    #[inline]
    pub fn lock(&self, locks: &[(Lock, Mode)]) -> LockSet<'_> {
        let held = match locks {
            [] => Held::None,
            [(lock, mode)] => Held::One(self.guard(lock.stripe(), *mode)),
            _ if locks.len() <= INLINE => {
                let mut wanted = [(u16::MAX, Mode::Shared); INLINE];
                for (slot, (lock, mode)) in wanted.iter_mut().zip(locks) {
                    *slot = (lock.stripe(), *mode);
                }
                self.few(&mut wanted[..locks.len()])
            }
            _ => self.many(locks),
        };
        LockSet { held }
    }

    #[inline]
    fn guard(&self, stripe: u16, mode: Mode) -> Guard<'_> {
        let lock = &self.stripes[usize::from(stripe)];
        match mode {
            Mode::Shared => Guard::Shared(lock.read()),
            Mode::Exclusive => Guard::Exclusive(lock.write()),
        }
    }

    #[inline]
    fn few(&self, wanted: &mut [(u16, Mode)]) -> Held<'_> {
        // Two or three are the locks of most operations.
        let order = |first: &mut (u16, Mode), second: &mut (u16, Mode)| {
            if *first > *second {
                std::mem::swap(first, second);
            }
        };
        match wanted {
            [first, second] => order(first, second),
            [first, second, third] => {
                order(first, second);
                order(second, third);
                order(first, second);
            }
            _ => wanted.sort_unstable(),
        }
        let mut few = [const { None }; INLINE];
        for (slot, (stripe, mode)) in few.iter_mut().zip(once(wanted)) {
            *slot = Some(self.guard(stripe, mode));
        }
        Held::Few(few)
    }

    #[cold]
    fn many(&self, locks: &[(Lock, Mode)]) -> Held<'_> {
        let mut wanted: Vec<_> = locks.iter().map(|(lock, mode)| (lock.stripe(), *mode)).collect();
        wanted.sort_unstable();
        let guard = |(stripe, mode)| (stripe, self.guard(stripe, mode));
        Held::Many(once(&wanted).map(guard).collect())
    }
}

/// Each stripe once, of those that are sorted. Of two modes for one the exclusive one sorts last,
/// and the last one is taken.
#[inline]
fn once(wanted: &[(u16, Mode)]) -> impl Iterator<Item = (u16, Mode)> {
    let is_last = |at: usize| wanted.get(at + 1).is_none_or(|next| next.0 != wanted[at].0);
    (0..wanted.len()).filter(move |at| is_last(*at)).map(|at| wanted[at])
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
    fn locks_are_released_by_the_thread_that_has_them() {
        let table = LockTable::new();
        let locks = [1, 2].map(|ino| (Lock::Object { subvol: 1, ino }, Mode::Exclusive));
        let is_free = |lock: Lock| table.stripes[usize::from(lock.stripe())].try_write().is_some();
        for count in [1, 2] {
            let held = table.lock(&locks[..count]);
            assert!(!is_free(locks[0].0));
            device::scope(|scope| {
                scope.spawn(move || drop(held));
            });
            assert!(is_free(locks[0].0));
        }
    }

    /// A rename to below 20,000 directories held nearly all stripes, and each creation, write and
    /// removal in the volume waited for it.
    #[test]
    fn the_places_above_a_deep_target_block_no_object_and_no_name() {
        let table = LockTable::new();
        let place = |ino| (Lock::Place { subvol: 1, ino }, Mode::Shared);
        let held = table.lock(&(0..100_000).map(place).collect::<Vec<_>>());
        let is_free = |lock: Lock| table.stripes[usize::from(lock.stripe())].try_write().is_some();
        for ino in 0..20_000 {
            assert!(is_free(Lock::Object { subvol: 1, ino }));
            assert!(is_free(Lock::Name { subvol: 1, dir: 7, hash: ino }));
            assert!(!is_free(Lock::Place { subvol: 2, ino }), "all places are taken");
        }
        drop(held);
    }

    #[test]
    fn shared_places_are_released_and_nothing_else() {
        let table = LockTable::new();
        let place = |ino| Lock::Place { subvol: 1, ino };
        let mut locks: Vec<_> = (1..100).map(|ino| (place(ino), Mode::Shared)).collect();
        locks.push((place(0), Mode::Exclusive));
        locks.push((Lock::Object { subvol: 1, ino: 0 }, Mode::Shared));
        let mut held = table.lock(&locks);
        held.free_shared_places();
        let is_free = |lock: Lock| table.stripes[usize::from(lock.stripe())].try_write().is_some();
        assert!(!is_free(place(0)) && !is_free(Lock::Object { subvol: 1, ino: 0 }));
        let others = (1..100).filter(|ino| place(*ino).stripe() != place(0).stripe());
        assert!({ others }.all(|ino| is_free(place(ino))));
        drop(held);
        assert!(table.stripes.iter().all(|stripe| stripe.try_write().is_some()));
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
