//! Extended attributes: who may see and set which, and how large they may be.
//!
//! `user.` follows the permissions of files and directories; on a sticky directory it is the
//! owner's. `trusted.` is root's; `security.` is read by all and set by root. Of `system.` there
//! are the two access control lists, which the owner sets. One list goes with the mode, and is kept
//! beside it only where it grants more.

use format::acl::{ACCESS, Acl, BYTES_MAX, DEFAULT};
use format::xattr_record::{NAME_BYTES_MAX, TOTAL_BYTES_MAX, VALUE_BYTES_MAX, XattrRecord};
use inode::permissions::{HAS_ACL, READ, SET_GID, STICKY, WRITE};
use inode::{Caller, FsError, Kind, NodeId, Owned};
use vfs::{FsResult, SetXattr};
use volume::load::{Inode, load, load_xattrs};
use volume::locks::Lock;
use volume::view::View;

use super::totals::{self, Total};
use crate::Ops;
use crate::edit::{Edit, edit};
use crate::policy::Policy;

const NO_LIST: FsError = FsError::NotSupported("access control lists of symbolic links");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    User,
    Trusted,
    Security,
    /// The list that decides about permissions.
    Access,
    /// The list that a directory hands down.
    Default,
}

/// One extended attribute.
pub fn getxattr(fs: &Ops, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<Vec<u8>> {
    if let Some(total) = Total::of(name) {
        return totals::get(fs, caller, node, total);
    }
    let space = space_of(name)?;
    let (owned, xattrs) = read(fs, node)?;
    match space {
        Space::User if !bears_user(&owned) => return Err(FsError::NoAttribute),
        Space::User => owned.check(caller, READ, || access_list(&xattrs))?,
        Space::Trusted if !caller.is_root() => return Err(FsError::NoAttribute),
        Space::Access | Space::Default if owned.kind == Kind::Symlink => return Err(NO_LIST),
        Space::Trusted | Space::Security | Space::Access | Space::Default => {}
    }
    xattrs.get(name).map(<[u8]>::to_vec).ok_or(FsError::NoAttribute)
}

/// The names that the caller may see, each terminated by NUL.
pub fn listxattr(fs: &Ops, caller: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
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

/// Sets an extended attribute. `FileTooLarge`: the total would exceed what an inode may have.
pub fn setxattr(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    node: NodeId,
    name: &[u8],
    value: &[u8],
    mode: SetXattr,
) -> FsResult<()> {
    if Total::of(name).is_some() {
        return Err(FsError::NotPermitted("totals of directories cannot be set"));
    }
    let space = space_of(name)?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(FsError::Range);
    }
    edit(fs, policy, node, |edit| {
        let owned = edit.inode.owned();
        check_set(&owned, caller, space, &|| edit.acl())?;
        let mut xattrs = edit.xattrs()?;
        match (mode, xattrs.get(name)) {
            (SetXattr::Create, Some(_)) => return Err(FsError::Exists),
            (SetXattr::Replace, None) => return Err(FsError::NoAttribute),
            _ => {}
        }
        let mode = put(caller, &owned, &mut xattrs, (space, name), value)?;
        set_mode(edit, mode);
        change(edit, xattrs);
        Ok(())
    })?;
    Ok(())
}

/// Sets an attribute among those of an inode that is not stored yet; returns its mode after that.
pub(crate) fn set_drafted(
    caller: &Caller,
    owned: &Owned,
    xattrs: &mut XattrRecord,
    name: &[u8],
    value: &[u8],
) -> FsResult<u32> {
    if Total::of(name).is_some() {
        return Err(FsError::NotPermitted("totals of directories cannot be set"));
    }
    let space = space_of(name)?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(FsError::Range);
    }
    check_set(owned, caller, space, &|| access_list(xattrs))?;
    let mut changed = xattrs.clone();
    let mode = put(caller, owned, &mut changed, (space, name), value)?;
    *xattrs = changed;
    Ok(mode)
}

/// Removes a list that an inode, which is not stored yet, inherited; returns its mode after that.
pub(crate) fn remove_drafted_list(
    caller: &Caller,
    owned: &Owned,
    xattrs: &mut XattrRecord,
    name: &[u8],
) -> FsResult<u32> {
    let space = space_of(name)?;
    check_set(owned, caller, space, &|| access_list(xattrs))?;
    xattrs.remove(name);
    Ok(if space == Space::Access { owned.mode & !HAS_ACL } else { owned.mode })
}

/// Puts an attribute among those of an inode, which the caller may set; returns its mode after
/// that.
fn put(
    caller: &Caller,
    owned: &Owned,
    xattrs: &mut XattrRecord,
    (space, name): (Space, &[u8]),
    value: &[u8],
) -> FsResult<u32> {
    let mode = match space {
        Space::Access | Space::Default => set_list(owned, caller, space, xattrs, value)?,
        _ => {
            xattrs.set(name, value);
            owned.mode
        }
    };
    if xattrs.encode().len() > TOTAL_BYTES_MAX {
        // Deleting anything would not help: see `Fs::setxattr`.
        return Err(FsError::FileTooLarge);
    }
    Ok(mode)
}

