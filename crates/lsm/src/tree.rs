//! A tree: one active in-memory tree over a stack of immutable layers.
//!
//! A clone, a pinned state and a checkpoint all begin by *freezing*. The active tree becomes the
//! newest layer, and an empty one takes its place. Short-lived states must not leave many small
//! layers. So a tree takes back a newest layer that nothing else holds any more, unless a newer
//! range deletes much of it. It copies layers that others hold if they are hardly larger than what
//! is above them. It does not copy a layer that a checkpoint is writing, perhaps as one run with
//! those below it: the copy would stay in memory.
//!
//! A copied layer becomes part of one half as large again. So an entry is copied a few times,
//! however often the tree is frozen. Then it is in a layer that is too large to be copied. Larger
//! layers are merged without blocking commits (`flatten`).

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::sync::{Mutex, RwLock};
use store::{Error, Result, TreeId};

use crate::key::{Direction, Key};
use crate::layer::{Layer, LayerId, Stack};
use crate::mem::{Below, Known, Mem, Value};
use crate::ranges::OwnedSpan;

/// Most entries and ranges that freezing moves or copies: commits of the tree, or all, wait for it.
const MOVED_MAX: usize = 4096;

/// The numbers of layers.
pub(crate) struct Ids {
    next: AtomicU64,
    /// The checkpoint in progress has no layer from this number on; 0 if there is no checkpoint.
    in_flight: AtomicU64,
    /// Entries and ranges of layers in memory that were copied or moved to others, or removed.
    pub(crate) moved: AtomicU64,
}

impl Ids {
    pub(crate) fn new(next: LayerId) -> Ids {
        Ids { next: AtomicU64::new(next), in_flight: AtomicU64::new(0), moved: AtomicU64::new(0) }
    }

    /// The number of a new layer.
    pub(crate) fn take(&self) -> LayerId {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// No layer has this number or a greater one.
    pub(crate) fn next(&self) -> LayerId {
        self.next.load(Ordering::Relaxed)
    }

    /// A checkpoint writes the existing layers. The caller holds the gate exclusively.
    pub(crate) fn freeze(&self) {
        self.in_flight.store(self.next(), Ordering::Relaxed);
    }

    /// The checkpoint failed. The caller holds the gate exclusively.
    pub(crate) fn thaw(&self) {
        self.in_flight.store(0, Ordering::Relaxed);
    }

    /// Whether a layer in memory is being written: it stays in its place until it is exchanged,
    /// together with its neighbours.
    fn is_in_flight(&self, layer: &Layer) -> bool {
        layer.id < self.in_flight.load(Ordering::Relaxed)
    }
}

/// The content of a tree.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) active: Mem,
    pub(crate) stack: Arc<Stack>,
}

/// A tree that exists, or existed when a caller got its handle.
pub(crate) struct Tree {
    pub(crate) id: TreeId,
    pub(crate) state: RwLock<State>,
    /// Held by the one commit that changes the tree, so that changes are applied in log order.
    pub(crate) commit: Mutex<()>,
    /// Whether it differs from what the last freeze of a checkpoint saw.
    pub(crate) changed: AtomicBool,
    pub(crate) dropped: AtomicBool,
    /// The last pin that has what the tree was then (`pinning`).
    pub(crate) pinned: AtomicU64,
    /// Entries of the active tree that cursors copied.
    pub(crate) copied: AtomicU64,
    /// Keys that cursors visited, deleted ones included.
    pub(crate) visited: AtomicU64,
}

/// A part of an active tree, copied so that nothing is locked while the rest is read.
pub(crate) struct ActiveCopy {
    pub(crate) mem: Mem,
    /// The last key that was copied, where there are more behind it.
    pub(crate) edge: Option<Key>,
    pub(crate) stack: Arc<Stack>,
}

impl State {
    pub(crate) fn below(&self) -> Below {
        if self.stack.layers.is_empty() { Below::Nothing } else { Below::Layers }
    }
}

