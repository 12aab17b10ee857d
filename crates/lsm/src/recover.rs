//! Creating a store, and opening one: the newest manifest, then the log after it.
//!
//! Whatever a crash left that no manifest names - blobs, older manifests, unfinished files - is
//! deleted once everything needed was found, and never before.
//!
//! A record that adds to an unreadable value is no reason to refuse all others. Such a value is
//! unknown (`mem`), and while there is one the store is read-only. Nothing is written or deleted
//! and the log stays as it is, so a later opening that can read the value misses nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Device, Env, STAGED};
use format::batch::Ops;
use format::run_index::blob_head;
use format::run_manifest::RunManifest;
use store::{Error, Journal, Lsn, Replay, Result, TreeId};

use crate::appender::BUILDING_PREFIX;
use crate::collect::gaps;
use crate::commit::plan;
use crate::core::Core;
use crate::durable::{DroppedTrees, Durable, NotedRuns, Stuck};
use crate::files::{DIRECTORY, Files, blob_name, manifest_numbers, numbers, open_blobs, path};
use crate::id_allocator::{begin, begin_new};
use crate::ingest::Linked;
use crate::layer::{Catalog, Layer, Stack};
use crate::manifest::{delete_both, delete_damaged, rewrite};
use crate::names::{BLOB_PREFIX, COPY_PREFIX, MANIFEST_PREFIX};
use crate::newest::{Newest, complete, is_own, newest};
use crate::options::Options;
use crate::resolve::Origin;
use crate::run::Run;

/// Creates an empty store.
pub(crate) fn create(env: &Env, options: &Options) -> Result<Core> {
    let files = open_files(env, options)?;
    refuse_another(&files)?;
    let journal = Journal::create(env, &options.common)?;
    let begin = begin_new(env, &files)?;
    let durable = Durable {
        next_manifest: begin.manifest,
        allocator: begin.allocator,
        next_blob: begin.blob,
        ..Durable::default()
    };
    let core = Core::new(env, options.clone(), files, (durable, journal), Catalog::new(), 1);
    // Last, so that a store with a manifest is complete.
    core.make_durable(&mut core.durable.lock(), Catalog::new(), Lsn(0))?;
    Ok(core)
}

/// Refuses a place that holds a store: deleting unknown files would destroy it.
pub(crate) fn refuse_another(files: &Files) -> Result<()> {
    for prefix in [MANIFEST_PREFIX, COPY_PREFIX, BLOB_PREFIX] {
        if let Some(name) = files.blobs.list(prefix)?.first() {
            let why = "a store is here, or a part of one";
            let error = std::io::Error::new(std::io::ErrorKind::AlreadyExists, why);
            return Err(device::Error::new("create", &path(name), error).into());
        }
    }
    Ok(())
}

pub(crate) fn open_files(env: &Env, options: &Options) -> Result<Arc<Files>> {
    let blobs = open_blobs(env, options)?;
    Ok(Arc::new(Files::new(blobs, options.common.volume, options.block_cache_bytes())))
}

/// The blobs and the newest state of an existing store, whether or not what it names exists.
pub(crate) fn find(env: &Env, options: &Options) -> Result<(Arc<Files>, Newest)> {
    let is_in_objects = options.common.log_place.objects().is_some();
    if !is_in_objects && env.device.metadata(DIRECTORY)?.is_none() {
        return Err(Error::Missing { file: DIRECTORY.to_owned(), record: None });
    }
    let files = open_files(env, options)?;
    let newest = newest(&files)?;
    Ok((files, newest))
}

/// Rewrites the manifest of a store that no process has open, if it lacks a copy, and heads of
/// blobs.
pub(crate) fn repair(env: &Env, options: &Options) -> Result<()> {
    let (files, newest) = find(env, options)?;
    if options.common.log_place.objects().is_some() {
        // Every opening makes both copies of a manifest, and a repair without a claim would not be
        // noticed by an owner.
        return Ok(());
    }
    if !newest.is_twice {
        if !newest.strays.is_empty() {
            may_pass_over(&files, &newest)?;
        }
        rewrite(env, &files, &newest)?;
    }
    if options.blobs.is_some() {
        // Objects are never overwritten.
        return Ok(());
    }
    for blob in &newest.manifest.blobs {
        if files.check_length(blob.number, blob.length).is_err() {
            continue;
        }
        match files.check_head(blob.number) {
            // A manifest of a known version names no blob of a newer one.
            Err(Error::Corrupt(_) | Error::NewerFormat { .. }) => {
                // The content of the blob has volume and number in each of its checksums.
                let file = env.device.open(&path(&blob_name(blob.number)))?;
                file.write_at(&blob_head(files.volume, blob.number), 0)?;
                file.sync_data()?;
            }
            checked => checked?,
        }
    }
    Ok(())
}

