//! Parameters from callers: which file, its extents' owner, and the limits of a volume's data.

use std::time::Duration;

use format::extent::Stored;
use format::segment::PAGES_MAX;
use store::TreeId;

/// A file: its inode in a subvolume's tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileRef {
    /// The subvolume's tree.
    pub tree: TreeId,
    /// The inode.
    pub ino: u64,
}

/// Determines whether an extent belongs to one file alone.
///
/// The volume counts epochs; every snapshot or clone ends one. A subvolume remembers the epoch that
/// its last clone ended. No other tree can name extents that were written later
/// (`birth > last_clone`) and not reflinked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentOwner {
    /// The present epoch, which becomes the birth of new extents. After `last_clone`, or the same
    /// while a clone is being made: then new extents count as shared.
    pub birth: u64,
    /// The epoch that the last snapshot or clone of the subvolume ended; 0 when there was none.
    pub last_clone: u64,
}

impl ExtentOwner {
    /// Whether no other file can name the extent's pages.
    pub(crate) fn excludes_others(self, extent: &Stored) -> bool {
        extent.birth > self.last_clone && !extent.reflinked
    }
}

/// Limits of a volume's data. The defaults suit a local disk.
#[derive(Debug, Clone)]
pub struct Options {
    /// The volume's id, which is stored in every segment.
    pub volume: [u8; 16],
    /// Pages of a segment, at most [`PAGES_MAX`]. Tests make it small.
    pub segment_pages: u32,
    /// Unsynced bytes at which a writer syncs before it continues.
    pub unsynced_bytes_max: u64,
    /// Dead bytes of a segment that are worth punching at once. Waiting for them lets dead pages
    /// become adjacent, and whole segments die, so that fewer calls punch them.
    pub punch_bytes_min: u64,
    /// Freed bytes that may wait for their commits to become durable; beyond it the cleaner syncs
    /// the store.
    pub waiting_bytes_max: u64,
    /// Age at which dead pages are punched regardless of their number.
    pub punch_after: Duration,
    /// Percentage of dead pages at which a segment is rewritten, where punching is slow or
    /// unsupported. 35 keeps the total below 1.6 times the live data.
    pub rewrite_dead_percent: u32,
    /// Bytes up to which a file is stored in its records, from its first byte on; 0: none is.
    /// Where an object is made for each segment at each sync, a small file then costs none.
    pub inline_file_bytes: u64,
    /// If set, only blobs are durable, and not the files of the device: each sync makes a blob of
    /// each segment that was written. The value is a number above all segments that an earlier
    /// opening may have made: an object that it requested may appear at any time.
    pub upload_from: Option<u64>,
    /// Whether each change is made durable before it is answered, so that each write is as one that
    /// is followed by an fsync.
    pub synced: bool,
    /// Longest write to a fsynced file that is stored in records, where each sync makes objects.
    /// Tests make it small, so that contents get objects.
    pub inline_write_bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            volume: [0; 16],
            segment_pages: PAGES_MAX,
            unsynced_bytes_max: 64 << 20,
            punch_bytes_min: 8 << 20,
            waiting_bytes_max: 256 << 20,
            punch_after: Duration::from_secs(5),
            rewrite_dead_percent: 35,
            inline_file_bytes: 0,
            upload_from: None,
            synced: false,
            inline_write_bytes: 64 << 10,
        }
    }
}