impl Tree {
    pub(crate) fn new(id: TreeId, stack: Arc<Stack>) -> Tree {
        Tree {
            id,
            state: RwLock::new(State { active: Mem::default(), stack }),
            commit: Mutex::new(()),
            changed: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
            pinned: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            visited: AtomicU64::new(0),
        }
    }

    /// Looks a key up, newest layer first.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let stack = {
            let state = self.state.read();
            self.exists()?;
            match state.active.get(key)? {
                Known::Value(value) => {
                    found(value);
                    return Ok(true);
                }
                Known::Deleted => return Ok(false),
                Known::Nothing if state.stack.layers.is_empty() => return Ok(false),
                Known::Nothing => Arc::clone(&state.stack),
            }
        };
        Ok(stack.get(key, found)? == Known::Value(()))
    }

    /// Copies the first entries of the active tree that are within bounds, up to `most`.
    pub(crate) fn part(
        &self,
        direction: Direction,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        most: usize,
    ) -> Result<ActiveCopy> {
        let state = self.state.read();
        self.exists()?;
        let mut entries: Vec<(Key, Value)> = Vec::new();
        if !is_empty(bounds) {
            let range = state.active.entries.range::<[u8], _>(bounds);
            let owned = |(key, value): (&Key, &Value)| (key.clone(), value.clone());
            match direction {
                Direction::Forward => entries.extend(range.take(most).map(owned)),
                Direction::Backward => entries.extend(range.rev().take(most).map(owned)),
            }
        }
        self.copied.fetch_add(entries.len() as u64, Ordering::Relaxed);
        let more = entries.len() == most;
        let edge = entries.last().filter(|_| more).map(|(key, _)| key.clone());
        if direction == Direction::Backward {
            entries.reverse();
        }
        let mem = state.active.part(entries);
        Ok(ActiveCopy { mem, edge, stack: Arc::clone(&state.stack) })
    }

    /// Notes that nothing exists in ranges, as a cursor found with this stack. So the next cursor
    /// does not visit each key that was deleted there. The content of the tree stays the same. It
    /// is locked for changes only if that replaces tombstones.
    ///
    /// What was put since then is in the active tree, because the caller holds the stack: it is
    /// neither changed in place nor another one. A tree whose active part is empty may be the same
    /// as the durable one, and stays so.
    pub(crate) fn note_deleted(&self, stack: &Arc<Stack>, spans: &[OwnedSpan]) {
        let is_same = |state: &State| {
            let is_same = Arc::ptr_eq(&state.stack, stack) && !state.active.is_empty();
            is_same && !self.dropped.load(Ordering::Relaxed)
        };
        {
            let state = self.state.read();
            let joins = |(from, to): &OwnedSpan| state.active.would_join(from, to.as_deref());
            if !is_same(&state) || !spans.iter().any(joins) {
                return;
            }
        }
        let mut state = self.state.write();
        if is_same(&state) {
            for (from, to) in spans {
                state.active.join_tombstones(from, to.as_deref());
            }
        }
    }

    /// Called with the state locked. A tree is marked as dropped before its state is removed, so
    /// that no reader takes the remainder for its content.
    #[inline]
    fn exists(&self) -> Result<()> {
        if self.dropped.load(Ordering::Relaxed) { Err(Error::NoTree(self.id)) } else { Ok(()) }
    }

    /// Makes a layer of the active tree, if it is not empty; returns the stack. The caller holds
    /// the gate exclusively, or shared together with the tree's lock for commits.
    pub(crate) fn freeze(&self, ids: &Ids) -> Arc<Stack> {
        let mut state = self.state.write();
        let state = &mut *state;
        if !state.active.is_empty() {
            let active = std::mem::take(&mut state.active);
            push(&mut state.stack, active, ids);
        }
        Arc::clone(&state.stack)
    }
}

