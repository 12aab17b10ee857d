//! What operations leave to be done later, which nobody need wait for: inodes without a name, what
//! was detached, contents that may be garbage. Steps of upkeep take it from here.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::sync::{Mutex, RwLock};
use format::candidate::COLLECT_KEY;
use format::detached_record::DetachedRecord;
use format::key;
use vfs::FsResult;
use volume::Core;
use volume::error::malformed;
use volume::subvol::VOLUME;

/// Inodes (subvolume, number) that have neither a name nor a holder.
#[derive(Default)]
struct Orphans {
    new: VecDeque<(u64, u64)>,
    /// Those that could not be removed when that was tried last.
    failed: VecDeque<(u64, u64)>,
}

/// What waits to be removed.
pub struct Queue {
    orphans: Mutex<Orphans>,
    detached: AtomicU64,
    /// Bytes dropped since the last collection that clones may share.
    shared_bytes: AtomicU64,
    collect: AtomicBool,
    /// A collection has ended, and none has begun since.
    collected: AtomicBool,
    /// Whether there may be copies whose contents were not counted.
    uncounted: AtomicBool,
    /// Something happened in few commits that the index may have much to do for.
    large: AtomicBool,
    /// Sessions may name inodes that nobody holds now: none is removed.
    awaited: AtomicBool,
    /// Held by the thread that removes an inode without a name.
    pub removing: RwLock<()>,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue::new()
    }
}

impl Queue {
    /// Nothing waits.
    pub fn new() -> Queue {
        Queue {
            orphans: Mutex::default(),
            detached: AtomicU64::new(0),
            shared_bytes: AtomicU64::new(0),
            collect: AtomicBool::new(false),
            collected: AtomicBool::new(false),
            uncounted: AtomicBool::new(true),
            large: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            removing: RwLock::new(()),
        }
    }

    /// Whether inodes without a name wait for sessions that may name them.
    pub fn await_orphans(&self, wait: bool) {
        self.awaited.store(wait, Ordering::SeqCst);
    }

    /// Whether they do.
    pub fn are_orphans_awaited(&self) -> bool {
        self.awaited.load(Ordering::SeqCst)
    }

    /// Finds what was waiting when the volume was last open. Nothing is held yet.
    pub fn recover(&self, fs: &Core) -> FsResult<()> {
        let mut orphans = self.orphans.lock();
        fs.visit_volume(&key::ORPHANS_PREFIX, &mut |key, _| {
            let orphan = key::parse_orphan(key).map_err(|error| malformed(VOLUME, &error))?;
            orphans.new.push_back(orphan);
            Ok(())
        })?;
        drop(orphans);
        // A collection frees space, which a volume that is only read does not.
        if !fs.options.read_only {
            fs.visit_volume(&COLLECT_KEY, &mut |_, _| {
                self.request_collection();
                Ok(())
            })?;
        }
        fs.visit_volume(&key::DETACHED_PREFIX, &mut |_, value| {
            // Inodes that nothing reaches are removed by an opening, not by steps.
            if !matches!(DetachedRecord::decode(value), Ok(DetachedRecord::Inodes { .. })) {
                self.detached.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    /// Adds an inode (subvolume, number) that has neither a name nor a holder.
    pub(crate) fn push_orphan(&self, subvol: u64, ino: u64) {
        self.orphans.lock().new.push_back((subvol, ino));
    }

    /// Puts back an inode that could not be removed.
    pub fn put_orphan_back(&self, subvol: u64, ino: u64) {
        self.orphans.lock().failed.push_back((subvol, ino));
    }

    /// The next inode to remove; those that failed come last.
    pub fn pop_orphan(&self) -> Option<(u64, u64)> {
        let mut orphans = self.orphans.lock();
        orphans.new.pop_front().or_else(|| orphans.failed.pop_front())
    }

    /// Whether an inode waits to be removed that was not tried yet.
    pub fn has_new_orphans(&self) -> bool {
        !self.orphans.lock().new.is_empty()
    }

    /// Whether such an inode waits, or is being removed now.
    pub fn removes_orphans(&self) -> bool {
        // A thread takes it from the queue while holding this lock.
        self.has_new_orphans() || self.removing.is_locked()
    }

    /// Counts dropped bytes that a clone may still name. Above a threshold a collection looks for
    /// them.
    pub(crate) fn count_shared(&self, bytes: u64, enough: u64) {
        if bytes > 0 && self.shared_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes >= enough {
            self.request_collection();
        }
    }

    /// Requests a collection of what nothing names any more: a tree was dropped.
    pub fn request_collection(&self) {
        self.collect.store(true, Ordering::SeqCst);
    }

    /// Whether a collection was requested; clears the request, so a later one counts separately.
    pub fn take_request(&self) -> bool {
        if !self.collection_is_requested() {
            return false;
        }
        // First: a thread that finds no request then finds that one has begun.
        self.collected.store(false, Ordering::SeqCst);
        let asked = self.collect.swap(false, Ordering::SeqCst);
        if asked {
            self.shared_bytes.store(0, Ordering::Relaxed);
        }
        asked
    }

    /// Notes that a requested collection has ended: all of it was swept.
    pub fn note_collected(&self) {
        self.collected.store(true, Ordering::SeqCst);
    }

    /// Whether one has ended whose record is still there.
    pub fn was_collected(&self) -> bool {
        self.collected.load(Ordering::SeqCst)
    }

    /// Whether the record of a collection that is due can go: one has ended, and nothing was
    /// requested since. The caller holds the ledger, so no tree is dropped meanwhile.
    pub fn take_collected(&self) -> bool {
        !self.collection_is_requested() && self.collected.swap(false, Ordering::SeqCst)
    }

    /// Whether a collection was requested that has not begun.
    pub fn collection_is_requested(&self) -> bool {
        self.collect.load(Ordering::SeqCst)
    }

    /// Notes that a copy was made whose contents are not counted.
    pub fn note_uncounted(&self) {
        self.uncounted.store(true, Ordering::Release);
    }

    /// Whether there may be such copies; clears the note.
    pub fn take_uncounted(&self) -> bool {
        self.uncounted.swap(false, Ordering::AcqRel)
    }

    /// Notes that much may differ from the index at once: a rollback.
    pub fn note_large(&self) {
        self.large.store(true, Ordering::Release);
    }

    /// Whether that was noted; clears the note.
    pub fn take_large(&self) -> bool {
        self.large.swap(false, Ordering::AcqRel)
    }

    /// Detached directories that wait.
    pub fn detached(&self) -> u64 {
        self.detached.load(Ordering::Relaxed)
    }

    /// One more detached directory waits (or one less).
    pub fn add_detached(&self, change: i64) {
        self.detached.fetch_add(change as u64, Ordering::Relaxed);
    }
}
