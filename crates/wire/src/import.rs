//! The stream of an import: a walk over the source, one item per step, relative to a current
//! directory that `Item::Enter` and `Item::Leave` change.

use serde::{Deserialize, Serialize};

use crate::{Bytes, DecodeError, FailureKind, Kind, codec};

/// The attributes that an import keeps. Times are nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportAttr {
    /// Permission bits, with set-id and sticky.
    pub mode: u32,
    /// Owner and group, if the importer is root and preserves them.
    pub owner: Option<(u32, u32)>,
    /// Last read.
    pub atime: i64,
    /// Last change of contents.
    pub mtime: i64,
}

/// One step of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Item<'a> {
    /// Creates a directory that does not exist, and enters it.
    Enter {
        /// Its name.
        name: &'a [u8],
    },
    /// Sets the attributes of the current directory and returns to its parent.
    Leave {
        /// Its attributes.
        attr: ImportAttr,
        /// Its extended attributes.
        #[serde(borrow)]
        xattrs: Vec<(&'a [u8], &'a [u8])>,
    },
    /// Creates a file with its contents. An existing object of the name is replaced.
    File {
        /// Its name.
        name: &'a [u8],
        /// Its attributes.
        attr: ImportAttr,
        /// Its extended attributes.
        #[serde(borrow)]
        xattrs: Vec<(&'a [u8], &'a [u8])>,
        /// Its contents.
        #[serde(serialize_with = "crate::bytes::run")]
        data: &'a [u8],
        /// A number by which later `Link`s refer to it; 0 for none.
        hold: u64,
    },
    /// Creates an empty file, the target of the `Data` items that follow.
    Begin {
        /// Its name.
        name: &'a [u8],
    },
    /// Contents of the file begun. Ranges without an item are holes.
    Data {
        /// Their offset.
        offset: u64,
        /// The bytes.
        #[serde(serialize_with = "crate::bytes::run")]
        bytes: &'a [u8],
    },
    /// Sets length and attributes of the file begun. Only then does it look complete when the
    /// import is run again.
    End {
        /// Its length.
        size: u64,
        /// Its attributes.
        attr: ImportAttr,
        /// Its extended attributes.
        #[serde(borrow)]
        xattrs: Vec<(&'a [u8], &'a [u8])>,
        /// As in `File`.
        hold: u64,
    },
    /// Creates a symbolic link.
    Symlink {
        /// Its name.
        name: &'a [u8],
        /// Its target.
        target: &'a [u8],
        /// Its attributes (mode is not used).
        attr: ImportAttr,
        /// As in `File`.
        hold: u64,
    },
    /// Creates a fifo, socket or device node.
    Special {
        /// Its name.
        name: &'a [u8],
        /// Its type.
        kind: Kind,
        /// Device number.
        rdev: u32,
        /// Its attributes.
        attr: ImportAttr,
        /// As in `File`.
        hold: u64,
    },
    /// Creates a hard link to an earlier item.
    Link {
        /// Its name.
        name: &'a [u8],
        /// The `hold` number of the earlier item.
        held: u64,
    },
    /// Assigns a number to an existing object, for later `Link`s.
    Hold {
        /// Its name.
        name: &'a [u8],
        /// The number.
        hold: u64,
    },
    /// Returns to the parent of the current directory, whose attributes stay.
    Back,
    /// Creates a hard link to what has a path below the destination. An existing object of the name
    /// is replaced.
    LinkTo {
        /// Its name.
        name: &'a [u8],
        /// The parts of the path.
        #[serde(borrow)]
        target: Vec<&'a [u8]>,
    },
}

/// An item that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemError {
    /// Its path, relative to the destination.
    pub path: Bytes,
    /// The reason.
    pub message: String,
    /// The kind of failure.
    pub kind: FailureKind,
    /// Why the import cannot continue; `None` if only this item failed.
    pub stop: Option<ImportStop>,
}

/// Why an import cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImportStop {
    /// The disk of the volume has no space.
    Full,
    /// A quota is exhausted.
    Quota,
    /// A limit of the volume is reached that free space does not change.
    Limit,
    /// The store takes no writes.
    ReadOnly,
}

/// A buffer of items: each is encoded after the one before, so neither side holds more than the
/// bytes.
#[derive(Debug, Clone, Default)]
pub struct Items {
    bytes: Vec<u8>,
}

impl Items {
    /// Appends an item.
    pub fn push(&mut self, item: &Item<'_>) {
        codec::encode(item, &mut self.bytes);
    }

    /// The encoding, for `Call::Import`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all items and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Takes the first item off an encoding; `None` at its end.
    pub fn next<'a>(bytes: &mut &'a [u8]) -> Option<Result<Item<'a>, DecodeError>> {
        if bytes.is_empty() {
            return None;
        }
        match postcard::take_from_bytes(bytes) {
            Ok((item, rest)) => {
                *bytes = rest;
                Some(Ok(item))
            }
            Err(error) => {
                *bytes = &[];
                Some(Err(DecodeError::Malformed(error)))
            }
        }
    }
}
