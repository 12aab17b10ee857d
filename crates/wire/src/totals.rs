//! Totals of directories, as `Totals` returns them.

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// Number of files, their sizes, and their allocated space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Inodes that are not directories.
    pub files: u64,
    /// Their sizes. The sizes of two sparse files may exceed 64 bits.
    pub bytes: u128,
    /// Their allocated bytes.
    pub allocated: u128,
}

impl Sums {
    /// Adds others.
    pub fn add(&mut self, other: Sums) {
        self.files = self.files.saturating_add(other.files);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.allocated = self.allocated.saturating_add(other.allocated);
    }

    /// Subtracts others that are included in these.
    #[must_use]
    pub fn without(self, other: Sums) -> Sums {
        Sums {
            files: self.files.saturating_sub(other.files),
            bytes: self.bytes.saturating_sub(other.bytes),
            allocated: self.allocated.saturating_sub(other.allocated),
        }
    }
}

/// How many of the sums of each kind are returned, the largest first. `None`: all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Top {
    /// Number of owners, and of groups.
    pub owners: Option<u32>,
    /// Number of extensions.
    pub extensions: Option<u32>,
    /// Number of the directories with the largest direct contents, at most [`DIRECTORIES_MAX`].
    pub directories: u32,
}

/// Maximum number of largest directories that are returned.
pub const DIRECTORIES_MAX: u32 = 1000;

/// The subjects of sums, whose number is unbounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SumsOf {
    /// A user.
    Owner(u32),
    /// A group.
    Group(u32),
    /// Names with this extension; empty: those without one.
    Extension(Bytes),
}

/// A directory and everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryTotals {
    /// Its path relative to the requested one, with a leading slash; empty: that one.
    pub path: Bytes,
    /// Its depth below that.
    pub depth: u32,
    /// Everything below it.
    pub sums: Sums,
    /// Directories below it.
    pub directories: u64,
    /// Its direct contents; only set for the largest directories, and nothing else is set for
    /// those.
    pub own: Sums,
}

/// Everything below a directory, except the unbounded lists of sums, which are parts of the answer
/// before this.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// All together.
    pub sums: Sums,
    /// Directories.
    pub directories: u64,
    /// The last change of attributes of any inode, in nanoseconds since 1970.
    pub ctime: i64,
    /// Directories that the caller may not read.
    pub unreadable: u64,
    /// By kind, named.
    pub kinds: Vec<(String, Sums)>,
    /// Total number of owners.
    pub owners_in_all: u64,
    /// Total number of groups.
    pub groups_in_all: u64,
    /// By the number of binary digits of the size.
    pub sizes: Vec<(u8, Sums)>,
    /// By the UTC day of the last change of contents, since 1970.
    pub days: Vec<(i64, Sums)>,
    /// Total number of extensions, counting none as one.
    pub extensions_in_all: u64,
    /// Wall-clock time of the volume, in nanoseconds since 1970: the reference for ages.
    pub now: i64,
}
