//! Extended attributes: who may see and set which, and how large they may be.
//!
//! `user.` follows the permission bits of files and directories, and of sticky directories the
//! owner; `trusted.` is root's; `security.` is read by all and set by root. Access control lists
//! (`system.`) are not supported, and say so.

use format::xattr_record::{NAME_BYTES_MAX, TOTAL_BYTES_MAX, VALUE_BYTES_MAX, XattrRecord};
use inode::permissions::{READ, STICKY, WRITE};
use inode::{Caller, FsError, Kind, NodeId, Owned};

use super::totals::{self, Total};
use crate::edit::{Edit, edit};
use crate::load::{Inode, load, load_xattrs};
use crate::locks::Lock;
use crate::view::View;
use crate::{Fs, FsResult, SetXattr, snapdir};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    User,
    Trusted,
    Security,
}

/// One extended attribute.
pub(crate) fn getxattr(fs: &Fs, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<Vec<u8>> {
    if let Some(total) = Total::of(name) {
        return totals::get(fs, caller, node, total);
    }
    let space = space_of(name)?;
    let (owned, xattrs) = read(fs, node)?;
    match space {
        Space::User if !bears_user(&owned) => return Err(FsError::NoAttribute),
        Space::User => owned.check(caller, READ)?,
        Space::Trusted if !caller.is_root() => return Err(FsError::NoAttribute),
        Space::Trusted | Space::Security => {}
    }
    xattrs.get(name).map(<[u8]>::to_vec).ok_or(FsError::NoAttribute)
}

/// The names that the caller may see, each closed by NUL.
pub(crate) fn listxattr(fs: &Fs, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
    let (_, xattrs) = read(fs, node)?;
    let mut names = Vec::new();
    for (name, _) in xattrs.iter() {
        if caller.is_root() || space_of(name).is_ok_and(|space| space != Space::Trusted) {
            names.extend_from_slice(name);
            names.push(0);
        }
    }
    Ok(names)
}

/// Sets an extended attribute.
pub(crate) fn setxattr(
    fs: &Fs,
    caller: &Caller,
    node: NodeId,
    name: &[u8],
    value: &[u8],
    mode: SetXattr,
) -> FsResult<()> {
    if snapdir::is_virtual(node) {
        return Err(FsError::NotPermitted("a directory of snapshots"));
    }
    if Total::of(name).is_some() {
        return Err(FsError::NotPermitted("totals of directories are not set"));
    }
    let space = space_of(name)?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(FsError::Range);
    }
    edit(fs, node, |edit| {
        check_set(&edit.inode.owned(), caller, space)?;
        let mut xattrs = edit.xattrs()?;
        match (mode, xattrs.get(name)) {
            (SetXattr::Create, Some(_)) => return Err(FsError::Exists),
            (SetXattr::Replace, None) => return Err(FsError::NoAttribute),
            _ => {}
        }
        xattrs.set(name, value);
        if xattrs.encode().len() > TOTAL_BYTES_MAX {
            return Err(FsError::NoSpace);
        }
        change(edit, xattrs);
        Ok(())
    })?;
    Ok(())
}

/// Removes an extended attribute.
pub(crate) fn removexattr(fs: &Fs, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<()> {
    if snapdir::is_virtual(node) {
        return Err(FsError::NotPermitted("a directory of snapshots"));
    }
    if Total::of(name).is_some() {
        return Err(FsError::NotPermitted("totals of directories are not set"));
    }
    let space = space_of(name)?;
    edit(fs, node, |edit| {
        check_set(&edit.inode.owned(), caller, space)?;
        let mut xattrs = edit.xattrs()?;
        if !xattrs.remove(name) {
            return Err(FsError::NoAttribute);
        }
        change(edit, xattrs);
        Ok(())
    })?;
    Ok(())
}

fn change(edit: &mut Edit<'_>, xattrs: XattrRecord) {
    let now = edit.txn.now;
    match &mut edit.inode {
        Inode::Directory(record, _) => record.ctime = now,
        Inode::File(file) => file.inode.ctime = now,
    }
    edit.set_xattrs(xattrs);
}

fn read(fs: &Fs, node: NodeId) -> FsResult<(Owned, XattrRecord)> {
    if snapdir::is_virtual(node) {
        let owned = Owned { kind: Kind::Directory, uid: 0, gid: 0, mode: 0o555 };
        return Ok((owned, XattrRecord::default()));
    }
    let (subvol, ino) = fs.place(node)?;
    let node = subvol.node(ino);
    let _object = fs.locks.shared(Lock::Object { subvol: subvol.id.0, ino });
    subvol.read(|tree| {
        let view = View::new(&*fs.store, tree);
        let inode = load(fs, view, node, ino)?;
        Ok((inode.owned(), load_xattrs(fs, view, node, ino, &inode)?))
    })
}

fn space_of(name: &[u8]) -> FsResult<Space> {
    if name.len() > NAME_BYTES_MAX {
        return Err(FsError::Range);
    }
    for (prefix, space) in [
        (&b"user."[..], Space::User),
        (b"trusted.", Space::Trusted),
        (b"security.", Space::Security),
    ] {
        if let Some(rest) = name.strip_prefix(prefix) {
            if rest.is_empty() || rest.contains(&0) {
                return Err(FsError::InvalidArgument("the name of an extended attribute"));
            }
            return Ok(space);
        }
    }
    Err(FsError::NotSupported("extended attributes of other kinds than user, trusted, security"))
}

fn check_set(owned: &Owned, caller: &Caller, space: Space) -> FsResult<()> {
    match space {
        Space::User => {
            if !bears_user(owned) {
                return Err(FsError::NotPermitted("only files and directories have user.*"));
            }
            let sticky = owned.kind == Kind::Directory && owned.mode & STICKY != 0;
            if sticky && !owned.is_owner(caller) {
                return Err(FsError::NotPermitted("the directory is sticky"));
            }
            owned.check(caller, WRITE)
        }
        Space::Trusted | Space::Security if !caller.is_root() => {
            Err(FsError::NotPermitted("only root sets this attribute"))
        }
        Space::Trusted | Space::Security => Ok(()),
    }
}

/// Whether `user.*` means anything: what everybody may write, as devices are, bears none.
fn bears_user(owned: &Owned) -> bool {
    matches!(owned.kind, Kind::File | Kind::Directory)
}
