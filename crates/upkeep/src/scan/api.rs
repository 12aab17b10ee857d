//! The input of a scan, and the reports about scans.

use format::acl;
use format::directory_record::DirectoryElsewhere;
use format::inode_record::{Elsewhere, FileKind, InodeRecord};
use format::scan_record::ScanRecord;
use format::xattr_record::XattrRecord;
use inode::Outside;
use volume::attributes::file_kind;

/// A name in a directory of the other file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The name.
    pub name: &'a [u8],
    /// What it points to.
    pub attr: Outside,
    /// Target of a symbolic link; empty for all else.
    pub target: &'a [u8],
    /// Extended attributes, if they are kept.
    pub xattrs: Vec<(&'a [u8], &'a [u8])>,
}

/// Options of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanOptions {
    /// The directory that is indexed, absolute.
    pub source: Vec<u8>,
    /// When the scan began, by the clock of the reader of the source.
    pub started: i64,
    /// Whether file systems mounted below belong to it.
    pub crosses_mounts: bool,
    /// Whether extended attributes are kept.
    pub keeps_xattrs: bool,
    /// Whether a directory above the source is closed to some users.
    pub hidden: bool,
}

/// What an index records about its scans.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct ScanInfo {
    /// The directory that is indexed.
    pub source: Vec<u8>,
    /// When the last scan that ended began; `None`: none did.
    pub started: Option<i64>,
    /// When it ended.
    pub ended: i64,
    /// What it could not read.
    pub unread: u64,
    /// Whether a scan began since and did not end.
    pub unfinished: bool,
    /// Whether file systems mounted below belong to it.
    pub crosses_mounts: bool,
    /// Whether extended attributes are kept.
    pub keeps_xattrs: bool,
    /// Whether a directory above the source was closed to some users when the last scan began.
    pub hidden: bool,
}

impl From<&ScanRecord> for ScanInfo {
    fn from(record: &ScanRecord) -> ScanInfo {
        ScanInfo {
            source: record.source.clone(),
            started: (record.started != 0).then_some(record.started),
            ended: record.ended,
            unread: record.unread,
            unfinished: record.pending != 0,
            crosses_mounts: record.crosses_mounts,
            keeps_xattrs: record.keeps_xattrs,
            hidden: record.hidden,
        }
    }
}

/// What records hold of an inode of another file system.
pub(super) trait InRecords {
    /// The inode that it is.
    fn elsewhere(&self) -> Elsewhere;

    /// What a directory's record holds of it.
    fn directory(&self) -> DirectoryElsewhere;

    /// Permission bits that a record can hold. If the extended attributes, where they are kept,
    /// have an access list, the group bits are its mask.
    fn mode(&self, xattrs: &XattrRecord) -> u32;
}

impl InRecords for Outside {
    fn elsewhere(&self) -> Elsewhere {
        Elsewhere { device: self.device, number: self.number }
    }

    fn directory(&self) -> DirectoryElsewhere {
        DirectoryElsewhere {
            inode: self.elsewhere(),
            size: self.size,
            allocated: self.allocated,
            nlink: self.nlink,
        }
    }

    fn mode(&self, xattrs: &XattrRecord) -> u32 {
        let listed = acl::access_of(xattrs).is_some_and(|acl| !acl.is_minimal());
        self.mode & InodeRecord::MODE_MAX | if listed { acl::IN_MODE } else { 0 }
    }
}

impl Listed<'_> {
    /// Feeds what an inode's names share to a hash.
    pub(super) fn hash_inode(&self, hasher: &mut impl std::hash::Hasher) {
        use std::hash::Hash;
        self.attr.hash(hasher);
        self.target.hash(hasher);
        self.xattrs.hash(hasher);
    }

    /// Whether other names may point to the same inode.
    pub(super) fn is_linked(&self) -> bool {
        self.attr.nlink > 1
    }

    /// Its extended attributes as they are stored.
    pub(super) fn record_of_xattrs(&self) -> XattrRecord {
        record_of(&self.xattrs)
    }

    /// The record of its inode, which is not a directory.
    pub(super) fn inode(&self) -> InodeRecord {
        let attr = &self.attr;
        let kind = file_kind(attr.kind);
        assert!(kind != FileKind::Directory, "directories have records of their own");
        InodeRecord {
            kind,
            has_bulk: !self.target.is_empty(),
            has_xattrs: !self.xattrs.is_empty(),
            has_extents: false,
            mode: attr.mode(&self.record_of_xattrs()),
            uid: attr.uid,
            gid: attr.gid,
            rdev: if kind.is_device() { attr.rdev } else { 0 },
            size: attr.size.min(InodeRecord::SIZE_MAX),
            allocated: attr.allocated,
            ctime: attr.ctime,
            mtime: attr.mtime,
            atime: attr.atime,
            btime: attr.btime,
            elsewhere: Some(attr.elsewhere()),
            charge: None,
            charged_names: 0,
        }
    }
}

/// Extended attributes as they are stored.
pub(super) fn record_of(xattrs: &[(&[u8], &[u8])]) -> XattrRecord {
    let mut record = XattrRecord::default();
    for (name, value) in xattrs {
        record.set(name, value);
    }
    record
}
