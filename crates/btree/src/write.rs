//! Changes one key.
//!
//! A change is first tried in place, with the tree shared. That is possible when no node on the
//! path has another owner and the leaf neither overflows nor becomes underfull. The leaf must also
//! differ from its copy on disk, so that all nodes above it are changed already. Otherwise the
//! change holds the tree exclusively and descends from the root. It owns each node, splits those
//! that could not take a child, and merges those that could not lose one. Then it changes the leaf
//! and rebalances it.

use std::sync::Arc;

use store::Result;

use crate::cell::{Child, Interior, LeafCell, Node, Owned};
use crate::entries::Entries;
use crate::leaf::{Change, Floor, LeafData, Outcome};
use crate::limits::{CHILD_MAX, WEIGHT_MAX, WEIGHT_MIN};
use crate::merge::{Rebalanced, Siblings};
use crate::nodes::Nodes;
use crate::tree::{Root, Tree};

impl Tree {
    /// Changes a key in place, where that is possible.
    #[inline]
    pub(crate) fn change_in_place(&self, nodes: &Nodes, key: &[u8], change: Change<'_>) -> InPlace {
        let root = self.state.read();
        let Some(leaf) = root.owned_leaf(key) else { return InPlace::Not };
        let floor = if root.level == 0 { Floor::Open } else { Floor::Keep };
        let mut state = leaf.latch.write();
        if state.disk.is_some() {
            return InPlace::Not;
        }
        let Some(data) = &mut state.data else { return InPlace::Not };
        let before = data.memory();
        let outcome = data.apply(&nodes.budget, key, change, floor);
        if data.memory() != before {
            state.recharge();
        }
        match outcome {
            Outcome::Done => {
                state.changes += 1;
                InPlace::Done
            }
            Outcome::TooFull if root.level > 0 => InPlace::TooFull,
            _ => InPlace::Not,
        }
    }
}

/// The result of an attempt to change a key in place.
pub(crate) enum InPlace {
    Done,
    /// Nothing was done: the leaf, which has no other owner, must be split first.
    TooFull,
    /// Nothing was done; only a change from the root down can do it.
    Not,
}

/// Whether an interior node can take one more child.
pub(crate) fn can_grow(interior: &Interior) -> bool {
    interior.weight() + CHILD_MAX <= WEIGHT_MAX
}

/// Whether an interior node can lose a child.
pub(crate) fn can_shrink(interior: &Interior) -> bool {
    interior.weight() >= WEIGHT_MIN + CHILD_MAX
}

impl Nodes {
    /// Changes a key of a tree that no other thread waits for. Fails only when a node cannot be
    /// read.
    pub(crate) fn change(&self, root: &mut Root, key: &[u8], change: Change<'_>) -> Result<()> {
        match self.change_with(root, key, change, Siblings::Anywhere)? {
            Rebalanced::Now => Ok(()),
            Rebalanced::Later => unreachable!("a sibling is somewhere"),
        }
    }

    /// Changes a key from the root down. Fails only when a node cannot be read.
    pub(crate) fn change_with(
        &self,
        root: &mut Root,
        key: &[u8],
        change: Change<'_>,
        siblings: Siblings,
    ) -> Result<Rebalanced> {
        self.open_root(root)?;
        let shrinks = !matches!(change, Change::Merge(_));
        let mut rebalanced = Rebalanced::Now;
        let (child, mut level) = (&mut root.child, root.level);
        if level == 0 {
            let mut state = self.own_leaf(child)?;
            match self.change_leaf(&mut state, key, change)? {
                Fit::Done => return Ok(Rebalanced::Now),
                Fit::TooFull => {}
            }
            drop(state);
            self.push_root(root);
            level = root.level;
        }
        let mut node = self.own_interior(&mut root.child, level)?;
        while node.level > 1 {
            let (at, done) = self.open_child(node, key, shrinks.then_some(siblings))?;
            rebalanced = rebalanced.and(done);
            let below = node.level - 1;
            node = self.own_interior(&mut node.children[at], below)?;
        }
        rebalanced = rebalanced.and(self.change_below(node, key, change, siblings)?);
        if shrinks {
            self.pull_root(root)?;
        }
        Ok(rebalanced)
    }

