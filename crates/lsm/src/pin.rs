//! Pinned states: what all trees held at one moment, for reading.
//!
//! A pinned state holds the stacks of the trees that differ from the durable state, and that
//! state's catalog. The layers stay, in memory or on disk, as long as anything holds them.

use std::any::Any;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::{
    CommitToken, Cursor, DiffCursor, Error, KeyRange, Logged, LostRange, Pinned, Read, Result,
    SharedWalk, TreeId,
};

use crate::core::Core;
use crate::cursor::{Source, TreeCursor};
use crate::diff::StackDiff;
use crate::durable::{Collected, Frozen};
use crate::layer::{Catalog, Stack};
use crate::mem::Known;
use crate::tree::Tree;

/// Trees that are looked at before others enter the gate alone.
const AT_ONCE: usize = 64;

/// A pinned state.
pub(crate) struct Pin {
    core: Arc<Core>,
    commit: CommitToken,
    catalog: Arc<Catalog>,
    /// Trees that differ from the catalog, as the running checkpoint froze them; none for those
    /// that were dropped.
    in_flight: Arc<Frozen>,
    /// Trees that differ from both, by their numbers; also some that do not.
    changed: Collected,
}

impl Pin {
    pub(crate) fn new(core: &Arc<Core>) -> Pin {
        let pin = Pin::of_all(core);
        core.flatten();
        pin
    }

    fn of_all(core: &Arc<Core>) -> Pin {
        let _turn = core.pinning.turn();
        let gate = core.gate.write();
        core.pinning.begin();
        let commit = CommitToken(core.journal.last());
        // In this order: a checkpoint that ends makes the catalog first.
        let in_flight = Arc::clone(&core.in_flight.lock());
        let catalog = Arc::clone(&core.catalog.lock());
        let last = core.changed.lock().keys().next_back().copied();
        drop(gate);
        core.collect_for_pin(last);
        let mut changed = core.pinning.end();
        // Nearly in order: commits gave some themselves.
        changed.sort_unstable_by_key(|(id, _)| *id);
        Pin { core: Arc::clone(core), commit, catalog, in_flight, changed }
    }

    /// Pins these trees. The others have the catalog's content, which may be older.
    pub(crate) fn of_trees(core: &Arc<Core>, trees: &[TreeId]) -> Pin {
        let _gate = core.gate.write();
        let mut changed = Collected::new();
        for id in trees {
            let live = core.changed.lock().get(id).map(|tree| core.freeze_tree(tree));
            let state = live.or_else(|| core.in_flight.lock().get(id).cloned());
            changed.extend(state.map(|state| (*id, state)));
        }
        changed.sort_unstable_by_key(|(id, _)| *id);
        let (catalog, in_flight) = (Arc::clone(&core.catalog.lock()), Arc::default());
        let commit = CommitToken(core.journal.last());
        Pin { core: Arc::clone(core), commit, catalog, in_flight, changed }
    }

    /// A tree of the state.
    pub(crate) fn stack(&self, id: TreeId) -> Result<Arc<Stack>> {
        let changed = self.changed.binary_search_by_key(&id, |(id, _)| *id);
        let changed = changed.ok().map(|at| &self.changed[at].1);
        let stack = match changed.or_else(|| self.in_flight.get(&id)) {
            Some(stack) => stack.as_ref(),
            None => self.catalog.get(&id),
        };
        stack.map(Arc::clone).ok_or(Error::NoTree(id))
    }
}

impl Read for Pin {
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.stack(tree)?.get(key, found)? == Known::Value(()))
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>> {
        let source = Source::Pinned(self.stack(tree)?);
        Ok(Box::new(TreeCursor::new(source, range, self.core.options.prefix_bytes)))
    }
}

