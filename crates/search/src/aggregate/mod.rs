//! Totals of a directory and everything below it: sums, also by owner, size, age and extension, and
//! by directory. They come from sums that clusters carry (`index`), or are counted row by row
//! (`walked`); both give the same result.
//!
//! An inode with several names counts once, where it is first met. Only what the caller may see
//! counts: names in directories that they may list and search, as in a query.

pub(crate) mod walked;
pub(crate) mod memory;
mod tree;
mod groups;

pub use groups::extension;
pub use walked::aggregate_by_walking;

pub(crate) use groups::{GroupCounts, is_plain, sums_of};
pub use tree::Directories;
pub(crate) use tree::Tree;

use std::cmp::Reverse;
use std::sync::atomic::AtomicBool;

use format::cluster_groups::{Groups, Sums};
use inode::Caller;

use crate::cluster::Fields;
use crate::query::{Accounts, Expr, Request, Start};

/// Which totals are requested.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The directory.
    pub start: Start<'a>,
    /// The user whose permissions apply.
    pub caller: &'a Caller,
    /// Looks up users and groups.
    pub accounts: &'a dyn Accounts,
    /// Directories down to this depth below the start are reported one by one.
    pub directories: Option<u32>,
    /// Number of directories to report that hold the most in their own names.
    pub largest: usize,
    /// Whether sums by owner, size, age and extension are requested.
    pub groups: bool,
    /// Set when the caller cancels.
    pub cancel: &'a AtomicBool,
}

/// Totals of one directory and everything below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Everything except directories.
    pub sums: Sums,
    /// Directories below it.
    pub directories: u64,
    /// The last change of attributes of the directory itself or anything below it.
    pub ctime: i64,
}

impl Default for Totals {
    fn default() -> Totals {
        Totals { sums: Sums::default(), directories: 0, ctime: i64::MIN }
    }
}

impl Totals {
    /// Adds other totals.
    pub fn add(&mut self, other: &Totals) {
        self.sums.add(other.sums);
        self.directories = self.directories.saturating_add(other.directories);
        self.ctime = self.ctime.max(other.ctime);
    }

    /// Subtracts totals that were added; the last change stays.
    pub(crate) fn take(&mut self, other: &Totals) {
        self.sums.take(other.sums);
        self.directories = self.directories.saturating_sub(other.directories);
    }
}

/// Totals of one directory, with its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryTotals {
    /// Its path, as shown; of a long one the end.
    pub path: Vec<u8>,
    /// How long its path is.
    pub path_bytes: usize,
    /// Its depth below the start.
    pub depth: u32,
    /// Totals of the directory and everything below it.
    pub totals: Totals,
}

/// One of the directories that hold the most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargeDirectory {
    /// Its path, as shown.
    pub path: Vec<u8>,
    /// Its depth below the start.
    pub depth: u32,
    /// Its subvolume and inode.
    pub place: (u64, u64),
    /// Sums of its own names.
    pub own: Sums,
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aggregate {
    /// The overall totals.
    pub total: Totals,
    /// Sums by group; empty unless requested. The total of the groups is in `total`.
    pub groups: Groups,
    /// The directories, sub-directories before their parent, in the order of names; empty unless
    /// requested.
    pub directories: Directories,
    /// The directories that hold the most bytes in their own names, the largest first; among equal
    /// ones, those with more files, then smaller numbers.
    pub largest: Vec<LargeDirectory>,
    /// Directories that the caller may not look into.
    pub unreadable: u64,
    /// The caller cancelled before the end.
    pub cancelled: bool,
}

impl Aggregate {
    /// Keeps as many of the largest directories as requested.
    pub(crate) fn settle_largest(&mut self, count: usize) {
        self.largest.sort_unstable_by_key(|one| {
            (Reverse(one.own.bytes), Reverse(one.own.files), one.place)
        });
        self.largest.truncate(count);
    }
}

impl<'a> Question<'a> {
    /// The query for everything that counts.
    pub(crate) fn request(&self, expr: &'a Expr) -> Request<'a> {
        Request {
            start: self.start,
            expr,
            prune: None,
            alone: false,
            caller: self.caller,
            min_depth: 0,
            max_depth: None,
            contents_first: false,
            order: None,
            limit: None,
            fields: Fields::NONE,
            accounts: self.accounts,
            cancel: self.cancel,
        }
    }
}
