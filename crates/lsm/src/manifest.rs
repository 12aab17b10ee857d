//! Manifests: writing the one that makes a state durable, and finding the newest.
//!
//! A manifest is a blob under its number and never changes. The one with the greatest number is
//! the state; it is written when everything that it names is durable, and those before it are
//! deleted after.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::Map;
use format::run_manifest::{BlobEntry, Decoded, RunManifest, TreeEntry, VERSION};
use store::{Error, Lsn, Result, Writer};

use crate::core::{Catalog, Core};
use crate::files::{DIRECTORY, Files, path};
use crate::layer::Stack;

/// What names of manifests begin with.
pub(crate) const MANIFEST_PREFIX: &str = "manifest-";

pub(crate) fn manifest_name(number: u64) -> String {
    format!("{MANIFEST_PREFIX}{number:016x}")
}

/// The numbers of the blobs whose names begin with a prefix, ascending.
pub(crate) fn numbers(files: &Files, prefix: &str) -> Result<Vec<u64>> {
    let names = files.blobs.list(prefix)?;
    let hex = |name: &String| u64::from_str_radix(name.strip_prefix(prefix)?, 16).ok();
    let mut numbers: Vec<u64> = names.iter().filter_map(hex).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads the manifest with the greatest number.
pub(crate) fn newest(files: &Files) -> Result<RunManifest> {
    let Some(number) = numbers(files, MANIFEST_PREFIX)?.pop() else {
        return Err(Error::Missing { file: path(MANIFEST_PREFIX) });
    };
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
        next_blob: u64,
        lengths: &std::collections::BTreeMap<u64, u64>,
    ) -> RunManifest {
        let mut manifest = RunManifest {
            volume: self.options.common.volume,
            number,
            lsn: lsn.0,
            time: self.env.clock.now().0,
            next_blob,
            next_run: self.ids.load(Ordering::Relaxed),
            ..RunManifest::default()
        };
        for stack in catalog.values() {
            for layer in &stack.layers {
                let run = layer.as_run().expect("invariant: all layers are on the medium");
                manifest.runs.push(run.entry);
            }
        }
        manifest.runs.sort_unstable_by_key(|run| run.number);
        manifest.runs.dedup_by_key(|run| run.number);
        let mut blobs: Vec<u64> = manifest.runs.iter().map(|run| run.blob).collect();
        blobs.sort_unstable();
        blobs.dedup();
        manifest.blobs = blobs
            .into_iter()
            .map(|number| BlobEntry { number, length: lengths[&number] })
            .collect();
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

    /// Writes a manifest, durable on return. Where it fails, it is not there.
    pub(crate) fn write_manifest(&self, manifest: &RunManifest) -> Result<()> {
        let name = manifest_name(manifest.number);
        let bytes = manifest.encode();
        match self.files.blobs.create(&name, &bytes) {
            Ok(made) => assert!(made, "manifest {} exists", manifest.number),
            Err(error) => {
                // It may be there all the same, and then it must not be taken for the newest.
                if let Err(also) = self.files.blobs.delete(&name) {
                    let why = format!("a manifest may be in {DIRECTORY} or not: {error}, {also}");
                    self.log().fail(&why);
                }
                return Err(error.into());
            }
        }
        self.wrote(Writer::Checkpoint, bytes.len() as u64, 1);
        Ok(())
    }
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
