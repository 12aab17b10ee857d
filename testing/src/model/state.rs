//! The model's state and its entry point.
//!
//! Invariants: every key in a directory, slot, snapshot or subvolume is in `inodes`. Unreachable
//! inodes stay there, so that open files need no bookkeeping.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Timestamp;
use inode::{Caller, Kind, NAME_BYTES_MAX};

use super::op::{Op, OpPath};
use super::verdict::{Checks, Effect, ErrorKind, Stat, Verdict, verdict};

/// An inode of the model.
pub(super) type Key = u64;
/// What an operation of the model returns: all errors that apply.
pub(super) type Judged<T> = Result<T, Vec<ErrorKind>>;

/// One inode.
#[derive(Debug, Clone)]
pub(super) struct Inode {
    /// Its number, the same in all copies.
    pub(super) ino: u64,
    /// Its subvolume.
    pub(super) subvol: u64,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Names of something that is not a directory.
    pub(super) names: u32,
    /// Names outside the copied directory.
    pub(super) names_outside: u32,
    /// Contents, or the target of a symbolic link.
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) entries: BTreeMap<Vec<u8>, Key>,
    /// The parent, for a directory.
    pub(super) parent: Key,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
}

/// One subvolume.
#[derive(Debug, Clone)]
pub(super) struct Subvol {
    /// Identifies the snapshots of its directories.
    pub(super) lineage: u64,
    pub(super) read_only: bool,
    pub(super) root: Key,
}

/// A file system in memory, with snapshots and clones as deep copies.
#[derive(Debug, Clone)]
pub struct FsModel {
    pub(super) inodes: BTreeMap<Key, Inode>,
    pub(super) subvols: BTreeMap<u64, Subvol>,
    pub(super) root: Key,
    /// Snapshots of a directory (lineage, number) by name: the copy's root.
    pub(super) snapshots: BTreeMap<(u64, u64), BTreeMap<Vec<u8>, Key>>,
    pub(super) slots: BTreeMap<usize, Key>,
    /// Name of the virtual directory.
    pub(super) snapshot_dir: Vec<u8>,
    pub(super) next: u64,
}

impl FsModel {
    /// A volume with nothing but its root, which belongs to the superuser with mode 0755.
    pub fn new(now: Timestamp, snapshot_dir: &[u8]) -> FsModel {
        let mut model = FsModel {
            inodes: BTreeMap::new(),
            subvols: BTreeMap::new(),
            root: 1,
            snapshots: BTreeMap::new(),
            slots: BTreeMap::new(),
            snapshot_dir: snapshot_dir.to_vec(),
            next: 1,
        };
        let lineage = model.fresh();
        assert_eq!(lineage, 1, "numbers start at one");
        let subvol = model.fresh();
        let root = model.blank(now, subvol, Kind::Directory, 0o755, (0, 0));
        model.subvols.insert(subvol, Subvol { lineage, read_only: false, root });
        model.root = root;
        model.inode_mut(root).parent = root;
        model
    }

    /// Sets the attributes of the root to those of a fresh volume.
    pub fn set_root(&mut self, stat: &Stat) {
        let root = self.root;
        let inode = self.inode_mut(root);
        inode.mode = stat.mode;
        inode.uid = stat.uid;
        inode.gid = stat.gid;
        inode.mtime = Timestamp(stat.mtime);
        inode.ctime = Timestamp(stat.ctime);
    }

