//! Attributes and extended attributes.

use std::sync::Arc;

use device::Timestamp;
use inode::{Caller, Kind, SetAttr, SetTime};

use super::op::{OpPath, Target, XattrStyle};
use super::state::{FsModel, Judged, Key};
use super::verdict::{Checks, Effect, ErrorKind};

impl FsModel {
    pub(super) fn stat_op(&self, caller: &Caller, target: &Target) -> Judged<Effect> {
        let key = self.target(caller, target)?;
        Ok(Effect::Stat(self.stat(key)))
    }

    pub(super) fn access(&self, caller: &Caller, path: &OpPath, mask: u32) -> Judged<Effect> {
        let key = self.resolve(caller, path)?;
        let mut checks = Checks::default();
        checks.require(self.may(caller, key, mask), ErrorKind::AccessDenied);
        let writes = mask & 2 != 0;
        checks.require(!writes || !self.subvol_of(key).read_only, ErrorKind::ReadOnly);
        checks.finish()?;
        Ok(Effect::Done)
    }

    pub(super) fn setattr(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        target: &Target,
        changes: &SetAttr,
    ) -> Judged<Effect> {
        let key = self.target(caller, target)?;
        self.may_setattr(caller, key, changes)?;
        if *changes == SetAttr::default() {
            return Ok(Effect::Stat(self.stat(key)));
        }
        let is_root = caller.is_root();
        let file = self.inode(key).kind != Kind::Directory;
        let inode = self.inode_mut(key);
        if let Some(size) = changes.size {
            Arc::make_mut(&mut inode.bytes).resize(size as usize, 0);
            inode.mtime = now;
            if !is_root {
                inode.mode = without_set_ids(inode.mode);
            }
        }
        if changes.uid.is_some() || changes.gid.is_some() {
            inode.uid = changes.uid.unwrap_or(inode.uid);
            inode.gid = changes.gid.unwrap_or(inode.gid);
            if file {
                inode.mode = without_set_ids(inode.mode);
            }
        }
        if let Some(mode) = changes.mode {
            let keeps_group = is_root || caller.in_group(inode.gid);
            inode.mode = if keeps_group { mode & 0o7777 } else { mode & 0o5777 };
        }
        match changes.mtime {
            Some(SetTime::Now) => inode.mtime = now,
            Some(SetTime::At(time)) => inode.mtime = time,
            None => {}
        }
        inode.ctime = now;
        Ok(Effect::Stat(self.stat(key)))
    }

    fn may_setattr(&self, caller: &Caller, key: Key, changes: &SetAttr) -> Judged<()> {
        let inode = self.inode(key);
        let owner = self.owns(caller, key);
        let mut checks = Checks::default();
        checks.require(!self.subvol_of(key).read_only, ErrorKind::ReadOnly);
        checks.require(changes.mode.is_none() || owner, ErrorKind::NotPermitted);
        if let Some(uid) = changes.uid {
            let kept = owner && uid == inode.uid;
            checks.require(caller.is_root() || kept, ErrorKind::NotPermitted);
        }
        if let Some(gid) = changes.gid {
            let own = owner && (gid == inode.gid || caller.in_group(gid));
            checks.require(caller.is_root() || own, ErrorKind::NotPermitted);
        }
        if changes.size.is_some() {
            checks.require(inode.kind != Kind::Directory, ErrorKind::IsDirectory);
            let file = inode.kind == Kind::File || inode.kind == Kind::Directory;
            checks.require(file, ErrorKind::InvalidArgument);
            checks.require(self.may(caller, key, 2), ErrorKind::AccessDenied);
        }
        let times = [changes.atime, changes.mtime];
        // Setting only one of them takes the owner, except together with the size.
        let one = changes.size.is_none() && times.iter().flatten().count() == 1;
        if one || times.iter().flatten().any(|time| *time != SetTime::Now) {
            checks.require(owner, ErrorKind::NotPermitted);
        } else if times.iter().any(Option::is_some) {
            checks.require(owner || self.may(caller, key, 2), ErrorKind::AccessDenied);
        }
        checks.finish()
    }

