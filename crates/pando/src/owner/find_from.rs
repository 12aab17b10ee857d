//! Where a search begins: a path, `DIR@SNAPSHOT`, or a path in every snapshot that may hold it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use fs::{Follow, FsResult, KeptSnapshot, SnapshotsOf, Volume};
use inode::{Caller, FsError, NAME_BYTES_MAX, NodeId, SubvolId};
use wire::{Failure, FailureKind, Find, FindFrom, Snapshots};

use super::about::about;

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
    /// Whether its absence is not reported.
    pub(super) optional: bool,
}

/// The places that one argument means, one after the other.
pub(super) struct Places<'a> {
    fs: &'a Volume,
    path: &'a [u8],
    shown: &'a [u8],
    first: Option<Place>,
    snapshots: std::vec::IntoIter<InSnapshot>,
}

/// A snapshot that a path is looked for in. Its path is built when its turn comes: a path may be
/// long, and it may be in any number of snapshots.
struct InSnapshot {
    created: i64,
    subvol: u64,
    /// How many names of the path are those of the directory that has, or had, the snapshot.
    above: usize,
    /// Its name; `None` where the directory was removed, and it is found by its number.
    name: Option<Vec<u8>>,
}

impl Places<'_> {
    /// The path in a snapshot.
    fn place(&self, snapshot: &InSnapshot) -> Place {
        let (fs, directory) = (self.fs, components(self.path));
        let (above, below) = directory.split_at(snapshot.above);
        let (path, shown) = if let Some(name) = &snapshot.name {
            let path = inside(fs, &directory, above.len(), name, b"");
            (path, shown_in(fs, self.shown, below, name, below))
        } else {
            let subvol = SubvolId(snapshot.subvol);
            let number = fs::name_of_number(subvol);
            let path = in_removed(fs, subvol, below);
            (path, shown_in(fs, self.shown, &directory, &number, below))
        };
        Place { path, shown, optional: true }
    }
}

impl Iterator for Places<'_> {
    type Item = Place;

    fn next(&mut self) -> Option<Place> {
        self.first.take().or_else(|| self.snapshots.next().map(|next| self.place(&next)))
    }
}

/// The places that one argument means. Those found when `cancel` is set are all there are.
pub(super) fn places<'a>(
    fs: &'a Volume,
    caller: &Caller,
    from: &'a FindFrom,
    find: &Find,
    cancel: &AtomicBool,
) -> Result<Places<'a>, Failure> {
    let (path, shown) = (&from.path.0[..], &from.shown.0[..]);
    let one = |path: Vec<u8>| Some(Place { path, shown: shown.to_vec(), optional: false });
    let mut places = Places { fs, path, shown, first: None, snapshots: Vec::new().into_iter() };
    let follow = follow(fs, caller, path, find);
    match node(fs, caller, path, follow) {
        Ok(_) => places.first = one(path.to_vec()),
        Err(FsError::NotFound | FsError::NotDirectory) => {
            match in_snapshot(fs, caller, path, follow) {
                Some(path) => {
                    places.first = one(path);
                    return Ok(places);
                }
                None if path.contains(&b'@') => {
                    return Err(Failure::new(FailureKind::NotFound, "no such path or snapshot")
                        .at(shown)
                        .hint("`pando snapshot list DIR` lists its snapshots"));
                }
                // It may be in snapshots still.
                None if find.snapshots == Snapshots::All => {}
                None => return Err(about(FsError::NotFound, shown)),
            }
        }
        Err(error) => return Err(about(error, shown)),
    }
    if find.snapshots == Snapshots::All {
        let names = components(path).len();
        if names > NAMES_MAX {
            let message = format!("a path of {names} names in all snapshots: {NAMES_MAX} at most");
            let failure = Failure::new(FailureKind::Invalid, message).at(shown);
            return Err(failure.hint("search in one snapshot, as DIR@SNAPSHOT"));
        }
        let snapshots = of_snapshots(fs, caller, path, cancel);
        if places.first.is_none() && snapshots.is_empty() {
            return Err(about(FsError::NotFound, shown));
        }
        places.snapshots = snapshots.into_iter();
    }
    Ok(places)
}

