//! Front ends: what they see of a volume, and the notifications that they get.

use std::sync::Arc;

use inode::NodeId;
use vfs::{Invalidate, VirtualDirs};

use crate::Fs;

/// A volume as front ends see it.
pub type Volume = VirtualDirs<Fs>;

impl Fs {
    /// The volume as front ends see it, with a directory of snapshots in every directory.
    pub fn with_virtual_dirs(self: &Arc<Fs>) -> Volume {
        VirtualDirs::new(Arc::clone(self), Arc::clone(&self.env.clock), &self.header.snapshot_dir)
    }

    /// Notifies front ends that a name points to something else now. Code that changes the volume
    /// besides a front end that caches calls this after an ordinary change; snapshots, clones and
    /// the like do it by themselves.
    pub fn invalidate_entry(&self, parent: NodeId, name: &[u8]) {
        if let Some(invalidate) = self.invalidate.read().clone() {
            let node = if parent == self.root() { NodeId::ROOT } else { parent };
            invalidate.entry(node, name);
        }
    }

    /// Notifies front ends that the name of a snapshot of a directory points to another one.
    pub(crate) fn invalidate_snapshot(&self, directory: NodeId, name: &[u8]) {
        if let Some(invalidate) = self.invalidate.read().clone() {
            invalidate.snapshot(directory, name);
        }
    }

    /// Makes front ends drop what is below a directory, if it is unused.
    pub(crate) fn let_go_below(&self, directory: NodeId) {
        if let Some(invalidate) = self.invalidate.read().clone() {
            invalidate.let_go_below(directory);
        }
    }

    /// Makes front ends drop what a name points to, if it is unused.
    pub(crate) fn let_go(&self, parent: NodeId, name: &[u8]) {
        if let Some(invalidate) = self.invalidate.read().clone() {
            invalidate.let_go(parent, name);
        }
    }

    /// Makes the mount that shows one directory as its root show another.
    pub(crate) fn follow_shown_root(&self, old: NodeId, new: NodeId) {
        self.show(new);
        if let Some(invalidate) = self.invalidate.read().clone() {
            invalidate.root(old, new);
        }
    }

    /// Notifies front ends that a node changed, like [`Fs::invalidate_entry`].
    pub fn invalidate_node(&self, node: NodeId) {
        if let Some(invalidate) = self.invalidate.read().clone() {
            let node = if node == self.root() { NodeId::ROOT } else { node };
            invalidate.node(node);
        }
    }

    /// Notifies front ends that the attributes of a node changed and its contents did not, like
    /// [`Fs::invalidate_entry`].
    pub fn invalidate_attributes(&self, node: NodeId) {
        if let Some(invalidate) = self.invalidate.read().clone() {
            let node = if node == self.root() { NodeId::ROOT } else { node };
            invalidate.attributes(node);
        }
    }

    /// Notifies front ends, before a call is answered, that it changed attributes which its answer
    /// does not carry.
    pub(crate) fn attributes_changed_unasked(&self, node: NodeId) {
        if let Some(invalidate) = self.invalidate.read().clone() {
            let node = if node == self.root() { NodeId::ROOT } else { node };
            invalidate.attributes_before_answer(node);
        }
    }

    /// Notifies front ends that any name may point to something else now.
    pub(crate) fn invalidate_all_names(&self) {
        if let Some(invalidate) = self.invalidate.read().clone() {
            invalidate.all_names();
        }
    }

    /// Whether a listener is registered.
    pub(crate) fn has_front_end(&self) -> bool {
        self.invalidate.read().is_some()
    }

    /// Registers the listener.
    pub(crate) fn register_invalidate(&self, invalidate: Arc<dyn Invalidate>) {
        *self.invalidate.write() = Some(invalidate);
    }
}
