//! Removing a range from a file's extents, and the resulting edits.
//!
//! Extents that overlap the range are removed, or trimmed to one or two smaller views. Pages that
//! only the removed parts named are freed. The views of a stored range that are in one file do not
//! overlap in the range. So a page that a removed part covers whole is dead. The first and last
//! page of a part may be covered only in part. The rest of them may be named by the remainder of
//! the same extent. Another view within a chunk of it in the file may name them, too. So the given
//! records must reach one chunk beyond the range on both sides.

use format::extent::{CHUNK_BYTES, Stored, encode_inline, encode_stored};
use format::{key, usage};
use store::{Batch, Lane, MergeKind, Result, TreeId};

use crate::alloc::{PageRun, Ticket};
use crate::window::{Contents, Record, overlap};
use crate::{ExtentOwner, FileRef};

/// The tree that holds the usage of segments.
pub(crate) const VOLUME_TREE: TreeId = TreeId(key::VOLUME_TREE);

/// What a planned change frees, and what it holds in flight. Keep it until the commit has returned,
/// then pass it to [`crate::Data::reclaim_after`]. When the commit was refused with nothing
/// changed, pass it to [`crate::Data::abandon`]; when in doubt drop it.
#[derive(Debug, Default)]
#[must_use = "freed pages are reclaimed by `reclaim_after`, once the commit is there"]
pub struct Freed {
    /// Pages that no record names after the commit.
    pub(crate) pages: Vec<PageRun>,
    /// Reservations that the batch names.
    pub(crate) tickets: Vec<Ticket>,
    /// Files whose inline bytes the batch moves to segments, and how many.
    pub(crate) moved: Vec<(FileRef, u64)>,
    /// Bytes of the file that were dropped but that a clone may name.
    pub shared_bytes: u64,
    /// Bytes that a write replaced: those of its range that were no hole.
    pub replaced_bytes: u64,
}

impl Freed {
    /// Bytes of segments that no record names after the commit.
    pub fn exclusive_bytes(&self) -> u64 {
        self.pages.iter().map(|run| u64::from(run.count)).sum::<u64>() * u64::from(CHUNK_BYTES)
    }

    /// Adds what another change of the same batch frees.
    pub fn merge(&mut self, other: Freed) {
        self.pages.extend(other.pages);
        self.tickets.extend(other.tickets);
        self.moved.extend(other.moved);
        self.shared_bytes += other.shared_bytes;
        self.replaced_bytes += other.replaced_bytes;
    }
}

/// Edits of one file, collected before they are added to the batch. A key that is removed and set
/// again is only set, and a segment's counter is changed once.
pub(crate) struct Edits {
    file: FileRef,
    puts: Vec<(u64, Vec<u8>)>,
    deletes: Vec<u64>,
    usage: Vec<(u64, i64)>,
    pub(crate) freed: Freed,
}

impl Edits {
    pub(crate) fn new(file: FileRef) -> Edits {
        Edits {
            file,
            puts: Vec::new(),
            deletes: Vec::new(),
            usage: Vec::new(),
            freed: Freed::default(),
        }
    }

    pub(crate) fn put_stored(&mut self, offset: u64, extent: &Stored) {
        let mut value = Vec::with_capacity(
            format::extent::STORED_HEADER_BYTES + 4 * extent.checksums.as_slice().len(),
        );
        encode_stored(&mut value, extent);
        self.puts.push((offset, value));
    }

    pub(crate) fn put_inline(&mut self, offset: u64, bytes: &[u8]) {
        let mut value = Vec::with_capacity(format::extent::INLINE_HEADER_BYTES + bytes.len());
        encode_inline(&mut value, bytes);
        self.puts.push((offset, value));
    }

    pub(crate) fn delete(&mut self, offset: u64) {
        self.deletes.push(offset);
    }

    /// Counts pages of a segment that become live or dead.
    pub(crate) fn count(&mut self, segment: u64, pages: i64) {
        match self.usage.iter_mut().find(|(id, _)| *id == segment) {
            Some((_, count)) => *count += pages,
            None => self.usage.push((segment, pages)),
        }
    }

