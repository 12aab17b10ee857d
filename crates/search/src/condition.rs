//! Necessary conditions of a query for every row it can match, by which clusters are skipped and
//! scanned.
//!
//! A [`Narrow`] is necessary, not sufficient: a row that fails it does not match; for a row that
//! passes, the whole query is still evaluated.

use serde::{Deserialize, Serialize};

use crate::cluster::Like;
use crate::row::Row;

/// A numeric attribute of a row. They are ten of the eleven of Magellan's Table 1 (the other is the
/// name) and those that GNU find tests besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Attribute {
    /// Inode number.
    Ino,
    /// Inode of the directory that holds the name.
    Directory,
    /// Kind, as `FileKind::byte`.
    Kind,
    /// Permission bits.
    Mode,
    /// Owner.
    Uid,
    /// Group.
    Gid,
    /// Hard links.
    Links,
    /// Size in bytes.
    Size,
    /// Allocated space in bytes.
    Allocated,
    /// Last access, nanoseconds since 1970.
    Atime,
    /// Last change of contents.
    Mtime,
    /// Last change of attributes.
    Ctime,
    /// Birth.
    Btime,
}

impl Attribute {
    /// All attributes, in the order of their bounds in summaries. DO NOT CHANGE: it is on disk.
    pub const ALL: [Attribute; format::cluster_summary::ATTRIBUTES] = [
        Attribute::Ino,
        Attribute::Directory,
        Attribute::Kind,
        Attribute::Mode,
        Attribute::Uid,
        Attribute::Gid,
        Attribute::Links,
        Attribute::Size,
        Attribute::Allocated,
        Attribute::Atime,
        Attribute::Mtime,
        Attribute::Ctime,
        Attribute::Btime,
    ];

    /// Its value in a row.
    #[inline]
    pub fn of(self, row: &Row<'_>) -> i128 {
        match self {
            Attribute::Ino => i128::from(row.ino),
            Attribute::Directory => i128::from(row.directory),
            Attribute::Kind => i128::from(row.kind.byte()),
            Attribute::Mode => i128::from(row.mode),
            Attribute::Uid => i128::from(row.uid),
            Attribute::Gid => i128::from(row.gid),
            Attribute::Links => i128::from(row.nlink),
            Attribute::Size => i128::from(row.size),
            Attribute::Allocated => i128::from(row.allocated),
            Attribute::Atime => i128::from(row.atime),
            Attribute::Mtime => i128::from(row.mtime),
            Attribute::Ctime => i128::from(row.ctime),
            Attribute::Btime => i128::from(row.btime),
        }
    }
}

/// One necessary condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// The attribute is within both bounds, inclusive. Wide enough for `u64` and `i64`.
    Within(Attribute, i128, i128),
    /// The attribute is one of these, in ascending order.
    OneOf(Attribute, Vec<i128>),
    /// The name is this.
    Name(Vec<u8>),
    /// The name contains this (not empty).
    NameContains(Vec<u8>),
    /// The name ends in this (not empty), as in `*.h5`.
    NameEnds(Vec<u8>),
    /// The name starts with this (not empty).
    NameStarts(Vec<u8>),
    /// The row has an extended attribute of this name and, if given, this value. It tests only what
    /// rows carry; rows that do not carry the name may still have it.
    Xattr(Vec<u8>, Option<Vec<u8>>),
    /// The distance of the row from this one is at most so many units ([`Like::units`]). Never part
    /// of an expression: the search for the nearest rows narrows itself by it.
    Near(Like, u64),
}

/// Conditions that every match meets. Empty: nothing is known.
pub type Narrow = Vec<Condition>;