impl Pinned for Pin {
    fn logged(&self) -> Logged<'_> {
        Logged { commit: self.commit, log: Some(self.core.log()) }
    }

    fn visit_shared_step(
        &self,
        walk: &mut SharedWalk,
        _nodes: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<bool> {
        let mut stacks = walk.trees.drain(..).map(|tree| self.stack(tree));
        crate::visit::visit(&mut stacks, &walk.prefix, visit)?;
        Ok(false)
    }

    fn diff<'a>(
        &'a self,
        old_tree: TreeId,
        new: &'a dyn Pinned,
        new_tree: TreeId,
        range: KeyRange,
    ) -> Result<Box<dyn DiffCursor + 'a>> {
        let new = new.as_any().downcast_ref::<Pin>().ok_or(Error::ForeignPin)?;
        if !Arc::ptr_eq(&self.core, &new.core) {
            return Err(Error::ForeignPin);
        }
        let (old, new) = (self.stack(old_tree)?, new.stack(new_tree)?);
        Ok(Box::new(StackDiff::new(&old, &new, range)?))
    }

    fn lost_from(&self, tree: TreeId, key: &[u8]) -> Result<Option<LostRange>> {
        crate::lost::lost_from(&*self.stack(tree)?, key)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Core {
    /// Has the present pin, if one collects, have a tree as it is. The caller keeps the tree from
    /// changing.
    #[cold]
    pub(crate) fn give_to_pin(&self, tree: &Tree) {
        let freeze = || self.freeze_tree(tree);
        self.pinning.give(freeze, |collected, frozen| collected.push((tree.id, frozen)));
        tree.pinned.store(self.pinning.count(), Ordering::Relaxed);
    }

    /// Collects the changed trees up to one, for the pin that began.
    pub(crate) fn collect_for_pin(&self, last: Option<TreeId>) {
        self.each_changed(last, |tree| {
            if tree.pinned.load(Ordering::Relaxed) != self.pinning.count() {
                self.give_to_pin(tree);
            }
        });
    }

    /// Freezes the changed trees while commits continue, so that few have something to freeze when
    /// the caller then enters the gate alone. The caller has the turn of pins.
    pub(crate) fn freeze_beside_commits(&self) {
        let last = self.changed.lock().keys().next_back().copied();
        self.each_changed(last, |tree| drop(self.freeze_tree(tree)));
    }

    /// Calls a function with each changed tree up to one, which nothing changes meanwhile.
    fn each_changed(&self, last: Option<TreeId>, mut call: impl FnMut(&Tree)) {
        let Some(last) = last else { return };
        let mut from = Bound::Unbounded;
        let mut some: Vec<Arc<Tree>> = Vec::with_capacity(AT_ONCE);
        loop {
            let _gate = self.gate.read();
            some.clear();
            {
                let changed = self.changed.lock();
                let next = changed.range((from, Bound::Included(last))).take(AT_ONCE);
                some.extend(next.map(|(_, tree)| Arc::clone(tree)));
            }
            for tree in &some {
                let _commit = tree.commit.lock();
                call(tree);
            }
            match some.last() {
                Some(tree) if some.len() == AT_ONCE && tree.id < last => {
                    from = Bound::Excluded(tree.id);
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use device::sync::channel;
    use store::{Batch, Commit, Read, Snapshot, TreeId};
    use testing::sim_env;

    use crate::options::Options;
    use crate::store::LsmStore;

    const BUSY: TreeId = TreeId(40);
    const OTHER: TreeId = TreeId(41);
    /// A commit that has not ended by then never does.
    const GIVEN_UP: Duration = Duration::from_secs(60);

    fn put(store: &LsmStore, tree: TreeId, value: &[u8]) {
        let mut batch = Batch::new();
        batch.put(tree, b"key", value);
        store.commit(&batch).expect("a store in memory");
    }

    /// A pin that collects holds nothing that a commit to another tree needs, however long one
    /// tree takes. It has the other tree as it was when the pin began.
    #[test]
    fn a_commit_to_another_tree_does_not_wait_for_a_pin_that_collects() {
        let store = LsmStore::create(&sim_env(1).env(), &Options::default()).expect("created");
        let mut batch = Batch::new();
        batch.create_tree(BUSY);
        batch.create_tree(OTHER);
        store.commit(&batch).expect("a store in memory");
        put(&store, OTHER, b"old");
        let core = store.engine();
        let busy = core.tree(BUSY).expect("it is there");
        let value = device::scope(|scope| {
            // The pin cannot freeze this tree while its commit lock is held.
            let held = busy.commit.lock();
            let began = core.pinning.count();
            let pinning = scope.spawn(|| store.pin().expect("pinned"));
            while core.pinning.count() == began {
                device::yield_now();
            }
            let (ended, end) = channel();
            let store = &store;
            scope.spawn(move || {
                put(store, OTHER, b"new");
                ended.send(core.pinning.collects()).expect("the test waits");
            });
            let collects = end.recv_timeout(GIVEN_UP);
            drop(held);
            assert_eq!(collects, Ok(true), "the commit ended while the pin collected");
            pinning.join().expect("it ends").get(OTHER, b"key").expect("it reads")
        });
        assert_eq!(value.as_deref(), Some(&b"old"[..]));
        assert_eq!(store.get(OTHER, b"key").expect("it reads").as_deref(), Some(&b"new"[..]));
    }
}
