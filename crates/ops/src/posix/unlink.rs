//! `unlink`: removes a name that is not a directory's. The inode is removed with its last name, or
//! when its last holder releases it.

use format::directory_record::DirectoryRecord;
use format::entry_record::Target;
use format::inode_record::{InodeRecord, LinkedRecord};
use format::key::{self, Part};
use inode::{Caller, FsError, NodeId};
use vfs::FsResult;
use volume::inherited::Ways;
use volume::load::InodePlace;
use volume::locks::Mode;
use volume::permit;
use volume::view::FoundEntry;

use super::mknod::parent_directory;
use crate::Ops;
use crate::execute::{Context, Operation, Outcome, execute};
use crate::orphan;
use crate::plan::{Attached, Plan};
use crate::policy::{Policy, Removal};

/// Removes a name.
pub fn unlink(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    parent: NodeId,
    name: &[u8],
) -> FsResult<()> {
    let name = match fs.old_name(name) {
        Err(FsError::NotEmpty | FsError::InvalidArgument(_)) if name.starts_with(b".") => {
            return Err(FsError::IsDirectory);
        }
        name => name?.as_bytes(),
    };
    let (subvol, dir) = fs.place(parent)?;
    let hash = fs.hash.hash(name);
    execute(fs, policy, &subvol, &mut Unlink { name: OldName { caller, dir, hash, name } })
}

/// The removal of a name that is not a directory's.
pub struct Unlink<'a> {
    /// It.
    pub name: OldName<'a>,
}

impl Operation for Unlink<'_> {
    type Reads = Named;
    type Answer = ();

    fn guess(&mut self, at: &Context<'_>) -> FsResult<Named> {
        self.name.guess(at)
    }

    fn aim(&mut self, at: &Context<'_>, guess: &Named, plan: &mut Plan) -> FsResult<()> {
        self.name.lock(at, guess, plan);
        match &guess.found {
            Some(found) if !found.is_directory() => {
                at.policy.removes(at, plan, &self.name.removal(found))
            }
            _ => Ok(()),
        }
    }

    fn look(&mut self, at: &Context<'_>) -> FsResult<Named> {
        self.name.look(at)
    }

    fn agree(guess: &Named, found: &Named) -> bool {
        guess.agrees_with(found)
    }

    fn plan(&mut self, at: &Context<'_>, read: Named, plan: &mut Plan) -> FsResult<Outcome<()>> {
        let OldName { caller, dir, .. } = self.name;
        let Named { directory: Some(directory), found: Some(found) } = &read else {
            return Ok(Outcome::Again);
        };
        let view = at.view;
        if found.is_directory() {
            permit::directory(view, dir, directory, caller, inode::permissions::WRITE)?;
            return Err(FsError::IsDirectory);
        }
        let (inode, nlink) = view.inode_of(found)?;
        permit::removal(view, dir, directory, caller, inode.uid)?;
        if !lose_name(at, plan, &self.name.removal(found), (&inode, nlink), true)? {
            return Ok(Outcome::Again);
        }
        plan.erase_entry(view, dir, found, false)?;
        plan.touch_directory(view.tree, dir, -1, 0);
        Ok(Outcome::Done(()))
    }
}

/// A name to be removed.
#[derive(Clone, Copy)]
pub struct OldName<'a> {
    /// Who removes it.
    pub caller: &'a Caller,
    /// The directory.
    pub dir: u64,
    /// The hash of the name.
    pub hash: u64,
    /// The name.
    pub name: &'a [u8],
}

/// What a name points to, as it was read.
pub struct Named {
    /// The directory that the name is in; `None`: not read, the rest is a guess.
    pub(super) directory: Option<DirectoryRecord>,
    /// What it points to.
    pub(super) found: Option<FoundEntry>,
}

impl Named {
    /// Whether the same inode is locked for both.
    pub(super) fn agrees_with(&self, found: &Named) -> bool {
        self.ino() == found.ino()
    }

    fn ino(&self) -> u64 {
        self.found.map_or(0, |found| found.ino)
    }
}

