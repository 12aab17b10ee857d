//! What a removal adds to its plan so that the removed object is kept.
//!
//! A name that is not a directory's moves into the mirror of its directory. A directory that is
//! removed is empty, and its former contents are in its own mirror already. The mirror takes over
//! the directory's owner, mode, attributes and charge, and the directory is removed. So holders of
//! the directory see the same as without a trash.
//!
//! [`keep`] decides without locks, and adds what must be locked to the plan. If the trash changed
//! when the locks are held the operation starts over.

use std::any::Any;

use format::directory_record::DirectoryRecord;
use format::entry_record::Target;
use format::key::{self, Part};
use format::quota::Charge;
use inode::Caller;
use ops::execute::{Context, execute_within, moved};
use ops::object::{EntrySlot, Object};
use ops::plan::{Effect, Plan};
use ops::policy::Removal;
use ops::posix::moving::{End, Moved, Moving};
use vfs::{FsResult, RenameMode};
use volume::locks::Mode;
use volume::subvol::Subvol;
use volume::view::{FoundEntry, Search, Vacancy, View};

use super::NAME;
use super::hour::Batch;
use super::mirror;
use super::place::{self, Climb};
use super::state::{Destination, Version};
use crate::Governed;
use crate::charging::Charging;
use crate::policies::Purpose;
use crate::quota::domain_of;

/// Where a removed object goes.
#[derive(Clone, Copy)]
struct Keeping {
    /// For a directory: its own mirror. Else: that of the directory that it was in.
    mirror: u64,
    home: u64,
    batch: Batch,
    directory: bool,
}

/// Finds where the object of a name goes when it is removed, and has the plan put it there. If the
/// plan gets nothing, it is deleted.
#[cold]
pub fn keep(
    fs: &Governed,
    at: &Context<'_>,
    plan: &mut Plan,
    removal: &Removal<'_>,
) -> FsResult<()> {
    let Removal { dir, name, hash, found, successor } = *removal;
    let (subvol, view) = (at.subvol, at.view);
    if let Target::Subvolume(_) = found.target {
        return Ok(());
    }
    if is_trash(fs, subvol, view, (dir, name))? {
        return Ok(());
    }
    if found.is_directory() && view.directory(found.ino)?.is_some_and(|record| record.entries != 0)
    {
        // It is not removed as it is, so no mirror is made for it.
        plan.redirect(Box::new(NotEmpty));
        return Ok(());
    }
    let Some(keeping) = Keeping::find(fs, at, removal)? else { return Ok(()) };
    // A directory is restored from the trash into its old place: the empty one there is removed.
    if keeping.directory && keeping.mirror == successor {
        return Ok(());
    }
    if keeping.directory {
        plan.lock(at.object(keeping.mirror), Mode::Exclusive);
    } else {
        at.lock_name(plan, keeping.mirror, hash);
    }
    plan.redirect(Box::new(keeping));
    Ok(())
}

/// A directory that was not empty when its place in the trash would have been looked up.
struct NotEmpty;

/// Plans that what is not a directory goes to its place in the trash; `false`: the place is another
/// one by now.
pub fn take_file(
    fs: &Governed,
    at: &Context<'_>,
    plan: &mut Plan,
    (removal, to): (&Removal<'_>, &dyn Any),
) -> FsResult<bool> {
    match to.downcast_ref::<Keeping>() {
        Some(keeping) => keeping.take_file(fs, at, plan, removal),
        None => Ok(false),
    }
}

/// As `take_file`, for an empty directory.
pub fn take_directory(
    fs: &Governed,
    at: &Context<'_>,
    plan: &mut Plan,
    (removed, to): ((u64, &DirectoryRecord), &dyn Any),
) -> FsResult<bool> {
    match to.downcast_ref::<Keeping>() {
        Some(keeping) => keeping.take_directory(fs, at, plan, removed),
        None => Ok(false),
    }
}

impl Keeping {
    fn find(fs: &Governed, at: &Context<'_>, removal: &Removal<'_>) -> FsResult<Option<Keeping>> {
        let Removal { dir, name, hash, found, .. } = *removal;
        let (subvol, view) = (at.subvol, at.view);
        let directory = found.target == Target::Directory;
        let now = fs.env.clock.now().0;
        let way = (dir, Version::of_way(subvol.id.0, dir));
        let Destination::Mirror { mirror, home, batch } =
            place::place_of(fs, subvol, view, way, now)?
        else {
            return Ok(None);
        };
        let keeping = Keeping { mirror, home, batch, directory };
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
            Destination::Mirror { mirror, home, batch } => {
                Some(Keeping { mirror, home, batch, ..keeping })
            }
            Destination::Off | Destination::Inside => None,
        })
    }

    /// Where a name goes in the mirror. `None`: not there. A name of the same hash would have to be
    /// locked with its inode. That is as rare as a name that was removed before, and goes the same
    /// way.
    fn vacancy(&self, view: View<'_>, hash: u64, name: &[u8]) -> FsResult<Option<Vacancy>> {
        Ok(match view.find(self.mirror, hash, name)? {
            Search::Vacant(vacancy) if vacancy.predecessor.is_none() => Some(vacancy),
            _ => None,
        })
    }

    /// What a removed directory is charged its mirror is charged from now on; they have one quota
    /// and the same owners. Returns the mark.
    fn take_charge(
        &self,
        charging: &mut Charging<'_>,
        subvolume: u64,
        mirror: &DirectoryRecord,
        (ino, victim): (u64, &DirectoryRecord),
    ) -> Option<Charge> {
        // One that was made before anything was counted is charged itself.
        if charging.is_own(subvolume, self.mirror, mirror.charge) {
            charging.credit_directory(subvolume, self.mirror, mirror);
        }
        let domain = domain_of(victim);
        if !charging.is_own(subvolume, ino, victim.charge) {
            return charging.uncharged(domain);
        }
        if charging.is_own(subvolume, self.mirror, victim.charge) {
            return victim.charge;
        }
        Some(Charge { domain, subvolume })
    }
}

