//! From a node to its inode, wherever it is stored.
//!
//! The caller holds the object's lock, so the location in the node table stays correct until the
//! lock is released.

use format::directory_record::DirectoryRecord;
use format::entry_record::Target;
use format::inode_record::InodeRecord;
use format::key::{self, Part};
use format::xattr_record::XattrRecord;
use inode::{Attr, FsError, NodeId, Owned};
use vfs::FsResult;

use crate::nodes::{Location, Orphan};
use crate::view::{FoundEntry, NameBuf, View};
use crate::{Core, attributes};

/// Where the records of an inode that is not a directory are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InodePlace {
    /// Beside the entry of its only name.
    Entry {
        /// The directory.
        dir: u64,
        /// Its cookie there.
        cookie: u64,
        /// The entry's flag.
        chained: bool,
    },
    /// Under its own number.
    Linked,
    /// In memory: it has no name.
    Memory,
}

/// An inode that is not a directory.
#[derive(Clone, Copy)]
pub struct FileInode {
    /// Its attributes.
    pub inode: InodeRecord,
    /// How many names it has.
    pub nlink: u32,
    /// Where it is stored.
    pub place: InodePlace,
}

/// An inode.
pub enum Inode {
    /// A directory, and whether it still has a name.
    Directory(DirectoryRecord, bool),
    /// Anything else.
    File(FileInode),
}

impl Inode {
    /// Its attributes.
    pub fn attr(&self, node: NodeId) -> Attr {
        match self {
            Inode::Directory(record, true) => attributes::of_directory(node, record),
            Inode::Directory(record, false) => {
                Attr { nlink: 0, ..attributes::of_directory(node, record) }
            }
            Inode::File(file) => attributes::of_file(node, &file.inode, file.nlink),
        }
    }

    /// What permissions on it depend on.
    pub fn owned(&self) -> Owned {
        match self {
            Inode::Directory(record, _) => attributes::owned_directory(record),
            Inode::File(file) => attributes::owned(&file.inode),
        }
    }
}

impl FileInode {
    /// The key of its contents or target.
    pub(crate) fn bulk_key(&self, ino: u64) -> Vec<u8> {
        self.place.key(ino, Part::Bulk)
    }
}

impl InodePlace {
    /// The key of a record of the inode.
    pub fn key(&self, ino: u64, part: Part) -> Vec<u8> {
        match *self {
            InodePlace::Entry { dir, cookie, .. } => key::entry(dir, cookie, part).to_vec(),
            InodePlace::Linked | InodePlace::Memory => key::linked(ino, part).to_vec(),
        }
    }
}

/// The inode of a node.
pub fn load(fs: &Core, view: View<'_>, node: NodeId, ino: u64) -> FsResult<Inode> {
    load_by(fs, view, (node, ino), |dir, cookie| view.entry_with(dir, cookie, |_| ()))
}

/// The same, and the name beside which it is stored, if any.
pub fn load_named(
    fs: &Core,
    view: View<'_>,
    node: NodeId,
    ino: u64,
    name: &mut NameBuf,
) -> FsResult<Inode> {
    load_by(fs, view, (node, ino), |dir, cookie| view.entry_at(dir, cookie, name))
}

/// The same; `entry` reads an entry of a directory.
#[inline]
fn load_by(
    fs: &Core,
    view: View<'_>,
    (node, ino): (NodeId, u64),
    entry: impl FnOnce(u64, u64) -> FsResult<Option<FoundEntry>>,
) -> FsResult<Inode> {
    match fs.nodes.location(node) {
        Some(Location::Entry { dir, cookie }) => {
            let found = entry(dir, cookie)?.filter(|found| found.ino == ino);
            let Some(found) = found else { return Err(FsError::Stale) };
            let Target::Embedded(inode) = found.target else { return Err(FsError::Stale) };
            let place = InodePlace::Entry { dir, cookie, chained: found.chained };
            Ok(Inode::File(FileInode { inode, nlink: 1, place }))
        }
        Some(Location::Orphan) => match fs.nodes.orphan_of(node) {
            Some(Orphan::File { inode, .. }) => Ok(in_memory(inode)),
            Some(Orphan::Directory(record)) => Ok(Inode::Directory(record, false)),
            None => Err(FsError::Stale),
        },
        Some(Location::Linked) => load_linked(view, ino),
        Some(Location::Directory) | None => match view.directory(ino)? {
            Some(record) => Ok(Inode::Directory(record, true)),
            None => load_linked(view, ino),
        },
    }
}

fn in_memory(inode: InodeRecord) -> Inode {
    Inode::File(FileInode { inode, nlink: 0, place: InodePlace::Memory })
}

fn load_linked(view: View<'_>, ino: u64) -> FsResult<Inode> {
    let record = view.linked(ino)?.ok_or(FsError::Stale)?;
    Ok(Inode::File(FileInode {
        inode: record.inode,
        nlink: record.nlink,
        place: InodePlace::Linked,
    }))
}

/// Contents or target of an inode that are not extents.
pub fn load_bulk(
    fs: &Core,
    view: View<'_>,
    node: NodeId,
    ino: u64,
    file: &FileInode,
) -> FsResult<Vec<u8>> {
    if !file.inode.has_bulk {
        return Ok(Vec::new());
    }
    if file.place == InodePlace::Memory {
        return match fs.nodes.orphan_of(node) {
            Some(Orphan::File { bulk, .. }) => Ok(bulk),
            _ => Err(FsError::Stale),
        };
    }
    view.bulk(&file.bulk_key(ino))
}

/// Extended attributes of an inode.
pub fn load_xattrs(
    fs: &Core,
    view: View<'_>,
    node: NodeId,
    ino: u64,
    inode: &Inode,
) -> FsResult<XattrRecord> {
    match inode {
        Inode::Directory(record, named) if record.has_xattrs && *named => {
            view.xattrs(&key::directory(ino, Part::Xattrs))
        }
        Inode::File(file) if file.place == InodePlace::Memory => match fs.nodes.orphan_of(node) {
            Some(Orphan::File { xattrs, .. }) => Ok(xattrs),
            _ => Err(FsError::Stale),
        },
        Inode::File(file) if file.inode.has_xattrs => {
            view.xattrs(&file.place.key(ino, Part::Xattrs))
        }
        _ => Ok(XattrRecord::default()),
    }
}