    /// Ensures that the root can take one more child.
    pub(crate) fn open_root(&self, root: &mut Root) -> Result<()> {
        if root.level > 0 && !can_grow(self.own_interior(&mut root.child, root.level)?) {
            self.push_root(root);
        }
        Ok(())
    }

    /// Ensures that the child that has the key can take one more child. If `siblings` are given, it
    /// rebalances the child with them so that it can lose one. Returns its place.
    pub(crate) fn open_child(
        &self,
        node: &mut Interior,
        key: &[u8],
        siblings: Option<Siblings>,
    ) -> Result<(usize, Rebalanced)> {
        let below = node.level - 1;
        let at = node.route(key);
        let child = self.own_interior(&mut node.children[at], below)?;
        let mut rebalanced = Rebalanced::Now;
        if !can_grow(child) {
            self.split_interior(node, at)?;
        } else if let Some(siblings) = siblings
            && !can_shrink(child)
            && node.children.len() > 1
        {
            rebalanced = self.rebalance_interior(node, at, siblings);
        }
        Ok((node.route(key), rebalanced))
    }

    /// Changes a key in a child of a node of level 1 that can take and lose a child.
    fn change_below(
        &self,
        node: &mut Interior,
        key: &[u8],
        change: Change<'_>,
        siblings: Siblings,
    ) -> Result<Rebalanced> {
        loop {
            let at = node.route(key);
            let mut state = self.own_leaf(&mut node.children[at])?;
            let fit = self.change_leaf(&mut state, key, change)?;
            let underfull = state.data_mut().entries.weight() < WEIGHT_MIN;
            drop(state);
            match fit {
                Fit::TooFull => self.split_leaf(node, at, key)?,
                Fit::Done => {
                    if underfull && node.children.len() > 1 {
                        return Ok(self.rebalance_leaf(node, at, siblings));
                    }
                    return Ok(Rebalanced::Now);
                }
            }
        }
    }

    fn change_leaf(&self, state: &mut Owned<'_>, key: &[u8], change: Change<'_>) -> Result<Fit> {
        loop {
            let outcome = state.data_mut().apply(&self.budget, key, change, Floor::Open);
            state.recharge();
            match outcome {
                Outcome::Done => return Ok(Fit::Done),
                Outcome::TooFull => return Ok(Fit::TooFull),
                Outcome::Load(cell) => {
                    self.load_overflow(&cell)?;
                }
                Outcome::TooLight => unreachable!("the floor is open"),
            }
        }
    }