    /// Removes `start..end` from `records`, which reach a chunk beyond it on both sides. If the
    /// remainder of one would take the key of another, or of another's remainder, they overlap and
    /// the file is damaged. The cut is then refused, because one of both would be lost.
    pub(crate) fn cut(
        &mut self,
        records: &[Record],
        start: u64,
        end: u64,
        owner: ExtentOwner,
    ) -> Result<()> {
        let mut removed = Vec::new();
        let mut kept = Vec::new();
        let mut beyond: Option<u64> =
            records.iter().any(|record| record.offset == end).then_some(end);
        for record in records {
            let (from, to) = (record.offset.max(start), record.end().min(end));
            if from >= to {
                if let Contents::Stored(stored) = &record.contents {
                    kept.push(pages_of(stored));
                }
                continue;
            }
            let (left, right) = (from - record.offset, record.end() - to);
            if right > 0 {
                if let Some(other) = beyond {
                    return Err(overlap(self.file, record.offset, other));
                }
                beyond = Some(record.end());
            }
            if left == 0 {
                self.delete(record.offset);
            }
            match &record.contents {
                Contents::Stored(stored) => {
                    if owner.excludes_others(stored) {
                        removed.push(pages_of(&stored.part(left as u32, (to - from) as u32)));
                    } else {
                        self.freed.shared_bytes += to - from;
                    }
                    if left > 0 {
                        let part = stored.part(0, left as u32);
                        kept.push(pages_of(&part));
                        self.put_stored(record.offset, &part);
                    }
                    if right > 0 {
                        let part = stored.part((to - record.offset) as u32, right as u32);
                        kept.push(pages_of(&part));
                        self.put_stored(to, &part);
                    }
                }
                Contents::Inline(bytes) => {
                    if left > 0 {
                        self.put_inline(record.offset, &bytes[..left as usize]);
                    }
                    if right > 0 {
                        self.put_inline(to, &bytes[(to - record.offset) as usize..]);
                    }
                }
            }
        }
        self.free(&removed, &kept);
        Ok(())
    }

    /// Frees the pages of the removed parts that no kept view names.
    fn free(&mut self, removed: &[PageRun], kept: &[PageRun]) {
        let mut edges: Vec<(u64, u32)> = Vec::with_capacity(removed.len() * 2);
        for run in removed {
            edges.push((run.segment, run.page));
            edges.push((run.segment, run.page + run.count - 1));
        }
        edges.sort_unstable();
        edges.dedup();
        edges.retain(|&(segment, page)| !kept.iter().any(|run| run.contains(segment, page)));
        let mut dead: Vec<PageRun> =
            edges.iter().map(|&(segment, page)| PageRun { segment, page, count: 1 }).collect();
        let inner = removed.iter().filter(|run| run.count > 2);
        dead.extend(inner.map(|run| PageRun { page: run.page + 1, count: run.count - 2, ..*run }));
        dead.sort_unstable();
        for run in dead {
            self.count(run.segment, -i64::from(run.count));
            match self.freed.pages.last_mut() {
                Some(last) if last.segment == run.segment && last.page + last.count == run.page => {
                    last.count += run.count;
                }
                _ => self.freed.pages.push(run),
            }
        }
    }

    /// Adds the edits to the batch.
    pub(crate) fn finish(self, batch: &mut Batch) -> Freed {
        let FileRef { tree, ino } = self.file;
        for &offset in &self.deletes {
            if !self.puts.iter().any(|(put, _)| *put == offset) {
                batch.delete(tree, &key::extent(ino, offset));
            }
        }
        for (offset, value) in &self.puts {
            batch.put(tree, &key::extent(ino, *offset), value);
        }
        for &(segment, pages) in self.usage.iter().filter(|(_, pages)| *pages != 0) {
            count_pages(batch, segment, pages);
        }
        self.freed
    }
}

/// Adds to a segment's count of live pages.
pub(crate) fn count_pages(batch: &mut Batch, segment: u64, pages: i64) {
    let lane = Lane { offset: usage::LIVE_PAGES_LANE, kind: MergeKind::Add, operand: pages };
    batch.merge(VOLUME_TREE, &key::segment(segment), &[lane]);
}

/// The pages that a view touches.
pub(crate) fn pages_of(stored: &Stored) -> PageRun {
    PageRun {
        segment: stored.segment,
        page: u32::from(stored.page) + stored.first_chunk(),
        count: stored.chunk_count(),
    }
}