/// Adds the newest layer to a stack, as the caller of [`Tree::freeze`] may.
pub(crate) fn push(stack: &mut Arc<Stack>, mem: Mem, ids: &Ids) {
    let mut mem = mem;
    if mem.len() <= MOVED_MAX {
        match take_back(stack, mem, ids) {
            None => return,
            Some(still) => mem = still,
        }
    }
    let copied = small_layers(&stack.layers, &mem, ids);
    let below = &stack.layers[copied.len()..];
    if !copied.is_empty() {
        let lowest = if below.is_empty() { Below::Nothing } else { Below::Layers };
        let older = copied.iter().map(|older| &**older);
        mem = merged(older, Some(mem), lowest);
        ids.moved.fetch_add(mem.entries.len() as u64, Ordering::Relaxed);
    }
    let mut layers = Vec::with_capacity(below.len() + 1);
    if !mem.is_empty() {
        layers.push(Arc::new(Layer::memory(ids.take(), mem)));
    }
    layers.extend_from_slice(below);
    *stack = Arc::new(Stack { layers });
}

/// The newest layers that may be copied, each at most twice as large as everything above it.
fn small_layers(layers: &[Arc<Layer>], newest: &Mem, ids: &Ids) -> Vec<Arc<Mem>> {
    let mut entries = newest.len();
    let mut small = Vec::new();
    for layer in layers {
        if ids.is_in_flight(layer) {
            break;
        }
        let Some(older) = layer.as_memory() else { break };
        let more = older.len();
        if more > 2 * entries || entries + more > MOVED_MAX {
            break;
        }
        entries += more;
        small.push(older);
    }
    small
}

/// The combined content of layers in memory, newest first, and a newer tree.
pub(crate) fn merged<'m>(
    older: impl DoubleEndedIterator<Item = &'m Mem>,
    newest: Option<Mem>,
    below: Below,
) -> Mem {
    let mut oldest_first = older.rev();
    let mut all = oldest_first.next().cloned().unwrap_or_default();
    for newer in oldest_first.cloned().chain(newest) {
        all.absorb(newer, below);
    }
    all
}

/// Whether no key is within bounds, including bounds that begin behind their end.
fn is_empty(bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match bounds {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to))
        | (Bound::Excluded(from), Bound::Included(to)) => from >= to,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
    }
}

