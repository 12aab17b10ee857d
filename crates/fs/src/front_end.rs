//! What front ends see of a volume: it, below virtual directories. (The notices that they get begin
//! in `volume::Core` and go through `VirtualDirs`.)

use std::sync::Arc;

use vfs::VirtualDirs;

use crate::Fs;

/// A volume as front ends see it.
pub type Volume = VirtualDirs<Fs>;

impl Fs {
    /// The volume as front ends see it, with a directory of snapshots in every directory.
    pub fn with_virtual_dirs(self: &Arc<Fs>) -> Volume {
        VirtualDirs::new(Arc::clone(self), Arc::clone(&self.env.clock), &self.header.snapshot_dir)
    }
}
