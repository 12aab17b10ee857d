//! A layer over the engine's store: a commit that changes one of the volume's own records changes
//! its copy, too.
//!
//! A damaged copy must not prevent changes of what is whole. If a commit to both is refused for
//! damage, the copies are abandoned. The commit records that in the counter of the root, in both
//! trees, so that outdated copies are not used. A repair, or the next opening, rebuilds them.

use std::any::Any;
use std::sync::Arc;

use device::sync::Mutex;
use format::batch::Op;
use format::kept_twice::{RootCounter, is_kept_twice};
use store::{
    Batch, Commit, CommitToken, Cursor, DiffCursor, KeyRange, Lane, Logged, LostRange, Over,
    Pinned, Read, Result, SharedWalk, Snapshot, SortedRun, Store, TreeId,
};

use super::noted::Noted;
use super::{COPY, ROOT, is_damage, read, root};
use crate::subvol::VOLUME;

/// An engine's store, with the layer that maintains the copies.
pub(super) struct MirroredStore {
    engine: Arc<dyn Store>,
    noted: Arc<Noted>,
    /// Held by the thread that writes the counter of the root, which records whether there are
    /// copies.
    root: Mutex<()>,
}

impl MirroredStore {
    pub(super) fn new(engine: Arc<dyn Store>, noted: Arc<Noted>) -> MirroredStore {
        MirroredStore { engine, noted, root: Mutex::new(()) }
    }

    /// A commit that changes records that have copies.
    #[cold]
    fn commit_both(&self, batch: &Batch) -> Result<CommitToken> {
        let root = names_root(batch).then(|| self.root.lock());
        if !self.noted.has_copies() {
            return self.engine.commit(batch);
        }
        let committed = self.engine.commit(&mirrored(batch));
        drop(root);
        match committed {
            Err(error) if is_damage(&error) => self.give_up(batch, &error),
            committed => committed,
        }
    }

    /// A commit to the volume's own tree alone, after which there are no copies. If that tree is
    /// what is damaged, the commit is refused as well, and the copies are kept.
    #[cold]
    fn give_up(&self, batch: &Batch, error: &store::Error) -> Result<CommitToken> {
        let _root = self.root.lock();
        if !self.noted.has_copies() {
            return self.engine.commit(batch);
        }
        if !self.noted.is_whole() {
            // Part of the records is readable only in the copies.
            return Err(error.clone());
        }
        let root = match root_of(batch) {
            Some(root) => Some(root),
            None => root(&*self.engine, VOLUME)?,
        };
        let Some(root) = root else { return Err(error.clone()) };
        self.noted.set_giving_up(true);
        let committed = self.commit_alone(batch, root);
        if committed.is_ok() {
            self.noted.set_copies(false);
            self.noted.gave_up(error);
        }
        self.noted.set_giving_up(false);
        committed
    }

    /// A commit to the volume's own tree alone which records that there are no copies. The copies
    /// record it, too: if the volume's own tree becomes unreadable later, they are not used. If
    /// that part of them is damaged, no reader finds there that they are valid.
    fn commit_alone(&self, batch: &Batch, root: RootCounter) -> Result<CommitToken> {
        let none = RootCounter { copies: false, ..root }.encode();
        let mut alone = batch.clone();
        alone.put(VOLUME, &ROOT, &none);
        let mut both = alone.clone();
        both.put(COPY, &ROOT, &none);
        match self.engine.commit(&both) {
            Err(error) if is_damage(&error) => self.engine.commit(&alone),
            committed => committed,
        }
    }
}

/// Whether a batch writes the counter of the root.
fn names_root(batch: &Batch) -> bool {
    batch.ops().any(|op| matches!(op, Ok(Op::Put { tree, key, .. }) if is_own(tree) && key == ROOT))
}

/// The counter of the root that a batch writes.
fn root_of(batch: &Batch) -> Option<RootCounter> {
    let written = batch.ops().flatten().filter_map(|op| match op {
        Op::Put { tree, key, value } if is_own(tree) && key == ROOT => Some(value),
        _ => None,
    });
    RootCounter::decode(written.last()?).ok()
}

fn is_own(tree: u64) -> bool {
    tree == VOLUME.0
}

