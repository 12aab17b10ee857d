//! Directories that change or arrive while a thread checks who owns a tree.
//!
//! `rmr` and `rollback` walk a tree without locks to verify that the caller owns every directory in
//! it. A batch that changes something behind the walk notes it here while it is inside its
//! subvolume's gate. So a thread that then holds the gates exclusively knows every change. Nothing
//! is noted while no such walk is in progress.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::sync::Mutex;
use store::TreeId;

/// Most directories that are noted for one walk: with more it starts again.
const NOTED_MAX: usize = 1 << 16;

/// A directory that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arrival {
    /// A directory's record, of a directory that does not belong to the caller.
    Written(TreeId, u64),
    /// A directory that moved, with everything below it.
    Moved(TreeId, u64),
    /// A subvolume, mounted by an entry.
    Mounted(u64),
}

/// What was noted for one walk.
#[derive(Debug, Default)]
pub struct Arrived {
    /// Each once, however often it changed.
    pub found: BTreeSet<Arrival>,
    /// Whether something was left out.
    pub overflowed: bool,
}

struct Watch {
    id: usize,
    /// The user whose directories are not noted.
    uid: u32,
    arrived: Arrived,
}

/// The walks under way.
#[derive(Default)]
pub struct Arrivals {
    active: AtomicUsize,
    next: AtomicUsize,
    watches: Mutex<Vec<Watch>>,
}

impl Arrivals {
    /// Begins to note changes, except of directories that the given user owns. A change that passed
    /// its gate before may be missed: the caller waits for those.
    pub fn watch(&self, uid: u32) -> usize {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut watches = self.watches.lock();
        watches.push(Watch { id, uid, arrived: Arrived::default() });
        self.active.store(watches.len(), Ordering::SeqCst);
        id
    }

    /// Ends a watch.
    pub fn end(&self, id: usize) {
        let mut watches = self.watches.lock();
        watches.retain(|watch| watch.id != id);
        self.active.store(watches.len(), Ordering::SeqCst);
    }

    /// Takes what was noted.
    pub fn take(&self, id: usize) -> Arrived {
        let mut watches = self.watches.lock();
        let watch = watches.iter_mut().find(|watch| watch.id == id);
        watch.map(|watch| std::mem::take(&mut watch.arrived)).unwrap_or_default()
    }

    /// Takes what was noted if it is at most this many; takes nothing otherwise.
    pub fn take_few(&self, id: usize, most: usize) -> Option<BTreeSet<Arrival>> {
        let mut watches = self.watches.lock();
        let watch = watches.iter_mut().find(|watch| watch.id == id)?;
        let few = !watch.arrived.overflowed && watch.arrived.found.len() <= most;
        few.then(|| std::mem::take(&mut watch.arrived.found))
    }

    /// Puts back what was taken, to be examined later.
    pub fn put_back(&self, id: usize, found: &BTreeSet<Arrival>) {
        for watch in self.watches.lock().iter_mut().filter(|watch| watch.id == id) {
            watch.arrived.found.extend(found);
        }
    }

    /// Notes a change; `uid` is the owner where that is known to be all that matters.
    #[inline]
    pub fn note(&self, arrival: Arrival, uid: Option<u32>) {
        if self.active.load(Ordering::SeqCst) > 0 {
            self.note_watched(arrival, uid);
        }
    }

    #[cold]
    fn note_watched(&self, arrival: Arrival, uid: Option<u32>) {
        for watch in &mut *self.watches.lock() {
            if uid == Some(watch.uid) {
                continue;
            }
            watch.arrived.found.insert(arrival);
            if watch.arrived.found.len() > NOTED_MAX {
                watch.arrived.found.remove(&arrival);
                watch.arrived.overflowed = true;
            }
        }
    }
}
