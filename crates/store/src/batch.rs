//! `Batch`: an insert group, applied atomically.

use format::batch as codec;
use format::batch::{KEY_BYTES_MAX, LANES_MAX, Lane, Op, Ops, VALUE_BYTES_MAX};

use crate::TreeId;

/// Operations committed atomically, over any number of trees, applied in order.
///
/// The batch is encoded while it is built, and the log stores those bytes, so a commit copies them
/// once. A batch may be cleared and used again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    bytes: Vec<u8>,
    ops: usize,
    need: Need,
}

/// Space class of a batch, as set by its creator. Space reserved for removals on a full disk is not
/// for a batch that merely deletes a key incidentally.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Adds data, or rewrites as much elsewhere.
    #[default]
    Adds,
    /// Removes data, and adds little: names, contents, records of removed objects.
    Removes,
    /// Frees whole trees or directories, now or in later steps: no other batch frees as much.
    Relieves,
}

/// A batch exceeded the size of one log record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {} bytes in one batch", Batch::BYTES_MAX)]
pub struct BatchFull;

impl Batch {
    /// Maximum bytes of one encoded batch: the maximum payload of a log record.
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

    /// Sets the batch's space class, unless it has a higher one already. The store reads it; it is
    /// not part of the encoding. Dropping a tree sets it implicitly.
    pub fn mark(&mut self, need: Need) {
        self.need = self.need.max(need);
    }

    /// The batch's space class.
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

    /// Removes all keys from `from` (inclusive) to `to` (exclusive).
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

    /// Creates an empty tree. Its number must be above [`TreeId::LAST_RESERVED`] and never used
    /// before.
    pub fn create_tree(&mut self, tree: TreeId) {
        assert!(tree > TreeId::LAST_RESERVED, "tree {} is reserved", tree.0);
        codec::create_tree(&mut self.bytes, tree.0);
        self.ops += 1;
    }

    /// Creates `target` with everything that `source` holds at this point of the batch, in O(1).
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

    /// Removes a tree; its space is reclaimed by [`crate::Maintain::reclaim_step`].
    pub fn drop_tree(&mut self, tree: TreeId) {
        codec::drop_tree(&mut self.bytes, tree.0);
        self.ops += 1;
        self.mark(Need::Relieves);
    }

    /// Whether it drops each of the given trees; `false` if none are given.
    pub fn drops_all(&self, trees: &[TreeId]) -> bool {
        let drops = |tree: &TreeId| {
            self.ops().any(|op| matches!(op, Ok(Op::DropTree { tree: one }) if one == tree.0))
        };
        !trees.is_empty() && trees.iter().all(drops)
    }

    /// Fails when the batch is too large to commit. Callers that build batches of unbounded size
    /// check this while they build.
    pub fn check(&self) -> Result<(), BatchFull> {
        if self.bytes.len() > Batch::BYTES_MAX { Err(BatchFull) } else { Ok(()) }
    }
}
