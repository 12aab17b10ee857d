//! Creates and removes names.

use std::sync::Arc;

use device::Timestamp;
use inode::{Caller, Kind, NAME_BYTES_MAX, SYMLINK_BYTES_MAX};

use super::op::OpPath;
use super::state::{FsModel, Judged, Key};
use super::verdict::{Checks, Effect, ErrorKind, Listed};

impl FsModel {
    pub(super) fn mknod(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        path: &OpPath,
        kind: Kind,
        mode: u32,
    ) -> Judged<Effect> {
        let key = self.make(now, caller, path, kind, mode)?;
        Ok(Effect::Stat(self.stat(key)))
    }

    pub(super) fn mkdir(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        path: &OpPath,
        mode: u32,
    ) -> Judged<Effect> {
        let key = self.make(now, caller, path, Kind::Directory, mode)?;
        Ok(Effect::Stat(self.stat(key)))
    }

    pub(super) fn symlink(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        path: &OpPath,
        target: &[u8],
    ) -> Judged<Effect> {
        if target.is_empty() || target.len() > SYMLINK_BYTES_MAX {
            return Err(vec![
                ErrorKind::InvalidArgument,
                ErrorKind::NameTooLong,
                ErrorKind::NotFound,
            ]);
        }
        let key = self.make(now, caller, path, Kind::Symlink, 0o777)?;
        self.inode_mut(key).bytes = Arc::new(target.to_vec());
        Ok(Effect::Stat(self.stat(key)))
    }

    /// Creates an inode with its name. A directory with the set-group-id bit passes on its group,
    /// and to directories the bit.
    pub(super) fn make(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        path: &OpPath,
        kind: Kind,
        mode: u32,
    ) -> Judged<Key> {
        if path.is_empty() {
            return Err(vec![ErrorKind::Exists]);
        }
        let (parent, name) = self.place(caller, path)?;
        let mut checks = Checks::default();
        self.may_create(caller, parent, name, &mut checks);
        checks.finish()?;
        let above = self.inode(parent);
        let inherits = above.mode & 0o2000 != 0;
        let gid = if inherits { above.gid } else { caller.gid };
        let mode = if inherits && kind == Kind::Directory { mode | 0o2000 } else { mode };
        let subvol = above.subvol;
        let key = self.blank(now, subvol, kind, mode, (caller.uid, gid));
        self.inode_mut(key).parent = parent;
        self.inode_mut(parent).entries.insert(name.to_vec(), key);
        self.touch(parent, now);
        Ok(key)
    }

    pub(super) fn readlink(&self, caller: &Caller, path: &OpPath) -> Judged<Effect> {
        let key = self.resolve(caller, path)?;
        let inode = self.inode(key);
        if inode.kind == Kind::Symlink {
            Ok(Effect::Bytes(inode.bytes.to_vec()))
        } else {
            Err(vec![ErrorKind::InvalidArgument])
        }
    }

    pub(super) fn link(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        from: &OpPath,
        to: &OpPath,
    ) -> Judged<Effect> {
        let source = match self.resolve(caller, from) {
            Err(mut kinds) if from.last().is_some_and(|name| name.len() > NAME_BYTES_MAX) => {
                kinds.push(ErrorKind::NameTooLong);
                return Err(kinds);
            }
            source => source?,
        };
        if to.is_empty() {
            return Err(vec![ErrorKind::Exists]);
        }
        let (parent, name) = self.place(caller, to)?;
        let mut checks = Checks::default();
        self.may_create(caller, parent, name, &mut checks);
        let directory = self.inode(source).kind == Kind::Directory;
        checks.require(!directory, ErrorKind::NotPermitted);
        let same = self.inode(source).subvol == self.inode(parent).subvol;
        checks.require(same, ErrorKind::CrossSubvolume);
        checks.finish()?;
        self.inode_mut(parent).entries.insert(name.to_vec(), source);
        self.touch(parent, now);
        let inode = self.inode_mut(source);
        inode.names += 1;
        inode.ctime = now;
        Ok(Effect::Stat(self.stat(source)))
    }

    pub(super) fn unlink(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        path: &OpPath,
    ) -> Judged<Effect> {
        if path.is_empty() {
            return Err(vec![ErrorKind::IsDirectory]);
        }
        let (parent, name, entry) = self.entry(caller, path)?;
        let mut checks = Checks::default();
        self.may_remove(caller, parent, entry, &mut checks);
        checks.require(self.inode(entry).kind != Kind::Directory, ErrorKind::IsDirectory);
        checks.finish()?;
        self.inode_mut(parent).entries.remove(name);
        self.touch(parent, now);
        self.drop_name(entry, now);
        Ok(Effect::Done)
    }

    /// Removes one name of something that is not a directory.
    pub(super) fn drop_name(&mut self, key: Key, now: Timestamp) {
        let inode = self.inode_mut(key);
        inode.names -= 1;
        inode.ctime = now;
    }

    pub(super) fn rmdir(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        path: &OpPath,
    ) -> Judged<Effect> {
        if path.is_empty() {
            return Err(vec![ErrorKind::Busy]);
        }
        let (parent, name, entry) = self.entry(caller, path)?;
        let mut checks = Checks::default();
        self.may_remove(caller, parent, entry, &mut checks);
        checks.require(self.inode(entry).kind == Kind::Directory, ErrorKind::NotDirectory);
        checks.require(self.inode(entry).entries.is_empty(), ErrorKind::NotEmpty);
        checks.finish()?;
        self.inode_mut(parent).entries.remove(name);
        self.touch(parent, now);
        Ok(Effect::Done)
    }

    pub(super) fn list(&self, caller: &Caller, path: &OpPath) -> Judged<Effect> {
        let key = self.resolve(caller, path)?;
        if self.inode(key).kind != Kind::Directory {
            return Err(vec![ErrorKind::NotDirectory]);
        }
        if !self.may(caller, key, 4) {
            return Err(vec![ErrorKind::AccessDenied]);
        }
        let entries = self.inode(key).entries.iter();
        let listed = entries
            .map(|(name, &key)| Listed { name: name.clone(), kind: self.inode(key).kind })
            .collect();
        Ok(Effect::List(listed))
    }
}
