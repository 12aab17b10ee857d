//! Inode numbers, allocated from ranges that are reserved in the store before the first number of a
//! range is used. Closing returns the rest of a range; a crash skips it. No number is used twice.
//!
//! A number is the volume's home and a sequence. A volume of home 0 shows its first 2^40 numbers as
//! earlier programs do. Before the others are used, the counter of the root records that, so that
//! such programs refuse the volume.

use std::sync::atomic::{AtomicU64, Ordering};

use device::sync::Mutex;
use format::answer_record::ANSWER_TREE;
use format::kept_twice::{Features, RootCounter};
use format::key::{self, Counter, NARROW_INO_MAX, inode_of, last_inode_of};
use inode::FsError;
use store::{Batch, Store, TreeId};
use vfs::FsResult;

use crate::error::{from_store, inconsistent};
use crate::own_tree::VOLUME;

/// Inode of the root of a volume.
pub const ROOT_INO: u64 = 2;
/// Numbers in a range: one more commit in so many creations.
const RANGE: u64 = 1 << 16;
/// How many numbers before the first wide one an opening records that there may be wide ones: more
/// than it can use.
const WIDE_AHEAD: u64 = 1 << 36;

/// Counters stay below this, whatever a volume lives through: beyond it they are falsified.
pub const COUNT_MAX: u64 = 1 << 62;

/// The counters of a volume that operations on whole directories go by.
#[derive(Debug, Clone, Copy)]
pub struct Counts {
    /// The number of the next subvolume.
    pub next_subvolume: u64,
    /// The number of the next tree.
    pub next_tree: u64,
    /// The number under which the next detached object waits.
    pub next_detached: u64,
    /// The present epoch.
    pub epoch: u64,
}

impl Counts {
    /// Reads them, and refuses what was never counted to.
    pub fn read(store: &dyn Store) -> FsResult<Counts> {
        let counts = Counts {
            next_subvolume: read_counter(store, Counter::NextSubvolume)?,
            next_tree: read_counter(store, Counter::NextTree)?,
            next_detached: read_counter(store, Counter::NextDetached)?,
            epoch: read_counter(store, Counter::Epoch)?,
        };
        let Counts { next_subvolume, next_tree, next_detached, epoch } = counts;
        let all = [next_subvolume, next_tree, next_detached, epoch];
        if next_tree < key::FIRST_TREE || all.iter().any(|count| *count > COUNT_MAX) {
            let what = format!("counters that were never counted to, {all:?}");
            return Err(inconsistent(VOLUME, &what, 0));
        }
        Ok(counts)
    }
}

/// Allocates inode numbers.
pub struct Numbers {
    next: AtomicU64,
    limit: AtomicU64,
    /// Numbers from here on are not assigned.
    end: u64,
    refill: Mutex<()>,
}

impl Numbers {
    /// Starts after the last range. If numbers of home 0 may become wide before the next opening,
    /// and the volume may change, this records it.
    pub fn open(store: &dyn Store, home: u16, read_only: bool) -> FsResult<Numbers> {
        let home = u64::from(home);
        let (first, last) = (inode_of(home, 0), last_inode_of(home));
        // A falsified counter must not wrap around to 0.
        let next = read_counter(store, Counter::NextIno)?.clamp(first, last);
        let mut end = last;
        if home == 0 && !read_root(store)?.features.wide_inodes {
            let is_near = next > NARROW_INO_MAX - WIDE_AHEAD;
            if is_near && !read_only {
                require(store, Features { wide_inodes: true, ..Features::NONE }, |_| {})?;
            } else {
                end = NARROW_INO_MAX;
            }
        }
        let next = next.min(end);
        Ok(Numbers {
            next: AtomicU64::new(next),
            limit: AtomicU64::new(next),
            end,
            refill: Mutex::new(()),
        })
    }

    /// Of a range that somebody else reserved: no store is written while it lasts. For an executor
    /// with ranges of its own, and for plans over records that are in no store.
    pub fn of_reserved(range: std::ops::Range<u64>) -> Numbers {
        Numbers {
            next: AtomicU64::new(range.start),
            limit: AtomicU64::new(range.end),
            end: last_inode_of(key::home_of(range.start)),
            refill: Mutex::new(()),
        }
    }

    /// A number that was never used.
    #[inline]
    pub fn next_ino(&self, store: &dyn Store) -> FsResult<u64> {
        // The thread that returns the range either sees that this one was taken, or has removed the
        // limit.
        let ino = self.next.fetch_add(1, Ordering::SeqCst);
        if ino >= self.limit.load(Ordering::SeqCst) {
            self.reserve(store, ino)?;
        }
        Ok(ino)
    }

    /// The first of `count` numbers in a row that were never used.
    pub fn take_block(&self, store: &dyn Store, count: u64) -> FsResult<u64> {
        let first = self.next.fetch_add(count, Ordering::SeqCst);
        let last = first.saturating_add(count.saturating_sub(1));
        if last >= self.limit.load(Ordering::SeqCst) {
            self.reserve(store, last)?;
        }
        Ok(first)
    }

    /// Returns the unused rest of the last range. Closing, or a volume that is opened for each of
    /// many calls, would otherwise use up a range each time. If that cannot be committed the rest
    /// is skipped, as by a crash.
    pub fn give_back(&self, store: &dyn Store) -> FsResult<()> {
        let _one_at_a_time = self.refill.lock();
        // From now on no thread takes a number without waiting for this to end.
        let limit = self.limit.swap(0, Ordering::SeqCst);
        let next = self.next.load(Ordering::SeqCst).min(limit);
        self.limit.store(next, Ordering::SeqCst);
        if next == limit {
            return Ok(());
        }
        let mut batch = Batch::new();
        batch.put(VOLUME, &key::counter(Counter::NextIno), &next.to_le_bytes());
        store.commit(&batch).map(drop).map_err(from_store)
    }