    /// The node in a slot, loaded if needed. Called only where an error can be returned or the
    /// commit has loaded everything before.
    fn fill<'c>(&self, child: &'c mut Child, level: u8) -> Result<&'c mut Node> {
        if child.cell.get().is_none() {
            let pointer = child.disk.expect("invariant: a slot without a cell has a pointer");
            child.cell = self.load(pointer, level)?.into();
        }
        Ok(child.cell.get_mut().expect("invariant: the slot was filled"))
    }

    /// Makes this tree the only owner of the interior node in a slot, and marks the node changed.
    pub(crate) fn own_interior<'c>(
        &self,
        child: &'c mut Child,
        level: u8,
    ) -> Result<&'c mut Interior> {
        self.fill(child, level)?;
        child.disk = None;
        let Some(Node::Interior(shared)) = child.cell.get_mut() else {
            unreachable!("nodes above level 0 are interior")
        };
        if Arc::get_mut(shared).is_none() {
            // Perhaps the map of known cells is the only other owner.
            if let Some(pointer) = shared.disk.get() {
                self.forget(*pointer);
            }
            if Arc::get_mut(shared).is_none() {
                *shared = Arc::new(shared.copy());
                self.budget.add_shadowed(1);
            }
        }
        let interior = Arc::get_mut(shared).expect("invariant: a new node has one owner");
        if interior.leave_disk() {
            self.budget.add_shadowed(1);
        }
        Ok(interior)
    }

    /// Makes this tree the only owner of the leaf in a slot; the leaf is resident and marked
    /// changed.
    pub(crate) fn own_leaf<'c>(&self, child: &'c mut Child) -> Result<Owned<'c>> {
        self.fill(child, 0)?;
        child.disk = None;
        let Some(Node::Leaf(shared)) = child.cell.get_mut() else {
            unreachable!("nodes of level 0 are leaves")
        };
        loop {
            let mut state = shared.latch.write();
            if let Some(pointer) = state.disk {
                if state.data.is_none() {
                    drop(state);
                    self.load_leaf(shared, pointer)?;
                    continue;
                }
                // From here on no thread finds the cell by its pointer; one that did so before is
                // counted.
                self.forget(pointer);
            }
            if Arc::strong_count(shared) == 1 {
                if state.disk.is_some() {
                    self.budget.add_shadowed(1);
                }
                state.set_disk(None);
                break;
            }
            self.budget.add_shadowed(1);
            let data = state.data.as_ref().map(LeafData::copy_with_spare);
            let data = data.expect("invariant: a leaf without content is on disk");
            drop(state);
            *shared = Arc::new(LeafCell::new(&self.budget, data, None));
        }
        #[cfg(test)]
        tests::meanwhile(shared);
        let mut state = shared.latch.write();
        if let Some(pointer) = state.disk {
            // It was pre-flushed, and its place was recorded just now. That place is as free as it
            // was.
            self.forget(pointer);
            state.set_disk(None);
        }
        assert!(state.data.is_some(), "a leaf that a commit changes is in memory");
        Ok(state)
    }

    /// Puts a root with one child above the root.
    pub(crate) fn push_root(&self, root: &mut Root) {
        assert!(root.level < format::node::LEVEL_MAX, "a tree higher than any disk");
        let child = std::mem::take(&mut root.child);
        root.level += 1;
        let interior =
            Interior::new(&self.budget, root.level, Entries::default(), vec![child], None);
        root.child = Child::in_memory(Node::Interior(Arc::new(interior)));
    }

    /// Removes roots that have one child.
    pub(crate) fn pull_root(&self, root: &mut Root) -> Result<()> {
        while root.level > 0 {
            let interior = self.own_interior(&mut root.child, root.level)?;
            if interior.children.len() > 1 {
                break;
            }
            let only = interior.children.pop().expect("invariant: a node has children");
            root.child = only;
            root.level -= 1;
        }
        Ok(())
    }
}

