//! What opening finds: sealed segments, and open segments that a crash or a close left.
//!
//! Invariants afterwards: (1) every existing segment that a surviving record names is in the table.
//! (2) No page is allocated again that a record may name. (3) No number is used again. They hold
//! regardless of the state of the files. A segment may be lost, or truncated, and then reused pages
//! would be lost with the files that lost theirs. (2) holds because no segment of an earlier
//! opening is appended to: its length does not show what was allocated. (3) holds because the next
//! number is above those of all files, the greatest of which is never deleted. It is also above
//! those of all counts of live pages: whatever names a page is counted in the same commit. And (4)
//! the names of all segments found are durable: sealed ones since the blobs were opened, the others
//! since they are synced here. No record names bytes that the previous process wrote but did not
//! sync, because the barrier precedes the write of the record.
//!
//! Where only blobs are durable ([`crate::Options::upload_from`]), files of open segments are
//! removed: no surviving record names them.
//!
//! If a segment has two files, one is removed only if the other was read and is intact. Otherwise
//! both are kept, and reported ([`Data::held_back`]): anyone may have given them these names.

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
/// How far numbers skip ahead if the counts cannot be read: more segments than any disk holds.
const NUMBERS_SKIPPED: u64 = 1 << 32;

/// Segment and generation of a name that is one of ours.
fn number_of(name: &str) -> Option<(u64, u32)> {
    parse_name(name).filter(|&(id, _)| id < NUMBERS / 2)
}

impl Data {
    pub(crate) fn recover(&self, store: &dyn Read) -> Result<()> {
        if let Some(from) = self.options.upload_from {
            self.drop_open()?;
            let sealed = self.recover_sealed()?;
            let next = sealed.last_key_value().map_or(0, |(&id, _)| id + 1);
            self.allocator.resume(next_number(store, next).max(from), Vec::new());
            return Ok(());
        }
        let device = self.env.device.as_ref();
        if device.metadata(OPEN_DIRECTORY)?.is_none() {
            device.create_dir("data")?;
            // First: if the directory below exists, all names of the volume directory become
            // durable, including that of the header, if the formatting process was killed.
            device.sync_dir("")?;
            device.create_dir(OPEN_DIRECTORY)?;
        }
        // The process that created a directory, or the segment that continues below, may have been
        // killed before its name was durable. Data written there would be lost with it.
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

    /// Finds the blobs; of several generations the greatest intact one counts. If that is the
    /// greatest of all, the others are deleted.
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

    /// Which of the generations of a segment, in ascending order, is used. An interrupted rewrite
    /// leaves the older ones beside an intact one. Any other set has another cause: then all are
    /// kept.
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
        // None of them is intact: decide by the name alone.
        let newest = *generations.last().expect("invariant: there are several");
        let used = SealedSegment::new(id, newest, false).path();
        let why = failed.expect("invariant: there are several");
        for &other in generations.iter().filter(|&&other| other != newest) {
            let other = SealedSegment::new(id, other, false).path();
            self.segments.note_twin(id, other, &used, &why);
        }
        Ok(newest)
    }

    /// An open segment of which a blob exists. Interrupted sealing leaves both, with an intact
    /// blob: then the file is removed. Otherwise both are kept, and the file is used if it proves
    /// that it is the segment, because the blob is not intact.
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

    /// Takes a segment that accepts no more data, with its page count, to be sealed.
    fn reopen(&self, id: u64) -> Result<Option<(Arc<OpenSegment>, u32)>> {
        let device: &dyn Device = self.env.device.as_ref();
        let path = open_path(id);
        let file = device.open(&path)?;
        let length = file.len()?;
        let mut page = [0; format::segment::MARK_BYTES];
        let found = file.read_at(&mut page, 0)?;
        let header = Mark::decode(page.get(..found).unwrap_or_default());
        if header.is_err() && length <= u64::from(PAGE_BYTES) {
            // Creation stopped before its header was durable, or the file has lost everything.
            device.remove(&path)?;
            return Ok(None);
        }
        let volume = self.options.volume;
        let right = Right { kind: MarkKind::Header, segment: id, generation: 0, volume };
        let checked = right.check(header, &path, 0);
        let segment = Arc::new(OpenSegment::new(id, file, checked.is_ok()));
        self.segments.insert_open(Arc::clone(&segment));
        if let Err(bad) = checked {
            // It is read, and not sealed: a footer would assert what only its name gives.
            self.segments.doubt(id, &bad);
            return Ok(None);
        }
        // A footer may follow the last page of a full segment: sealing stopped before the blob had
        // its name.
        let pages = length.div_ceil(u64::from(PAGE_BYTES)).clamp(1, u64::from(PAGES_MAX));
        Ok(Some((segment, pages as u32)))
    }
}

/// The number of the next segment, at least `least`, which the files give.
fn next_number(store: &dyn Read, least: u64) -> u64 {
    // Only a false record has a count with so high a number.
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