impl Keeping {
    fn take_file(
        &self,
        fs: &Governed,
        at: &Context<'_>,
        plan: &mut Plan,
        removal: &Removal<'_>,
    ) -> FsResult<bool> {
        let Removal { dir, name, hash, found, .. } = *removal;
        let view = at.view;
        if self.directory || view.directory(self.mirror)?.is_none_or(|mirror| mirror.detached) {
            fs.trash.forget();
            return Ok(false);
        }
        let Some(vacancy) = self.vacancy(view, hash, name)? else {
            let version = version(at.subvol, view, dir, hash, found)?;
            place::another(fs, at.subvol, (self.home, self.batch), version);
            return Ok(false);
        };
        let object = Object::load(view, dir, found)?;
        let (cookie, chained) = (vacancy.cookie, vacancy.chained);
        let slot = EntrySlot { dir: self.mirror, name, cookie, chained };
        object.put(plan, view, (dir, found), &slot);
        plan.count_entries(view.tree, self.mirror, 1, 0);
        // Front ends that hold the inode find it there.
        if let Target::Embedded(_) = found.target {
            moved(at, plan, found.ino, (self.mirror, cookie));
        }
        plan.effect(Effect::HeldNameChanged(at.subvol.node(self.mirror), name.into()));
        Ok(true)
    }

    /// The mirror of an empty directory replaces it.
    fn take_directory(
        &self,
        fs: &Governed,
        at: &Context<'_>,
        plan: &mut Plan,
        (ino, victim): (u64, &DirectoryRecord),
    ) -> FsResult<bool> {
        let view = at.view;
        let mirror = view.directory(self.mirror)?.filter(|mirror| !mirror.detached);
        let Some(mirror) = mirror.filter(|_| self.directory) else {
            fs.trash.forget();
            return Ok(false);
        };
        let of = |has: bool, ino| {
            has.then(|| view.xattrs(&key::directory(ino, Part::Xattrs))).transpose()
        };
        let (own, xattrs) = (of(mirror.has_xattrs, self.mirror)?, of(victim.has_xattrs, ino)?);
        if !mirror::are_alike((&mirror, own.as_ref()), (victim, xattrs.as_ref())) {
            // It belongs to another user, or others have access to it: it was changed since it was
            // found.
            fs.trash.forget();
            return Ok(false);
        }
        let charge = {
            let mut charging = Charging::of(fs, plan);
            self.take_charge(&mut charging, at.id(), &mirror, (ino, victim))
        };
        let record = DirectoryRecord {
            // Names that were removed changed the directory's time, and not the mirror's.
            mtime: mirror.mtime,
            ctime: plan.now,
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
            plan.batch().put(tree, &to, &xattrs.encode());
            plan.batch().delete(tree, &from);
        } else if mirror.has_xattrs {
            plan.batch().delete(tree, &to);
        }
        plan.put_directory(tree, self.mirror, &record);
        plan.batch().delete(tree, &key::directory(ino, Part::Attributes));
        plan.count(at.id(), -1, 0);
        plan.effect(Effect::HeldChanged(at.subvol.node(self.mirror)));
        Ok(true)
    }
}

/// Moves a name into the trash or out of it, where it does not exist yet. The caller is inside the
/// gate. Returns whether it moved: a subvolume does not.
pub(super) fn move_name(
    fs: &Governed,
    caller: &Caller,
    (subvol, view): (&Subvol, View<'_>),
    [from, to]: [(u64, &[u8]); 2],
    purpose: Purpose,
) -> FsResult<bool> {
    let policies = fs.policies_for(purpose);
    let at = Context::new(fs, &policies, subvol, view.tree);
    let ends = (End::of(&fs.hash, from.0, from.1), End::of(&fs.hash, to.0, to.1));
    let mut moving = Moving::new(caller, ends, RenameMode::NoReplace);
    Ok(execute_within(&at, &mut moving)? == Moved::Done)
}

/// What is counted when a name takes another batch. Read without locks: an object that was removed
/// meanwhile counts for no user.
pub(super) fn version(
    subvol: &Subvol,
    view: View<'_>,
    dir: u64,
    hash: u64,
    found: &FoundEntry,
) -> FsResult<Version> {
    let uid = match &found.target {
        Target::Embedded(inode) => Some(inode.uid),
        Target::Linked(_) => view.linked(found.ino)?.map(|record| record.inode.uid),
        _ => view.directory(found.ino)?.map(|record| record.uid),
    };
    Ok(Version::of_name(subvol.id.0, dir, hash, uid.unwrap_or(0)))
}

/// Whether a name is that of a trash, which is not kept in itself.
pub(super) fn is_trash(
    fs: &Governed,
    subvol: &Subvol,
    view: View<'_>,
    (dir, name): (u64, &[u8]),
) -> FsResult<bool> {
    let is_home = |climb| matches!(climb, Climb::Home { home, .. } if home == dir);
    Ok(name == NAME && is_home(place::climb(fs, subvol, view, dir)?))
}
