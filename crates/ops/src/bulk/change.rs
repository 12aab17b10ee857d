//! Changes attributes of drafts, as `posix::setattr` and `posix::xattr` do those of inodes.

use device::Timestamp;
use format::acl::ACCESS;
use format::xattr_record::XattrRecord;
use inode::permissions::HAS_ACL;
use inode::{FsError, Kind, Owned, SetAttr, SetTime};
use vfs::FsResult;
use volume::attributes;

use super::draft::{DirId, Draft, FileId};
use super::state::{Bulk, Drafted, Maker};
use crate::contents::CAPABILITIES;
use crate::posix::xattr;

impl Bulk {
    /// The mode and the group of a draft.
    pub fn mode_and_group(&self, draft: Draft) -> (u32, u32) {
        let Owned { mode, gid, .. } = self.owned(draft);
        (mode, gid)
    }

    /// Whether a draft has an extended attribute.
    pub fn has_xattr(&self, draft: Draft, name: &[u8]) -> bool {
        match draft {
            Draft::Directory(dir) => self.chunk.dir(dir).xattrs.get(name).is_some(),
            Draft::File(file) => {
                let xattrs = self.chunk.file(file).xattrs.as_ref();
                xattrs.is_some_and(|xattrs| xattrs.get(name).is_some())
            }
        }
    }

    /// Sets an extended attribute.
    pub fn setxattr(
        &mut self,
        maker: &Maker<'_>,
        draft: Draft,
        name: &[u8],
        value: &[u8],
    ) -> Drafted<()> {
        let mut xattrs = self.xattrs(draft);
        let owned = self.owned(draft);
        let mode = xattr::set_drafted(maker.caller, &owned, &mut xattrs, name, value)?;
        self.set_xattrs(maker, draft, (mode, xattrs));
        let dir = self.parent_of(draft);
        self.weigh(dir, name.len() + value.len());
        Ok(())
    }

    /// Removes an access list that was inherited.
    pub fn remove_list(&mut self, maker: &Maker<'_>, draft: Draft, name: &[u8]) -> Drafted<()> {
        let mut xattrs = self.xattrs(draft);
        let owned = self.owned(draft);
        let mode = xattr::remove_drafted_list(maker.caller, &owned, &mut xattrs, name)?;
        self.set_xattrs(maker, draft, (mode, xattrs));
        Ok(())
    }

    /// Changes attributes other than the length.
    pub fn setattr(&mut self, maker: &Maker<'_>, draft: Draft, changes: &SetAttr) -> Drafted<()> {
        debug_assert!(changes.size.is_none(), "the length is set by `set_size`");
        let owned = self.owned(draft);
        let now = self.now(maker);
        let after = owned.change(maker.caller, changes, &|| self.list_of(draft))?;
        let mut xattrs = None;
        let given = changes.uid.is_some() || changes.gid.is_some();
        let ends = given && after.kind == Kind::File && maker.caller.ends.capabilities;
        if ends && self.has_xattr(draft, CAPABILITIES) {
            xattrs.get_or_insert_with(|| self.xattrs(draft)).remove(CAPABILITIES);
        }
        if changes.mode.is_some() && after.mode & HAS_ACL != 0 {
            let mut acl = self.list_of(draft)?;
            acl.set_mode(after.mode);
            xattrs.get_or_insert_with(|| self.xattrs(draft)).set(ACCESS, &acl.encode());
        }
        self.apply(maker, draft, (&after, now), changes)?;
        if let Some(xattrs) = xattrs {
            self.put_xattrs(draft, xattrs);
        }
        Ok(())
    }

