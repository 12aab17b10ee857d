//! Checks a batch, and applies a checked one.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use format::batch::{Op, Ops};
use store::{Error, Result, TreeId};

/// One tree. Values are shared, so that copying a tree copies no values.
pub(crate) type Tree = BTreeMap<Vec<u8>, Arc<[u8]>>;

/// All trees. Copying it copies pointers.
pub(crate) type Trees = BTreeMap<TreeId, Arc<Tree>>;

fn existing(trees: &mut Trees, tree: u64) -> &mut Tree {
    trees.get_mut(&TreeId(tree)).map(Arc::make_mut).expect("invariant: it was checked")
}

/// Keeps the keys that start with one of `prefixes`; all keys if there are none.
fn only_prefixes(source: &Arc<Tree>, prefixes: &[&[u8]]) -> Arc<Tree> {
    if prefixes.is_empty() {
        return Arc::clone(source);
    }
    let kept =
        source.iter().filter(|(key, _)| prefixes.iter().any(|prefix| key.starts_with(prefix)));
    Arc::new(kept.map(|(key, value)| (key.clone(), Arc::clone(value))).collect())
}

/// Checks that a batch refers only to trees that exist at that point, and creates only trees that
/// do not.
pub(super) fn check(trees: &Trees, ops: Ops<'_>) -> Result<()> {
    let mut changed: BTreeMap<u64, bool> = BTreeMap::new();
    let exists = |changed: &BTreeMap<u64, bool>, tree: u64| {
        changed.get(&tree).copied().unwrap_or_else(|| trees.contains_key(&TreeId(tree)))
    };
    for op in ops {
        let op = op.expect("invariant: a batch encodes what it was given");
        let (needed, created) = match op {
            Op::Put { tree, .. }
            | Op::Delete { tree, .. }
            | Op::DeleteRange { tree, .. }
            | Op::Merge { tree, .. }
            | Op::DropTree { tree } => (Some(tree), None),
            Op::Ingest { .. } | Op::Link { .. } => {
                unreachable!("batches have none, and this store logs none")
            }
            Op::CreateTree { tree } => (None, Some(tree)),
            Op::CloneTree { source, target, .. } => (Some(source), Some(target)),
        };
        if let Some(tree) = needed.filter(|&tree| !exists(&changed, tree)) {
            return Err(Error::NoTree(TreeId(tree)));
        }
        if let Some(tree) = created {
            if exists(&changed, tree) {
                return Err(Error::TreeExists(TreeId(tree)));
            }
            changed.insert(tree, true);
        }
        if let Op::DropTree { tree } = op {
            changed.insert(tree, false);
        }
    }
    Ok(())
}

/// Applies a checked batch, in order. Returns the number of dropped trees.
pub(super) fn apply(trees: &mut Trees, ops: Ops<'_>) -> u64 {
    let mut dropped = 0;
    for op in ops {
        match op.expect("invariant: it was checked") {
            Op::Put { tree, key, value } => {
                existing(trees, tree).insert(key.to_vec(), Arc::from(value));
            }
            Op::Delete { tree, key } => {
                existing(trees, tree).remove(key);
            }
            Op::DeleteRange { tree, from, to } => delete_range(existing(trees, tree), from, to),
            Op::Merge { tree, key, lanes } => {
                let tree = existing(trees, tree);
                let mut value = tree.get(key).map(|value| value.to_vec()).unwrap_or_default();
                lanes.apply(&mut value);
                tree.insert(key.to_vec(), Arc::from(value));
            }
            Op::CreateTree { tree } => {
                trees.insert(TreeId(tree), Arc::default());
            }
            Op::CloneTree { source, target, prefixes } => {
                let source = trees.get(&TreeId(source)).expect("invariant: it was checked");
                let contents = only_prefixes(source, &prefixes);
                trees.insert(TreeId(target), contents);
            }
            Op::Ingest { .. } | Op::Link { .. } => unreachable!("it was checked"),
            Op::DropTree { tree } => {
                trees.remove(&TreeId(tree));
                dropped += 1;
            }
        }
    }
    dropped
}

fn delete_range(tree: &mut Tree, from: &[u8], to: &[u8]) {
    if from < to {
        let range = (Bound::Included(from), Bound::Excluded(to));
        let gone: Vec<Vec<u8>> = tree.range::<[u8], _>(range).map(|(key, _)| key.clone()).collect();
        for key in gone {
            tree.remove(&key);
        }
    }
}
