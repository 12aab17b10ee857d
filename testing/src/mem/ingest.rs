//! Runs as batches of puts: the expected result of an engine's ingestion.

use std::ops::Bound;

use store::{Batch, Error, Result, SortedRun, TreeId};

use super::commit::Trees;
use super::cursor::find;

/// The batch that puts the entries of a run into a tree of a state. `None` for an empty run.
pub(crate) fn as_batch(
    trees: &Trees,
    tree: TreeId,
    entries: &[(Vec<u8>, Vec<u8>)],
) -> Result<Option<Batch>> {
    let contents = find(trees, tree)?;
    let (Some((first, _)), Some((last, _))) = (entries.first(), entries.last()) else {
        return Ok(None);
    };
    let range = (Bound::Included(first.as_slice()), Bound::Included(last.as_slice()));
    if let Some((key, _)) = contents.range::<[u8], _>(range).next() {
        return Err(Error::RangeNotEmpty { tree, key: key.clone() });
    }
    let mut batch = Batch::new();
    for (key, value) in entries {
        batch.put(tree, key, value);
    }
    batch.check().map_err(|_| Error::RunTooLong)?;
    Ok(Some(batch))
}

/// The batch that creates a tree from the entries of a run.
pub(crate) fn as_new_tree(tree: TreeId, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<Batch> {
    let mut batch = Batch::new();
    batch.create_tree(tree);
    for (key, value) in entries {
        batch.put(tree, key, value);
    }
    batch.check().map_err(|_| Error::RunTooLong)?;
    Ok(batch)
}

/// The entries of a run, which must ascend.
pub(crate) fn entries(run: &mut dyn SortedRun) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    while let Some(item) = run.next_entry()? {
        if entries.last().is_some_and(|(last, _)| last.as_slice() >= item.key) {
            return Err(Error::Unsorted(item.key.to_vec()));
        }
        entries.push((item.key.to_vec(), item.value.to_vec()));
    }
    Ok(entries)
}
