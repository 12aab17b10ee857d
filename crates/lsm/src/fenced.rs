//! Opening a store whose log is in the object store of its manifests, where several processes may
//! try to own it at the same time.
//!
//! ```text
//! 1. claim        the next manifest: the same state, with the random id of this opening; listed
//! 2. seal         the log that it names ends at its first absent number
//! 3. replay       that log, up to the seal
//! 4. open         a checkpoint whose manifest names this opening's own log; listed
//! 5. serve
//! ```
//!
//! Invariants:
//! * Manifests have no gaps in their numbers. A manifest is made only under the number after one
//!   that this process has read or made. So of two processes that make the next one, one finds the
//!   other's. An attempt of unknown outcome is repeated, with the same bytes, before there is
//!   another.
//! * A manifest counts only when a listing after its creation shows it as the newest. Nothing is
//!   deleted, trimmed, acknowledged or served on its strength before. Without the listing, a
//!   process that paused could create a number that its successors have deleted.
//! * The number of the claim is the epoch. It names the log of this opening, and numbers of blobs
//!   are counted from a range of its own (`BLOBS_AT_ONCE`).
//!
//! The file of assigned numbers (`id_allocator`) is not needed. Whatever arrives late is under a
//! name of a range, a log or a manifest number that no later opening uses.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Compared, Env, compare, part_of};
use format::run_manifest::{Origin, RunManifest};
use store::{Error, Journal, LogPosition, Lsn, Opening, Result};

use crate::collect::gaps;
use crate::core::Core;
use crate::durable::{Durable, NotedRuns};
use crate::files::{Files, numbers, path};
use crate::layer::Catalog;
use crate::manifest::{Listed, listed, newer};
use crate::names::{BLOB_PREFIX, BLOBS_AT_ONCE, MANIFEST_PREFIX, both_names, manifest_name};
use crate::newest::{Newest, newest};
use crate::options::Options;
use crate::recover::{
    Replayer, catalog_of, clean, open_files, refuse_another, remove_unfinished, settle_newest,
};

/// How often an opening claims a store whose owner makes manifests meanwhile.
const CLAIMS_MAX: usize = 16;

/// A new id. The operating system's entropy: no two openings have the same.
fn opening_id(env: &Env) -> [u8; 16] {
    let mut id = [0; 16];
    if !device::mutated("openings have one id") {
        env.random.fill(&mut id);
    }
    id
}

/// Creates an empty store. If two processes do, one of them fails.
pub(crate) fn create(env: &Env, options: &Options) -> Result<Core> {
    let files = open_files(env, options)?;
    refuse_another(&files)?;
    refuse_logs(options)?;
    let opening = Opening { epoch: 1, id: opening_id(env) };
    let journal = Journal::create_in_objects(env, &options.common, opening);
    let durable = Durable::of_opening(0, 1, 1 + BLOBS_AT_ONCE);
    let core = Core::new(env, options.clone(), files, (durable, journal), Catalog::new(), 1);
    match core.make_durable(&mut core.durable.lock(), Catalog::new(), Lsn(0)) {
        Err(Error::Replaced(_)) => {
            let why = "another process created a store here at the same time";
            let error = std::io::Error::new(std::io::ErrorKind::AlreadyExists, why);
            return Err(device::Error::new("create", &path(&manifest_name(1)), error).into());
        }
        made => made?,
    }
    core.log().announce();
    Ok(core)
}

/// Refuses a place that has logs of a store whose manifests are gone: their names would be used
/// again.
fn refuse_logs(options: &Options) -> Result<()> {
    let Some(objects) = options.common.log_place.objects() else { return Ok(()) };
    let Some(name) = objects.blobs.list("log/")?.pop() else { return Ok(()) };
    let why = "logs of another store are here; choose another place, or delete them all";
    let error = std::io::Error::new(std::io::ErrorKind::AlreadyExists, why);
    Err(device::Error::new("create", &name, error).into())
}

/// The error of an opening that reads what its successors may have deleted.
fn or_replaced(files: &Files, epoch: u64, error: Error) -> Error {
    match (&error, listed(files, epoch)) {
        (Error::Missing { .. } | Error::Corrupt(_), Ok(Listed::Newer(number))) => {
            Error::Replaced(Arc::from(newer(number)))
        }
        _ => error,
    }
}

