//! The history of a path: what was there in each snapshot of any directory above it, and what is
//! there now.
//!
//! A path is followed by its names: below each existing directory on the way, the rest of the path
//! is looked up in the snapshots of that directory. So a deleted file is found as long as some
//! directory above it still has snapshots; a rename ends the history. Snapshots of a removed
//! directory belong to the path that it had when they were taken, if that is known.

use device::Timestamp;
use inode::{Attr, Caller, FsError, Kind, NodeId};
use vfs::{Entry, FileSystem, Follow, FsResult};
use volume::{SnapshotInfo, SnapshotsOf};

use crate::Volume;

/// The object at a path at some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The snapshot that it was found in, and that snapshot's directory; `None`: the present.
    pub snapshot: Option<(SnapshotInfo, Vec<u8>)>,
    /// What was there; `None`: nothing.
    pub attr: Option<Attr>,
    /// How that differs from the version before.
    pub change: Change,
}

/// How a version differs from the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// There is nothing, as before, or this is the first.
    Absent,
    /// It exists, and did not before, or this is the first snapshot with information.
    Appeared,
    /// It exists, and no snapshot shows what was before.
    Present,
    /// It is unchanged.
    Same,
    /// Its contents changed: size or mtime.
    Contents,
    /// Its attributes changed and its contents did not: ctime.
    Attributes,
    /// Another object is there: another inode, or of another kind.
    Replaced,
    /// It is gone.
    Vanished,
}

impl Change {
    /// How two versions differ. A directory that has the snapshots itself is the root of each.
    fn between(before: Option<&Attr>, after: Option<&Attr>, root: bool) -> Change {
        let (before, after) = match (before, after) {
            (None, None) => return Change::Absent,
            (None, Some(_)) => return Change::Appeared,
            (Some(_), None) => return Change::Vanished,
            (Some(before), Some(after)) => (before, after),
        };
        let other = !root && before.node.ino() != after.node.ino();
        if other || before.kind != after.kind {
            Change::Replaced
        } else if before.size != after.size || before.mtime != after.mtime {
            Change::Contents
        } else if before.ctime != after.ctime {
            Change::Attributes
        } else {
            Change::Same
        }
    }
}

/// A snapshot in which a path can be looked up.
struct Witness {
    snapshot: SnapshotInfo,
    directory: Vec<u8>,
    /// The names from there on.
    rest: Vec<Vec<u8>>,
}

/// The versions of a path that the caller may see, the oldest first, the present last;
/// `NotFound` if it is in none of them. Symbolic links on the way are followed in the present,
/// and not in snapshots: a snapshot with a link there gives no information. The last component
/// is reported itself, a link too.
pub(crate) fn history(fs: &Volume, caller: &Caller, path: &[u8]) -> FsResult<Vec<Version>> {
    let names: Vec<&[u8]> =
        path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
    if names.contains(&&b".."[..]) {
        return Err(FsError::InvalidArgument("a path without `..`"));
    }
    let (mut witnesses, now) = witnesses(fs, caller, &names)?;
    removed_witnesses(fs, caller, &names, &mut witnesses)?;
    witnesses.sort_by_key(|witness| (witness.snapshot.created, witness.snapshot.subvol));
    let mut versions: Vec<Version> = Vec::with_capacity(witnesses.len() + 1);
    for Witness { snapshot, directory, rest } in witnesses {
        let attr = match look_down(fs, caller, snapshot.root, &rest) {
            Ok(attr) => attr,
            // Deleted since it was listed, or a link continues from there.
            Err(FsError::Stale) => continue,
            Err(error) => return Err(error),
        };
        push(&mut versions, Some((snapshot, directory)), attr, names.is_empty());
    }
    if versions.is_empty() && now.is_some() {
        versions.push(Version { snapshot: None, attr: now, change: Change::Present });
    } else {
        push(&mut versions, None, now, names.is_empty());
    }
    // If snapshots are above it, too, a path that was nowhere does not exist.
    if versions.iter().all(|version| version.attr.is_none()) {
        return Err(FsError::NotFound);
    }
    Ok(versions)
}

