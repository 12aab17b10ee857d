//! Totals of directories, as `Totals` tells them.

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// How many, how large, and how much room they take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Inodes that are no directories.
    pub files: u64,
    /// Their sizes.
    pub bytes: u64,
    /// Their room on the medium.
    pub allocated: u64,
}

/// A directory and all below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryTotals {
    /// Its path below that asked for, with a slash first where there is one; empty: that one.
    pub path: Bytes,
    /// Its depth below that.
    pub depth: u32,
    /// All below it.
    pub sums: Sums,
    /// Directories below it.
    pub directories: u64,
    /// What its own names lead to; only told of the largest.
    pub own: Sums,
}

/// Everything below a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// All together.
    pub sums: Sums,
    /// Directories.
    pub directories: u64,
    /// The last change of attributes of anything, in nanoseconds since 1970.
    pub ctime: i64,
    /// Directories that the caller may not look into.
    pub unreadable: u64,
    /// By kind, by their names.
    pub kinds: Vec<(String, Sums)>,
    /// By owner.
    pub owners: Vec<(u32, Sums)>,
    /// By group.
    pub groups: Vec<(u32, Sums)>,
    /// By the number of binary digits of the size.
    pub sizes: Vec<(u8, Sums)>,
    /// By the day of UTC of the last change of contents, since 1970.
    pub days: Vec<(i64, Sums)>,
    /// By extension, the largest first, as many as were asked for; empty: those that have none.
    pub extensions: Vec<(Bytes, Sums)>,
    /// How many extensions there are.
    pub extensions_in_all: u64,
    /// The directories that hold the most by themselves, as many as were asked for.
    pub largest: Vec<DirectoryTotals>,
    /// Wall-clock time of the volume, in nanoseconds since 1970: what ages are counted from.
    pub now: i64,
}
