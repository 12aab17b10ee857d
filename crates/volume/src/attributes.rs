//! Records as the attributes that callers see.

use device::Timestamp;
use format::directory_record::DirectoryRecord;
use format::inode_record::{FileKind, InodeRecord};
use inode::permissions::MODE_BITS;
use inode::{Attr, Kind, NodeId, Owned};

/// Unit of `Attr::blocks`.
const BLOCK_BYTES: u64 = 512;

/// The kind that callers see.
#[inline]
pub fn kind(kind: FileKind) -> Kind {
    match kind {
        FileKind::File => Kind::File,
        FileKind::Directory => Kind::Directory,
        FileKind::Symlink => Kind::Symlink,
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
        FileKind::CharDevice => Kind::CharDevice,
        FileKind::BlockDevice => Kind::BlockDevice,
    }
}

/// The kind that records hold.
#[inline]
pub fn file_kind(kind: Kind) -> FileKind {
    match kind {
        Kind::File => FileKind::File,
        Kind::Directory => FileKind::Directory,
        Kind::Symlink => FileKind::Symlink,
        Kind::Fifo => FileKind::Fifo,
        Kind::Socket => FileKind::Socket,
        Kind::CharDevice => FileKind::CharDevice,
        Kind::BlockDevice => FileKind::BlockDevice,
    }
}

/// Attributes of what is not a directory.
#[inline]
pub fn of_file(node: NodeId, inode: &InodeRecord, nlink: u32) -> Attr {
    Attr {
        node,
        kind: kind(inode.kind),
        mode: inode.mode & MODE_BITS,
        nlink,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        size: inode.size,
        blocks: inode.blocks(),
        atime: Timestamp(inode.atime),
        mtime: Timestamp(inode.mtime),
        ctime: Timestamp(inode.ctime),
        btime: Timestamp(inode.btime),
    }
}

/// Attributes of a directory.
#[inline]
pub fn of_directory(node: NodeId, record: &DirectoryRecord) -> Attr {
    let nlink = u32::try_from(record.subdirectories + 2).unwrap_or(u32::MAX);
    let (nlink, size, stored) = match &record.elsewhere {
        Some(elsewhere) => (elsewhere.nlink, elsewhere.size, elsewhere.allocated),
        None => (nlink, record.entries as u64, 0),
    };
    Attr {
        node,
        kind: Kind::Directory,
        mode: record.mode & MODE_BITS,
        nlink,
        uid: record.uid,
        gid: record.gid,
        rdev: 0,
        size,
        blocks: stored.div_ceil(BLOCK_BYTES),
        atime: Timestamp(record.atime),
        mtime: Timestamp(record.mtime),
        ctime: Timestamp(record.ctime),
        btime: Timestamp(record.btime),
    }
}

/// What permissions on it depend on.
#[inline]
pub fn owned(inode: &InodeRecord) -> Owned {
    Owned { kind: kind(inode.kind), uid: inode.uid, gid: inode.gid, mode: inode.mode }
}

/// What permissions on a directory depend on.
#[inline]
pub fn owned_directory(record: &DirectoryRecord) -> Owned {
    Owned { kind: Kind::Directory, uid: record.uid, gid: record.gid, mode: record.mode }
}

/// A fresh inode that is not a directory.
#[inline]
pub fn fresh_inode(kind: FileKind, now: i64) -> InodeRecord {
    InodeRecord {
        kind,
        has_bulk: false,
        has_xattrs: false,
        has_extents: false,
        mode: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        allocated: 0,
        ctime: now,
        mtime: now,
        atime: now,
        btime: now,
        elsewhere: None,
        charge: None,
        charged_names: 0,
    }
}
