//! Reclaims the space of runs that nothing needs any more.
//!
//! A run is needed while something holds it: the durable catalog, a tree, a pinned state, a walk in
//! progress. The catalog drops a run only when a manifest without it is durable, so a crash never
//! brings back a run that nothing holds. The engine punches the space of a run out of its blob, and
//! deletes the blob with its last run. The last holder to drop a run reports it (`run`). The engine
//! counts the runs that need each blob, so it need not visit the remaining runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use format::run_index::BLOB_HEAD_BYTES;
use format::run_manifest::{LogRows, RunEntry, RunManifest};
use store::Result;

use crate::checkpoint::Durable;
use crate::core::Core;
use crate::drops::Due;
use crate::files::blob_name;
use crate::run::Run;

/// Most blobs and parts of blobs that are freed while the durable state is locked. Each may take a
/// directory sync, or a request, and commits may wait for the next checkpoint.
pub(crate) const COLLECTED_AT_ONCE: usize = 32;

impl Core {
    /// One bounded step of reclaiming space; `false` when nothing is left.
    pub(crate) fn reclaim(&self, most: usize) -> Result<bool> {
        let collected = most.clamp(1, COLLECTED_AT_ONCE);
        let mut state = self.durable.lock();
        if self.journal.is_closed() || self.journal.read_only().is_some() {
            // Another process has the disk now, or the disk must stay as it is.
            return Ok(false);
        }
        // First what needs no space.
        let mut more = self.collect(&mut state, collected);
        let due = self.drops_due(&mut state);
        if due == Due::Checkpoint {
            self.checkpoint_locked(&mut state)?;
        }
        more = more || self.collect(&mut state, collected) || self.flatten_step(&mut state);
        drop(state);
        if due == Due::Checkpoint {
            // It gave each changed tree another run, and steps of other work may be many before the
            // next one of these.
            self.keep_merged();
        }
        Ok(more || self.merge_step(most)? || due == Due::Later)
    }

    /// Space of blobs and manifests on disk. Of a store that is wholly in an object store, that of
    /// the durable state: a caller that polls these counters would pay for requests.
    pub(crate) fn disk_bytes(&self) -> u64 {
        if self.journal.opening().is_some() {
            let manifests = 2 * self.manifest_bytes.load(Ordering::Relaxed);
            return self.blob_bytes.load(Ordering::Relaxed) + manifests;
        }
        self.files.blobs.disk_bytes_all().unwrap_or(0)
    }

    /// Reclaims the space of up to `most` runs; returns whether there are more. What cannot be
    /// freed only costs space. If a manifest had no space, it may have space now.
    pub(crate) fn collect(&self, state: &mut Durable, most: usize) -> bool {
        // It is unknown what a reader finds on disk, so nothing is deleted. Or a manifest may still
        // arrive that is newer than the durable state's, and name what that does not.
        if self.log().check().is_err() || state.inherited {
            return false;
        }
        for number in self.files.take_let_go() {
            state.gaps.extend(state.runs.forget(number));
        }
        let runs = &state.runs;
        let goes = |blob: &u64| !runs.need(*blob) && !state.stuck.blobs.contains(blob);
        let whole: Vec<u64> = state.blobs.keys().copied().filter(goes).collect();
        for &blob in whole.iter().take(most) {
            if let Err(error) = self.files.blobs.delete(&blob_name(blob)) {
                tracing::warn!(%error, blob, "cannot delete an unneeded blob");
                state.stuck.blobs.insert(blob);
            } else {
                state.blobs.remove(&blob);
                state.logs.remove(&blob);
                state.dead.remove(&blob);
            }
        }
        let Durable { gaps, blobs, stuck, dead, .. } = state;
        gaps.retain(|(blob, ..)| blobs.contains_key(blob) && !stuck.blobs.contains(blob));
        for _ in whole.len()..most {
            let Some((blob, from, to)) = gaps.pop() else { break };
            match self.files.blobs.punch(&blob_name(blob), from, to - from) {
                Ok(true) => {}
                // The runs that are needed are rewritten when that pays (`sparse_blobs`).
                Ok(false) => *dead.entry(blob).or_default() += to - from,
                Err(error) => {
                    tracing::warn!(%error, blob, "a part of cannot delete an unneeded blob");
                    stuck.gaps.push((blob, from, to));
                }
            }
        }
        let more = whole.len() > most || !gaps.is_empty();
        self.delete_left(state, most);
        self.make_pair(state);
        more || !state.left.is_empty()
    }

