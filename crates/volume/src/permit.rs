//! Permissions of stored objects: `inode::permissions` has the rules. This module reads the access
//! control lists that the rules need, and determines what a new inode inherits.

use format::acl::{ACCESS, Acl, DEFAULT};
use format::directory_record::DirectoryRecord;
use format::inode_record::FileKind;
use format::key::{self, Part};
use format::xattr_record::XattrRecord;
use inode::permissions::{HAS_ACL, MODE_BITS, SET_GID};
use inode::{Caller, FsError, NodeId};
use vfs::FsResult;

use crate::error::{inconsistent, malformed};
use crate::load::{Inode, load_xattrs};
use crate::view::View;
use crate::{Core, attributes};

/// Checks a caller's access to a directory, unless the kernel does.
#[inline]
pub fn directory(
    view: View<'_>,
    ino: u64,
    record: &DirectoryRecord,
    caller: &Caller,
    mask: u32,
) -> FsResult<()> {
    attributes::owned_directory(record).check(caller, mask, || of_directory(view, ino))
}

/// How often an unchanged record is read while its list is not there.
const LOOKS: usize = 16;

/// Like `directory`, without a lock that keeps the record and its list together. Returns the record
/// that it decided by; `None`: the directory is gone.
#[inline]
pub fn unlocked_directory(
    view: View<'_>,
    ino: u64,
    mut record: DirectoryRecord,
    caller: &Caller,
    mask: u32,
) -> FsResult<Option<DirectoryRecord>> {
    let mut looks = 0;
    loop {
        match directory(view, ino, &record, caller, mask) {
            // The list may have been removed, with or without the directory, since the record was
            // read. It may have been added again, within one tick of the clock.
            Err(error @ FsError::Io(_)) => match view.directory(ino)? {
                None => return Ok(None),
                Some(again) if again == record => {
                    looks += 1;
                    if looks == LOOKS {
                        return Err(error);
                    }
                }
                Some(again) => (record, looks) = (again, 0),
            },
            result => return result.map(|()| Some(record)),
        }
    }
}

/// Checks whether a caller may remove a name from a directory that points to an object of
/// `victim_uid`.
#[inline]
pub fn removal(
    view: View<'_>,
    ino: u64,
    record: &DirectoryRecord,
    caller: &Caller,
    victim_uid: u32,
) -> FsResult<()> {
    let owned = attributes::owned_directory(record);
    owned.check_removal(caller, victim_uid, || of_directory(view, ino))
}

/// The access list of a directory that has one.
#[cold]
fn of_directory(view: View<'_>, ino: u64) -> FsResult<Acl> {
    access_list(view, ino, &view.xattrs(&key::directory(ino, Part::Xattrs))?)
}

/// The access list of an inode that has one.
#[cold]
pub fn of_inode(fs: &Core, view: View<'_>, node: NodeId, ino: u64, inode: &Inode) -> FsResult<Acl> {
    access_list(view, ino, &load_xattrs(fs, view, node, ino, inode)?)
}

fn access_list(view: View<'_>, ino: u64, xattrs: &XattrRecord) -> FsResult<Acl> {
    list(view, ino, xattrs, ACCESS)?
        .ok_or_else(|| inconsistent(view.tree, "an access list is missing", ino))
}

/// A list among extended attributes.
pub fn list(view: View<'_>, ino: u64, xattrs: &XattrRecord, name: &[u8]) -> FsResult<Option<Acl>> {
    let Some(bytes) = xattrs.get(name) else { return Ok(None) };
    let acl = Acl::decode(bytes).map_err(|error| malformed(view.tree, &error))?;
    let empty = || inconsistent(view.tree, "an access list without entries", ino);
    acl.map(Some).ok_or_else(empty)
}

/// What a new inode takes from the directory in which it is created, and from its creator.
pub struct Inherited {
    /// Its group.
    pub gid: u32,
    /// Its mode.
    pub mode: u32,
    /// Its extended attributes.
    pub xattrs: Option<XattrRecord>,
}

/// Group, mode and access lists of an inode that is created in a directory.
///
/// A set-group-id directory hands its group down, and to directories the bit as well. A default
/// list becomes the list of the new inode, limited by the requested mode, and the umask is ignored;
/// directories hand it on.
#[inline]
pub fn inherit(
    view: View<'_>,
    caller: &Caller,
    (dir, directory): (u64, &DirectoryRecord),
    mode: u32,
    kind: FileKind,
) -> FsResult<Inherited> {
    inherit_list(caller, directory, (mode, kind), || {
        if !directory.has_xattrs {
            return Ok(None);
        }
        let above = view.xattrs(&key::directory(dir, Part::Xattrs))?;
        list(view, dir, &above, DEFAULT)
    })
}

/// As `inherit`, from a directory whose default list is read by `default`.
#[inline]
pub fn inherit_list(
    caller: &Caller,
    directory: &DirectoryRecord,
    (mode, kind): (u32, FileKind),
    default: impl FnOnce() -> FsResult<Option<Acl>>,
) -> FsResult<Inherited> {
    let (gid, mode) = group_and_mode(caller, directory, mode & MODE_BITS, kind);
    if kind == FileKind::Symlink {
        return Ok(Inherited { gid, mode, xattrs: None });
    }
    if let Some(acl) = default()? {
        let (mode, xattrs) = hand_down(acl, mode, kind);
        return Ok(Inherited { gid, mode, xattrs });
    }
    Ok(Inherited { gid, mode: mode & !caller.umask, xattrs: None })
}

#[cold]
fn hand_down(acl: Acl, mode: u32, kind: FileKind) -> (u32, Option<XattrRecord>) {
    let mut xattrs = XattrRecord::default();
    if kind == FileKind::Directory {
        xattrs.set(DEFAULT, &acl.encode());
    }
    let mut access = acl;
    access.set_mode(access.mode() & mode);
    let mut mode = mode & !0o777 | access.mode();
    if !access.is_minimal() {
        xattrs.set(ACCESS, &access.encode());
        mode |= HAS_ACL;
    }
    (mode, (!xattrs.is_empty()).then_some(xattrs))
}

fn group_and_mode(
    caller: &Caller,
    directory: &DirectoryRecord,
    mode: u32,
    kind: FileKind,
) -> (u32, u32) {
    if directory.mode & SET_GID == 0 {
        return (caller.gid, mode);
    }
    let gid = directory.gid;
    if kind == FileKind::Directory {
        return (gid, mode | SET_GID);
    }
    // Only members of the group create a program that runs with the group's rights.
    let stranger = !caller.is_root() && !caller.in_group(gid);
    let strip = stranger && mode & SET_GID != 0 && mode & 0o010 != 0;
    (gid, if strip { mode & !SET_GID } else { mode })
}