/// Adds a newer tree to the newest layer, if that is in memory and nothing else has it; otherwise
/// returns the tree.
fn take_back(stack: &mut Arc<Stack>, newest: Mem, ids: &Ids) -> Option<Mem> {
    let Some(layers) = Arc::get_mut(stack).map(|stack| &mut stack.layers) else {
        return Some(newest);
    };
    let below = if layers.len() > 1 { Below::Layers } else { Below::Nothing };
    let Some(layer) = layers.first_mut().and_then(Arc::get_mut) else { return Some(newest) };
    let Some(mem) = layer.memory_mut() else { return Some(newest) };
    // One range of the newer tree may remove any number of entries of the older one.
    let moved = newest.len() + mem.count_within(&newest.ranges, MOVED_MAX + 1);
    if mem.len() < newest.len() || moved > MOVED_MAX {
        return Some(newest);
    }
    ids.moved.fetch_add(moved as u64, Ordering::Relaxed);
    mem.absorb(newest, below);
    layer.renumber(ids.take());
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a cursor found deleted is not noted where the tree may be another one by then.
    #[test]
    fn only_what_is_deleted_still_is_noted() {
        let (tree, ids) = (Tree::new(TreeId(1), Arc::default()), Ids::new(1));
        tree.state.write().active.put(b"below", b"");
        let stack = tree.freeze(&ids);
        let entries = || tree.state.read().active.entries.len();
        let delete = || {
            let mut state = tree.state.write();
            for key in [b"a", b"b", b"c"] {
                state.active.delete(key, Below::Layers);
            }
        };
        let note = |stack: &Arc<Stack>| tree.note_deleted(stack, &[(b"a".to_vec(), None)]);
        note(&stack);
        assert!(tree.state.read().active.is_empty(), "an unchanged tree stays so");
        delete();
        note(&Arc::default());
        assert_eq!(entries(), 3, "another stack");
        tree.state.write().active.put(b"b", b"since then");
        note(&stack);
        assert_eq!(entries(), 3, "a value");
        delete();
        tree.dropped.store(true, Ordering::Relaxed);
        note(&stack);
        assert_eq!(entries(), 3, "a dropped tree");
        tree.dropped.store(false, Ordering::Relaxed);
        note(&stack);
        assert!(entries() == 0 && !tree.state.read().active.ranges.is_empty());
        // The layer that the cursor has is neither changed nor taken back.
        let frozen = tree.freeze(&ids);
        note(&stack);
        assert!(!Arc::ptr_eq(&stack, &frozen) && tree.state.read().active.is_empty());
    }

    /// A freeze, which stops all commits, does not remove one by one what a range covers of the
    /// layer before.
    #[test]
    fn a_freeze_removes_few_entries_of_the_layer_before() {
        for (tombstones, layers) in [(100_usize, 2), (MOVED_MAX, 3)] {
            let (tree, ids) = (Tree::new(TreeId(1), Arc::default()), Ids::new(1));
            tree.state.write().active.put(b"below", b"");
            let below = tree.freeze(&ids);
            // A checkpoint is writing the lowest layer, so that nothing is merged into it.
            ids.freeze();
            for number in 0..tombstones {
                let key = number.to_string();
                tree.state.write().active.delete(key.as_bytes(), Below::Layers);
            }
            drop((tree.freeze(&ids), below));
            let before = ids.moved.load(Ordering::Relaxed);
            tree.state.write().active.delete_range(b"0", Some(b"a"), Below::Layers);
            assert_eq!(tree.freeze(&ids).layers.len(), layers, "{tombstones} tombstones");
            let moved = ids.moved.load(Ordering::Relaxed) - before;
            let expected = if layers == 2 { tombstones as u64 + 1 } else { 0 };
            assert_eq!(moved, expected, "{tombstones} tombstones");
        }
    }

    /// Many readers of what was deleted long ago do not lock the tree for changes: with such a lock
    /// this test would not end.
    #[test]
    fn what_gains_nothing_is_not_noted() {
        let tree = Tree::new(TreeId(1), Arc::default());
        for (at, key) in [b"b", b"d"].into_iter().enumerate() {
            tree.state.write().active.delete(key, Below::Layers);
            let state = tree.state.read();
            let to = |at: usize| Some([b"c", b"d"][at].to_vec());
            tree.note_deleted(&state.stack, &[(b"a".to_vec(), to(at)), (b"x".to_vec(), None)]);
            assert_eq!(state.active.entries.len(), at + 1);
        }
        let stack = Arc::clone(&tree.state.read().stack);
        tree.note_deleted(&stack, &[(b"x".to_vec(), None), (b"a".to_vec(), None)]);
        assert!(tree.state.read().active.entries.is_empty());
    }

    /// A tree that was dropped after a reader got its handle must not read as empty.
    #[test]
    fn a_dropped_tree_is_not_read() {
        let tree = Tree::new(TreeId(1), Arc::default());
        tree.state.write().active.put(b"key", b"value");
        let get = || tree.get(b"key", &mut |_| ());
        let part = || {
            tree.part(Direction::Forward, (Bound::Unbounded, Bound::Unbounded), 10)
                .map(|part| part.mem)
        };
        assert!(get().unwrap());
        assert_eq!(part().unwrap().entries.len(), 1);
        // As a batch does when it drops the tree.
        tree.dropped.store(true, Ordering::Relaxed);
        drop(std::mem::take(&mut *tree.state.write()));
        assert!(matches!(get(), Err(Error::NoTree(TreeId(1)))));
        assert!(matches!(part(), Err(Error::NoTree(TreeId(1)))));
    }
}
