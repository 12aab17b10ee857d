//! One row: a name, and the attributes of its inode.
//!
//! An inode with several names has a row for each. A row is identified within its subvolume by the
//! place of its entry: the directory that holds it, and the cookie of the name there.

use format::inode_record::FileKind;

/// A name and its target, borrowed. Times are nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<'a> {
    /// Inode of the directory that holds the name.
    pub directory: u64,
    /// Cookie of the name in it: 55 bits of hash, 8 of collision index.
    pub cookie: u64,
    /// Inode number, within the subvolume.
    pub ino: u64,
    /// The name, 1 to 255 bytes.
    pub name: &'a [u8],
    /// What it is.
    pub kind: FileKind,
    /// Permission bits with set-id and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links, as stat reports them.
    pub nlink: u32,
    /// Device number of a device.
    pub rdev: u32,
    /// Size in bytes, as stat reports it.
    pub size: u64,
    /// Allocated space in bytes, as stat reports it (blocks x 512).
    pub allocated: u64,
    /// Entries of a directory; 0 for everything else.
    pub entries: u64,
    /// Last access.
    pub atime: i64,
    /// Last change of contents.
    pub mtime: i64,
    /// Last change of attributes.
    pub ctime: i64,
    /// Birth.
    pub btime: i64,
    /// Subvolume whose root is mounted here; 0: none.
    pub subvolume: u64,
    /// Extended attributes that were declared searchable, as the index stores them.
    pub xattrs: &'a [u8],
}

/// A row that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowBuf {
    row: Row<'static>,
    name: Box<[u8]>,
    xattrs: Box<[u8]>,
}

impl Row<'_> {
    /// A copy that owns its bytes.
    pub fn to_buf(&self) -> RowBuf {
        RowBuf {
            row: Row { name: b"", xattrs: b"", ..*self },
            name: self.name.into(),
            xattrs: self.xattrs.into(),
        }
    }
}

impl RowBuf {
    /// The row.
    pub fn as_row(&self) -> Row<'_> {
        Row { name: &self.name, xattrs: &self.xattrs, ..self.row }
    }
}
