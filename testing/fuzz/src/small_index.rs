//! The index of a small volume: clusters of a few rows, and new bases after a few changes. The
//! tests of `fs` include this file, too.

use std::time::Duration;

use search::index::{ClusterLimits, FlushPolicy, IndexOptions};

/// Its options.
pub(crate) fn small_index() -> IndexOptions {
    IndexOptions {
        limits: ClusterLimits { directories: 4, rows: 10 },
        rows_without_base: 20,
        flush: FlushPolicy {
            share_percent: 25,
            rows_min: 8,
            commits: 10,
            interval: Duration::from_millis(100),
            space_min: 0,
            space_max: 0,
            ..FlushPolicy::default()
        },
        ..IndexOptions::default()
    }
}
