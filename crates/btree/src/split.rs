//! Splits a child in two. The parent can take one more.

use std::sync::Arc;

use store::Result;

use crate::cell::{Child, Interior, LeafCell, Node};
use crate::entries::{Cell, separator};
use crate::leaf::LeafData;
use crate::limits::{ENTRY_MAX, WEIGHT_MAX};
use crate::nodes::Nodes;
use crate::tree::{Root, Tree};
use crate::write::can_grow;

/// A separator has no value.
const NONE: Cell<'static> = Cell { bytes: &[], flagged: false };

impl Interior {
    /// Puts a child behind child `at`, from `key` on.
    pub(crate) fn insert_child(&mut self, at: usize, key: &[u8], child: Child) {
        self.keys.insert(at, key, NONE);
        self.children.insert(at + 1, child);
    }

    /// Replaces the separator between children `at` and `at + 1`.
    pub(crate) fn set_separator(&mut self, at: usize, key: &[u8]) {
        self.keys.remove(at);
        self.keys.insert(at, key, NONE);
    }

    /// Appends children that are behind this node's, from `key` on.
    pub(crate) fn append(&mut self, key: &[u8], other: &mut Interior) {
        self.keys.insert(self.keys.len(), key, NONE);
        self.keys.extend(&other.keys);
        self.children.append(&mut other.children);
    }

    /// Splits a node in two halves of about the same weight; returns the separator and the right
    /// half.
    pub(crate) fn halve(&mut self) -> (Vec<u8>, Interior) {
        // At least one separator on either side of the one that moves up, where there are three.
        let middle = self.keys.split_point(self.keys.weight() / 2);
        let middle = middle.clamp(1, (self.keys.len() - 2).max(1));
        let key = self.keys.key(middle);
        let right = self.keys.extract(middle + 1, self.keys.len());
        self.keys = self.keys.extract(0, middle);
        let children = self.children.split_off(middle + 1);
        (key, Interior::new(self.budget(), self.level, right, children, None))
    }
}

/// The halves of a split leaf.
struct Halves {
    left: LeafData,
    right: LeafData,
    /// The separator.
    between: Vec<u8>,
}

impl Halves {
    /// Copies both halves. A leaf that grows at its end, as with ascending keys, keeps two thirds,
    /// so that nodes are left fuller. `last`: it is the last child of its parent.
    fn of(data: &LeafData, last: bool, key: &[u8]) -> Halves {
        let count = data.entries.len();
        let ascending = last && data.entries.rank(key) == count;
        let weight = data.entries.weight();
        let share = if ascending { weight / 3 * 2 } else { weight / 2 };
        let middle = data.entries.split_point(share);
        let (left, right) = (data.extract(0, middle), data.extract(middle, count));
        let between = separator(&left.entries.key(middle - 1), &right.entries.key(0));
        Halves { left, right, between }
    }
}

impl Tree {
    /// Splits the full leaf of a key. The slow part - copying its halves - holds no latch but the
    /// leaf's, shared; only inserting them needs the tree exclusive. Returns `false` when that is
    /// not possible: the leaf or a node above it was changed or shared meanwhile, or its parent is
    /// full.
    pub(crate) fn split_ahead(&self, nodes: &Nodes, key: &[u8]) -> bool {
        let Some((leaf, last)) = self.state.read().own_last(key) else { return false };
        let state = leaf.latch.read();
        let (Some(data), None) = (&state.data, state.disk) else { return false };
        if data.entries.weight() + ENTRY_MAX <= WEIGHT_MAX {
            // Other threads have removed entries meanwhile; its halves might be underfull.
            return false;
        }
        let Halves { left, right, between } = Halves::of(data, last, key);
        let changes = state.changes;
        drop(state);
        let right = Arc::new(LeafCell::new(&nodes.budget, right, None));
        #[cfg(test)]
        tests::meanwhile(self, nodes, key);
        let mut root = self.state.write();
        let Some((parent, at)) = root.owned_parent(key) else { return false };
        let Some(Node::Leaf(there)) = parent.children[at].cell.get() else { return false };
        // Only the tree and this thread refer to it; no other thread can get a reference now.
        if !Arc::ptr_eq(there, &leaf) || Arc::strong_count(&leaf) != 2 || !can_grow(parent) {
            return false;
        }
        let mut state = leaf.latch.write();
        if state.changes != changes || state.disk.is_some() {
            return false;
        }
        let old = state.data.replace(left);
        state.changes += 1;
        parent.insert_child(at, &between, Child::in_memory(Node::Leaf(right)));
        drop(root);
        // Counted and freed without the tree's latch.
        state.recharge();
        drop(state);
        drop(old);
        true
    }
}

