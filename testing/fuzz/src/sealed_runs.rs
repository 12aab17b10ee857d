//! Runs of the log-structured engine that were falsified with every checksum right: an index, or
//! the entries of a block. What was changed is appended to the blob of the run, with an index that
//! points there, and the manifest points to that index.

use fastrand::Rng;
use format::run_block::{self, Block, BlockBuilder, Stored};
use format::run_index::{self, BlockPlace, RunIndex};
use format::run_manifest::{Decoded, RunEntry, RunManifest};
use testing::SimDevice;

use crate::mutate::mutate;

/// Falsifies one run of the newest state.
pub(crate) fn falsify(device: &SimDevice, random: &mut Rng) {
    let files = device.files();
    let newest = files.iter().rev().map(|(path, _)| path).find(|path| path.contains("manifest-"));
    let Some(newest) = newest else { return };
    let bytes = device.read_file(newest);
    let Some((volume, number)) = RunManifest::named(&bytes) else { return };
    let Ok(Decoded::Manifest(mut manifest)) = RunManifest::decode(&bytes, volume, number) else {
        return;
    };
    if manifest.runs.is_empty() {
        return;
    }
    let at = random.usize(..manifest.runs.len());
    let run = manifest.runs[at];
    let path = format!("lsm/run-{:016x}", run.blob);
    if !files.iter().any(|(other, _)| *other == path) {
        return;
    }
    let mut blob = device.read_file(&path);
    let Some(changed) = falsify_run(&mut blob, volume, run, random) else { return };
    device.overwrite(&path, 0, &blob);
    manifest.runs[at] = changed;
    for entry in manifest.blobs.iter_mut().filter(|entry| entry.number == run.blob) {
        entry.length = blob.len() as u64;
    }
    let encoded = manifest.encode();
    for path in [newest.clone(), newest.replace("manifest-", "copy-")] {
        device.truncate(&path, 0);
        device.overwrite(&path, 0, &encoded);
    }
}

/// Appends a falsified copy of a run to its blob, and returns what the manifest is to record of it.
fn falsify_run(
    blob: &mut Vec<u8>,
    volume: [u8; 16],
    run: RunEntry,
    random: &mut Rng,
) -> Option<RunEntry> {
    let start = usize::try_from(run.index).ok()?;
    let stored = blob.get(start..start + run.index_bytes as usize)?.to_vec();
    let mut encoded = if random.u8(..3) == 0 {
        stored
    } else {
        with_falsified_block(blob, volume, run.blob, &RunIndex::decode(&stored).ok()?, random)?
    };
    if random.u8(..3) == 0 {
        mutate(&mut encoded, &[], random);
    }
    let index = blob.len() as u64;
    blob.extend_from_slice(&encoded);
    let first = RunIndex::decode(&encoded).ok();
    let first = first.and_then(|index| index.blocks().first().map(|place| place.offset));
    Some(RunEntry {
        start: first.unwrap_or(run.start),
        index,
        index_bytes: encoded.len() as u32,
        checksum: run_index::checksum(&volume, run.blob, index, &encoded),
        ..run
    })
}

/// Appends all blocks of a run, one of them falsified, and returns their index.
fn with_falsified_block(
    blob: &mut Vec<u8>,
    volume: [u8; 16],
    number: u64,
    index: &RunIndex,
    random: &mut Rng,
) -> Option<Vec<u8>> {
    let chosen = random.usize(..index.blocks().len().max(1));
    let mut copy = RunIndex::default();
    for (at, place) in index.blocks().iter().enumerate() {
        let start = usize::try_from(place.offset).ok()?;
        let mut bytes = blob.get(start..start + place.stored as usize)?.to_vec();
        let mut raw = place.raw;
        if at == chosen {
            if place.stored != place.raw {
                bytes = run_block::unpack(&bytes, place.raw as usize).ok()?;
            }
            bytes = falsified_block(bytes, random)?;
            raw = bytes.len() as u32;
            if random.bool()
                && let Some(packed) = run_block::pack(&bytes, 1)
            {
                bytes = packed;
            }
        }
        let offset = blob.len() as u64;
        let checksum = run_index::checksum(&volume, number, offset, &bytes);
        blob.extend_from_slice(&bytes);
        let stored = bytes.len() as u32;
        let place = BlockPlace { offset, stored, raw, checksum };
        copy.push(index.first_key(at), index.last_key(), place);
    }
    for (from, to) in index.ranges() {
        copy.push_range(from, to.as_deref());
    }
    Some(copy.encode())
}

/// A block with other bytes, or with other keys and values.
fn falsified_block(mut bytes: Vec<u8>, random: &mut Rng) -> Option<Vec<u8>> {
    if random.u8(..3) == 0 {
        mutate(&mut bytes, &[], random);
        return Some(bytes);
    }
    let block = Block::decode(bytes).ok()?;
    let chosen = random.usize(..block.len());
    let mut builder = BlockBuilder::default();
    for at in 0..block.len() {
        let mut key = Vec::new();
        block.key_to(at, &mut key);
        let stored = block.stored(at);
        if at != chosen {
            builder.push(&key, stored);
            continue;
        }
        let mut value = match stored {
            Stored::Tombstone => Vec::new(),
            Stored::Value(value) | Stored::Far(value) => value.to_vec(),
        };
        if random.u8(..4) == 0 {
            mutate(&mut key, &[], random);
        } else {
            mutate(&mut value, &[], random);
        }
        let is_far = matches!(stored, Stored::Far(_));
        match random.u8(..8) {
            0 => builder.push(&key, Stored::Tombstone),
            1 => builder.push(&key, Stored::Far(&value)),
            2 => builder.push(&key, Stored::Value(&value)),
            _ if is_far => builder.push(&key, Stored::Far(&value)),
            _ => builder.push(&key, Stored::Value(&value)),
        }
    }
    Some(builder.finish())
}
