//! The history of a path: what was there in each snapshot of any directory above it, and what is
//! there now.
//!
//! A path is followed by its names. Below each existing directory on the way, the rest of the path
//! is looked up in the snapshots of that directory. So a deleted file is found as long as some
//! directory above it still has snapshots; a rename ends the history. Snapshots of a removed
//! directory belong to the path that it had when they were taken, if that is known.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use device::Timestamp;
use inode::{Attr, Caller, FsError, Kind, NodeId, SubvolId, VersionChange};
use vfs::{Entry, FileSystem, Follow, FsResult};
use volume::{SnapshotInfo, SnapshotQuery, SnapshotsOf};

use crate::Volume;

/// The object at a path at some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The snapshot that it was found in, and that snapshot's directory; `None`: the present.
    pub snapshot: Option<(SnapshotInfo, Vec<u8>)>,
    /// What was there; `None`: nothing.
    pub attr: Option<Attr>,
    /// How that differs from the version before.
    pub change: VersionChange,
}

/// How two versions differ. A directory that has the snapshots itself is the root of each.
fn change_between(before: Option<&Attr>, after: Option<&Attr>, root: bool) -> VersionChange {
    let (before, after) = match (before, after) {
        (None, None) => return VersionChange::Absent,
        (None, Some(_)) => return VersionChange::Appeared,
        (Some(_), None) => return VersionChange::Vanished,
        (Some(before), Some(after)) => (before, after),
    };
    let other = !root && before.node.ino() != after.node.ino();
    if other || before.kind != after.kind {
        VersionChange::Replaced
    } else if before.size != after.size || before.mtime != after.mtime {
        VersionChange::Contents
    } else if before.ctime != after.ctime {
        VersionChange::Attributes
    } else {
        VersionChange::Same
    }
}

/// Most names of a path: each directory on it is asked, and its snapshots are searched.
const NAMES_MAX: usize = 1024;

/// A snapshot in which a path can be looked up. There may be a million, so that each is small.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Witness {
    created: i64,
    subvol: u64,
    /// How many names of the path are those of its directory.
    above: usize,
}

/// A path whose history is reported.
struct Subject<'a> {
    fs: &'a Volume,
    caller: &'a Caller,
    names: &'a [&'a [u8]],
    cancel: &'a AtomicBool,
}

/// Calls a function with the versions of a path that the caller may see, until it breaks. The
/// oldest version is first and the present one last. Returns `NotFound` if the path is in none of
/// them. Symbolic links on the way are followed in the present, and not in snapshots: a snapshot
/// with a link there gives no information. The last component is reported itself, a link too.
pub(crate) fn history(
    fs: &Volume,
    caller: &Caller,
    path: &[u8],
    cancel: &AtomicBool,
    visit: &mut dyn FnMut(&Version) -> ControlFlow<()>,
) -> FsResult<()> {
    let names = path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    let names: Vec<&[u8]> = names.take(NAMES_MAX + 1).collect();
    if names.len() > NAMES_MAX {
        return Err(FsError::InvalidArgument(
            "the path has more than 1,024 names: name a directory further up",
        ));
    }
    if names.contains(&&b".."[..]) {
        return Err(FsError::InvalidArgument("a path without `..`"));
    }
    let subject = Subject { fs, caller, names: &names, cancel };
    let (mut witnesses, now) = subject.witnesses()?;
    subject.removed_witnesses(&mut witnesses)?;
    witnesses.sort_unstable();
    subject.report(witnesses, now, visit)
}

