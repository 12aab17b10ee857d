//! `mknod`: a new file, fifo, socket or device node. The first half of `open(O_CREAT)`.
//!
//! 1. Read the directory: it must exist, and may hand its group down.
//! 2. Search for the name: it must not exist.
//! 3. One batch: the entry with its inode, the directory's counts and times, the counters.
//! 4. Add the node to the node table, before the name's lock is released.

use std::sync::Arc;

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::InodeRecord;
use format::key::{self, Part};
use inode::permissions::{EXECUTE, WRITE};
use inode::{Caller, FsError, Kind, NodeId};
use vfs::{Entry, FsResult, NewNode};
use volume::locks::Mode;
use volume::nodes::Location;
use volume::subvol::Subvol;
use volume::view::{Search, Vacancy, View};
use volume::{attributes, permit};

use super::whiteout;
use crate::Ops;
use crate::execute::{Context, Operation, Outcome, execute};
use crate::plan::{Effect, Plan};
use crate::policy::Policy;
use volume::attributes::fresh_inode;

/// Creates an inode that is not a directory, and a name for it.
pub fn mknod(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    parent: NodeId,
    name: &[u8],
    new: &NewNode,
) -> FsResult<Entry> {
    match new.kind {
        Kind::Directory | Kind::Symlink => {
            return Err(FsError::InvalidArgument("mknod does not create directories or links"));
        }
        Kind::CharDevice | Kind::BlockDevice if !caller.is_root() && !whiteout::is_one(new) => {
            return Err(FsError::RootOnly("only root makes devices"));
        }
        _ => {}
    }
    make(fs, policy, caller, parent, name, new, None)
}

/// Creates an inode with or without a target.
// Not inlined, so that profiles show the instructions of a create under this name.
#[inline(never)]
pub(super) fn make(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    parent: NodeId,
    name: &[u8],
    new: &NewNode,
    target: Option<&[u8]>,
) -> FsResult<Entry> {
    let (subvol, name) = NewName::of(fs, caller, parent, name)?;
    execute(fs, policy, &subvol, &mut Make { name, new, target })
}

/// A new inode that is not a directory, and a name for it.
pub struct Make<'a> {
    /// Where.
    pub name: NewName<'a>,
    /// What.
    pub new: &'a NewNode,
    /// The target of a symbolic link.
    pub target: Option<&'a [u8]>,
}

impl Operation for Make<'_> {
    type Reads = Vacant;
    type Answer = Entry;

    #[inline]
    fn guess(&mut self, at: &Context<'_>) -> FsResult<Vacant> {
        self.name.guess(at)
    }

    #[inline]
    fn aim(&mut self, at: &Context<'_>, guess: &Vacant, plan: &mut Plan) -> FsResult<()> {
        self.name.lock(at, guess, plan);
        Ok(())
    }

    #[inline]
    fn look(&mut self, at: &Context<'_>) -> FsResult<Vacant> {
        self.name.look(at)
    }

    #[inline]
    fn agree(guess: &Vacant, found: &Vacant) -> bool {
        guess.agrees_with(found)
    }

    #[inline]
    fn plan(
        &mut self,
        at: &Context<'_>,
        found: Vacant,
        plan: &mut Plan,
    ) -> FsResult<Outcome<Entry>> {
        let Make { name: NewName { caller, dir, name, .. }, new, target } = *self;
        let Vacant { directory: Some(directory), vacancy } = &found else {
            return Ok(Outcome::Again);
        };
        let (fs, view) = (at.fs, at.view);
        let ino = fs.numbers.next_ino(&*fs.store)?;
        let kind = attributes::file_kind(new.kind);
        let inherited = permit::inherit(view, caller, (dir, directory), new.mode, kind)?;
        let mut inode = InodeRecord {
            mode: inherited.mode,
            uid: caller.uid,
            gid: inherited.gid,
            rdev: if kind.is_device() { new.rdev } else { 0 },
            size: target.map_or(0, |target| target.len() as u64),
            has_bulk: target.is_some(),
            has_xattrs: inherited.xattrs.is_some(),
            ..fresh_inode(kind, plan.now)
        };
        plan.on_behalf(caller);
        let share = ((inode.uid, inode.gid), inode.charged_bytes());
        inode.charge = at.policy.creates(plan, at.id(), directory, share)?;
        let entry = EntryRecord { chained: false, ino, name, target: Target::Embedded(inode) };
        plan.insert_entry(view, dir, vacancy, &entry)?;
        if let Some(target) = target {
            plan.batch().put(view.tree, &key::entry(dir, vacancy.cookie, Part::Bulk), target);
        }
        if let Some(xattrs) = &inherited.xattrs {
            let key = key::entry(dir, vacancy.cookie, Part::Xattrs);
            plan.batch().put(view.tree, &key, &xattrs.encode());
        }
        plan.touch_directory(view.tree, dir, 1, 0);
        plan.count(at.id(), 1, 0);
        let node = at.subvol.node(ino);
        plan.effect(Effect::LookUp(node, Location::Entry { dir, cookie: vacancy.cookie }));
        Ok(Outcome::Done(fs.entry(attributes::of_file(node, &inode, 1))))
    }
}

