//! What a fold is given: the two states, the part of the tree that is relevant, and what helps to
//! find the differences.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use store::{CommitToken, Pinned, TreeId};

use super::Index;
use super::base::Base;
use super::table::Table;
use crate::assemble::Records;

/// Memory that a part takes before it reports it to the others, in bytes.
const REPORT_BYTES: usize = 16 << 10;

/// The flag of a fold that is never cancelled.
pub(super) static NEVER: AtomicBool = AtomicBool::new(false);

/// The part of a tree that is relevant.
#[derive(Clone, Copy)]
pub(crate) struct Folding<'a> {
    /// The later state.
    pub(crate) new: &'a dyn Pinned,
    /// The tree in it.
    pub(crate) records: Records<'a>,
    /// The root directory, if the tree holds more than what is below it: a clone of a directory has
    /// everything its source had.
    pub(crate) root: Option<u64>,
    /// Memory limit.
    pub(crate) bytes_max: usize,
    /// Helper threads, if any.
    pub(crate) helpers: Option<Helpers<'a>>,
    /// Memory of all parts, if this is a part of a fold.
    pub(crate) together: Option<&'a Together>,
    /// How the log can supply the differences.
    pub(crate) logged: Option<Logged<'a>>,
    /// Decides which directories were below the root, when comparing with a base.
    pub(crate) below: Option<Below<'a>>,
    /// Cancellation flag: a cancelled fold ends as if it exceeded its memory limit.
    pub(super) cancel: Option<&'a AtomicBool>,
}

impl<'a> Folding<'a> {
    /// Everything in a tree, on one thread.
    pub(crate) fn of(
        new: &'a dyn Pinned,
        records: Records<'a>,
        root: Option<u64>,
        bytes_max: usize,
    ) -> Folding<'a> {
        let (helpers, together, logged, below, cancel) = (None, None, None, None, None);
        Folding { new, records, root, bytes_max, helpers, together, logged, below, cancel }
    }

    /// The same, until the flag cancels it.
    #[must_use]
    pub(crate) fn until(self, cancel: &'a AtomicBool) -> Folding<'a> {
        Folding { cancel: Some(cancel), ..self }
    }

    /// Whether it is cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled().load(Ordering::Relaxed)
    }

    /// The cancellation flag.
    pub(super) fn cancelled(&self) -> &'a AtomicBool {
        self.cancel.unwrap_or(&NEVER)
    }
}

/// The older side of a fold.
#[derive(Clone, Copy)]
pub(crate) enum Old<'a> {
    /// A tree of a state.
    State(&'a dyn Pinned, TreeId),
    /// Nothing: everything differs.
    Nothing,
}

/// Helper threads of a fold.
#[derive(Clone, Copy)]
pub(crate) struct Helpers<'a> {
    /// The directories of the base, which divide the remaining work.
    pub(crate) table: &'a Table,
    /// Number of threads, including the caller.
    pub(crate) threads: usize,
    /// Differences that one thread finds before others help.
    pub(crate) from: usize,
}

/// Memory that the parts of a fold take together.
#[derive(Default)]
pub(crate) struct Together {
    bytes: AtomicUsize,
}

impl Together {
    /// Reports a part's memory if it grew much since the last report, and returns whether all parts
    /// together are within a limit.
    pub(crate) fn is_within(&self, reported: &mut usize, bytes: usize, bytes_max: usize) -> bool {
        if bytes < *reported + REPORT_BYTES {
            return true;
        }
        let more = bytes - *reported;
        *reported = bytes;
        self.bytes.fetch_add(more, Ordering::Relaxed) + more <= bytes_max
    }
}

/// Decides which directories were below the root.
#[derive(Clone, Copy)]
pub(crate) struct Below<'a> {
    /// The directories of the tree to compare with.
    pub(crate) table: &'a Table,
    /// Removed directories that are not empty: their contents may be moved out, to below the root.
    pub(crate) detached: &'a [u64],
    /// Counts how often these directories were sufficient.
    pub(crate) count: &'a AtomicU64,
}

/// How the log can supply the differences.
#[derive(Clone, Copy)]
pub(crate) struct Logged<'a> {
    /// The tree.
    pub(crate) tree: TreeId,
    /// The base, a clone of it.
    pub(crate) base: TreeId,
    /// A commit before it was cloned.
    pub(crate) behind: CommitToken,
    /// A later clone of the tree, if that is compared instead of the tree itself.
    pub(crate) end: Option<TreeId>,
    /// Counts how often the log supplied them.
    pub(crate) count: &'a AtomicU64,
    /// The clusters, if rows of directories may be built from them.
    pub(crate) clusters: Option<Clusters<'a>>,
}

/// The clusters of a base.
#[derive(Clone, Copy)]
pub(crate) struct Clusters<'a> {
    /// The index.
    pub(super) index: &'a Index,
    /// The base. None of its directories points to a directory elsewhere: for such a directory, the
    /// reported values are not the counted ones.
    pub(super) base: &'a Base,
    /// Counts directories.
    pub(super) count: &'a AtomicU64,
}
