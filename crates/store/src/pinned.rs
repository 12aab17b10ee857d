//! States of a store that are kept for reading.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use format::batch::Ops;

use crate::{CommitToken, DiffCursor, KeyRange, Log, Read, Result, TreeId};

/// One state of all trees, kept for reading until it drops.
pub trait Pinned: Read {
    /// The last commit that the state contains, and the log that has it.
    fn logged(&self) -> Logged<'_>;

    /// Visits about `nodes` nodes of what the trees of the walk hold, but what several trees share
    /// only once. The cost of all steps is that of the distinct nodes. `false` when the walk is
    /// done. The order is undefined, and a key that is in shared and in unshared places may be
    /// visited more than once. The rest omits what caused an error: a caller that must see
    /// everything abandons the walk, a search for damage continues. An engine that cannot stop in
    /// between does all of it in one step.
    fn visit_shared_step(
        &self,
        walk: &mut SharedWalk,
        nodes: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<bool>;

    /// The first range of keys of a tree, from `key` on, that cannot be read because of damage.
    /// `None` when there is none, or the engine cannot determine it. It may begin before `key`.
    /// Seek to the end of the range to find what follows.
    fn lost_from(&self, _tree: TreeId, _key: &[u8]) -> Result<Option<LostRange>> {
        Ok(None)
    }

    /// Differences from `old_tree` of this state to `new_tree` of another state, within a range, at
    /// a cost proportional to the differences. `new` must be a pinned state of the same store, else
    /// [`crate::Error::ForeignPin`]; it need not be the younger one. A tree that its state does not
    /// have is [`crate::Error::NoTree`].
    fn diff<'a>(
        &'a self,
        old_tree: TreeId,
        new: &'a dyn Pinned,
        new_tree: TreeId,
        range: KeyRange,
    ) -> Result<Box<dyn DiffCursor + 'a>>;

    /// Hints that keys of a tree, in order, will be looked up soon, so that the disk may read the
    /// path to them meanwhile. The later lookup reports any error.
    fn prefetch(&self, _tree: TreeId, _keys: &[&[u8]]) {}

    /// The state as its store's own type, for [`Pinned::diff`].
    fn as_any(&self) -> &dyn Any;

    /// The last commit that the state contains.
    fn commit(&self) -> CommitToken {
        self.logged().commit
    }

    /// Approximate bytes of the log records committed after a commit; `None` where the log does not
    /// reach back so far.
    fn logged_bytes(&self, behind: CommitToken) -> Option<u64> {
        self.logged().log?.bytes_behind(behind.0)
    }

    /// Passes the batches committed after a commit up to this state, as stored in the log, to
    /// `take`, until it returns `false`. `false`: the log does not have all of them, and those
    /// passed are unusable.
    fn logged_since(&self, behind: CommitToken, take: &mut dyn FnMut(Ops<'_>) -> bool) -> bool {
        let Logged { commit, log } = self.logged();
        log.is_some_and(|log| log.read(behind.0, commit.0, &mut |payload| take(Ops::new(payload))))
    }
}

/// The last commit that a pinned state contains, and the log that has it.
#[derive(Clone, Copy)]
pub struct Logged<'a> {
    /// The commit.
    pub commit: CommitToken,
    /// The log; none in a store without one.
    pub log: Option<&'a Log>,
}

/// A range of keys of a tree that cannot be read.
#[derive(Debug, Clone)]
pub struct LostRange {
    /// The least key that may have existed there.
    pub from: Vec<u8>,
    /// The least key after the range; `None`: the range extends to the end.
    pub to: Option<Vec<u8>>,
    /// The damage in their place.
    pub damage: Arc<format::Corruption>,
}

/// The progress of a walk of [`Pinned::visit_shared_step`], over one pinned state.
pub struct SharedWalk {
    /// The trees that were not begun.
    pub trees: VecDeque<TreeId>,
    /// The prefix of the keys.
    pub prefix: Vec<u8>,
    /// The engine's state between steps.
    pub state: Option<Box<dyn Any + Send>>,
}

impl SharedWalk {
    /// A walk over the keys of `trees` that start with `prefix`.
    pub fn new(trees: impl IntoIterator<Item = TreeId>, prefix: &[u8]) -> SharedWalk {
        SharedWalk { trees: trees.into_iter().collect(), prefix: prefix.to_vec(), state: None }
    }
}
