//! `statfs`: space and inodes, within what the policy allows at a node. A program that queries how
//! much it may write gets the right answer.

use device::Space;
use format::key;
use format::subvolume_record::UsageRecord;
use inode::{FsError, IoFailure, NAME_BYTES_MAX, NodeId};
use vfs::{FsResult, StatFs};
use volume::subvol::VOLUME;

use crate::Ops;
use crate::policy::Policy;

const BLOCK_BYTES: u64 = 4096;
/// Free space that a volume in an object store reports: nothing limits it.
const FREE_BYTES: u64 = 1 << 50;

/// The space of the disk, as far as the policy allows it at a node.
pub fn statfs_at(fs: &Ops, policy: &dyn Policy, node: NodeId) -> FsResult<StatFs> {
    Ok(policy.limit_space(node, statfs(fs)?))
}

/// The space of the disk; that of an object store is not limited.
fn space(fs: &Ops) -> FsResult<Space> {
    if fs.env.objects.is_some() {
        let used = fs.subvolume_counts()?.bytes;
        let total_bytes = FREE_BYTES.saturating_add(used);
        return Ok(Space { total_bytes, free_bytes: FREE_BYTES, reserved_bytes: 0 });
    }
    fs.env.device.space().map_err(|error| FsError::Io(IoFailure::environment(error.to_string())))
}

/// The space of the disk, and the inodes of the volume's root subvolume.
pub fn statfs(fs: &Ops) -> FsResult<StatFs> {
    let space = space(fs)?;
    // What was removed and waits to be freed counts as free: an operation that needs it gets it.
    // This excludes what stays until a segment is worth rewriting.
    let data = fs.data.stats();
    let coming = data.waiting_bytes.saturating_add(data.dead_bytes - data.stuck_bytes);
    let free = space.free_bytes.saturating_add(coming).min(space.total_bytes);
    // What is reserved for the superuser is not in use, either: `df` would count it as used.
    let unused = free.saturating_add(space.reserved_bytes).min(space.total_bytes);
    let subvol = fs.root_subvol()?.id;
    let view = volume::view::View::new(&*fs.store, VOLUME);
    let usage = match view.read(&key::usage(subvol.0), UsageRecord::decode) {
        // What damage hides is not counted.
        Err(FsError::Io(_)) if fs.kept_from().is_some() => None,
        usage => usage?,
    };
    let inodes = usage.unwrap_or_default().files.max(0) as u64;
    let left = fs.numbers.left();
    Ok(StatFs {
        block_bytes: BLOCK_BYTES as u32,
        blocks: space.total_bytes / BLOCK_BYTES,
        blocks_free: unused / BLOCK_BYTES,
        blocks_available: free / BLOCK_BYTES,
        inodes: inodes + left,
        inodes_free: left,
        name_bytes_max: NAME_BYTES_MAX as u32,
    })
}
