//! Where a search begins: a path, `DIR@SNAPSHOT`, or a path in every snapshot that may hold it.

use fs::{Follow, Fs, FsResult, KeptSnapshot, SnapshotsOf};
use inode::{Caller, FsError, NAME_BYTES_MAX, NodeId};
use wire::{Failure, FailureKind, Find, FindFrom, Snapshots};

use super::calls::about;
use super::snapshots;

/// Signs of a path that are tried, from its end.
const SIGNS_MAX: usize = 8;

/// Names that are walked in search of what `DIR@SNAPSHOT` in one path means: each directory above
/// is tried, so that their number grows with the square of the path's length.
const WALKED_MAX: usize = 1 << 20;

/// Most names of a path that is looked for in all snapshots: each directory on it is asked.
const NAMES_MAX: usize = 1024;

/// A path to search from.
pub(super) struct Place {
    /// The path inside the volume.
    pub(super) path: Vec<u8>,
    /// How it is shown.
    pub(super) shown: Vec<u8>,
    /// Whether nothing is to be said when it is not there.
    pub(super) optional: bool,
}

/// The places that one argument means.
pub(super) fn places(
    fs: &Fs,
    caller: &Caller,
    from: &FindFrom,
    find: &Find,
) -> Result<Vec<Place>, Failure> {
    let shown = from.shown.0.clone();
    let mut places = Vec::new();
    let path = from.path.0.clone();
    let follow = follow(fs, caller, &path, find);
    match node(fs, caller, &path, follow) {
        Ok(_) => places.push(Place { path: path.clone(), shown, optional: false }),
        Err(FsError::NotFound | FsError::NotDirectory) => {
            match in_snapshot(fs, caller, &path, follow) {
                Some(path) => return Ok(vec![Place { path, shown, optional: false }]),
                None if path.contains(&b'@') => {
                    return Err(Failure::new(FailureKind::NotFound, "no such path or snapshot")
                        .at(&shown)
                        .hint("`pando snapshot list DIR` shows what there is"));
                }
                // It may be in snapshots still.
                None if find.snapshots == Snapshots::All => {}
                None => return Err(about(FsError::NotFound, &shown)),
            }
        }
        Err(error) => return Err(about(error, &shown)),
    }
    if find.snapshots == Snapshots::All {
        let names = components(&path).len();
        if names > NAMES_MAX {
            let message = format!("a path of {names} names in all snapshots: {NAMES_MAX} at most");
            return Err(Failure::new(FailureKind::Invalid, message).at(&from.shown.0));
        }
        let live = !places.is_empty();
        of_snapshots(fs, caller, &path, &from.shown.0, &mut places);
        if !live && places.is_empty() {
            return Err(about(FsError::NotFound, &from.shown.0));
        }
    }
    Ok(places)
}

/// Whether a symbolic link at the end of a path is followed. As with GNU find's `-H`, of one that
/// leads to nothing the search finds the link itself.
pub(super) fn follow(fs: &Fs, caller: &Caller, path: &[u8], find: &Find) -> Follow {
    let nothing = || matches!(node(fs, caller, path, Follow::Yes), Err(FsError::NotFound));
    if find.follow && !nothing() { Follow::Yes } else { Follow::No }
}

/// The path that `DIR@SNAPSHOT` means, or the path itself where there is one.
pub(super) fn locate(fs: &Fs, caller: &Caller, path: &[u8]) -> Result<Vec<u8>, Failure> {
    match node(fs, caller, path, Follow::Yes) {
        Ok(_) => Ok(path.to_vec()),
        Err(error @ (FsError::NotFound | FsError::NotDirectory)) => {
            in_snapshot(fs, caller, path, Follow::Yes).ok_or_else(|| about(error, path))
        }
        Err(error) => Err(about(error, path)),
    }
}

fn node(fs: &Fs, caller: &Caller, path: &[u8], follow: Follow) -> FsResult<NodeId> {
    let entry = fs.resolve(caller, path, follow)?;
    fs::FileSystem::forget(fs, entry.node, 1);
    Ok(entry.node)
}

/// The names on the way of a path.
fn components(path: &[u8]) -> Vec<&[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect()
}