/// Whether a symbolic link at the end of a path is followed. As with GNU find's `-H`, of one that
/// points to nothing the search finds the link itself.
pub(super) fn follow(fs: &Volume, caller: &Caller, path: &[u8], find: &Find) -> Follow {
    let nothing = || matches!(node(fs, caller, path, Follow::Yes), Err(FsError::NotFound));
    if find.follow && !nothing() { Follow::Yes } else { Follow::No }
}

/// The path that `DIR@SNAPSHOT` means, or the path itself where there is one.
pub(super) fn locate(fs: &Volume, caller: &Caller, path: &[u8]) -> Result<Vec<u8>, Failure> {
    match node(fs, caller, path, Follow::Yes) {
        Ok(_) => Ok(path.to_vec()),
        Err(error @ (FsError::NotFound | FsError::NotDirectory)) => {
            in_snapshot(fs, caller, path, Follow::Yes).ok_or_else(|| about(error, path))
        }
        Err(error) => Err(about(error, path)),
    }
}

fn node(fs: &Volume, caller: &Caller, path: &[u8], follow: Follow) -> FsResult<NodeId> {
    let entry = fs.resolve(caller, path, follow)?;
    fs::FileSystem::forget(fs, entry.node, 1);
    Ok(entry.node)
}

/// The names on the way of a path.
fn components(path: &[u8]) -> Vec<&[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect()
}

/// The path of a snapshot of the directory of the first so many components, and on from there.
fn inside(
    fs: &Volume,
    components: &[&[u8]],
    above: usize,
    snapshot: &[u8],
    rest: &[u8],
) -> Vec<u8> {
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
    fs: &Volume,
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
    // Requested once: there may be any number.
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
                let candidate = [&in_removed(fs, kept.snapshot.subvol, below)[..], rest].concat();
                if let Some(found) = try_path(candidate, names)? {
                    return Some(found);
                }
            }
        }
    }
    None
}

/// Snapshots of removed directories; those that cannot be listed are as if there were none.
fn removed(fs: &Volume, caller: &Caller) -> Vec<KeptSnapshot> {
    fs.snapshot_list_volume(caller, SnapshotsOf::Removed).unwrap_or_default()
}

/// The path that addresses a snapshot by its number.
pub(super) fn numbered(fs: &Volume, number: SubvolId) -> Vec<u8> {
    [b"/", fs.snapshot_dir(), b"/", &fs::name_of_number(number)].concat()
}

