//! One B+-tree in memory with different latches, and nothing else that differs: same nodes, same
//! search, same splits. No log, no gate, no clones, nothing is evicted.
//!
//! * `Coupling`: lock coupling as in Rodeh's section 4. A thread releases a node's latch when it
//!   holds the next one below. Look-ups take latches shared. Changes take them exclusive from the
//!   root on, since with shadowing every node on the way changes. Full interior nodes are split on
//!   the way down.
//! * `Shared`: the same, but a change takes interior nodes shared and only its leaf exclusive.
//!   Where the leaf is full, it begins again from the root as above (Bayer and Schkolnick). That is
//!   the best that coupling can do where nodes on the way are the tree's own already.
//! * `Ours`: a latch for the tree, shared by descents, and one a leaf; interior nodes have none.
//!   A full leaf is split ahead, with the tree shared, and put in with it exclusive. Where that is
//!   not possible, the split goes from the root down with the tree exclusive (decision 0006).
//!
//! Nodes stay where they are made, so that plain references can hold a child's latch without its
//! parent's. Coupling counts no owners; our engine has to count those of its nodes.

use std::sync::atomic::{AtomicU32, Ordering};

use device::Latch;
use parking_lot::RwLock;

use crate::keys::{KEY_BYTES, VALUE_BYTES};

/// A key as four numbers that sort like its bytes.
pub(crate) type Key = [u64; 4];
pub(crate) type Value = [u8; VALUE_BYTES];

/// Entries of a leaf, and children of an interior node, as many as our nodes of 16 KiB take of
/// these keys and values.
const LEAF_MAX: usize = 126;
const CHILDREN_MAX: usize = 438;
/// The root stays where it is.
const ROOT: u32 = 0;

/// The key that has these bytes.
#[inline]
pub(crate) fn key_of(bytes: &[u8; KEY_BYTES]) -> Key {
    let mut key = [0; 4];
    for (word, chunk) in key.iter_mut().zip(bytes.chunks(8)) {
        let mut padded = [0; 8];
        padded[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_be_bytes(padded);
    }
    key
}

/// What all variants do.
pub(crate) trait Tree: Sync {
    /// The first byte of a key's value.
    fn get(&self, key: &Key) -> Option<u8>;

    fn put(&self, key: &Key, value: &Value);
}

/// How a tree is latched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scheme {
    Coupling,
    Shared,
    Ours,
}

impl Scheme {
    pub(crate) const ALL: [Scheme; 3] = [Scheme::Coupling, Scheme::Shared, Scheme::Ours];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Scheme::Coupling => "coupling",
            Scheme::Shared => "shared_coupling",
            Scheme::Ours => "ours",
        }
    }

    /// An empty tree that will take so many entries.
    pub(crate) fn make(self, entries: u64) -> Box<dyn Tree> {
        // No node but the root is less than half full.
        let leaves = entries as usize / (LEAF_MAX / 2) + 64;
        let interiors = leaves / (CHILDREN_MAX / 2) + 64;
        let root = Interior { level: 1, keys: Vec::new(), children: vec![0] };
        let leaves = Slab::of(leaves);
        leaves.add(Leaf::new());
        match self {
            Scheme::Ours => Box::new(Ours { interiors: Latch::new(vec![root]), leaves }),
            Scheme::Coupling | Scheme::Shared => {
                let interiors = Slab::of(interiors);
                interiors.add(root);
                Box::new(Coupled { interiors, leaves, shared: self == Scheme::Shared })
            }
        }
    }
}

#[derive(Default)]
struct Leaf {
    keys: Vec<Key>,
    /// Where the value of each key is.
    places: Vec<u8>,
    values: Vec<Value>,
    /// Counts changes, for a thread that copied it and comes back.
    changes: u64,
}

impl Leaf {
    fn new() -> Leaf {
        Leaf {
            keys: Vec::with_capacity(LEAF_MAX),
            places: Vec::with_capacity(LEAF_MAX),
            values: Vec::with_capacity(LEAF_MAX),
            changes: 0,
        }
    }

    fn get(&self, key: &Key) -> Option<u8> {
        let at = self.keys.binary_search(key).ok()?;
        Some(self.values[usize::from(self.places[at])][0])
    }

    /// `false` when the leaf is full; then nothing was done.
    fn put(&mut self, key: &Key, value: &Value) -> bool {
        match self.keys.binary_search(key) {
            Ok(at) => self.values[usize::from(self.places[at])] = *value,
            Err(_) if self.is_full() => return false,
            Err(at) => {
                self.keys.insert(at, *key);
                self.places.insert(at, self.values.len() as u8);
                self.values.push(*value);
            }
        }
        self.changes += 1;
        true
    }

    fn is_full(&self) -> bool {
        self.keys.len() == LEAF_MAX
    }

