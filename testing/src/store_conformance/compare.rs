//! Compares a store's answers with the oracle's.

use std::cell::Cell;

use store::{Batch, Commit, CommitToken, DiffCursor, Error, Item, KeyRange, Read, Store, TreeId};

use crate::MemStore;
use crate::run::{rounds, show};

/// Why a comparison ended.
#[derive(Debug, Clone)]
pub enum Mismatch {
    /// The store returned an error.
    Failed(Error),
    /// The store's answer differs from the oracle's.
    Wrong(String),
}

impl From<Error> for Mismatch {
    fn from(error: Error) -> Mismatch {
        Mismatch::Failed(error)
    }
}

/// An item for a message.
fn describe(item: Option<Item<'_>>) -> String {
    item.map_or_else(
        || "nothing".to_owned(),
        |item| format!("{} = {}", show(item.key), show(item.value)),
    )
}

/// Fails unless two items are the same.
pub(super) fn same_item(
    what: &str,
    found: Option<Item<'_>>,
    expected: Option<Item<'_>>,
) -> Result<(), Mismatch> {
    if found == expected {
        return Ok(());
    }
    let (found, expected) = (describe(found), describe(expected));
    Err(Mismatch::Wrong(format!("{what}: found {found}, expected {expected}")))
}

/// Which keys a comparison looks up beside its scan: one of so many, and which of these. A look-up
/// costs a hundred times an entry of a scan, so in the short form it is one in sixteen. Each
/// comparison of a test takes the next ones.
fn looked_up() -> (u64, u64) {
    thread_local!(static NEXT: Cell<u64> = const { Cell::new(0) });
    let step = rounds(16, 3);
    (step, NEXT.replace(NEXT.get() + 1) % step)
}

/// Compares all keys and values of a tree, by scanning and, for a part of the keys, by looking them
/// up.
pub fn same_tree(store: &dyn Read, oracle: &dyn Read, tree: TreeId) -> Result<(), Mismatch> {
    let what = format!("tree {}", tree.0);
    let mut found = store.scan(tree, KeyRange::all())?;
    let mut expected = oracle.scan(tree, KeyRange::all()).expect("the oracle has the tree");
    let (step, at) = looked_up();
    let mut number = 0_u64;
    loop {
        let item = expected.next().expect("the oracle answers");
        same_item(&what, found.next()?, item)?;
        let Some(item) = item else { return Ok(()) };
        let is_looked_up = number == 0 || number % step == at;
        if is_looked_up && store.get(tree, item.key)?.as_deref() != Some(item.value) {
            return Err(Mismatch::Wrong(format!("{what}: get {} differs", show(item.key))));
        }
        number += 1;
    }
}

/// Compares the set of trees, and everything in them.
pub fn same_store(store: &dyn Store, oracle: &dyn Read, trees: &[TreeId]) -> Result<(), Mismatch> {
    for &tree in trees {
        if !store.tree_exists(tree)? {
            return Err(Mismatch::Wrong(format!("tree {} does not exist", tree.0)));
        }
        same_tree(store, oracle, tree)?;
    }
    let found = store.stats().trees;
    if found != trees.len() as u64 {
        return Err(Mismatch::Wrong(format!("{found} trees, expected {}", trees.len())));
    }
    Ok(())
}

/// Compares the differences of two trees.
pub fn same_diff(
    store: &dyn Store,
    oracle: &dyn Store,
    old: TreeId,
    new: TreeId,
) -> Result<(), Mismatch> {
    let mut found = store.diff(old, new)?;
    let mut expected = oracle.diff(old, new).expect("the oracle has the trees");
    same_differences(&mut *found, &mut *expected).map_err(|mismatch| match mismatch {
        Mismatch::Wrong(what) => Mismatch::Wrong(format!("{} and {}: {what}", old.0, new.0)),
        failed @ Mismatch::Failed(_) => failed,
    })
}

/// The same for two difference cursors, to the end or to an error.
pub(super) fn same_differences(
    found: &mut dyn DiffCursor,
    expected: &mut dyn DiffCursor,
) -> Result<(), Mismatch> {
    loop {
        let (found, expected) = (found.next()?, expected.next().expect("the oracle answers"));
        if found != expected {
            let key = expected.or(found).map_or(String::new(), |diff| show(diff.key));
            return Err(Mismatch::Wrong(format!("differences differ near {key}")));
        }
        if expected.is_none() {
            return Ok(());
        }
    }
}

/// Unwraps a comparison.
#[track_caller]
pub(super) fn must<T>(result: Result<T, Mismatch>) -> T {
    match result {
        Ok(value) => value,
        Err(Mismatch::Failed(error)) => panic!("the store failed: {error}"),
        Err(Mismatch::Wrong(what)) => panic!("{what}"),
    }
}

/// Commits a batch to both and compares the tokens.
pub(super) fn commit_both(store: &dyn Store, oracle: &MemStore, batch: &Batch) -> CommitToken {
    let token = store.commit(batch).expect("the batch is valid");
    assert_eq!(token, oracle.commit(batch).expect("the batch is valid"), "numbers have no gaps");
    token
}
