//! Selects runs to relocate out of sparse blobs, to free the space of the blob: a pure function.
//!
//! If parts of a blob cannot be freed, a small live run keeps the space of all dead runs beside it.
//! That is so in an object store, or on a disk without holes. The engine rewrites the live runs of
//! such a blob into blobs of their own, one run a merge. It does so as soon as that writes no more
//! than it frees. The cost counts the runs of the same blob, and a manifest for each of them.

use std::collections::BTreeMap;

use crate::layer::LayerId;

/// What is known of the live runs of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hosted {
    /// How many there are.
    pub(crate) runs: u64,
    /// Bytes of all of them, and of the longest.
    pub(crate) bytes: u64,
    pub(crate) longest_bytes: u64,
    pub(crate) shortest: LayerId,
}

/// Least dead bytes of a blob that justify a merge.
const DEAD_BYTES_MIN: u64 = 256 << 10;
/// Estimated bytes of both manifests for each of their runs.
const RUN_BYTES: u64 = 2 * 64;

/// The next run to rewrite, if there is one, among this many runs in total. `dead` has the bytes of
/// each blob that nothing needs. A run of more than `bytes_max` does not fit or is too long.
pub(crate) fn pick(
    runs: u64,
    hosted: impl Fn(u64) -> Option<Hosted>,
    dead: &BTreeMap<u64, u64>,
    bytes_max: u64,
) -> Option<LayerId> {
    let manifest = runs.saturating_mul(RUN_BYTES);
    let mut by_dead: Vec<(u64, u64)> = dead.iter().map(|(&blob, &dead)| (dead, blob)).collect();
    by_dead.sort_unstable_by(|a, b| b.cmp(a));
    let worth = by_dead.into_iter().take_while(|(dead, _)| *dead >= DEAD_BYTES_MIN);
    worth.into_iter().find_map(|(dead, blob)| {
        let there = hosted(blob)?;
        let costs = there.bytes.saturating_add(there.runs.saturating_mul(manifest));
        let pays = costs <= dead && there.longest_bytes <= bytes_max;
        pays.then_some(there.shortest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Picks among runs that are passed as number, blob and bytes.
    fn picked(
        runs: &[(LayerId, u64, u64)],
        dead: &BTreeMap<u64, u64>,
        bytes_max: u64,
    ) -> Option<LayerId> {
        let hosted = |blob: u64| {
            let there = || runs.iter().filter(|run| run.1 == blob);
            Some(Hosted {
                runs: there().count() as u64,
                bytes: there().map(|run| run.2).sum(),
                longest_bytes: there().map(|run| run.2).max()?,
                shortest: there().min_by_key(|run| (run.2, run.0))?.0,
            })
        };
        pick(runs.len() as u64, hosted, dead, bytes_max)
    }

    #[test]
    fn a_run_is_moved_if_that_frees_more_than_it_writes() {
        let runs = [(1, 7, MIB), (2, 7, MIB), (3, 8, MIB)];
        let picked =
            |dead: &[(u64, u64)], most: u64| picked(&runs, &dead.iter().copied().collect(), most);
        assert_eq!(picked(&[], u64::MAX), None);
        assert_eq!(picked(&[(7, 2 * MIB)], u64::MAX), None, "a manifest for each is too much");
        assert_eq!(picked(&[(7, 3 * MIB)], u64::MAX), Some(1));
        assert_eq!(picked(&[(7, 3 * MIB)], MIB - 1), None, "no space is left");
        assert_eq!(picked(&[(7, 2 * MIB), (8, 2 * MIB)], u64::MAX), Some(3));
        assert_eq!(picked(&[(9, 9 * MIB)], u64::MAX), None, "only pinned states hold it");
        assert_eq!(picked(&[(8, DEAD_BYTES_MIN - 1)], u64::MAX), None);
    }

    #[test]
    fn many_small_runs_are_not_worth_their_manifests() {
        let runs: Vec<(LayerId, u64, u64)> = (0..10_000).map(|n| (n, 7, 100)).collect();
        let picked = |dead: u64| picked(&runs, &BTreeMap::from([(7, dead)]), u64::MAX);
        assert_eq!(picked(2000 * MIB), None);
        assert_eq!(picked(20_000 * MIB), Some(0));
    }
}
