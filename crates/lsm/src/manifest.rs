//! Writes manifests: a manifest makes a state durable (`newest` finds it).
//!
//! A manifest is a blob under its number and never changes. The one with the greatest number is the
//! state. It is written when everything that it names is durable, and older manifests are deleted
//! afterwards.
//!
//! It is written twice, under two names. Nothing of the previous state is freed until both are
//! durable: if either copy rots or vanishes, the other is enough (decision 0072). A manifest with
//! only one copy was being written when the power failed. If that copy is damaged, too, the
//! previous manifest is whole, with the log behind it. Opening writes a new manifest if the newest
//! does not have both copies.
//!
//! A failed read does not show what is there. If one copy can be read it is the state. But an
//! opening that cannot read the other copy does not delete it, nor anything that it may name. If
//! neither can be read, no older manifest is taken for the state.
//!
//! On a full disk one copy is enough until there is space; then the other is made ([`Alone`]).
//!
//! A number is used for one attempt and never again. Requests under it, to create or to delete, may
//! be carried out long after the process stopped waiting for them. So numbers have gaps. An attempt
//! of unknown outcome is as valid a state as the previous one. What it names is held until a later
//! manifest is durable (`Durable::uncertain`), and the log that follows either exists.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Blobs, Compared, Env, Map, compare, part_of};
use format::Corruption;
use format::run_manifest::{BlobEntry, Origin, RunManifest, TreeEntry};
use store::{Error, Lsn, Result, Writer};

use crate::appender::disown;
use crate::core::Core;
use crate::durable::{Attempt, Durable};
use crate::files::{Files, manifest_numbers, numbers, path};
use crate::id_allocator::begin;
use crate::layer::{Catalog, Layer, LayerId, Stack};
use crate::names::{BLOB_PREFIX, MANIFEST_PREFIX, both_names, manifest_name};
use crate::newest::{Alone, Named, Newest, differs, read_named};

/// Deletes both copies of a number, except those that could not be read.
pub(crate) fn delete_both(files: &Files, number: u64, unread: &[String]) -> Result<()> {
    for name in both_names(number) {
        if !unread.contains(&name) && files.blobs.length(&name)?.is_some() {
            files.blobs.delete(&name)?;
        }
    }
    Ok(())
}

/// Deletes damaged manifests, once a later one is durable.
pub(crate) fn delete_damaged(files: &Files, damaged: &[Corruption]) {
    for bad in damaged {
        let name = bad.file.rsplit('/').next().unwrap_or_default();
        if let Err(error) = files.blobs.delete(name) {
            tracing::warn!(%error, name, "cannot delete a damaged manifest");
        }
    }
}

/// Rewrites the newest state of a store that no process has open, under both names. The number is
/// above all that were assigned, so a late request of a dead process is always older.
pub(crate) fn rewrite(env: &Env, files: &Files, newest: &Newest) -> Result<()> {
    let blobs = numbers(files, BLOB_PREFIX)?.last().map_or(0, |last| last + 1);
    let blobs = blobs.max(newest.manifest.next_blob);
    let number = begin(env, files, newest.greatest + 1, blobs)?.manifest;
    let time = env.clock.now().0;
    let bytes = RunManifest { number, time, ..newest.manifest.clone() }.encode();
    for name in both_names(number) {
        if !files.blobs.create(&name, &bytes)? {
            let taken = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(device::Error::new("create", &path(&name), taken).into());
        }
    }
    delete_both(files, newest.manifest.number, &newest.unread())?;
    delete_damaged(files, &newest.damaged);
    Ok(())
}

/// What a listing shows after a manifest was made.
pub(crate) enum Listed {
    /// It is the newest.
    Newest,
    /// There is a newer one.
    Newer(u64),
}

/// Lists the manifests after this number was made.
pub(crate) fn listed(files: &Files, number: u64) -> Result<Listed> {
    match numbers(files, MANIFEST_PREFIX)?.pop() {
        Some(greatest) if greatest > number => Ok(Listed::Newer(greatest)),
        Some(greatest) if greatest == number => Ok(Listed::Newest),
        _ => {
            let why = "the object store does not list a manifest that it has just taken: its \
                       listings are out of date, and the volume is not safe there";
            let error = std::io::Error::other(why);
            Err(device::Error::new("list", &path(&manifest_name(number)), error).into())
        }
    }
}

/// Why a process was replaced whose manifest is not the newest.
pub(crate) fn newer(number: u64) -> String {
    format!("another process opened the volume: {} is newer", path(&manifest_name(number)))
}

