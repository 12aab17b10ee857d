//! `FileSystem`: the calls between a front end (`fuse`, the control socket) and its implementation.
//!
//! Inodes are named by [`NodeId`]. A call that returns an [`Entry`] adds one look-up to the node's
//! count; [`FileSystem::forget`] subtracts look-ups. A node with look-ups lives on, with its
//! contents, after its last name is removed. There is no `open`: a kernel that keeps an inode in
//! its cache keeps the file alive. Any thread may make any call.

use std::sync::Arc;

use device::Timestamp;
use inode::{Attr, Caller, FsError, Kind, NodeId, SetAttr};

/// A result of the namespace.
pub type FsResult<T> = Result<T, FsError>;

/// A name that was looked up or created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The inode. `attr.node` is the number to show; this one is the handle for further calls
    /// (they differ for the root of the mount only).
    pub node: NodeId,
    /// Its attributes.
    pub attr: Attr,
}

/// One entry of a directory listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode's number.
    pub node: NodeId,
    /// What it is.
    pub kind: Kind,
    /// Position after this entry: pass it to continue from here. Stable across changes of other
    /// entries and across restarts.
    pub cookie: u64,
    /// Its attributes, if they were requested.
    pub attr: Option<&'a Attr>,
}

/// Whether a listing continues. An entry that was answered with `Stop` was not consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkControl {
    /// The entry was taken; pass the next one.
    Continue,
    /// The entry did not fit; stop before it.
    Stop,
}

/// Describes a new inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewNode {
    /// Its kind; not a symbolic link (see [`FileSystem::symlink`]).
    pub kind: Kind,
    /// Permission bits; the caller's umask is applied if the directory has no default list.
    pub mode: u32,
    /// Device number, for a device node.
    pub rdev: u32,
}

/// How `rename` treats an existing target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it, atomically.
    Replace,
    /// Fails with `Exists`.
    NoReplace,
    /// Swaps the two.
    Exchange,
    /// Like `Replace`, and leaves a whiteout under the old name: a character device 0:0, which
    /// makes the name absent for an overlay file system.
    Whiteout,
    /// Like `NoReplace`, and leaves a whiteout.
    NoReplaceWhiteout,
}

impl RenameMode {
    /// Whether it fails if the target exists.
    pub fn keeps_target(self) -> bool {
        matches!(self, RenameMode::NoReplace | RenameMode::NoReplaceWhiteout)
    }

    /// Whether it leaves a whiteout.
    pub fn leaves_whiteout(self) -> bool {
        matches!(self, RenameMode::Whiteout | RenameMode::NoReplaceWhiteout)
    }
}

/// How `setxattr` treats an existing attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetXattr {
    /// Creates or replaces.
    Any,
    /// Fails with `Exists` when it is there.
    Create,
    /// Fails with `NoAttribute` when it is not.
    Replace,
}

/// What `fallocate` does with a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// Ensures that there is space for it, and grows the file to its end.
    Grow,
    /// The same without growing the file.
    Keep,
    /// Makes it a hole; the file keeps its length.
    Punch,
    /// Makes it zeros, and grows the file to its end.
    Zero,
    /// The same without growing the file.
    ZeroKeep,
}

/// What `seek` looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// A byte that was written.
    Data,
    /// A hole; the last one begins at the end of the file.
    Hole,
}

/// Whether the last component of a path is followed when it is a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// As `stat` does.
    Yes,
    /// As `lstat` does.
    No,
}

/// What `fsync` makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncScope {
    /// Contents, and what is needed to read them back.
    Data,
    /// Contents and all attributes.
    All,
}

/// What a lock of a file keeps others from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Nothing: it is ended.
    Unlocked,
    /// Exclusive locks.
    Shared,
    /// All locks.
    Exclusive,
}

/// A lock of a file that programs agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLock {
    /// Who holds it, by the kernel's number.
    pub owner: u64,
    /// The process.
    pub pid: u32,
    /// What it keeps others from.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// Whether it is one of flock(2), which is on the whole file; otherwise one of fcntl(2).
    pub whole: bool,
}

/// What came of a request for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locked {
    /// It is held, or ended.
    Done,
    /// Another one conflicts.
    Busy,
    /// There are too many locks.
    TooMany,
    /// Each would wait for the other.
    Deadlock,
}

