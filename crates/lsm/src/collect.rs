//! Reclaims the space of runs that nothing needs any more.
//!
//! A run is needed while something holds it: the durable catalog, a tree, a pinned state, a walk in
//! progress. The catalog drops a run only when a manifest without it is durable, so a crash never
//! brings back a run that nothing holds. The engine punches the space of a run out of its blob, and
//! deletes the blob with its last run. The last holder to drop a run reports it (`run`). The engine
//! counts the runs that need each blob, so it need not visit the remaining runs.

use std::sync::atomic::Ordering;

use format::run_index::BLOB_HEAD_BYTES;
use format::run_manifest::RunManifest;
use store::Result;

use crate::core::Core;
use crate::drops::Due;
use crate::durable::Durable;
use crate::files::blob_name;

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
