//! Verifies the durable state on disk, bypassing the cache. It reads every index and every block of
//! every run once. It checks their checksums, the order of their keys, and that a block begins
//! where the index points to. It checks that filters contain their keys, and that deleted ranges
//! ascend. It also checks that no run overlaps another, and that rows are where runs point to. The
//! counts of runs and of value logs must be right.
//!
//! `Core::check_beside` runs beside commits and checkpoints of an open store. [`inspect`]
//! checks a store that no process has open, and changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Env;
use format::cluster_filter::hash;
use format::run_block::Stored;
use format::run_index::{DeletedRange, RunIndex};
use format::run_manifest::{BlobEntry, LogRows, RunEntry, RunManifest};
use store::{
    CheckProgress, CheckReport, ClosedLog, Error, Finding, FindingKind, LogPosition, Lsn, Remedy,
    Result,
};

use crate::check_rows::{LogCheck, RowCheck};
use crate::core::Core;
use crate::durable::Durable;
use crate::files::{Files, blob_name, numbers, path};
use crate::ingest::Linked;
use crate::manifest::rewrite;
use crate::names::{BLOB_PREFIX, manifest_name};
use crate::newest::strays_below;
use crate::options::Options;
use crate::recover::find;
use crate::run::Run;

/// Checks the store in a volume that no process has open: the newest manifest, what it names, and
/// the log after it. A missing blob is a finding, like damage. Fails if there is no manifest, if
/// something is of a newer format, or if the disk does not answer.
pub fn inspect(env: &Env, options: &Options, progress: CheckProgress<'_>) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let (files, newest) = match find(env, options) {
        Ok(found) => found,
        Err(error @ (Error::Corrupt(_) | Error::Device(_))) => {
            report.add(Finding::of_error("", error)?);
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    for (_, error) in &newest.unread {
        report.add(Finding::of_error("", error.clone())?);
    }
    for bad in &newest.damaged {
        report.add(rebuilt(unreadable(bad), "another manifest has all"));
    }
    let strays = [newest.strays, strays_below(&files, newest.manifest.number)?].concat();
    let manifest = newest.manifest;
    let position = position_of(&manifest);
    report.trees = manifest.trees.len() as u64;
    let mut blobs: Vec<BlobEntry> = manifest.blobs.clone();
    let (mut entries, mut uses) = (manifest.runs, manifest.uses);
    // Runs that were ingested since are named by the log.
    let mut visit = |record: &[u8]| {
        if let Some(linked) = Linked::of(record) {
            blobs.push(linked.blob);
            entries.push(linked.run);
            uses.push(Vec::new());
        }
        Ok(())
    };
    let (common, from) = (&options.common, Lsn(manifest.lsn));
    let log = ClosedLog { env, options: common, from, certain: true, keep: None, position };
    log.check(&mut report, &mut visit)?;
    for blob in &blobs {
        if let Err(error) = files.check_length(blob.number, blob.length) {
            report.add(Finding::of_error("", error)?);
        } else if let Err(error) = files.check_head(blob.number) {
            report.add(rebuilt(Finding::of_error("", error)?, WHOLE_WITHOUT_HEAD));
        }
    }
    let is_whole = report.findings_count == 0;
    for stray in strays {
        // If the state is damaged, the stray manifest may be needed.
        report.add(if is_whole { stray.finding() } else { unreadable(&stray.corruption()) });
    }
    manifest_holds(&manifest_name(manifest.number), &entries, &mut report);
    let uses = uses.into_iter().map(Arc::from);
    let all: Vec<Run> =
        entries.iter().zip(uses).map(|(entry, uses)| Run::new(&files, *entry, uses)).collect();
    let found = runs(&files, all.iter(), manifest.prefix_bytes, &mut report, progress)?;
    if !report.stopped {
        let lengths = blobs.iter().map(|blob| (blob.number, blob.length)).collect();
        found.end(manifest.logs.iter(), &lengths, &mut report);
    }
    lost(&files, &blobs, &mut report)?;
    Ok(report)
}

/// Checks that no run of a manifest overlaps another.
fn manifest_holds(name: &str, entries: &[RunEntry], report: &mut CheckReport) {
    let mut add = |what: String| {
        let (kind, file) = (FindingKind::Structure, path(name));
        report.add(Finding::new(kind, file, 0, what));
    };
    let mut by_place: Vec<&RunEntry> = entries.iter().collect();
    by_place.sort_unstable_by_key(|run| (run.blob, run.start));
    for pair in by_place.windows(2) {
        let end = pair[0].index.saturating_add(u64::from(pair[0].index_bytes));
        if pair[0].blob == pair[1].blob && end > pair[1].start {
            add(format!("runs {} and {} overlap", pair[0].number, pair[1].number));
        }
    }
}

/// The log behind the newest state. A manifest that had the name of a stray one before may have
/// ended behind a cut, so the log is not cut then.
pub(crate) fn closed_log<'a>(env: &'a Env, options: &'a Options) -> Result<ClosedLog<'a>> {
    let (_, newest) = find(env, options)?;
    let from = Lsn(newest.manifest.lsn);
    let keep = newest.strays.first().map(|stray| stray.corruption().into());
    let position = position_of(&newest.manifest);
    Ok(ClosedLog { env, options: &options.common, from, certain: true, keep, position })
}

/// Where the log continues, if it is in objects.
fn position_of(manifest: &RunManifest) -> Option<LogPosition> {
    let origin = manifest.origin?;
    Some(LogPosition { epoch: origin.log_epoch, number: origin.log_number })
}

/// If requests may arrive late, a manifest may still appear of a state that ends behind the cut.
/// Commits made after the cut would then be taken for what followed that state. So the remaining
/// state becomes a newer manifest before the cut; if the server refuses that, the log is not cut.
pub(crate) fn prepare_cut(log: &ClosedLog<'_>, options: &Options) -> Result<()> {
    if log.position.is_some() {
        // Such a log is not truncated.
        return Ok(());
    }
    let (files, newest) = find(log.env, options)?;
    if files.blobs.answers_may_be_lost() {
        log.cost_of_cut()?;
        rewrite(log.env, &files, &newest).map_err(not_cut)?;
    }
    Ok(())
}

/// Adds to a server error what was not done because of it.
fn not_cut(error: Error) -> Error {
    match error {
        Error::Device(error) => {
            let why = "the log is not truncated before the remaining state is rewritten";
            let message = format!("{}; {why}", error.message);
            Error::Device(device::Error { message, ..error })
        }
        error => error,
    }
}

/// Repairs a store that no process has open. It rewrites the manifest if that is damaged or has
/// only one copy, and damaged heads of blobs in the volume's directory. Nothing else of this engine
/// is stored twice, or counted.
pub fn repair(env: &Env, options: &Options) -> Result<()> {
    crate::recover::repair(env, options)
}

impl Core {
    /// Checks the durable state beside commits and checkpoints.
    pub(crate) fn check_beside(&self, progress: CheckProgress<'_>) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        let (catalog, lsn, linked, logs, lengths) = {
            let state = self.durable.lock();
            // While it is locked, no other thread makes a manifest or deletes these.
            self.manifests_beside(&state, &mut report)?;
            let linked: Vec<Arc<Run>> =
                state.linked.iter().map(|(_, run)| Arc::clone(run)).collect();
            let (logs, lengths) = (state.logs.clone(), state.blobs.clone());
            (Arc::clone(&self.catalog.lock()), state.lsn, linked, logs, lengths)
        };
        for finding in self.journal.check_beside(lsn)? {
            report.add(finding);
        }
        report.trees = catalog.len() as u64;
        // Held until the end, so that none of its space is reclaimed.
        let held: BTreeMap<u64, Arc<Run>> = catalog
            .values()
            .flat_map(|stack| stack.layers.iter())
            .filter_map(|layer| layer.as_run())
            .chain(linked)
            .map(|run| (run.entry.number, run))
            .collect();
        let all = held.values().map(|run| &**run);
        let found = runs(&self.files, all, self.options.prefix_bytes, &mut report, progress)?;
        if !report.stopped {
            found.end(logs.values(), &lengths, &mut report);
        }
        if !report.stopped {
            self.heads_beside(&lengths, &mut report)?;
        }
        drop(held);
        report.log_records = self.log().last().0.saturating_sub(lsn.0);
        Ok(report)
    }

    /// Checks both manifests of the durable state, by which an opening finds it.
    fn manifests_beside(&self, state: &Durable, report: &mut CheckReport) -> Result<()> {
        if self.journal.read_only().is_some() || self.log().check().is_err() {
            // Nothing is written, so what the opening could not read stays so; it was reported.
            return Ok(());
        }
        let mut failed = None;
        self.look_at_manifests(state, &mut |name, error| match Finding::of_error("", error) {
            // What no opening could read is rewritten under the next number.
            Ok(found) if found.kind == FindingKind::ReadError => report.add(found),
            Ok(found) => {
                report.add(Finding { file: path(name), ..found }.with(Remedy::Checkpoint));
            }
            Err(error) => failed = Some(error),
        });
        failed.map_or(Ok(()), Err)
    }

    /// Checks the heads of blobs that existed when the check began and still exist.
    fn heads_beside(&self, lengths: &BTreeMap<u64, u64>, report: &mut CheckReport) -> Result<()> {
        for (&number, &length) in lengths {
            let whole = self.files.check_length(number, length);
            let is_there = whole.is_ok();
            let Err(error) = whole.and_then(|()| self.files.check_head(number)) else { continue };
            // An unneeded blob is deleted, and no other blob ever gets its number.
            let state = self.durable.lock();
            if state.blobs.contains_key(&number) && !state.stuck.has(number) {
                drop(state);
                let found = Finding::of_error("", error)?;
                report.add(if is_there { rebuilt(found, WHOLE_WITHOUT_HEAD) } else { found });
            }
        }
        Ok(())
    }
}

