//! Computes the results of the merges of a batch before the batch is logged.
//!
//! A merge of BabuDB's kind of index needs the old value, which may be on disk. Reading it may
//! fail, and nothing may fail once the batch has its place in the log. A merge sees the effect of
//! earlier operations of its batch on its key.
//!
//! When the log is replayed, an unreadable value is no reason to refuse all the others. It is
//! unknown from then on (`mem`), and the store is read-only (`recover`).

use std::sync::Arc;

use device::Map;
use format::batch::{LaneList, Op, Ops};
use store::{Error, Lsn, Result, TreeId};

use crate::ranges::Ranges;
use crate::tree::Tree;

/// Where a batch comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    /// A caller: it is appended to the log.
    Caller,
    /// The log: it has its number.
    Log(Lsn),
}

impl Origin {
    /// The outcome of a merge, or the error that refuses its batch. A batch of the log cannot be
    /// refused because of damage to the value that it merges into.
    pub(crate) fn known(self, value: Result<Vec<u8>>) -> Result<Result<Vec<u8>>> {
        match (value, self) {
            // A failed read may succeed when the store is opened again.
            (Err(why @ (Error::Corrupt(_) | Error::Missing { .. })), Origin::Log(_)) => {
                Ok(Err(why))
            }
            (value, _) => value.map(Ok),
        }
    }
}

/// Values of merges, in the order of their operations.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    values: Vec<Result<Vec<u8>>>,
    next: usize,
}

/// The state of a key after earlier operations of a batch.
#[derive(Clone, Copy)]
enum Left<'b> {
    Put(&'b [u8]),
    Deleted,
    /// The value of this merge.
    Merged(usize),
}

impl Resolver {
    /// Computes the values of a batch of changes, whose trees are locked.
    pub(crate) fn new(
        bytes: &[u8],
        merges: usize,
        trees: &[Arc<Tree>],
        origin: Origin,
    ) -> Result<Resolver> {
        let mut resolver = Resolver::default();
        if merges == 0 {
            return Ok(resolver);
        }
        // The effect of the batch so far: values of keys, and ranges that it deleted.
        let mut changed: Map<(TreeId, &[u8]), Left<'_>> = Map::default();
        let mut deleted: Map<TreeId, Ranges> = Map::default();
        for op in Ops::new(bytes) {
            let op = op.map_err(malformed)?;
            let tree = changed_tree(&op);
            match op {
                Op::Put { key, value, .. } => {
                    changed.insert((tree, key), Left::Put(value));
                }
                Op::Delete { key, .. } => {
                    changed.insert((tree, key), Left::Deleted);
                }
                Op::DeleteRange { from, to, .. } => {
                    changed.retain(|(at, key), _| *at != tree || *key < from || *key >= to);
                    deleted.entry(tree).or_default().add(from, Some(to));
                }
                Op::Merge { key, lanes, .. } => {
                    let old = match changed.get(&(tree, key)).copied() {
                        Some(Left::Put(value)) => Ok(Some(value.to_vec())),
                        Some(Left::Merged(at)) => resolver.values[at].clone().map(Some),
                        Some(Left::Deleted) => Ok(None),
                        None if deleted.get(&tree).is_some_and(|d| d.covering(key).is_some()) => {
                            Ok(None)
                        }
                        None => {
                            let mut value = None;
                            let read = &mut |bytes: &[u8]| value = Some(bytes.to_vec());
                            find(trees, tree).get(key, read).map(|_| value)
                        }
                    };
                    changed.insert((tree, key), Left::Merged(resolver.values.len()));
                    resolver.values.push(origin.known(old.map(|old| merged(old, &lanes)))?);
                }
                _ => unreachable!("all others want to be alone"),
            }
        }
        Ok(resolver)
    }

    /// The value of the next merge, or why it is unknown.
    pub(crate) fn next_value(&mut self) -> &Result<Vec<u8>> {
        self.next += 1;
        &self.values[self.next - 1]
    }
}

/// The tree that a change is to.
pub(crate) fn changed_tree(op: &Op<'_>) -> TreeId {
    match op {
        Op::Put { tree, .. }
        | Op::Delete { tree, .. }
        | Op::DeleteRange { tree, .. }
        | Op::Merge { tree, .. } => TreeId(*tree),
        _ => unreachable!("all others want to be alone"),
    }
}

/// One of the trees of a batch, which ascend.
pub(crate) fn find(trees: &[Arc<Tree>], id: TreeId) -> &Arc<Tree> {
    let at = trees.binary_search_by_key(&id, |tree| tree.id);
    &trees[at.expect("invariant: a plan has all trees of its batch")]
}

/// The value that a merge produces from an old one.
pub(crate) fn merged(old: Option<Vec<u8>>, lanes: &LaneList<'_>) -> Vec<u8> {
    let mut value = old.unwrap_or_default();
    lanes.apply(&mut value);
    value
}

/// A record of the log that is not a batch. The log reports its position.
pub(crate) fn malformed(malformed: format::Malformed) -> Error {
    malformed.located("", 0).into()
}
