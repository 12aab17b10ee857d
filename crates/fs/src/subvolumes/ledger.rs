//! The ledger: numbers of subvolumes, trees, epochs and detached things, and which subvolume is
//! mounted in which. Whoever makes, moves or removes a subvolume holds its lock, so that such
//! changes happen one after the other; each is short.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use format::detached_record::DetachedRecord;
use format::key::{self, Counter};
use format::subvolume_record::SubvolumeRecord;
use inode::{FsError, SubvolId};
use parking_lot::{Mutex, MutexGuard};
use store::{Batch, Need, Store, TreeId};

use crate::error::{inconsistent, malformed};
use crate::numbers::read_counter;
use crate::subvol::VOLUME;
use crate::{Fs, FsResult};

/// Counters stay below this, whatever a volume lives through: beyond it they are falsified.
pub(crate) const COUNT_MAX: u64 = 1 << 62;

/// The ledger with its lock.
pub(crate) struct Admin {
    ledger: Mutex<Ledger>,
    epoch: AtomicU64,
}

/// Numbers that come next, and who is mounted where.
pub(crate) struct Ledger {
    next_subvolume: u64,
    next_tree: u64,
    next_detached: u64,
    /// What was counted to in commits that were made, or may have been: who is refused after he
    /// took numbers, as for want of room, has not used them up.
    committed: Cell<[u64; 3]>,
    /// Where subvolumes are mounted; unknown until somebody asks.
    mounts: Option<Mounts>,
}

/// A subvolume, and a directory of it.
type Place = (u64, u64);

/// Subvolumes by where they are mounted: of very many in one directory, that is found out once.
#[derive(Default)]
struct Mounts {
    inside: BTreeMap<Place, BTreeSet<u64>>,
    places: BTreeMap<u64, Place>,
}

impl Mounts {
    fn set(&mut self, subvol: u64, to: Option<Place>) {
        if let Some(from) = self.places.remove(&subvol)
            && let Some(siblings) = self.inside.get_mut(&from)
        {
            siblings.remove(&subvol);
            if siblings.is_empty() {
                self.inside.remove(&from);
            }
        }
        if let Some(to) = to {
            self.places.insert(subvol, to);
            self.inside.entry(to).or_default().insert(subvol);
        }
    }

    fn read(fs: &Fs) -> FsResult<Mounts> {
        let mut mounts = Mounts::default();
        fs.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |key, value| {
            let malformed = |error| malformed(VOLUME, &error);
            let record = SubvolumeRecord::decode(value).map_err(malformed)?;
            let (above, directory, _) = record.parent;
            if above != 0 {
                let subvol = key::parse_number(key).map_err(malformed)?;
                mounts.set(subvol, Some((above, directory)));
            }
            Ok(())
        })?;
        Ok(mounts)
    }
}

impl Admin {
    /// Reads the counters.
    pub(crate) fn open(store: &dyn Store) -> FsResult<Admin> {
        let epoch = read_counter(store, Counter::Epoch)?;
        let next_subvolume = read_counter(store, Counter::NextSubvolume)?;
        let next_tree = read_counter(store, Counter::NextTree)?;
        let next_detached = read_counter(store, Counter::NextDetached)?;
        let committed = Cell::new([next_subvolume, next_tree, next_detached]);
        let ledger = Ledger { next_subvolume, next_tree, next_detached, committed, mounts: None };
        let counts = [next_subvolume, next_tree, next_detached, epoch];
        if ledger.next_tree < key::FIRST_TREE || counts.iter().any(|count| *count > COUNT_MAX) {
            let what = format!("counters that were never counted to, {counts:?}");
            return Err(inconsistent(VOLUME, &what, 0));
        }
        Ok(Admin { ledger: Mutex::new(ledger), epoch: AtomicU64::new(epoch) })
    }

