//! Where the search for leaves to pre-flush continues, which goes round the trees.

use store::TreeId;

/// Where the search for leaves continues.
#[derive(Debug, Default)]
pub(crate) struct Preflush {
    pub(crate) at: TreeKey,
    /// The same in pinned states: pin, and which of its maps.
    pub(crate) pin: (u64, usize),
    pub(crate) pinned: TreeKey,
    /// Where free space was found last.
    pub(crate) unit: u64,
}

/// A tree, and a key in it.
#[derive(Debug)]
pub(crate) struct TreeKey {
    pub(crate) tree: TreeId,
    pub(crate) from: Vec<u8>,
}

impl Default for TreeKey {
    fn default() -> TreeKey {
        TreeKey { tree: TreeId(0), from: Vec::new() }
    }
}

impl TreeKey {
    /// Continues with the tree after another.
    pub(crate) fn next_tree(&mut self, after: TreeId) {
        self.tree = TreeId(after.0 + 1);
        self.from.clear();
    }
}
