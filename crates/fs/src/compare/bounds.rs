//! What a comparison may keep in memory: parts of what its caller gives.

use inode::FsError;
use vfs::FsResult;

/// Bytes of an inode that is noted, with its place in the map.
const NOTED_BYTES: usize = 128;
/// Bytes of a name beside its letters.
const NAME_BYTES: usize = 48;
/// Bytes of a mounted subvolume beside its name and its path.
const MOUNT_BYTES: usize = 256;

/// The parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Most inodes that are noted at one time: others are noted in another pass.
    pub(super) inodes: usize,
    /// Bytes of changes that are sorted at one time: others are another run.
    pub(super) sorted_bytes: usize,
    /// Most directories that wait in a walk.
    pub(super) waiting: usize,
    /// Bytes of names of one inode.
    pub(super) names_bytes: usize,
    /// Bytes of subvolumes that are mounted below and differ.
    pub(super) mounts_bytes: usize,
}

impl Bounds {
    /// Half of the memory sorts, a quarter notes, and the rest is for what cannot be divided.
    pub(super) fn of(memory: usize) -> Bounds {
        Bounds {
            inodes: (memory / 4 / NOTED_BYTES).max(2),
            sorted_bytes: memory / 2,
            waiting: memory / 16 / size_of::<u64>(),
            names_bytes: memory / 8,
            mounts_bytes: memory / 16,
        }
    }

    /// Refuses directories that wait beyond the bound.
    pub(super) fn check_waiting(&self, waiting: usize) -> FsResult<()> {
        within(
            waiting,
            self.waiting,
            "a comparison of so many directories takes more memory than allowed",
        )
    }

    /// Counts a name of an inode.
    pub(super) fn take_name(&self, taken: &mut usize, name: &[u8]) -> FsResult<()> {
        *taken += NAME_BYTES + name.len();
        within(
            *taken,
            self.names_bytes,
            "a comparison of a file with so many names takes more memory than allowed",
        )
    }

    /// Counts a mounted subvolume by the bytes of its name and path.
    pub(super) fn take_mount(&self, taken: &mut usize, bytes: usize) -> FsResult<()> {
        *taken += MOUNT_BYTES + bytes;
        within(
            *taken,
            self.mounts_bytes,
            "a comparison of so many subvolumes takes more memory than allowed",
        )
    }
}

fn within(taken: usize, most: usize, what: &'static str) -> FsResult<()> {
    if taken > most { Err(FsError::MemoryExceeded(what)) } else { Ok(()) }
}
