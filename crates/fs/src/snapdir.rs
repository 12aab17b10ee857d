//! The virtual directory of snapshots that every directory has.
//!
//! Its node is that of the directory, with the uppermost bit set. It is found by name only, and
//! is not listed. In a directory of a snapshot it is empty, and nothing can be made in it.

use format::acl::Acl;
use inode::permissions::READ;
use inode::{Attr, Caller, FsError, Kind, NodeId, SubvolId};

use crate::nodes::Location;
use crate::ops::lookup::check_search;
use crate::view::View;
use crate::{DirEntry, Entry, Fs, FsResult, RenameMode, WalkControl, attributes, permit};

const VIRTUAL: u64 = 1 << 63;

/// Whether a node is a virtual directory.
#[inline]
pub fn is_virtual(node: NodeId) -> bool {
    node.0 & VIRTUAL != 0
}

/// Whether a node is the virtual directory of the volume's root.
pub(crate) fn is_of_root(fs: &Fs, node: NodeId) -> bool {
    is_virtual(node) && fs.real(directory_of(node)) == fs.root()
}

/// The name by which a snapshot is found by its number in the virtual directory of the volume's
/// root, in paths that the kernel does not walk. No other snapshot is found there by such a name.
pub fn name_of_number(number: SubvolId) -> Vec<u8> {
    format!("#{}", number.0).into_bytes()
}

/// The number in such a name.
pub(crate) fn number(name: &[u8]) -> Option<SubvolId> {
    let digits = std::str::from_utf8(name.strip_prefix(b"#")?).ok()?;
    digits.parse().ok().filter(|number| name_of_number(SubvolId(*number)) == name).map(SubvolId)
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
    let attr = getattr(fs, caller, node_of(directory))?;
    if attr.kind != Kind::Directory {
        return Err(FsError::NotDirectory);
    }
    Ok(Entry { node: attr.node, attr })
}

