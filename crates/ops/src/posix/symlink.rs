//! `symlink`: a name that contains another path.

use inode::{Caller, FsError, Kind, NodeId, SYMLINK_BYTES_MAX};
use vfs::{Entry, FsResult, NewNode};

use crate::Ops;
use crate::policy::Policy;

/// Makes a symbolic link.
pub fn symlink(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    parent: NodeId,
    name: &[u8],
    target: &[u8],
) -> FsResult<Entry> {
    check_target(target)?;
    let new = NewNode { kind: Kind::Symlink, mode: 0o777, rdev: 0 };
    super::mknod::make(fs, policy, caller, parent, name, &new, Some(target))
}

/// Refuses what cannot be the target of a link.
pub(crate) fn check_target(target: &[u8]) -> FsResult<()> {
    if target.is_empty() {
        return Err(FsError::NotFound);
    }
    if target.len() > SYMLINK_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    if target.contains(&0) {
        return Err(FsError::InvalidArgument("a link target must not contain NUL"));
    }
    Ok(())
}
