//! Where the structures are stored that a volume's state points to. Anything unreachable is not a
//! place: it is never read, so its damage has no effect.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::extent::{Extent, decode};
use format::kept_twice::RootCounter;
use format::key::{self, Counter, Part};
use format::log_record::{Record, seed};
use format::log_segment::{self, RECORDS_START};
use format::segment::{MARK_BYTES, PAGE_BYTES};
use format::subvolume_record::SubvolumeRecord;
use format::volume::VolumeHeader;
use fs::{Fs, OpenOptions};
use store::{Durability, KeyRange, Store, TreeId};

use super::media::Media;
use super::{btree_parts, lsm_parts};
use crate::check::volume::opened_with;

/// A place to damage: one structure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DamageSite {
    pub(super) path: String,
    pub(super) offset: u64,
    pub(super) structure: &'static str,
    pub(super) length: u64,
    /// The first offset at which its damage may be reported: where the checksummed bytes begin.
    pub(super) reported: u64,
}

impl DamageSite {
    pub(super) fn new(structure: &'static str, path: &str, offset: u64, length: u64) -> DamageSite {
        DamageSite { structure, path: path.to_owned(), offset, length, reported: offset }
    }

    pub(super) fn reported_from(self, reported: u64) -> DamageSite {
        DamageSite { reported, ..self }
    }

    pub(super) fn end(&self) -> u64 {
        self.offset + self.length
    }
}

/// What everything of a volume hangs on: the trees of its own, and the record of its top directory.
pub(super) struct Top {
    pub(super) volume: [u8; 16],
    secret: [u8; 16],
    /// The tree of the volume's root.
    pub(super) tree: u64,
    /// Key of its top directory.
    pub(super) key: Vec<u8>,
    /// The trees of all subvolumes that are not removed.
    pub(super) trees: Vec<TreeId>,
}

/// The places of a volume, in order.
pub(super) fn places(media: &Media) -> Vec<DamageSite> {
    let header = VolumeHeader::decode(&media.read("volume.pando")).expect("it is whole");
    let mut found = Vec::new();
    let (top, contents) = inside(media, &header);
    found.extend(contents);
    let lsn = if media.has("btree/super-0") {
        btree_parts::places(media, &top, &mut found)
    } else {
        lsm_parts::places(media, &top, &mut found)
    };
    for (path, length) in media.files() {
        let structure = match path.as_str() {
            "volume.pando" => "volume header",
            "volume.copy" => "copy of the volume header",
            path if path.starts_with("index/manifest") => "manifest of the index",
            path if path.starts_with("index/cluster") => "cluster of the index",
            path if path.starts_with("log/") => {
                log(media, &top, path, lsn, &mut found);
                continue;
            }
            path if path.starts_with("data/open/") || path.starts_with("data/sealed/") => {
                found.push(DamageSite::new("header of a segment", path, 0, MARK_BYTES as u64));
                if path.starts_with("data/sealed/") {
                    let at = length - MARK_BYTES as u64;
                    found.push(DamageSite::new("footer of a segment", path, at, MARK_BYTES as u64));
                }
                continue;
            }
            _ => continue,
        };
        found.push(DamageSite::new(structure, &path, 0, length));
    }
    found.sort();
    found.dedup();
    found
}

/// The records of the log that the state does not have, and its headers.
fn log(media: &Media, top: &Top, path: &str, lsn: u64, found: &mut Vec<DamageSite>) {
    if path.contains("spare") {
        return;
    }
    let bytes = media.read(path);
    if path.rsplit('.').next() == Some("kept") {
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
        found.push(DamageSite::new("kept segment of the log", path, 0, used));
        return;
    }
    found.push(DamageSite::new("header of the log", path, 0, log_segment::HEADER_BYTES as u64));
    let mut at = RECORDS_START as usize;
    let mut next = None;
    while let Ok(record) = Record::decode(seed(&top.secret), &bytes[at..]) {
        let number = record.header.lsn;
        if record.header.is_mark() || next.is_some_and(|next| next != number) {
            break;
        }
        next = Some(number + 1);
        if number > lsn {
            let length = record.bytes() as u64;
            found.push(DamageSite::new("record of the log", path, at as u64, length));
        }
        at += record.bytes();
    }
}

/// The records of a volume: its root, and where contents are stored.
fn inside(media: &Media, header: &VolumeHeader) -> (Top, Vec<DamageSite>) {
    let mut captured: Option<Arc<dyn Store>> = None;
    let options = OpenOptions { index: None, ..opened_with(Durability::Async) };
    let _fs = Fs::open_through(media.copy().env(), &options, |store| {
        captured = Some(Arc::clone(&store));
        store
    })
    .expect("it is whole");
    let store = captured.expect("it was opened");
    let volume = TreeId(key::VOLUME_TREE);
    let root = store.get(volume, &key::counter(Counter::Root)).expect("it is whole");
    let root = RootCounter::decode(&root.expect("it is there")).expect("it is whole").subvolume;
    let mut records = BTreeMap::new();
    scan(&*store, volume, &key::SUBVOLUMES_PREFIX, &mut |key, value| {
        let id = key::parse_number(key).expect("a subvolume");
        records.insert(id, SubvolumeRecord::decode(value).expect("it is whole"));
    });
    let record = &records[&root];
    let top = Top {
        volume: header.volume_id,
        secret: header.hash_key,
        tree: record.tree,
        key: key::directory(record.root, Part::Attributes).to_vec(),
        trees: records
            .values()
            .filter(|record| !record.detached)
            .map(|record| TreeId(record.tree))
            .collect(),
    };
    let mut contents = Vec::new();
    for &tree in &top.trees {
        scan(&*store, tree, &key::EXTENTS_PREFIX, &mut |_, value| {
            let Extent::Stored(stored) = decode(value).expect("it is whole") else { return };
            let name = format!("{:016x}.seg", stored.segment);
            let (open, sealed) = (format!("data/open/{name}"), format!("data/sealed/{name}"));
            let (structure, path) = if media.has(&sealed) {
                ("contents in a sealed segment", sealed)
            } else {
                ("contents in an open segment", open)
            };
            let page = u64::from(stored.page) * u64::from(PAGE_BYTES);
            let (from, to) = (page + u64::from(stored.skip), page + u64::from(stored.view_end()));
            let chunk = from - from % u64::from(PAGE_BYTES);
            contents.push(DamageSite::new(structure, &path, from, to - from).reported_from(chunk));
        });
    }
    (top, contents)
}

/// Visits all keys of a tree that start with a prefix.
fn scan(store: &dyn Store, tree: TreeId, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) {
    let mut cursor = store.scan(tree, KeyRange::prefix(prefix)).expect("it is whole");
    while let Some(item) = cursor.next().expect("it is whole") {
        visit(item.key, item.value);
    }
}