/// Adds the snapshots of removed directories that were on the way of a path, or at its end.
fn removed_witnesses(
    fs: &Volume,
    caller: &Caller,
    names: &[&[u8]],
    witnesses: &mut Vec<Witness>,
) -> FsResult<()> {
    let removed = match fs.snapshot_list_volume(caller, SnapshotsOf::Removed) {
        // The other snapshots are still reported.
        Err(FsError::Io(_)) => return Ok(()),
        removed => removed?,
    };
    for kept in removed {
        let Some(directory) = kept.path else { continue };
        if let Some(rest) = below(&directory, names) {
            let rest = rest.iter().map(|name| name.to_vec()).collect();
            witnesses.push(Witness { snapshot: kept.snapshot, directory, rest });
        }
    }
    Ok(())
}

/// All snapshots that have information on a path, and what is there now.
fn witnesses(
    fs: &Volume,
    caller: &Caller,
    names: &[&[u8]],
) -> FsResult<(Vec<Witness>, Option<Attr>)> {
    let mut witnesses = Vec::new();
    let mut directory = b"/".to_vec();
    for depth in 0..=names.len() {
        let follow = if depth == names.len() { Follow::No } else { Follow::Yes };
        let entry = match fs.resolve(caller, &directory, follow) {
            Ok(entry) => entry,
            Err(FsError::NotFound | FsError::NotDirectory) => return Ok((witnesses, None)),
            Err(error) => return Err(error),
        };
        let Entry { node, attr } = entry;
        let listed = if attr.kind == Kind::Directory && !Volume::is_virtual(node) {
            fs.snapshot_list(caller, node)
        } else {
            Ok(Vec::new())
        };
        fs.forget(node, 1);
        let rest: Vec<Vec<u8>> = names[depth..].iter().map(|name| name.to_vec()).collect();
        match listed {
            Ok(snapshots) => witnesses.extend(snapshots.into_iter().map(|snapshot| Witness {
                snapshot,
                directory: directory.clone(),
                rest: rest.clone(),
            })),
            // A caller who may search a directory, but not list it, does without its snapshots.
            Err(FsError::AccessDenied) => {}
            Err(error) => return Err(error),
        }
        let Some(name) = names.get(depth) else {
            return Ok((witnesses, Some(attr)));
        };
        if directory.last() != Some(&b'/') {
            directory.push(b'/');
        }
        directory.extend_from_slice(name);
    }
    Ok((witnesses, None))
}

/// What is below the root of a snapshot; `None` also if the caller has no access. `Stale`: it
/// gives no information.
fn look_down(
    fs: &Volume,
    caller: &Caller,
    root: NodeId,
    names: &[Vec<u8>],
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

/// The names of a path below a directory; `None`: it is not below it.
fn below<'n>(directory: &[u8], names: &'n [&'n [u8]]) -> Option<&'n [&'n [u8]]> {
    let above: Vec<&[u8]> =
        directory.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
    names.starts_with(&above).then(|| &names[above.len()..])
}

fn push(
    versions: &mut Vec<Version>,
    snapshot: Option<(SnapshotInfo, Vec<u8>)>,
    attr: Option<Attr>,
    root: bool,
) {
    let before = versions.last().and_then(|version| version.attr.as_ref());
    let root = root || before.is_some_and(|before| before.node == NodeId::ROOT);
    let change = Change::between(before, attr.as_ref(), root);
    versions.push(Version { snapshot, attr, change });
}

impl Version {
    /// When its snapshot was taken; `None` for the present.
    pub fn taken(&self) -> Option<Timestamp> {
        self.snapshot.as_ref().map(|(snapshot, _)| snapshot.created)
    }
}