/// Whether a change fitted into its leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    Done,
    TooFull,
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use store::{Batch, Commit, Maintain, Read, Snapshot, TreeId};

    use super::*;
    use crate::{BtreeStore, Options, check};

    type Meanwhile = Box<dyn FnOnce(&Arc<LeafCell>)>;

    thread_local! {
        /// Actions of another thread while this one owns a leaf and holds no latch.
        static MEANWHILE: RefCell<Option<Meanwhile>> = const { RefCell::new(None) };
    }

    pub(super) fn meanwhile(leaf: &Arc<LeafCell>) {
        if let Some(act) = MEANWHILE.take() {
            act(leaf);
        }
    }

    const TREE: TreeId = TreeId(32);

    fn put(store: &BtreeStore, key: u32, value: &[u8]) {
        let mut batch = Batch::new();
        batch.put(TREE, &key.to_be_bytes(), value);
        store.commit(&batch).unwrap();
    }

    /// A leaf was encoded to be pre-flushed, and its place is recorded after a commit has checked
    /// whether it has one.
    #[test]
    fn a_leaf_changed_while_its_offset_is_recorded_is_not_lost() {
        let sim = testing::sim_env(1);
        let options = Options::with_cache(1 << 20);
        let store = BtreeStore::create(&sim.env(), &options).unwrap();
        let mut batch = Batch::new();
        batch.create_tree(TREE);
        store.commit(&batch).unwrap();
        for key in 0..600 {
            put(&store, key, &[1; 500]);
        }
        assert!(store.checkpoint().unwrap());
        let core = store.engine();
        let tree = core.tree(TREE).unwrap();
        let key = 300_u32.to_be_bytes();
        let leaf = Arc::downgrade(tree.state.read().owned_leaf(&key).unwrap());
        let place = leaf.upgrade().unwrap().latch.read().disk.unwrap();
        // The same content, but marked changed.
        core.mark_changed(&tree);
        core.nodes.change(&mut tree.state.write(), &key, Change::Put(&[1; 500])).unwrap();
        let changes = leaf.upgrade().unwrap().latch.read().changes;
        // The place holds the present content of the leaf, as if it had just been written.
        MEANWHILE.set(Some(Box::new(move |leaf| assert!(leaf.learn_place(place, changes)))));
        core.nodes.change(&mut tree.state.write(), &key, Change::Put(&[2; 500])).unwrap();
        assert!(MEANWHILE.with_borrow(|act| act.is_none()));
        drop(tree);
        assert!(leaf.upgrade().is_some_and(|leaf| leaf.latch.read().disk.is_none()));
        assert!(store.checkpoint().unwrap());
        assert!(check(&store).unwrap().is_clean());
        drop(store);
        // Bypassing the log, in which the change never was.
        let store = BtreeStore::open(&sim.env(), &options).unwrap();
        assert_eq!(store.get(TREE, &key).unwrap(), Some(vec![2; 500]));
    }

    /// While a base is described, its tree is pinned for each step. A writer of the tree that it is
    /// a clone of copies each leaf once, and not once for each pin.
    #[test]
    fn a_pin_of_other_trees_causes_no_copies() {
        const CLONE: TreeId = TreeId(33);
        let sim = testing::sim_env(1);
        let store = BtreeStore::create(&sim.env(), &Options::default()).unwrap();
        let mut batch = Batch::new();
        batch.create_tree(TREE);
        store.commit(&batch).unwrap();
        for key in 0..600 {
            put(&store, key, &[1; 500]);
        }
        batch.clear();
        batch.clone_tree(TREE, CLONE);
        store.commit(&batch).unwrap();
        let key = 300_u32.to_be_bytes();
        let is_own = || {
            let tree = store.engine().tree(TREE).unwrap();
            let root = tree.state.read();
            root.owned_leaf(&key).is_some()
        };
        let first = store.pin_trees(&[CLONE, TreeId(99)]).unwrap();
        assert!(!is_own(), "the clone has it too");
        put(&store, 300, &[2; 500]);
        assert!(is_own());
        let second = store.pin_trees(&[CLONE]).unwrap();
        assert!(is_own());
        let all = store.pin().unwrap();
        assert!(!is_own(), "that pin has it");
        put(&store, 300, &[3; 500]);
        for (pin, tree, value) in [
            (&first, CLONE, Some([1; 500])),
            (&second, CLONE, Some([1; 500])),
            (&all, TREE, Some([2; 500])),
        ] {
            let found = pin.get(tree, &key).unwrap();
            assert_eq!(found.as_deref(), value.as_ref().map(|value| &value[..]));
        }
        batch.clear();
        batch.drop_tree(CLONE);
        store.commit(&batch).unwrap();
        while store.reclaim_step(64).unwrap() {}
        assert!(store.checkpoint().unwrap());
        assert_eq!(second.get(CLONE, &key).unwrap().as_deref(), Some(&[1; 500][..]));
        drop((first, second, all));
        assert!(check(&store).unwrap().is_clean());
    }
}
