//! The stream of an export: a walk over a directory of the volume, one item per step. Items are
//! relative to a current directory that `ExportItem::Enter` and `ExportItem::Leave` change.
//!
//! Every name of a directory is in the stream once, `ExportItem::Unread` if it could not be read.
//! A file with several names has its contents at the first of them. The daemon remembers it until
//! its last name, as far as the caller gives memory. Attributes of a file that it does not remember
//! have 0 names, and further names of it are files of their own.

use serde::{Deserialize, Serialize};

use crate::{Attr, DecodeError, FailureKind, codec};

/// One step of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExportItem<'a> {
    /// A directory, which becomes the current one.
    Enter {
        /// Its name; empty for the exported directory itself.
        name: &'a [u8],
        /// Its attributes.
        attr: Attr,
        /// Its extended attributes.
        #[serde(borrow)]
        xattrs: Vec<(&'a [u8], &'a [u8])>,
    },
    /// Everything of the current directory was sent; its parent is current again.
    Leave,
    /// A file with its contents.
    File {
        /// Its name.
        name: &'a [u8],
        /// Its attributes.
        attr: Attr,
        /// Its extended attributes.
        #[serde(borrow)]
        xattrs: Vec<(&'a [u8], &'a [u8])>,
        /// Its contents, as many bytes as its length.
        #[serde(serialize_with = "crate::bytes::run")]
        data: &'a [u8],
    },
    /// A file whose contents follow, range by range.
    Begin {
        /// Its name.
        name: &'a [u8],
        /// Its attributes.
        attr: Attr,
        /// Its extended attributes.
        #[serde(borrow)]
        xattrs: Vec<(&'a [u8], &'a [u8])>,
        /// Offsets and lengths of what is no hole, ascending.
        ranges: Vec<(u64, u64)>,
    },
    /// The next bytes of the ranges of the file begun.
    Data {
        /// The bytes.
        #[serde(serialize_with = "crate::bytes::run")]
        bytes: &'a [u8],
    },
    /// The ranges of the file begun are complete.
    End {
        /// Whether bytes that were announced could not be read, and are sent as zeros.
        short: bool,
    },
    /// A symbolic link, fifo, socket or device node.
    Other {
        /// Its name.
        name: &'a [u8],
        /// Its attributes.
        attr: Attr,
        /// Its extended attributes.
        #[serde(borrow)]
        xattrs: Vec<(&'a [u8], &'a [u8])>,
        /// The target of a symbolic link, otherwise empty.
        target: &'a [u8],
    },
    /// A further name of a file that was sent before, with the same inode number.
    Link {
        /// The name.
        name: &'a [u8],
        /// The attributes of the file.
        attr: Attr,
    },
    /// A name that is not in the export; or, behind its end, a file that is not complete.
    Unread {
        /// The name; empty: of the rest of the current directory.
        name: &'a [u8],
        /// The kind of failure.
        kind: FailureKind,
        /// The reason.
        message: &'a str,
    },
}

/// Bytes of memory that a file with several names takes until its last name. They are at the
/// daemon, and at the command, which keeps its path below the exported directory.
pub fn remembered_bytes(path_bytes: usize) -> usize {
    128 + path_bytes
}

impl<'a> ExportItem<'a> {
    /// Appends the encoding of the item.
    pub fn push(&self, to: &mut Vec<u8>) {
        codec::encode(self, to);
    }

    /// Takes the first item off an encoding; `None` at its end.
    pub fn next(bytes: &mut &'a [u8]) -> Option<Result<ExportItem<'a>, DecodeError>> {
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
