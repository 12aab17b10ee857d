//! Which value logs to empty, and how: pure functions of what runs point to.
//!
//! A row is live while a run points to it. If less than half of a log is live, the runs that point
//! into it are rewritten, one at a time. The live rows go to a new log. Then nothing names the old
//! log (`collect`). That is a merge of one run like any other. It runs in steps, is rate-limited,
//! and is exchanged in all trees that have the run, while pinned states keep the old run.
//!
//! A merge that is due anyway also takes the rows out of sparse logs, and out of small logs if it
//! meets several. Otherwise every small checkpoint would leave a file forever.

use std::collections::{BTreeMap, BTreeSet};

use format::run_manifest::{LogRows, RunManifest};
use store::ValueLogStats;

use crate::layer::LayerId;

/// What a layer points to.
pub(crate) struct Pointing<'a> {
    pub(crate) id: LayerId,
    pub(crate) uses: &'a [LogRows],
}

/// Bytes of rows of each log that runs point to. Runs that were merged in one tree and not in
/// another point to the same rows. Those may be counted twice, but never beyond what exists.
fn live<'a>(
    logs: &BTreeMap<u64, LogRows>,
    runs: impl Iterator<Item = &'a [LogRows]>,
) -> BTreeMap<u64, u64> {
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    for rows in runs.flatten() {
        *live.entry(rows.log).or_default() += rows.bytes;
    }
    bounded(logs, live)
}

/// Caps each log at what it contains.
fn bounded(logs: &BTreeMap<u64, LogRows>, live: BTreeMap<u64, u64>) -> BTreeMap<u64, u64> {
    let all = |log: &u64| logs.get(log).map_or(0, |all| all.bytes);
    live.into_iter().map(|(log, bytes)| (log, bytes.min(all(&log)))).collect()
}

/// Logs of which less than half is live, and their live bytes, computed from the bytes of rows of
/// each that runs point to.
pub(crate) fn sparse(
    logs: &BTreeMap<u64, LogRows>,
    live: BTreeMap<u64, u64>,
) -> BTreeMap<u64, u64> {
    let mut live = bounded(logs, live);
    live.retain(|log, bytes| *bytes * 2 < logs.get(log).map_or(0, |all| all.bytes));
    live
}

/// The next layer to rewrite: one that points into the log with the fewest live bytes. If none of
/// those may be rewritten, one that points into the next log.
pub(crate) fn pick(layers: &[Pointing<'_>], sparse: &BTreeMap<u64, u64>) -> Option<LayerId> {
    let mut by_live: Vec<(u64, u64)> = sparse.iter().map(|(&log, &live)| (live, log)).collect();
    by_live.sort_unstable();
    by_live.into_iter().find_map(|(_, log)| {
        let points = |layer: &&Pointing<'_>| layer.uses.iter().any(|rows| rows.log == log);
        layers.iter().find(points).map(|layer| layer.id)
    })
}

/// The logs whose rows a merge of runs takes out: sparse logs, and small logs if there are several.
/// Logs with the fewest live bytes come first, because each emptied log is deleted. The total is
/// bounded, but the first log is always taken, and the writer takes of it what it may. Otherwise a
/// log with more live bytes than the bound would be met again and again, and never emptied.
pub(crate) fn emptied<'a>(
    logs: &BTreeMap<u64, LogRows>,
    sparse: &BTreeMap<u64, u64>,
    small_bytes: u64,
    bytes_max: u64,
    runs: impl Iterator<Item = &'a [LogRows]>,
) -> BTreeSet<u64> {
    let mut met: BTreeMap<u64, u64> = BTreeMap::new();
    for rows in runs.flatten() {
        *met.entry(rows.log).or_default() += rows.bytes;
    }
    let is_small = |log: &u64| logs.get(log).is_some_and(|all| all.bytes < small_bytes);
    let several = met.keys().filter(|log| is_small(log)).count() > 1;
    met.retain(|log, _| sparse.contains_key(log) || several && is_small(log));
    let mut by_bytes: Vec<(u64, u64)> = met.into_iter().map(|(log, bytes)| (bytes, log)).collect();
    by_bytes.sort_unstable();
    let (mut left, mut emptied) = (bytes_max, BTreeSet::new());
    for (bytes, log) in by_bytes {
        if left == 0 || bytes > left && !emptied.is_empty() {
            break;
        }
        left = left.saturating_sub(bytes);
        emptied.insert(log);
    }
    emptied
}

