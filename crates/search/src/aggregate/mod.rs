//! Totals of a directory and all below it: how much, whose, of what size, age and extension, and
//! how it is divided among the directories. Read from sums that clusters carry (`index`), or
//! counted row by row (`walked`); both give the same.
//!
//! An inode with several names counts once, where it is first met. Only what the caller may see
//! counts: names in directories that he may list and search, as for a query.

mod groups;
mod tree;
pub(crate) mod walked;

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
use crate::query::{Accounts, Expr};
use crate::request::{Request, Start};

/// What totals are asked for.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The directory.
    pub start: Start<'a>,
    /// Whose eyes it has.
    pub caller: &'a Caller,
    /// What is known of users and groups.
    pub accounts: &'a dyn Accounts,
    /// Directories to this depth below the start are told one by one.
    pub directories: Option<u32>,
    /// So many of the directories that hold the most by themselves are told.
    pub largest: usize,
    /// Whether sums by owner, size, age and extension are asked for.
    pub groups: bool,
    /// Set when nobody waits any more.
    pub cancel: &'a AtomicBool,
}

/// Totals of one directory and all below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// What is no directory.
    pub sums: Sums,
    /// Directories below it.
    pub directories: u64,
    /// The last change of attributes of anything below it, or of itself.
    pub ctime: i64,
}

impl Default for Totals {
    fn default() -> Totals {
        Totals { sums: Sums::default(), directories: 0, ctime: i64::MIN }
    }
}

impl Totals {
    /// Adds what others come to.
    pub fn add(&mut self, other: &Totals) {
        self.sums.add(other.sums);
        self.directories = self.directories.saturating_add(other.directories);
        self.ctime = self.ctime.max(other.ctime);
    }

    /// Takes away what was added; the last change stays.
    pub(crate) fn take(&mut self, other: &Totals) {
        self.sums.take(other.sums);
        self.directories = self.directories.saturating_sub(other.directories);
    }
}

/// Totals of one directory, with its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryTotals {
    /// Its path, as shown.
    pub path: Vec<u8>,
    /// Its depth below the start.
    pub depth: u32,
    /// What it and all below it come to.
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
    /// What its own names come to.
    pub own: Sums,
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aggregate {
    /// All together.
    pub total: Totals,
    /// Sums by what they are of; empty unless asked for. Its own total is that of `total`.
    pub groups: Groups,
    /// The directories, what is below a directory before it, in the order of names; empty unless
    /// asked for.
    pub directories: Directories,
    /// The directories that hold the most bytes by themselves, the largest first, of equal ones
    /// those of more files, then of smaller numbers.
    pub largest: Vec<LargeDirectory>,
    /// Directories that the caller may not look into.
    pub unreadable: u64,
    /// Nobody waited for the end.
    pub cancelled: bool,
}

impl Aggregate {
    /// Keeps so many of the largest directories as were asked for.
    pub(crate) fn settle_largest(&mut self, count: usize) {
        self.largest.sort_unstable_by_key(|one| {
            (Reverse(one.own.bytes), Reverse(one.own.files), one.place)
        });
        self.largest.truncate(count);
    }
}

impl<'a> Question<'a> {
    /// The query of all that counts.
    pub(crate) fn request(&self, expr: &'a Expr) -> Request<'a> {
        Request {
            start: self.start,
            expr,
            prune: None,
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
