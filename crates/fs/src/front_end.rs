//! What front ends see of a volume: it, below virtual directories. (The notices that they get begin
//! in `volume::Core` and go through `VirtualDirs`.) The floors below do not know the name under
//! which snapshots are shown, and get it where they make paths.

use std::sync::Arc;

use format::volume::VolumeHeader;
use inode::NodeId;
use ops::path_of::PathPart;
use vfs::{FsResult, VirtualDirs};

use crate::Fs;

/// A volume as front ends see it.
pub type Volume = VirtualDirs<Fs>;

impl Fs {
    /// The volume as front ends see it, with a directory of snapshots in every directory.
    pub fn with_virtual_dirs(self: &Arc<Fs>) -> Volume {
        VirtualDirs::new(Arc::clone(self), Arc::clone(&self.env.clock), self.snapshot_dir())
    }

    /// Name of the hidden directory of snapshots that every directory has.
    pub fn snapshot_dir(&self) -> &[u8] {
        snapshot_dir(&self.header)
    }

    /// The path of a directory from the volume's root; `None` if none points to it, for example if
    /// it was removed or is being moved. The path may contain names that a user may not see. So a
    /// caller that answers a user must first resolve the path with that user's rights.
    pub fn path_of(&self, node: NodeId) -> FsResult<Option<Vec<u8>>> {
        let Some(parts) = self.parts_of_path(node)? else { return Ok(None) };
        let mut path: Vec<u8> = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(match part {
                PathPart::Name(name) => name,
                PathPart::Snapshots => self.snapshot_dir(),
            });
        }
        Ok(Some(if path.is_empty() { b"/".to_vec() } else { path }))
    }

    /// The path of the source of a node's subvolume, if that is a copy and the source still exists.
    /// The source is that of a clone or a snapshot, or the snapshot that was rolled back to. The
    /// same caution applies.
    pub fn copied_from(&self, node: NodeId) -> FsResult<Option<Vec<u8>>> {
        self.source_of(node)?.map_or(Ok(None), |source| self.path_of(source))
    }
}

/// The name of directories of snapshots in a volume with this header.
pub(crate) fn snapshot_dir(header: &VolumeHeader) -> &[u8] {
    &header.snapshot_dir
}
