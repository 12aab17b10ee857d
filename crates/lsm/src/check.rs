//! Checking everything that the durable state has on the medium, past the cache: every index and
//! every block of every run once, their checksums, the order of their keys, that a block begins
//! where the index says, that filters have what they are for, and that the counts are right.
//!
//! Beside commits and checkpoints for an open store ([`check`], `Store::check`); without changing
//! anything for one that nobody has open ([`inspect`]).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use device::Env;
use format::cluster_filter::hash;
use format::run_index::RunIndex;
use format::run_manifest::{RunEntry, RunManifest};
use store::{CheckProgress, CheckReport, Error, Finding, FindingKind, Log, Lsn, Result};

use crate::core::Core;
use crate::files::{BLOB_PREFIX, Files, blob_name, path};
use crate::manifest::numbers;
use crate::options::Options;
use crate::recover::{LOG_DIRECTORY, find};
use crate::run::Run;
use crate::store::LsmStore;

/// Checks a store, with no progress to tell.
pub fn check(store: &LsmStore) -> Result<CheckReport> {
    store.core.check_beside(&mut |_, _| ControlFlow::Continue(()))
}

/// Checks the store in a volume that nobody has open: the newest manifest, what it names, and the
/// log after it. Fails when a file is missing, or of a newer format, or the medium does not answer.
pub fn inspect(env: &Env, options: &Options, progress: CheckProgress<'_>) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let (files, manifest) = match find(env, options) {
        Ok(found) => found,
        Err(Error::Corrupt(bad)) => {
            report.add(unreadable(&bad));
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    report.trees = manifest.trees.len() as u64;
    runs(&files, &manifest.runs, &mut report, progress)?;
    lost(&files, &manifest, &mut report)?;
    if !report.stopped {
        let from = Lsn(manifest.lsn);
        match Log::verify(env, LOG_DIRECTORY, options.common.volume, &options.common.log(), from) {
            Ok(recovery) => report.log_records = recovery.replayed,
            Err(Error::Corrupt(bad)) => report.add(unreadable(&bad)),
            Err(error) => return Err(error),
        }
    }
    Ok(report)
}

/// Cuts the log off where it is damaged: what was committed after that is lost.
pub fn cut_log(env: &Env, options: &Options) -> Result<()> {
    let (_, manifest) = find(env, options)?;
    let from = Lsn(manifest.lsn);
    Log::cut_off(env, LOG_DIRECTORY, options.common.volume, &options.common.log(), from, true)
        .map(drop)
}

impl Core {
    /// Checks the durable state beside commits and checkpoints.
    pub(crate) fn check_beside(&self, progress: CheckProgress<'_>) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        let (catalog, lsn) = {
            let state = self.durable.lock();
            (Arc::clone(&self.catalog.lock()), state.lsn)
        };
        report.trees = catalog.len() as u64;
        // Held until the end, so that nothing of it is given back.
        let held: BTreeMap<u64, Arc<Run>> = catalog
            .values()
            .flat_map(|stack| stack.layers.iter())
            .filter_map(|layer| layer.as_run())
            .map(|run| (run.entry.number, run))
            .collect();
        let entries: Vec<RunEntry> = held.values().map(|run| run.entry).collect();
        runs(&self.files, &entries, &mut report, progress)?;
        report.log_records = self.log().last().0.saturating_sub(lsn.0);
        Ok(report)
    }
}

/// Counts blobs that no manifest names: what a crash left, and the next opening deletes.
fn lost(files: &Files, manifest: &RunManifest, report: &mut CheckReport) -> Result<()> {
    for number in numbers(files, BLOB_PREFIX)? {
        if manifest.blobs.binary_search_by_key(&number, |blob| blob.number).is_err() {
            report.lost_bytes += files.blobs.disk_bytes(&blob_name(number))?;
        }
    }
    Ok(())
}

/// Checks runs, one after the other.
fn runs(
    files: &Arc<Files>,
    entries: &[RunEntry],
    report: &mut CheckReport,
    progress: CheckProgress<'_>,
) -> Result<()> {
    let total: u64 = entries.iter().map(|entry| Run::new(files, *entry).bytes()).sum();
    let mut done = 0;
    for entry in entries {
        let run = Run::new(files, *entry);
        match run.read_index() {
            Ok(index) => {
                report.interiors += 1;
                let before = (done, total);
                blocks(files, entry, &index, report, before, progress)?;
            }
            Err(error) => report.add(finding(error)?),
        }
        done += run.bytes();
        if report.stopped || progress(done, total).is_break() {
            report.stopped = true;
            return Ok(());
        }
    }
    report.bytes = done;
    Ok(())
}

/// Checks the blocks of a run.
fn blocks(
    files: &Files,
    entry: &RunEntry,
    index: &RunIndex,
    report: &mut CheckReport,
    (before, total): (u64, u64),
    progress: CheckProgress<'_>,
) -> Result<()> {
    let wrong = |offset: u64, what: String| Finding {
        kind: FindingKind::Structure,
        file: path(&blob_name(entry.blob)),
        offset,
        what: format!("run {}: {what}", entry.number),
    };
    let (mut last, mut key): (Option<Vec<u8>>, Vec<u8>) = (None, Vec::new());
    let (mut entries, mut tombstones, mut readable) = (0, 0, true);
    for (number, place) in index.blocks().iter().enumerate() {
        let block = match files.load(entry.blob, place) {
            Ok(block) => block,
            Err(error) => {
                report.add(finding(error)?);
                readable = false;
                continue;
            }
        };
        report.leaves += 1;
        for at in 0..block.len() {
            key.clear();
            block.key_to(at, &mut key);
            if at == 0 && key != index.first_key(number) {
                report.add(wrong(place.offset, "a block begins with another key".to_owned()));
            }
            if last.as_ref().is_some_and(|last| *last >= key) {
                report.add(wrong(place.offset, format!("entry {at} is not above the last")));
            }
            if !index.may_have(number, hash(&key)) {
                report.add(wrong(place.offset, format!("the filter lacks entry {at}")));
            }
            entries += 1;
            tombstones += u64::from(block.value(at).is_none());
            last.get_or_insert_default().clone_from(&key);
        }
        let done = before + place.offset - entry.start;
        if number % 64 == 63 && progress(done, total).is_break() {
            report.stopped = true;
            return Ok(());
        }
    }
    report.entries += entries;
    if readable && last.as_deref().unwrap_or_default() != index.last_key() {
        report.add(wrong(entry.index, "the last key is another".to_owned()));
    }
    if index.ranges().len() != entry.ranges as usize {
        report.add(wrong(entry.index, format!("{} deleted ranges", index.ranges().len())));
    }
    if readable && (entries, tombstones) != (entry.entries, entry.tombstones) {
        let (stated, gone) = (entry.entries, entry.tombstones);
        let what = format!("{entries} entries, {tombstones} tombstones, not {stated}, {gone}");
        report.add(Finding { kind: FindingKind::Count, ..wrong(entry.index, what) });
    }
    Ok(())
}

/// Damage as a finding; anything else stays an error.
fn finding(error: Error) -> Result<Finding> {
    match error {
        Error::Corrupt(bad) => Ok(unreadable(&bad)),
        error => Err(error),
    }
}

fn unreadable(bad: &format::Corruption) -> Finding {
    Finding {
        kind: FindingKind::Unreadable,
        file: bad.file.clone(),
        offset: bad.offset,
        what: format!("{}: {} instead of {}", bad.structure, bad.found, bad.expected),
    }
}