/// Opens a store, and takes it over from any process that has it open.
pub(crate) fn open(env: &Env, options: &Options) -> Result<Core> {
    let files = open_files(env, options)?;
    let Claim { newest, manifest, opening, position } = claim(env, &files)?;
    let mut runs = NotedRuns::default();
    let catalog = catalog_of(&files, &manifest, &mut runs);
    let found = numbers(&files, BLOB_PREFIX)?;
    let limit = manifest.next_blob + BLOBS_AT_ONCE;
    let durable = Durable {
        unread: newest.unread(),
        lsn: Lsn(manifest.lsn),
        next_blob: manifest.next_blob,
        blobs: manifest.blobs.iter().map(|blob| (blob.number, blob.length)).collect(),
        logs: manifest.logs.iter().map(|log| (log.log, *log)).collect(),
        runs,
        gaps: gaps(&manifest),
        ..Durable::of_opening(manifest.number, manifest.number + 1, limit)
    };
    let options = options.of_store(&manifest);
    let journal =
        Journal::of_state_in_objects(env, &options.common, durable.lsn, (opening, position));
    let core = Core::new(env, options, files, (durable, journal), catalog, manifest.next_run);
    core.manifest_bytes.store(newest.bytes, Ordering::Relaxed);
    core.journal.found_checkpoint(manifest.time);
    core.note_durable(&manifest);
    let replayed = core.journal.replay(&mut Replayer { core: &core });
    replayed.map_err(|error| or_replaced(&core.files, opening.epoch, error))?;
    if let Some(why) = core.any_unknown() {
        // Values that records of its log add to could not be read.
        core.journal.open_read_only(format!("what the log adds to cannot be read: {why}"));
        return Ok(core);
    }
    remove_unfinished(env.device.as_ref())?;
    // What a damaged or unreadable manifest named is deleted by the next opening.
    let is_sure = newest.skipped().is_none() && newest.unread.is_empty();
    begin(&core, if is_sure { &found } else { &[] })?;
    Ok(core)
}

/// Writes the manifest that names this opening's own log, and deletes what it made superfluous.
fn begin(core: &Core, found: &[u64]) -> Result<()> {
    let state = &mut *core.durable.lock();
    core.checkpoint_locked(state)?;
    core.log().announce();
    clean(core, state, state.number, found)
}

/// A store that this opening has claimed.
struct Claim {
    /// The state that was found.
    newest: Newest,
    /// The same state under the number of the claim.
    manifest: RunManifest,
    opening: Opening,
    /// The log to seal and replay.
    position: LogPosition,
}

/// Makes the manifest that claims the store. Its owner, if it runs, may make one first; then the
/// claim continues from that.
fn claim(env: &Env, files: &Files) -> Result<Claim> {
    let id = opening_id(env);
    for _ in 0..CLAIMS_MAX {
        let mut newest = match newest(files) {
            // The owner may have deleted what was listed.
            Err(Error::Missing { .. }) if !numbers(files, MANIFEST_PREFIX)?.is_empty() => continue,
            newest => newest?,
        };
        settle_newest(files, &mut newest)?;
        let number = newest.greatest + 1;
        let Some(before) = newest.manifest.origin else {
            return Err(format::Corruption {
                file: path(&manifest_name(newest.manifest.number)),
                offset: 0,
                structure: "manifest of runs",
                expected: "the log that continues it, since the log is in the object store".into(),
                found: "a manifest of a store with a log on a device".into(),
                unread: false,
            }
            .into());
        };
        let manifest = RunManifest {
            number,
            time: env.clock.now().0,
            next_blob: newest.manifest.next_blob + BLOBS_AT_ONCE,
            origin: Some(Origin { epoch: number, opening: id, ..before }),
            ..newest.manifest.clone()
        };
        if !make_claim(files, &manifest)? {
            continue;
        }
        let position = LogPosition { epoch: before.log_epoch, number: before.log_number };
        return Ok(Claim { newest, manifest, opening: Opening { epoch: number, id }, position });
    }
    let busy =
        "other processes kept writing manifests while this one tried to take the volume over";
    Err(device::Error::new("open", &path(MANIFEST_PREFIX), std::io::Error::other(busy)).into())
}

/// Makes both copies of a claim, and lists; `false` if another process has the number.
fn make_claim(files: &Files, manifest: &RunManifest) -> Result<bool> {
    let bytes = manifest.encode();
    for name in both_names(manifest.number) {
        let made = files.blobs.create(&name, &bytes);
        if matches!(made, Ok(true)) {
            continue;
        }
        let part = |buffer: &mut [u8], at: u64| Ok(part_of(&bytes, buffer, at));
        match (compare(&*files.blobs, &name, bytes.len() as u64, &part), made) {
            (Ok(Compared::Same), _) => {}
            // Another opening has the number, or had it.
            (Ok(Compared::Other), _) | (Ok(Compared::Nothing), Ok(_)) => return Ok(false),
            // The request may arrive later. The next opening then finds the claim, and continues
            // from it.
            (_, Err(error)) | (Err(error), _) => return Err(error.into()),
        }
    }
    if device::mutated("no listing after a claim") {
        return Ok(true);
    }
    match listed(files, manifest.number)? {
        Listed::Newest => Ok(true),
        Listed::Newer(number) => Err(Error::Replaced(Arc::from(newer(number)))),
    }
}

impl Durable {
    /// The state of an opening that has the manifest of this number, and may make blobs below
    /// `blob_limit`.
    fn of_opening(number: u64, next_manifest: u64, blob_limit: u64) -> Durable {
        let blob_limit = Some(blob_limit);
        Durable { number, next_manifest, blob_limit, next_blob: 1, ..Durable::default() }
    }
}
