//! Where a search begins: a path, `DIR@SNAPSHOT`, or a path in every snapshot that may hold it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use fs::{Follow, FsResult, SnapshotQuery, SnapshotsOf, Volume};
use inode::{Caller, FsError, NAME_BYTES_MAX, NodeId, SubvolId};
use wire::{Failure, FailureKind, Find, FindFrom, Snapshots};

use super::about::about;

/// Signs of a path that are tried, from its end.
const SIGNS_MAX: usize = 8;

/// Names that are walked in search of what `DIR@SNAPSHOT` in one path means. Each directory above
/// is tried, so their number grows with the square of the path's length.
const WALKED_MAX: usize = 1 << 20;

/// Most names of a path that is looked for in all snapshots: each directory on it is asked.
const NAMES_MAX: usize = 1024;

/// A path to search from.
pub(super) struct SearchRoot {
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
    first: Option<SearchRoot>,
    /// Directories whose snapshots cannot be read.
    failures: std::vec::IntoIter<Failure>,
    snapshots: std::vec::IntoIter<InSnapshot>,
}

/// A snapshot that a path is looked for in. Its path is built when its turn comes: a path may be
/// long, and it may be in any number of snapshots.
struct InSnapshot {
    created: i64,
    subvol: u64,
    /// How many names of the path are those of the directory that has, or had, the snapshot.
    above: usize,
    /// Whether the directory was removed: then it is found by its number.
    is_removed: bool,
}

impl Places<'_> {
    /// The path in a snapshot; `None`: it was deleted since it was listed.
    fn place(&self, snapshot: &InSnapshot) -> FsResult<Option<SearchRoot>> {
        let (fs, directory) = (self.fs, components(self.path));
        let (above, below) = directory.split_at(snapshot.above);
        let subvol = SubvolId(snapshot.subvol);
        let (path, shown) = if snapshot.is_removed {
            let number = fs::name_of_number(subvol);
            let path = in_removed(fs, subvol, below);
            (path, shown_in(fs, self.shown, &directory, &number, below))
        } else {
            let name = match fs.snapshot_info(subvol) {
                Err(error) if is_absence(&error) => return Ok(None),
                info => info?.name,
            };
            let path = inside(fs, &directory, above.len(), &name, b"");
            (path, shown_in(fs, self.shown, below, &name, below))
        };
        Ok(Some(SearchRoot { path, shown, optional: true }))
    }
}

impl Iterator for Places<'_> {
    type Item = Result<SearchRoot, Failure>;

    fn next(&mut self) -> Option<Result<SearchRoot, Failure>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        if let Some(failure) = self.failures.next() {
            return Some(Err(failure));
        }
        loop {
            let next = self.snapshots.next()?;
            match self.place(&next) {
                Ok(None) => {}
                Ok(Some(place)) => return Some(Ok(place)),
                Err(error) => return Some(Err(about(error, self.shown))),
            }
        }
    }
}

