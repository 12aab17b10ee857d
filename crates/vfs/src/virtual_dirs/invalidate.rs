//! Notifications of the file system below, for a front end that also sees virtual directories.

use std::sync::Arc;

use device::sync::Mutex;
use inode::NodeId;

use super::snapshots;
use crate::Invalidate;

/// Passes notifications on.
pub(super) struct Forward {
    pub(super) to: Arc<dyn Invalidate>,
    /// Name of the directories of snapshots.
    pub(super) snapshots: Vec<u8>,
    /// The directory that the mount shows as its root.
    pub(super) shown: Arc<Mutex<NodeId>>,
}

impl Invalidate for Forward {
    fn entry(&self, parent: NodeId, name: &[u8]) {
        self.to.entry(parent, name);
    }

    fn let_go(&self, parent: NodeId, name: &[u8]) {
        self.to.let_go(parent, name);
    }

    fn let_go_below(&self, directory: NodeId) {
        self.to.let_go(directory, &self.snapshots);
        self.to.let_go_below(directory);
    }

    fn snapshot(&self, directory: NodeId, name: &[u8]) {
        self.to.entry(snapshots::node_of(directory), name);
        self.to.snapshot(directory, name);
    }

    fn node(&self, node: NodeId) {
        self.to.node(node);
    }

    fn attributes(&self, node: NodeId) {
        self.to.attributes(node);
    }

    fn attributes_before_answer(&self, node: NodeId) {
        self.to.attributes_before_answer(node);
    }

    fn root(&self, old: NodeId, new: NodeId) {
        {
            let mut shown = self.shown.lock();
            if *shown == old {
                *shown = new;
            }
        }
        self.to.root(old, new);
    }

    fn all_names(&self) {
        self.to.all_names();
    }
}