    fn part(&self, from: usize, to: usize) -> Leaf {
        let mut part = Leaf::new();
        part.keys.extend_from_slice(&self.keys[from..to]);
        part.places.extend(0..(to - from) as u8);
        let places = self.places[from..to].iter();
        part.values.extend(places.map(|&place| self.values[usize::from(place)]));
        part.changes = self.changes + 1;
        part
    }

    /// Copies of both halves; the right one's first key is between them.
    fn halves(&self) -> (Leaf, Leaf) {
        let middle = self.keys.len() / 2;
        (self.part(0, middle), self.part(middle, self.keys.len()))
    }
}

#[derive(Default)]
struct Interior {
    /// One more than the level of its children; leaves have 0.
    level: u8,
    keys: Vec<Key>,
    children: Vec<u32>,
}

impl Interior {
    #[inline]
    fn route(&self, key: &Key) -> usize {
        self.keys.partition_point(|first| first <= key)
    }

    #[inline]
    fn child(&self, key: &Key) -> u32 {
        self.children[self.route(key)]
    }

    fn is_full(&self) -> bool {
        self.children.len() == CHILDREN_MAX
    }

    fn insert_child(&mut self, at: usize, key: Key, child: u32) {
        self.keys.insert(at, key);
        self.children.insert(at + 1, child);
    }

    fn halve(&mut self) -> (Key, Interior) {
        let middle = self.keys.len() / 2;
        let keys = self.keys.split_off(middle + 1);
        let children = self.children.split_off(middle + 1);
        let between = self.keys.pop().expect("invariant: a full node has keys");
        (between, Interior { level: self.level, keys, children })
    }

    /// Leaves a root that has one child, which is to be what the root was.
    fn push(&mut self, child: u32) -> Interior {
        let root = Interior { level: self.level + 1, keys: Vec::new(), children: vec![child] };
        std::mem::replace(self, root)
    }
}

/// Nodes with a latch each, on cache lines of their own: processors fetch them in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Slot<T>(RwLock<T>);

struct Slab<T> {
    slots: Box<[Slot<T>]>,
    next: AtomicU32,
}

impl<T: Default> Slab<T> {
    fn of(count: usize) -> Slab<T> {
        Slab { slots: (0..count).map(|_| Slot::default()).collect(), next: AtomicU32::new(0) }
    }

    /// Takes a place that nobody knows of yet.
    fn reserve(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn add(&self, node: T) -> u32 {
        let at = self.reserve();
        *self.at(at).write() = node;
        at
    }

    #[inline]
    fn at(&self, at: u32) -> &RwLock<T> {
        &self.slots[at as usize].0
    }
}

struct Coupled {
    interiors: Slab<Interior>,
    leaves: Slab<Leaf>,
    /// Whether changes take interior nodes shared at first.
    shared: bool,
}

impl Coupled {
    /// A change with the latches of interior nodes shared; `false` where the leaf is full.
    fn put_shared(&self, key: &Key, value: &Value) -> bool {
        let mut node = self.interiors.at(ROOT).read();
        while node.level > 1 {
            node = self.interiors.at(node.child(key)).read();
        }
        let mut leaf = self.leaves.at(node.child(key)).write();
        drop(node);
        leaf.put(key, value)
    }

    fn put_exclusive(&self, key: &Key, value: &Value) {
        let mut node = self.interiors.at(ROOT).write();
        if node.is_full() {
            let child = self.interiors.reserve();
            let below = node.push(child);
            *self.interiors.at(child).write() = below;
        }
        while node.level > 1 {
            let at = node.route(key);
            let mut child = self.interiors.at(node.children[at]).write();
            if child.is_full() {
                let (between, right) = child.halve();
                let right = self.interiors.add(right);
                node.insert_child(at, between, right);
                if between <= *key {
                    child = self.interiors.at(right).write();
                }
            }
            node = child;
        }
        let at = node.route(key);
        let mut leaf = self.leaves.at(node.children[at]).write();
        if !leaf.is_full() {
            drop(node);
            assert!(leaf.put(key, value), "there is space");
        } else if !leaf.put(key, value) {
            let (mut left, mut right) = leaf.halves();
            let between = right.keys[0];
            let half = if between <= *key { &mut right } else { &mut left };
            assert!(half.put(key, value), "a half has space");
            *leaf = left;
            node.insert_child(at, between, self.leaves.add(right));
        }
    }
}

impl Tree for Coupled {
    fn get(&self, key: &Key) -> Option<u8> {
        let mut node = self.interiors.at(ROOT).read();
        while node.level > 1 {
            node = self.interiors.at(node.child(key)).read();
        }
        let leaf = self.leaves.at(node.child(key)).read();
        drop(node);
        leaf.get(key)
    }

