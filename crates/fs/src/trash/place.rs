//! Where what is removed from a directory goes: the directory of the trash that mirrors it.
//!
//! The way up from a directory to the one that has a trash is the way down in the trash. Mirrors
//! have owner, mode, access lists and times of what they mirror, so that who might not look there
//! may not look here: where the original has others now, the next batch begins. They are made
//! before the removal, in batches of their own: what a crash leaves of that is an empty directory,
//! which goes with its hour.
//!
//! A mirror that was made for a directory with a quota carries the quota's mark, and is not charged
//! to it; to its user and group it is, whatever their limits: a removal must not fail for a quota.

use format::acl::{ACCESS, DEFAULT};
use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryHead, EntryRecord, Target};
use format::key::{self, Parsed, Part};
use format::quota::Charge;
use format::xattr_record::XattrRecord;
use inode::{Caller, FsError, SubvolId};
use store::KeyRange;

use super::hour::Batch;
use super::{NAME, PLACES_MAX};
use crate::error::{from_store, inconsistent, malformed};
use crate::locks::Lock;
use crate::ops::mknod::Room;
use crate::subvol::{Subvol, read_record};
use crate::txn::Txn;
use crate::view::{Found, NameBuf, View};
use crate::{Fs, FsResult};

/// Deepest directory whose way up is looked at, against records that go in a circle.
const DEPTH_MAX: usize = 1 << 20;
/// How deep subvolumes hang in one another for a trash above them to hold.
const NESTED_MAX: usize = 64;
/// How often a mirror is sought anew when others take its names.
pub(super) const ATTEMPTS_MAX: usize = 1000;

/// Where what is removed from a directory goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere: it has no trash.
    Off,
    /// Nowhere: it is in a trash.
    Inside,
    /// Into its mirror.
    Mirror {
        /// The directory in the trash.
        mirror: u64,
        /// The directory that has the trash.
        home: u64,
        /// The batch that the mirror is in.
        batch: Batch,
    },
}

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
pub(crate) fn check_outside(
    fs: &Fs,
    subvol: &Subvol,
    view: View<'_>,
    (dir, name): (u64, &[u8]),
) -> FsResult<()> {
    if !fs.trash.is_on() {
        return Ok(());
    }
    if name == NAME
        && matches!(climb(fs, subvol, view, dir)?, Climb::Home { home, .. } if home == dir)
    {
        return Err(FsError::NotPermitted("the name is that of the trash"));
    }
    refuse_inside(fs, subvol, view, dir)
}

#[cold]
fn refuse_inside(fs: &Fs, subvol: &Subvol, view: View<'_>, dir: u64) -> FsResult<()> {
    let state = fs.trash.state.read();
    let (known, generation) = (state.places.get(&(subvol.id.0, dir)).copied(), state.generation);
    drop(state);
    let inside = match known {
        Some(place) => place == Place::Inside,
        None => match climb(fs, subvol, view, dir)? {
            Climb::Off => {
                remember(fs, (subvol.id.0, dir), Place::Off, generation);
                false
            }
            Climb::Inside => {
                remember(fs, (subvol.id.0, dir), Place::Inside, generation);
                true
            }
            Climb::Home { .. } => false,
        },
    };
    if inside { Err(FsError::NotPermitted("nothing is made in the trash")) } else { Ok(()) }
}

/// Where what is removed from a directory goes at a time.
pub(crate) fn place_of(
    fs: &Fs,
    subvol: &Subvol,
    view: View<'_>,
    dir: u64,
    now: i64,
) -> FsResult<Place> {
    let of = (subvol.id.0, dir);
    for _ in 0..ATTEMPTS_MAX {
        let state = fs.trash.state.read();
        let (known, generation) = (state.places.get(&of).copied(), state.generation);
        drop(state);
        match known {
            Some(Place::Mirror { batch, .. }) if batch.end() <= now => {}
            Some(place) => return Ok(place),
            None => {}
        }
        let place = match climb(fs, subvol, view, dir)? {
            Climb::Off => Place::Off,
            Climb::Inside => Place::Inside,
            Climb::Home { home, path, .. } => {
                let _making = fs.trash.making.lock();
                let batch = current(fs, subvol, view, home, now)?;
                let Some(trash) = make(fs, subvol, view, (home, NAME), home)? else {
                    // Somebody has something else of the name there: then nothing is kept.
                    return Ok(Place::Off);
                };
                match mirror(fs, subvol, view, trash, (home, batch), &path)? {
                    Some(mirror) => Place::Mirror { mirror, home, batch },
                    None if batch.is_last() => return Ok(Place::Off),
                    None => {
                        begin_next(fs, subvol, home, batch);
                        continue;
                    }
                }
            }
        };
        remember(fs, of, place, generation);
        return Ok(place);
    }
    Err(FsError::Busy("directories of the trash come and go"))
}