    /// Judges an operation and applies it.
    pub fn apply(&mut self, now: Timestamp, caller: &Caller, op: &Op) -> Verdict {
        verdict(match op {
            Op::Mknod { path, kind, mode } => self.mknod(now, caller, path, *kind, *mode),
            Op::Mkdir { path, mode } => self.mkdir(now, caller, path, *mode),
            Op::Symlink { path, target } => self.symlink(now, caller, path, target),
            Op::Readlink { path } => self.readlink(caller, path),
            Op::Link { from, to } => self.link(now, caller, from, to),
            Op::Unlink { path } => self.unlink(now, caller, path),
            Op::Rmdir { path } => self.rmdir(now, caller, path),
            Op::Rename { from, to, style } => {
                return self.rename(now, caller, (from, to), *style);
            }
            Op::Stat { target } => self.stat_op(caller, target),
            Op::SetAttr { target, changes } => self.setattr(now, caller, target, changes),
            Op::Access { path, mask } => self.access(caller, path, *mask),
            Op::List { path } => self.list(caller, path),
            Op::Open { slot, path } => self.open(caller, *slot, path),
            Op::Close { slot } => {
                self.slots.remove(slot);
                Ok(Effect::Done)
            }
            Op::Read { target, offset, length } => self.read(caller, target, *offset, *length),
            Op::Write { target, offset, length, seed } => {
                let bytes = Op::write_bytes(*length, *seed);
                self.write(now, caller, target, *offset, &bytes)
            }
            Op::Allocate { target, offset, length, style } => {
                self.allocate(now, caller, target, (*offset, *length), *style)
            }
            Op::CopyRange { from, from_offset, to, to_offset, length } => {
                self.copy_range(now, caller, (from, *from_offset), (to, *to_offset), *length)
            }
            Op::Fsync { target } => self.target(caller, target).map(|_| Effect::Done),
            Op::GetXattr { path, name } => self.getxattr(caller, path, name),
            Op::ListXattr { path } => self.listxattr(caller, path),
            Op::SetXattr { path, name, value, style } => {
                self.setxattr(now, caller, path, (name, value), *style)
            }
            Op::RemoveXattr { path, name } => self.removexattr(now, caller, path, name),
            Op::SnapshotCreate { directory, name } => self.snapshot_create(caller, directory, name),
            Op::SnapshotDelete { directory, name } => self.snapshot_delete(caller, directory, name),
            Op::SnapshotRename { directory, from, to } => {
                self.snapshot_rename(caller, directory, from, to)
            }
            Op::SnapshotList { directory } => self.snapshot_list(caller, directory),
            Op::Clone { from, to } => self.clone_dir(now, caller, from, to),
            Op::SubvolumeCreate { path, mode } => self.subvolume(now, caller, path, *mode),
            Op::Rollback { directory, name } => self.rollback(caller, directory, name),
            Op::Rmr { path } => self.rmr(now, caller, path),
            Op::Background { .. } => Ok(Effect::Done),
            Op::Reopen => {
                self.slots.clear();
                Ok(Effect::Done)
            }
        })
    }

    pub(super) fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// A new inode without a name.
    pub(super) fn blank(
        &mut self,
        now: Timestamp,
        subvol: u64,
        kind: Kind,
        mode: u32,
        (uid, gid): (u32, u32),
    ) -> Key {
        let key = self.fresh();
        let inode = Inode {
            ino: key,
            subvol,
            kind,
            mode,
            uid,
            gid,
            names: 1,
            names_outside: 0,
            bytes: Arc::default(),
            entries: BTreeMap::new(),
            parent: key,
            xattrs: BTreeMap::new(),
            mtime: now,
            ctime: now,
        };
        self.inodes.insert(key, inode);
        key
    }

    pub(super) fn inode(&self, key: Key) -> &Inode {
        self.inodes.get(&key).expect("invariant: keys point to inodes")
    }

    pub(super) fn inode_mut(&mut self, key: Key) -> &mut Inode {
        self.inodes.get_mut(&key).expect("invariant: keys point to inodes")
    }

    pub(super) fn subvol_of(&self, key: Key) -> &Subvol {
        let subvol = self.inode(key).subvol;
        self.subvols.get(&subvol).expect("invariant: inodes have subvolumes")
    }

    /// Whether an inode is the root of its subvolume.
    pub(super) fn is_subvol_root(&self, key: Key) -> bool {
        self.subvol_of(key).root == key
    }

    pub(super) fn stat(&self, key: Key) -> Stat {
        let inode = self.inode(key);
        let directory = inode.kind == Kind::Directory;
        let subdirectories =
            inode.entries.values().filter(|&&key| self.inode(key).kind == Kind::Directory).count();
        Stat {
            kind: inode.kind,
            mode: inode.mode,
            nlink: if directory { 2 + subdirectories as u32 } else { inode.names },
            nlink_slack: inode.names_outside,
            uid: inode.uid,
            gid: inode.gid,
            rdev: 0,
            size: if directory { inode.entries.len() as u64 } else { inode.bytes.len() as u64 },
            mtime: inode.mtime.0,
            ctime: inode.ctime.0,
        }
    }

