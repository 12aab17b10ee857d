//! Requests about paths, as front ends show them: such a path may point into a virtual directory.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use format::acl::ACCESS;
use inode::{Caller, FsError, Kind, NodeId};
use ops::subvolumes::heirs_below::Scope;
use search::{Details, Outcome, Row};
use vfs::{Entry, FileSystem, Follow, FsResult, WalkControl};

use crate::find::{Search, add};
use crate::history::history;
use crate::{Find, Matches, Version, Volume};

/// Requests about paths.
pub trait Paths {
    /// Searches a path and everything below it, with the rights of the caller. `shown` is the
    /// displayed form of the path, and never empty.
    fn find(
        &self,
        caller: &Caller,
        path: &[u8],
        follow: Follow,
        shown: &[u8],
        find: &Find<'_>,
        emit: Matches<'_>,
    ) -> FsResult<Outcome>;

    /// Counts what [`Paths::find`] would find, without returning matches and without a limit.
    fn count(
        &self,
        caller: &Caller,
        path: &[u8],
        follow: Follow,
        shown: &[u8],
        find: &Find<'_>,
    ) -> FsResult<Outcome>;

    /// The versions of a path that the caller may see, the oldest first, the present last;
    /// `NotFound` if it is in none of them. Symbolic links on the way are followed in the present,
    /// and not in snapshots: a snapshot with a link there gives no information. The last component
    /// is reported itself, a link too.
    /// A path has at most 1,024 names.
    fn history(
        &self,
        caller: &Caller,
        path: &[u8],
        cancel: &AtomicBool,
        visit: &mut dyn FnMut(&Version) -> ControlFlow<()>,
    ) -> FsResult<()>;
}

impl Paths for Volume {
    fn find(
        &self,
        caller: &Caller,
        path: &[u8],
        follow: Follow,
        shown: &[u8],
        find: &Find<'_>,
        emit: Matches<'_>,
    ) -> FsResult<Outcome> {
        let entry = self.resolve(caller, path, follow)?;
        let found = scope_of(self, &entry)
            .and_then(|scope| Search::new((self, scope), caller, *find, Some(emit)))
            .and_then(|mut search| from(self, &mut search, (caller, find), (&entry, shown, 0)));
        self.forget(entry.node, 1);
        found
    }

    fn count(
        &self,
        caller: &Caller,
        path: &[u8],
        follow: Follow,
        shown: &[u8],
        find: &Find<'_>,
    ) -> FsResult<Outcome> {
        let entry = self.resolve(caller, path, follow)?;
        let find = Find { limit: None, order: None, contents_first: false, ..*find };
        let found = scope_of(self, &entry)
            .and_then(|scope| Search::new((self, scope), caller, find, None))
            .and_then(|mut search| from(self, &mut search, (caller, &find), (&entry, shown, 0)));
        self.forget(entry.node, 1);
        found
    }

    fn history(
        &self,
        caller: &Caller,
        path: &[u8],
        cancel: &AtomicBool,
        visit: &mut dyn FnMut(&Version) -> ControlFlow<()>,
    ) -> FsResult<()> {
        history(self, caller, path, cancel, visit)
    }
}

/// What a search from a node can reach.
fn scope_of(volume: &Volume, entry: &Entry) -> FsResult<Scope> {
    if Volume::is_virtual(entry.node) {
        return Ok(Scope::All);
    }
    Ok(Scope::Below(volume.subvol_of(volume.real(entry.node))?.id.0))
}

/// Searches from a node on. Of a virtual directory, itself and what it lists.
fn from(
    volume: &Volume,
    search: &mut Search<'_>,
    (caller, find): (&Caller, &Find<'_>),
    (entry, shown, depth): (&Entry, &[u8], u32),
) -> FsResult<Outcome> {
    if !Volume::is_virtual(entry.node) {
        return search.from(entry, shown, depth);
    }
    let details = Virtual::new(volume, entry.node)?;
    // The number that is shown has its slot.
    let subvolume = volume.subvolume_of(entry.node).map_or(0, |id| id.0);
    let mut total = Outcome::default();
    if !find.contents_first {
        add(&mut total, search.unrecorded((&entry.attr, subvolume), (shown, depth), &details)?);
    }
    let mut names: Vec<Vec<u8>> = Vec::new();
    if entry.attr.kind == Kind::Directory && find.max_depth.is_none_or(|most| most > depth) {
        let listed = volume.readdir(caller, entry.node, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            WalkControl::Continue
        });
        match listed {
            Ok(()) => {}
            Err(FsError::AccessDenied) => total.unreadable += 1,
            Err(error) => return Err(error),
        }
    }
    for name in names {
        if total.cancelled || search.is_enough(find.limit, &total) {
            break;
        }
        let below = match volume.lookup(caller, entry.node, &name) {
            Ok(below) => below,
            Err(FsError::NotFound | FsError::Stale | FsError::AccessDenied) => continue,
            Err(error) => return Err(error),
        };
        let slash: &[u8] = if shown.ends_with(b"/") { b"" } else { b"/" };
        let path = [shown, slash, &name].concat();
        let found = from(volume, search, (caller, find), (&below, &path, depth + 1));
        volume.forget(below.node, 1);
        match found {
            Ok(outcome) => add(&mut total, outcome),
            // Deleted since it was listed.
            Err(FsError::NotFound | FsError::Stale) => {}
            Err(error) => return Err(error),
        }
    }
    if find.contents_first && !total.cancelled && !search.is_enough(find.limit, &total) {
        add(&mut total, search.unrecorded((&entry.attr, subvolume), (shown, depth), &details)?);
    }
    Ok(total)
}

/// The parts of a virtual node that its attributes do not show.
struct Virtual {
    target: Vec<u8>,
    access: Option<Vec<u8>>,
}

impl Virtual {
    fn new(volume: &Volume, node: NodeId) -> FsResult<Virtual> {
        let root = Caller::root();
        let access = match volume.getxattr(&root, node, ACCESS) {
            Ok(list) => Some(list),
            Err(FsError::NoAttribute | FsError::NotSupported(_)) => None,
            Err(error) => return Err(error),
        };
        let target = volume.readlink_untimed(&root, node).unwrap_or_default();
        Ok(Virtual { target, access })
    }
}

impl Details for Virtual {
    fn target(&self, _: &Row<'_>) -> search::Result<Vec<u8>> {
        Ok(self.target.clone())
    }

    fn xattr(&self, _: &Row<'_>, name: &[u8]) -> search::Result<Option<Vec<u8>>> {
        Ok(self.access.clone().filter(|_| name == ACCESS))
    }
}
