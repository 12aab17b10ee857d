//! What a removal adds to its batch so that the removed object is kept.
//!
//! A name that is not a directory's moves into the mirror of its directory. A directory that is
//! removed is empty, and its former contents are in its own mirror already. The mirror takes over
//! the directory's owner, mode, attributes and charge, and the directory is removed. So holders of
//! the directory see the same as without a trash.
//!
//! The caller decides without locks, locks what [`Keeping::locks`] names besides its own, and adds
//! it to the batch. If the trash changed meanwhile the caller starts over.

use format::directory_record::DirectoryRecord;
use format::entry_record::Target;
use format::key::{self, Part};
use format::quota::Charge;
use inode::{Caller, FsError};

use super::hour::Batch;
use super::mirror;
use super::place::{self, ATTEMPTS_MAX, Climb, Place};
use super::{NAME, Removal, Version};
use crate::locks::{Lock, Mode};
use crate::nodes::Location;
use crate::ops::object::{EntrySlot, Object};
use crate::ops::rename::{Way, move_name};
use crate::quota::domain_of;
use crate::subvol::Subvol;
use crate::txn::Txn;
use crate::view::{Found, Search, Vacancy, View};
use crate::{Fs, FsResult};

/// Where a removed object goes.
#[derive(Clone, Copy)]
pub(crate) struct Keeping<'a> {
    fs: &'a Fs,
    subvol: &'a Subvol,
    /// For a directory: its own mirror. Else: that of the directory that it was in.
    mirror: u64,
    home: u64,
    batch: Batch,
    directory: bool,
}

/// The result of adding to a batch.
#[derive(Clone, Copy)]
pub(crate) enum Kept {
    /// It keeps the removed object, under this cookie in the trash.
    Put(u64),
    /// Nothing: the trash changed since it was read.
    Again,
}

