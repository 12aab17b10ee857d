//! The request of a query, for both executors: a walk of the tree, and the index. Both return the
//! same set of matches for the same [`Request`].

use std::sync::atomic::AtomicBool;

use inode::Caller;

use super::expr::{Accounts, Expr};
use crate::cluster::Fields;
use crate::matches::Sort;

/// A directory to search from. The caller has already been granted access to it: its ancestors are
/// not checked again. Anything but a directory is one row, and needs no executor.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The subvolume that the directory is in.
    pub subvolume: u64,
    /// Its inode there.
    pub directory: u64,
    /// Its path as shown; never empty. Paths below are this, `/` unless it ends in one, and the
    /// names on the way. Its last component (without trailing slashes) is its name.
    pub path: &'a [u8],
    /// Its depth; 0 unless it is itself below the requested directory (a snapshot in `.snapshots`).
    pub depth: u32,
}

/// A query.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Where it searches: this directory and everything below it, nested subvolumes too.
    pub start: Start<'a>,
    /// The test of every row. Without actions: see [`Expr::reaching_action`].
    pub expr: &'a Expr,
    /// Directories (of depth `min_depth` and more) that match this are not descended into. They
    /// may match `expr` themselves.
    pub prune: Option<&'a Expr>,
    /// Whether subvolumes that are mounted below are not descended into.
    pub alone: bool,
    /// The user whose permissions apply. A row other than the start's is visible under two
    /// conditions. The caller may read and search its directory, and may search every directory
    /// from the start to there.
    pub caller: &'a Caller,
    /// Rows less deep do not match; the start has [`Start::depth`].
    pub min_depth: u32,
    /// Rows deeper than this do not match.
    pub max_depth: Option<u32>,
    /// A directory follows its contents. Ignored if `order` is given.
    pub contents_first: bool,
    /// The order of the matches; `None`: any. If the first matches exceed the bytes that are kept,
    /// they are emitted in several runs, each in order. The caller then takes the first of all,
    /// which [`Rank`](crate::Rank) determines.
    pub order: Option<Sort>,
    /// Maximum number of matches; for an ordered query, of each run.
    pub limit: Option<u64>,
    /// Fields of rows that the receiver of matches uses. Other fields may be 0 or empty unless the
    /// query uses them.
    pub fields: Fields,
    /// Looks up users and groups.
    pub accounts: &'a dyn Accounts,
    /// Set when the caller cancels. Executors check it often, and return what they have with
    /// [`Outcome::cancelled`](crate::Outcome::cancelled).
    pub cancel: &'a AtomicBool,
}