/// Counts blobs that nothing names: a crash left them, and the next opening deletes them.
fn lost(files: &Files, named: &[BlobEntry], report: &mut CheckReport) -> Result<()> {
    for number in numbers(files, BLOB_PREFIX)? {
        if named.iter().all(|blob| blob.number != number) {
            report.lost_bytes += files.blobs.disk_bytes(&blob_name(number))?;
        }
    }
    Ok(())
}

/// Checks runs, one after the other, and the rows of value logs that they point to.
fn runs<'a>(
    files: &Files,
    all: impl Iterator<Item = &'a Run> + Clone,
    prefix_bytes: usize,
    report: &mut CheckReport,
    progress: CheckProgress<'_>,
) -> Result<LogCheck> {
    let mut logs = LogCheck::default();
    let bytes = |run: &Run| run.bytes() + run.far_bytes();
    let total = all.clone().map(bytes).fold(0, u64::saturating_add);
    let mut done = 0;
    for run in all {
        match run.read_index() {
            Ok(index) => {
                report.interiors += 1;
                let done = (done, total);
                let of =
                    Of { entry: &run.entry, uses: &run.uses, index: &index, prefix_bytes, done };
                blocks(files, &of, &mut logs, report, progress)?;
            }
            Err(error) => report.add(Finding::of_error("", error)?),
        }
        done += bytes(run);
        if report.stopped || progress(done, total).is_break() {
            report.stopped = true;
            return Ok(logs);
        }
    }
    report.bytes = done;
    Ok(logs)
}