impl<'a> Keeping<'a> {
    /// Where the object of a name goes when it is removed; `None`: it is deleted.
    #[inline]
    pub(crate) fn of(
        fs: &'a Fs,
        subvol: &'a Subvol,
        view: View<'_>,
        (dir, name): (u64, &[u8]),
        (found, removal): (Option<Found>, Removal),
    ) -> FsResult<Option<Keeping<'a>>> {
        match found {
            Some(found) if removal == Removal::Keep && fs.trash.is_on() => {
                Keeping::find(fs, subvol, view, (dir, name), &found)
            }
            _ => Ok(None),
        }
    }

    #[cold]
    fn find(
        fs: &'a Fs,
        subvol: &'a Subvol,
        view: View<'_>,
        (dir, name): (u64, &[u8]),
        found: &Found,
    ) -> FsResult<Option<Keeping<'a>>> {
        let directory = match found.target {
            Target::Directory => true,
            Target::Subvolume(_) => return Ok(None),
            _ => false,
        };
        if is_trash(fs, subvol, view, (dir, name))? {
            return Ok(None);
        }
        let now = fs.env.clock.now().0;
        let hash = fs.hash.hash(name);
        let way = (dir, Version::of_way(subvol.id.0, dir));
        let Place::Mirror { mirror, home, batch } = place::place_of(fs, subvol, view, way, now)?
        else {
            return Ok(None);
        };
        let keeping = Keeping { fs, subvol, mirror, home, batch, directory };
        if !directory {
            let deleted = batch.is_crowded()
                && keeping.vacancy(view, hash, name)?.is_none()
                && fs.trash.had_enough(&version(subvol, view, dir, hash, found)?, batch);
            return Ok((!deleted).then_some(keeping));
        }
        // A trash of its own would have to be made in it, to be removed with it.
        if fs.trash.keep_of(subvol, found.ino).is_some() {
            return Ok(None);
        }
        let own = (found.ino, version(subvol, view, dir, hash, found)?);
        Ok(match place::place_of(fs, subvol, view, own, now)? {
            Place::Mirror { mirror, home, batch } => {
                Some(Keeping { mirror, home, batch, ..keeping })
            }
            Place::Off | Place::Inside => None,
        })
    }

    /// Whether a directory goes into this one.
    pub(crate) fn is_in(&self, ino: u64) -> bool {
        self.directory && self.mirror == ino
    }

    /// What to lock besides what the removal locks; `hash` is that of the name.
    pub(crate) fn locks(&self, hash: u64) -> [(Lock, Mode); 2] {
        let subvol = self.subvol.id.0;
        let mirror = Lock::Object { subvol, ino: self.mirror };
        if self.directory {
            return [(mirror, Mode::Exclusive); 2];
        }
        let name = Lock::Name { subvol, dir: self.mirror, hash };
        [(mirror, Mode::Shared), (name, Mode::Exclusive)]
    }

    /// Adds to a batch that a name which is not a directory's moves into the trash. The caller
    /// erases or replaces the entry.
    pub(crate) fn put_file(
        &self,
        txn: &mut Txn<'_>,
        view: View<'_>,
        (dir, found): (u64, &Found),
        (name, hash): (&[u8], u64),
    ) -> FsResult<Kept> {
        if self.directory || view.directory(self.mirror)?.is_none_or(|mirror| mirror.detached) {
            self.fs.trash.forget();
            return Ok(Kept::Again);
        }
        let Some(vacancy) = self.vacancy(view, hash, name)? else {
            let version = version(self.subvol, view, dir, hash, found)?;
            place::another(self.fs, self.subvol, (self.home, self.batch), version);
            return Ok(Kept::Again);
        };
        let object = Object::load(view, dir, found)?;
        let (cookie, chained) = (vacancy.cookie, vacancy.chained);
        object.put(txn, view, (dir, found), &EntrySlot { dir: self.mirror, name, cookie, chained });
        txn.count_entries(view.tree, self.mirror, 1, 0);
        Ok(Kept::Put(cookie))
    }

    /// Where a name goes in the mirror. `None`: not there. A name of the same hash would have to be
    /// locked with its inode; that is as rare as a name that was removed before, and goes the same
    /// way.
    fn vacancy(&self, view: View<'_>, hash: u64, name: &[u8]) -> FsResult<Option<Vacancy>> {
        Ok(match view.find(self.mirror, hash, name)? {
            Search::Vacant(vacancy) if vacancy.predecessor.is_none() => Some(vacancy),
            _ => None,
        })
    }

    /// Adds to a batch that the mirror of an empty directory replaces it; the directory's records
    /// are removed.
    pub(crate) fn put_directory(
        &self,
        txn: &mut Txn<'_>,
        view: View<'_>,
        (ino, victim): (u64, &DirectoryRecord),
    ) -> FsResult<Kept> {
        let mirror = view.directory(self.mirror)?.filter(|mirror| !mirror.detached);
        let Some(mirror) = mirror.filter(|_| self.directory) else {
            self.fs.trash.forget();
            return Ok(Kept::Again);
        };
        let of = |has: bool, ino| {
            has.then(|| view.xattrs(&key::directory(ino, Part::Xattrs))).transpose()
        };
        let (own, xattrs) = (of(mirror.has_xattrs, self.mirror)?, of(victim.has_xattrs, ino)?);
        if !mirror::are_alike((&mirror, own.as_ref()), (victim, xattrs.as_ref())) {
            // It belongs to another user, or others have access to it: it was changed since it was
            // found.
            self.fs.trash.forget();
            return Ok(Kept::Again);
        }
        let id = self.subvol.id.0;
        let charge = self.take_charge(txn, &mirror, (ino, victim));
        let record = DirectoryRecord {
            // Names that were removed changed the directory's time, and not the mirror's.
            mtime: mirror.mtime,
            ctime: txn.now,
            entries: mirror.entries,
            subdirectories: mirror.subdirectories,
            parent: mirror.parent,
            parent_cookie: mirror.parent_cookie,
            charge,
            ..*victim
        };
        let tree = view.tree;
        let (from, to) =
            (key::directory(ino, Part::Xattrs), key::directory(self.mirror, Part::Xattrs));
        if let Some(xattrs) = xattrs {
            txn.batch().put(tree, &to, &xattrs.encode());
            txn.batch().delete(tree, &from);
        } else if mirror.has_xattrs {
            txn.batch().delete(tree, &to);
        }
        txn.put_directory(tree, self.mirror, &record);
        txn.batch().delete(tree, &key::directory(ino, Part::Attributes));
        txn.count(id, -1, 0);
        Ok(Kept::Put(mirror.parent_cookie))
    }

    /// What a removed directory is charged its mirror is charged from now on; they have one quota
    /// and the same owners. Returns the mark.
    fn take_charge(
        &self,
        txn: &mut Txn<'_>,
        mirror: &DirectoryRecord,
        (ino, victim): (u64, &DirectoryRecord),
    ) -> Option<Charge> {
        let subvolume = self.subvol.id.0;
        // One that was made before anything was counted is charged itself.
        if txn.is_own(subvolume, self.mirror, mirror.charge) {
            txn.credit_directory(subvolume, self.mirror, mirror);
        }
        let domain = domain_of(victim);
        if !txn.is_own(subvolume, ino, victim.charge) {
            return txn.uncharged(domain);
        }
        if txn.is_own(subvolume, self.mirror, victim.charge) {
            return victim.charge;
        }
        Some(Charge { domain, subvolume })
    }

    /// After the commit, still under the locks: front ends that hold the inode find it there.
    pub(crate) fn settle(&self, found: &Found, cookie: u64) {
        if let Target::Embedded(_) = found.target {
            let location = Location::Entry { dir: self.mirror, cookie };
            self.fs.nodes.relocate(self.subvol.node(found.ino), location);
        }
    }

    /// After the commit, without locks: notifies front ends that hold the mirror.
    pub(crate) fn tell(&self, name: &[u8]) {
        if self.directory {
            let mirror = self.subvol.node(self.mirror);
            if self.fs.nodes.is_held(mirror) {
                self.fs.invalidate_node(mirror);
            }
        } else {
            mirror::changed(self.fs, self.subvol, self.mirror, name);
        }
    }
}

