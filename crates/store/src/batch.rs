//! `Batch`: an insert group. All of it happens, or nothing.

use format::batch as codec;
use format::batch::{KEY_BYTES_MAX, LANES_MAX, Lane, Op, Ops, VALUE_BYTES_MAX};

use crate::TreeId;

/// Operations that are committed as one, over any number of trees, applied in order.
///
/// It is encoded while it is built, and those bytes are what the log holds, so that a commit
/// copies them once. May be cleared and used again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    bytes: Vec<u8>,
    ops: usize,
    need: Need,
}

/// What a batch needs room for, as whoever made it says: what is kept of a full disk for
/// removing is not for what merely deletes a key in passing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// For more than there was, or for as much in another place.
    #[default]
    Adds,
    /// It removes, and adds little: names, contents, records of what is gone.
    Removes,
    /// It has whole trees or directories given back, now or in steps that follow: nothing else
    /// gives back as much.
    Relieves,
}

/// A batch outgrew what one log record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {} bytes in one batch", Batch::BYTES_MAX)]
pub struct BatchFull;

impl Batch {
    /// Most bytes of one encoded batch: the greatest payload of a log record.
    pub const BYTES_MAX: usize = 16 << 20;

    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ops = 0;
        self.need = Need::Adds;
    }

    /// Says what the batch is for, unless more was said already. It is told to the store, and not
    /// part of the encoding. Dropping a tree says it by itself.
    pub fn mark(&mut self, need: Need) {
        self.need = self.need.max(need);
    }

    /// What was said.
    pub fn need(&self) -> Need {
        self.need
    }

    /// Whether it holds no operation.
    pub fn is_empty(&self) -> bool {
        self.ops == 0
    }

    /// How many operations it holds.
    pub fn len(&self) -> usize {
        self.ops
    }

    /// Its encoding (`docs/format/batch.md`).
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its operations, in order.
    pub fn ops(&self) -> Ops<'_> {
        Ops::new(&self.bytes)
    }

    /// Sets a key's value.
    #[inline]
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        assert!(key.len() <= KEY_BYTES_MAX, "key of {} bytes", key.len());
        assert!(value.len() <= VALUE_BYTES_MAX, "value of {} bytes", value.len());
        codec::put(&mut self.bytes, tree.0, key, value);
        self.ops += 1;
    }

    /// Removes a key, which may be absent.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) {
        assert!(key.len() <= KEY_BYTES_MAX, "key of {} bytes", key.len());
        codec::delete(&mut self.bytes, tree.0, key);
        self.ops += 1;
    }

    /// Removes all keys from `from` up to but without `to`.
    pub fn delete_range(&mut self, tree: TreeId, from: &[u8], to: &[u8]) {
        assert!(from.len() <= KEY_BYTES_MAX && to.len() <= KEY_BYTES_MAX, "key too long");
        codec::delete_range(&mut self.bytes, tree.0, from, to);
        self.ops += 1;
    }

    /// Changes numbers inside a key's value without reading it. An absent value counts as zeros.
    /// Numbers do not overlap: lanes of a key have the same offset or are eight bytes apart.
    pub fn merge(&mut self, tree: TreeId, key: &[u8], lanes: &[Lane]) {
        assert!(key.len() <= KEY_BYTES_MAX, "key of {} bytes", key.len());
        assert!(lanes.len() <= LANES_MAX, "{} lanes", lanes.len());
        codec::merge(&mut self.bytes, tree.0, key, lanes);
        self.ops += 1;
    }

    /// Creates an empty tree. Its number must be above [`TreeId::LAST_RESERVED`] and never used.
    pub fn create_tree(&mut self, tree: TreeId) {
        assert!(tree > TreeId::LAST_RESERVED, "tree {} is reserved", tree.0);
        codec::create_tree(&mut self.bytes, tree.0);
        self.ops += 1;
    }

    /// Creates `target` with all that `source` holds at this point of the batch, in O(1).
    pub fn clone_tree(&mut self, source: TreeId, target: TreeId) {
        self.clone_prefixes(source, target, &[]);
    }

    /// Creates `target` with the keys of `source` that start with one of `prefixes` (ascending,
    /// none a prefix of another); all keys when there are none. BabuDB's partial snapshot.
    pub fn clone_prefixes(&mut self, source: TreeId, target: TreeId, prefixes: &[&[u8]]) {
        assert!(target > TreeId::LAST_RESERVED, "tree {} is reserved", target.0);
        assert!(prefixes.len() <= codec::PREFIXES_MAX, "too many prefixes");
        codec::clone_tree(&mut self.bytes, source.0, target.0, prefixes);
        self.ops += 1;
    }

    /// Removes a tree; its space is reclaimed by [`crate::Store::reclaim_step`].
    pub fn drop_tree(&mut self, tree: TreeId) {
        codec::drop_tree(&mut self.bytes, tree.0);
        self.ops += 1;
        self.mark(Need::Relieves);
    }

    /// Whether it drops each of some trees, of which there is one at least.
    pub fn drops_all(&self, trees: &[TreeId]) -> bool {
        let drops = |tree: &TreeId| {
            self.ops().any(|op| matches!(op, Ok(Op::DropTree { tree: one }) if one == tree.0))
        };
        !trees.is_empty() && trees.iter().all(drops)
    }

    /// Fails when the batch is too large to commit. Callers that build batches of unbounded
    /// size ask this while they build.
    pub fn check(&self) -> Result<(), BatchFull> {
        if self.bytes.len() > Batch::BYTES_MAX { Err(BatchFull) } else { Ok(()) }
    }
}
