//! Small writes stored in the record itself: the log carries them, so an fsync is one device write.
//!
//! The rule, for a write of N bytes:
//! 1. It is entirely inside an inline extent: that is changed in place.
//! 2. The file was fsynced recently and N <= 4 KiB: inline. "Recently" is within the last
//!    16 small writes; a file that is never fsynced gains nothing from the log. Where each
//!    change is made durable ([`crate::Options::synced`]), every file counts as fsynced.
//! 3. N < 1 KiB and it cannot grow the stored extent before it: inline. A page of 4 KiB and a
//!    record for each would waste space. It joins the inline extent before it up to 4 KiB.
//! 4. Everything before it is inline, and it ends within the first `inline_file_bytes`
//!    ([`crate::Options`], none by default): inline, whatever N is.
//! 5. Otherwise it goes to a segment and takes the inline extents directly before it along. So do 2
//!    and 3 when those reach 64 KiB (3: 4 KiB).
//!
//! Inline bytes of rule 2 are bounded, so that contents do not stay in the tree permanently. A file
//! may have 1 MiB, then it uses segments until [`Data::settle`] has moved them. Those of all files
//! are bounded, too ([`crate::hot`]).
//!
//! Where a sync makes an object of each segment that was written, the limits of rule 2 are greater
//! ([`OBJECTS`]). A synced write is then one object, the log's, instead of two, and what moves to a
//! segment is 1 MiB. Otherwise a file that is synced after each write of 8 KiB would be as many
//! objects as syncs.

use std::borrow::Cow;
use std::time::Duration;

use format::extent::{Extent, INLINE_EXTENT_BYTES_MAX};
use format::key;
use store::{Read, Result};

use crate::hot::Bounds;
use crate::window::{Contents, Record, extents_between, growable, parse};
use crate::{Data, ExtentOwner, FileRef};

/// Writes below this are inline unless they can grow a stored extent.
pub(crate) const SMALL_BYTES: usize = 1024;

/// How long others settle before a file that could not.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(60);

/// Limits of rule 2.
pub(crate) struct Limits {
    /// Longest write that is inline.
    longest_write: usize,
    /// Maximum length of consecutive inline extents.
    longest_run: u64,
    bytes: Bounds,
}

/// Where files of segments are durable.
const FILES: Limits = Limits {
    longest_write: INLINE_EXTENT_BYTES_MAX,
    longest_run: 64 << 10,
    bytes: Bounds { settle_at: 256 << 10, hot_at: 1 << 20 },
};

/// Where each sync makes objects. (The longest write is an option.)
const OBJECTS: Limits = Limits {
    longest_write: 64 << 10,
    longest_run: 1 << 20,
    bytes: Bounds { settle_at: 1 << 20, hot_at: 4 << 20 },
};

/// Where a write is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    Inline,
    Segment,
}

impl Data {
    fn limits(&self) -> Limits {
        let longest_write = self.options.inline_write_bytes;
        if self.uploads() { Limits { longest_write, ..OBJECTS } } else { FILES }
    }

    /// Maximum length of consecutive inline extents.
    pub(crate) fn run_bytes_max(&self) -> u64 {
        self.limits().longest_run
    }

    /// Records that a file was fsynced, so that its next small writes are inline.
    pub fn note_fsync(&self, file: FileRef) {
        self.hot.synced(file);
    }

    /// Whether there may be files for [`Data::closed`].
    #[inline]
    pub fn knows_files(&self) -> bool {
        self.hot.has_any()
    }

    /// Records that a file was closed permanently. What it has inline settles with the others.
    pub fn closed(&self, file: FileRef) {
        self.hot.closed(file);
    }

    /// Records that a file is gone, and its tree.
    pub fn forget(&self, file: FileRef) {
        self.hot.gone(file);
    }

    /// A file whose inline bytes [`Data::settle`] should move.
    pub fn settle_due(&self) -> Option<FileRef> {
        self.hot.due(&self.limits().bytes, self.env.clock.monotonic())
    }

    /// Records that a file could not settle: for a minute others settle before it.
    pub fn rest_from_settling(&self, file: FileRef) {
        self.hot.rest(file, self.env.clock.monotonic() + REST_AFTER_FAILURE);
    }

