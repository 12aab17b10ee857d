//! What may differ between two states of a name and its inode. These types cross the socket: their
//! variants stay in this order.

use serde::{Deserialize, Serialize};

/// What happened to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ChangeKind {
    /// The name is new, and was no other name of the inode before.
    Created,
    /// The name is gone, and became no other name of the inode.
    Removed,
    /// The name or its directory changed; the inode may have changed, too.
    Renamed,
    /// The inode changed, and the name did not.
    Modified,
}

impl ChangeKind {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            ChangeKind::Created => "created",
            ChangeKind::Removed => "removed",
            ChangeKind::Renamed => "renamed",
            ChangeKind::Modified => "modified",
        }
    }
}

/// A part of an inode in which two states may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Field {
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

impl Field {
    /// All of them, in the order in which they are reported.
    pub const ALL: [Field; 11] = [
        Field::Contents,
        Field::Size,
        Field::Mode,
        Field::Uid,
        Field::Gid,
        Field::Device,
        Field::Acl,
        Field::Xattrs,
        Field::Mtime,
        Field::Ctime,
        Field::Btime,
    ];

    /// Its name, in lines and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Field::Contents => "contents",
            Field::Size => "size",
            Field::Mode => "mode",
            Field::Uid => "uid",
            Field::Gid => "gid",
            Field::Device => "device",
            Field::Acl => "acl",
            Field::Xattrs => "xattrs",
            Field::Mtime => "mtime",
            Field::Ctime => "ctime",
            Field::Btime => "btime",
        }
    }
}

/// How the object at a path differs from the one that was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum VersionChange {
    /// There is nothing, as before, or this is the first.
    Absent,
    /// It exists, and did not before, or this is the first snapshot with information.
    Appeared,
    /// It exists, and no snapshot shows what was before.
    Present,
    /// It is unchanged.
    Same,
    /// Its contents changed: size or mtime.
    Contents,
    /// Its attributes changed and its contents did not: ctime.
    Attributes,
    /// Another object is there: another inode, or of another kind.
    Replaced,
    /// It is gone.
    Vanished,
}

impl VersionChange {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            VersionChange::Absent => "absent",
            VersionChange::Appeared => "appeared",
            VersionChange::Present => "present",
            VersionChange::Same => "same",
            VersionChange::Contents => "contents",
            VersionChange::Attributes => "attributes",
            VersionChange::Replaced => "replaced",
            VersionChange::Vanished => "vanished",
        }
    }
}
