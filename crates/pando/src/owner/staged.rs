//! Which hidden directories imports are filling: one import at a time fills each.

use std::sync::Arc;

use device::sync::Mutex;
use inode::NodeId;

/// The hidden directories of the imports that are under way.
#[derive(Default)]
pub(super) struct Staged(Mutex<Vec<NodeId>>);

/// A hidden directory that no other import fills; dropping it ends that.
pub(super) struct Claim {
    staged: Arc<Staged>,
    node: NodeId,
}

impl Staged {
    /// Claims a directory; `None`: another import has it.
    pub(super) fn claim(self: &Arc<Staged>, node: NodeId) -> Option<Claim> {
        let mut claimed = self.0.lock();
        if claimed.contains(&node) {
            return None;
        }
        claimed.push(node);
        Some(Claim { staged: Arc::clone(self), node })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.staged.0.lock().retain(|node| *node != self.node);
    }
}
