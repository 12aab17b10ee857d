//! Finds an inode by its number alone. Programs and NFS servers keep handles while the kernel
//! forgets the inode, or across a remount.
//!
//! 1. The slot points to the subvolume that has it now. Its generation is in the handle, and the
//!    kernel compares it.
//! 2. A directory and an inode with several names have records under their own numbers. All others
//!    are in the entry of their only name, which a search finds. The index knows the least and the
//!    greatest inode of each cluster, and what differs from it, so it is never out of date.
//! 3. The result counts only if the mount shows it: names point to it from the mount's root. What
//!    was removed and waits to be reclaimed has no such name, and is gone.

use std::ops::ControlFlow;

use format::entry_record::Target;
use format::key;
use inode::{Attr, Caller, FsError, NodeId, SubvolId};
use search::cluster::Fields;
use search::query::{Expr, Test};
use search::{Attribute, Request, Start};
use store::KeyRange;
use vfs::cancel;
use vfs::{Entry, FsResult};
use volume::attributes;
use volume::error::{from_search, from_store, malformed};
use volume::load::load;
use volume::locks::Lock;
use volume::nodes::Location;
use volume::subvol::{Subvol, read_record};
use volume::view::{NameBuf, View};

use crate::Ops;
use crate::posix::totals::NoAccounts;

/// How often a search begins again because its result was renamed meanwhile.
const ATTEMPTS_MAX: usize = 32;
/// Most directories on the way up.
const DEPTH_MAX: usize = 1 << 16;

/// Finds a node by its number, at or below a directory; takes one look-up. `Stale`: there is none.
pub fn find(fs: &Ops, top: NodeId, node: NodeId) -> FsResult<Entry> {
    find_as(fs, Some(fs.real(top)), node)
}

/// Finds a node again that a client held when another process served the volume, with or without a
/// name; takes one look-up.
pub fn find_again(fs: &Ops, node: NodeId) -> FsResult<Entry> {
    find_as(fs, None, node)
}

/// `top`: `None` if the node counts wherever it is.
fn find_as(fs: &Ops, top: Option<NodeId>, node: NodeId) -> FsResult<Entry> {
    let node = fs.real(node);
    for _ in 0..ATTEMPTS_MAX {
        let subvol = fs.subvol_of(node)?;
        match subvol.read(|tree| find_in(fs, &subvol, View::new(&*fs.store, tree), top, node))? {
            LookedUp::Here(attr) => return Ok(fs.entry(attr)),
            LookedUp::Nowhere => return Err(FsError::Stale),
            LookedUp::Moved => {}
        }
    }
    Err(FsError::Busy("the file is being renamed continuously; try again"))
}

enum LookedUp {
    /// A look-up was taken.
    Here(Attr),
    Nowhere,
    /// It was renamed between the search and the check of its result.
    Moved,
}

fn find_in(
    fs: &Ops,
    subvol: &Subvol,
    view: View<'_>,
    top: Option<NodeId>,
    node: NodeId,
) -> FsResult<LookedUp> {
    let ino = node.ino().0;
    if !fs.numbers.may_exist(ino) {
        return Ok(LookedUp::Nowhere);
    }
    if let Some(found) = under_own_number(fs, subvol, view, (top, node))? {
        return Ok(found);
    }
    let Some((dir, cookie)) = search(fs, subvol, ino)? else { return Ok(LookedUp::Nowhere) };
    if !is_shown(fs, top, subvol.node(dir))? {
        return Ok(LookedUp::Nowhere);
    }
    // As a look-up of the name does: a rename or a removal waits.
    let _name = fs.locks.shared(Lock::Name { subvol: subvol.id.0, dir, hash: cookie >> 8 });
    let entry = view.entry_at(dir, cookie, &mut NameBuf::empty())?;
    match entry.filter(|entry| entry.ino == ino).map(|entry| entry.target) {
        Some(Target::Embedded(inode)) => {
            fs.nodes.look_up(node, Location::Entry { dir, cookie });
            Ok(LookedUp::Here(attributes::of_file(node, &inode, 1)))
        }
        _ => Ok(LookedUp::Moved),
    }
}

