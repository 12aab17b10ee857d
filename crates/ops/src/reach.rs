//! Whether a directory is below another one, by the parents that directories name.

use device::Map;
use format::directory_record::DirectoryRecord;
use format::key::{self, Part};
use inode::SubvolId;
use store::{Store, TreeId};
use vfs::FsResult;
use volume::error::{from_store, inconsistent, malformed};
use volume::subvol::read_record;

/// Deepest path: a longer chain of parents is a loop.
const DEPTH_MAX: usize = 1 << 20;
/// Most directories and subvolumes above one that are read while others wait.
const ABOVE_MAX: usize = 1024;
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

/// Whether a directory, given by subvolume and number, is in a tree that was taken away. It or a
/// directory above it then waits to be reclaimed, also above the subvolume that it is in.
///
/// Others wait for the answer, so only so many directories above it are read. Whether one further
/// up was taken away is not known then, and the answer is no. Directories are read one after the
/// other, and one that moves meanwhile may seem to be gone: that is checked again.
pub(crate) fn is_taken_away(store: &dyn Store, directory: (u64, u64)) -> FsResult<bool> {
    Ok(seems_taken_away(store, directory)? && seems_taken_away(store, directory)?)
}

fn seems_taken_away(store: &dyn Store, directory: (u64, u64)) -> FsResult<bool> {
    let (mut subvol, mut at) = directory;
    let mut left = ABOVE_MAX;
    while left > 0 {
        left -= 1;
        let record = read_record(store, SubvolId(subvol))?.filter(|record| !record.detached);
        let Some(record) = record else { return Ok(true) };
        while at != record.root && left > 0 {
            left -= 1;
            match record_of(store, TreeId(record.tree), at)? {
                Some(directory) if directory.detached || directory.parent == at => return Ok(true),
                Some(directory) => at = directory.parent,
                None => return Ok(true),
            }
        }
        if at != record.root || record.parent.0 == 0 {
            return Ok(false);
        }
        (subvol, at) = (record.parent.0, record.parent.1);
    }
    Ok(false)
}

fn record_of(store: &dyn Store, tree: TreeId, directory: u64) -> FsResult<Option<DirectoryRecord>> {
    let key = key::directory(directory, Part::Attributes);
    let mut record = None;
    store
        .get_with(tree, &key, &mut |bytes| record = Some(DirectoryRecord::decode(bytes)))
        .map_err(from_store)?;
    record.transpose().map_err(|error| malformed(tree, &error))
}
