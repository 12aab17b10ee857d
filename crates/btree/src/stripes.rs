//! Locks over keys, so that commits that touch the same key are logged in the order in which they
//! are applied. A key has one of a fixed number of locks; a commit takes its locks in order.
//!
//! Commits that only add to numbers in a key's value share its lock. The order of additions does
//! not change the sum, so a replay of the log gets the same result. So threads that count in one
//! place, such as creators of files in a subvolume, do not wait for each other's commits.
//!
//! The locks are in groups. Keys that differ only at their end, such as the entries of a directory
//! or the extents of a file, share a group. Within it the whole key selects the lock. So threads
//! that work in different places seldom touch the same cache line, which costs more than a lock
//! that is free. Threads in one place seldom wait for each other.

use std::hash::Hasher;

use device::FastHasher;
use device::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Number of groups. Enough that two places seldom collide. If each of two threads works in 40
/// places, one place in thirteen shares its group with one of the other thread's.
const GROUPS: usize = 512;
/// Locks of a group: more than threads that may work in one place at once.
const GROUP_STRIPES: usize = 16;
const STRIPES: usize = GROUPS * GROUP_STRIPES;
/// Bytes at the end of a key that do not select its group, but no more than half of it.
const END_BYTES: usize = 8;
/// Locks that a commit holds without allocating.
const FEW: usize = 4;

/// A lock with a cache line of its own.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Stripe(RwLock<()>);

/// The locks.
#[derive(Debug)]
pub(crate) struct Stripes {
    stripes: Vec<Stripe>,
}

/// How a lock is taken. The more exclusive mode sorts last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Mode {
    /// Shared with other adders.
    #[default]
    Adds,
    /// Exclusive.
    Changes,
}

/// A lock, and how it is taken.
type Taken = (u16, Mode);

/// The locks that a commit needs, ascending.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    few: [Taken; FEW],
    count: usize,
    many: Vec<Taken>,
}

impl Wanted {
    pub(crate) fn add(&mut self, tree: u64, key: &[u8], mode: Mode) {
        let stripe = (stripe_of(tree, key), mode);
        if self.count < FEW {
            self.few[self.count] = stripe;
        } else {
            if self.count == FEW {
                self.many.extend_from_slice(&self.few);
            }
            self.many.push(stripe);
        }
        self.count += 1;
    }

    fn sorted(&mut self) -> &[Taken] {
        if self.count <= FEW {
            let few = &mut self.few[..self.count];
            few.sort_unstable();
            return few;
        }
        self.many.sort_unstable();
        self.many.dedup();
        &self.many
    }
}

/// The lock of a key.
#[inline]
fn stripe_of(tree: u64, key: &[u8]) -> u16 {
    let (place, end) = key.split_at(key.len() - END_BYTES.min(key.len() / 2));
    let mut hasher = FastHasher::default();
    hasher.write_u64(tree);
    hasher.write(place);
    let group = hasher.finish() % GROUPS as u64;
    hasher.write(end);
    let stripe = hasher.finish() % GROUP_STRIPES as u64;
    (group * GROUP_STRIPES as u64 + stripe) as u16
}

/// A lock that is held.
pub(crate) enum Guard<'a> {
    Adds(#[expect(dead_code, reason = "held")] RwLockReadGuard<'a, ()>),
    Changes(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'a, ()>),
}

/// Held locks: a few without allocating, or many.
pub(crate) type Held<'a> = ([Option<Guard<'a>>; FEW], Vec<Guard<'a>>);

impl Stripes {
    pub(crate) fn new() -> Stripes {
        Stripes { stripes: (0..STRIPES).map(|_| Stripe::default()).collect() }
    }