impl Core {
    /// The manifest of a catalog whose layers are all on disk.
    pub(crate) fn describe(
        &self,
        catalog: &Catalog,
        number: u64,
        lsn: Lsn,
        state: &Durable,
    ) -> RunManifest {
        let mut manifest = RunManifest {
            volume: self.options.common.volume,
            number,
            lsn: lsn.0,
            time: self.env.clock.now().0,
            next_blob: state.next_blob,
            next_run: self.ids.next(),
            values_from: self.options.values_from,
            prefix_bytes: self.options.prefix_bytes,
            origin: self.journal.origin(lsn).map(|(opening, position)| Origin {
                epoch: opening.epoch,
                opening: opening.id,
                log_epoch: position.epoch,
                log_number: position.number,
            }),
            ..RunManifest::default()
        };
        // Trees may be many, and deep: looking up a layer of one costs only a hash map access.
        let mut stacks: Map<usize, u32> = Map::default();
        let mut places: Map<LayerId, u32> = Map::default();
        let (mut distinct, mut runs) = (Vec::new(), Vec::new());
        for (id, stack) in catalog {
            let next = distinct.len() as u32;
            let at = *stacks.entry(Arc::as_ptr(stack) as usize).or_insert(next);
            manifest.trees.push(TreeEntry { number: id.0, stack: at });
            if at < next {
                continue;
            }
            distinct.push(stack);
            for layer in &stack.layers {
                if places.insert(layer.id, 0).is_none() {
                    runs.push(layer.durable_run());
                }
            }
        }
        runs.sort_unstable_by_key(|run| run.entry.number);
        places.extend(runs.iter().zip(0..).map(|(run, at)| (run.entry.number, at)));
        let place = |layer: &Arc<Layer>| places[&layer.id];
        let of = |stack: &&Arc<Stack>| stack.layers.iter().map(place).collect();
        manifest.stacks = distinct.iter().map(of).collect();
        let (mut blobs, mut logs) = (BTreeSet::new(), BTreeSet::new());
        for run in runs {
            blobs.insert(run.entry.blob);
            logs.extend(run.uses.iter().map(|rows| rows.log));
            manifest.runs.push(run.entry);
            manifest.uses.push(run.uses.to_vec());
        }
        blobs.extend(&logs);
        let entry = |number: u64| BlobEntry { number, length: state.blobs[&number] };
        manifest.blobs = blobs.into_iter().map(entry).collect();
        manifest.logs = logs.into_iter().map(|number| state.logs[&number]).collect();
        manifest
    }

    /// Writes a manifest, durable on return. If it fails, the attempt is recorded if it may be on
    /// disk all the same, or appear there later.
    ///
    /// A full disk must accept a checkpoint, or nothing on it could be freed. There the copy of the
    /// previous state is deleted first, because that state still has its other copy. One copy of
    /// the new manifest is then enough until the older ones are deleted.
    pub(crate) fn write_manifest(
        &self,
        state: &mut Durable,
        manifest: &RunManifest,
        catalog: &Arc<Catalog>,
    ) -> Result<()> {
        let bytes = manifest.encode();
        self.manifest_bytes.store(bytes.len() as u64, Ordering::Relaxed);
        if state.blob_limit.is_some() {
            return self.write_listed(state, manifest.number, bytes, catalog);
        }
        let [first, copy] = both_names(manifest.number);
        let made = match self.make(&first, &bytes) {
            Err(Failed::Not(error)) if error.is_no_space() && self.gave_copy_up(state) => {
                self.make(&first, &bytes)
            }
            made => made,
        };
        let is_first_made = made.is_ok();
        let failed = match made.map(|()| self.make(&copy, &bytes)) {
            Ok(Ok(())) => {
                state.alone = None;
                return Ok(());
            }
            Ok(Err(Failed::Not(error))) if error.is_no_space() => {
                state.alone = Some(Alone { name: copy, bytes });
                return Ok(());
            }
            Ok(Err(Failed::Not(error))) => match self.files.blobs.delete(&first) {
                Ok(()) => return Err(error),
                Err(stays) => {
                    tracing::warn!(error = %stays, name = first, "cannot delete a single manifest");
                    Failed::Perhaps(error)
                }
            },
            Ok(Err(failed)) | Err(failed) => failed,
        };
        match failed {
            Failed::Not(error) | Failed::Another(error) => Err(error),
            Failed::Perhaps(error) => {
                let (number, catalog) = (manifest.number, Arc::clone(catalog));
                // The first was made and the copy refused.
                let there = is_first_made && error.is_no_space();
                state.uncertain.push(Attempt { number, bytes, there, catalog });
                if there {
                    self.withdraw(state);
                }
                Err(error)
            }
        }
    }

