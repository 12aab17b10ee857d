//! The virtual directory of snapshots that every directory has.
//!
//! Its node is that of the directory, with the uppermost bit of the slot set. It is found by name
//! only, and is not listed. In a directory of a snapshot it is empty, and nothing can be made in
//! it.

use device::sync::Mutex;
use format::acl::{ACCESS, Acl};
use inode::permissions::EXECUTE;
use inode::{Attr, Caller, Enforce, FsError, Kind, NodeId, Slot, SubvolId};

use crate::{DirEntry, Entry, FileSystem, FsResult, RenameMode, WalkControl};

/// The bit of a slot that no subvolume has.
const VIRTUAL: u64 = 1 << 23;

/// The error for what cannot be done with a directory of snapshots.
pub(super) const REFUSED: FsError = FsError::NotPermitted("a directory of snapshots");

/// A file system that has snapshots of its directories. Nodes are those of real directories.
pub trait Snapshots: FileSystem {
    /// Takes a snapshot of a directory.
    fn take_snapshot(&self, caller: &Caller, directory: NodeId, name: &[u8]) -> FsResult<()>;

    /// Deletes a snapshot of a directory.
    fn delete_snapshot(&self, caller: &Caller, directory: NodeId, name: &[u8]) -> FsResult<()>;

    /// Renames a snapshot of a directory.
    fn rename_snapshot(
        &self,
        caller: &Caller,
        directory: NodeId,
        from: &[u8],
        to: &[u8],
    ) -> FsResult<()>;

    /// The root of a snapshot of a directory that the caller may search. Takes one look-up.
    fn find_snapshot(&self, caller: &Caller, directory: NodeId, name: &[u8]) -> FsResult<Entry>;

    /// The root of the snapshot with a number, of any directory. Takes one look-up.
    fn find_numbered_snapshot(&self, caller: &Caller, number: SubvolId) -> FsResult<Entry>;

    /// The snapshots of a directory that the caller may read, by number. It returns at most so
    /// many, the first ones with greater numbers than one.
    fn list_snapshots(
        &self,
        caller: &Caller,
        directory: NodeId,
        above: u64,
        max: usize,
    ) -> FsResult<Vec<ListedSnapshot>>;

    /// Whether the root of a snapshot is held.
    fn holds_snapshot(&self, directory: NodeId, name: &[u8]) -> bool;
}

/// A snapshot of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSnapshot {
    /// Its name.
    pub name: Vec<u8>,
    /// Its number, which grows with the time at which it was taken.
    pub number: SubvolId,
    /// Its root.
    pub root: NodeId,
}

/// Whether a node is a virtual directory.
#[inline]
pub(super) fn is_virtual(node: NodeId) -> bool {
    node.slot().0 & VIRTUAL != 0
}

/// The name by which the virtual directory of the root has a snapshot by its number, in paths that
/// the kernel does not walk. No other snapshot is found there by such a name.
pub fn name_of_number(number: SubvolId) -> Vec<u8> {
    format!("#{}", number.0).into_bytes()
}

/// The number in such a name.
pub fn number_in_name(name: &[u8]) -> Option<SubvolId> {
    let digits = std::str::from_utf8(name.strip_prefix(b"#")?).ok()?;
    digits.parse().ok().filter(|number| name_of_number(SubvolId(*number)) == name).map(SubvolId)
}

/// The virtual directory of a directory.
pub(super) fn node_of(directory: NodeId) -> NodeId {
    NodeId::of(Slot(directory.slot().0 | VIRTUAL), directory.ino())
}

/// The directory of a virtual directory.
pub(super) fn directory_of(node: NodeId) -> NodeId {
    NodeId::of(Slot(node.slot().0 & !VIRTUAL), node.ino())
}

/// Looks the virtual directory of a directory up.
pub(super) fn enter<F: FileSystem>(fs: &F, caller: &Caller, directory: NodeId) -> FsResult<Entry> {
    if caller.enforce == Enforce::Here && !caller.is_root() {
        fs.access(caller, directory, EXECUTE)?;
    }
    let attr = fs.getattr(caller, directory)?;
    if attr.kind != Kind::Directory {
        return Err(FsError::NotDirectory);
    }
    let attr = shown(attr);
    Ok(Entry { node: attr.node, attr })
}

/// Attributes of a virtual directory: those of its directory. Only its owner may write, regardless
/// of the directory's mode, because the owner takes snapshots.
pub(super) fn getattr<F: FileSystem>(fs: &F, caller: &Caller, node: NodeId) -> FsResult<Attr> {
    fs.getattr(caller, directory_of(node)).map(shown)
}

fn shown(directory: Attr) -> Attr {
    let (node, mode) = (node_of(directory.node), mode_of(directory.mode));
    Attr { node, mode, nlink: 2, size: 0, blocks: 0, ..directory }
}

/// The mode of a virtual directory, by that of its directory.
fn mode_of(directory: u32) -> u32 {
    directory & 0o555 | 0o700
}