/// Whether an operation changes a record that has a copy.
fn is_to_both(op: &Op<'_>) -> bool {
    match *op {
        Op::Put { tree, key, .. } | Op::Delete { tree, key } | Op::Merge { tree, key, .. } => {
            is_own(tree) && is_kept_twice(key)
        }
        Op::DeleteRange { tree, .. } => is_own(tree),
        _ => false,
    }
}

/// A batch in which the changes of the volume's own records also change the copies. If it writes
/// the counter of the root, it records there that copies exist.
pub fn mirrored(batch: &Batch) -> Batch {
    let mut both = batch.clone();
    for op in batch.ops().flatten().filter(is_to_both) {
        match op {
            Op::Put { key, value, .. } if key == ROOT => {
                let Ok(root) = RootCounter::decode(value) else { continue };
                let value = RootCounter { copies: true, ..root }.encode();
                both.put(VOLUME, key, &value);
                both.put(COPY, key, &value);
            }
            Op::Put { key, value, .. } => both.put(COPY, key, value),
            Op::Delete { key, .. } => both.delete(COPY, key),
            // Everything in the range has a copy.
            Op::DeleteRange { from, to, .. } => both.delete_range(COPY, from, to),
            Op::Merge { key, lanes, .. } => {
                let lanes: Vec<Lane> = lanes.iter().collect();
                both.merge(COPY, key, &lanes);
            }
            _ => {}
        }
    }
    both
}

impl Read for MirroredStore {
    #[inline]
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        read::get_with(&*self.engine, &self.noted, (tree, key), found)
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>> {
        read::scan(&*self.engine, &self.noted, tree, range)
    }
}

impl Over for MirroredStore {
    fn below(&self) -> &dyn Store {
        &*self.engine
    }
}

impl Commit for MirroredStore {
    fn commit(&self, batch: &Batch) -> Result<CommitToken> {
        if self.noted.has_copies() && batch.ops().flatten().any(|op| is_to_both(&op)) {
            return self.commit_both(batch);
        }
        self.engine.commit(batch)
    }

    fn ingest(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken> {
        self.engine.ingest(tree, run)
    }

    fn ingest_new(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken> {
        self.engine.ingest_new(tree, run)
    }
}

impl Snapshot for MirroredStore {
    fn pin(&self) -> Result<Box<dyn Pinned>> {
        let engine = self.engine.pin()?;
        Ok(Box::new(Pin { engine, noted: Arc::clone(&self.noted) }))
    }

    fn pin_trees(&self, trees: &[TreeId]) -> Result<Box<dyn Pinned>> {
        let mut trees = trees.to_vec();
        if trees.contains(&VOLUME) && self.noted.has_copies() {
            trees.push(COPY);
        }
        let engine = self.engine.pin_trees(&trees)?;
        Ok(Box::new(Pin { engine, noted: Arc::clone(&self.noted) }))
    }

    fn diff(&self, old: TreeId, new: TreeId) -> Result<Box<dyn DiffCursor + '_>> {
        self.engine.diff(old, new)
    }

    fn tree_exists(&self, tree: TreeId) -> Result<bool> {
        self.engine.tree_exists(tree)
    }
}

/// A pinned state of such a store.
struct Pin {
    engine: Box<dyn Pinned>,
    noted: Arc<Noted>,
}

impl Read for Pin {
    #[inline]
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        read::get_with(&*self.engine, &self.noted, (tree, key), found)
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>> {
        read::scan(&*self.engine, &self.noted, tree, range)
    }
}

impl Pinned for Pin {
    fn logged(&self) -> Logged<'_> {
        self.engine.logged()
    }

    fn visit_shared_step(
        &self,
        walk: &mut SharedWalk,
        nodes: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<bool> {
        self.engine.visit_shared_step(walk, nodes, visit)
    }

    fn lost_from(&self, tree: TreeId, key: &[u8]) -> Result<Option<LostRange>> {
        self.engine.lost_from(tree, key)
    }

    fn diff<'a>(
        &'a self,
        old_tree: TreeId,
        new: &'a dyn Pinned,
        new_tree: TreeId,
        range: KeyRange,
    ) -> Result<Box<dyn DiffCursor + 'a>> {
        // The engine asks the other state for its type (`as_any`), and gets its own.
        self.engine.diff(old_tree, new, new_tree, range)
    }

    fn prefetch(&self, tree: TreeId, keys: &[&[u8]]) {
        self.engine.prefetch(tree, keys);
    }

    fn as_any(&self) -> &dyn Any {
        self.engine.as_any()
    }
}
