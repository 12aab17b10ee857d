//! Where removed names of a directory go: the directory of the trash that mirrors it.
//!
//! The path up from a directory to the one that has a trash is the path down in the trash. Mirrors
//! have owner, mode, access lists and times of their originals, so that a user without access there
//! has none here. If the original has other ones now, the next batch begins. It also begins for
//! another directory of the same path, recognized by its creation time: the contents of two
//! directories are not restored as one. Mirrors are created before the removal, in batches of their
//! own: a crash then leaves an empty directory, which is removed with its hour.

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryHead, Target};
use format::key::{self, Parsed, Part};
use inode::{FsError, SubvolId};
use store::KeyRange;
use vfs::FsResult;
use volume::error::{from_store, inconsistent, malformed};
use volume::subvol::{Subvol, read_record};
use volume::view::{FoundEntry, NameBuf, View};

use super::NAME;
use super::hour::Batch;
use super::mirror::{self, Way};
use super::state::{Destination, PLACES_MAX, Seen, Trash, Version};
use crate::Governed;

/// Deepest directory whose path up is followed, in case records form a loop.
const DEPTH_MAX: usize = 1 << 20;
/// Most directories of one way that are remembered, from its end on up.
const WAY_MAX: usize = PLACES_MAX / 2;
/// How deep subvolumes hang in one another for a trash above them to hold.
const NESTED_MAX: usize = 64;
/// How often a mirror is sought again when others take its names.
pub(super) const ATTEMPTS_MAX: usize = 1000;

/// What is above a directory.
pub(crate) enum Climb {
    /// No trash.
    Off,
    /// The directory of a trash: it is in one.
    Inside,
    /// A directory that has a trash, in the same subvolume.
    Home {
        /// The directory.
        home: u64,
        /// How long it keeps, in seconds.
        keep: u64,
        /// The way down from there: inodes and names.
        path: Vec<(u64, NameBuf)>,
    },
}

/// Refuses to make anything in a trash, and anything in place of one, where any directory has one.
#[inline]
pub fn check_outside(
    fs: &Governed,
    subvol: &Subvol,
    view: View<'_>,
    (dir, name): (u64, &[u8]),
) -> FsResult<()> {
    if !fs.trash.is_on() {
        return Ok(());
    }
    check_name(fs, subvol, view, (dir, name))?;
    refuse_inside(fs, subvol, view, dir)
}

/// Refuses to put anything in place of a trash: what were kept there is no trash any more.
pub fn check_name(
    fs: &Governed,
    subvol: &Subvol,
    view: View<'_>,
    (dir, name): (u64, &[u8]),
) -> FsResult<()> {
    let is_home =
        || Ok(matches!(climb(fs, subvol, view, dir)?, Climb::Home { home, .. } if home == dir));
    if name == NAME && fs.trash.is_on() && is_home()? {
        return Err(FsError::NotPermitted("the name is reserved for the trash"));
    }
    Ok(())
}

#[cold]
fn refuse_inside(fs: &Governed, subvol: &Subvol, view: View<'_>, dir: u64) -> FsResult<()> {
    let (known, seen) = fs.trash.known(fs, (subvol.id.0, dir));
    let inside = match known {
        Some(place) => place == Destination::Inside,
        None => match climb(fs, subvol, view, dir)? {
            Climb::Off => {
                remember(fs, (subvol.id.0, dir), Destination::Off, seen);
                false
            }
            Climb::Inside => {
                remember(fs, (subvol.id.0, dir), Destination::Inside, seen);
                true
            }
            Climb::Home { .. } => false,
        },
    };
    if inside { Err(FsError::NotPermitted("nothing can be created in the trash")) } else { Ok(()) }
}

