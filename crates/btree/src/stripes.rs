//! Locks over keys, so that commits that touch the same key are logged in the order in which they
//! are applied. A key has one of a fixed number of locks; a commit takes its locks in order.

use std::hash::Hasher;

use device::FastHasher;
use parking_lot::{Mutex, MutexGuard};

/// Locks. Enough that two commits seldom meet by chance.
const STRIPES: usize = 1024;
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
        let mut hasher = FastHasher::default();
        hasher.write_u64(tree);
        hasher.write(key);
        let stripe = (hasher.finish() % STRIPES as u64) as u16;
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
