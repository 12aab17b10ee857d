//! The virtual directory of snapshots that every directory has.
//!
//! Its node is that of the directory, with the uppermost bit set. It is found by name only, and
//! is not listed.

use inode::{Attr, Caller, FsError, NodeId, SubvolId};

use crate::{DirEntry, Entry, Fs, FsResult, WalkControl};

const NOT_BUILT: FsError = FsError::NotSupported("snapshots");
const VIRTUAL: u64 = 1 << 63;

/// Whether a node is a virtual directory.
#[inline]
pub(crate) fn is_virtual(node: NodeId) -> bool {
    node.subvol() > SubvolId::MAX
}

/// The virtual directory of a directory.
pub(crate) fn node_of(directory: NodeId) -> NodeId {
    NodeId(directory.0 | VIRTUAL)
}

/// The directory of a virtual directory.
pub(crate) fn directory_of(node: NodeId) -> NodeId {
    NodeId(node.0 & !VIRTUAL)
}

/// Looks the virtual directory of a directory up.
pub(crate) fn enter(fs: &Fs, caller: &Caller, directory: NodeId) -> FsResult<Entry> {
    Ok(fs.entry(getattr(fs, caller, node_of(directory))?))
}

/// Looks a snapshot up.
pub(crate) fn lookup(_fs: &Fs, _caller: &Caller, _node: NodeId, _name: &[u8]) -> FsResult<Entry> {
    Err(FsError::NotFound)
}

/// Attributes of a virtual directory: those of its directory, but with no right to write.
pub(crate) fn getattr(fs: &Fs, caller: &Caller, node: NodeId) -> FsResult<Attr> {
    let attr = crate::ops::getattr::getattr(fs, caller, directory_of(node))?;
    Ok(Attr { node, nlink: 2, size: 0, blocks: 0, ..attr })
}

/// Takes a snapshot.
pub(crate) fn mkdir(_fs: &Fs, _caller: &Caller, _node: NodeId, _name: &[u8]) -> FsResult<Entry> {
    Err(NOT_BUILT)
}

/// Deletes a snapshot.
pub(crate) fn rmdir(_fs: &Fs, _caller: &Caller, _node: NodeId, _name: &[u8]) -> FsResult<()> {
    Err(NOT_BUILT)
}

/// Renames a snapshot.
pub(crate) fn rename(
    _fs: &Fs,
    _caller: &Caller,
    _from: (NodeId, &[u8]),
    _to: (NodeId, &[u8]),
) -> FsResult<()> {
    Err(NOT_BUILT)
}

/// Lists snapshots. `plus`: with attributes and look-ups.
#[expect(clippy::unnecessary_wraps, reason = "reading fails once there is something to read")]
pub(crate) fn readdir(
    _fs: &Fs,
    _caller: &Caller,
    _node: NodeId,
    _cookie: u64,
    _plus: bool,
    _take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
) -> FsResult<()> {
    Ok(())
}
