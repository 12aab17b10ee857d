//! What opening finds: sealed segments, open segments that a crash or a close left.
//!
//! Invariants afterwards: (1) every segment that a surviving record names is in the table;
//! (2) no page is handed out again that was handed out before; (3) no number is used again.
//! (2) holds because allocation goes on after the end of the newest file: a page beyond it was
//! never written, and a record that names it cannot be durable, for the barrier writes first.
//! (3) holds because the greatest number is never deleted. And (4) the names of all that is found
//! are durable: sealed ones since the blobs were opened, the others since they are synced here.
//! Bytes that were written and not synced by the process before are named by no record, for the
//! barrier comes before the record is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Device;
use format::segment::{Mark, MarkKind, PAGE_BYTES};
use store::Result;

use crate::Data;
use crate::segments::{
    OPEN_DIRECTORY, OpenSegment, SealedSegment, blob_name, open_path, parse_name,
};

impl Data {
    pub(crate) fn recover(&self) -> Result<()> {
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
        let mut greatest = sealed.last_key_value().map(|(&id, _)| id);
        let mut open = Vec::new();
        for name in device.list(OPEN_DIRECTORY)? {
            let Some((id, 0)) = parse_name(&name) else { continue };
            if sealed.contains_key(&id) {
                // Sealed, and stopped before the file was removed.
                device.remove(&open_path(id))?;
                continue;
            }
            if let Some(found) = self.reopen(id)? {
                greatest = greatest.max(Some(id));
                open.push(found);
            }
        }
        open.sort_by_key(|found| found.segment.id);
        // Only the newest segment of all goes on; a clean page boundary is where it does.
        let current = open.pop_if(|last| {
            last.intact
                && Some(last.segment.id) == greatest
                && last.pages < self.options.segment_pages
        });
        let sealing = open.into_iter().map(|found| (found.segment, found.pages)).collect();
        let current = current.map(|found| (found.segment, found.pages));
        self.allocator.resume(greatest.map_or(0, |id| id + 1), current, sealing);
        Ok(())
    }

    /// Finds the blobs; of several generations the greatest counts, the others go.
    fn recover_sealed(&self) -> Result<BTreeMap<u64, u32>> {
        let mut sealed: BTreeMap<u64, u32> = BTreeMap::new();
        let mut superseded = Vec::new();
        for name in self.segments.blobs().list("")? {
            let Some((id, generation)) = parse_name(&name) else { continue };
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

    fn reopen(&self, id: u64) -> Result<Option<Reopened>> {
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
                // Created, and stopped before its header was durable: no page was handed out.
                device.remove(&path)?;
                return Ok(None);
            }
            tracing::warn!(file = path, ?header, "damaged header: the segment takes no more data");
        }
        let pages = length.div_ceil(u64::from(PAGE_BYTES)).max(1);
        let segment = Arc::new(OpenSegment::new(id, file));
        self.segments.insert_open(Arc::clone(&segment));
        Ok(Some(Reopened { segment, pages: pages as u32, intact }))
    }
}

struct Reopened {
    segment: Arc<OpenSegment>,
    /// First page that was not handed out, for all that is known.
    pages: u32,
    intact: bool,
}