    #[cold]
    fn reserve(&self, store: &dyn Store, ino: u64) -> FsResult<()> {
        let _one_at_a_time = self.refill.lock();
        loop {
            let limit = self.limit.load(Ordering::Acquire);
            if ino < limit {
                return Ok(());
            }
            if limit >= self.end {
                return Err(FsError::LimitReached(
                    "all inode numbers were used; copy the files to a new volume",
                ));
            }
            let next = limit.saturating_add(RANGE).min(self.end);
            let mut batch = Batch::new();
            batch.put(VOLUME, &key::counter(Counter::NextIno), &next.to_le_bytes());
            store.commit(&batch).map_err(from_store)?;
            self.limit.store(next, Ordering::Release);
        }
    }

    /// Allocates no number below this one from now on: a repair found the counter to be too low.
    pub fn raise(&self, next: u64) {
        let _one_at_a_time = self.refill.lock();
        if next > self.limit.load(Ordering::Acquire) {
            self.next.store(next, Ordering::Relaxed);
            self.limit.store(next, Ordering::Release);
        }
    }

    /// The first number that is never assigned here.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How many numbers are left.
    pub fn left(&self) -> u64 {
        self.end.saturating_sub(self.peek())
    }

    /// Whether an inode with this number may have been made here: the numbers of other homes are
    /// not known.
    pub fn may_exist(&self, ino: u64) -> bool {
        key::home_of(ino) != key::home_of(self.end) || ino < self.peek()
    }

    /// What the upper 24 bits of the numbers of inodes may be, the most likely ones first. The root
    /// directory is of home 0 in every volume.
    pub fn uppers(&self) -> Vec<u64> {
        let own = inode_of(key::home_of(self.end), 0) >> 40..=self.peek() >> 40;
        let root = (!own.contains(&0)).then_some(0);
        own.chain(root).collect()
    }

    /// The first number that was not allocated. A refused thread advanced the counter, too.
    pub fn peek(&self) -> u64 {
        self.next.load(Ordering::Relaxed).min(self.end)
    }
}

/// Records features in the counter of the root, in one batch with what `also` adds; nothing if they
/// are there. Only an opening does so: later the ledger of subvolumes writes that counter.
fn require(store: &dyn Store, more: Features, also: impl FnOnce(&mut Batch)) -> FsResult<()> {
    let RootCounter { subvolume, features, .. } = read_root(store)?;
    if features.with(more) == features {
        return Ok(());
    }
    let root = RootCounter { subvolume, copies: false, features: features.with(more) };
    let mut batch = Batch::new();
    also(&mut batch);
    batch.put(VOLUME, &key::counter(Counter::Root), &root.encode());
    store.commit(&batch).map(drop).map_err(from_store)
}

/// Makes the tree of sessions and answers, if there is none.
pub(crate) fn require_answers(store: &dyn Store) -> FsResult<()> {
    let answers = Features { answers: true, ..Features::NONE };
    require(store, answers, |batch| batch.create_tree(TreeId(ANSWER_TREE)))
}

/// Numbers of data segments that an opening gets: more than it can use.
const SEGMENTS_RANGE: u64 = 1 << 36;

/// Assigns an opening of a volume in an object store its own numbers of data segments, and returns
/// the first. Objects that earlier openings requested may appear later, under smaller numbers.
pub(crate) fn reserve_segments(store: &dyn Store) -> FsResult<u64> {
    let first = next_segment(store)?;
    let Some(next) = first.checked_add(SEGMENTS_RANGE) else {
        let what = format!("a counter of segments that was never counted to, {first}");
        return Err(inconsistent(VOLUME, &what, 0));
    };
    let mut batch = Batch::new();
    batch.put(VOLUME, &key::counter(Counter::NextSegment), &next.to_le_bytes());
    let token = store.commit(&batch).map_err(from_store)?;
    store.sync(token).map_err(from_store)?;
    Ok(first)
}

/// The first number of a data segment that no opening was assigned.
pub(crate) fn next_segment(store: &dyn Store) -> FsResult<u64> {
    let key = key::counter(Counter::NextSegment);
    match store.get(VOLUME, &key).map_err(from_store)? {
        None => Ok(0),
        Some(_) => read_counter(store, Counter::NextSegment),
    }
}

/// The counter of the volume's root.
pub fn read_root(store: &dyn Store) -> FsResult<RootCounter> {
    let bytes = store.get(VOLUME, &key::counter(Counter::Root)).map_err(from_store)?;
    let root = bytes.and_then(|bytes| RootCounter::decode(&bytes).ok());
    root.ok_or_else(|| inconsistent(VOLUME, "a counter is missing", 0))
}

/// A counter of the volume, other than that of the root.
pub fn read_counter(store: &dyn Store, counter: Counter) -> FsResult<u64> {
    let bytes = store.get(VOLUME, &key::counter(counter)).map_err(from_store)?;
    let array = bytes.and_then(|bytes| <[u8; 8]>::try_from(bytes.as_slice()).ok());
    array.map(u64::from_le_bytes).ok_or_else(|| inconsistent(VOLUME, "a counter is missing", 0))
}