    fn put(&self, key: &Key, value: &Value) {
        if !self.shared || !self.put_shared(key, value) {
            self.put_exclusive(key, value);
        }
    }
}

struct Ours {
    interiors: Latch<Vec<Interior>>,
    leaves: Slab<Leaf>,
}

/// The parent of a key's leaf.
#[inline]
fn parent(interiors: &[Interior], key: &Key) -> u32 {
    let mut at = ROOT;
    loop {
        let node = &interiors[at as usize];
        if node.level == 1 {
            return at;
        }
        at = node.child(key);
    }
}

impl Ours {
    #[inline]
    fn put_in_place(&self, key: &Key, value: &Value) -> bool {
        let interiors = self.interiors.read();
        let node = &interiors[parent(&interiors, key) as usize];
        self.leaves.at(node.child(key)).write().put(key, value)
    }

    /// Splits the full leaf of a key; `false` where that has to be done from the root down.
    fn split_ahead(&self, key: &Key) -> bool {
        let interiors = self.interiors.read();
        let at = interiors[parent(&interiors, key) as usize].child(key);
        drop(interiors);
        let leaf = self.leaves.at(at).read();
        if !leaf.is_full() {
            return false;
        }
        let ((left, right), changes) = (leaf.halves(), leaf.changes);
        drop(leaf);
        let between = right.keys[0];
        let right = self.leaves.add(right);
        let mut interiors = self.interiors.write();
        let above = parent(&interiors, key) as usize;
        let place = interiors[above].route(key);
        if interiors[above].children[place] != at || interiors[above].is_full() {
            return false;
        }
        let mut leaf = self.leaves.at(at).write();
        if leaf.changes != changes {
            return false;
        }
        let old = std::mem::replace(&mut *leaf, left);
        interiors[above].insert_child(place, between, right);
        drop(interiors);
        drop(leaf);
        drop(old);
        true
    }

    fn put_exclusive(&self, key: &Key, value: &Value) {
        let mut interiors = self.interiors.write();
        if interiors[ROOT as usize].is_full() {
            let child = interiors.len() as u32;
            let below = interiors[ROOT as usize].push(child);
            interiors.push(below);
        }
        let mut node = ROOT as usize;
        while interiors[node].level > 1 {
            let at = interiors[node].route(key);
            let child = interiors[node].children[at] as usize;
            if interiors[child].is_full() {
                let (between, right) = interiors[child].halve();
                let new = interiors.len() as u32;
                interiors.push(right);
                interiors[node].insert_child(at, between, new);
            }
            node = interiors[node].child(key) as usize;
        }
        let at = interiors[node].route(key);
        let mut leaf = self.leaves.at(interiors[node].children[at]).write();
        if !leaf.put(key, value) {
            let (mut left, mut right) = leaf.halves();
            let between = right.keys[0];
            let half = if between <= *key { &mut right } else { &mut left };
            assert!(half.put(key, value), "a half has space");
            *leaf = left;
            interiors[node].insert_child(at, between, self.leaves.add(right));
        }
    }
}

impl Tree for Ours {
    fn get(&self, key: &Key) -> Option<u8> {
        let interiors = self.interiors.read();
        let node = &interiors[parent(&interiors, key) as usize];
        self.leaves.at(node.child(key)).read().get(key)
    }

    fn put(&self, key: &Key, value: &Value) {
        let done =
            self.put_in_place(key, value) || self.split_ahead(key) && self.put_in_place(key, value);
        if !done {
            self.put_exclusive(key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Kind, Shuffle, key, value};

    const ENTRIES: u64 = 60_000;

    /// Three threads insert their entries, each with keys between the others', and change them
    /// again while others insert. Nothing is lost, and nothing is there that was not put.
    #[test]
    fn threads_insert_without_loss_under_any_latching() {
        let number_key = |number| key_of(&key(number, Kind::There));
        for scheme in Scheme::ALL {
            let tree = scheme.make(3 * ENTRIES);
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let (tree, order) = (&tree, Shuffle::new(ENTRIES, thread));
                    scope.spawn(move || {
                        for at in 0..ENTRIES {
                            let number = 3 * order.at(at) + thread;
                            tree.put(&number_key(number), &value(number + 1));
                            let again = 3 * order.at(at / 2) + thread;
                            tree.put(&number_key(again), &value(again));
                        }
                    });
                }
            });
            for (thread, place) in (0..3).flat_map(|of| (0..ENTRIES).map(move |at| (of, at))) {
                let number = 3 * Shuffle::new(ENTRIES, thread).at(place) + thread;
                // The later half was put once.
                let expected = value(if place < ENTRIES / 2 { number } else { number + 1 })[0];
                let found = tree.get(&number_key(number));
                assert_eq!(found, Some(expected), "{} {number}", scheme.name());
                assert_eq!(tree.get(&key_of(&key(number, Kind::Absent))), None);
            }
        }
    }
}
