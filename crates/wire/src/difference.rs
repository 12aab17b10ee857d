//! Changes between two states of a directory, as `Diff` returns them.

use serde::{Deserialize, Serialize};

use crate::{Attr, Bytes};

/// A change of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// What happened.
    pub kind: DifferenceKind,
    /// The path in the old state, relative to its directory, which is the empty path, and the
    /// attributes there. `None` for a name that was created.
    pub old: Option<(Bytes, Attr)>,
    /// The same of the new state. `None` for a name that was removed.
    pub new: Option<(Bytes, Attr)>,
    /// What differs, where there are both.
    pub fields: Vec<DifferenceField>,
    /// Of a name that was created or removed: the inode is in both states under other names.
    pub is_link: bool,
}

/// What happened to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DifferenceKind {
    /// The name is new.
    Created,
    /// The name is gone.
    Removed,
    /// The name or its directory changed; the inode may have changed, too.
    Renamed,
    /// The inode changed.
    Modified,
}

impl DifferenceKind {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            DifferenceKind::Created => "created",
            DifferenceKind::Removed => "removed",
            DifferenceKind::Renamed => "renamed",
            DifferenceKind::Modified => "modified",
        }
    }
}

/// A part of an inode that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DifferenceField {
    /// Bytes of a file, or the target of a symbolic link.
    Contents,
    /// Length of a file, or the number of a directory's names.
    Size,
    /// Permission bits.
    Mode,
    /// Owner.
    Uid,
    /// Group.
    Gid,
    /// Number of a device.
    Device,
    /// Access control lists.
    Acl,
    /// Other extended attributes.
    Xattrs,
    /// Time of the last change of contents.
    Mtime,
    /// Time of the last change of attributes.
    Ctime,
    /// Time of birth.
    Btime,
}

impl DifferenceField {
    /// Its name, in lines and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            DifferenceField::Contents => "contents",
            DifferenceField::Size => "size",
            DifferenceField::Mode => "mode",
            DifferenceField::Uid => "uid",
            DifferenceField::Gid => "gid",
            DifferenceField::Device => "device",
            DifferenceField::Acl => "acl",
            DifferenceField::Xattrs => "xattrs",
            DifferenceField::Mtime => "mtime",
            DifferenceField::Ctime => "ctime",
            DifferenceField::Btime => "btime",
        }
    }
}
