//! Files that were fsynced recently, and how many of their bytes are inline for that reason.
//!
//! Invariant: the rule of fsynced files ([`crate::inline`]) puts bytes into records. Each such byte
//! is counted here until it has moved to a segment, or its tree is gone. So a file with counted
//! bytes is neither thrown out when the table is full nor dropped when it is closed. Where no file
//! can be thrown out, a new one uses segments. Counts are upper bounds: bytes that were removed or
//! overwritten stay counted until the file settles. They are lost with the process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::sync::Mutex;

use crate::FileRef;

/// Number of small writes after an fsync that are expected to be fsynced too.
const CREDITS: u32 = 16;
/// Maximum number of files.
const FILES_MAX: usize = 4096;
/// So many files with inline bytes are too many: then half of them settle.
const FILES_TO_SETTLE: usize = 2048;
/// All files together may have so many times the bytes at which a single one settles.
const SETTLE_ALL_AT: u64 = 16;

/// The bounds of inline bytes of one file.
pub(crate) struct Bounds {
    /// Inline bytes of a file at which a settle is due.
    pub(crate) settle_at: u64,
    /// Those beyond which it uses segments.
    pub(crate) hot_at: u64,
}

/// The files.
#[derive(Default)]
pub(crate) struct Hot {
    /// Whether there is any, readable without the lock.
    any: AtomicBool,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    files: BTreeMap<FileRef, HotFile>,
    /// How many of them have inline bytes.
    with_bytes: usize,
    /// The inline bytes of all.
    inline_bytes: u64,
    /// They were too many, and are not yet half as many.
    are_settling: bool,
}

#[derive(Default)]
struct HotFile {
    credits: u32,
    inline_bytes: u64,
    /// Until when it does not settle, after it could not.
    rests_until: Duration,
}

impl Table {
    /// Changes the inline bytes of a file, if it is known.
    fn count(&mut self, file: FileRef, change: impl FnOnce(u64) -> u64) {
        let Some(hot) = self.files.get_mut(&file) else { return };
        let (old, new) = (hot.inline_bytes, change(hot.inline_bytes));
        hot.inline_bytes = new;
        self.inline_bytes = self.inline_bytes - old + new;
        self.with_bytes = self.with_bytes - usize::from(old > 0) + usize::from(new > 0);
    }

    /// Makes space for one more file.
    fn has_space(&mut self) -> bool {
        if self.files.len() < FILES_MAX {
            return true;
        }
        if self.with_bytes == self.files.len() {
            return false;
        }
        let idle = self.files.iter().find(|(_, hot)| hot.inline_bytes == 0);
        let idle = idle.map(|(file, _)| *file);
        idle.is_some_and(|file| self.files.remove(&file).is_some())
    }

    /// Whether files are to settle though none has many inline bytes. They settle many at a time:
    /// where each sync makes an object of what was written, that is one object for many.
    fn are_too_many(&mut self, bounds: &Bounds) -> bool {
        let bytes = SETTLE_ALL_AT * bounds.settle_at;
        let exceeds = |part: usize| {
            self.with_bytes > FILES_TO_SETTLE / part || self.inline_bytes > bytes / part as u64
        };
        self.are_settling = if self.are_settling { exceeds(2) } else { exceeds(1) };
        self.are_settling
    }
}

impl Hot {
    /// Whether a file may be known.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// A file was fsynced.
    pub(crate) fn synced(&self, file: FileRef) {
        let mut table = self.table.lock();
        // (Nearly always there is space, and one search is enough.)
        let has_space = table.files.len() < FILES_MAX;
        if has_space || table.files.contains_key(&file) || table.has_space() {
            table.files.entry(file).or_default().credits = CREDITS;
            self.any.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a small write is expected to be fsynced; counts it.
    pub(crate) fn spend(&self, file: FileRef, bytes: usize, bounds: &Bounds) -> bool {
        if !self.has_any() {
            return false;
        }
        let mut table = self.table.lock();
        let Some(hot) = table.files.get_mut(&file) else { return false };
        if hot.credits == 0 || hot.inline_bytes >= bounds.hot_at {
            return false;
        }
        hot.credits -= 1;
        table.count(file, |inline| inline + bytes as u64);
        true
    }

    /// Inline bytes moved to segments, in a change that is committed.
    pub(crate) fn moved_along(&self, file: FileRef, bytes: u64) {
        if self.has_any() {
            let mut table = self.table.lock();
            table.count(file, |inline| inline.saturating_sub(bytes));
            if let Some(hot) = table.files.get_mut(&file) {
                hot.rests_until = Duration::ZERO;
            }
        }
    }

    /// A file could not settle: others come first until the monotonic clock reaches `until`.
    pub(crate) fn rest(&self, file: FileRef, until: Duration) {
        if let Some(hot) = self.table.lock().files.get_mut(&file) {
            hot.rests_until = until;
        }
    }

    /// A file was closed by all.
    pub(crate) fn closed(&self, file: FileRef) {
        if self.has_any() {
            let mut table = self.table.lock();
            match table.files.get_mut(&file) {
                Some(hot) if hot.inline_bytes > 0 => hot.credits = 0,
                _ => drop(table.files.remove(&file)),
            }
        }
    }

    /// A file is gone.
    pub(crate) fn gone(&self, file: FileRef) {
        if self.has_any() {
            let mut table = self.table.lock();
            table.count(file, |_| 0);
            table.files.remove(&file);
        }
    }

    /// A file whose inline bytes should move to segments: one that has many. Where those of all
    /// files are too many, it is the one that has most. Files that rest do not count.
    pub(crate) fn due(&self, bounds: &Bounds, now: Duration) -> Option<FileRef> {
        if !self.has_any() {
            return None;
        }
        let mut table = self.table.lock();
        let are_too_many = table.are_too_many(bounds);
        let can =
            table.files.iter().filter(|(_, hot)| hot.inline_bytes > 0 && now >= hot.rests_until);
        let (file, most) = can.max_by_key(|(_, hot)| hot.inline_bytes)?;
        (most.inline_bytes >= bounds.settle_at || are_too_many).then_some(*file)
    }
}
