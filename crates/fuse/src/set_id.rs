//! Set-id bits and file capabilities end when a file changes hands or contents.
//!
//! The kernel leaves this to us (`FUSE_HANDLE_KILLPRIV_V2`): if it did it itself, it would have
//! to ask for the capabilities of the file before every write(2), one more request each.

use fs::{FileSystem, FsResult};
use inode::{Attr, Caller, Enforce, Kind, NodeId, SetAttr};

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;
const ANY_EXECUTE: u32 = 0o111;
const CAPABILITY: &[u8] = b"security.capability";

/// The mode that is left. Set-group-id without group execution means mandatory locking, not
/// rights, and stays.
fn without_set_id(mode: u32) -> u32 {
    let kept = mode & !SET_UID;
    if mode & GROUP_EXECUTE == 0 { kept } else { kept & !SET_GID }
}

/// Adds to a change of owner or length what it ends, and drops capabilities.
pub(crate) fn amend(
    fs: &dyn FileSystem,
    caller: &Caller,
    node: NodeId,
    changes: &mut SetAttr,
) -> FsResult<()> {
    let changes_hands = changes.uid.is_some() || changes.gid.is_some();
    // The superuser's own writes and truncations keep the bits; a change of owner never does.
    let changes_contents = changes.size.is_some() && !caller.is_root();
    if !changes_hands && !changes_contents {
        return Ok(());
    }
    let attr = fs.getattr(caller, node)?;
    if attr.kind != Kind::File {
        return Ok(());
    }
    let mode = changes.mode.unwrap_or(attr.mode);
    let kept = without_set_id(mode);
    if kept != mode {
        changes.mode = Some(kept);
    }
    drop_capability(fs, node, &attr)
}

/// Ends what a write by somebody without the right to keep it ends.
pub(crate) fn after_write(fs: &dyn FileSystem, node: NodeId) -> FsResult<()> {
    let attr = fs.getattr(&trusted(), node)?;
    let kept = without_set_id(attr.mode);
    if kept != attr.mode {
        let changes = SetAttr { mode: Some(kept), ..SetAttr::default() };
        fs.setattr(&trusted(), node, &changes)?;
    }
    drop_capability(fs, node, &attr)
}

fn drop_capability(fs: &dyn FileSystem, node: NodeId, attr: &Attr) -> FsResult<()> {
    // Only what can be run has capabilities that matter, and most writes are to other files.
    if attr.mode & ANY_EXECUTE != 0 && fs.getxattr(&trusted(), node, CAPABILITY).is_ok() {
        fs.removexattr(&trusted(), node, CAPABILITY)?;
    }
    Ok(())
}

/// Taking rights away needs none of its own.
fn trusted() -> Caller {
    Caller { enforce: Enforce::Kernel, ..Caller::root() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locking_bits_stay_and_rights_go() {
        assert_eq!(without_set_id(0o6755), 0o755);
        assert_eq!(without_set_id(0o6745), 0o2745);
        assert_eq!(without_set_id(0o1777), 0o1777);
    }
}