    /// Writes a manifest of a store with its log in the same object store (`fenced`). If it fails,
    /// the attempt is recorded, and finished before there is another.
    fn write_listed(
        &self,
        state: &mut Durable,
        number: u64,
        bytes: Vec<u8>,
        catalog: &Arc<Catalog>,
    ) -> Result<()> {
        let written = self.make_listed(number, &bytes);
        if let Err(error) = &written
            && !matches!(error, Error::Replaced(_))
        {
            let catalog = Arc::clone(catalog);
            state.uncertain.push(Attempt { number, bytes, there: false, catalog });
        }
        written
    }

    /// Makes both copies of such a manifest, and makes sure that it is the newest.
    fn make_listed(&self, number: u64, bytes: &[u8]) -> Result<()> {
        for name in both_names(number) {
            match self.make(&name, bytes) {
                Ok(()) => {}
                Err(Failed::Not(error) | Failed::Perhaps(error) | Failed::Another(error)) => {
                    return Err(error);
                }
            }
        }
        if device::mutated("no listing after a manifest") {
            return Ok(());
        }
        match listed(&self.files, number)? {
            Listed::Newest => Ok(()),
            Listed::Newer(found) => Err(self.log().replaced(&newer(found))),
        }
    }

    /// Finishes the attempt to write such a manifest that failed, if there is one.
    fn finish_attempt(&self, state: &mut Durable) -> Result<()> {
        for attempt in state.uncertain.iter_mut().filter(|attempt| !attempt.there) {
            self.make_listed(attempt.number, &attempt.bytes)?;
            attempt.there = true;
            state.next_manifest = attempt.number + 1;
        }
        Ok(())
    }

    /// Deletes failed attempts that were found to exist. Otherwise a server with space for one
    /// manifest and not for two fills with files that no later process may delete. Nothing was
    /// freed for the attempt, and the durable state is whole. A late request may create it again,
    /// so what it names stays held.
    pub(crate) fn withdraw(&self, state: &mut Durable) {
        let is_there = |attempt: &Attempt| attempt.there;
        if state.blob_limit.is_some() {
            // The number after it is the next.
            return;
        }
        if !state.uncertain.iter().any(is_there) || !self.is_whole_twice(state.number) {
            return;
        }
        for attempt in state.uncertain.iter_mut().filter(|attempt| attempt.there) {
            match delete_both(&self.files, attempt.number, &[]) {
                Ok(()) => attempt.there = false,
                Err(error) => {
                    tracing::warn!(%error, number = attempt.number, "an unused manifest stays");
                }
            }
        }
    }

    /// Checks that both manifests of the durable state exist, are whole and have that state. Calls
    /// `found` with each problem and the file that has it.
    pub(crate) fn look_at_manifests(&self, state: &Durable, found: &mut dyn FnMut(&str, Error)) {
        for name in both_names(state.number) {
            // If requests may arrive late, what an earlier process made was left as it was.
            let is_alone = state.alone.as_ref().is_some_and(|alone| alone.name == name);
            let may_lack = is_alone || state.inherited;
            let wrong = match read_named(&self.files, &name, state.number) {
                Named::Whole(manifest, _) if Lsn(manifest.lsn) == state.lsn => continue,
                Named::Whole(..) => differs(&name).into(),
                Named::Absent if may_lack => continue,
                Named::Absent => Error::Missing { file: path(&name), record: None },
                Named::Damaged(bad) => bad.into(),
                Named::Stray(stray) => stray.corruption().into(),
                Named::Foreign(error) | Named::Unread(error) => error,
            };
            found(&name, wrong);
        }
    }

    fn is_whole_twice(&self, number: u64) -> bool {
        let of = |name: String| read_named(&self.files, &name, number);
        both_names(number).map(of).iter().all(|named| matches!(named, Named::Whole(..)))
    }

    /// Deletes the copy of the durable state's manifest, if the manifest itself is whole; returns
    /// whether it did.
    fn gave_copy_up(&self, state: &mut Durable) -> bool {
        let [first, copy] = both_names(state.number);
        let Named::Whole(manifest, _) = read_named(&self.files, &first, state.number) else {
            return false;
        };
        let gave_up = !state.unread.contains(&copy)
            && matches!(self.files.blobs.length(&copy), Ok(Some(_)))
            && self.files.blobs.delete(&copy).is_ok();
        if gave_up {
            state.alone = Some(Alone { name: copy, bytes: manifest.encode() });
        }
        gave_up
    }

