//! Totals of directories, as `Totals` tells them.

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// How many, how large, and how much room they take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Inodes that are no directories.
    pub files: u64,
    /// Their sizes. Those of two sparse files may be more than 64 bits can say.
    pub bytes: u128,
    /// Their room on disk.
    pub allocated: u128,
}

impl Sums {
    /// Adds others.
    pub fn add(&mut self, other: Sums) {
        self.files = self.files.saturating_add(other.files);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.allocated = self.allocated.saturating_add(other.allocated);
    }

    /// What is left without others that are among them.
    #[must_use]
    pub fn without(self, other: Sums) -> Sums {
        Sums {
            files: self.files.saturating_sub(other.files),
            bytes: self.bytes.saturating_sub(other.bytes),
            allocated: self.allocated.saturating_sub(other.allocated),
        }
    }
}

/// How many of the sums by what they are of are told, the largest first. `None`: all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Top {
    /// Of owners, and of groups.
    pub owners: Option<u32>,
    /// Of extensions.
    pub extensions: Option<u32>,
    /// Of the directories that hold the most by themselves, at most [`DIRECTORIES_MAX`].
    pub directories: u32,
}

/// Most of the largest directories that are told.
pub const DIRECTORIES_MAX: u32 = 1000;

/// What sums are of, of which there may be any number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SumsOf {
    /// A user.
    Owner(u32),
    /// A group.
    Group(u32),
    /// Names that end so; empty: those that have no extension.
    Extension(Bytes),
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
    /// What its own names lead to; only told of the largest, and nothing else of those.
    pub own: Sums,
}

/// Everything below a directory, but for the sums of which there may be any number: those are
/// parts of the answer before it.
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
    /// How many owners there are.
    pub owners_in_all: u64,
    /// How many groups.
    pub groups_in_all: u64,
    /// By the number of binary digits of the size.
    pub sizes: Vec<(u8, Sums)>,
    /// By the day of UTC of the last change of contents, since 1970.
    pub days: Vec<(i64, Sums)>,
    /// How many extensions there are, with none as one.
    pub extensions_in_all: u64,
    /// Wall-clock time of the volume, in nanoseconds since 1970: what ages are counted from.
    pub now: i64,
}