fn remember(fs: &Fs, of: (u64, u64), place: Place, generation: u64) {
    let mut state = fs.trash.state.write();
    if state.generation == generation {
        if state.places.len() >= PLACES_MAX {
            state.places.clear();
        }
        state.places.insert(of, place);
    }
}

/// Has the next batch of a trash begin, where nobody began it since `seen` was the present one.
pub(super) fn begin_next(fs: &Fs, subvol: &Subvol, home: u64, seen: Batch) {
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

/// What is above a directory. One that was removed has no trash.
pub(crate) fn climb(fs: &Fs, subvol: &Subvol, view: View<'_>, dir: u64) -> FsResult<Climb> {
    for _ in 0..ATTEMPTS_MAX {
        if let Some(climb) = climb_within(fs, subvol, view, dir, 0)? {
            return Ok(climb);
        }
        std::thread::yield_now();
    }
    Err(FsError::Busy("directories above move all the time"))
}

/// As `climb`. `None`: a directory moved meanwhile.
fn climb_within(
    fs: &Fs,
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
    // Up to the root, also where a trash was found: that may lie in another one.
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
            // It moved, or went, since its record was read, or nothing leads to it.
            let same = |now: DirectoryRecord| {
                (now.parent, now.parent_cookie) == (record.parent, record.parent_cookie)
            };
            let moved = view.directory(at)?.is_none_or(|now| !same(now));
            return Ok((!moved).then_some(Climb::Off));
        }
        path.push((at, name));
        if path.len() > DEPTH_MAX {
            return Err(inconsistent(view.tree, "directories in a circle", dir));
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
fn above(fs: &Fs, subvol: &Subvol, nested: usize) -> FsResult<Option<Above>> {
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
pub(crate) fn is_all(
    fs: &Fs,
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
fn current(fs: &Fs, subvol: &Subvol, view: View<'_>, home: u64, now: i64) -> FsResult<Batch> {
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
pub(super) fn batches(fs: &Fs, view: View<'_>, home: u64) -> FsResult<Vec<(Batch, u64)>> {
    let Some(trash) = view.find_entry(home, fs.hash.hash(NAME), NAME)? else {
        return Ok(Vec::new());
    };
    if trash.target != Target::Directory {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    names_of(view, trash.ino, 0, &mut |name, entry| {
        if let (Some(batch), Target::Directory) = (Batch::parse(name), entry.target) {
            found.push((batch, entry.ino));
        }
        true
    })?;
    found.sort_unstable();
    Ok(found)
}

/// Calls with a directory's names behind a cookie, and what they lead to, until `take` says that it
/// has enough. Tells the cookie of the last one, if there may be more.
pub(super) fn names_of(
    view: View<'_>,
    dir: u64,
    from: u64,
    take: &mut dyn FnMut(&[u8], &Found) -> bool,
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
        if !take(name, &Found { cookie, chained, ino, target }) {
            return Ok(Some(cookie));
        }
    }
    Ok(None)
}

/// Sees that a directory may have a trash: there is no `.trash` in it that is anything else.
pub(super) fn adopt(fs: &Fs, subvol: &Subvol, home: u64) -> FsResult<()> {
    let entered = fs.enter(subvol)?;
    let view = View::new(&*fs.store, entered.tree);
    if let Climb::Inside = climb(fs, subvol, view, home)? {
        return Err(FsError::InvalidArgument("the directory is in a trash"));
    }
    let _making = fs.trash.making.lock();
    let trash = make(fs, subvol, view, (home, NAME), home)?.ok_or(FsError::Exists)?;
    if is_foreign(view, trash)? {
        return Err(FsError::InvalidArgument("'.trash' in it is something else"));
    }
    Ok(())
}

/// The mirror of a way in a batch, made where it is not there. `None`: something else has one of
/// the names, or a directory that was made when its original had another owner or other rights.
fn mirror(
    fs: &Fs,
    subvol: &Subvol,
    view: View<'_>,
    trash: u64,
    (home, batch): (u64, Batch),
    path: &[(u64, NameBuf)],
) -> FsResult<Option<u64>> {
    let name = batch.name();
    let first = (home, name.as_bytes());
    let mut at = trash;
    for (ino, name) in
        std::iter::once(first).chain(path.iter().map(|(ino, name)| (*ino, name.as_bytes())))
    {
        match make(fs, subvol, view, (at, name), ino)? {
            Some(made) if guards_alike(fs, subvol, view, ino, made)? => at = made,
            _ => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// Whether two directories have the same owners, mode and lists.
fn guards_alike(fs: &Fs, subvol: &Subvol, view: View<'_>, a: u64, b: u64) -> FsResult<bool> {
    let ((a, of_a), (b, of_b)) = (model_of(fs, subvol, view, a)?, model_of(fs, subvol, view, b)?);
    Ok(are_alike((&a, of_a.as_ref()), (&b, of_b.as_ref())))
}

/// As `guards_alike`, of records.
pub(super) fn are_alike(
    (a, of_a): (&DirectoryRecord, Option<&XattrRecord>),
    (b, of_b): (&DirectoryRecord, Option<&XattrRecord>),
) -> bool {
    let list = |of: Option<&XattrRecord>, name| of.and_then(|of| of.get(name).map(<[u8]>::to_vec));
    let lists = |name| list(of_a, name) == list(of_b, name);
    (a.uid, a.gid, a.mode) == (b.uid, b.gid, b.mode) && lists(ACCESS) && lists(DEFAULT)
}

/// The directory of a name in the trash, made after a model where there is none. `None`: the name
/// is something else's.
fn make(
    fs: &Fs,
    subvol: &Subvol,
    view: View<'_>,
    at: (u64, &[u8]),
    model: u64,
) -> FsResult<Option<u64>> {
    make_as(fs, (subvol, view), at, model, None)
}

/// As `make`. `caller`: outside of the trash, with the rights of a caller, and charged.
pub(super) fn make_as(
    fs: &Fs,
    (subvol, view): (&Subvol, View<'_>),
    (parent, name): (u64, &[u8]),
    model: u64,
    caller: Option<&Caller>,
) -> FsResult<Option<u64>> {
    let hash = fs.hash.hash(name);
    let root = Caller::root();
    let room = Room { fs, subvol, view, caller: caller.unwrap_or(&root), dir: parent, hash, name };
    let ((record, xattrs), locks, above, vacancy) = loop {
        if let Some(found) = view.find_entry(parent, hash, name)? {
            return Ok((found.target == Target::Directory).then_some(found.ino));
        }
        let model = model_of(fs, subvol, view, model)?;
        match room.find() {
            Ok((locks, above, vacancy)) => break (model, locks, above, vacancy),
            Err(FsError::Exists) => {}
            Err(error) => return Err(error),
        }
    };
    let ino = fs.numbers.next_ino(&*fs.store)?;
    let mut txn = Txn::new(fs);
    let owned = (record.uid, record.gid);
    txn.on_behalf(caller.unwrap_or(&root));
    let charge = if caller.is_some() {
        txn.charge_new(subvol.id.0, &above, (owned, 0))?
    } else {
        if fs.quotas.owners.is_on() {
            txn.charge_new_owned(subvol.id.0, owned, 0)?;
        }
        record.charge.map(|charge| Charge { subvolume: 0, ..charge })
    };
    let made = DirectoryRecord {
        entries: 0,
        subdirectories: 0,
        parent,
        parent_cookie: vacancy.cookie,
        detached: false,
        elsewhere: None,
        charge,
        ..record
    };
    let entry = EntryRecord { chained: false, ino, name, target: Target::Directory };
    txn.insert_entry(view, parent, &vacancy, &entry)?;
    txn.put_directory(view.tree, ino, &made);
    if let Some(xattrs) = &xattrs {
        txn.batch().put(view.tree, &key::directory(ino, Part::Xattrs), &xattrs.encode());
    }
    match caller {
        Some(_) => txn.touch_directory(view.tree, parent, 1, 1),
        None => txn.count_entries(view.tree, parent, 1, 1),
    }
    txn.count(subvol.id.0, 1, 0);
    txn.commit()?;
    drop(locks);
    changed(fs, subvol, parent, name);
    Ok(Some(ino))
}

/// A directory's record, and its extended attributes, as of one moment.
fn model_of(
    fs: &Fs,
    subvol: &Subvol,
    view: View<'_>,
    ino: u64,
) -> FsResult<(DirectoryRecord, Option<XattrRecord>)> {
    let _object = fs.locks.shared(Lock::Object { subvol: subvol.id.0, ino });
    let record = view.directory(ino)?.ok_or(FsError::NotFound)?;
    let xattrs = if record.has_xattrs {
        Some(view.xattrs(&key::directory(ino, Part::Xattrs))?)
    } else {
        None
    };
    Ok((record, xattrs))
}

/// Tells front ends that a name of the trash means something else now, if they can know.
pub(super) fn changed(fs: &Fs, subvol: &Subvol, parent: u64, name: &[u8]) {
    let node = subvol.node(parent);
    if node == fs.root() || fs.nodes.is_held(node) {
        fs.invalidate_entry(node, name);
        fs.invalidate_node(node);
    }
}
