//! Locks over keys, so that commits that touch the same key are logged in the order in which they
//! are applied. A key has one of a fixed number of locks; a commit takes its locks in order.
//!
//! The locks stand in groups. Keys that agree in all but their end - the entries of a directory,
//! the extents of a file - have one group, and in it the whole key decides. So threads that work
//! in different places seldom touch the same cache line, which costs more than a lock that is
//! free, and threads in one place seldom wait for each other.

use std::hash::Hasher;

use device::FastHasher;
use parking_lot::{Mutex, MutexGuard};

/// Groups. Enough that two places seldom meet by chance.
const GROUPS: usize = 128;
/// Locks of a group: more than threads that may work in one place at once.
const GROUP_STRIPES: usize = 16;
const STRIPES: usize = GROUPS * GROUP_STRIPES;
/// Bytes at the end of a key that do not decide about its group, but no more than half of it.
const END_BYTES: usize = 8;
/// Locks that a commit holds without allocating.
const FEW: usize = 4;

/// A lock with a cache line of its own.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Stripe(Mutex<()>);

/// The locks.
#[derive(Debug)]
pub(crate) struct Stripes {
    stripes: Vec<Stripe>,
}

/// Which locks a commit needs, ascending, each once.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    few: [u16; FEW],
    count: usize,
    many: Vec<u16>,
}

impl Wanted {
    pub(crate) fn add(&mut self, tree: u64, key: &[u8]) {
        let stripe = stripe_of(tree, key);
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

    fn sorted(&mut self) -> &[u16] {
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

/// Held locks: a few without allocating, or many.
pub(crate) type Held<'a> = ([Option<MutexGuard<'a, ()>>; FEW], Vec<MutexGuard<'a, ()>>);

impl Stripes {
    pub(crate) fn new() -> Stripes {
        Stripes { stripes: (0..STRIPES).map(|_| Stripe::default()).collect() }
    }

    /// Takes the locks.
    pub(crate) fn lock(&self, wanted: &mut Wanted) -> Held<'_> {
        let sorted = wanted.sorted();
        let (mut few, mut many) = ([const { None }; FEW], Vec::new());
        if sorted.len() <= FEW {
            let mut last = None;
            for (slot, &stripe) in few.iter_mut().zip(sorted) {
                if last != Some(stripe) {
                    *slot = Some(self.stripes[usize::from(stripe)].0.lock());
                    last = Some(stripe);
                }
            }
        } else {
            many =
                sorted.iter().map(|&stripe| self.stripes[usize::from(stripe)].0.lock()).collect();
        }
        (few, many)
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
        let spread: BTreeSet<u16> =
            (0..=u16::MAX).map(|n| stripe_of(1, &n.to_be_bytes())).collect();
        assert!(spread.len() > STRIPES / 2, "{} of {STRIPES} locks", spread.len());
    }

    #[test]
    fn a_commit_takes_each_of_its_locks_once() {
        let stripes = Stripes::new();
        for count in 1..40_u64 {
            let mut wanted = Wanted::default();
            for n in 0..count {
                wanted.add(1, &key(1, n << 32));
                wanted.add(1, &key(1, n << 32));
            }
            // A lock taken twice would wait for itself.
            let (few, many) = stripes.lock(&mut wanted);
            assert!(few.iter().flatten().count() + many.len() > 0);
        }
    }
}
