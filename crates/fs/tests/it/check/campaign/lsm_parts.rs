//! Where the parts of the log-structured engine are: from the manifest down.

use std::collections::BTreeMap;

use format::kept_twice::COPY_TREE;
use format::key;
use format::row_pointer::RowPointer;
use format::run_block::{Block, Stored, unpack};
use format::run_index::{BLOB_HEAD_BYTES, RunIndex};
use format::run_manifest::{Decoded, RunEntry, RunManifest};

use super::anatomy::{DamageSite, Top};
use super::media::Media;

/// A part of a run of the volume's own tree, and of the copies.
const OWN: &str = "run of the volume's own tree";
const COPIES: &str = "run of the copies of its records";

/// What of a run all else hangs on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hub {
    /// It is the volume's own tree, or a part of it.
    Own,
    /// It is the copies of that.
    Copies,
    /// Its index, and the block of the top directory.
    Top,
    None,
}

pub(super) fn path(blob: u64) -> String {
    format!("lsm/run-{blob:016x}")
}

/// The newest manifest.
pub(super) fn manifest(media: &Media) -> (String, RunManifest) {
    let files = media.files().into_iter().map(|(path, _)| path);
    let name = files.filter(|path| path.starts_with("lsm/manifest-")).max().expect("there is one");
    let bytes = media.read(&name);
    let (volume, number) = RunManifest::named(&bytes).expect("it is whole");
    let Ok(Decoded::Manifest(manifest)) = RunManifest::decode(&bytes, volume, number) else {
        panic!("{name} is whole");
    };
    (name, manifest)
}

/// Adds the places; returns the last record of the log that the state contains.
pub(super) fn places(media: &Media, top: &Top, found: &mut Vec<DamageSite>) -> u64 {
    let (name, manifest) = manifest(media);
    assert_eq!(manifest.volume, top.volume);
    found.push(DamageSite::new("manifest", &name, 0, media.read(&name).len() as u64));
    let copy = name.replace("manifest-", "copy-");
    found.push(DamageSite::new("copy of the manifest", &copy, 0, media.read(&copy).len() as u64));
    for blob in &manifest.blobs {
        found.push(DamageSite::new(
            "head of a blob",
            &path(blob.number),
            0,
            BLOB_HEAD_BYTES as u64,
        ));
    }
    let mut rows = BTreeMap::new();
    for (at, entry) in (0_u32..).zip(&manifest.runs) {
        let of = |tree: u64| {
            let tree = manifest.trees.iter().find(|entry| entry.number == tree);
            tree.is_some_and(|tree| manifest.stacks[tree.stack as usize].contains(&at))
        };
        let hub = match (of(key::VOLUME_TREE), of(COPY_TREE), of(top.tree)) {
            (true, ..) => Hub::Own,
            (_, true, _) => Hub::Copies,
            (.., true) => Hub::Top,
            _ => Hub::None,
        };
        run(media, entry, (hub, &top.key), found, &mut rows);
    }
    for ((log, offset), (length, name)) in rows {
        found.push(DamageSite::new(name, &path(log), offset, length));
    }
    manifest.lsn
}

/// Blocks of value logs, by blob and offset: how long, and what they are.
type Rows = BTreeMap<(u64, u64), (u64, &'static str)>;

fn run(
    media: &Media,
    entry: &RunEntry,
    (hub, top): (Hub, &[u8]),
    found: &mut Vec<DamageSite>,
    rows: &mut Rows,
) {
    let (blob, bytes) = (path(entry.blob), media.read(&path(entry.blob)));
    let slice = |from: u64, length: u32| &bytes[from as usize..][..length as usize];
    let index = RunIndex::decode(slice(entry.index, entry.index_bytes)).expect("it is whole");
    // Filters are stored between the descriptions of blocks and of deleted ranges.
    let mut other = RunIndex::default();
    for (at, place) in index.blocks().iter().enumerate() {
        other.push(index.first_key(at), index.last_key(), *place);
    }
    let before = other.encode().len() as u64;
    for (from, to) in index.ranges() {
        other.push_range(from, to.as_deref());
    }
    let behind = other.encode().len() as u64 - before;
    let filters = u64::from(entry.index_bytes) - before - behind;
    let [index_name, filter_name, block_name] = match hub {
        Hub::None => ["index of a run", "filters of a run", "block of a run"],
        Hub::Top => {
            ["index of a run above the top", "filters of a run above the top", "block of a run"]
        }
        Hub::Own => [OWN; 3],
        Hub::Copies => [COPIES; 3],
    };
    found.push(DamageSite::new(index_name, &blob, entry.index, before));
    if filters > 0 {
        let place = DamageSite::new(filter_name, &blob, entry.index + before, filters);
        found.push(place.reported_from(entry.index));
    }
    for (at, place) in index.blocks().iter().enumerate() {
        let last = at + 1 == index.blocks().len();
        let has_top = index.first_key(at) <= top
            && if last { top <= index.last_key() } else { top < index.first_key(at + 1) };
        let is_above = hub == Hub::Top && has_top;
        let name = if is_above { "block of a run above the top" } else { block_name };
        found.push(DamageSite::new(name, &blob, place.offset, u64::from(place.stored)));
        let stored = slice(place.offset, place.stored);
        let raw = if place.stored < place.raw {
            unpack(stored, place.raw as usize).expect("it is whole")
        } else {
            stored.to_vec()
        };
        let block = Block::decode(raw).expect("it is whole");
        for row in 0..block.len() {
            if let Stored::Far(pointer) = block.stored(row) {
                let RowPointer { log, place, .. } =
                    RowPointer::decode(pointer).expect("it is whole");
                let length = u64::from(place.stored);
                let name = match hub {
                    Hub::Own => "value log of the volume's own tree",
                    Hub::Copies => "value log of the copies of its records",
                    Hub::Top | Hub::None => "block of a value log",
                };
                // A block has the rows of one tree, and of its copies.
                rows.insert((log, place.offset), (length, name));
            }
        }
    }
}
