//! `lookup`: a name in a directory, and `stat_at`, the same without holding the node.

use format::entry_record::Target;
use inode::permissions::EXECUTE;
use inode::{Attr, Caller, Enforce, FsError, NAME_BYTES_MAX, NodeId, SubvolId};
use vfs::{Entry, FsResult};
use volume::error::inconsistent;
use volume::locks::Lock;
use volume::nodes::Location;
use volume::subvol::{Subvol, node_of};
use volume::view::{FoundEntry, View};
use volume::{attributes, permit};

use crate::Ops;

/// How often a name is looked up whose inode is gone: a change that is under way takes less time.
const LOOKS_MAX: u32 = 10_000;

/// Finds a name in a directory and counts one look-up.
#[inline]
pub fn lookup(fs: &Ops, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<Entry> {
    if let Some(entry) = special(fs, caller, parent, name)? {
        return Ok(entry);
    }
    let (subvol, dir) = fs.place(parent)?;
    let hash = fs.hash.hash(name);
    loop {
        let looked = subvol.read(|tree| {
            let view = View::new(&*fs.store, tree);
            check_search(fs, &subvol, view, caller, dir)?;
            // Held until the table knows the node: a rename or removal waits.
            let _name = fs.locks.shared(Lock::Name { subvol: subvol.id.0, dir, hash });
            let found = find(fs, &subvol, view, dir, hash, name)?;
            if let Some(id) = mounted_elsewhere(fs, &subvol, dir, &found)? {
                return Ok(Err((found.cookie, id)));
            }
            let (attr, location) = attributes_of(fs, view, &subvol, dir, &found)?;
            fs.nodes.look_up(attr.node, location);
            Ok(Ok(fs.entry(attr)))
        })?;
        match looked {
            Ok(entry) => return Ok(entry),
            // Copied, if inherited, without the lock, because others wait for the lock of the name.
            Err((cookie, id)) => fs.nested_at(&subvol, (dir, cookie), id).map(drop)?,
        }
    }
}

/// The subvolume that a name points to, if that is not mounted there.
#[inline]
fn mounted_elsewhere(
    fs: &Ops,
    subvol: &Subvol,
    dir: u64,
    found: &FoundEntry,
) -> FsResult<Option<u64>> {
    match found.target {
        Target::Subvolume(id) => {
            Ok((!fs.is_mounted_at(subvol, (dir, found.cookie), id)?).then_some(id))
        }
        _ => Ok(None),
    }
}

/// Whether the node that a name points to is held. A node that cannot be read is not held.
pub fn holds(fs: &Ops, directory: NodeId, name: &[u8]) -> bool {
    let node = || -> FsResult<Option<NodeId>> {
        let (subvol, dir) = fs.place(directory)?;
        let hash = fs.hash.hash(name);
        let found = subvol.read(|tree| View::new(&*fs.store, tree).find_entry(dir, hash, name))?;
        let Some(found) = found else { return Ok(None) };
        Ok(match found.target {
            Target::Subvolume(id) => {
                let own = fs.is_mounted_at(&subvol, (dir, found.cookie), id)?;
                own.then(|| node_of(id, found.ino))
            }
            _ => Some(subvol.node(found.ino)),
        })
    };
    node().is_ok_and(|node| node.is_some_and(|node| fs.nodes.is_held(node)))
}

impl Ops {
    /// The attributes of a name, without a look-up count.
    pub fn stat_at(&self, caller: &Caller, dir: NodeId, name: &[u8]) -> FsResult<Attr> {
        if name == b"." || name == b".." {
            let entry = lookup(self, caller, dir, name)?;
            super::forget::forget(self, entry.node, 1);
            return Ok(entry.attr);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        let (subvol, dir) = self.place(dir)?;
        let hash = self.hash.hash(name);
        // The name may point to another inode between the reads of its record and of the inode.
        // Then the inode is gone, and the name is looked up again. In a damaged volume it may point
        // to what does not exist.
        for _ in 0..LOOKS_MAX {
            let result = subvol.read(|tree| {
                let view = View::new(&*self.store, tree);
                check_search(self, &subvol, view, caller, dir)?;
                let mut found = find(self, &subvol, view, dir, hash, name)?;
                if let Target::Subvolume(id) = found.target {
                    let id = self.nested_at(&subvol, (dir, found.cookie), id)?;
                    found.target = Target::Subvolume(id);
                }
                attributes_of(self, view, &subvol, dir, &found).map(|(attr, _)| attr)
            });
            match result {
                Err(FsError::Stale) => {
                    let view = View::new(&*self.store, subvol.tree());
                    if view.find_entry(dir, hash, name)?.is_none() {
                        return Err(FsError::NotFound);
                    }
                }
                result => return result,
            }
        }
        let found = View::new(&*self.store, subvol.tree()).find_entry(dir, hash, name)?;
        let ino = found.map_or(dir, |found| found.ino);
        Err(inconsistent(subvol.tree(), "a name of an inode that does not exist", ino))
    }
}

/// Names that are not in the tree.
#[inline]
fn special(fs: &Ops, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<Option<Entry>> {
    if name.len() > NAME_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    let dotted = name.first() == Some(&b'.');
    if dotted && (name == b"." || name == b"..") {
        return dots(fs, caller, parent, name).map(Some);
    }
    Ok(None)
}

fn dots(fs: &Ops, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<Entry> {
    let node = fs.real(parent);
    let (subvol, dir) = fs.place(node)?;
    let view = View::new(&*fs.store, subvol.tree());
    check_search(fs, &subvol, view, caller, dir)?;
    let node = if name == b"." { node } else { parent_of(fs, node)? };
    let attr = super::getattr::getattr(fs, node)?;
    fs.nodes.look_up(node, Location::Directory);
    Ok(fs.entry(attr))
}

/// The directory above a directory; the volume's root is above itself.
pub(crate) fn parent_of(fs: &Ops, node: NodeId) -> FsResult<NodeId> {
    let (subvol, dir) = fs.place(node)?;
    if node == fs.root() {
        return Ok(node);
    }
    if dir == subvol.root {
        return crate::subvolumes::parent_of_root(fs, node);
    }
    let view = View::new(&*fs.store, subvol.tree());
    let record = view.directory(dir)?.ok_or_else(|| missing(fs, &subvol, dir))?;
    Ok(subvol.node(record.parent))
}

/// Checks that the caller may search a directory, unless the kernel does.
#[inline]
pub fn check_search(
    fs: &Ops,
    subvol: &Subvol,
    view: View<'_>,
    caller: &Caller,
    dir: u64,
) -> FsResult<()> {
    if caller.enforce == Enforce::Kernel || caller.is_root() {
        return Ok(());
    }
    check_search_here(fs, subvol, view, caller, dir)
}

fn check_search_here(
    fs: &Ops,
    subvol: &Subvol,
    view: View<'_>,
    caller: &Caller,
    dir: u64,
) -> FsResult<()> {
    let record = view.directory(dir)?.ok_or_else(|| missing(fs, subvol, dir))?;
    match permit::unlocked_directory(view, dir, record, caller, EXECUTE)? {
        Some(_) => Ok(()),
        None => Err(missing(fs, subvol, dir)),
    }
}

#[inline]
fn find(
    fs: &Ops,
    subvol: &Subvol,
    view: View<'_>,
    dir: u64,
    hash: u64,
    name: &[u8],
) -> FsResult<FoundEntry> {
    match view.find_entry(dir, hash, name)? {
        Some(found) => Ok(found),
        None => Err(absent(fs, subvol, view, dir)),
    }
}

/// Why a name does not exist.
#[cold]
fn absent(fs: &Ops, subvol: &Subvol, view: View<'_>, dir: u64) -> FsError {
    match view.directory(dir) {
        Ok(Some(_)) => FsError::NotFound,
        Ok(None) => missing(fs, subvol, dir),
        Err(error) => error,
    }
}

/// Why there is no directory of a number: it is another kind of inode, or it was removed.
#[cold]
pub fn missing(fs: &Ops, subvol: &Subvol, dir: u64) -> FsError {
    match fs.nodes.location(subvol.node(dir)) {
        Some(Location::Entry { .. } | Location::Linked) => FsError::NotDirectory,
        // A removed directory answers as an empty one does.
        _ => FsError::NotFound,
    }
}

/// The attributes of what a name points to, and where it is.
#[inline]
pub fn attributes_of(
    fs: &Ops,
    view: View<'_>,
    subvol: &Subvol,
    dir: u64,
    found: &FoundEntry,
) -> FsResult<(Attr, Location)> {
    let ino = found.ino;
    match &found.target {
        Target::Embedded(inode) => {
            let location = Location::Entry { dir, cookie: found.cookie };
            Ok((attributes::of_file(subvol.node(ino), inode, 1), location))
        }
        Target::Linked(_) => {
            let record = view.linked(ino)?.ok_or(FsError::Stale)?;
            let attr = attributes::of_file(subvol.node(ino), &record.inode, record.nlink);
            Ok((attr, Location::Linked))
        }
        Target::Directory => {
            let record = view.directory(ino)?.ok_or(FsError::Stale)?;
            Ok((attributes::of_directory(subvol.node(ino), &record), Location::Directory))
        }
        Target::Subvolume(id) => {
            let subvol = fs.subvol(SubvolId(*id))?;
            let view = View::new(&*fs.store, subvol.tree());
            let record = view.directory(subvol.root)?.ok_or(FsError::Stale)?;
            Ok((attributes::of_directory(subvol.root_node(), &record), Location::Directory))
        }
        Target::Tombstone => Err(FsError::NotFound),
    }
}
