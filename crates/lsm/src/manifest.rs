//! Manifests: writing the one that makes a state durable, and finding the newest.
//!
//! A manifest is a blob under its number and never changes. The one with the greatest number is
//! the state; it is written when everything that it names is durable, and those before it are
//! deleted after.
//!
//! A number is used for one attempt and never again: what was asked for under it, making or
//! deleting, may be carried out long after nobody waits for it any more. So numbers have gaps. An
//! attempt of which nobody knows what became of it is as good a state as the one before, for what
//! it names is held until a later manifest is durable (`Durable::uncertain`), and the log that
//! follows either is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Blobs, Found, Map, compare, part_of};
use format::run_manifest::{BlobEntry, Decoded, RunManifest, TreeEntry, VERSION};
use store::{Error, Lsn, Result, Writer};

use crate::checkpoint::Durable;
use crate::core::{Catalog, Core};
use crate::files::{Files, path};
use crate::layer::Stack;

/// What names of manifests begin with.
pub(crate) const MANIFEST_PREFIX: &str = "manifest-";

pub(crate) fn manifest_name(number: u64) -> String {
    format!("{MANIFEST_PREFIX}{number:016x}")
}

/// No store comes to greater numbers; what bears one was put there by somebody else.
const NUMBER_MAX: u64 = 1 << 62;

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

/// Reads the manifest with the greatest number.
pub(crate) fn newest(files: &Files) -> Result<RunManifest> {
    let Some(number) = numbers(files, MANIFEST_PREFIX)?.pop() else {
        return Err(Error::Missing { file: path(MANIFEST_PREFIX) });
    };
    read_manifest(files, number)
}

/// Reads the manifest of a number, which must be this volume's.
pub(crate) fn read_manifest(files: &Files, number: u64) -> Result<RunManifest> {
    let name = manifest_name(number);
    let length = files.blobs.length(&name)?.unwrap_or(0);
    let mut bytes = vec![0; length as usize];
    let read = files.blobs.read_at(&name, &mut bytes, 0)?;
    bytes.truncate(read);
    match RunManifest::decode(&bytes, files.volume, number) {
        Ok(Decoded::Manifest(manifest)) => Ok(manifest),
        Ok(Decoded::Newer(found)) => {
            Err(Error::NewerFormat { file: path(&name), found, known: VERSION })
        }
        Err(bad) => Err(bad.located(&path(&name), 0).into()),
    }
}

impl Core {
    /// What a manifest of a catalog says, whose layers are all on the medium.
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
            next_run: self.ids.load(Ordering::Relaxed),
            values_from: self.options.values_from,
            ..RunManifest::default()
        };
        let (mut runs, mut blobs, mut logs) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        for stack in catalog.values() {
            for layer in &stack.layers {
                let run = layer.as_run().expect("invariant: all layers are on the medium");
                runs.entry(run.entry.number).or_insert(run);
            }
        }
        for run in runs.into_values() {
            blobs.insert(run.entry.blob);
            logs.extend(run.uses.iter().map(|rows| rows.log));
            manifest.runs.push(run.entry);
            manifest.uses.push(run.uses.to_vec());
        }
        blobs.extend(&logs);
        let entry = |number: u64| BlobEntry { number, length: state.blobs[&number] };
        manifest.blobs = blobs.into_iter().map(entry).collect();
        manifest.logs = logs.into_iter().map(|number| state.logs[&number]).collect();
        let mut stacks: Map<usize, u32> = Map::default();
        for (id, stack) in catalog {
            let address = Arc::as_ptr(stack) as usize;
            let at = *stacks.entry(address).or_insert_with(|| {
                manifest.stacks.push(places(stack, &manifest.runs));
                manifest.stacks.len() as u32 - 1
            });
            manifest.trees.push(TreeEntry { number: id.0, stack: at });
        }
        manifest
    }

    /// Writes a manifest, durable on return. Where it fails, what was tried is noted if it may be
    /// on the medium all the same, or come there later.
    pub(crate) fn write_manifest(
        &self,
        state: &mut Durable,
        manifest: &RunManifest,
        catalog: &Arc<Catalog>,
    ) -> Result<()> {
        let name = manifest_name(manifest.number);
        let bytes = manifest.encode();
        let blobs = &*self.files.blobs;
        let made = blobs.create(&name, &bytes);
        let found = match &made {
            Ok(true) => Ok(Found::Same),
            _ => compare_bytes(blobs, &name, &bytes),
        };
        let error = match (made, found) {
            // Also where it is said that the name is taken, and it is by this.
            (Ok(_), Ok(Found::Same)) => {
                self.wrote(Writer::Checkpoint, bytes.len() as u64, 1);
                return Ok(());
            }
            (_, Ok(Found::Other)) => return Err(self.disown(&name)),
            (Err(error), Ok(Found::Nothing)) if !blobs.answers_may_be_lost() => {
                return Err(error.into());
            }
            (Err(error), _) | (Ok(_), Err(error)) => error,
            (Ok(_), Ok(Found::Nothing)) => {
                let gone = std::io::Error::other("it is said to be there, and is not");
                device::Error::new("create", &path(&name), gone)
            }
        };
        let (number, catalog) = (manifest.number, Arc::clone(catalog));
        state.uncertain.push(Attempt { number, bytes, there: false, catalog });
        Err(error.into())
    }

    /// Looks what became of manifests that could not be made, before another is. An error where
    /// that cannot be seen; where somebody else's is found, this store is read-only from now on.
    pub(crate) fn look_after(&self, state: &mut Durable) -> Result<()> {
        self.look_for_another(state)?;
        for attempt in &mut state.uncertain {
            let name = manifest_name(attempt.number);
            match compare_bytes(&*self.files.blobs, &name, &attempt.bytes)? {
                Found::Other => return Err(self.disown(&name)),
                found => attempt.there = found == Found::Same,
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
                Err(self.disown(&manifest_name(newest)))
            }
            _ => Ok(()),
        }
    }

    /// Deletes the manifests before the one that was just made. What stays is older than that, so
    /// nobody takes it for the state, and the next opening tries again.
    pub(crate) fn delete_older(&self, old: u64, uncertain: &[Attempt]) {
        let seen = uncertain.iter().filter(|attempt| attempt.there).map(|attempt| attempt.number);
        for number in seen.chain([old]).filter(|number| *number > 0) {
            if let Err(error) = self.files.blobs.delete(&manifest_name(number)) {
                tracing::warn!(%error, number, "an old manifest stays");
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

/// A manifest that could not be made, as it seemed: it may be on the medium, or come there. What
/// it names stays until a later one is durable.
pub(crate) struct Attempt {
    number: u64,
    bytes: Vec<u8>,
    /// Whether it was found there.
    there: bool,
    #[expect(dead_code, reason = "held, so that its runs are not given back")]
    catalog: Arc<Catalog>,
}

fn compare_bytes(blobs: &dyn Blobs, name: &str, bytes: &[u8]) -> device::Result<Found> {
    let part = |buffer: &mut [u8], at: u64| Ok(part_of(bytes, buffer, at));
    compare(blobs, name, bytes.len() as u64, &part)
}

fn places(stack: &Stack, runs: &[format::run_manifest::RunEntry]) -> Vec<u32> {
    let place = |number: u64| {
        let at = runs.binary_search_by_key(&number, |run| run.number);
        at.expect("invariant: all runs of the catalog are listed") as u32
    };
    stack
        .layers
        .iter()
        .map(|layer| {
            let run = layer.as_run().expect("invariant: all layers are on the medium");
            place(run.entry.number)
        })
        .collect()
}