/// The path of a snapshot of the directory of the first so many components, and on from there.
fn inside(fs: &Fs, components: &[&[u8]], above: usize, snapshot: &[u8], rest: &[u8]) -> Vec<u8> {
    let mut path = Vec::new();
    let (before, after) = components.split_at(above);
    for name in
        before.iter().copied().chain([fs.snapshot_dir(), snapshot]).chain(after.iter().copied())
    {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    path.extend_from_slice(rest);
    path
}

/// What `DIR@SNAPSHOT` within a path means: the snapshot of that directory, or of the nearest one
/// above that has one of the name. Beyond [`WALKED_MAX`] none is found.
pub(super) fn in_snapshot(
    fs: &Fs,
    caller: &Caller,
    path: &[u8],
    follow: Follow,
) -> Option<Vec<u8>> {
    let signs = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'@');
    let mut left = WALKED_MAX;
    let mut try_path = |candidate: Vec<u8>, names: usize| {
        left = left.checked_sub(names + 1)?;
        Some(node(fs, caller, &candidate, follow).is_ok().then_some(candidate))
    };
    // Asked for once: there may be any number.
    let mut all_removed: Option<Vec<KeptSnapshot>> = None;
    for (at, _) in signs.take(SIGNS_MAX) {
        let behind = &path[at + 1..];
        let end = behind.iter().position(|&byte| byte == b'/').unwrap_or(behind.len());
        let (snapshot, rest) = behind.split_at(end);
        if matches!(snapshot, b"" | b"." | b"..") || snapshot.len() > NAME_BYTES_MAX {
            continue;
        }
        let directory = components(&path[..at]);
        let names = directory.len() + components(rest).len();
        for above in (0..=directory.len()).rev() {
            if let Some(found) = try_path(inside(fs, &directory, above, snapshot, rest), names)? {
                return Some(found);
            }
        }
        // The last one of the name, where a directory of that path was removed more than once.
        let removed = all_removed.get_or_insert_with(|| removed(fs, caller));
        for kept in removed.iter().rev().filter(|kept| kept.snapshot.name == snapshot) {
            let Some(of) = kept.path.as_deref().map(components) else { continue };
            if let Some(below) = directory.strip_prefix(&of[..]) {
                let candidate = [&in_removed(fs, kept, below)[..], rest].concat();
                if let Some(found) = try_path(candidate, names)? {
                    return Some(found);
                }
            }
        }
    }
    None
}

/// Snapshots of removed directories; those that cannot be listed are as if there were none.
fn removed(fs: &Fs, caller: &Caller) -> Vec<KeptSnapshot> {
    fs.snapshot_list_volume(caller, SnapshotsOf::Removed).unwrap_or_default()
}

/// The path of what lies below the root of such a snapshot.
fn in_removed(fs: &Fs, kept: &KeptSnapshot, below: &[&[u8]]) -> Vec<u8> {
    let mut path = snapshots::numbered(fs, kept.snapshot.subvol);
    for name in below {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    path
}

/// A path in every snapshot of it and of the directories above, and every snapshot of a removed
/// directory that was there, above or below, from the oldest.
fn of_snapshots(fs: &Fs, caller: &Caller, path: &[u8], shown: &[u8], places: &mut Vec<Place>) {
    let directory = components(path);
    let mut found = Vec::new();
    for above in (0..=directory.len()).rev() {
        let mut holder = Vec::new();
        for name in &directory[..above] {
            holder.push(b'/');
            holder.extend_from_slice(name);
        }
        if holder.is_empty() {
            holder.push(b'/');
        }
        let Ok(entry) = fs.resolve(caller, &holder, Follow::Yes) else { continue };
        // A directory that the caller may not list tells nothing of its snapshots.
        let snapshots = fs.snapshot_list(caller, entry.node).unwrap_or_default();
        fs::FileSystem::forget(fs, entry.node, 1);
        for snapshot in snapshots {
            let path = inside(fs, &directory, above, &snapshot.name, b"");
            let below = &directory[above..];
            let shown = shown_in(fs, shown, below, &snapshot.name, below);
            found.push((snapshot.created, snapshot.subvol, Place { path, shown, optional: true }));
        }
    }
    for kept in removed(fs, caller) {
        let of = kept.path.as_deref().map(components);
        // Below the whole are all, wherever they were; below others those of which that is known.
        let below = match &of {
            Some(of) => directory.strip_prefix(&of[..]),
            None => None,
        };
        let inside = of.as_ref().map_or(directory.is_empty(), |of| of.starts_with(&directory));
        let Some(below) = below.or(inside.then_some(&[])) else { continue };
        let path = in_removed(fs, &kept, below);
        let number = fs::name_of_number(kept.snapshot.subvol);
        let shown = shown_in(fs, shown, &directory, &number, below);
        let snapshot = kept.snapshot;
        found.push((snapshot.created, snapshot.subvol, Place { path, shown, optional: true }));
    }
    found.sort_by_key(|(created, subvol, _)| (created.0, subvol.0));
    places.extend(found.into_iter().map(|(_, _, place)| place));
}

/// How a path in a snapshot is shown: as one that can be used in turn, by other programs too but
/// for those by number, where the names below the directory that has the snapshot were `typed`.
fn shown_in(fs: &Fs, shown: &[u8], typed: &[&[u8]], snapshot: &[u8], below: &[&[u8]]) -> Vec<u8> {
    let trimmed = &shown[..shown.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1)];
    let (typed, below) = (typed.join(&b'/'), below.join(&b'/'));
    let before = if typed.is_empty() {
        Some(trimmed)
    } else {
        trimmed
            .strip_suffix(&typed[..])
            .filter(|before| before.is_empty() || before.ends_with(b"/") || before.ends_with(b":"))
    };
    let Some(before) = before else { return [trimmed, b"@", snapshot].concat() };
    let slash: &[u8] = if before.is_empty() || before.ends_with(b"/") { b"" } else { b"/" };
    let slash = if trimmed.is_empty() { b"/" } else { slash };
    let mut path = [before, slash, fs.snapshot_dir(), b"/", snapshot].concat();
    if !below.is_empty() {
        path.push(b'/');
        path.extend_from_slice(&below);
    }
    path
}
