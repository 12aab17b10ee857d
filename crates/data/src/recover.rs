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
//!
//! Of two files of one segment one is removed only where the other was read and is whole. Else both
//! are kept, and told ([`Data::held_back`]): names may be of anybody's making.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Device;
use format::key;
use format::segment::{Mark, MarkKind, PAGE_BYTES, PAGES_MAX};
use store::{KeyRange, Read, Result};

use crate::Data;
use crate::cut::VOLUME_TREE;
use crate::proof::Right;
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
            match sealed.get(&id) {
                Some(&generation) => self.recover_twin(id, generation)?,
                None => open.extend(self.reopen(id)?),
            }
        }
        open.sort_by_key(|(segment, _)| segment.id);
        self.allocator.resume(next_number(store, next), open);
        Ok(())
    }

    /// Finds the blobs; of several generations the greatest that is whole counts. Where that is the
    /// greatest of all the others go.
    fn recover_sealed(&self) -> Result<BTreeMap<u64, u32>> {
        let blobs = self.segments.blobs();
        let mut found: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for name in blobs.list("")? {
            let Some((id, generation)) = number_of(&name) else { continue };
            found.entry(id).or_default().push(generation);
        }
        let mut sealed = BTreeMap::new();
        for (id, mut generations) in found {
            generations.sort_unstable();
            let used = match &generations[..] {
                &[one] => one,
                several => self.recover_several(id, several)?,
            };
            sealed.insert(id, used);
            self.segments.insert_sealed(SealedSegment::new(id, used, false));
        }
        Ok(sealed)
    }

    /// Which of the generations of a segment, in rising order, is used. A rewriting that was
    /// stopped leaves the older ones beside one that is whole. Anything else is not of its making:
    /// then all are kept.
    fn recover_several(&self, id: u64, generations: &[u32]) -> Result<u32> {
        let blobs = self.segments.blobs();
        let mut failed = None;
        for (at, &generation) in generations.iter().enumerate().rev() {
            let one = SealedSegment::new(id, generation, false);
            let Err(error) = one.check_whole(blobs, self.options.volume, 0) else {
                let Some(why) = failed else {
                    for &older in &generations[..at] {
                        blobs.delete(&blob_name(id, older))?;
                    }
                    return Ok(generation);
                };
                for other in generations.iter().filter(|&&other| other != generation) {
                    let other = SealedSegment::new(id, *other, false).path();
                    self.segments.note_twin(id, other, &one.path(), &why);
                }
                return Ok(generation);
            };
            failed = failed.or(Some(error));
        }
        // None of them is whole: by the name alone.
        let newest = *generations.last().expect("invariant: there are several");
        let used = SealedSegment::new(id, newest, false).path();
        let why = failed.expect("invariant: there are several");
        for &other in generations.iter().filter(|&&other| other != newest) {
            let other = SealedSegment::new(id, other, false).path();
            self.segments.note_twin(id, other, &used, &why);
        }
        Ok(newest)
    }

    /// An open segment of which there is a blob. Sealing that was stopped leaves both, and the blob
    /// is whole: then the file goes. Or else both are kept, and the file is used where it says that
    /// it is the segment, for that the blob is not whole.
    fn recover_twin(&self, id: u64, generation: u32) -> Result<()> {
        let path = open_path(id);
        let file = self.env.device.open(&path)?;
        let least = if generation == 0 { file.len()? } else { 0 };
        let sealed = SealedSegment::new(id, generation, false);
        let blobs = self.segments.blobs();
        let Err(error) = sealed.check_whole(blobs, self.options.volume, least) else {
            return Ok(self.env.device.remove(&path)?);
        };
        let open = OpenSegment::new(id, file, false);
        if open.check(self.options.volume).is_ok() {
            self.segments.note_twin(id, sealed.path(), &path, &error);
            self.segments.insert_open(Arc::new(open));
        } else {
            self.segments.note_twin(id, path, &sealed.path(), &error);
        }
        Ok(())
    }

    /// A segment that takes no more data, with its pages, to be sealed.
    fn reopen(&self, id: u64) -> Result<Option<(Arc<OpenSegment>, u32)>> {
        let device: &dyn Device = self.env.device.as_ref();
        let path = open_path(id);
        let file = device.open(&path)?;
        let length = file.len()?;
        let mut page = [0; format::segment::MARK_BYTES];
        let found = file.read_at(&mut page, 0)?;
        let header = Mark::decode(page.get(..found).unwrap_or_default());
        if header.is_err() && length <= u64::from(PAGE_BYTES) {
            // Created, and stopped before its header was durable, or there is nothing left.
            device.remove(&path)?;
            return Ok(None);
        }
        let volume = self.options.volume;
        let right = Right { kind: MarkKind::Header, segment: id, generation: 0, volume };
        let checked = right.check(header, &path, 0);
        let segment = Arc::new(OpenSegment::new(id, file, checked.is_ok()));
        self.segments.insert_open(Arc::clone(&segment));
        if let Err(bad) = checked {
            // It is read, and not sealed: a footer would say what only its name does.
            self.segments.doubt(id, &bad);
            return Ok(None);
        }
        // Behind the last page of a full one may be a footer: who sealed it was stopped before it
        // had its name.
        let pages = length.div_ceil(u64::from(PAGE_BYTES)).clamp(1, u64::from(PAGES_MAX));
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
