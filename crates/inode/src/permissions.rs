//! Permission rules: permission bits with supplementary groups, access control lists, the sticky
//! bit, changes of attributes. Every such rule of the namespace and of search is here, once. Rules
//! of extended attributes by their name space are in `ops`, `posix/xattr`.
//!
//! An access list is read only if it is decisive: the caller passes a function that reads it.
//!
//! [`Enforce::Kernel`] skips the plain permission-bit checks, which the kernel makes under
//! `default_permissions` before it sends the request; everything else is checked in any case.

use format::acl::Acl;

use crate::{Caller, Enforce, FsError, Kind, SetAttr, SetTime};

/// Permission to read.
pub const READ: u32 = 4;
/// Permission to write.
pub const WRITE: u32 = 2;
/// Permission to execute, or to search a directory.
pub const EXECUTE: u32 = 1;

/// Set-user-id bit.
pub const SET_UID: u32 = 0o4000;
/// Set-group-id bit.
pub const SET_GID: u32 = 0o2000;
/// Sticky bit.
pub const STICKY: u32 = 0o1000;
/// Set beside the bits that callers see: an access control list adds to them.
pub const HAS_ACL: u32 = format::acl::IN_MODE;
/// The bits that callers see.
pub const MODE_BITS: u32 = 0o7777;

/// The inputs of a permission check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owned {
    /// Its type.
    pub kind: Kind,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits with set-id and sticky, and [`HAS_ACL`].
    pub mode: u32,
}

impl Owned {
    /// Whether the caller is the owner, or root.
    pub fn is_owner(&self, caller: &Caller) -> bool {
        caller.is_root() || caller.uid == self.uid
    }

    /// Whether the caller may do all of `mask`, regardless of [`Enforce`]; `None` if the access
    /// list decides.
    ///
    /// As in Linux, a list with an empty mask is not consulted. Then the bits of the group class
    /// are empty, and a user or group named only in the list counts as other.
    pub fn decide(&self, caller: &Caller, mask: u32) -> Option<bool> {
        if caller.is_root() {
            // Root reads and writes anything, and executes what any user may execute.
            let executes = self.kind == Kind::Directory || self.mode & 0o111 != 0;
            return Some(mask & EXECUTE == 0 || executes);
        }
        let bits = if caller.uid == self.uid {
            self.mode >> 6
        } else if self.mode & HAS_ACL != 0 && self.mode & 0o070 != 0 {
            return None;
        } else if caller.in_group(self.gid) {
            self.mode >> 3
        } else {
            self.mode
        };
        Some(bits & 7 & mask == mask)
    }

    /// Whether the caller may do all of `mask`, regardless of [`Enforce`]. `acl` reads the access
    /// list.
    #[inline]
    pub fn allows<E>(
        &self,
        caller: &Caller,
        mask: u32,
        acl: impl FnOnce() -> Result<Acl, E>,
    ) -> Result<bool, E> {
        match self.decide(caller, mask) {
            Some(decided) => Ok(decided),
            None => Ok(self.listed(caller, mask, &acl()?)),
        }
    }

    /// Whether an access list allows all of `mask` to a caller that is not the owner: the algorithm
    /// of acl(5).
    fn listed(&self, caller: &Caller, mask: u32, acl: &Acl) -> bool {
        let most = acl.mask.unwrap_or(7);
        if let Some((_, given)) = acl.users.iter().find(|(uid, _)| *uid == caller.uid) {
            return given & most & mask == mask;
        }
        let owning = caller.in_group(self.gid).then_some(acl.group);
        let named = acl.groups.iter().filter(|(gid, _)| caller.in_group(*gid));
        let mut groups = owning.into_iter().chain(named.map(|(_, given)| *given)).peekable();
        if groups.peek().is_none() {
            return acl.other & mask == mask;
        }
        // One group must grant all of them: two that grant half each are not enough.
        groups.any(|given| given & most & mask == mask)
    }

    /// Checks permissions, unless the kernel did. `acl` reads the access list.
    #[inline]
    pub fn check(
        &self,
        caller: &Caller,
        mask: u32,
        acl: impl FnOnce() -> Result<Acl, FsError>,
    ) -> Result<(), FsError> {
        if caller.enforce == Enforce::Kernel || self.allows(caller, mask, acl)? {
            Ok(())
        } else {
            Err(FsError::AccessDenied)
        }
    }