/// Removes an extended attribute.
pub fn removexattr(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    node: NodeId,
    name: &[u8],
) -> FsResult<()> {
    if Total::of(name).is_some() {
        return Err(FsError::NotPermitted("totals of directories cannot be set"));
    }
    let space = space_of(name)?;
    edit(fs, policy, node, |edit| {
        let owned = edit.inode.owned();
        check_set(&owned, caller, space, &|| edit.acl())?;
        let mut xattrs = edit.xattrs()?;
        let list = matches!(space, Space::Access | Space::Default);
        // A list that is already absent satisfies a removal, as on Linux.
        if !xattrs.remove(name) && !list {
            return Err(FsError::NoAttribute);
        }
        if space == Space::Access {
            set_mode(edit, owned.mode & !HAS_ACL);
        }
        edit.removes();
        change(edit, xattrs);
        Ok(())
    })?;
    Ok(())
}

/// Sets one of the lists; returns the mode after that. A list equivalent to the mode is stored in
/// the mode alone; a list without entries is no list.
fn set_list(
    owned: &Owned,
    caller: &Caller,
    space: Space,
    xattrs: &mut XattrRecord,
    value: &[u8],
) -> FsResult<u32> {
    const INVALID: FsError = FsError::InvalidArgument("an access control list");
    const LONG: FsError =
        FsError::InvalidArgument("an access control list of more than 4,096 bytes");
    // The kernel could not read it back, and only the owner would have access.
    if value.len() > BYTES_MAX {
        return Err(LONG);
    }
    let acl = Acl::decode(value).map_err(|_| INVALID)?;
    if space == Space::Default {
        match acl {
            None => drop(xattrs.remove(DEFAULT)),
            Some(_) if owned.kind != Kind::Directory => return Err(FsError::AccessDenied),
            Some(acl) => xattrs.set(DEFAULT, &acl.encode()),
        }
        return Ok(owned.mode);
    }
    let minimal = acl.as_ref().is_none_or(Acl::is_minimal);
    let mut mode = owned.mode & !HAS_ACL;
    if let Some(acl) = &acl {
        mode = mode & !0o777 | acl.mode();
        if !caller.is_root() && !caller.may_be_in(owned.gid) {
            mode &= !SET_GID;
        }
    }
    match acl {
        Some(acl) if !minimal => {
            mode |= HAS_ACL;
            xattrs.set(ACCESS, &acl.encode());
        }
        _ => drop(xattrs.remove(ACCESS)),
    }
    Ok(mode)
}

fn set_mode(edit: &mut Edit<'_>, mode: u32) {
    match &mut edit.inode {
        Inode::Directory(record, _) => record.mode = mode,
        Inode::File(file) => file.inode.mode = mode,
    }
}

/// The access list among the attributes of an inode that has one.
pub(crate) fn access_list(xattrs: &XattrRecord) -> FsResult<Acl> {
    let damage = || FsError::Io("an access list is missing or damaged".to_owned().into());
    let bytes = xattrs.get(ACCESS).ok_or_else(damage)?;
    Acl::decode(bytes).ok().flatten().ok_or_else(damage)
}

fn change(edit: &mut Edit<'_>, xattrs: XattrRecord) {
    let now = edit.plan.now;
    match &mut edit.inode {
        Inode::Directory(record, _) => record.ctime = now,
        Inode::File(file) => file.inode.ctime = now,
    }
    edit.set_xattrs(xattrs);
}

fn read(fs: &Ops, node: NodeId) -> FsResult<(Owned, XattrRecord)> {
    let (subvol, ino) = fs.place(node)?;
    let node = subvol.node(ino);
    let _object = fs.locks.shared(Lock::Object { subvol: subvol.id.0, ino });
    subvol.read(|tree| {
        let view = View::new(&*fs.store, tree);
        let inode = load(fs, view, node, ino)?;
        Ok((inode.owned(), load_xattrs(fs, view, node, ino, &inode)?))
    })
}

/// Whether an attribute may have this name.
pub fn check_name(name: &[u8]) -> FsResult<()> {
    space_of(name).map(drop)
}

fn space_of(name: &[u8]) -> FsResult<Space> {
    if name.len() > NAME_BYTES_MAX {
        return Err(FsError::Range);
    }
    match name {
        ACCESS => return Ok(Space::Access),
        DEFAULT => return Ok(Space::Default),
        _ => {}
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
    Err(FsError::NotSupported("extended attributes of such a kind"))
}

fn check_set(
    owned: &Owned,
    caller: &Caller,
    space: Space,
    acl: &dyn Fn() -> FsResult<Acl>,
) -> FsResult<()> {
    match space {
        Space::User => {
            if !bears_user(owned) {
                return Err(FsError::NotPermitted(
                    "only files and directories have user.* attributes",
                ));
            }
            let sticky = owned.kind == Kind::Directory && owned.mode & STICKY != 0;
            if sticky && !owned.is_owner(caller) {
                return Err(FsError::NotPermitted("the directory is sticky"));
            }
            owned.check(caller, WRITE, acl)
        }
        Space::Trusted | Space::Security if !caller.is_root() => {
            Err(FsError::RootOnly("only root sets this attribute"))
        }
        Space::Access | Space::Default if owned.kind == Kind::Symlink => Err(NO_LIST),
        Space::Access | Space::Default if !owned.is_owner(caller) => {
            Err(FsError::NotPermitted("only the owner sets access control lists"))
        }
        Space::Trusted | Space::Security | Space::Access | Space::Default => Ok(()),
    }
}

/// Whether `user.*` means anything: what everybody may write, as devices are, bears none.
fn bears_user(owned: &Owned) -> bool {
    matches!(owned.kind, Kind::File | Kind::Directory)
}
