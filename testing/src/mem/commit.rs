//! Applying a batch to a copy of the set of trees; the caller publishes it when all of it went.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use format::batch::Op;
use store::{Batch, Error, Result, TreeId};

/// One tree. Values are shared, so that copying a tree copies no values.
pub(super) type Tree = BTreeMap<Vec<u8>, Arc<[u8]>>;

/// All trees. Copying it copies pointers.
pub(super) type Trees = BTreeMap<TreeId, Arc<Tree>>;

fn existing(trees: &mut Trees, tree: u64) -> Result<&mut Tree> {
    let tree = TreeId(tree);
    trees.get_mut(&tree).map(Arc::make_mut).ok_or(Error::NoTree(tree))
}

fn add(trees: &mut Trees, tree: u64, contents: Arc<Tree>) -> Result<()> {
    let tree = TreeId(tree);
    if trees.contains_key(&tree) {
        return Err(Error::TreeExists(tree));
    }
    trees.insert(tree, contents);
    Ok(())
}

/// Keeps the keys that start with one of `prefixes`; all of them when there are none.
fn only_prefixes(source: &Arc<Tree>, prefixes: &[&[u8]]) -> Arc<Tree> {
    if prefixes.is_empty() {
        return Arc::clone(source);
    }
    let kept =
        source.iter().filter(|(key, _)| prefixes.iter().any(|prefix| key.starts_with(prefix)));
    Arc::new(kept.map(|(key, value)| (key.clone(), Arc::clone(value))).collect())
}

/// What a batch did beside changing keys.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// Trees that it dropped.
    pub(super) dropped: u64,
}

/// Applies a batch in order. After an error `trees` holds a part of it and must be thrown away.
pub(super) fn apply(trees: &mut Trees, batch: &Batch) -> Result<Applied> {
    let mut applied = Applied::default();
    for op in batch.ops() {
        match op.expect("invariant: a batch encodes what it was given") {
            Op::Put { tree, key, value } => {
                existing(trees, tree)?.insert(key.to_vec(), Arc::from(value));
            }
            Op::Delete { tree, key } => {
                existing(trees, tree)?.remove(key);
            }
            Op::DeleteRange { tree, from, to } => {
                let tree = existing(trees, tree)?;
                if from < to {
                    let range = (Bound::Included(from), Bound::Excluded(to));
                    let gone: Vec<Vec<u8>> =
                        tree.range::<[u8], _>(range).map(|(key, _)| key.clone()).collect();
                    for key in gone {
                        tree.remove(&key);
                    }
                }
            }
            Op::Merge { tree, key, lanes } => {
                let tree = existing(trees, tree)?;
                let mut value = tree.get(key).map(|value| value.to_vec()).unwrap_or_default();
                lanes.apply(&mut value);
                tree.insert(key.to_vec(), Arc::from(value));
            }
            Op::CreateTree { tree } => add(trees, tree, Arc::default())?,
            Op::CloneTree { source, target, prefixes } => {
                let source = TreeId(source);
                let source = trees.get(&source).ok_or(Error::NoTree(source))?;
                let contents = only_prefixes(source, &prefixes);
                add(trees, target, contents)?;
            }
            Op::DropTree { tree } => {
                let tree = TreeId(tree);
                trees.remove(&tree).ok_or(Error::NoTree(tree))?;
                applied.dropped += 1;
            }
        }
    }
    Ok(applied)
}