/// Looks a snapshot up.
pub(crate) fn lookup(fs: &Fs, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<Entry> {
    let directory = directory_of(node);
    let (subvol, dir) = fs.place(directory)?;
    check_search(fs, &subvol, View::new(&*fs.store, subvol.tree()), caller, dir)?;
    if name == b"." {
        return enter(fs, caller, directory);
    }
    if name == b".." {
        let attr = crate::ops::getattr::getattr(fs, caller, directory)?;
        fs.nodes.look_up(directory, Location::Directory);
        return Ok(fs.entry(attr));
    }
    if subvol.read_only {
        return Err(FsError::NotFound);
    }
    let key = format::key::snapshot_name(subvol.lineage, dir, name);
    let id = fs.snapshot_id(&key)?.ok_or(FsError::NotFound)?;
    let attr = root_attr(fs, id)?;
    fs.nodes.look_up(attr.node, Location::Directory);
    Ok(fs.entry(attr))
}

/// The root of a snapshot, where there is one of this name.
pub(crate) fn root_of(fs: &Fs, node: NodeId, name: &[u8]) -> FsResult<Option<NodeId>> {
    let (subvol, dir) = fs.place(directory_of(node))?;
    let id = fs.snapshot_id(&format::key::snapshot_name(subvol.lineage, dir, name))?;
    // The copy of a directory has its number.
    Ok(id.map(|id| Fs::node_of(id, dir)))
}

fn root_attr(fs: &Fs, id: u64) -> FsResult<Attr> {
    let snapshot = match fs.subvol(SubvolId(id)) {
        Err(FsError::Stale) => return Err(FsError::NotFound),
        snapshot => snapshot?,
    };
    snapshot.read(|tree| {
        let record = View::new(&*fs.store, tree).directory(snapshot.root)?;
        let record = record.ok_or(FsError::Stale)?;
        Ok(attributes::of_directory(snapshot.root_node(), &record))
    })
}

/// Attributes of a virtual directory: those of its directory. Only its owner may write, regardless
/// of the directory's mode, because the owner takes snapshots.
pub(crate) fn getattr(fs: &Fs, caller: &Caller, node: NodeId) -> FsResult<Attr> {
    let attr = crate::ops::getattr::getattr(fs, caller, directory_of(node))?;
    Ok(Attr { node, mode: mode_of(attr.mode), nlink: 2, size: 0, blocks: 0, ..attr })
}

/// The mode of a virtual directory, by that of its directory.
pub(crate) fn mode_of(directory: u32) -> u32 {
    directory & 0o555 | 0o700
}

/// The access list of a virtual directory, by that of its directory.
pub(crate) fn list_of(mut directory: Acl) -> Acl {
    directory.set_mode(mode_of(directory.mode()));
    directory
}

/// Takes a snapshot.
pub(crate) fn mkdir(fs: &Fs, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<Entry> {
    fs.snapshot_create(caller, directory_of(node), name)?;
    lookup(fs, caller, node, name)
}

/// Deletes a snapshot.
pub(crate) fn rmdir(fs: &Fs, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<()> {
    fs.snapshot_delete(caller, directory_of(node), name)
}

/// Renames a snapshot.
pub(crate) fn rename(
    fs: &Fs,
    caller: &Caller,
    from: (NodeId, &[u8]),
    to: (NodeId, &[u8]),
    mode: RenameMode,
) -> FsResult<()> {
    if mode.leaves_whiteout() {
        return Err(FsError::InvalidArgument(
            "the renamed name is a snapshot, which leaves no whiteout",
        ));
    }
    if from.0 != to.0 {
        return Err(FsError::CrossSubvolume("a snapshot stays with its directory"));
    }
    if from.1 == to.1 {
        return Ok(());
    }
    fs.snapshot_rename(caller, directory_of(from.0), from.1, to.1)
}

/// Lists snapshots in the order in which they were taken. `plus`: with attributes and look-ups.
/// A cookie is the number of the snapshot's subvolume, with an offset that keeps small ones free.
pub(crate) fn readdir(
    fs: &Fs,
    caller: &Caller,
    node: NodeId,
    cookie: u64,
    plus: bool,
    take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
) -> FsResult<()> {
    const FIRST_COOKIE: u64 = 256;
    let (subvol, dir) = fs.place(directory_of(node))?;
    let view = View::new(&*fs.store, subvol.tree());
    let record = view.directory(dir)?.ok_or(FsError::NotFound)?;
    permit::unlocked_directory(view, dir, record, caller, READ)?.ok_or(FsError::NotFound)?;
    let mut snapshots = fs.snapshot_names(&subvol, dir)?;
    snapshots.sort_by_key(|(_, id)| *id);
    for (name, id) in snapshots {
        if id + FIRST_COOKIE <= cookie {
            continue;
        }
        // An unreadable one must not hide the others: a look-up of it gets the error.
        let attr = match root_attr(fs, id) {
            Ok(attr) => Some(attr),
            Err(FsError::Io(_)) => None,
            Err(FsError::NotFound | FsError::Stale) => {
                let key = format::key::snapshot_name(subvol.lineage, dir, &name);
                if fs.snapshot_id(&key)? != Some(id) {
                    // Deleted while it was listed.
                    continue;
                }
                None
            }
            Err(error) => return Err(error),
        };
        // The copy of a directory has its number.
        let node = attr.map_or_else(|| Fs::node_of(id, dir), |attr| attr.node);
        let attr = attr.filter(|_| plus);
        if attr.is_some() {
            fs.nodes.look_up(node, Location::Directory);
        }
        let cookie = id + FIRST_COOKIE;
        let kind = Kind::Directory;
        let entry = DirEntry { name: &name, node, kind, cookie, attr: attr.as_ref() };
        if take(&entry) == WalkControl::Stop {
            if attr.is_some() {
                crate::ops::forget::forget(fs, node, 1);
            }
            break;
        }
    }
    Ok(())
}
