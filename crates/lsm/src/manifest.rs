//! Manifests: writing the one that makes a state durable (`newest` finds it).
//!
//! A manifest is a blob under its number and never changes. The one with the greatest number is
//! the state; it is written when everything that it names is durable, and those before it are
//! deleted after.
//!
//! It is written twice, under two names, and of the state before nothing is given up until both are
//! durable: whichever of the two rots or vanishes, the other is enough (decision 0072). One that is
//! there once was being made when the power went; should it be damaged, too, the one before it is
//! whole, with the log behind it. Opening writes a new one where the newest is not there twice.
//!
//! A read that fails says nothing of what is there. Where one of the two can be read it is the
//! state, but the other is not deleted by whoever could not read it, nor is anything that it may
//! name; where none can be read, none that is older is taken for it.
//!
//! On a full disk one is enough until there is room; then the other is made ([`Alone`]).
//!
//! A number is used for one attempt and never again: what was asked for under it, making or
//! deleting, may be carried out long after nobody waits for it any more. So numbers have gaps. An
//! attempt of which nobody knows what became of it is as good a state as the one before, for what
//! it names is held until a later manifest is durable (`Durable::uncertain`), and the log that
//! follows either is there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Blobs, Env, Found, Map, compare, part_of};
use format::Corruption;
use format::run_manifest::{BlobEntry, RunManifest, TreeEntry};
use store::{Error, Lsn, Result, Writer};

use crate::checkpoint::Durable;
use crate::core::{Catalog, Core};
use crate::files::{BLOB_PREFIX, Files, path};
use crate::given::begin;
use crate::layer::{Layer, LayerId, Stack};
use crate::newest::{Alone, Named, Newest, differs, read_named};

/// What names of manifests begin with.
pub(crate) const MANIFEST_PREFIX: &str = "manifest-";
/// What names of their copies begin with.
pub(crate) const COPY_PREFIX: &str = "copy-";

pub(crate) fn manifest_name(number: u64) -> String {
    format!("{MANIFEST_PREFIX}{number:016x}")
}

/// Both names of a manifest, in the order in which they are made.
pub(crate) fn both_names(number: u64) -> [String; 2] {
    [manifest_name(number), format!("{COPY_PREFIX}{number:016x}")]
}

/// No store comes to greater numbers; what bears one was put there by somebody else. Half of what
/// can be read: from what is found it is counted on.
pub(crate) const NUMBER_MAX: u64 = format::COUNTED_MAX / 2;