    /// Makes the missing copies of the durable state's manifests, if there is space by now. Called
    /// whenever space was freed; otherwise the next manifests are written twice again.
    pub(crate) fn make_pair(&self, state: &mut Durable) {
        let Some(alone) = state.alone.take() else { return };
        match self.make(&alone.name, &alone.bytes) {
            Ok(()) => {}
            Err(Failed::Not(error) | Failed::Perhaps(error)) => {
                tracing::warn!(%error, "no space for the second copy of the manifest");
                state.alone = Some(alone);
            }
            // And this store is read-only from now on.
            Err(Failed::Another(error)) => tracing::error!(%error, "a manifest is not its own"),
        }
    }

    /// Makes one of the two copies.
    fn make(&self, name: &str, bytes: &[u8]) -> std::result::Result<(), Failed> {
        let blobs = &*self.files.blobs;
        let made = blobs.create(name, bytes);
        let found = match &made {
            Ok(true) => Ok(Compared::Same),
            _ => compare_bytes(blobs, name, bytes),
        };
        let error = match (made, found) {
            // Also if the error is that the name is taken, and it is taken by this manifest.
            (Ok(_), Ok(Compared::Same)) => {
                self.wrote(Writer::Checkpoint, bytes.len() as u64, 1);
                return Ok(());
            }
            (_, Ok(Compared::Other)) => return Err(Failed::Another(disown(&self.journal, name))),
            (Err(error), Ok(Compared::Nothing)) if !blobs.answers_may_be_lost() => {
                return Err(Failed::Not(error.into()));
            }
            (Err(error), _) | (Ok(_), Err(error)) => error,
            (Ok(_), Ok(Compared::Nothing)) => {
                let gone =
                    std::io::Error::other("the server reports that it exists, but it does not");
                device::Error::new("create", &path(name), gone)
            }
        };
        Err(Failed::Perhaps(error.into()))
    }

    /// Finds out what became of failed manifest attempts before the next attempt. Returns an error
    /// if that cannot be determined. If a foreign manifest is found, this store is read-only from
    /// now on.
    pub(crate) fn look_after(&self, state: &mut Durable) -> Result<()> {
        if state.blob_limit.is_some() {
            return self.finish_attempt(state);
        }
        self.look_for_another(state)?;
        for attempt in &mut state.uncertain {
            attempt.there = false;
            for name in both_names(attempt.number) {
                match compare_bytes(&*self.files.blobs, &name, &attempt.bytes)? {
                    Compared::Other => return Err(disown(&self.journal, &name)),
                    found => attempt.there |= found == Compared::Same,
                }
            }
        }
        Ok(())
    }

    /// Looks for a manifest with a greater number than any that this store assigned. If requests
    /// may arrive late, an opening starts far above what it finds. So two processes that opened the
    /// same place would never collide on one name.
    fn look_for_another(&self, state: &Durable) -> Result<()> {
        if !self.files.blobs.answers_may_be_lost() {
            return Ok(());
        }
        match numbers(&self.files, MANIFEST_PREFIX)?.pop() {
            Some(newest) if newest > state.next_manifest => {
                return Err(disown(&self.journal, &manifest_name(newest)));
            }
            _ => {}
        }
        // A process that deleted what this opening started from has a greater one, and continues
        // with that.
        if state.inherited && !manifest_numbers(&self.files)?.contains(&state.number) {
            return Err(disown(&self.journal, &manifest_name(state.number)));
        }
        Ok(())
    }

    /// Deletes the manifests before the one that was just made, except those that could not be
    /// read. The rest is older, so nothing takes it for the state, and the next opening tries
    /// again.
    pub(crate) fn delete_older(&self, old: u64, uncertain: &[Attempt], unread: &[String]) {
        let seen = uncertain.iter().filter(|attempt| attempt.there).map(|attempt| attempt.number);
        for number in seen.chain([old]).filter(|number| *number > 0) {
            for name in both_names(number).iter().filter(|name| !unread.contains(name)) {
                if let Err(error) = self.files.blobs.delete(name) {
                    tracing::warn!(%error, name, "cannot delete an old manifest");
                }
            }
        }
    }
}

/// Why a manifest was not made under a name.
enum Failed {
    /// Nothing is there.
    Not(Error),
    /// It may exist, or appear later.
    Perhaps(Error),
    /// A foreign file is there.
    Another(Error),
}

fn compare_bytes(blobs: &dyn Blobs, name: &str, bytes: &[u8]) -> device::Result<Compared> {
    let part = |buffer: &mut [u8], at: u64| Ok(part_of(bytes, buffer, at));
    compare(blobs, name, bytes.len() as u64, &part)
}