impl Root {
    /// The leaf of a key, and whether it is the last child of its parent. `None` if a node on the
    /// path to it has another owner.
    fn own_last(&self, key: &[u8]) -> Option<(Arc<LeafCell>, bool)> {
        let leaf = self.owned_leaf(key)?;
        let (mut child, mut last) = (&self.child, false);
        while let Some(Node::Interior(interior)) = child.cell.get() {
            let at = interior.route(key);
            last = at + 1 == interior.children.len();
            child = &interior.children[at];
        }
        Some((Arc::clone(leaf), last))
    }

    /// The parent of the leaf of a key, and the leaf's place there. `None` if a node on the path to
    /// the leaf has another owner, or is not changed.
    fn owned_parent(&mut self, key: &[u8]) -> Option<(&mut Interior, usize)> {
        let mut child = &mut self.child;
        loop {
            let Some(Node::Interior(shared)) = child.cell.get_mut() else { return None };
            let interior = Arc::get_mut(shared).filter(|interior| interior.disk.get().is_none())?;
            let at = interior.route(key);
            if interior.level == 1 {
                return Some((interior, at));
            }
            child = &mut interior.children[at];
        }
    }
}

impl Nodes {
    /// Splits the leaf that is child `at`.
    pub(crate) fn split_leaf(&self, parent: &mut Interior, at: usize, key: &[u8]) -> Result<()> {
        let last = at + 1 == parent.children.len();
        let mut state = self.own_leaf(&mut parent.children[at])?;
        let data = state.data_mut();
        let Halves { left, right, between } = Halves::of(data, last, key);
        *data = left;
        state.recharge();
        drop(state);
        let right = Arc::new(LeafCell::new(&self.budget, right, None));
        parent.insert_child(at, &between, Child::in_memory(Node::Leaf(right)));
        Ok(())
    }

