//! A pinned state as readers of the store see it.

use std::any::Any;

use store::{
    Cursor, DiffCursor, Error, KeyRange, Logged, LostRange, Pinned, Read, Result, SharedWalk,
    TreeId,
};

use crate::cursor::TreeCursor;
use crate::diff::{self, TreeDiff};
use crate::pin::Pin;

impl Read for Pin {
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let there = self.tree(tree)?.get(&self.core.nodes, key, found)?;
        self.core.shrink();
        Ok(there)
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>> {
        Ok(Box::new(TreeCursor::new(&self.core, self.tree(tree)?, range)))
    }
}

impl Pinned for Pin {
    fn logged(&self) -> Logged<'_> {
        Logged { commit: self.commit, log: Some(self.core.log()) }
    }

    fn visit_shared_step(
        &self,
        walk: &mut SharedWalk,
        nodes: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<bool> {
        crate::visit::step(self, walk, nodes, visit)
    }

    fn lost_from(&self, tree: TreeId, key: &[u8]) -> Result<Option<LostRange>> {
        crate::visit::lost_from(self, tree, key)
    }

    fn diff<'a>(
        &'a self,
        old_tree: TreeId,
        new: &'a dyn Pinned,
        new_tree: TreeId,
        range: KeyRange,
    ) -> Result<Box<dyn DiffCursor + 'a>> {
        let new = new.as_any().downcast_ref::<Pin>().ok_or(Error::ForeignPin)?;
        Ok(Box::new(TreeDiff::new(diff::Pins::Two(self, new), old_tree, new_tree, range)?))
    }

    fn prefetch(&self, tree: TreeId, keys: &[&[u8]]) {
        if let Ok(tree) = self.tree(tree) {
            self.core.nodes.prefetch(&tree.state.read(), keys);
        }
        self.core.shrink();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
