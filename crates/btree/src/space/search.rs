//! Where the search for free units is, which continues from one node to the next.

/// Shortest runs that are used, by how often no longer one was found. For most disks 256 KiB are as
/// good as any longer run; the last is a node's.
pub(super) const RUN_UNITS: [u16; 4] = [256, 64, 16, 1];
/// The longest of them.
pub(super) const LONG_UNITS: usize = RUN_UNITS[0] as usize;

/// The state of the search for space.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// The next unit of the present run, and its end.
    pub(super) run: (u64, u64),
    /// Group and index from which the search for the next run begins.
    pub(super) from: (u64, usize),
    /// Index into `RUN_UNITS`.
    pub(super) patience: usize,
}

impl Search {
    /// A search that accepts holes of any length: on a full disk, growing the file is what fails.
    pub(super) fn frugal() -> Search {
        Search { patience: RUN_UNITS.len() - 1, ..Search::default() }
    }
}
