//! Verifies that a segment's file is that segment, which its name alone does not prove: names may
//! have been exchanged, and files duplicated.
//!
//! Reading contents needs no such proof, because extents have checksums. Reclaiming space does: a
//! page that is dead in one segment may be the last copy of a file's data in another. So before
//! anything of a segment is punched, rewritten or deleted, its mark must have been read and must
//! identify this segment of this volume. This costs a read of one page, once for each segment and
//! opening, for segments that this opening found. An unproven file is not reclaimed, and is
//! reported.

use std::sync::atomic::{AtomicBool, Ordering};

use device::Blobs;
use format::segment::{FIRST_PAGE, MARK_BYTES, Mark, MarkKind, PAGE_BYTES};
use format::{Corruption, Malformed};
use store::{Error, Result};

use crate::segments::{OpenSegment, SealedSegment, SegmentFile, Segments, open_path};

/// The expected mark: which it is, its segment, generation, and volume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Right {
    pub(crate) kind: MarkKind,
    pub(crate) segment: u64,
    pub(crate) generation: u32,
    pub(crate) volume: [u8; 16],
}

impl Right {
    /// Whether a mark is of the same segment, whichever of its marks it is.
    pub(crate) fn is_same_segment(&self, mark: &Mark) -> bool {
        (mark.segment, mark.generation, mark.volume) == (self.segment, self.generation, self.volume)
    }

    /// The mark, or its defect.
    pub(crate) fn check(
        &self,
        mark: std::result::Result<Mark, Malformed>,
        file: &str,
        offset: u64,
    ) -> std::result::Result<Mark, Corruption> {
        let mark = mark.map_err(|malformed| malformed.located(file, offset))?;
        if mark.kind == self.kind && self.is_same_segment(&mark) {
            return Ok(mark);
        }
        let description = |kind: MarkKind, segment: u64, generation: u32| match generation {
            0 => format!("{kind:?} of segment {segment:016x}"),
            _ => format!("{kind:?} of segment {segment:016x}, generation {generation}"),
        };
        let expected = description(self.kind, self.segment, self.generation) + " of this volume";
        let mut found = description(mark.kind, mark.segment, mark.generation);
        if mark.volume != self.volume {
            found += " of another volume";
        }
        let (file, structure) = (file.to_owned(), "data segment");
        Err(Corruption { file, offset, structure, expected, found, unread: false })
    }
}

impl OpenSegment {
    /// Checks that the header identifies the segment.
    pub(crate) fn check(&self, volume: [u8; 16]) -> Result<()> {
        let mut bytes = [0; MARK_BYTES];
        let read = self.file.read_at(&mut bytes, 0)?;
        let right = Right { kind: MarkKind::Header, segment: self.id, generation: 0, volume };
        right.check(Mark::decode(&bytes[..read]), &open_path(self.id), 0)?;
        Ok(())
    }
}

impl SealedSegment {
    /// The expected mark at the start.
    pub(crate) fn right(&self, volume: [u8; 16]) -> Right {
        let kind = if self.generation == 0 { MarkKind::Header } else { MarkKind::Rewritten };
        Right { kind, segment: self.id, generation: self.generation, volume }
    }

    /// Checks that the mark at the start identifies the segment, and that a rewritten one's map is
    /// intact.
    pub(crate) fn check(&self, blobs: &dyn Blobs, volume: [u8; 16]) -> Result<()> {
        let mut bytes = [0; MARK_BYTES];
        let read = blobs.read_at(&self.name, &mut bytes, 0)?;
        self.right(volume).check(Mark::decode(&bytes[..read]), &self.path(), 0)?;
        if self.generation > 0 {
            self.map(blobs)?;
        }
        Ok(())
    }

    /// Checks that the marks identify the segment, and that its length agrees with them. `least`:
    /// the length of the file that it was made of.
    pub(crate) fn check_whole(
        &self,
        blobs: &dyn Blobs,
        volume: [u8; 16],
        least: u64,
    ) -> Result<()> {
        self.check(blobs, volume)?;
        let length = blobs.length(&self.name)?.unwrap_or(0);
        let expected = if self.generation > 0 {
            u64::from(self.map(blobs)?.count() + FIRST_PAGE) * u64::from(PAGE_BYTES)
        } else {
            let at = length.saturating_sub(MARK_BYTES as u64);
            let mut bytes = [0; MARK_BYTES];
            let read = blobs.read_at(&self.name, &mut bytes, at)?;
            let right = Right { kind: MarkKind::Footer, ..self.right(volume) };
            let footer = right.check(Mark::decode(&bytes[..read]), &self.path(), at)?;
            let whole = u64::from(footer.pages) * u64::from(PAGE_BYTES) + MARK_BYTES as u64;
            whole.max(least)
        };
        if length == expected {
            return Ok(());
        }
        let (file, structure) = (self.path(), "data segment");
        let (expected, found) = (format!("{expected} bytes"), format!("{length} bytes"));
        Err(Corruption { file, offset: 0, structure, expected, found, unread: false }.into())
    }
}

impl SegmentFile {
    fn proven(&self) -> &AtomicBool {
        match self {
            SegmentFile::Open(open) => &open.proven,
            SegmentFile::Sealed(sealed) => &sealed.proven,
        }
    }
}

impl Segments {
    /// Fails if a segment's file does not prove that it is that segment of this volume. Call it
    /// before reclaiming any part of a segment, or deleting it.
    pub(crate) fn prove(&self, segment: u64) -> Result<()> {
        let Some(place) = self.get(segment) else { return Ok(()) };
        if place.proven().load(Ordering::Acquire) {
            return Ok(());
        }
        let checked = match &place {
            SegmentFile::Open(open) => open.check(self.volume),
            SegmentFile::Sealed(sealed) => sealed.check(self.blobs(), self.volume),
        };
        match checked {
            Ok(()) => {
                place.proven().store(true, Ordering::Release);
                self.doubts.lock().remove(&segment);
                Ok(())
            }
            // There is nothing to lose.
            Err(Error::Device(error)) if error.is_not_found() => Ok(()),
            Err(Error::Corrupt(bad)) => {
                self.doubt(segment, &bad);
                Err(Error::Corrupt(bad))
            }
            Err(error) => Err(error),
        }
    }

    /// Records that a file is not proven to be its segment.
    pub(crate) fn doubt(&self, segment: u64, bad: &Corruption) {
        if self.doubts.lock().insert(segment, bad.clone()).is_none() {
            tracing::warn!(%bad, "not freeing any page of a data segment");
        }
    }

    /// Whether a file was found not to be proven to be its segment.
    pub(crate) fn is_doubted(&self, segment: u64) -> bool {
        self.doubts.lock().contains_key(&segment)
    }

    /// Defects of the files that are therefore not reclaimed.
    pub(crate) fn doubts(&self) -> Vec<Corruption> {
        self.doubts.lock().values().cloned().collect()
    }

    /// Records that there are two files of a segment, of which `other` is not used, and why it was
    /// not removed.
    pub(crate) fn note_twin(&self, segment: u64, other: String, used: &str, why: &Error) {
        let expected = format!("one file of segment {segment:016x}");
        let found = format!("another one beside {used}, which is used; neither is removed: {why}");
        let bad = Corruption {
            file: other,
            offset: 0,
            structure: "data segment",
            expected,
            found,
            unread: false,
        };
        tracing::warn!(%bad, "there are two files of a data segment");
        self.twins.lock().push((segment, bad));
    }

    /// Duplicates of files of segments that are in the table.
    pub(crate) fn twins(&self) -> Vec<(u64, Corruption)> {
        self.twins.lock().clone()
    }
}