    /// The ledger, for a change of subvolumes. Taken before any gate and any other lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Ledger> {
        let mut ledger = self.ledger.lock();
        let [subvolume, tree, detached] = ledger.committed.get();
        (ledger.next_subvolume, ledger.next_tree) = (subvolume, tree);
        ledger.next_detached = detached;
        ledger
    }

    /// A repair set a counter: nothing before it is handed out.
    pub(crate) fn raise(&self, counter: &[u8], to: u64) {
        let mut ledger = self.lock();
        let is = |one: Counter| counter == key::counter(one);
        if is(Counter::NextSubvolume) {
            ledger.next_subvolume = ledger.next_subvolume.max(to);
        } else if is(Counter::NextTree) {
            ledger.next_tree = ledger.next_tree.max(to);
        } else if is(Counter::NextDetached) {
            ledger.next_detached = ledger.next_detached.max(to);
        } else if is(Counter::Epoch) {
            self.epoch.fetch_max(to, Ordering::AcqRel);
        }
        ledger.wrote();
    }

    /// The present epoch: what is written now is born in it. It changes only while the gates of
    /// whatever is copied are held, so that within a change it is constant for the subvolume.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Adds to a batch that the present epoch ends with it, and returns that epoch. Where the batch
    /// is not committed it goes on. `ledger` is locked until the next one has begun.
    pub(crate) fn end_epoch(&self, _ledger: &Ledger, batch: &mut Batch) -> u64 {
        let ended = self.epoch();
        batch.put(VOLUME, &key::counter(Counter::Epoch), &(ended + 1).to_le_bytes());
        ended
    }

    /// Begins the epoch after one that has ended, after the commit that says so and before the
    /// gates open.
    pub(crate) fn begin_epoch_after(&self, ended: u64) {
        self.epoch.store(ended + 1, Ordering::Release);
    }
}

impl Ledger {
    /// A number for a new subvolume.
    pub(crate) fn new_subvolume(&mut self) -> FsResult<u64> {
        if self.next_subvolume > SubvolId::MAX.0 {
            return Err(FsError::LimitReached("all numbers of subvolumes were handed out"));
        }
        self.next_subvolume += 1;
        Ok(self.next_subvolume - 1)
    }

    /// A number for a new tree.
    pub(crate) fn new_tree(&mut self) -> TreeId {
        self.next_tree += 1;
        TreeId(self.next_tree - 1)
    }

    /// Records something detached and returns the number it waits under.
    pub(crate) fn detach(&mut self, batch: &mut Batch, record: DetachedRecord) -> u64 {
        let sequence = self.next_detached;
        self.next_detached += 1;
        batch.put(VOLUME, &key::detached(sequence), &record.encode());
        batch.mark(Need::Relieves);
        sequence
    }

    /// Says that the counters were committed, or that nobody knows.
    pub(crate) fn wrote(&self) {
        self.committed.set([self.next_subvolume, self.next_tree, self.next_detached]);
    }

    /// Adds the counters to the batch that uses them. [`Ledger::wrote`] follows.
    pub(crate) fn write(&self, batch: &mut Batch) {
        for (counter, value) in [
            (Counter::NextSubvolume, self.next_subvolume),
            (Counter::NextTree, self.next_tree),
            (Counter::NextDetached, self.next_detached),
        ] {
            batch.put(VOLUME, &key::counter(counter), &value.to_le_bytes());
        }
    }

    fn mounts(&mut self, fs: &Fs) -> FsResult<&Mounts> {
        Ok(match &mut self.mounts {
            Some(mounts) => mounts,
            unknown => unknown.insert(Mounts::read(fs)?),
        })
    }

    /// The subvolumes that are mounted directly in one.
    pub(crate) fn children(&mut self, fs: &Fs, subvol: u64) -> FsResult<Vec<u64>> {
        let inside = self.mounts(fs)?.inside.range((subvol, 0)..=(subvol, u64::MAX));
        Ok(inside.flat_map(|(_, children)| children.iter().copied()).collect())
    }

    /// The directories of a subvolume in which others are mounted.
    pub(crate) fn mount_points(&mut self, fs: &Fs, subvol: u64) -> FsResult<Vec<u64>> {
        let inside = self.mounts(fs)?.inside.range((subvol, 0)..=(subvol, u64::MAX));
        Ok(inside.map(|((_, directory), _)| *directory).collect())
    }

    /// The subvolumes that are mounted in a directory of one.
    pub(crate) fn mounted_in(&mut self, fs: &Fs, place: Place) -> FsResult<Vec<u64>> {
        let found = self.mounts(fs)?.inside.get(&place);
        Ok(found.into_iter().flatten().copied().collect())
    }

    /// Notes where a subvolume is mounted now, subvolume and directory; `None`: nowhere.
    pub(crate) fn moved(&mut self, subvol: u64, to: Option<(u64, u64)>) {
        if let Some(mounts) = &mut self.mounts {
            mounts.set(subvol, to);
        }
    }
}