/// The path of what is below the root of such a snapshot.
fn in_removed(fs: &Volume, snapshot: SubvolId, below: &[&[u8]]) -> Vec<u8> {
    let mut path = numbered(fs, snapshot);
    for name in below {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    path
}

/// Every snapshot of a path and of the directories above, and every snapshot of a removed directory
/// that was there, above or below, from the oldest. A directory that the path passes more than once
/// is asked once, so that there are no more than snapshots in the volume.
fn of_snapshots(fs: &Volume, caller: &Caller, path: &[u8], cancel: &AtomicBool) -> Vec<InSnapshot> {
    let directory = components(path);
    let is_cancelled = || cancel.load(Ordering::Relaxed);
    let (mut found, mut asked) = (Vec::new(), BTreeSet::new());
    for above in (0..=directory.len()).rev() {
        if is_cancelled() {
            return found;
        }
        let holder = [b"/", &directory[..above].join(&b'/')[..]].concat();
        let Ok(entry) = fs.resolve(caller, &holder, Follow::Yes) else { continue };
        let listed = if asked.insert(entry.node) {
            // A directory that the caller may not list shows nothing of its snapshots.
            fs.snapshot_list(caller, entry.node).unwrap_or_default()
        } else {
            Vec::new()
        };
        fs::FileSystem::forget(fs, entry.node, 1);
        found.extend(listed.into_iter().map(|snapshot| InSnapshot {
            created: snapshot.created.0,
            subvol: snapshot.subvol.0,
            above,
            name: Some(snapshot.name),
        }));
    }
    if is_cancelled() {
        return found;
    }
    for kept in removed(fs, caller) {
        let of = kept.path.as_deref().map(components);
        // Below the whole are all, wherever they were; below others those of which that is known.
        let is_above = of.as_ref().is_some_and(|of| directory.starts_with(of));
        let inside = of.as_ref().map_or(directory.is_empty(), |of| of.starts_with(&directory));
        if is_above || inside {
            let above = of.map_or(0, |of| of.len()).min(directory.len());
            let (created, subvol) = (kept.snapshot.created.0, kept.snapshot.subvol.0);
            found.push(InSnapshot { created, subvol, above, name: None });
        }
    }
    found.sort_by_key(|snapshot| (snapshot.created, snapshot.subvol));
    found
}

/// How a path in a snapshot is shown: as one that can be used in turn, by other programs too but
/// for those by number, where the names below the directory that has the snapshot were `typed`.
fn shown_in(
    fs: &Volume,
    shown: &[u8],
    typed: &[&[u8]],
    snapshot: &[u8],
    below: &[&[u8]],
) -> Vec<u8> {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fs::{FileSystem, FormatOptions, Fs, OpenOptions};
    use search::query::Expr;
    use testing::{MemStore, sim_env};

    use super::*;

    fn question() -> Find {
        Find {
            from: Vec::new(),
            follow: false,
            expr: Expr::All(Vec::new()),
            min_depth: 0,
            max_depth: None,
            contents_first: false,
            order: None,
            limit: None,
            snapshots: Snapshots::All,
            attributes: false,
            targets: false,
            count: false,
        }
    }

    /// Each place was built in full for each snapshot of each directory on the way, and there were
    /// as many of a directory as the path passed it: 10 GB for one request.
    #[test]
    fn a_path_in_all_snapshots_asks_each_directory_once_and_builds_one_path_at_a_time() {
        let (env, store) = (sim_env(3), Arc::new(MemStore::new()));
        let header = Fs::format_on(&env.env(), &*store, &FormatOptions::default()).unwrap();
        let fs = Fs::open_on(env.env(), store, header, &OpenOptions::default())
            .unwrap()
            .with_virtual_dirs();
        let root = Caller::root();
        let node = fs.mkdir(&root, NodeId::ROOT, b"a", 0o755).unwrap().node;
        let below = fs.mkdir(&root, node, b"b", 0o755).unwrap().node;
        for name in [&b"one"[..], b"two", b"three"] {
            fs.snapshot_create(&root, node, name).unwrap();
        }
        let path = [&b"/a/..".repeat(400)[..], b"/a/b"].concat();
        let from = FindFrom { path: path.as_slice().into(), shown: b"/s/a/b"[..].into() };
        let (find, go_on) = (question(), AtomicBool::new(false));
        let places = places(&fs, &root, &from, &find, &go_on).unwrap();
        assert_eq!(places.snapshots.len(), 3);
        let shown: Vec<_> = places.map(|place| String::from_utf8(place.shown).unwrap()).collect();
        let snapshot = |name| format!("/s/a/.snapshots/{name}/b");
        assert_eq!(shown[0], "/s/a/b");
        assert_eq!(shown[1..], ["one", "two", "three"].map(snapshot));
        // Nobody waits for it.
        let cancel = AtomicBool::new(true);
        let left = super::places(&fs, &root, &from, &find, &cancel).unwrap();
        assert_eq!(left.count(), 1);
        fs.forget(below, 1);
        fs.forget(node, 1);
        assert_eq!(fs.status().unwrap().nodes, 0);
    }
}