    /// Decides where a write is stored, by the rule at the top of this file.
    pub(crate) fn home(
        &self,
        file: FileRef,
        records: &[Record],
        offset: u64,
        bytes: usize,
        run: &InlineRun,
        owner: ExtentOwner,
    ) -> Home {
        let starts_the_file = offset == 0 || run.start() == Some(0);
        if starts_the_file && offset + bytes as u64 <= self.options.inline_file_bytes {
            return Home::Inline;
        }
        let limits = self.limits();
        let run_bytes = run.bytes + bytes as u64;
        if bytes <= limits.longest_write && run_bytes <= limits.longest_run {
            if self.options.synced {
                self.note_fsync(file);
            }
            if self.hot.spend(file, bytes, &limits.bytes) {
                return Home::Inline;
            }
        }
        let grows = || {
            records
                .iter()
                .find(|record| record.end() == offset)
                .and_then(|record| growable(record, owner))
                .is_some_and(|stored| self.allocator.is_current(stored.segment))
        };
        if bytes < SMALL_BYTES && run_bytes <= INLINE_EXTENT_BYTES_MAX as u64 && !grows() {
            return Home::Inline;
        }
        Home::Segment
    }
}

/// The consecutive inline extents directly before a write.
#[derive(Debug, Default)]
pub(crate) struct InlineRun {
    /// Start and length of each, the last one first; the last one is truncated where the write
    /// starts.
    pieces: Vec<(u64, usize)>,
    /// The bytes of the last one.
    last: Vec<u8>,
    bytes: u64,
}

impl InlineRun {
    /// Finds them, up to `most` bytes. `records` are those around the write. It copies no bytes but
    /// those of the last one: most writes join the run, and need no others.
    pub(crate) fn before(
        store: &dyn Read,
        file: FileRef,
        records: &[Record],
        offset: u64,
        most: u64,
    ) -> Result<InlineRun> {
        let mut run = InlineRun::default();
        let touches = |record: &Record| {
            record.offset < offset
                && record.end() >= offset
                && matches!(record.contents, Contents::Inline(_))
        };
        if !records.iter().any(touches) {
            return Ok(run);
        }
        let lowest = offset.saturating_sub(most);
        let mut cursor = extents_between(store, file, lowest, offset)?;
        cursor.seek(&key::extent(file.ino, offset))?;
        let mut start = offset;
        while let Some(item) = cursor.prev()? {
            let (at, Extent::Inline(bytes)) = parse(file, item)? else { break };
            let reaches = at.saturating_add(bytes.len() as u64) >= start;
            let own = &bytes[..bytes.len().min((start - at) as usize)];
            if !reaches || run.bytes + own.len() as u64 > most {
                break;
            }
            if run.pieces.is_empty() {
                run.last = own.to_vec();
            }
            run.bytes += own.len() as u64;
            start = at;
            run.pieces.push((start, own.len()));
        }
        Ok(run)
    }

    /// Where the run starts; `None` when there is none.
    pub(crate) fn start(&self) -> Option<u64> {
        self.pieces.last().map(|(start, _)| *start)
    }

    /// Offsets of its records.
    pub(crate) fn offsets(&self) -> impl Iterator<Item = u64> {
        self.pieces.iter().map(|(start, _)| *start)
    }

    /// Start and bytes of the last record, if `bytes` more fit into it.
    pub(crate) fn last_with_space_for(&self, bytes: usize) -> Option<(u64, &[u8])> {
        let (start, _) = self.pieces.first()?;
        (self.last.len() + bytes <= INLINE_EXTENT_BYTES_MAX).then_some((*start, &*self.last))
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its bytes, then others. The caller has held the file exclusively since it was found.
    pub(crate) fn followed_by<'a>(
        &self,
        store: &dyn Read,
        file: FileRef,
        bytes: &'a [u8],
    ) -> Result<Cow<'a, [u8]>> {
        let Some(start) = self.start() else { return Ok(bytes.into()) };
        let mut all = Vec::with_capacity(self.bytes as usize + bytes.len());
        let mut cursor = extents_between(store, file, start, start.saturating_add(self.bytes))?;
        cursor.seek(&key::extent(file.ino, start))?;
        for (at, length) in self.pieces.iter().rev() {
            let item = cursor.next()?.expect("invariant: nobody else changes the file");
            let (found, extent) = parse(file, item)?;
            let Extent::Inline(piece) = extent else {
                unreachable!("invariant: nobody else changes the file")
            };
            assert_eq!(found, *at, "invariant: nobody else changes the file");
            all.extend_from_slice(&piece[..*length]);
        }
        all.extend_from_slice(bytes);
        Ok(all.into())
    }
}