/// The numbers of the blobs whose names begin with a prefix, ascending: of names as this engine
/// gives them.
pub(crate) fn numbers(files: &Files, prefix: &str) -> Result<Vec<u64>> {
    let names = files.blobs.list(prefix)?;
    let own = |name: &String| {
        let number = u64::from_str_radix(name.strip_prefix(prefix)?, 16).ok()?;
        (number <= NUMBER_MAX && format!("{prefix}{number:016x}") == *name).then_some(number)
    };
    let mut numbers: Vec<u64> = names.iter().filter_map(own).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The numbers of all manifests that are there, once or twice, ascending.
pub(crate) fn manifest_numbers(files: &Files) -> Result<BTreeSet<u64>> {
    let mut all = BTreeSet::from_iter(numbers(files, MANIFEST_PREFIX)?);
    all.extend(numbers(files, COPY_PREFIX)?);
    Ok(all)
}

/// Deletes both of a number, but for what could not be read.
pub(crate) fn delete_both(files: &Files, number: u64, unread: &[String]) -> Result<()> {
    for name in both_names(number) {
        if !unread.contains(&name) && files.blobs.length(&name)?.is_some() {
            files.blobs.delete(&name)?;
        }
    }
    Ok(())
}

/// Deletes what is damaged of manifests, once a later one is durable.
pub(crate) fn delete_damaged(files: &Files, damaged: &[Corruption]) {
    for bad in damaged {
        let name = bad.file.rsplit('/').next().unwrap_or_default();
        if let Err(error) = files.blobs.delete(name) {
            tracing::warn!(%error, name, "a damaged manifest stays");
        }
    }
}

/// Writes the newest state of a store that nobody has open again, under both names and a number
/// above all that were given: what a process asked for that is gone is older, whenever it comes.
pub(crate) fn write_anew(env: &Env, files: &Files, newest: &Newest) -> Result<()> {
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

impl Core {
    /// What a manifest of a catalog says, whose layers are all on disk.
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
            ..RunManifest::default()
        };
        // Trees may be many, and deep: a layer of one is looked up in no more than a hash map.
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

    /// Writes a manifest, durable on return. Where it fails, what was tried is noted if it may be
    /// on disk all the same, or come there later.
    ///
    /// A full disk must take a checkpoint, or nothing of it could be given back: there the copy
    /// of the state before goes first, for that is still there once, and one manifest is enough
    /// until those before it are deleted.
    pub(crate) fn write_manifest(
        &self,
        state: &mut Durable,
        manifest: &RunManifest,
        catalog: &Arc<Catalog>,
    ) -> Result<()> {
        let bytes = manifest.encode();
        self.manifest_bytes.store(bytes.len() as u64, Ordering::Relaxed);
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
                    tracing::warn!(error = %stays, name = first, "a manifest alone stays");
                    Failed::Perhaps(error)
                }
            },
            Ok(Err(failed)) | Err(failed) => failed,
        };
        match failed {
            Failed::Not(error) | Failed::Another(error) => Err(error),
            Failed::Perhaps(error) => {
                let (number, catalog) = (manifest.number, Arc::clone(catalog));
                // The first was made where the copy was refused.
                let there = is_first_made && error.is_no_space();
                state.uncertain.push(Attempt { number, bytes, there, catalog });
                if there {
                    self.withdraw(state);
                }
                Err(error)
            }
        }
    }

    /// Deletes what was tried in vain and found to be there, else a server with room for one
    /// manifest and not for two fills with what no later process may delete. Nothing was given up
    /// for it, and the durable state is whole. What was asked for may make it again: so what it
    /// names is held on.
    pub(crate) fn withdraw(&self, state: &mut Durable) {
        let is_there = |attempt: &Attempt| attempt.there;
        if !state.uncertain.iter().any(is_there) || !self.is_whole_twice(state.number) {
            return;
        }
        for attempt in state.uncertain.iter_mut().filter(|attempt| attempt.there) {
            match delete_both(&self.files, attempt.number, &[]) {
                Ok(()) => attempt.there = false,
                Err(error) => {
                    tracing::warn!(%error, number = attempt.number, "a manifest in vain stays");
                }
            }
        }
    }

    /// Looks whether both manifests of the durable state are there, whole and of that state;
    /// `found` is told what is wrong, and of which file.
    pub(crate) fn look_at_manifests(&self, state: &Durable, found: &mut dyn FnMut(&str, Error)) {
        for name in both_names(state.number) {
            // Where requests come late, what a process before has made is left as it was.
            let is_alone = state.alone.as_ref().is_some_and(|alone| alone.name == name);
            let may_lack = is_alone || state.inherited;
            let wrong = match read_named(&self.files, &name, state.number) {
                Named::Whole(manifest, _) if Lsn(manifest.lsn) == state.lsn => continue,
                Named::Whole(..) => differs(&name).into(),
                Named::Absent if may_lack => continue,
                Named::Absent => Error::Missing { file: path(&name) },
                Named::Damaged(bad) => bad.into(),
                Named::Stray(stray) => stray.told().into(),
                Named::Foreign(error) | Named::Unread(error) => error,
            };
            found(&name, wrong);
        }
    }

    fn is_whole_twice(&self, number: u64) -> bool {
        let of = |name: String| read_named(&self.files, &name, number);
        both_names(number).map(of).iter().all(|named| matches!(named, Named::Whole(..)))
    }

    /// Deletes the copy of the durable state's manifest, where that itself is whole; whether it
    /// did.
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

    /// Makes what is missing of the durable state's manifests, if there is room for it by now.
    /// Called whenever room was given back; else the next are written twice again.
    pub(crate) fn make_pair(&self, state: &mut Durable) {
        let Some(alone) = state.alone.take() else { return };
        match self.make(&alone.name, &alone.bytes) {
            Ok(()) => {}
            Err(Failed::Not(error) | Failed::Perhaps(error)) => {
                tracing::warn!(%error, "there is one manifest, and no room for its copy");
                state.alone = Some(alone);
            }
            // And this store is read-only from now on.
            Err(Failed::Another(error)) => tracing::error!(%error, "a manifest is not its own"),
        }
    }

    /// Makes one of the two.
    fn make(&self, name: &str, bytes: &[u8]) -> std::result::Result<(), Failed> {
        let blobs = &*self.files.blobs;
        let made = blobs.create(name, bytes);
        let found = match &made {
            Ok(true) => Ok(Found::Same),
            _ => compare_bytes(blobs, name, bytes),
        };
        let error = match (made, found) {
            // Also where it is said that the name is taken, and it is by this.
            (Ok(_), Ok(Found::Same)) => {
                self.wrote(Writer::Checkpoint, bytes.len() as u64, 1);
                return Ok(());
            }
            (_, Ok(Found::Other)) => return Err(Failed::Another(self.disown(name))),
            (Err(error), Ok(Found::Nothing)) if !blobs.answers_may_be_lost() => {
                return Err(Failed::Not(error.into()));
            }
            (Err(error), _) | (Ok(_), Err(error)) => error,
            (Ok(_), Ok(Found::Nothing)) => {
                let gone = std::io::Error::other("it is said to be there, and is not");
                device::Error::new("create", &path(name), gone)
            }
        };
        Err(Failed::Perhaps(error.into()))
    }

    /// Looks what became of manifests that could not be made, before another is. An error where
    /// that cannot be seen; where somebody else's is found, this store is read-only from now on.
    pub(crate) fn look_after(&self, state: &mut Durable) -> Result<()> {
        self.look_for_another(state)?;
        for attempt in &mut state.uncertain {
            attempt.there = false;
            for name in both_names(attempt.number) {
                match compare_bytes(&*self.files.blobs, &name, &attempt.bytes)? {
                    Found::Other => return Err(self.disown(&name)),
                    found => attempt.there |= found == Found::Same,
                }
            }
        }
        Ok(())
    }

    /// Looks for a manifest with a greater number than any that this store gave. Where requests may
    /// come late an opening begins far above what it finds, so two that have opened the same place
    /// would never meet at one name.
    fn look_for_another(&self, state: &Durable) -> Result<()> {
        if !self.files.blobs.answers_may_be_lost() {
            return Ok(());
        }
        match numbers(&self.files, MANIFEST_PREFIX)?.pop() {
            Some(newest) if newest > state.next_manifest => {
                return Err(self.disown(&manifest_name(newest)));
            }
            _ => {}
        }
        // Who deleted what this opening began with has a greater one, and goes on with that.
        if state.inherited && !manifest_numbers(&self.files)?.contains(&state.number) {
            return Err(self.disown(&manifest_name(state.number)));
        }
        Ok(())
    }

    /// Deletes the manifests before the one that was just made, but for what could not be read.
    /// What stays is older than that, so nobody takes it for the state, and the next opening tries
    /// again.
    pub(crate) fn delete_older(&self, old: u64, uncertain: &[Attempt], unread: &[String]) {
        let seen = uncertain.iter().filter(|attempt| attempt.there).map(|attempt| attempt.number);
        for number in seen.chain([old]).filter(|number| *number > 0) {
            for name in both_names(number).iter().filter(|name| !unread.contains(name)) {
                if let Err(error) = self.files.blobs.delete(name) {
                    tracing::warn!(%error, name, "an old manifest stays");
                }
            }
        }
    }

    /// Takes no more commits, and writes nothing more, to the log neither: under a name that only
    /// this store gives is what it did not make, so somebody else is at work in the same place.
    /// What is there is left as it is.
    pub(crate) fn disown(&self, name: &str) -> Error {
        let why = format!("{} is another's: two stores are in one place", path(name));
        self.log().abandon(&why);
        Error::ReadOnly(Arc::from(why))
    }
}

/// Why a manifest was not made under a name.
enum Failed {
    /// Nothing is there.
    Not(Error),
    /// It may be there, or come there.
    Perhaps(Error),
    /// What is there is another's.
    Another(Error),
}

/// A manifest that could not be made, as it seemed: it may be on disk, or come there. What
/// it names stays until a later one is durable.
pub(crate) struct Attempt {
    number: u64,
    bytes: Vec<u8>,
    /// Whether it was found there, under either name.
    there: bool,
    #[expect(dead_code, reason = "held, so that its runs are not given back")]
    catalog: Arc<Catalog>,
}

fn compare_bytes(blobs: &dyn Blobs, name: &str, bytes: &[u8]) -> device::Result<Found> {
    let part = |buffer: &mut [u8], at: u64| Ok(part_of(bytes, buffer, at));
    compare(blobs, name, bytes.len() as u64, &part)
}