    /// Takes the locks, each once: exclusively if it is requested in both modes.
    pub(crate) fn lock(&self, wanted: &mut Wanted) -> Held<'_> {
        let sorted = wanted.sorted();
        let (mut few, mut many) = ([const { None }; FEW], Vec::new());
        let last = |at: usize| sorted.get(at + 1).is_none_or(|next| next.0 != sorted[at].0);
        if sorted.len() <= FEW {
            for (at, slot) in few.iter_mut().enumerate().take(sorted.len()) {
                if last(at) {
                    *slot = Some(self.take(sorted[at]));
                }
            }
        } else {
            let each = (0..sorted.len()).filter(|&at| last(at));
            many.extend(each.map(|at| self.take(sorted[at])));
        }
        (few, many)
    }

    #[inline]
    fn take(&self, (stripe, mode): Taken) -> Guard<'_> {
        let lock = &self.stripes[usize::from(stripe)].0;
        match mode {
            Mode::Adds => Guard::Adds(lock.read()),
            Mode::Changes => Guard::Changes(lock.write()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn key(directory: u64, hash: u64) -> [u8; 17] {
        let mut key = [b'D'; 17];
        key[1..9].copy_from_slice(&directory.to_be_bytes());
        key[9..].copy_from_slice(&hash.to_be_bytes());
        key
    }

    #[test]
    fn entries_of_a_directory_share_a_group_and_directories_do_not() {
        let mut groups = BTreeSet::new();
        for directory in 0..GROUPS as u64 {
            let stripes: BTreeSet<u16> =
                (0..500_u64).map(|n| stripe_of(7, &key(directory, n << 50 | n))).collect();
            assert_eq!(stripes.len(), GROUP_STRIPES, "all of a group's locks are used");
            let group = |stripe: &u16| usize::from(*stripe) / GROUP_STRIPES;
            let own: BTreeSet<usize> = stripes.iter().map(group).collect();
            assert_eq!(own.len(), 1);
            groups.extend(own);
        }
        assert!(groups.len() > GROUPS / 2, "{} groups", groups.len());
    }

    #[test]
    fn short_keys_have_locks_too() {
        let stripes = |keys: &[&[u8]]| -> Vec<u16> {
            keys.iter()
                .map(|key| stripe_of(1, key))
                .filter(|at| usize::from(*at) < STRIPES)
                .collect()
        };
        assert_eq!(stripes(&[b"", b"a", b"ab", b"abc"]).len(), 4);
        // Keys of three bytes: two of them select the group.
        let spread: BTreeSet<u16> =
            (0..1_u32 << 16).map(|n| stripe_of(1, &(n * 251).to_be_bytes()[1..])).collect();
        assert!(spread.len() > STRIPES / 2, "{} of {STRIPES} locks", spread.len());
    }

    #[test]
    fn a_commit_takes_each_of_its_locks_once() {
        let stripes = Stripes::new();
        for count in 1..40_u64 {
            let mut wanted = Wanted::default();
            for n in 0..count {
                wanted.add(1, &key(1, n << 32), Mode::Changes);
                wanted.add(1, &key(1, n << 32), Mode::Adds);
            }
            // A lock taken twice would deadlock.
            let (few, many) = stripes.lock(&mut wanted);
            assert!(few.iter().flatten().count() + many.len() > 0);
        }
    }
    #[test]
    fn adders_share_a_lock() {
        for others in [0, 1, 40_u64] {
            let stripes = Stripes::new();
            let is_free = |mode: Mode, held: Mode| {
                let mut wanted = Wanted::default();
                wanted.add(1, b"count", held);
                (0..others).for_each(|n| wanted.add(1, &key(n, n << 32), Mode::Adds));
                let _held = stripes.lock(&mut wanted);
                let lock = &stripes.stripes[usize::from(stripe_of(1, b"count"))].0;
                match mode {
                    Mode::Adds => lock.try_read().is_some(),
                    Mode::Changes => lock.try_write().is_some(),
                }
            };
            assert!(is_free(Mode::Adds, Mode::Adds));
            assert!(!is_free(Mode::Changes, Mode::Adds));
            assert!(!is_free(Mode::Adds, Mode::Changes));
        }
    }
}