    /// Splits the interior node that is child `at`.
    pub(crate) fn split_interior(&self, parent: &mut Interior, at: usize) -> Result<()> {
        let below = parent.level - 1;
        let child = self.own_interior(&mut parent.children[at], below)?;
        let (key, right) = child.halve();
        parent.insert_child(at, &key, Child::in_memory(Node::Interior(Arc::new(right))));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use store::{Batch, Commit, Read, TreeId};

    use super::*;
    use crate::leaf::Change;
    use crate::write::InPlace;
    use crate::{BtreeStore, Options};

    type Meanwhile = Box<dyn FnOnce(&Tree, &Nodes, &[u8])>;

    thread_local! {
        /// Actions of another thread while this one has copied the halves and holds no latch.
        static MEANWHILE: RefCell<Option<Meanwhile>> = const { RefCell::new(None) };
    }

    pub(super) fn meanwhile(tree: &Tree, nodes: &Nodes, key: &[u8]) {
        if let Some(act) = MEANWHILE.take() {
            act(tree, nodes, key);
        }
    }

    const TREE: TreeId = TreeId(32);
    const KEYS: u32 = 400;

    fn commit(store: &BtreeStore, fill: impl FnOnce(&mut Batch)) {
        let mut batch = Batch::new();
        fill(&mut batch);
        store.commit(&batch).unwrap();
    }

    /// A store with even keys in many leaves. Inserts odd keys until one splits its leaf, and runs
    /// `act` during the split; returns that key.
    fn split_while(act: fn(&Tree, &Nodes, u32)) -> (Arc<BtreeStore>, u32) {
        let env = testing::sim_env(1).env();
        let store = BtreeStore::create(&env, &Options::default()).unwrap();
        commit(&store, |batch| batch.create_tree(TREE));
        for n in 0..KEYS {
            commit(&store, |batch| batch.put(TREE, &(2 * n).to_be_bytes(), &[0; 500]));
        }
        MEANWHILE.set(Some(Box::new(move |tree, nodes, key| {
            let key = key.first_chunk().expect("a key of four bytes");
            act(tree, nodes, u32::from_be_bytes(*key));
        })));
        let waits = || MEANWHILE.with_borrow(|act| act.is_some());
        let n = (KEYS / 2..KEYS).map(|n| 2 * n + 1).find(|n| {
            commit(&store, |batch| batch.put(TREE, &n.to_be_bytes(), &[0; 500]));
            !waits()
        });
        (store, n.expect("a leaf was split"))
    }

    fn change(tree: &Tree, nodes: &Nodes, key: u32, change: Change<'_>) {
        // The splitting thread's reference makes the leaf a shared one: the first change by another
        // thread copies it, from the root down.
        match tree.change_in_place(nodes, &key.to_be_bytes(), change) {
            InPlace::Done => {}
            _ => nodes.change(&mut tree.state.write(), &key.to_be_bytes(), change).unwrap(),
        }
    }

    #[test]
    fn concurrent_changes_during_a_split_are_kept() {
        let (store, n) = split_while(|tree, nodes, n| {
            change(tree, nodes, n - 1, Change::Put(&[1; 500]));
            change(tree, nodes, n - 3, Change::Delete);
        });
        let get = |n: u32| store.get(TREE, &n.to_be_bytes()).unwrap();
        assert_eq!((get(n - 1), get(n - 3)), (Some(vec![1; 500]), None));
        assert_eq!(get(n), Some(vec![0; 500]));
    }

    #[test]
    fn a_leaf_shared_during_its_split_stays_whole_for_the_other_tree() {
        thread_local! {
            static CLONE: RefCell<Option<Root>> = const { RefCell::new(None) };
        }
        let (store, n) = split_while(|tree, _, _| CLONE.set(Some(tree.state.read().clone())));
        let root = CLONE.take().expect("it was cloned");
        let has = |n: u32| root.get(&store.engine().nodes, &n.to_be_bytes(), &mut |_| {}).unwrap();
        assert!(has(n - 1) && !has(n), "the clone has what was there when it was made");
        let get = |n: u32| store.get(TREE, &n.to_be_bytes()).unwrap();
        assert_eq!(get(n), Some(vec![0; 500]));
        let all = (0..KEYS).filter(|n| get(2 * n).is_some() && has(2 * n)).count();
        assert_eq!(all as u32, KEYS);
    }

    /// The leaf is shared with a clone, and its parent no longer is, because the path to another of
    /// its leaves was copied.
    #[test]
    fn a_shared_leaf_below_an_unshared_parent_stays_whole_for_the_other_tree() {
        thread_local! {
            static CLONE: RefCell<Option<Root>> = const { RefCell::new(None) };
        }
        let (store, n) = split_while(|tree, nodes, _| {
            CLONE.set(Some(tree.state.read().clone()));
            change(tree, nodes, 0, Change::Put(&[3; 500]));
        });
        let root = CLONE.take().expect("it was cloned");
        let has = |n: u32| root.get(&store.engine().nodes, &n.to_be_bytes(), &mut |_| {}).unwrap();
        let get = |n: u32| store.get(TREE, &n.to_be_bytes()).unwrap();
        assert!(!has(n) && get(n).is_some());
        let all = (0..KEYS).filter(|n| get(2 * n).is_some() && has(2 * n)).count();
        assert_eq!(all as u32, KEYS);
    }
}
