//! Scans, and what callers ask about removals that wait: the calls whose work is in `scan` and
//! `reclaim`, which do not know [`Upkeep`].

use inode::FsError;
use vfs::FsResult;

use crate::reclaim::Waiting;
use crate::scan::{self, Scan, ScanInfo, ScanOptions};
use crate::upkeep::Upkeep;

impl Upkeep {
    /// What the index in the volume's root records about its scans; `None` when it is no index.
    pub fn scan_info(&self) -> FsResult<Option<ScanInfo>> {
        scan::info(self)
    }

    /// Begins a scan into the volume's root, which must be empty or an index of the same source.
    /// One at a time.
    pub fn scan_begin(&self, options: &ScanOptions) -> FsResult<Scan<'_>> {
        self.scans.begin(self, options)
    }

    /// How far the removal of a tree is, by the number that the removal returned.
    pub fn reclaim_waits(&self, detached: u64) -> FsResult<Waiting> {
        self.reclaim.waits(self, detached)
    }

    /// How many of the trees that wait to be reclaimed cannot be, and why one of them cannot.
    /// `None` when all can, as far as that was tried. If there is no space to continue, that is all
    /// of them; it may be 0, when only the space of contents waits.
    pub fn stuck(&self) -> Option<(u64, FsError)> {
        let failures = &self.reclaim.failures;
        let dropping = self.store.stats().dropping;
        let trees = self.queue.detached() + dropping + u64::from(self.reclaim.is_pruning());
        let waits = trees > 0 || self.freeing_bytes() > 0;
        if waits && failures.has_no_space(self.env.clock.monotonic()) {
            return Some((trees, FsError::NoSpace));
        }
        failures.trees(dropping)
    }
}