/// An extended attribute of a virtual directory: the access list of its directory, without what
/// the owner alone may do.
pub(super) fn getxattr<F: FileSystem>(
    fs: &F,
    caller: &Caller,
    node: NodeId,
    name: &[u8],
) -> FsResult<Vec<u8>> {
    if name != ACCESS {
        return Err(FsError::NoAttribute);
    }
    let list = fs.getxattr(caller, directory_of(node), ACCESS)?;
    let damage = || FsError::Io("an access list is damaged".to_owned().into());
    let mut list = Acl::decode(&list).ok().flatten().ok_or_else(damage)?;
    list.set_mode(mode_of(list.mode()));
    Ok(list.encode())
}

/// The names of its extended attributes.
pub(super) fn listxattr<F: FileSystem>(fs: &F, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
    match fs.getxattr(caller, directory_of(node), ACCESS) {
        Ok(_) => Ok([ACCESS, b"\0"].concat()),
        Err(FsError::NoAttribute | FsError::NotSupported(_)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Looks a snapshot up.
pub(super) fn lookup<F: Snapshots>(
    fs: &F,
    caller: &Caller,
    node: NodeId,
    name: &[u8],
) -> FsResult<Entry> {
    let directory = directory_of(node);
    match name {
        b"." => enter(fs, caller, directory),
        b".." => fs.lookup(caller, directory, b"."),
        _ => fs.find_snapshot(caller, directory, name),
    }
}

/// Finds a virtual directory by its number: a handle of it that outlived the front end's copy.
pub(super) fn find<F: FileSystem>(fs: &F, top: NodeId, node: NodeId) -> FsResult<Entry> {
    let held = fs.find_by_number(top, directory_of(node))?;
    let entry = enter(fs, &Caller::root(), held.node);
    fs.forget(held.node, 1);
    entry.map_err(|error| match error {
        FsError::NotFound | FsError::NotDirectory => FsError::Stale,
        other => other,
    })
}

/// Renames a snapshot.
pub(super) fn rename<F: Snapshots>(
    fs: &F,
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
    fs.rename_snapshot(caller, directory_of(from.0), from.1, to.1)
}

/// A cookie is the number of the snapshot, with an offset that keeps small ones free.
const FIRST_COOKIE: u64 = 256;

/// Snapshots that are read for a listing at a time.
const PAGE_MAX: usize = 4096;

/// The part of a directory's snapshots that was read last, for the listing that continues: finding
/// it reads the names of all. A listing that begins reads its own.
#[derive(Default)]
pub(super) struct Page {
    directory: Option<NodeId>,
    above: u64,
    snapshots: Vec<ListedSnapshot>,
}

impl Page {
    /// The snapshots with greater numbers, of which there are as many as were read.
    fn above(&self, directory: NodeId, above: u64) -> Option<&[ListedSnapshot]> {
        if self.directory != Some(directory) || above == 0 || above < self.above {
            return None;
        }
        let from = self.snapshots.partition_point(|one| one.number.0 <= above);
        Some(&self.snapshots[from..]).filter(|rest| !rest.is_empty())
    }
}

/// Lists snapshots in the order in which they were taken. `plus`: with attributes and look-ups.
pub(super) fn readdir<F: Snapshots>(
    fs: &F,
    caller: &Caller,
    node: NodeId,
    (cookie, plus): (u64, bool),
    last: &Mutex<Page>,
    take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
) -> FsResult<()> {
    let directory = directory_of(node);
    let mut above = cookie.saturating_sub(FIRST_COOKIE);
    loop {
        if above != 0 {
            // A page that is there was read by somebody: the caller must have the right, too.
            fs.list_snapshots(caller, directory, above, 0)?;
        }
        let page = last.lock().above(directory, above).map(<[_]>::to_vec);
        let page = if let Some(page) = page {
            page
        } else {
            let snapshots = fs.list_snapshots(caller, directory, above, PAGE_MAX)?;
            let directory = Some(directory);
            *last.lock() = Page { directory, above, snapshots: snapshots.clone() };
            snapshots
        };
        let Some(end) = page.last().map(|one| one.number.0) else { return Ok(()) };
        if pass(fs, directory, (page, plus), take)? == WalkControl::Stop {
            return Ok(());
        }
        above = end;
    }
}

/// Passes listed snapshots on.
fn pass<F: Snapshots>(
    fs: &F,
    directory: NodeId,
    (snapshots, plus): (Vec<ListedSnapshot>, bool),
    take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
) -> FsResult<WalkControl> {
    for snapshot in snapshots {
        let at = snapshot.number.0 + FIRST_COOKIE;
        let found = if plus {
            match fs.find_snapshot(&Caller::root(), directory, &snapshot.name) {
                Ok(found) => Some(found),
                // An unreadable one must not hide the others: a look-up of it gets the error.
                Err(FsError::Io(_) | FsError::NotFound | FsError::Stale) => None,
                Err(error) => return Err(error),
            }
        } else {
            None
        };
        let attr = found.as_ref().map(|found| &found.attr);
        let node = found.as_ref().map_or(snapshot.root, |found| found.node);
        let (kind, name) = (Kind::Directory, &snapshot.name[..]);
        let entry = DirEntry { name, node, kind, cookie: at, attr };
        if take(&entry) == WalkControl::Stop {
            if let Some(found) = found {
                fs.forget(found.node, 1);
            }
            return Ok(WalkControl::Stop);
        }
    }
    Ok(WalkControl::Continue)
}