/// What calls may wait for an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waits {
    /// None: there is no such store.
    No,
    /// Those that make something durable.
    Syncs,
    /// These, and those that change something.
    Changes,
    /// All: everything is far.
    All,
}

/// Space and limits, as `statvfs` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// Unit of the next three, in bytes.
    pub block_bytes: u32,
    /// Size of the disk.
    pub blocks: u64,
    /// Free space.
    pub blocks_free: u64,
    /// Free space for ordinary users.
    pub blocks_available: u64,
    /// Inodes in use and still possible.
    pub inodes: u64,
    /// Inodes still possible.
    pub inodes_free: u64,
    /// Longest name, in bytes.
    pub name_bytes_max: u32,
}

/// The calls of a file system.
pub trait FileSystem: Send + Sync {
    /// Finds a name in a directory, `.` and `..` included.
    fn lookup(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<Entry>;

    /// Finds a node by its number alone, at or below a directory, for a handle that outlived the
    /// front end's copy of the node. Takes one look-up. `Stale`: there is no such node.
    fn find_by_number(&self, _top: NodeId, _node: NodeId) -> FsResult<Entry> {
        Err(FsError::Stale)
    }

    /// Distinguishes a node from earlier ones with the same number.
    fn generation(&self, _node: NodeId) -> u64 {
        0
    }

    /// Whether a node may be held, that is, has look-ups. For a node that was never looked up the
    /// answer may be yes; the node of a look-up that has returned is held.
    fn may_be_held(&self, _node: NodeId) -> bool {
        true
    }

    /// What the upper 24 bits of the numbers of inodes may be, the most likely ones first.
    fn inode_uppers(&self) -> Vec<u64> {
        vec![0]
    }

    /// Subtracts `lookups` look-ups from a node's count.
    fn forget(&self, node: NodeId, lookups: u64);

    /// The attributes of a node.
    fn getattr(&self, caller: &Caller, node: NodeId) -> FsResult<Attr>;

    /// Changes attributes; implements chmod, chown, truncate and utimens.
    fn setattr(&self, caller: &Caller, node: NodeId, changes: &SetAttr) -> FsResult<Attr>;

    /// Whether the caller may read (4), write (2) and execute (1), as the bits of `mask` require.
    fn access(&self, caller: &Caller, node: NodeId, mask: u32) -> FsResult<()>;

    /// The target of a symbolic link.
    fn readlink(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>>;

    /// Like `readlink`, but does not update the link's time of last read.
    fn readlink_untimed(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        self.readlink(caller, node)
    }

    /// Creates a file, fifo, socket or device node; the first half of `open(O_CREAT)`.
    fn mknod(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode)
    -> FsResult<Entry>;

    /// Creates a directory.
    fn mkdir(&self, caller: &Caller, parent: NodeId, name: &[u8], mode: u32) -> FsResult<Entry>;

    /// Creates a symbolic link.
    fn symlink(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> FsResult<Entry>;

    /// Gives a node another name.
    fn link(&self, caller: &Caller, node: NodeId, parent: NodeId, name: &[u8]) -> FsResult<Entry>;

    /// Removes the name of anything but a directory.
    fn unlink(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<()>;

    /// Removes an empty directory.
    fn rmdir(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<()>;

    /// Renames atomically: `from` and `to` are (directory, name).
    fn rename(
        &self,
        caller: &Caller,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        mode: RenameMode,
    ) -> FsResult<()>;

    /// Reads at `offset` until `buffer` is full or the file ends; returns the bytes read.
    fn read(
        &self,
        caller: &Caller,
        node: NodeId,
        offset: u64,
        buffer: &mut [u8],
    ) -> FsResult<usize>;

    /// Like `read`, but does not update the file's time of last read.
    fn read_untimed(
        &self,
        caller: &Caller,
        node: NodeId,
        offset: u64,
        buffer: &mut [u8],
    ) -> FsResult<usize> {
        self.read(caller, node, offset, buffer)
    }

    /// Writes all of `bytes` at `offset`.
    fn write(&self, caller: &Caller, node: NodeId, offset: u64, bytes: &[u8]) -> FsResult<()>;

    /// Creates a file without a name, which [`FileSystem::link`] may give one. `parent` selects the
    /// subvolume, and permissions are checked as if the name were created there.
    fn tmpfile(&self, caller: &Caller, parent: NodeId, mode: u32) -> FsResult<Entry>;

    /// The first place from `offset` on where `what` begins; `PastEnd` when there is none.
    fn seek(&self, caller: &Caller, node: NodeId, offset: u64, what: Seek) -> FsResult<u64>;

    /// Applies `mode` to `range` (offset, length) of a file.
    fn fallocate(
        &self,
        caller: &Caller,
        node: NodeId,
        range: (u64, u64),
        mode: Allocate,
    ) -> FsResult<()>;

    /// Copies up to `length` bytes from (file, offset) to (file, offset), sharing extents if both
    /// files are large enough to have any. Returns the bytes copied: less than requested at the end
    /// of the source, or where one batch would become too large.
    fn copy_range(
        &self,
        caller: &Caller,
        from: (NodeId, u64),
        to: (NodeId, u64),
        length: u64,
    ) -> FsResult<u64>;

    /// Makes a node durable, and with it the names that point to it.
    fn fsync(&self, node: NodeId, scope: SyncScope) -> FsResult<()>;

    /// Makes everything durable.
    fn sync_all(&self) -> FsResult<()>;

    /// How far changes that calls may have seen have got, while they are not durable. `None`: all
    /// are, or callers do not expect that of an answer. A crash may undo them. So a server passes
    /// this to [`FileSystem::settle`] after each call, and answers when that has returned.
    fn unsettled(&self) -> Option<u64> {
        None
    }

    /// Waits until everything up to a position is durable. After an error no later change is.
    fn settle(&self, position: u64) -> FsResult<()> {
        let _ = position;
        Ok(())
    }

    /// Lists a directory from just after `cookie` (0: from the start), without `.` and `..`,
    /// until `take` stops it, or to the end. Cookies are greater than 2 and less than 2^63.
    fn readdir(
        &self,
        caller: &Caller,
        directory: NodeId,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()>;

    /// Like `readdir`, with attributes; every entry taken with them counts as one look-up. An entry
    /// whose inode cannot be read comes without attributes.
    fn readdirplus(
        &self,
        caller: &Caller,
        directory: NodeId,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()>;

    /// Space and limits: in a quota directory what its limits leave, elsewhere those of the volume.
    fn statfs(&self, node: NodeId) -> FsResult<StatFs>;

    /// Returns one extended attribute. Names carry their namespace: `user.`, `trusted.`,
    /// `security.`, and `system.` of the two access control lists, whose values have the format of
    /// Linux.
    fn getxattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<Vec<u8>>;

    /// The names of all extended attributes that the caller may see, each terminated by NUL.
    fn listxattr(&self, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>>;

    /// Sets an extended attribute (at most 64 KiB; all of a node's together at most 256 KiB).
    fn setxattr(
        &self,
        caller: &Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        mode: SetXattr,
    ) -> FsResult<()>;

    /// Removes an extended attribute.
    fn removexattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<()>;

    /// Wall-clock time, for front ends that stamp the changes they send.
    fn now(&self) -> Timestamp;

    /// Registers a listener for changes that a front end did not request itself.
    fn set_invalidate(&self, invalidate: Arc<dyn Invalidate>);

    /// Whether a node is in a snapshot, where it shares its inode number with the same file in
    /// others.
    fn is_in_snapshot(&self, _node: NodeId) -> bool {
        false
    }

    /// Whether the node that a name in a directory points to is held.
    fn holds_name(&self, _directory: NodeId, _name: &[u8]) -> bool {
        false
    }

    /// A program opened a node; `flags` are those of open(2). Only front ends that report each open
    /// call this, and then [`FileSystem::released`] for each.
    fn opened(&self, _caller: &Caller, _node: NodeId, _flags: u32) -> FsResult<()> {
        Ok(())
    }

    /// As [`FileSystem::opened`], for a front end that caches contents from one open to the next.
    /// Returns whether the contents that it cached since the last open of the node are still those
    /// of the file.
    fn open(&self, caller: &Caller, node: NodeId, flags: u32) -> FsResult<bool> {
        self.opened(caller, node, flags).map(|()| true)
    }

    /// Creates a regular file (mode, flags of open(2)); [`FileSystem::released`] follows, as after
    /// an open.
    fn create(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        (mode, _flags): (u32, u32),
    ) -> FsResult<Entry> {
        self.mknod(caller, parent, name, &NewNode { kind: Kind::File, mode, rdev: 0 })
    }

    /// Writes all of `bytes` at the end of a file, wherever that is when it is written.
    fn append(&self, caller: &Caller, node: NodeId, bytes: &[u8]) -> FsResult<()> {
        let size = self.getattr(caller, node)?.size;
        self.write(caller, node, size, bytes)
    }

    /// The last descriptor of an open was closed.
    fn released(&self, _caller: &Caller, _node: NodeId) {}

    /// A number that changes when files opened before are not open any more. A front end then
    /// refuses uses of what it opened at another number.
    fn epoch(&self) -> u64 {
        0
    }

    /// Whether locks of files are kept here. Otherwise the kernel keeps them by itself, for the
    /// programs of one machine, and the next three are not called.
    fn keeps_locks(&self) -> bool {
        false
    }

    /// Takes, changes or ends a lock; with `wait` it waits for others.
    fn lock(
        &self,
        _caller: &Caller,
        _node: NodeId,
        _lock: &FileLock,
        _wait: bool,
    ) -> FsResult<Locked> {
        Err(FsError::NotSupported("locks"))
    }

    /// The first lock of another that would conflict.
    fn test_lock(
        &self,
        _caller: &Caller,
        _node: NodeId,
        _lock: &FileLock,
    ) -> FsResult<Option<FileLock>> {
        Err(FsError::NotSupported("locks"))
    }

    /// Ends the locks of an owner on a file; `whole`: those of flock(2).
    fn unlock(&self, _caller: &Caller, _node: NodeId, _owner: u64, _whole: bool) -> FsResult<()> {
        Ok(())
    }

    /// Announces what a mount shows as its root. A file system that replaces this directory
    /// announces the new one by [`Invalidate::root`].
    fn set_shown_root(&self, _root: NodeId) {}

    /// Whether what a node holds may be another thing at every call. A front end that caches must
    /// ask again at every use, and a look-up may take as long as a search.
    fn is_volatile(&self, _node: NodeId) -> bool {
        false
    }

    /// What calls may now wait for that takes much longer than a disk. A front end serves those by
    /// threads of their own, so that others are answered meanwhile.
    fn waits(&self) -> Waits {
        Waits::No
    }

    /// Whether making a directory there takes a snapshot. This needs all groups of the caller.
    fn takes_snapshots(&self, _directory: NodeId) -> bool {
        false
    }

    /// Whether a change of a node, or a look-up in a directory (`changes` is false), may have to
    /// copy inherited subvolumes first. It may have to copy all that a snapshot or clone inherits.
    fn copies_first(&self, _node: NodeId, _changes: bool) -> bool {
        false
    }

    /// Whether the value of an extended attribute of this name is computed when it is read, from
    /// what the caller may see. It may take as long as a search, and needs all groups of the
    /// caller.
    fn is_computed(&self, _xattr: &[u8]) -> bool {
        false
    }
}

/// Notifications for a front end that caches: a snapshot, a roll-back, a clone, or another client
/// changed something. Calls return at once; they are made with no lock held.
pub trait Invalidate: Send + Sync {
    /// A name in a directory now points to something else, or to nothing.
    fn entry(&self, parent: NodeId, name: &[u8]);

    /// A name is unchanged, but the front end should drop the node that it points to if it is
    /// unused.
    fn let_go(&self, parent: NodeId, name: &[u8]) {
        self.entry(parent, name);
    }

    /// The front end should drop a directory and the names below it if they are unused. The names
    /// of the directory itself follow, by [`Invalidate::let_go`].
    fn let_go_below(&self, _directory: NodeId) {}

    /// A name of a snapshot of a directory now points to another snapshot, or to none.
    fn snapshot(&self, _directory: NodeId, _name: &[u8]) {}

    /// Attributes and contents of a node changed.
    fn node(&self, node: NodeId);

    /// Attributes of a node changed, for example its link count; its contents did not.
    fn attributes(&self, node: NodeId);

    /// Attributes of a node changed by a call made for another purpose, as a write clears set-id
    /// bits. When this returns the front end holds no old attributes. The thread that serves the
    /// call makes this notification; it holds the node and has not answered yet.
    fn attributes_before_answer(&self, node: NodeId) {
        self.attributes(node);
    }

    /// Another directory replaces one that is shown as a root. Called while no other operation runs
    /// in either.
    fn root(&self, _old: NodeId, _new: NodeId) {}

    /// Any name may now point to something else: too many changed to announce each.
    fn all_names(&self);
}
