//! What work under way has staged and will remove. That is the hidden directories that imports
//! fill, one import each, the snapshots of dumps, and the holds of streams.

use std::collections::BTreeSet;
use std::sync::Arc;

use device::sync::Mutex;
use inode::{NodeId, SubvolId};

use super::shares::Shares;

/// What imports, dumps and streams that are under way have staged, and what imports and exports
/// remember.
pub(super) struct Staged {
    directories: Mutex<Vec<NodeId>>,
    dumps: Mutex<BTreeSet<u64>>,
    holds: Mutex<Vec<StreamHold>>,
    cut: Mutex<Vec<CutStream>>,
    links: Shares,
    held: Shares,
}

/// A hold that streams under way rely on.
pub(super) struct StreamHold {
    pub(super) snapshot: SubvolId,
    pub(super) name: Vec<u8>,
    /// How many streams do.
    pub(super) streams: usize,
    /// Whether one of them set it, and none needs it any longer than that: the last one releases
    /// it.
    pub(super) release: bool,
}

/// An increment that was cut, and whose snapshot a stream holds so that it can continue.
#[derive(PartialEq, Eq)]
pub(super) struct CutStream {
    pub(super) base: SubvolId,
    pub(super) snapshot: SubvolId,
    pub(super) name: Vec<u8>,
}

/// A hidden directory that no other import fills; dropping it ends that.
pub(super) struct Claim {
    staged: Arc<Staged>,
    node: NodeId,
}

impl Default for Staged {
    fn default() -> Staged {
        Staged {
            directories: Mutex::default(),
            dumps: Mutex::default(),
            holds: Mutex::default(),
            cut: Mutex::default(),
            links: Shares::of_exports(),
            held: Shares::of_imports(),
        }
    }
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

    /// The numbers in the names of the snapshots of dumps that are under way.
    pub(super) fn dumps(&self) -> &Mutex<BTreeSet<u64>> {
        &self.dumps
    }

    /// What exports under way remember of files with several names.
    pub(super) fn links(&self) -> &Shares {
        &self.links
    }

    /// The files that imports under way hold because more names of them may follow.
    pub(super) fn held(&self) -> &Shares {
        &self.held
    }

    /// The holds of the streams that are under way.
    pub(super) fn holds(&self) -> &Mutex<Vec<StreamHold>> {
        &self.holds
    }

    /// The increments that were cut since the daemon began. Locked after [`holds`](Self::holds).
    pub(super) fn cut(&self) -> &Mutex<Vec<CutStream>> {
        &self.cut
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.staged.directories.lock().retain(|node| *node != self.node);
    }
}