/// What is counted when a name takes another batch. Read without locks: an object that was removed
/// meanwhile counts for no user.
fn version(
    subvol: &Subvol,
    view: View<'_>,
    dir: u64,
    hash: u64,
    found: &Found,
) -> FsResult<Version> {
    let uid = match &found.target {
        Target::Embedded(inode) => Some(inode.uid),
        Target::Linked(_) => view.linked(found.ino)?.map(|record| record.inode.uid),
        _ => view.directory(found.ino)?.map(|record| record.uid),
    };
    Ok(Version::of_name(subvol.id.0, dir, hash, uid.unwrap_or(0)))
}

/// Whether a name is that of a trash, which is not kept in itself.
fn is_trash(fs: &Fs, subvol: &Subvol, view: View<'_>, (dir, name): (u64, &[u8])) -> FsResult<bool> {
    let is_home = |climb| matches!(climb, Climb::Home { home, .. } if home == dir);
    Ok(name == NAME && is_home(place::climb(fs, subvol, view, dir)?))
}

/// Moves a directory with everything below it into the trash. The caller is inside the gate.
/// Returns whether it did: the caller removes what has no trash, and what is in one.
pub(crate) fn keep_tree(
    fs: &Fs,
    (subvol, view): (&Subvol, View<'_>),
    (dir, name): (u64, &[u8]),
    seen: &Found,
) -> FsResult<bool> {
    let root = Caller::root();
    if is_trash(fs, subvol, view, (dir, name))? {
        return Ok(false);
    }
    for _ in 0..ATTEMPTS_MAX {
        let now = fs.env.clock.now().0;
        let of = (dir, Version::of_way(subvol.id.0, dir));
        let Place::Mirror { mirror, home, batch } = place::place_of(fs, subvol, view, of, now)?
        else {
            return Ok(false);
        };
        let way = Way::Away(seen.ino);
        match move_name(fs, &root, (subvol, view), (dir, name), (mirror, name), way) {
            Ok(true) => {
                mirror::changed(fs, subvol, mirror, name);
                return Ok(true);
            }
            Ok(false) => return Ok(false),
            Err(FsError::Exists) => {
                let version = version(subvol, view, dir, fs.hash.hash(name), seen)?;
                if !place::another(fs, subvol, (home, batch), version) {
                    return Ok(false);
                }
            }
            Err(FsError::NotFound) => {
                view.find_entry(dir, fs.hash.hash(name), name)?.ok_or(FsError::NotFound)?;
                fs.trash.forget();
            }
            Err(error) => return Err(error),
        }
    }
    Err(FsError::Busy("directories of the trash are changing continuously; try again"))
}