/// Bytes of rows that a merge takes out of logs, if that is less than what it merges.
const TAKEN_BYTES: u64 = 64 << 20;
/// The least part (one in this many) of a run's bytes that must be taken out of logs to justify
/// rewriting the run. It does not apply if all of a log can be.
const LEAST_SHARE: u64 = 4;

/// Most bytes of rows that a merge of this many bytes takes out of logs. The bound is the same
/// amount again. So rows at most double what it writes, its time, and the space that it needs until
/// it ends. It is also bounded by the space beside the merge, and by half of the longest blob,
/// because packed rows may be longer than rows. The values of ingested runs go to the same log, up
/// to the same number of bytes.
pub(crate) fn most_taken(merged: u64, beside: u64, space: u64, blob_max: u64) -> u64 {
    let in_blob = (blob_max / 2).min((blob_max / 8 * 7).saturating_sub(beside));
    merged.max(TAKEN_BYTES).min(space.saturating_sub(merged)).min(in_blob)
}

/// Whether a run of this many bytes may be rewritten only to empty logs.
pub(crate) fn may_be_rewritten(run: u64, space: u64, blob_max: u64) -> bool {
    // Pointers into a younger log may take slightly more bytes.
    run <= blob_max / 8 * 7 && most_taken(run, 0, space, blob_max) >= (run / LEAST_SHARE).max(1)
}