impl<'a> OldName<'a> {
    /// Searches without locks.
    #[inline]
    pub(super) fn guess(&self, at: &Context<'_>) -> FsResult<Named> {
        let found = at.view.find_entry(self.dir, self.hash, self.name)?;
        Ok(Named { directory: None, found })
    }

    /// Locks directory, name, and what it points to.
    #[inline]
    pub(super) fn lock(&self, at: &Context<'_>, guess: &Named, plan: &mut Plan) {
        at.lock_name(plan, self.dir, self.hash);
        plan.lock(at.object(guess.ino()), Mode::Exclusive);
    }

    /// Searches under the locks.
    #[inline]
    pub(super) fn look(&self, at: &Context<'_>) -> FsResult<Named> {
        let OldName { caller, dir, hash, name } = *self;
        let directory = parent_directory(at.fs, at.subvol, at.view, caller, dir)?;
        let found = at.view.find_entry(dir, hash, name)?.ok_or(FsError::NotFound)?;
        Ok(Named { directory: Some(directory), found: Some(found) })
    }

    /// Its removal, as a policy sees it.
    pub(super) fn removal<'r>(&self, found: &'r FoundEntry) -> Removal<'r>
    where
        'a: 'r,
    {
        let OldName { dir, hash, name, .. } = *self;
        Removal { dir, name, hash, found, successor: 0 }
    }
}

/// Plans what becomes of an inode that loses a name; the caller erases or replaces the entry.
/// `frees`: nothing is added in its place. `false`: start again.
#[inline]
pub(super) fn lose_name(
    at: &Context<'_>,
    plan: &mut Plan,
    removal: &Removal<'_>,
    (inode, nlink): (&InodeRecord, u32),
    frees: bool,
) -> FsResult<bool> {
    if let Some(elsewhere) = plan.take_redirect() {
        return at.policy.takes_file(at, plan, removal, &*elsewhere);
    }
    if frees {
        plan.removes();
    }
    let place = (removal.dir, removal.found);
    drop_name(at, plan, &mut Ways::default(), place, inode, nlink).map(|()| true)
}

/// Plans that an inode loses a name (the caller erases or replaces the entry itself). The object's
/// lock is held exclusively; `ways` is the commit's.
#[inline]
pub fn drop_name(
    at: &Context<'_>,
    plan: &mut Plan,
    ways: &mut Ways,
    (dir, found): (u64, &FoundEntry),
    inode: &InodeRecord,
    nlink: u32,
) -> FsResult<()> {
    let (view, subvol, ino) = (at.view, at.id(), found.ino);
    let linked = matches!(found.target, Target::Linked(_));
    if linked {
        plan.batch().delete(view.tree, &key::back_reference(ino, dir, found.cookie));
    }
    let others = if linked { nlink.saturating_sub(1) } else { 0 };
    let hidden = if others > 0 {
        ways.hidden_names(at.fs, view, subvol, (ino, others), (dir, found.cookie))?
    } else {
        None
    };
    for key in hidden.iter().flatten() {
        plan.batch().delete(view.tree, key);
    }
    if others > 0 && hidden.is_none() {
        let mut inode = InodeRecord { ctime: plan.now, ..*inode };
        at.policy.drops_name(plan, (subvol, ino), &mut inode, others)?;
        plan.put_linked(view.tree, ino, &LinkedRecord { nlink: others, inode });
        return Ok(());
    }
    let place = match found.target {
        Target::Linked(_) => InodePlace::Linked,
        _ => InodePlace::Entry { dir, cookie: found.cookie, chained: found.chained },
    };
    // What is stored beside the inode is kept for its holders.
    let attached = Attached {
        bulk: if inode.has_bulk { Some(view.bulk(&place.key(ino, Part::Bulk))?) } else { None },
        xattrs: if inode.has_xattrs {
            Some(view.xattrs(&place.key(ino, Part::Xattrs))?)
        } else {
            None
        },
    };
    if linked {
        for part in [Part::Attributes, Part::Bulk, Part::Xattrs] {
            plan.batch().delete(view.tree, &key::linked(ino, part));
        }
    }
    orphan::lose_last_name(at, plan, ino, inode, attached)
}
