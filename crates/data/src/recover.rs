//! What opening finds: sealed segments, open segments that a crash or a close left.
//!
//! Invariants afterwards: (1) every segment that a surviving record names, and that is there, is
//! in the table; (2) no page is handed out again that a record may name; (3) no number is used
//! again. They hold whatever became of the files: a segment may be lost, or cut short, and then
//! what is written to its pages would go with the files that lost theirs. (2) holds because no
//! segment of an earlier opening is gone on with: its length does not tell what was handed out.
//! (3) holds because the next number is above those of all files, the greatest of which is never
//! deleted, and above those of all counts of live pages: whatever names a page is counted in the
//! same commit. And (4) the names of all that is found are durable: sealed ones since the blobs
//! were opened, the others since they are synced here. Bytes that were written and not synced by
//! the process before are named by no record, for the barrier comes before the record is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Device;
use format::key;
use format::segment::{Mark, MarkKind, PAGE_BYTES, PAGES_MAX};
use store::{KeyRange, Read, Result};

use crate::Data;
use crate::cut::VOLUME_TREE;
use crate::segments::{
    OPEN_DIRECTORY, OpenSegment, SealedSegment, blob_name, open_path, parse_name,
};

/// Segments have smaller numbers: files and counts with greater ones are not ours.
const NUMBERS: u64 = 1 << 62;
/// How far numbers go on where the counts cannot be read: more segments than any medium holds.
const NUMBERS_SKIPPED: u64 = 1 << 32;

/// Segment and generation of a name that is one of ours.
fn number_of(name: &str) -> Option<(u64, u32)> {
    parse_name(name).filter(|&(id, _)| id < NUMBERS / 2)
}

impl Data {
    pub(crate) fn recover(&self, store: &dyn Read) -> Result<()> {
        let device = self.env.device.as_ref();
        if device.metadata(OPEN_DIRECTORY)?.is_none() {
            device.create_dir("data")?;
            // First, so that where the directory below is, all names of the volume directory are
            // durable: also that of the header, if who formatted the volume was killed.
            device.sync_dir("")?;
            device.create_dir(OPEN_DIRECTORY)?;
        }
        // Who made a directory, or the segment that goes on below, may have been killed before
        // its name was durable; what is written there would go with it.
        device.sync_dir("data")?;
        device.sync_dir(OPEN_DIRECTORY)?;
        let sealed = self.recover_sealed()?;
        let mut next = sealed.last_key_value().map_or(0, |(&id, _)| id + 1);
        let mut open = Vec::new();
        for name in device.list(OPEN_DIRECTORY)? {
            let Some((id, 0)) = number_of(&name) else { continue };
            next = next.max(id + 1);
            if sealed.contains_key(&id) {
                // Sealed, and stopped before the file was removed.
                device.remove(&open_path(id))?;
                continue;
            }
            open.extend(self.reopen(id)?);
        }
        open.sort_by_key(|(segment, _)| segment.id);
        self.allocator.resume(next_number(store, next), open);
        Ok(())
    }

    /// Finds the blobs; of several generations the greatest counts, the others go.
    fn recover_sealed(&self) -> Result<BTreeMap<u64, u32>> {
        let mut sealed: BTreeMap<u64, u32> = BTreeMap::new();
        let mut superseded = Vec::new();
        for name in self.segments.blobs().list("")? {
            let Some((id, generation)) = number_of(&name) else { continue };
            if let Some(other) = sealed.insert(id, generation) {
                let greater = other.max(generation);
                sealed.insert(id, greater);
                superseded.push(blob_name(id, other.min(generation)));
            }
        }
        for name in superseded {
            self.segments.blobs().delete(&name)?;
        }
        for (&id, &generation) in &sealed {
            self.segments.insert_sealed(SealedSegment::new(id, generation));
        }
        Ok(sealed)
    }

    /// A segment that takes no more data, with its pages.
    fn reopen(&self, id: u64) -> Result<Option<(Arc<OpenSegment>, u32)>> {
        let device: &dyn Device = self.env.device.as_ref();
        let path = open_path(id);
        let file = device.open(&path)?;
        let length = file.len()?;
        let mut page = [0; format::segment::MARK_BYTES];
        let found = file.read_at(&mut page, 0)?;
        let header = Mark::decode(page.get(..found).unwrap_or_default());
        let intact = header.as_ref().is_ok_and(|mark| {
            mark.kind == MarkKind::Header
                && mark.segment == id
                && mark.volume == self.options.volume
        });
        if !intact {
            if length <= u64::from(PAGE_BYTES) {
                // Created, and stopped before its header was durable, or there is nothing left.
                device.remove(&path)?;
                return Ok(None);
            }
            tracing::warn!(file = path, ?header, "damaged header of a segment");
        }
        // Behind the last page of a full one may be a footer: who sealed it was stopped before it
        // had its name.
        let pages = length.div_ceil(u64::from(PAGE_BYTES)).clamp(1, u64::from(PAGES_MAX));
        let segment = Arc::new(OpenSegment::new(id, file));
        self.segments.insert_open(Arc::clone(&segment));
        Ok(Some((segment, pages as u32)))
    }
}

/// The number that the next segment gets, which is `least` by the files.
fn next_number(store: &dyn Read, least: u64) -> u64 {
    // No count stands that high but in a record that says what is not so.
    let counts = KeyRange::between(&key::segment(least), &key::segment(NUMBERS / 2));
    let greatest = || -> Result<Option<u64>> {
        let mut greatest = None;
        let mut cursor = store.scan(VOLUME_TREE, counts)?;
        while let Some(item) = cursor.next()? {
            greatest = key::parse_number(item.key).ok().max(greatest);
        }
        Ok(greatest)
    };
    match greatest() {
        Ok(None) => least,
        Ok(Some(greatest)) => {
            tracing::warn!(segment = greatest, "the file of a data segment is missing");
            greatest + 1
        }
        Err(error) => {
            tracing::warn!(%error, "counts of data segments cannot be read");
            least + NUMBERS_SKIPPED
        }
    }
}