    /// Deletes up to `most` blobs that an earlier process left and that nothing names. Blobs of
    /// another volume and unreadable blobs stay; the next opening looks at them again.
    fn delete_left(&self, state: &mut Durable, most: usize) {
        for _ in 0..most {
            let Some(number) = state.left.pop() else { return };
            if state.blobs.contains_key(&number) {
                continue;
            }
            let name = blob_name(number);
            let deleted = self.files.check_head(number).and_then(|()| {
                self.files.blobs.delete(&name)?;
                Ok(())
            });
            if let Err(error) = deleted {
                tracing::warn!(%error, name, "cannot delete an unreferenced blob");
            }
        }
    }
}

/// Runs that are on disk, whether or not anything holds them.
#[derive(Default)]
pub(crate) struct NotedRuns {
    runs: BTreeMap<u64, Noted>,
    /// For each blob, how many of them are in it or point into it.
    in_blobs: BTreeMap<u64, u64>,
}

struct Noted {
    entry: RunEntry,
    uses: Arc<[LogRows]>,
    run: Weak<Run>,
}

impl Noted {
    /// The blobs that it needs: a value log is needed as long as a run points into it.
    fn blobs(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.entry.blob).chain(self.uses.iter().map(|rows| rows.log))
    }
}

impl NotedRuns {
    /// Registers a run that is on disk.
    pub(crate) fn note(&mut self, run: &Arc<Run>) {
        let uses = Arc::clone(&run.uses);
        let noted = Noted { entry: run.entry, uses, run: Arc::downgrade(run) };
        for blob in noted.blobs() {
            *self.in_blobs.entry(blob).or_default() += 1;
        }
        let before = self.runs.insert(run.entry.number, noted);
        assert!(before.is_none(), "run {} is there twice", run.entry.number);
    }

    /// Forgets a run that nothing holds any more; returns its place: blob, begin, end.
    fn forget(&mut self, number: u64) -> Option<(u64, u64, u64)> {
        let noted = self.runs.get(&number)?;
        if noted.run.strong_count() > 0 {
            return None;
        }
        let noted = self.runs.remove(&number)?;
        for blob in noted.blobs() {
            let count = self.in_blobs.entry(blob).or_default();
            *count -= 1;
            if *count == 0 {
                self.in_blobs.remove(&blob);
            }
        }
        let RunEntry { blob, start, index, index_bytes, .. } = noted.entry;
        Some((blob, start, index + u64::from(index_bytes)))
    }

    /// Whether any of them needs a blob.
    fn need(&self, blob: u64) -> bool {
        self.in_blobs.contains_key(&blob)
    }
}

/// What could not be freed.
#[derive(Default)]
pub(crate) struct Stuck {
    blobs: BTreeSet<u64>,
    gaps: Vec<(u64, u64, u64)>,
}

impl Stuck {
    /// Whether a blob could not be deleted, so that it is unknown what is left of it.
    pub(crate) fn has(&self, blob: u64) -> bool {
        self.blobs.contains(&blob)
    }

    /// Allows another attempt.
    pub(crate) fn try_again(&mut self, gaps: &mut Vec<(u64, u64, u64)>) {
        self.blobs.clear();
        gaps.append(&mut self.gaps);
    }
}

/// Parts of the blobs of a manifest that none of its runs needs: a crash may have come before they
/// were freed.
pub(crate) fn gaps(manifest: &RunManifest) -> Vec<(u64, u64, u64)> {
    let mut runs: Vec<_> = manifest.runs.iter().collect();
    runs.sort_unstable_by_key(|run| (run.blob, run.start));
    let mut gaps = Vec::new();
    let is_log = |number: u64| manifest.logs.binary_search_by_key(&number, |log| log.log).is_ok();
    for blob in manifest.blobs.iter().filter(|blob| !is_log(blob.number)) {
        let mut at = BLOB_HEAD_BYTES as u64;
        for run in runs.iter().filter(|run| run.blob == blob.number) {
            if run.start > at {
                gaps.push((blob.number, at, run.start));
            }
            at = at.max(run.index + u64::from(run.index_bytes));
        }
        if blob.length > at {
            gaps.push((blob.number, at, blob.length));
        }
    }
    gaps
}