/// Before the log is trimmed for it, makes sure that the newest state has both copies, and that it
/// is the newest.
pub(crate) fn settle_newest(files: &Files, newest: &mut Newest) -> Result<()> {
    for (name, error) in &newest.unread {
        tracing::warn!(%error, name, "cannot read one manifest; using its copy");
    }
    for stray in &newest.strays {
        tracing::warn!(stray = %stray.corruption(), "ignoring a misplaced manifest");
    }
    may_pass_over(files, newest)?;
    match complete(files, newest) {
        Err(error) if error.is_no_space() => {
            tracing::warn!(%error, "only one copy of the manifest exists");
        }
        completed => completed?,
    }
    Ok(())
}

/// Refuses to skip a manifest if anything is missing of the state before it. Then the manifest was
/// finished, and what it made superfluous was deleted.
fn may_pass_over(files: &Files, newest: &Newest) -> Result<()> {
    let Some(passed) = newest.skipped() else { return Ok(()) };
    for blob in &newest.manifest.blobs {
        match files.check_blob(blob.number, blob.length) {
            Err(Error::Corrupt(_) | Error::Missing { .. }) => return Err(passed.into()),
            checked => checked?,
        }
    }
    Ok(())
}

/// The trees of a manifest; registers their runs.
pub(crate) fn catalog_of(
    files: &Arc<Files>,
    manifest: &RunManifest,
    runs: &mut NotedRuns,
) -> Catalog {
    let layers: Vec<Arc<Layer>> = manifest
        .runs
        .iter()
        .zip(&manifest.uses)
        .map(|(entry, uses)| {
            let run = Arc::new(Run::new(files, *entry, Arc::from(uses.as_slice())));
            runs.note(&run);
            Arc::new(Layer::run(entry.number, Arc::from([entry.number]), run))
        })
        .collect();
    let stacks: Vec<Arc<Stack>> = manifest
        .stacks
        .iter()
        .map(|stack| {
            let layers = stack.iter().map(|&at| Arc::clone(&layers[at as usize])).collect();
            Arc::new(Stack { layers })
        })
        .collect();
    let trees = manifest.trees.iter();
    trees.map(|tree| (TreeId(tree.number), Arc::clone(&stacks[tree.stack as usize]))).collect()
}

/// Opens a store.
pub(crate) fn open(env: &Env, options: &Options) -> Result<Core> {
    let (files, mut newest) = find(env, options)?;
    settle_newest(&files, &mut newest)?;
    let manifest = &newest.manifest;
    for blob in &manifest.blobs {
        files.look_at_blob(blob.number, blob.length)?;
    }
    let mut runs = NotedRuns::default();
    let catalog = catalog_of(&files, manifest, &mut runs);
    // Numbers of what a crash left are not used again, though it is deleted below.
    let found = numbers(&files, BLOB_PREFIX)?;
    let next_blob = found.last().map_or(0, |last| last + 1).max(manifest.next_blob);
    // Requests of the previous process may still be carried out, under the numbers after these.
    let begin = begin(env, &files, newest.greatest + 1, next_blob)?;
    let late = files.blobs.answers_may_be_lost();
    let durable = Durable {
        number: manifest.number,
        next_manifest: begin.manifest,
        allocator: begin.allocator,
        blob_limit: None,
        inherited: late,
        left: Vec::new(),
        uncertain: Vec::new(),
        alone: None,
        unread: newest.unread(),
        lsn: Lsn(manifest.lsn),
        next_blob: begin.blob,
        blobs: manifest.blobs.iter().map(|blob| (blob.number, blob.length)).collect(),
        logs: manifest.logs.iter().map(|log| (log.log, *log)).collect(),
        runs,
        gaps: gaps(manifest),
        stuck: Stuck::default(),
        dead: BTreeMap::new(),
        linked: Vec::new(),
        pending: Vec::new(),
        pending_bytes: 0,
        dropped: DroppedTrees::default(),
    };
    let options = options.of_store(manifest);
    let journal = Journal::of_state(env, &options.common, durable.lsn);
    let next_run = manifest.next_run;
    let core = Core::new(env, options, files, (durable, journal), catalog, next_run);
    core.manifest_bytes.store(newest.bytes, Ordering::Relaxed);
    core.journal.found_checkpoint(manifest.time);
    core.note_durable(manifest);
    core.journal.replay(&mut Replayer { core: &core })?;
    if let Some(why) = core.any_unknown() {
        // Values that records of its log add to could not be read.
        core.journal.open_read_only(format!("what the log adds to cannot be read: {why}"));
        return Ok(core);
    }
    if late || !newest.is_twice {
        write_again(&core, &newest, late)?;
    }
    remove_unfinished(env.device.as_ref())?;
    // What a damaged or unreadable manifest named is deleted by the next opening.
    let is_sure = newest.skipped().is_none() && newest.unread.is_empty();
    let found = if is_sure { found } else { Vec::new() };
    {
        let state = &mut *core.durable.lock();
        if state.inherited {
            state.left = found;
        } else {
            clean(&core, state, manifest.number, &found)?;
        }
    }
    Ok(core)
}

