//! `setattr`: chmod, chown, truncate and utimens.

use device::Timestamp;
use format::acl::ACCESS;
use inode::permissions::HAS_ACL;
use inode::{Attr, Caller, Kind, NodeId, SetAttr, SetTime};
use vfs::FsResult;
use volume::load::Inode;

use crate::Ops;
use crate::contents::{self, Step};
use crate::edit::{Edit, edit_answering};
use crate::policy::Policy;

/// Changes attributes, all or none.
pub fn setattr(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    node: NodeId,
    changes: &SetAttr,
) -> FsResult<Attr> {
    loop {
        let (step, attr) = edit_answering(fs, policy, node, |edit| apply(edit, caller, changes))?;
        if step == Step::Done {
            return Ok(attr);
        }
    }
}

/// The change itself, of an inode that is being edited; `Step::More`: of a part of the contents.
pub fn apply(edit: &mut Edit<'_>, caller: &Caller, changes: &SetAttr) -> FsResult<Step> {
    edit.plan.on_behalf(caller);
    let after = edit.inode.owned().change(caller, changes, &|| edit.acl())?;
    let given = changes.uid.is_some() || changes.gid.is_some();
    if given && after.kind == Kind::File {
        edit.end_capabilities(caller)?;
    }
    if let Some(size) = changes.size {
        edit.end_rights(caller)?;
        // A long file is cut in steps, from its end.
        if contents::set_size(edit, size)? == Step::More {
            return Ok(Step::More);
        }
    }
    if changes.mode.is_some() && after.mode & HAS_ACL != 0 {
        let (mut xattrs, mut acl) = (edit.xattrs()?, edit.acl()?);
        acl.set_mode(after.mode);
        xattrs.set(ACCESS, &acl.encode());
        edit.set_xattrs(xattrs);
    }
    let now = edit.plan.now;
    let at = |time: Option<SetTime>| {
        time.map(|time| match time {
            SetTime::Now => now,
            SetTime::At(Timestamp(nanos)) => nanos,
        })
    };
    let (atime, mtime, ctime) = (at(changes.atime), at(changes.mtime), at(changes.ctime));
    let btime = at(changes.btime);
    match &mut edit.inode {
        Inode::Directory(record, _) => {
            (record.mode, record.uid, record.gid) = (after.mode, after.uid, after.gid);
            record.atime = atime.unwrap_or(record.atime);
            record.mtime = mtime.unwrap_or(record.mtime);
            record.ctime = ctime.unwrap_or(now);
            record.btime = btime.unwrap_or(record.btime);
        }
        Inode::File(file) => {
            let inode = &mut file.inode;
            (inode.mode, inode.uid, inode.gid) = (after.mode, after.uid, after.gid);
            inode.atime = atime.unwrap_or(inode.atime);
            let unset = if changes.size.is_some() { now } else { inode.mtime };
            inode.mtime = mtime.unwrap_or(unset);
            inode.ctime = ctime.unwrap_or(now);
            inode.btime = btime.unwrap_or(inode.btime);
        }
    }
    Ok(Step::Done)
}