impl Subject<'_> {
    /// Reports the versions. Those in which there is nothing yet wait until there is something: if
    /// snapshots are above it, a path that was nowhere does not exist.
    fn report(
        &self,
        witnesses: Vec<Witness>,
        now: Option<Attr>,
        visit: &mut dyn FnMut(&Version) -> ControlFlow<()>,
    ) -> FsResult<()> {
        let (mut absent, mut before) = (Vec::new(), None);
        let mut reported = false;
        for witness in witnesses {
            self.proceeds()?;
            let Some((snapshot, attr)) = self.look(&witness)? else { continue };
            if attr.is_none() && !reported {
                absent.push(witness);
                continue;
            }
            if self.report_absent(&mut absent, visit)?.is_break() {
                return Ok(());
            }
            let change = self.change(before.as_ref(), attr.as_ref());
            let directory = self.directory(witness.above);
            let version = Version { snapshot: Some((snapshot, directory)), attr, change };
            reported = true;
            if visit(&version).is_break() {
                return Ok(());
            }
            before = version.attr;
        }
        if !reported && now.is_none() {
            return Err(FsError::NotFound);
        }
        let alone = !reported && absent.is_empty();
        if self.report_absent(&mut absent, visit)?.is_break() {
            return Ok(());
        }
        let change =
            if alone { VersionChange::Present } else { self.change(before.as_ref(), now.as_ref()) };
        match visit(&Version { snapshot: None, attr: now, change }) {
            ControlFlow::Continue(()) | ControlFlow::Break(()) => Ok(()),
        }
    }

    /// Reports the snapshots in which there was nothing yet.
    fn report_absent(
        &self,
        absent: &mut Vec<Witness>,
        visit: &mut dyn FnMut(&Version) -> ControlFlow<()>,
    ) -> FsResult<ControlFlow<()>> {
        for witness in std::mem::take(absent) {
            let snapshot = match self.fs.snapshot_info(SubvolId(witness.subvol)) {
                Err(FsError::NotFound | FsError::Stale) => continue,
                snapshot => (snapshot?, self.directory(witness.above)),
            };
            let version =
                Version { snapshot: Some(snapshot), attr: None, change: VersionChange::Absent };
            if visit(&version).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// What a snapshot shows; `None`: it was deleted since it was listed, or gives no information.
    fn look(&self, witness: &Witness) -> FsResult<Option<(SnapshotInfo, Option<Attr>)>> {
        let found = self.fs.snapshot_info(SubvolId(witness.subvol)).and_then(|snapshot| {
            let rest = &self.names[witness.above..];
            look_down(self.fs, self.caller, snapshot.root, rest).map(|attr| (snapshot, attr))
        });
        match found {
            // A link continues from there.
            Err(FsError::NotFound | FsError::Stale) => Ok(None),
            found => found.map(Some),
        }
    }

    /// How a version differs from the one before.
    fn change(&self, before: Option<&Attr>, after: Option<&Attr>) -> VersionChange {
        let root = before.is_some_and(|before| before.node == NodeId::ROOT);
        change_between(before, after, root || self.names.is_empty())
    }

    /// The path of the directory of the first names.
    fn directory(&self, above: usize) -> Vec<u8> {
        [b"/", &self.names[..above].join(&b'/')[..]].concat()
    }

    fn proceeds(&self) -> FsResult<()> {
        if self.cancel.load(Ordering::Relaxed) { Err(FsError::Interrupted) } else { Ok(()) }
    }

    /// Adds the snapshots of removed directories that were on the way of a path, or at its end.
    fn removed_witnesses(&self, witnesses: &mut Vec<Witness>) -> FsResult<()> {
        let query = SnapshotQuery {
            on_the_way_to: Some(self.names),
            ..SnapshotQuery::all(SnapshotsOf::Removed, self.cancel)
        };
        let listed = self.fs.snapshot_list_volume(self.caller, &query, &mut |kept| {
            let path = kept.path.as_deref().unwrap_or_default();
            let above = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).count();
            witnesses.push(Witness::of(&kept.snapshot, above));
            ControlFlow::Continue(())
        });
        match listed {
            // The other snapshots are still reported.
            Err(FsError::Io(_)) => Ok(()),
            listed => listed,
        }
    }

    /// All snapshots that have information on the path, and what is there now. A directory that is
    /// on it more than once, by symbolic links, is asked once.
    fn witnesses(&self) -> FsResult<(Vec<Witness>, Option<Attr>)> {
        let (mut witnesses, mut now) = (Vec::new(), None);
        let mut asked = BTreeSet::new();
        for above in (0..=self.names.len()).rev() {
            self.proceeds()?;
            let whole = above == self.names.len();
            let follow = if whole { Follow::No } else { Follow::Yes };
            let found = self.fs.resolve(self.caller, &self.directory(above), follow);
            let Entry { node, attr } = match found {
                Err(FsError::NotFound | FsError::NotDirectory) => continue,
                found => found?,
            };
            let ask = attr.kind == Kind::Directory && !Volume::is_virtual(node);
            let listed = if ask && asked.insert(node) {
                self.fs.snapshot_each(self.caller, node, &mut |snapshot| {
                    witnesses.push(Witness::of(&snapshot, above));
                    ControlFlow::Continue(())
                })
            } else {
                Ok(())
            };
            self.fs.forget(node, 1);
            match listed {
                // A caller who may search a directory, but not list it, does without its snapshots.
                Ok(()) | Err(FsError::AccessDenied) => {}
                Err(error) => return Err(error),
            }
            if whole {
                now = Some(attr);
            }
        }
        Ok((witnesses, now))
    }
}

impl Witness {
    fn of(snapshot: &SnapshotInfo, above: usize) -> Witness {
        Witness { created: snapshot.created.0, subvol: snapshot.subvol.0, above }
    }
}

/// What is below the root of a snapshot; `None` also if the caller has no access. `Stale`: it
/// gives no information.
fn look_down(
    fs: &Volume,
    caller: &Caller,
    root: NodeId,
    names: &[&[u8]],
) -> FsResult<Option<Attr>> {
    let mut at = fs.getattr(caller, root)?;
    let mut held: Option<NodeId> = None;
    let mut found = Ok(());
    for name in names {
        let looked = match at.kind {
            Kind::Directory => fs.lookup(caller, at.node, name),
            Kind::Symlink => Err(FsError::Stale),
            _ => Err(FsError::NotFound),
        };
        if let Some(node) = held.take() {
            fs.forget(node, 1);
        }
        match looked {
            Ok(entry) => {
                held = Some(entry.node);
                at = entry.attr;
            }
            Err(error) => {
                found = Err(error);
                break;
            }
        }
    }
    if let Some(node) = held {
        fs.forget(node, 1);
    }
    match found {
        Ok(()) => Ok(Some(at)),
        Err(FsError::NotFound | FsError::NotDirectory | FsError::AccessDenied) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Version {
    /// When its snapshot was taken; `None` for the present.
    pub fn taken(&self) -> Option<Timestamp> {
        self.snapshot.as_ref().map(|(snapshot, _)| snapshot.created)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There may be a million of them.
    #[test]
    fn a_snapshot_that_is_searched_takes_few_bytes() {
        assert!(size_of::<Witness>() <= 24);
    }
}
