//! Directories that change or arrive while a thread checks who owns a tree.
//!
//! `rmr` and `rollback` walk a tree without locks to verify that the caller owns every directory in
//! it. A batch that changes something behind the walk is noted here before its commit, and is
//! *under way* until the commit has ended. Nothing is noted while no such walk is in progress, nor
//! of trees that it has not reached. The walk reads what was committed by then, and learns of what
//! is under way.
//!
//! Before the thread takes the tree away it *closes* its watch. From then on batches that the watch
//! must know of wait in [`Arrivals::note`] until the watch opens, for one commit. They wait in the
//! trees that were walked and nowhere else. Those under way end first. So the thread knows every
//! change, however many subvolumes the tree has, and holds the gate of none.
//!
//! One watch is closed at a time. A thread that closes one needs no lock afterwards that a thread
//! may hold which waits here: no gate, no stripe, and not the ledger.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::sync::{Condvar, Mutex, MutexGuard};
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
    /// A subvolume, mounted by an entry of a tree.
    Mounted(TreeId, u64),
    /// Another tree takes the place of this one.
    Replaced(TreeId),
}

impl Arrival {
    /// The tree in which something changes.
    fn tree(self) -> TreeId {
        match self {
            Arrival::Written(tree, _)
            | Arrival::Moved(tree, _)
            | Arrival::Mounted(tree, _)
            | Arrival::Replaced(tree) => tree,
        }
    }
}

/// A change and, where that is known to be all that matters, the owner of what is changed.
pub type Note = (Arrival, Option<u32>);

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
    /// The trees that were walked.
    trees: BTreeSet<TreeId>,
    arrived: Arrived,
}

impl Watch {
    fn concerns(&self, (arrival, uid): Note) -> bool {
        uid != Some(self.uid) && self.trees.contains(&arrival.tree())
    }

    fn note(&mut self, note: Note) {
        if !self.concerns(note) {
            return;
        }
        let noted = &mut self.arrived.found;
        if noted.len() < NOTED_MAX {
            noted.insert(note.0);
        } else if noted.get(&note.0).is_none() {
            self.arrived.overflowed = true;
        }
    }
}

#[derive(Default)]
struct State {
    watches: Vec<Watch>,
    /// The one that is closed.
    closed: Option<usize>,
    /// How many batches were noted.
    noted: u64,
    /// Those of them that are not committed yet, by their numbers.
    under_way: Vec<(u64, Vec<Note>)>,
    /// How many batches wait for the watch that is closed.
    waiting: usize,
}

impl State {
    fn watch(&mut self, id: usize) -> Option<&mut Watch> {
        self.watches.iter_mut().find(|watch| watch.id == id)
    }

    /// Whether a batch must wait for the watch that is closed.
    fn blocks(&self, notes: impl Iterator<Item = Note>) -> bool {
        let Some(closed) = self.closed else { return false };
        let watch = self.watches.iter().find(|watch| watch.id == closed);
        watch.is_some_and(|watch| { notes }.any(|note| watch.concerns(note)))
    }

    fn note(&mut self, notes: impl Iterator<Item = Note>) -> u64 {
        let notes: Vec<Note> = notes.collect();
        for watch in &mut self.watches {
            for note in &notes {
                watch.note(*note);
            }
        }
        self.noted += 1;
        self.under_way.push((self.noted, notes));
        self.noted
    }
}

/// The walks under way.
#[derive(Default)]
pub struct Arrivals {
    active: AtomicUsize,
    next: AtomicUsize,
    state: Mutex<State>,
    /// A watch opened, or a batch ended.
    changed: Condvar,
}

/// A batch that was noted, until it is committed or has failed.
pub struct UnderWay<'a> {
    arrivals: &'a Arrivals,
    number: u64,
    waited: bool,
}

impl UnderWay<'_> {
    /// Whether it waited for a watch: a tree was taken away since the batch was planned.
    pub fn waited(&self) -> bool {
        self.waited
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.arrivals.state.lock();
        state.under_way.retain(|(number, _)| *number != self.number);
        drop(state);
        self.arrivals.changed.notify_all();
    }
}