    /// Charges the change to quotas, and makes it.
    fn apply(
        &mut self,
        maker: &Maker<'_>,
        draft: Draft,
        (after, now): (&Owned, i64),
        changes: &SetAttr,
    ) -> FsResult<()> {
        let at = |time: Option<SetTime>| {
            time.map(|time| match time {
                SetTime::Now => now,
                SetTime::At(Timestamp(nanos)) => nanos,
            })
        };
        let subvol = self.subvol.id.0;
        let (chunk, charging) = (&mut self.chunk, (maker.fs, maker.caller));
        match draft {
            Draft::Directory(id) => {
                let dir = chunk.dir(id);
                let (mut record, before) = (dir.record, (dir.record.uid, dir.record.gid));
                (record.mode, record.uid, record.gid) = (after.mode, after.uid, after.gid);
                record.atime = at(changes.atime).unwrap_or(record.atime);
                record.mtime = at(changes.mtime).unwrap_or(record.mtime);
                record.ctime = at(changes.ctime).unwrap_or(now);
                record.btime = at(changes.btime).unwrap_or(record.btime);
                let whose = (subvol, dir.ino);
                chunk.charge(charging, |plan| {
                    maker.policy.changes_directory(plan, whose, &record, before)
                })?;
                chunk.dir_mut(id).record = record;
            }
            Draft::File(id) => {
                let (whose, before) = ((subvol, chunk.file(id).ino), chunk.file(id).inode);
                let mut inode = before;
                (inode.mode, inode.uid, inode.gid) = (after.mode, after.uid, after.gid);
                inode.atime = at(changes.atime).unwrap_or(inode.atime);
                inode.mtime = at(changes.mtime).unwrap_or(inode.mtime);
                inode.ctime = at(changes.ctime).unwrap_or(now);
                inode.btime = at(changes.btime).unwrap_or(inode.btime);
                if maker.charges(before.charge) {
                    chunk.charge(charging, |plan| {
                        maker.policy.changes(plan, whose, (Some(&before), &mut inode), false)
                    })?;
                }
                chunk.file_mut(id).inode = inode;
            }
        }
        Ok(())
    }

    fn owned(&self, draft: Draft) -> Owned {
        match draft {
            Draft::Directory(dir) => attributes::owned_directory(&self.chunk.dir(dir).record),
            Draft::File(file) => attributes::owned(&self.chunk.file(file).inode),
        }
    }

    pub(super) fn list_of(&self, draft: Draft) -> FsResult<format::acl::Acl> {
        xattr::access_list(&self.xattrs(draft))
    }

    fn xattrs(&self, draft: Draft) -> XattrRecord {
        match draft {
            Draft::Directory(dir) => self.chunk.dir(dir).xattrs.clone(),
            Draft::File(file) => {
                self.chunk.file(file).xattrs.as_deref().cloned().unwrap_or_default()
            }
        }
    }

    /// Sets attributes, with the mode and the time that belong to that.
    fn set_xattrs(&mut self, maker: &Maker<'_>, draft: Draft, (mode, to): (u32, XattrRecord)) {
        let now = self.now(maker);
        match draft {
            Draft::Directory(dir) => {
                let record = &mut self.chunk.dir_mut(dir).record;
                (record.mode, record.ctime) = (mode, now);
            }
            Draft::File(file) => {
                let inode = &mut self.chunk.file_mut(file).inode;
                (inode.mode, inode.ctime) = (mode, now);
            }
        }
        self.put_xattrs(draft, to);
    }

    fn put_xattrs(&mut self, draft: Draft, xattrs: XattrRecord) {
        match draft {
            Draft::Directory(dir) => self.chunk.dir_mut(dir).xattrs = xattrs,
            Draft::File(file) => {
                let kept = (!xattrs.is_empty()).then(|| Box::new(xattrs));
                self.chunk.file_mut(file).xattrs = kept;
            }
        }
    }

    fn parent_of(&self, draft: Draft) -> DirId {
        DirId(match draft {
            Draft::Directory(dir) => self.chunk.dir(dir).parent,
            Draft::File(file) => self.chunk.file(file).dir,
        })
    }

    /// Refuses an operation on a draft that is no file.
    pub(super) fn refuse_other(owned: &Owned) -> FsResult<()> {
        match owned.kind {
            Kind::File => Ok(()),
            Kind::Directory => Err(FsError::IsDirectory),
            _ => Err(FsError::InvalidArgument("only files have contents")),
        }
    }

    pub(super) fn owned_file(&self, file: FileId) -> Owned {
        self.owned(Draft::File(file))
    }
}