/// What a manifest records of value logs.
pub(crate) fn stats(manifest: &RunManifest) -> ValueLogStats {
    let logs: BTreeMap<u64, LogRows> = manifest.logs.iter().map(|log| (log.log, *log)).collect();
    let uses = || manifest.uses.iter().map(Vec::as_slice);
    let length = |blob: &&format::run_manifest::BlobEntry| logs.contains_key(&blob.number);
    ValueLogStats {
        values_from: manifest.values_from,
        logs: logs.len() as u64,
        disk_bytes: manifest.blobs.iter().filter(length).map(|blob| blob.length).sum(),
        rows_bytes: logs.values().map(|log| log.bytes).sum(),
        live_bytes: live(&logs, uses()).values().sum(),
        sparse: sparse(&logs, live(&logs, uses())).len() as u64,
        written_bytes: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(log: u64, bytes: u64) -> LogRows {
        LogRows { log, rows: bytes / 10, bytes }
    }

    fn logs(all: &[(u64, u64)]) -> BTreeMap<u64, LogRows> {
        all.iter().map(|&(log, bytes)| (log, rows(log, bytes))).collect()
    }

    #[test]
    fn a_log_is_sparse_when_less_than_half_is_live() {
        let logs = logs(&[(1, 100), (2, 100), (3, 100)]);
        let uses = [vec![rows(1, 49), rows(2, 50)], vec![rows(3, 30)], vec![rows(3, 90)]];
        let live = live(&logs, uses.iter().map(Vec::as_slice));
        assert_eq!(sparse(&logs, live.clone()), BTreeMap::from([(1, 49)]));
        assert_eq!(live[&3], 100, "what two runs point to is not there twice");
    }

    /// Each job leaves a run that points to a new, full log, so cleaning ends.
    #[test]
    fn layers_are_rewritten_until_no_log_is_sparse() {
        assert_eq!(jobs(u64::MAX), [30, 20, 10]);
        // Not all of a log's live rows may be taken at once.
        let jobs = jobs(60);
        assert!(jobs.len() > 5, "{jobs:?}");
    }

    /// The layers that are rewritten, one after the other, when at most this many bytes of rows are
    /// taken at once.
    fn jobs(most: u64) -> Vec<LayerId> {
        let mut logs = logs(&[(1, 1000), (2, 1000), (3, 1000)]);
        let mut layers: Vec<(LayerId, Vec<LogRows>)> = vec![
            (30, vec![rows(1, 100), rows(3, 900)]),
            (20, vec![rows(1, 200), rows(2, 400)]),
            (10, vec![rows(2, 90)]),
        ];
        let mut jobs = Vec::new();
        let mut next = 4;
        loop {
            let uses = || layers.iter().map(|(_, uses)| uses.as_slice());
            let sparse = sparse(&logs, live(&logs, uses()));
            let pointing: Vec<Pointing<'_>> =
                layers.iter().map(|(id, uses)| Pointing { id: *id, uses }).collect();
            let Some(picked) = pick(&pointing, &sparse) else { break };
            jobs.push(picked);
            let at = layers.iter().position(|(id, _)| *id == picked).unwrap();
            let emptied = emptied(&logs, &sparse, 0, most, [layers[at].1.as_slice()].into_iter());
            assert!(!emptied.is_empty(), "a job does something");
            // The writer takes rows until it has as many as it may.
            let (mut taken, mut kept) = (0, Vec::new());
            for used in &layers[at].1 {
                let here = if emptied.contains(&used.log) { used.bytes } else { 0 };
                let here = here.min(most - taken);
                taken += here;
                if here < used.bytes {
                    kept.push(rows(used.log, used.bytes - here));
                }
            }
            kept.push(rows(next, taken));
            logs.insert(next, rows(next, taken));
            layers[at] = (picked + 1, kept);
            next += 1;
            assert!(jobs.len() < 100, "{jobs:?}");
        }
        assert!(layers.iter().flat_map(|(_, uses)| uses).all(|rows| rows.log > 2));
        jobs
    }

    #[test]
    fn small_logs_are_merged_where_several_meet() {
        let logs = logs(&[(1, 10), (2, 10), (3, 10_000)]);
        let (sparse, one) = (BTreeMap::new(), [rows(1, 10), rows(3, 9)]);
        let alone = emptied(&logs, &sparse, 100, u64::MAX, [&one[..]].into_iter());
        assert_eq!(alone, BTreeSet::new());
        let both = |most| emptied(&logs, &sparse, 100, most, [&one[..], &[rows(2, 5)]].into_iter());
        assert_eq!(both(15), BTreeSet::from([1, 2]));
        assert_eq!(both(14), BTreeSet::from([2]));
        // The writer takes what it may of the first log.
        assert_eq!(both(4), BTreeSet::from([2]));
        assert_eq!(both(0), BTreeSet::new());
    }

    #[test]
    fn a_merge_is_bounded_by_its_input_and_the_free_space() {
        let all = u64::MAX;
        assert_eq!(most_taken(0, 0, all, all), TAKEN_BYTES);
        assert_eq!(most_taken(1 << 40, 1 << 40, all, all), 1 << 40);
        assert_eq!(most_taken(1 << 40, 1 << 40, (1 << 40) + 5, all), 5);
        assert_eq!(most_taken(10, 10, 9, all), 0);
        assert_eq!(most_taken(0, 0, all, 100), 50);
        assert_eq!(most_taken(60, 60, all, 80), 10, "what else goes to the log fits, too");
        assert!(may_be_rewritten(100, 125, all) && !may_be_rewritten(100, 124, all));
        assert!(may_be_rewritten(70, all, 80) && !may_be_rewritten(71, all, 80));
        assert!(!may_be_rewritten(0, 0, all));
    }

    #[test]
    fn a_log_whose_runs_must_not_be_rewritten_blocks_no_merge() {
        let sparse = BTreeMap::from([(1, 10), (2, 20)]);
        let uses = [rows(2, 20)];
        assert_eq!(pick(&[Pointing { id: 7, uses: &uses }], &sparse), Some(7));
        assert_eq!(pick(&[], &sparse), None);
    }
}