    /// Whether permission bits grant the caller `mask` (4 read, 2 write, 1 execute).
    pub(super) fn may(&self, caller: &Caller, key: Key, mask: u32) -> bool {
        let inode = self.inode(key);
        if caller.is_root() {
            let executable = inode.kind == Kind::Directory || inode.mode & 0o111 != 0;
            return mask & 1 == 0 || executable;
        }
        let shift = match () {
            () if inode.uid == caller.uid => 6,
            () if caller.in_group(inode.gid) => 3,
            () => 0,
        };
        inode.mode >> shift & mask == mask
    }

    pub(super) fn owns(&self, caller: &Caller, key: Key) -> bool {
        caller.is_root() || self.inode(key).uid == caller.uid
    }

    /// Whether the sticky bit of a directory allows the caller to remove an entry of it.
    pub(super) fn sticky_lets(&self, caller: &Caller, directory: Key, entry: Key) -> bool {
        self.inode(directory).mode & 0o1000 == 0
            || self.owns(caller, entry)
            || self.owns(caller, directory)
    }

    /// Updates the times for a change of a directory's entries.
    pub(super) fn touch(&mut self, directory: Key, now: Timestamp) {
        let inode = self.inode_mut(directory);
        inode.mtime = now;
        inode.ctime = now;
    }

    /// The checks for every new entry.
    pub(super) fn may_create(
        &self,
        caller: &Caller,
        parent: Key,
        name: &[u8],
        checks: &mut Checks,
    ) {
        checks.require(name.len() <= NAME_BYTES_MAX, ErrorKind::NameTooLong);
        checks.require(!self.inode(parent).entries.contains_key(name), ErrorKind::Exists);
        checks.require(self.may(caller, parent, 3), ErrorKind::AccessDenied);
        checks.require(!self.subvol_of(parent).read_only, ErrorKind::ReadOnly);
    }

    /// The checks for every removal of an entry.
    pub(super) fn may_remove(&self, caller: &Caller, parent: Key, entry: Key, checks: &mut Checks) {
        checks.require(self.may(caller, parent, 3), ErrorKind::AccessDenied);
        checks.require(self.sticky_lets(caller, parent, entry), ErrorKind::NotPermitted);
        checks.require(!self.subvol_of(parent).read_only, ErrorKind::ReadOnly);
    }

    /// Whether `below` is `above` or is below it.
    pub(super) fn is_below(&self, above: Key, below: Key) -> bool {
        let mut at = below;
        while at != above {
            let parent = self.inode(at).parent;
            if parent == at {
                return false;
            }
            at = parent;
        }
        true
    }

    /// Paths of everything that is live, for the generator. The root is the empty path.
    pub fn paths(&self) -> Vec<(OpPath, Kind)> {
        let mut found = Vec::new();
        let mut left = vec![(self.root, OpPath::new())];
        while let Some((key, path)) = left.pop() {
            let inode = self.inode(key);
            found.push((path.clone(), inode.kind));
            for (name, &child) in &inode.entries {
                let mut below = path.clone();
                below.push(name.clone());
                left.push((child, below));
            }
        }
        found
    }

    /// Snapshots of live directories, as (path of the directory, name), for the generator.
    pub fn live_snapshots(&self) -> Vec<(OpPath, Vec<u8>)> {
        let directories = self.paths().into_iter().filter(|(_, kind)| *kind == Kind::Directory);
        let mut found = Vec::new();
        for (path, _) in directories {
            let key = self.walk(&path).expect("invariant: the path was just listed");
            let names = self.snapshots.get(&self.persona(key));
            for name in names.into_iter().flat_map(BTreeMap::keys) {
                found.push((path.clone(), name.clone()));
            }
        }
        found
    }

    /// Identifies a directory's snapshots: its lineage and number.
    pub(super) fn persona(&self, key: Key) -> (u64, u64) {
        (self.subvol_of(key).lineage, self.inode(key).ino)
    }
}
