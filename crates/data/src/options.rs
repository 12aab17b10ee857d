//! What callers hand in: which file, whose extents, and the limits of a volume's data.

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

/// What tells whether an extent belongs to one file alone (DESIGN section 6).
///
/// The volume counts epochs; every snapshot or clone ends one. A subvolume remembers the epoch
/// that its last clone ended. Extents written later (`birth > last_clone`) and not reflinked can
/// be named by no other tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentOwner {
    /// The present epoch, which new extents are born in. After `last_clone`, or the
    /// same while a clone is being made: then what is born counts as shared.
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
    /// The volume's id, which stands in every segment.
    pub volume: [u8; 16],
    /// Pages of a segment, at most [`PAGES_MAX`]. Tests make it small.
    pub segment_pages: u32,
    /// Bytes written and not synced at which a writer syncs before it goes on.
    pub unsynced_bytes_max: u64,
    /// Dead bytes of a segment that are worth punching at once. Waiting for some lets dead pages
    /// become neighbours, and whole segments die, so that fewer calls punch them.
    pub punch_bytes_min: u64,
    /// Freed bytes that may wait for their commits to become durable; beyond it the cleaner has
    /// the store synced.
    pub waiting_bytes_max: u64,
    /// Age at which dead pages are punched however few they are.
    pub punch_after: Duration,
    /// Percentage of dead pages at which a segment is rewritten, where punching is slow or does
    /// not exist. 35 keeps the whole below 1.6 times what is live.
    pub rewrite_dead_percent: u32,
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
        }
    }
}