/// A name to be created.
#[derive(Clone, Copy)]
pub struct NewName<'a> {
    /// Who makes it.
    pub caller: &'a Caller,
    /// The directory.
    pub dir: u64,
    /// The hash of the name.
    pub hash: u64,
    /// The name.
    pub name: &'a [u8],
}

/// Where a name is to be created, as it was read.
pub struct Vacant {
    /// The directory; `None`: not read, the rest is a guess.
    pub directory: Option<DirectoryRecord>,
    /// The place in it.
    pub vacancy: Vacancy,
}

impl Vacant {
    /// Whether the same is locked for both: a name that has the hash of another one rewrites that
    /// one's entry, with its inode in it.
    pub fn agrees_with(&self, found: &Vacant) -> bool {
        self.behind() == found.behind()
    }

    #[inline]
    fn behind(&self) -> u64 {
        self.vacancy.predecessor.map_or(0, |(_, ino)| ino)
    }
}

impl<'a> NewName<'a> {
    /// A name in a directory, and the directory's subvolume.
    #[inline]
    pub fn of(
        fs: &Ops,
        caller: &'a Caller,
        parent: NodeId,
        name: &'a [u8],
    ) -> FsResult<(Arc<Subvol>, NewName<'a>)> {
        let name = fs.new_name(name)?.as_bytes();
        let (subvol, dir) = fs.place(parent)?;
        Ok((subvol, NewName { caller, dir, hash: fs.hash.hash(name), name }))
    }

    /// That it is not there, and no other of its hash is.
    #[inline]
    pub fn guess(&self, at: &Context<'_>) -> FsResult<Vacant> {
        at.policy.makes_name(at, self.dir, self.name)?;
        Ok(self.unread())
    }

    /// As `guess`, without a policy.
    #[inline]
    pub fn unread(&self) -> Vacant {
        let cookie = key::cookie(self.hash, 0);
        Vacant { directory: None, vacancy: Vacancy { cookie, chained: false, predecessor: None } }
    }

    /// Locks directory and name, and the name before it in its chain.
    #[inline]
    pub fn lock(&self, at: &Context<'_>, guess: &Vacant, plan: &mut Plan) {
        at.lock_name(plan, self.dir, self.hash);
        if guess.behind() != 0 {
            plan.lock(at.object(guess.behind()), Mode::Exclusive);
        }
    }

    /// Verifies under the locks that the name may be created.
    #[inline]
    pub fn look(&self, at: &Context<'_>) -> FsResult<Vacant> {
        let NewName { caller, dir, hash, name } = *self;
        let directory = parent_directory(at.fs, at.subvol, at.view, caller, dir)?;
        match at.view.find(dir, hash, name)? {
            Search::Found(_) => Err(FsError::Exists),
            Search::Vacant(vacancy) => {
                check_write(at.view, caller, dir, &directory)?;
                Ok(Vacant { directory: Some(directory), vacancy })
            }
        }
    }
}

/// The directory in which to create a name.
#[inline]
pub fn parent_directory(
    fs: &Ops,
    subvol: &Subvol,
    view: View<'_>,
    caller: &Caller,
    dir: u64,
) -> FsResult<DirectoryRecord> {
    let directory = view.directory(dir)?.ok_or_else(|| super::lookup::missing(fs, subvol, dir))?;
    permit::directory(view, dir, &directory, caller, EXECUTE)?;
    if directory.detached { Err(FsError::NotFound) } else { Ok(directory) }
}

/// Checks that names may be created in a directory. Called after the search for the name: POSIX
/// reports that a name exists before it reports that none may be created.
#[inline]
pub(crate) fn check_write(
    view: View<'_>,
    caller: &Caller,
    dir: u64,
    directory: &DirectoryRecord,
) -> FsResult<()> {
    permit::directory(view, dir, directory, caller, WRITE)
}
