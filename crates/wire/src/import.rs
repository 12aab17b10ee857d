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
/// bytes. Contents of files may stay where they are: then the message consists of pieces.
#[derive(Debug, Clone, Default)]
pub struct Items {
    /// The message without the contents that are apart.
    bytes: Vec<u8>,
    /// Where in `bytes` contents belong that are apart, ascending, and how many bytes they are.
    apart: Vec<(usize, usize)>,
    /// Bytes of all contents that are apart.
    apart_bytes: usize,
}

impl Items {
    /// Appends an item.
    pub fn push(&mut self, item: &Item<'_>) {
        codec::encode(item, &mut self.bytes);
    }

    /// Appends a file without a copy of its contents: [`Items::pieces`] gets them. `false`: the
    /// item is no file, and nothing was appended.
    pub fn push_apart(&mut self, item: &Item<'_>) -> bool {
        let Item::File { data, .. } = item else { return false };
        let hold = self.push_head(item, data.len());
        self.apart.push((self.bytes.len(), data.len()));
        self.apart_bytes += data.len();
        codec::encode(&hold, &mut self.bytes);
        true
    }

    /// Appends a file up to its contents, of which there are `length` bytes; returns the number
    /// that follows them. Another item is appended whole.
    fn push_head(&mut self, item: &Item<'_>, length: usize) -> u64 {
        let Item::File { name, attr, xattrs, hold, .. } = item else {
            self.push(item);
            return 0;
        };
        self.push(&Item::File { name, attr: *attr, xattrs: xattrs.clone(), data: &[], hold: 0 });
        // The length of no contents, and the number 0.
        debug_assert!(self.bytes.ends_with(&[0, 0]), "the layout of a file has changed");
        self.bytes.truncate(self.bytes.len() - 2);
        codec::encode(&length, &mut self.bytes);
        *hold
    }

    /// The encoding, for `Call::Import`, if no contents are apart.
    pub fn as_bytes(&self) -> &[u8] {
        debug_assert!(self.apart.is_empty(), "contents are apart");
        &self.bytes
    }

    /// The encoding in pieces, with the contents that are apart, in the order of their files.
    pub fn pieces<'a>(&'a self, contents: impl IntoIterator<Item = &'a [u8]>) -> Vec<&'a [u8]> {
        let mut pieces = Vec::with_capacity(self.apart.len() * 2 + 1);
        let mut from = 0;
        for (&(at, length), contents) in self.apart.iter().zip(contents) {
            assert_eq!(contents.len(), length, "invariant: contents as long as their file");
            pieces.extend([&self.bytes[from..at], contents]);
            from = at;
        }
        pieces.push(&self.bytes[from..]);
        pieces
    }

    /// Bytes of the encoding, with the contents that are apart.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.apart_bytes
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Removes all items and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.apart.clear();
        self.apart_bytes = 0;
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