    /// Checks whether a name may be removed from this directory. From a sticky one, only the owner
    /// of the directory or of the removed object may remove it.
    pub fn check_removal(
        &self,
        caller: &Caller,
        victim_uid: u32,
        acl: impl FnOnce() -> Result<Acl, FsError>,
    ) -> Result<(), FsError> {
        self.check(caller, WRITE | EXECUTE, acl)?;
        let sticky = self.mode & STICKY != 0;
        if sticky && !self.is_owner(caller) && caller.uid != victim_uid {
            return Err(FsError::NotPermitted("the directory is sticky"));
        }
        Ok(())
    }

    /// Checks a change of attributes and returns mode, owner and group after it.
    pub fn change(
        &self,
        caller: &Caller,
        changes: &SetAttr,
        acl: &dyn Fn() -> Result<Acl, FsError>,
    ) -> Result<Owned, FsError> {
        let mut after = *self;
        self.change_owner(caller, changes, &mut after)?;
        if let Some(mode) = changes.mode {
            if !self.is_owner(caller) {
                return Err(FsError::NotPermitted("only the owner changes the mode"));
            }
            after.mode = mode & MODE_BITS | self.mode & HAS_ACL;
            if !caller.is_root() && !caller.may_be_in(after.gid) {
                after.mode &= !SET_GID;
            }
        }
        self.check_times(caller, changes, acl)?;
        if changes.size.is_some() {
            match self.kind {
                Kind::File => self.check(caller, WRITE, acl)?,
                Kind::Directory => return Err(FsError::IsDirectory),
                _ => return Err(FsError::InvalidArgument("only files have a length to set")),
            }
            if changes.mode.is_none() && caller.ends_set_id() {
                after.mode = without_set_id(after.mode);
            }
        }
        Ok(after)
    }

    fn change_owner(
        &self,
        caller: &Caller,
        changes: &SetAttr,
        after: &mut Owned,
    ) -> Result<(), FsError> {
        if let Some(uid) = changes.uid {
            if !(caller.is_root() || caller.uid == self.uid && uid == self.uid) {
                return Err(FsError::NotPermitted("only root changes the owner"));
            }
            after.uid = uid;
        }
        if let Some(gid) = changes.gid {
            let member = caller.uid == self.uid && (gid == self.gid || caller.may_be_in(gid));
            if !caller.is_root() && !member {
                return Err(FsError::NotPermitted(
                    "the owner may set only groups that it is a member of",
                ));
            }
            after.gid = gid;
        }
        let given = changes.uid.is_some() || changes.gid.is_some();
        if given && self.kind != Kind::Directory {
            after.mode = without_set_id(after.mode);
        }
        Ok(())
    }

    fn check_times(
        &self,
        caller: &Caller,
        changes: &SetAttr,
        acl: &dyn Fn() -> Result<Acl, FsError>,
    ) -> Result<(), FsError> {
        let times = [changes.atime, changes.mtime, changes.ctime];
        if self.is_owner(caller) || times.iter().all(Option::is_none) {
            return Ok(());
        }
        // A change of the size also sets the change time; otherwise only the owner may set a single
        // time, even to now.
        let is_touch =
            changes.size.is_some() || (changes.atime.is_some() && changes.mtime.is_some());
        if is_touch && times.iter().flatten().all(|time| *time == SetTime::Now) {
            self.check(caller, WRITE, acl)
        } else {
            Err(FsError::NotPermitted("only the owner sets times"))
        }
    }
}

/// The mode after a change of the owner, or of contents by a caller that may not keep these bits.
/// It is without set-user-id, and without set-group-id where that means execution and not locking.
pub fn without_set_id(mode: u32) -> u32 {
    let mode = mode & !SET_UID;
    if mode & 0o010 != 0 { mode & !SET_GID } else { mode }
}

/// The mode when the access list is lost. The owning group's permissions are lost with it: the bits
/// of the group class were the mask, so that group gets none.
pub fn without_lost_list(mode: u32) -> u32 {
    if mode & HAS_ACL == 0 { mode } else { mode & !(HAS_ACL | 0o070) }
}

#[cfg(test)]
mod tests;