    /// Whether the caller may use attributes in the namespace of `name` in this way.
    fn may_xattr(&self, caller: &Caller, key: Key, name: &[u8], mask: u32) -> Judged<()> {
        let inode = self.inode(key);
        let writes = mask & 2 != 0;
        let mut checks = Checks::default();
        checks.require(!writes || !self.subvol_of(key).read_only, ErrorKind::ReadOnly);
        if name.starts_with(b"trusted.") {
            let otherwise = if writes { ErrorKind::NotPermitted } else { ErrorKind::NoAttribute };
            checks.require(caller.is_root(), otherwise);
        } else {
            let carries = inode.kind == Kind::File || inode.kind == Kind::Directory;
            let otherwise = if writes { ErrorKind::NotPermitted } else { ErrorKind::NoAttribute };
            checks.require(carries, otherwise);
            checks.require(self.may(caller, key, mask), ErrorKind::AccessDenied);
            let sticky = inode.kind == Kind::Directory && inode.mode & 0o1000 != 0;
            let foreign = writes && sticky && !self.owns(caller, key);
            checks.require(!foreign, ErrorKind::NotPermitted);
        }
        checks.finish()
    }

    pub(super) fn getxattr(&self, caller: &Caller, path: &OpPath, name: &[u8]) -> Judged<Effect> {
        let key = self.resolve(caller, path)?;
        let value = self.inode(key).xattrs.get(name);
        if let Err(mut kinds) = self.may_xattr(caller, key, name, 4) {
            if value.is_none() {
                kinds.push(ErrorKind::NoAttribute);
            }
            return Err(kinds);
        }
        let value = value.ok_or_else(|| vec![ErrorKind::NoAttribute])?;
        Ok(Effect::Bytes(value.clone()))
    }

    pub(super) fn listxattr(&self, caller: &Caller, path: &OpPath) -> Judged<Effect> {
        let key = self.resolve(caller, path)?;
        let names = self.inode(key).xattrs.keys();
        let shown = names.filter(|name| caller.is_root() || !name.starts_with(b"trusted."));
        Ok(Effect::Names(shown.cloned().collect()))
    }

    pub(super) fn setxattr(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        path: &OpPath,
        (name, value): (&[u8], &[u8]),
        style: XattrStyle,
    ) -> Judged<Effect> {
        let key = self.resolve(caller, path)?;
        let there = self.inode(key).xattrs.contains_key(name);
        let mut checks = Checks::default();
        checks.require(!there || style != XattrStyle::Create, ErrorKind::Exists);
        checks.require(there || style != XattrStyle::Replace, ErrorKind::NoAttribute);
        both(self.may_xattr(caller, key, name, 2), checks.finish())?;
        let inode = self.inode_mut(key);
        inode.xattrs.insert(name.to_vec(), value.to_vec());
        inode.ctime = now;
        Ok(Effect::Done)
    }

    pub(super) fn removexattr(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        path: &OpPath,
        name: &[u8],
    ) -> Judged<Effect> {
        let key = self.resolve(caller, path)?;
        let mut checks = Checks::default();
        checks.require(self.inode(key).xattrs.contains_key(name), ErrorKind::NoAttribute);
        both(self.may_xattr(caller, key, name, 2), checks.finish())?;
        let inode = self.inode_mut(key);
        inode.xattrs.remove(name);
        inode.ctime = now;
        Ok(Effect::Done)
    }
}

/// The errors of both.
fn both(one: Judged<()>, two: Judged<()>) -> Judged<()> {
    match (one, two) {
        (Ok(()), Ok(())) => Ok(()),
        (one, two) => {
            let kinds = [one.err(), two.err()];
            Err(kinds.into_iter().flatten().flatten().collect())
        }
    }
}

/// Permission bits after a change that clears privileges: set-user-id always, set-group-id only if
/// the group may execute (otherwise it once meant mandatory locking).
pub(super) fn without_set_ids(mode: u32) -> u32 {
    let group = if mode & 0o010 != 0 { 0o2000 } else { 0 };
    mode & !(0o4000 | group)
}
