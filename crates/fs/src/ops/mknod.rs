//! `mknod`: a new file, fifo, socket or device node. The first half of `open(O_CREAT)`.
//!
//! 1. Read the directory: it must exist, and may hand its group down.
//! 2. Search for the name: it must not exist.
//! 3. One batch: the entry with its inode, the directory's counts and times, the counters.
//! 4. Add the node to the node table, before the name's lock is released.

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::InodeRecord;
use format::key::{self, Part};
use inode::permissions::{EXECUTE, WRITE};
use inode::{Caller, FsError, Kind, NodeId};

use super::whiteout;
use crate::locks::{Lock, LockSet, Mode};
use crate::nodes::Location;
use crate::subvol::Subvol;
use crate::txn::{Txn, fresh_inode};
use crate::view::{Search, Vacancy, View};
use crate::{Entry, Fs, FsResult, NewNode, attributes, owners, permit};

/// Creates an inode that is not a directory, and a name for it.
pub(crate) fn mknod(
    fs: &Fs,
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
    make(fs, caller, parent, name, new, None)
}

/// Creates an inode with or without a target.
// Not inlined, so that profiles show the instructions of a create under this name.
#[inline(never)]
pub(super) fn make(
    fs: &Fs,
    caller: &Caller,
    parent: NodeId,
    name: &[u8],
    new: &NewNode,
    target: Option<&[u8]>,
) -> FsResult<Entry> {
    let name = fs.new_name(name)?;
    let (subvol, dir) = fs.place(parent)?;
    let entered = fs.enter(&subvol)?;
    let view = View::new(&*fs.store, entered.tree);
    let hash = fs.hash.hash(name.as_bytes());
    let room = Room { fs, subvol: &subvol, view, caller, dir, hash, name: name.as_bytes() };
    crate::trash::check_outside(fs, &subvol, view, (dir, name.as_bytes()))?;
    let (_locks, directory, vacancy) = room.find()?;
    let ino = fs.numbers.next_ino(&*fs.store)?;
    let mut txn = Txn::new(fs);
    let kind = attributes::file_kind(new.kind);
    let inherited = permit::inherit(view, caller, (dir, &directory), new.mode, kind)?;
    let mut inode = InodeRecord {
        mode: inherited.mode,
        uid: caller.uid,
        gid: inherited.gid,
        rdev: if kind.is_device() { new.rdev } else { 0 },
        size: target.map_or(0, |target| target.len() as u64),
        has_bulk: target.is_some(),
        has_xattrs: inherited.xattrs.is_some(),
        ..fresh_inode(kind, txn.now)
    };
    txn.on_behalf(caller);
    let share = owners::share(&inode);
    inode.charge = txn.charge_new(subvol.id.0, &directory, share)?;
    let entry =
        EntryRecord { chained: false, ino, name: name.as_bytes(), target: Target::Embedded(inode) };
    txn.insert_entry(view, dir, &vacancy, &entry)?;
    if let Some(target) = target {
        txn.batch().put(view.tree, &key::entry(dir, vacancy.cookie, Part::Bulk), target);
    }
    if let Some(xattrs) = &inherited.xattrs {
        let key = key::entry(dir, vacancy.cookie, Part::Xattrs);
        txn.batch().put(view.tree, &key, &xattrs.encode());
    }
    txn.touch_directory(view.tree, dir, 1, 0);
    txn.count(subvol.id.0, 1, 0);
    txn.commit()?;
    let node = subvol.node(ino);
    fs.nodes.look_up(node, Location::Entry { dir, cookie: vacancy.cookie });
    Ok(fs.entry(attributes::of_file(node, &inode, 1)))
}

/// Where to create a name.
pub(crate) struct Room<'a> {
    pub(crate) fs: &'a Fs,
    pub(crate) subvol: &'a Subvol,
    pub(crate) view: View<'a>,
    pub(crate) caller: &'a Caller,
    pub(crate) dir: u64,
    pub(crate) hash: u64,
    pub(crate) name: &'a [u8],
}

impl<'a> Room<'a> {
    /// Locks directory and name, and verifies that the name may be created there.
    #[inline]
    pub(crate) fn find(&self) -> FsResult<(LockSet<'a>, DirectoryRecord, Vacancy)> {
        let subvol = self.subvol.id.0;
        let locks = self.fs.locks.lock(&[
            (Lock::Object { subvol, ino: self.dir }, Mode::Shared),
            (Lock::Name { subvol, dir: self.dir, hash: self.hash }, Mode::Exclusive),
        ]);
        let (directory, vacancy) = self.look()?;
        match vacancy.predecessor {
            None | Some((_, 0)) => Ok((locks, directory, vacancy)),
            Some((_, ino)) => {
                drop(locks);
                self.find_behind(ino)
            }
        }
    }

    /// The name has the hash of another, whose entry will be rewritten, with its inode in it: that
    /// inode is locked as well.
    #[cold]
    fn find_behind(&self, mut behind: u64) -> FsResult<(LockSet<'a>, DirectoryRecord, Vacancy)> {
        let subvol = self.subvol.id.0;
        loop {
            let locks = self.fs.locks.lock(&[
                (Lock::Object { subvol, ino: self.dir }, Mode::Shared),
                (Lock::Name { subvol, dir: self.dir, hash: self.hash }, Mode::Exclusive),
                (Lock::Object { subvol, ino: behind }, Mode::Exclusive),
            ]);
            let (directory, vacancy) = self.look()?;
            match vacancy.predecessor {
                Some((_, ino)) if ino != 0 && ino != behind => behind = ino,
                _ => return Ok((locks, directory, vacancy)),
            }
        }
    }

    #[inline]
    fn look(&self) -> FsResult<(DirectoryRecord, Vacancy)> {
        let Room { fs, subvol, view, caller, dir, .. } = *self;
        let directory = parent_directory(fs, subvol, view, caller, dir)?;
        match view.find(dir, self.hash, self.name)? {
            Search::Found(_) => Err(FsError::Exists),
            Search::Vacant(vacancy) => {
                check_write(view, caller, dir, &directory)?;
                Ok((directory, vacancy))
            }
        }
    }
}

/// The directory in which to create a name.
#[inline]
pub(crate) fn parent_directory(
    fs: &Fs,
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