/// Where what is removed from a directory goes at a time. `version`: what is counted where that
/// takes another batch.
pub(super) fn place_of(
    fs: &Governed,
    subvol: &Subvol,
    view: View<'_>,
    (dir, version): (u64, Version),
    now: i64,
) -> FsResult<Destination> {
    let of = (subvol.id.0, dir);
    for _ in 0..ATTEMPTS_MAX {
        let (known, seen) = fs.trash.known(fs, of);
        match known {
            Some(Destination::Mirror { batch, .. }) if batch.end() <= now => {}
            Some(place) => return Ok(place),
            None => {}
        }
        let place = match climb(fs, subvol, view, dir)? {
            Climb::Off => Destination::Off,
            Climb::Inside => Destination::Inside,
            Climb::Home { home, path, .. } => {
                let batch = current(fs, subvol, view, home, now)?;
                match mirror::in_batch(fs, subvol, view, (home, batch), &path) {
                    Ok(Way::Mirror(mirrors)) => {
                        // All of them: a tree is removed from its leaves up, and each would climb
                        // the whole way again.
                        let way = std::iter::once(home).chain(path.iter().map(|(ino, _)| *ino));
                        let way: Vec<(u64, u64)> = way.zip(mirrors).collect();
                        return Ok(remember_way(fs, subvol, &way, (home, batch), seen));
                    }
                    Ok(Way::Other) if another(fs, subvol, (home, batch), version) => continue,
                    // Another object has the name there: then nothing is kept.
                    Ok(Way::Other | Way::Taken) => return Ok(Destination::Off),
                    // The batch was deleted meanwhile, or a directory of the way was removed.
                    Err(FsError::NotFound | FsError::Stale) if view.directory(dir)?.is_some() => {
                        fs.trash.forget();
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        remember(fs, of, place, seen);
        return Ok(place);
    }
    Err(FsError::Busy("directories of the trash are changing continuously; try again"))
}

fn remember(fs: &Governed, of: (u64, u64), place: Destination, seen: Seen) {
    let mut state = fs.trash.state.write();
    if let Some(places) = Trash::places(&mut state, fs, seen) {
        if places.len() >= PLACES_MAX {
            places.clear();
        }
        places.insert(of, place);
    }
}

/// Remembers the places of a path from a directory that has a trash, as far as there is memory for
/// them, and returns the last. `way`: directories and their mirrors.
fn remember_way(
    fs: &Governed,
    subvol: &Subvol,
    way: &[(u64, u64)],
    (home, batch): (u64, Batch),
    seen: Seen,
) -> Destination {
    let place = |mirror| Destination::Mirror { mirror, home, batch };
    let mut state = fs.trash.state.write();
    if let Some(places) = Trash::places(&mut state, fs, seen) {
        let last = &way[way.len().saturating_sub(WAY_MAX)..];
        if places.len() + last.len() > PLACES_MAX {
            places.clear();
        }
        places.extend(last.iter().map(|(dir, mirror)| ((subvol.id.0, *dir), place(*mirror))));
    }
    let end = way.last().expect("invariant: the directory that has the trash is on the way");
    place(end.1)
}

/// Begins the next batch of a trash, unless another was begun since `seen` was the present one.
pub(super) fn begin_next(fs: &Governed, subvol: &Subvol, home: u64, seen: Batch) {
    let mut state = fs.trash.state.write();
    if let Some(current) = state.current.get_mut(&(subvol.id.0, home))
        && *current <= seen
        && seen.may_follow(*current)
        && !seen.is_last()
    {
        *current = seen.next();
        state.generation += 1;
        state.places.clear();
    }
}

/// As `begin_next`, for something that is counted. `false`: it had enough of them.
pub(super) fn another(
    fs: &Governed,
    subvol: &Subvol,
    (home, seen): (u64, Batch),
    version: Version,
) -> bool {
    let may = !seen.is_last() && fs.trash.counts(version, seen);
    if may {
        begin_next(fs, subvol, home, seen);
    }
    may
}

/// What is above a directory. One that was removed has no trash.
pub(super) fn climb(fs: &Governed, subvol: &Subvol, view: View<'_>, dir: u64) -> FsResult<Climb> {
    for _ in 0..ATTEMPTS_MAX {
        if let Some(climb) = climb_within(fs, subvol, view, dir, 0)? {
            return Ok(climb);
        }
        device::yield_now();
    }
    Err(FsError::Busy("directories above it are being renamed continuously; try again"))
}

/// As `climb`. `None`: a directory moved meanwhile.
fn climb_within(
    fs: &Governed,
    subvol: &Subvol,
    view: View<'_>,
    dir: u64,
    nested: usize,
) -> FsResult<Option<Climb>> {
    let mut path: Vec<(u64, NameBuf)> = Vec::new();
    let mut home = None;
    let mut at = dir;
    let in_trash =
        |path: &[(u64, NameBuf)]| path.last().is_some_and(|(_, name)| name.as_bytes() == NAME);
    // Up to the root, even if a trash was found: that may be in another one.
    loop {
        if let Some(keep) = fs.trash.keep_of(subvol, at) {
            if in_trash(&path) {
                return Ok(Some(Climb::Inside));
            }
            home = home.or(Some((at, keep, path.len())));
        }
        if at == subvol.root {
            match above(fs, subvol, nested)? {
                None => return Ok(None),
                Some(Above::Keeps(_)) if in_trash(&path) => return Ok(Some(Climb::Inside)),
                Some(Above::Keeps(keep)) => home = home.or(Some((at, keep, path.len()))),
                Some(Above::Inside) => return Ok(Some(Climb::Inside)),
                Some(Above::Off) => {}
            }
            break;
        }
        let record = view.directory(at)?.filter(|record| !record.detached);
        // The root of the subvolume that this one is a copy from is in no directory.
        let Some(record) = record.filter(|record| record.parent_cookie != 0) else {
            return Ok(Some(Climb::Off));
        };
        let mut name = NameBuf::empty();
        let entry = view.entry_at(record.parent, record.parent_cookie, &mut name)?;
        if entry.is_none_or(|entry| entry.ino != at) {
            // It moved, or went, since its record was read, or nothing points to it.
            let same = |now: DirectoryRecord| {
                (now.parent, now.parent_cookie) == (record.parent, record.parent_cookie)
            };
            let moved = view.directory(at)?.is_none_or(|now| !same(now));
            return Ok((!moved).then_some(Climb::Off));
        }
        path.push((at, name));
        if path.len() > DEPTH_MAX {
            return Err(inconsistent(view.tree, "directories form a cycle", dir));
        }
        at = record.parent;
    }
    let Some((home, keep, length)) = home else { return Ok(Some(Climb::Off)) };
    path.truncate(length);
    path.reverse();
    Ok(Some(Climb::Home { home, keep, path }))
}

enum Above {
    Off,
    Inside,
    Keeps(u64),
}

/// What is above a subvolume, where it hangs.
fn above(fs: &Governed, subvol: &Subvol, nested: usize) -> FsResult<Option<Above>> {
    if subvol.read_only || nested >= NESTED_MAX {
        return Ok(Some(Above::Off));
    }
    let Some(record) = read_record(&*fs.store, subvol.id)? else { return Ok(Some(Above::Off)) };
    let (above, dir, _) = record.parent;
    if above == 0 {
        return Ok(Some(Above::Off));
    }
    let above = match fs.subvol(SubvolId(above)) {
        Err(FsError::Stale) => return Ok(Some(Above::Off)),
        above => above?,
    };
    let climbed = above
        .read(|tree| climb_within(fs, &above, View::new(&*fs.store, tree), dir, nested + 1))?;
    Ok(climbed.map(|climbed| match climbed {
        Climb::Off => Above::Off,
        Climb::Inside => Above::Inside,
        Climb::Home { keep, .. } => Above::Keeps(keep),
    }))
}

/// Whether all that is in the root of a subvolume is its trash, which goes with it.
pub fn is_all(
    fs: &Governed,
    subvol: &Subvol,
    view: View<'_>,
    root: &DirectoryRecord,
) -> FsResult<bool> {
    if root.entries != 1 || !fs.trash.is_on() {
        return Ok(false);
    }
    let trash = view.find_entry(subvol.root, fs.hash.hash(NAME), NAME)?;
    let has = matches!(climb(fs, subvol, view, subvol.root)?, Climb::Home { .. });
    match trash.filter(|trash| has && trash.target == Target::Directory) {
        Some(trash) => Ok(!is_foreign(view, trash.ino)?),
        None => Ok(false),
    }
}

/// Whether there is anything in a directory that is no batch.
fn is_foreign(view: View<'_>, trash: u64) -> FsResult<bool> {
    let mut foreign = false;
    names_of(view, trash, 0, &mut |name, entry| {
        foreign |= Batch::parse(name).is_none() || entry.target != Target::Directory;
        !foreign
    })?;
    Ok(foreign)
}

/// The present batch of a trash: that of the hour, or what was begun after it.
fn current(fs: &Governed, subvol: &Subvol, view: View<'_>, home: u64, now: i64) -> FsResult<Batch> {
    let of = (subvol.id.0, home);
    let known = fs.trash.state.read().current.get(&of).copied();
    let hour = Batch::of(now);
    let known = known.filter(|known| known.may_follow(hour));
    let newest = if known.is_some() {
        known
    } else {
        let all = batches(fs, view, home)?;
        all.iter().rev().map(|(batch, _)| *batch).find(|batch| batch.may_follow(hour))
    };
    let batch = newest.map_or(hour, |newest| newest.max(hour));
    fs.trash.state.write().current.insert(of, batch);
    Ok(batch)
}

/// The batches of a trash, oldest first, with their inodes.
pub(super) fn batches(fs: &Governed, view: View<'_>, home: u64) -> FsResult<Vec<(Batch, u64)>> {
    some_batches(fs, view, home, (usize::MAX, &|_| true))
}

/// At most so many of the requested batches of a trash; which of them is unspecified.
pub(super) fn some_batches(
    fs: &Governed,
    view: View<'_>,
    home: u64,
    (most, wanted): (usize, &dyn Fn(Batch) -> bool),
) -> FsResult<Vec<(Batch, u64)>> {
    let Some(trash) = view.find_entry(home, fs.hash.hash(NAME), NAME)? else {
        return Ok(Vec::new());
    };
    if trash.target != Target::Directory {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    names_of(view, trash.ino, 0, &mut |name, entry| {
        if let (Some(batch), Target::Directory) = (Batch::parse(name), entry.target)
            && wanted(batch)
        {
            found.push((batch, entry.ino));
        }
        found.len() < most
    })?;
    found.sort_unstable();
    Ok(found)
}

/// Calls `take` with a directory's names behind a cookie, and what they point to, until it returns
/// that it has enough. Returns the cookie of the last one, if there may be more.
pub(super) fn names_of(
    view: View<'_>,
    dir: u64,
    from: u64,
    take: &mut dyn FnMut(&[u8], &FoundEntry) -> bool,
) -> FsResult<Option<u64>> {
    let after = key::entry(dir, from + 1, Part::Attributes);
    let end = key::entry(dir + 1, 0, Part::Attributes);
    let range = KeyRange::between(&after, &end[..key::DIRECTORY_PREFIX_BYTES]);
    let mut cursor = view.store.scan(view.tree, range).map_err(from_store)?;
    while let Some(item) = cursor.next().map_err(from_store)? {
        let malformed = |error| malformed(view.tree, &error);
        let parsed = key::parse(item.key).map_err(malformed)?;
        let Parsed::Entry { cookie, part: Part::Attributes, .. } = parsed else { continue };
        let head = EntryHead::decode(item.value).map_err(malformed)?;
        if head.kind.is_none() {
            continue;
        }
        let (name, chained, ino) = (head.name, head.chained, head.ino);
        let target = head.target().map_err(malformed)?;
        if !take(name, &FoundEntry { cookie, chained, ino, target }) {
            return Ok(Some(cookie));
        }
    }
    Ok(None)
}

/// Sees that a directory may have a trash: there is no `.trash` in it that is anything else.
pub(super) fn adopt(fs: &Governed, subvol: &Subvol, home: u64) -> FsResult<()> {
    let entered = fs.enter(subvol)?;
    let view = View::new(&*fs.store, entered.tree);
    if let Climb::Inside = climb(fs, subvol, view, home)? {
        return Err(FsError::InvalidArgument("the directory is in a trash"));
    }
    let _making = fs.trash.making.lock();
    let trash = mirror::make(fs, subvol, view, (home, NAME), home)?.ok_or(FsError::Exists)?;
    if is_foreign(view, trash)? {
        return Err(FsError::InvalidArgument("its entry '.trash' is not a trash"));
    }
    mirror::take_over(fs, subvol, view, home, trash)
}