/// A run whose blocks are checked.
struct Of<'a> {
    entry: &'a RunEntry,
    uses: &'a [LogRows],
    index: &'a RunIndex,
    prefix_bytes: usize,
    /// Bytes that were checked before it, and the total.
    done: (u64, u64),
}

/// Checks the blocks of a run.
fn blocks(
    files: &Files,
    of: &Of<'_>,
    logs: &mut LogCheck,
    report: &mut CheckReport,
    progress: CheckProgress<'_>,
) -> Result<()> {
    let Of { entry, index, prefix_bytes, done: (before, total), .. } = *of;
    let wrong = |offset: u64, what: String| of.wrong(offset, &what);
    let (mut last, mut key): (Option<Vec<u8>>, Vec<u8>) = (None, Vec::new());
    let (mut entries, mut tombstones, mut readable) = (0, 0, true);
    let mut directory: (usize, Vec<u8>) = (usize::MAX, Vec::new());
    let mut rows = RowCheck::new(files, entry, logs);
    for (number, place) in index.blocks().iter().enumerate() {
        let block = match files.load(entry.blob, place) {
            Ok(block) => block,
            Err(error) => {
                report.add(Finding::of_error("", error)?);
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
            if let Some(prefix) = key.get(..prefix_bytes).filter(|prefix| !prefix.is_empty())
                && (directory.0 != number || directory.1 != prefix)
            {
                directory = (number, prefix.to_vec());
                if !index.may_have(number, hash(prefix)) {
                    let what = format!("the filter lacks the directory of entry {at}");
                    report.add(wrong(place.offset, what));
                }
            }
            entries += 1;
            match block.stored(at) {
                Stored::Tombstone => tombstones += 1,
                Stored::Far(pointer) => rows.check(&key, pointer, place.offset, report)?,
                Stored::Value(_) => {}
            }
            last.get_or_insert_default().clone_from(&key);
        }
        // If the index gives wrong places of blocks.
        let done = before + place.offset.saturating_sub(entry.start).min(total);
        if number % 64 == 63 && progress(done, total).is_break() {
            report.stopped = true;
            return Ok(());
        }
    }
    report.entries += entries;
    if readable {
        rows.end(of.uses, report);
    }
    of.bounds(
        readable.then_some((last.as_deref().unwrap_or_default(), entries, tombstones)),
        report,
    );
    Ok(())
}

impl Of<'_> {
    fn wrong(&self, offset: u64, what: &str) -> Finding {
        let (kind, file) = (FindingKind::Structure, path(&blob_name(self.entry.blob)));
        Finding::new(kind, file, offset, format!("run {}: {what}", self.entry.number))
    }

    /// Checks the deleted ranges, the last key and the counts of a run that could be read.
    fn bounds(&self, found: Option<(&[u8], u64, u64)>, report: &mut CheckReport) {
        let Of { entry, index, .. } = *self;
        let begin = index.blocks().first().map_or(entry.index, |first| first.offset);
        let end = index.blocks().last().map_or(begin, |last| last.offset + u64::from(last.stored));
        if (begin, end) != (entry.start, entry.index) {
            let (start, stated) = (entry.start, entry.index);
            let what = format!("blocks from {begin} to {end}, not from {start} to {stated}");
            report.add(self.wrong(entry.index, &what));
        }
        let apart = |pair: &[DeletedRange]| pair[0].1.as_ref().is_some_and(|end| *end < pair[1].0);
        let ascend = |(from, to): &DeletedRange| to.as_ref().is_none_or(|to| from < to);
        if !index.ranges().windows(2).all(apart) || !index.ranges().iter().all(ascend) {
            report.add(self.wrong(entry.index, "deleted ranges that do not ascend"));
        }
        if index.ranges().len() != entry.ranges as usize {
            let what = format!("{} deleted ranges", index.ranges().len());
            report.add(self.wrong(entry.index, &what));
        }
        let Some((last, entries, tombstones)) = found else { return };
        if last != index.last_key() {
            report.add(self.wrong(entry.index, "the last key is another"));
        }
        if (entries, tombstones) != (entry.entries, entry.tombstones) {
            let (stated, gone) = (entry.entries, entry.tombstones);
            let what = format!("{entries} entries, {tombstones} tombstones, not {stated}, {gone}");
            report.add(Finding { kind: FindingKind::Count, ..self.wrong(entry.index, &what) });
        }
    }
}

/// Why the head of a blob can be written again.
const WHOLE_WITHOUT_HEAD: &str = "what is in it is whole without it";

/// A finding that the offline repair can rewrite, and why it can.
fn rebuilt(finding: Finding, why: &str) -> Finding {
    Finding { what: format!("{}; {why}", finding.what), ..finding }.with(Remedy::Rebuild)
}

fn unreadable(bad: &format::Corruption) -> Finding {
    Finding::of_damage("", bad)
}