impl Arrivals {
    /// Whether a tree is walked. A batch in a tree for which this is false, behind the gate, is
    /// committed before that is walked.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.active.load(Ordering::SeqCst) > 0
    }

    /// How many batches wait for a watch that is closed.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    /// Begins to note changes, except of directories that the given user owns. A change that passed
    /// its gate before may be missed: the caller waits for those.
    pub fn watch(&self, uid: u32) -> usize {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        let (trees, arrived) = (BTreeSet::new(), Arrived::default());
        state.watches.push(Watch { id, uid, trees, arrived });
        self.active.store(state.watches.len(), Ordering::SeqCst);
        id
    }

    /// Ends a watch.
    pub fn end(&self, id: usize) {
        let mut state = self.state.lock();
        state.watches.retain(|watch| watch.id != id);
        self.active.store(state.watches.len(), Ordering::SeqCst);
        self.open_in(state, id);
    }

    /// A tree is walked from now on, if nothing replaces it meanwhile: its gate is held.
    pub fn walks(&self, id: usize, tree: TreeId) {
        let mut state = self.state.lock();
        let State { watches, under_way, .. } = &mut *state;
        if let Some(watch) = watches.iter_mut().find(|watch| watch.id == id) {
            watch.trees.insert(tree);
            let notes = under_way.iter().flat_map(|(_, notes)| notes);
            notes.filter(|(arrival, _)| arrival.tree() == tree).for_each(|note| watch.note(*note));
        }
    }

    /// The walk begins again: no tree was walked.
    pub fn walks_again(&self, id: usize) {
        if let Some(watch) = self.state.lock().watch(id) {
            watch.trees.clear();
        }
    }

    /// Takes what was noted, after the batches that were are committed.
    pub fn take(&self, id: usize) -> Arrived {
        let mut state = self.state.lock();
        let arrived = state.watch(id).map(|watch| std::mem::take(&mut watch.arrived));
        let last = state.noted;
        self.changed.wait_while(&mut state, |state| {
            state.under_way.iter().any(|(number, _)| *number <= last)
        });
        arrived.unwrap_or_default()
    }

    /// Closes a watch, when no other is closed and what is under way in its trees has ended, and
    /// takes what was noted of them. `None`: it is more than `most`, and the watch is open.
    pub fn close(&self, id: usize, most: usize) -> Option<BTreeSet<Arrival>> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.closed.is_some());
        state.closed = Some(id);
        let last = state.noted;
        self.changed.wait_while(&mut state, |state| {
            let State { watches, under_way, .. } = state;
            let Some(watch) = watches.iter().find(|watch| watch.id == id) else { return false };
            let before = under_way.iter().filter(|(number, _)| *number <= last);
            let notes = { before }.flat_map(|(_, notes)| notes);
            { notes }.any(|(arrival, _)| watch.trees.contains(&arrival.tree()))
        });
        let few = state.watch(id).and_then(|watch| {
            let arrived = &mut watch.arrived;
            let few = !arrived.overflowed && arrived.found.len() <= most;
            few.then(|| std::mem::take(&mut arrived.found))
        });
        if few.is_none() {
            self.open_in(state, id);
        }
        few
    }

    /// Opens a watch, if it is closed: what waits for that continues.
    pub fn open(&self, id: usize) {
        self.open_in(self.state.lock(), id);
    }

    fn open_in(&self, mut state: MutexGuard<'_, State>, id: usize) {
        if state.closed == Some(id) {
            state.closed = None;
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Puts back what was taken, to be examined later.
    pub fn put_back(&self, id: usize, found: &BTreeSet<Arrival>) {
        if let Some(watch) = self.state.lock().watch(id) {
            watch.arrived.found.extend(found);
        }
    }

    /// Notes a batch before its commit; what is returned is dropped after it. Waits while a watch
    /// is closed that the batch concerns, except the one that the caller closed for it.
    #[inline]
    pub fn note(
        &self,
        notes: impl Iterator<Item = Note> + Clone,
        own: Option<usize>,
    ) -> Option<UnderWay<'_>> {
        self.is_watched().then(|| self.note_watched(notes, own))
    }

    #[cold]
    fn note_watched(
        &self,
        notes: impl Iterator<Item = Note> + Clone,
        own: Option<usize>,
    ) -> UnderWay<'_> {
        let mut state = self.state.lock();
        let waited = own.is_none() && state.blocks(notes.clone());
        if waited {
            state.waiting += 1;
            self.changed.wait_while(&mut state, |state| state.blocks(notes.clone()));
            state.waiting -= 1;
        }
        UnderWay { arrivals: self, number: state.note(notes), waited }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use device::{Clock, SystemClock};

    use super::*;

    const WALKED: TreeId = TreeId(20);
    const OTHER: TreeId = TreeId(21);

    fn note(arrivals: &Arrivals, tree: TreeId, ino: u64, uid: u32) -> Option<UnderWay<'_>> {
        arrivals.note(std::iter::once((Arrival::Written(tree, ino), Some(uid))), None)
    }

    fn closed() -> (Arrivals, usize) {
        let arrivals = Arrivals::default();
        let watch = arrivals.watch(1000);
        arrivals.walks(watch, WALKED);
        assert_eq!(arrivals.close(watch, 1), Some(BTreeSet::new()));
        (arrivals, watch)
    }

    #[test]
    fn a_closed_watch_blocks_only_changes_of_others_in_its_trees() {
        let (arrivals, watch) = closed();
        drop(note(&arrivals, OTHER, 1, 1001));
        drop(note(&arrivals, WALKED, 2, 1000));
        let done = AtomicBool::new(false);
        device::scope(|scope| {
            scope.spawn(|| {
                drop(note(&arrivals, WALKED, 3, 1001));
                done.store(true, Ordering::SeqCst);
            });
            SystemClock::new().sleep(Duration::from_millis(50));
            assert!(!done.load(Ordering::SeqCst), "it waits until the watch opens");
            arrivals.open(watch);
        });
        assert!(done.load(Ordering::SeqCst));
        assert_eq!(arrivals.close(watch, 1), Some(BTreeSet::from([Arrival::Written(WALKED, 3)])));
    }

    #[test]
    fn a_watch_closes_when_what_is_under_way_has_ended() {
        let arrivals = Arrivals::default();
        let watch = arrivals.watch(1000);
        arrivals.walks(watch, WALKED);
        let (here, elsewhere) = (note(&arrivals, WALKED, 3, 1001), note(&arrivals, OTHER, 4, 1001));
        let ended = AtomicBool::new(false);
        device::scope(|scope| {
            scope.spawn(|| {
                let found = arrivals.close(watch, 1).expect("one is few");
                assert!(ended.load(Ordering::SeqCst), "it closed beside a change under way");
                assert_eq!(found, BTreeSet::from([Arrival::Written(WALKED, 3)]));
            });
            SystemClock::new().sleep(Duration::from_millis(50));
            ended.store(true, Ordering::SeqCst);
            drop(here);
        });
        drop(elsewhere);
    }

    #[test]
    fn one_watch_is_closed_at_a_time_and_its_own_batch_does_not_wait() {
        let (arrivals, watch) = closed();
        let second = arrivals.watch(1002);
        arrivals.walks(second, WALKED);
        let opened = AtomicBool::new(false);
        device::scope(|scope| {
            scope.spawn(|| {
                assert!(arrivals.close(second, 1).is_some());
                assert!(opened.load(Ordering::SeqCst), "two watches were closed at one time");
                arrivals.end(second);
            });
            SystemClock::new().sleep(Duration::from_millis(50));
            let moved = std::iter::once((Arrival::Moved(WALKED, 5), None));
            drop(arrivals.note(moved, Some(watch)));
            opened.store(true, Ordering::SeqCst);
            arrivals.end(watch);
        });
    }

    #[test]
    fn more_than_may_be_examined_leaves_the_watch_open() {
        let arrivals = Arrivals::default();
        let watch = arrivals.watch(1000);
        arrivals.walks(watch, WALKED);
        for ino in 0..3 {
            drop(note(&arrivals, WALKED, ino, 1001));
            drop(note(&arrivals, OTHER, ino, 1001));
        }
        assert_eq!(arrivals.close(watch, 2), None);
        drop(note(&arrivals, WALKED, 0, 1001));
        assert_eq!(arrivals.close(watch, 3).map(|found| found.len()), Some(3));
    }

    /// Much that changes in trees that are not walked has nobody walk again.
    #[test]
    fn changes_elsewhere_are_not_kept() {
        let arrivals = Arrivals::default();
        let watch = arrivals.watch(1000);
        arrivals.walks(watch, WALKED);
        let many = (0..=NOTED_MAX as u64).map(|ino| (Arrival::Written(OTHER, ino), None));
        drop(arrivals.note(many, None));
        assert_eq!(arrivals.close(watch, 1), Some(BTreeSet::new()));
    }

    #[test]
    fn what_is_under_way_when_a_walk_reaches_a_tree_is_noted() {
        let arrivals = Arrivals::default();
        let watch = arrivals.watch(1000);
        drop(note(&arrivals, WALKED, 2, 1001));
        let under_way = note(&arrivals, WALKED, 3, 1001);
        drop(note(&arrivals, OTHER, 4, 1001));
        arrivals.walks(watch, WALKED);
        drop(under_way);
        assert_eq!(arrivals.take(watch).found, BTreeSet::from([Arrival::Written(WALKED, 3)]));
    }
}