/// An inode in the node table, or with a record under its own number; `None`: neither.
fn under_own_number(
    fs: &Ops,
    subvol: &Subvol,
    view: View<'_>,
    (top, node): (Option<NodeId>, NodeId),
) -> FsResult<Option<LookedUp>> {
    let ino = node.ino().0;
    let _object = fs.locks.shared(Lock::Object { subvol: subvol.id.0, ino });
    // The kernel requests a node that it has dropped; if the node is still held, its forget has
    // merely not arrived. So one without a name is gone.
    match fs.nodes.location(node) {
        Some(location @ Location::Orphan) if top.is_none() => {
            let attr = load(fs, view, node, ino)?.attr(node);
            fs.nodes.look_up(node, location);
            return Ok(Some(LookedUp::Here(attr)));
        }
        Some(Location::Orphan) => return Ok(Some(LookedUp::Nowhere)),
        Some(location @ Location::Entry { dir, .. }) => {
            if !is_shown(fs, top, subvol.node(dir))? {
                return Ok(Some(LookedUp::Nowhere));
            }
            let attr = load(fs, view, node, ino)?.attr(node);
            fs.nodes.look_up(node, location);
            return Ok(Some(LookedUp::Here(attr)));
        }
        Some(Location::Directory | Location::Linked) | None => {}
    }
    if let Some(record) = view.directory(ino)? {
        if !is_shown(fs, top, node)? {
            return Ok(Some(LookedUp::Nowhere));
        }
        fs.nodes.look_up(node, Location::Directory);
        return Ok(Some(LookedUp::Here(attributes::of_directory(node, &record))));
    }
    let Some(record) = view.linked(ino)? else { return Ok(None) };
    if top.is_none() {
        fs.nodes.look_up(node, Location::Linked);
        let attr = attributes::of_file(node, &record.inode, record.nlink);
        return Ok(Some(LookedUp::Here(attr)));
    }
    for dir in directories_of(fs, view, ino)? {
        if record.nlink > 0 && is_shown(fs, top, subvol.node(dir))? {
            fs.nodes.look_up(node, Location::Linked);
            let attr = attributes::of_file(node, &record.inode, record.nlink);
            return Ok(Some(LookedUp::Here(attr)));
        }
    }
    Ok(Some(LookedUp::Nowhere))
}

/// The directories that the names of a linked inode are in.
fn directories_of(fs: &Ops, view: View<'_>, ino: u64) -> FsResult<Vec<u64>> {
    let range = KeyRange::prefix(&key::back_reference_prefix(ino));
    let mut cursor = fs.store.scan(view.tree, range).map_err(from_store)?;
    let mut directories = Vec::new();
    while let Some(item) = cursor.next().map_err(from_store)? {
        let parsed = key::parse(item.key).map_err(|error| malformed(view.tree, &error))?;
        if let key::Parsed::BackReference { directory, .. } = parsed
            && directories.last() != Some(&directory)
        {
            directories.push(directory);
        }
    }
    Ok(directories)
}

/// The directory and the cookie of the only name of an inode, in its subvolume alone.
fn search(fs: &Ops, subvol: &Subvol, ino: u64) -> FsResult<Option<(u64, u64)>> {
    let shown = i128::from(subvol.node(ino).shown());
    let (caller, mut found) = (Caller::root(), None);
    let request = Request {
        start: Start { subvolume: subvol.id.0, directory: subvol.root, path: b"/", depth: 0 },
        expr: &Expr::Test(Test::Within(Attribute::Ino, shown, shown)),
        prune: None,
        alone: true,
        caller: &caller,
        min_depth: 0,
        max_depth: None,
        contents_first: false,
        order: None,
        limit: None,
        fields: Fields::IDENTITY,
        accounts: &NoAccounts,
        cancel: &cancel(),
    };
    let pinned = fs.store.pin().map_err(from_store)?.into();
    let outcome = fs.search_subvolume(pinned, &request, &mut |row| {
        if row.subvolume != subvol.id.0 {
            return ControlFlow::Continue(());
        }
        found = Some((row.row.directory, row.row.cookie));
        ControlFlow::Break(())
    });
    let outcome = outcome.map_err(from_search)?;
    if found.is_none() && outcome.cancelled {
        return Err(FsError::Interrupted);
    }
    Ok(found)
}

/// Whether names lead from a directory to another one, of the same subvolume or of one below.
fn is_shown(fs: &Ops, top: Option<NodeId>, directory: NodeId) -> FsResult<bool> {
    let Some(top) = top else { return Ok(true) };
    match climb(fs, top, directory) {
        Err(FsError::Stale) => Ok(false),
        shown => shown,
    }
}

fn climb(fs: &Ops, top: NodeId, directory: NodeId) -> FsResult<bool> {
    let (mut subvol, mut at) = fs.place(directory)?;
    for _ in 0..DEPTH_MAX {
        if subvol.node(at) == top {
            return Ok(true);
        }
        if at != subvol.root {
            let view = View::new(&*fs.store, subvol.tree());
            match view.directory(at)? {
                // The tree of a copy has all of its source: what is not below its root does not
                // belong to it.
                Some(record) if !record.detached && record.parent != at => at = record.parent,
                _ => return Ok(false),
            }
            continue;
        }
        let record = read_record(&*fs.store, subvol.id)?;
        let Some(record) = record.filter(|record| !record.detached) else { return Ok(false) };
        let (above, directory) = if record.snapshot {
            // The root of the volume shows all of its snapshots.
            if top == fs.root() {
                return Ok(true);
            }
            fs.shown_in(&record)?.unwrap_or_default()
        } else {
            (record.parent.0, record.parent.1)
        };
        if above == 0 {
            return Ok(false);
        }
        (subvol, at) = (fs.subvol(SubvolId(above))?, directory);
    }
    Ok(false)
}
