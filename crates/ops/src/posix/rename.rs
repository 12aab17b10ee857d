//! `rename`: moves a name, atomically, over what is at the target, or swaps the two; or leaves a
//! whiteout behind. The rules are those of `moving`; subvolumes are renamed by their own.

use inode::{Caller, NodeId};
use vfs::{FsResult, RenameMode};

use super::moving::{End, Moved, Moving};
use crate::Ops;
use crate::execute::execute;
use crate::policy::Policy;

/// Renames.
pub fn rename(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    from: (NodeId, &[u8]),
    to: (NodeId, &[u8]),
    mode: RenameMode,
) -> FsResult<()> {
    let old = fs.old_name(from.1)?.as_bytes();
    let new = fs.new_name(to.1)?.as_bytes();
    let (subvol, from_dir) = fs.place(from.0)?;
    let (other, to_dir) = fs.place(to.0)?;
    if subvol.id == other.id {
        let ends = (End::of(&fs.hash, from_dir, old), End::of(&fs.hash, to_dir, new));
        let mut moving = Moving::new(caller, ends, mode);
        if let Moved::Done = execute(fs, policy, &subvol, &mut moving)? {
            return Ok(());
        }
    }
    crate::subvolumes::rename_across(fs, policy, caller, from, to, mode)
}