/// Writes the same state under a greater number: then a manifest that arrives late, and whose runs
/// are deleted after this, is not the newest. A manifest with only one copy is not enough either.
///
/// If the server refuses it, the next checkpoint does this. Until then nothing is deleted and no
/// assigned number is assigned again. So a late manifest is one of two things. It may be the newest
/// until then, and everything that it names exists, with the log behind it. Or it is older than
/// what this process makes.
fn write_again(core: &Core, newest: &Newest, late: bool) -> Result<()> {
    let state = &mut *core.durable.lock();
    let catalog = Catalog::clone(&core.catalog.lock());
    match core.make_durable(state, catalog, Lsn(newest.manifest.lsn)) {
        Ok(()) => delete_damaged(&core.files, &newest.damaged),
        // Files on a full disk can be removed, and then there is space.
        Err(error) if !late && error.is_no_space() => {
            tracing::warn!(%error, "only one copy of the manifest exists");
            state.alone = newest.alone();
        }
        Err(error @ (Error::Device(_) | Error::NoSpace(_))) if state.allocator.is_some() => {
            tracing::warn!(%error, "the server accepts no manifest; opened the previous state");
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Deletes what the newest state does not need. Blobs of another volume stay, and so do unreadable
/// ones, which may not be this store's.
pub(crate) fn clean(core: &Core, state: &Durable, newest: u64, found: &[u64]) -> Result<()> {
    let blobs = &core.files.blobs;
    for number in manifest_numbers(&core.files)?.range(..newest) {
        if is_own(&core.files, *number) {
            delete_both(&core.files, *number, &[])?;
        } else {
            tracing::warn!(number, "not deleting an old manifest, because it cannot be read");
        }
    }
    // Those of the manifest, and those that the log has linked since.
    for number in found.iter().filter(|number| !state.blobs.contains_key(number)) {
        match core.files.check_head(*number) {
            Ok(()) => blobs.delete(&blob_name(*number))?,
            Err(error) => tracing::warn!(%error, "cannot delete an unreferenced blob"),
        }
    }
    Ok(())
}

/// Removes unfinished files of blobs from the volume's own device.
pub(crate) fn remove_unfinished(device: &dyn Device) -> Result<()> {
    for name in device.list(DIRECTORY)? {
        if name.starts_with(BUILDING_PREFIX) || name.ends_with(STAGED) {
            device.remove(&format!("{DIRECTORY}/{name}"))?;
        }
    }
    Ok(())
}

/// Applies records to a core during recovery.
pub(crate) struct Replayer<'a> {
    pub(crate) core: &'a Core,
}

impl Replay for Replayer<'_> {
    fn apply(&mut self, lsn: Lsn, payload: &[u8]) -> Result<()> {
        let core = self.core;
        core.journal.replays(payload);
        if let Some(linked) = Linked::of(payload) {
            return core.replay_link(lsn, &linked);
        }
        let plan = plan(Ops::new(payload))?;
        core.apply(payload, &plan, Origin::Log(lsn)).map(|_| ())
    }
}
