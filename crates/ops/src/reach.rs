//! Whether a directory is below another one, by the parents that directories name.

use device::Map;
use format::directory_record::DirectoryRecord;
use format::key::{self, Part};
use store::{Store, TreeId};
use vfs::FsResult;
use volume::error::{from_store, inconsistent, malformed};

/// Deepest path: a longer chain of parents is a loop.
const DEPTH_MAX: usize = 1 << 20;
/// Most directories that are remembered.
const REMEMBERED_MAX: usize = 1 << 20;

/// What is below a directory of a tree that does not change.
pub struct Reach {
    tree: TreeId,
    root: u64,
    known: Map<u64, bool>,
}

impl Reach {
    /// What is below `root`.
    pub fn new(tree: TreeId, root: u64) -> Reach {
        Reach { tree, root, known: Map::default() }
    }

    /// The tree.
    pub fn tree(&self) -> TreeId {
        self.tree
    }

    /// Whether a directory exists and is the root or below it.
    pub fn contains(&mut self, store: &dyn Store, directory: u64) -> FsResult<bool> {
        self.contains_or(store, directory, &|_| false)
    }

    /// As [`Reach::contains`], or whether it is, or is below, a detached directory that counts.
    pub(crate) fn contains_or(
        &mut self,
        store: &dyn Store,
        directory: u64,
        counts: &dyn Fn(u64) -> bool,
    ) -> FsResult<bool> {
        let mut chain = Vec::new();
        let mut at = directory;
        let answer = loop {
            if at == self.root {
                break true;
            }
            if let Some(&known) = self.known.get(&at) {
                break known;
            }
            if chain.len() > DEPTH_MAX {
                return Err(inconsistent(self.tree, "directories contain each other", at));
            }
            chain.push(at);
            match record_of(store, self.tree, at)? {
                Some(record) if record.detached => break counts(at),
                Some(record) if record.parent != at => at = record.parent,
                _ => break false,
            }
        };
        if self.known.len() + chain.len() > REMEMBERED_MAX {
            self.known.clear();
        }
        for directory in chain {
            self.known.insert(directory, answer);
        }
        Ok(answer)
    }
}

fn record_of(store: &dyn Store, tree: TreeId, directory: u64) -> FsResult<Option<DirectoryRecord>> {
    let key = key::directory(directory, Part::Attributes);
    let mut record = None;
    store
        .get_with(tree, &key, &mut |bytes| record = Some(DirectoryRecord::decode(bytes)))
        .map_err(from_store)?;
    record.transpose().map_err(|error| malformed(tree, &error))
}