/// Whether a directory or a snapshot is not there for the caller. Any other error is a reason for
/// which something was not searched.
fn is_absence(error: &FsError) -> bool {
    matches!(
        error,
        FsError::NotFound
            | FsError::NotDirectory
            | FsError::Stale
            | FsError::AccessDenied
            | FsError::NotPermitted(_)
            | FsError::RootOnly(_)
            | FsError::NameTooLong
            | FsError::Loop
    )
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
    let one = |path: Vec<u8>| Some(SearchRoot { path, shown: shown.to_vec(), optional: false });
    let (failures, snapshots) = (Vec::new().into_iter(), Vec::new().into_iter());
    let mut places = Places { fs, path, shown, first: None, failures, snapshots };
    let follow = follow(fs, caller, path, find);
    match node(fs, caller, path, follow) {
        Ok(_) => places.first = one(path.to_vec()),
        Err(FsError::NotFound | FsError::NotDirectory) => {
            match in_snapshot(fs, caller, path, follow).map_err(|error| about(error, shown))? {
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
        let (snapshots, errors) = of_snapshots(fs, caller, path, cancel);
        if places.first.is_none() && snapshots.is_empty() && errors.is_empty() {
            return Err(about(FsError::NotFound, shown));
        }
        let failures: Vec<_> = errors.into_iter().map(|error| about(error, shown)).collect();
        places.failures = failures.into_iter();
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
            let found = in_snapshot(fs, caller, path, Follow::Yes);
            found.and_then(|found| found.ok_or(error)).map_err(|error| about(error, path))
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
/// above that has one of the name. Beyond [`WALKED_MAX`] none is found. If the
/// ways of removed directories are too long, it fails with [`FsError::Busy`].
pub(super) fn in_snapshot(
    fs: &Volume,
    caller: &Caller,
    path: &[u8],
    follow: Follow,
) -> FsResult<Option<Vec<u8>>> {
    snapshot_that_exists(fs, caller, path, &mut |path| match node(fs, caller, path, follow) {
        Ok(_) => Ok(true),
        Err(error) if is_absence(&error) => Ok(false),
        Err(error) => Err(error),
    })
}

/// The first path of those that `DIR@SNAPSHOT` may mean which `exists`.
fn snapshot_that_exists(
    fs: &Volume,
    caller: &Caller,
    path: &[u8],
    exists: &mut dyn FnMut(&[u8]) -> FsResult<bool>,
) -> FsResult<Option<Vec<u8>>> {
    let signs = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'@');
    let mut left = WALKED_MAX;
    // `None`: too much was walked.
    let mut try_path = |candidate: Vec<u8>, names: usize| {
        let Some(remaining) = left.checked_sub(names + 1) else { return Ok(None) };
        left = remaining;
        exists(&candidate).map(|exists| Some(exists.then_some(candidate)))
    };
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
            match try_path(inside(fs, &directory, above, snapshot, rest), names)? {
                Some(None) => {}
                found => return Ok(found.flatten()),
            }
        }
        // The last one of the name, where a directory of that path was removed more than once.
        let removed = removed_on(fs, caller, &directory, snapshot, WALKED_MAX)?;
        for (number, above) in removed.into_iter().rev() {
            let candidate = [&in_removed(fs, number, &directory[above..])[..], rest].concat();
            match try_path(candidate, names)? {
                Some(None) => {}
                found => return Ok(found.flatten()),
            }
        }
    }
    Ok(None)
}

/// The snapshots with a name, of removed directories that were on a way, or at its end, the oldest
/// first. Each comes with the number of names of its directory.
fn removed_on(
    fs: &Volume,
    caller: &Caller,
    way: &[&[u8]],
    name: &[u8],
    steps_max: usize,
) -> FsResult<Vec<(SubvolId, usize)>> {
    let proceed = AtomicBool::new(false);
    let query = SnapshotQuery {
        name: Some(name),
        on_the_way_to: Some(way),
        steps_max,
        ..SnapshotQuery::all(SnapshotsOf::Removed, &proceed)
    };
    let mut found = Vec::new();
    let listed = fs.snapshot_list_volume(caller, &query, &mut |kept| {
        let above = kept.path.as_deref().map_or(0, |path| components(path).len());
        found.push((kept.snapshot.subvol, above));
        ControlFlow::Continue(())
    });
    match listed {
        Ok(()) => Ok(found),
        // The caller may list none of them.
        Err(error) if is_absence(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
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

/// Every snapshot of a path and of the directories above, from the oldest, and why some cannot be
/// listed. It includes every snapshot of a removed directory that was there, above or below. A
/// directory that the path passes more than once is asked once, so that there are no more than
/// snapshots in the volume.
fn of_snapshots(
    fs: &Volume,
    caller: &Caller,
    path: &[u8],
    cancel: &AtomicBool,
) -> (Vec<InSnapshot>, Vec<FsError>) {
    let directory = components(path);
    let is_cancelled = || cancel.load(Ordering::Relaxed);
    let (mut found, mut errors, mut asked) = (Vec::new(), Vec::new(), BTreeSet::new());
    // A directory that the caller may not list shows nothing of its snapshots.
    let mut note = |listed: FsResult<()>| {
        errors.extend(listed.err().filter(|error| !is_absence(error) && !is_cancelled()));
    };
    for above in (0..=directory.len()).rev() {
        if is_cancelled() {
            break;
        }
        let holder = [b"/", &directory[..above].join(&b'/')[..]].concat();
        let entry = match fs.resolve(caller, &holder, Follow::Yes) {
            Ok(entry) => entry,
            Err(error) => {
                note(Err(error));
                continue;
            }
        };
        if asked.insert(entry.node) {
            note(fs.snapshot_each(caller, entry.node, &mut |snapshot| {
                let (created, subvol) = (snapshot.created.0, snapshot.subvol.0);
                found.push(InSnapshot { created, subvol, above, is_removed: false });
                ControlFlow::Continue(())
            }));
        }
        fs::FileSystem::forget(fs, entry.node, 1);
    }
    if is_cancelled() {
        return (found, errors);
    }
    let query = SnapshotQuery::all(SnapshotsOf::Removed, cancel);
    note(fs.snapshot_list_volume(caller, &query, &mut |kept| {
        let of = kept.path.as_deref().map(components);
        // Below the whole are all, wherever they were; below others those of which that is known.
        let is_above = of.as_ref().is_some_and(|of| directory.starts_with(of));
        let inside = of.as_ref().map_or(directory.is_empty(), |of| of.starts_with(&directory));
        if is_above || inside {
            let above = of.map_or(0, |of| of.len()).min(directory.len());
            let (created, subvol) = (kept.snapshot.created.0, kept.snapshot.subvol.0);
            found.push(InSnapshot { created, subvol, above, is_removed: true });
        }
        ControlFlow::Continue(())
    }));
    found.sort_by_key(|snapshot| (snapshot.created, snapshot.subvol));
    (found, errors)
}

/// How a path in a snapshot is shown: as one that can be used in turn. Other programs can use it,
/// too, except for paths by number. The names below the directory that has the snapshot were
/// `typed`.
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
    use fs::FileSystem;
    use search::query::Expr;

    use super::*;
    use crate::daemon::fresh;

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

    /// Each sign at the end is tried at each directory above it.
    #[test]
    fn a_path_with_many_signs_is_looked_up_a_bounded_number_of_times() {
        let fs = fresh::volume();
        let tried = |path: &str| {
            let (mut looked_up, mut names) = (0, 0);
            let mut exists = |path: &[u8]| {
                looked_up += 1;
                names += components(path).len();
                Ok(false)
            };
            let found = snapshot_that_exists(&fs, &Caller::root(), path.as_bytes(), &mut exists);
            assert_eq!(found.unwrap(), None);
            (looked_up, names)
        };
        // Eight signs of 30: a snapshot of each of the 11 directories from the last one to `/`.
        let path = format!("{}{}", "/d".repeat(10), "@z".repeat(30));
        assert_eq!(tried(&path).0, SIGNS_MAX * 11);
        let path = format!("/{}x@y", "d/../".repeat(6000));
        let (looked_up, names) = tried(&path);
        assert!((50..200).contains(&looked_up), "{looked_up}");
        assert!((WALKED_MAX - 20_000..=WALKED_MAX).contains(&names), "{names}");
    }

    /// A snapshot of a removed directory that too many steps hide is not reported as absent.
    #[test]
    fn a_way_that_is_too_long_is_an_error() {
        let fs = fresh::volume();
        let root = Caller::root();
        let gone = fs.mkdir(&root, NodeId::ROOT, b"gone", 0o755).unwrap().node;
        fs.snapshot_create(&root, gone, b"one").unwrap();
        FileSystem::forget(&fs, gone, 1);
        fs.rmr(&root, NodeId::ROOT, b"gone").unwrap();
        let found = |steps| removed_on(&fs, &root, &[b"gone"], b"one", steps);
        assert_eq!(found(WALKED_MAX).unwrap().len(), 1);
        assert!(matches!(found(0), Err(FsError::Busy(_))));
    }

    /// Each place was built in full for each snapshot of each directory on the way. A directory
    /// counted as often as the path passed it: 10 GB for one request.
    #[test]
    fn a_path_in_all_snapshots_asks_each_directory_once_and_builds_one_path_at_a_time() {
        let fs = fresh::volume();
        let root = Caller::root();
        let node = fs.mkdir(&root, NodeId::ROOT, b"a", 0o755).unwrap().node;
        let below = fs.mkdir(&root, node, b"b", 0o755).unwrap().node;
        for name in [&b"one"[..], b"two", b"three"] {
            fs.snapshot_create(&root, node, name).unwrap();
        }
        let path = [&b"/a/..".repeat(400)[..], b"/a/b"].concat();
        let from = FindFrom { path: path.as_slice().into(), shown: b"/s/a/b"[..].into() };
        let (find, proceed) = (question(), AtomicBool::new(false));
        let places = places(&fs, &root, &from, &find, &proceed).unwrap();
        assert_eq!(places.snapshots.len(), 3);
        let text = |place: Result<SearchRoot, Failure>| String::from_utf8(place.unwrap().shown);
        let shown: Vec<_> = places.map(|place| text(place).unwrap()).collect();
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

    /// Regression: what could not be read was as if there were no snapshots.
    #[test]
    fn snapshots_that_cannot_be_read_are_reported_and_the_rest_is_searched() {
        let store = std::sync::Arc::new(testing::MemStore::new());
        let fs = fresh::volume_on(std::sync::Arc::clone(&store));
        let root = Caller::root();
        let node = fs.mkdir(&root, NodeId::ROOT, b"a", 0o755).unwrap().node;
        let below = fs.mkdir(&root, node, b"b", 0o755).unwrap().node;
        fs.snapshot_create(&root, NodeId::ROOT, b"whole").unwrap();
        fs.snapshot_create(&root, node, b"one").unwrap();
        let (lineage, ino) = {
            let (subvol, ino) = fs.place(node).unwrap();
            (subvol.lineage, ino)
        };
        FileSystem::forget(&fs, below, 1);
        FileSystem::forget(&fs, node, 1);
        let key = format::key::snapshot_name(lineage, ino, b"bad");
        let mut batch = store::Batch::new();
        batch.put(store::TreeId(format::key::VOLUME_TREE), &key, b"bad");
        store::Commit::commit(&*store, &batch).unwrap();
        let from = FindFrom { path: b"/a/b"[..].into(), shown: b"/s/a/b"[..].into() };
        let (find, proceed) = (question(), AtomicBool::new(false));
        let places = places(&fs, &root, &from, &find, &proceed).unwrap();
        let (found, failures): (Vec<_>, Vec<_>) = places.partition(Result::is_ok);
        let shown: Vec<_> = found.into_iter().map(|place| place.unwrap().shown).collect();
        assert_eq!(shown, [&b"/s/a/b"[..], b"/s/.snapshots/whole/a/b"], "{shown:?}");
        let kinds: Vec<_> = failures.into_iter().map(|place| place.err().unwrap().kind).collect();
        assert!(!kinds.is_empty() && kinds.iter().all(|kind| *kind == FailureKind::Damaged));
    }
}
