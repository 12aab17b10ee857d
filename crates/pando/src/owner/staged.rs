//! What work under way has staged and will remove: the hidden directories that imports fill,
//! one import each, and the snapshots of dumps.

use std::sync::Arc;

use device::sync::Mutex;
use inode::{NodeId, SubvolId};

/// The hidden directories of the imports that are under way, and the snapshots of the dumps.
#[derive(Default)]
pub(super) struct Staged {
    directories: Mutex<Vec<NodeId>>,
    dumps: Mutex<Vec<SubvolId>>,
}

/// A hidden directory that no other import fills; dropping it ends that.
pub(super) struct Claim {
    staged: Arc<Staged>,
    node: NodeId,
}

impl Staged {
    /// Claims a directory; `None`: another import has it.
    pub(super) fn claim(self: &Arc<Staged>, node: NodeId) -> Option<Claim> {
        let mut claimed = self.directories.lock();
        if claimed.contains(&node) {
            return None;
        }
        claimed.push(node);
        Some(Claim { staged: Arc::clone(self), node })
    }

    /// The snapshots of the dumps that are under way.
    pub(super) fn dumps(&self) -> &Mutex<Vec<SubvolId>> {
        &self.dumps
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.staged.directories.lock().retain(|node| *node != self.node);
    }
}
