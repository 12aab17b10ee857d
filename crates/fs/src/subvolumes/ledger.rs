//! The ledger: numbers of subvolumes, trees, epochs and detached things, and which subvolume is
//! mounted in which. A thread that creates, moves or removes a subvolume holds its lock, so
//! such changes happen one after the other; each is short.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use device::sync::{Mutex, MutexGuard};
use format::detached_record::DetachedRecord;
use format::inherited_record::{Home, InheritedRecord};
use format::kept_twice::RootCounter;
use format::key::{self, Counter};
use format::subvolume_record::SubvolumeRecord;
use inode::{Caller, FsError, SubvolId};
use store::{Batch, KeyRange, Need, Store, TreeId};

use super::inherit::CROWD;
use super::shares::{Makes, Shares};
use crate::error::{from_store, inconsistent, malformed};
use crate::numbers::{read_counter, read_root};
use crate::subvol::VOLUME;
use crate::{Fs, FsResult};

/// Counters stay below this, whatever a volume lives through: beyond it they are falsified.
pub(crate) const COUNT_MAX: u64 = 1 << 62;

/// The ledger with its lock.
pub(crate) struct Admin {
    ledger: Mutex<Ledger>,
    epoch: AtomicU64,
    /// How many copies were made that inherit.
    copies: AtomicU64,
}

/// Numbers that come next, and who is mounted where.
pub(crate) struct Ledger {
    next_subvolume: u64,
    next_tree: u64,
    next_detached: u64,
    /// What was counted to in commits that were made, or may have been: a caller that is refused
    /// after it took numbers, as for lack of space, has not used them up.
    committed: Cell<[u64; 3]>,
    /// Who makes subvolumes, and how many users have.
    shares: RefCell<Shares>,
    /// Whether the counter of the root keeps programs out that know only the numbers of
    /// generation 0, and records without a maker.
    excludes_older: Cell<bool>,
    /// The volume's root, where the next batch is to say so.
    root_to_write: Cell<Option<u64>>,
    /// Where subvolumes are mounted; unknown until somebody asks.
    mounts: Option<Mounts>,
    /// How far heirs were given what they inherit. Nothing of it need survive a crash.
    reached: BTreeMap<u64, Reached>,
}

/// How far an heir was given what it inherits.
#[derive(Debug, Clone, Default)]
pub(super) struct Reached {
    /// Which of its homes is next.
    pub(super) home: usize,
    /// The last directory and subvolume there that were looked at.
    pub(super) after: Place,
    /// Why one of those could not be copied.
    pub(super) failed: Option<FsError>,
}

/// A subvolume, and a directory of it.
type Place = (u64, u64);

/// Subvolumes by where they are mounted: of very many in one directory, that is found out once.
#[derive(Default)]
struct Mounts {
    inside: BTreeMap<Place, BTreeSet<u64>>,
    places: BTreeMap<u64, Place>,
    /// What copies inherit: their homes.
    homes: BTreeMap<u64, Vec<Home>>,
    /// The same by homes.
    heirs: BTreeMap<u64, BTreeSet<u64>>,
    /// Homes with more heirs than a caller that copies may leave.
    crowded: BTreeSet<u64>,
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

    fn inherit(&mut self, copy: u64, homes: Vec<Home>) {
        for home in self.homes.remove(&copy).into_iter().flatten() {
            if let Some(heirs) = self.heirs.get_mut(&home.subvolume) {
                heirs.remove(&copy);
                if heirs.len() < CROWD {
                    self.crowded.remove(&home.subvolume);
                }
                if heirs.is_empty() {
                    self.heirs.remove(&home.subvolume);
                }
            }
        }
        for home in &homes {
            let heirs = self.heirs.entry(home.subvolume).or_default();
            heirs.insert(copy);
            if heirs.len() >= CROWD {
                self.crowded.insert(home.subvolume);
            }
        }
        if !homes.is_empty() {
            self.homes.insert(copy, homes);
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
        fs.visit_volume(&format::inherited_record::INHERITED_PREFIX, &mut |key, value| {
            let malformed = |error| malformed(VOLUME, &error);
            let record = InheritedRecord::decode(value).map_err(malformed)?;
            mounts.inherit(key::parse_number(key).map_err(malformed)?, record.homes);
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
        let ledger = Ledger {
            next_subvolume,
            next_tree,
            next_detached,
            committed,
            shares: RefCell::default(),
            excludes_older: Cell::new(read_root(store)?.excludes_older),
            root_to_write: Cell::new(None),
            mounts: None,
            reached: BTreeMap::new(),
        };
        let counts = [next_subvolume, next_tree, next_detached, epoch];
        if ledger.next_tree < key::FIRST_TREE || counts.iter().any(|count| *count > COUNT_MAX) {
            let what = format!("counters that were never counted to, {counts:?}");
            return Err(inconsistent(VOLUME, &what, 0));
        }
        let copies = AtomicU64::new(u64::from(inherits(store)?));
        Ok(Admin { ledger: Mutex::new(ledger), epoch: AtomicU64::new(epoch), copies })
    }

    /// The ledger, for a change of subvolumes. Taken before any gate and any other lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Ledger> {
        let mut ledger = self.ledger.lock();
        let [subvolume, tree, detached] = ledger.committed.get();
        (ledger.next_subvolume, ledger.next_tree) = (subvolume, tree);
        ledger.next_detached = detached;
        ledger.shares.get_mut().begin();
        ledger.root_to_write.set(None);
        ledger
    }

    /// The ledger, for a caller that makes subvolumes: bounds hold for it.
    pub(crate) fn lock_for(&self, fs: &Fs, caller: &Caller) -> FsResult<MutexGuard<'_, Ledger>> {
        let mut ledger = self.lock();
        ledger.shares.get_mut().begin_for(fs, caller)?;
        Ok(ledger)
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

    /// How many copies were made that inherit from others. While it is unchanged, a thread that
    /// gave its copies all that they inherit of a subvolume need not look again.
    #[inline]
    pub(crate) fn copies(&self) -> u64 {
        self.copies.load(Ordering::Acquire)
    }

    /// Whether there may be copies that inherit.
    pub(super) fn may_inherit(&self) -> bool {
        self.copies() > 0
    }

    /// A copy was made that inherits, after its commit and before the gates open.
    pub(super) fn note_copy(&self, _ledger: &Ledger) {
        self.copies.fetch_add(1, Ordering::AcqRel);
    }

    /// Adds to a batch that the present epoch ends with it, and returns that epoch. Where the batch
    /// is not committed it continues. `ledger` is locked until the next one has begun.
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
    /// Makes subvolumes for another maker, whose share of what exists bounds it or not; returns
    /// who has the ledger, for [`Ledger::end_as`].
    pub(super) fn begin_as(&mut self, fs: &Fs, maker: u32, is_bound: bool) -> FsResult<Makes> {
        self.shares.get_mut().begin_as(fs, maker, is_bound)
    }

    /// Continues for the caller.
    pub(super) fn end_as(&mut self, caller: Makes) {
        self.shares.get_mut().end_as(caller);
    }

    /// Who makes subvolumes, for their records.
    pub(crate) fn maker(&self) -> u32 {
        self.shares.borrow().maker()
    }

    /// A number for a new subvolume: the next one whose slot no other subvolume has.
    pub(crate) fn new_subvolume(&mut self, fs: &Fs) -> FsResult<u64> {
        self.shares.get_mut().check(fs)?;
        for _ in 0..=key::SLOT_MAX + 1 {
            if self.next_subvolume > SubvolId::MAX.0 {
                return Err(FsError::LimitReached("all subvolume numbers were used"));
            }
            let number = self.next_subvolume;
            self.next_subvolume += 1;
            if fs.subvols.slots.take(&*fs.store, &fs.nodes, number)? {
                self.shares.get_mut().took();
                let is_new = key::generation(number) > 0 || self.maker() != 0;
                if is_new && !self.excludes_older.get() && self.root_to_write.get().is_none() {
                    self.root_to_write.set(Some(fs.root_subvol()?.id.0));
                }
                return Ok(number);
            }
        }
        Err(FsError::LimitReached("the maximum number of subvolumes exists; remove some"))
    }

    /// Adds to a batch that another subvolume is the volume's root.
    pub(crate) fn set_root(&mut self, batch: &mut Batch, subvolume: u64) {
        let excludes_older = self.excludes_older.get() || self.root_to_write.take().is_some();
        put_root(batch, subvolume, excludes_older);
        self.root_to_write.set(excludes_older.then_some(subvolume));
    }

    /// Notes that a subvolume was removed, after the commit.
    pub(crate) fn removed(&mut self, maker: u32) {
        self.shares.get_mut().removed(maker);
    }

    /// The next number that may be given out.
    pub(crate) fn next_subvolume(&self) -> u64 {
        self.next_subvolume
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
        self.shares.borrow_mut().wrote();
        if self.root_to_write.take().is_some() {
            self.excludes_older.set(true);
        }
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
        if let Some(root) = self.root_to_write.get() {
            put_root(batch, root, true);
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

    /// Notes where a subvolume is mounted now, subvolume and directory; `None`: nowhere, and it
    /// inherits nothing any more.
    pub(crate) fn moved(&mut self, subvol: u64, to: Option<(u64, u64)>) {
        if let Some(mounts) = &mut self.mounts {
            mounts.set(subvol, to);
        }
        if to.is_none() {
            self.inherited(subvol, Vec::new());
        }
    }

    /// Where a subvolume is mounted.
    pub(super) fn place(&mut self, fs: &Fs, subvol: u64) -> FsResult<Option<Place>> {
        Ok(self.mounts(fs)?.places.get(&subvol).copied())
    }

    /// Whether any is mounted in a subvolume.
    pub(super) fn has_children(&mut self, fs: &Fs, subvol: u64) -> FsResult<bool> {
        let mut inside = self.mounts(fs)?.inside.range((subvol, 0)..=(subvol, u64::MAX));
        Ok(inside.next().is_some())
    }

    /// The first that are mounted in a subvolume after a directory and a number there.
    pub(super) fn children_after(
        &mut self,
        fs: &Fs,
        subvol: u64,
        (directory, last): Place,
        most: usize,
    ) -> FsResult<Vec<Place>> {
        let inside = self.mounts(fs)?.inside.range((subvol, directory)..=(subvol, u64::MAX));
        let all = inside.flat_map(|((_, dir), children)| children.iter().map(|id| (*dir, *id)));
        Ok(all.filter(|child| *child > (directory, last)).take(most).collect())
    }

    /// The homes of a copy; none when it inherits nothing.
    pub(super) fn homes(&mut self, fs: &Fs, copy: u64) -> FsResult<Vec<Home>> {
        Ok(self.mounts(fs)?.homes.get(&copy).cloned().unwrap_or_default())
    }

    /// The copies that inherit what is mounted in a subvolume.
    pub(super) fn heirs(&mut self, fs: &Fs, home: u64) -> FsResult<Vec<u64>> {
        let heirs = self.mounts(fs)?.heirs.get(&home);
        Ok(heirs.into_iter().flatten().copied().collect())
    }

    /// The homes with too many heirs that are among some subvolumes, or are mounted below one.
    pub(super) fn crowded_below(&mut self, fs: &Fs, tops: &[Home]) -> FsResult<Vec<u64>> {
        let mounts = self.mounts(fs)?;
        let mut found = Vec::new();
        for &home in &mounts.crowded {
            let mut at = home;
            // Damaged records may lie in a circle.
            for _ in 0..=mounts.places.len() {
                if tops.iter().any(|top| top.subvolume == at) {
                    found.push(home);
                    break;
                }
                match mounts.places.get(&at) {
                    Some((above, _)) => at = *above,
                    None => break,
                }
            }
        }
        Ok(found)
    }

    /// A copy that inherits and does not rest; the last, so that the copies that it is given are
    /// seen to before others.
    pub(super) fn last_heir(
        &mut self,
        fs: &Fs,
        rests: &dyn Fn(u64) -> bool,
    ) -> FsResult<Option<u64>> {
        let mut heirs = self.mounts(fs)?.homes.keys().rev();
        Ok(heirs.find(|copy| !rests(**copy)).copied())
    }

    /// How far an heir was given what it inherits.
    pub(super) fn reached(&self, heir: u64) -> Reached {
        self.reached.get(&heir).cloned().unwrap_or_default()
    }

    /// Notes how far that is.
    pub(super) fn reach(&mut self, heir: u64, to: Reached) {
        self.reached.insert(heir, to);
    }

    /// Notes what a copy inherits, after the commit that says so.
    pub(super) fn inherited(&mut self, copy: u64, homes: Vec<Home>) {
        if homes.is_empty() {
            self.reached.remove(&copy);
        }
        if let Some(mounts) = &mut self.mounts {
            mounts.inherit(copy, homes);
        }
    }
}

fn put_root(batch: &mut Batch, subvolume: u64, excludes_older: bool) {
    let root = RootCounter { subvolume, copies: false, excludes_older };
    batch.put(VOLUME, &key::counter(Counter::Root), &root.encode());
}

/// Whether there are copies that inherit.
pub(crate) fn inherits(store: &dyn Store) -> FsResult<bool> {
    let range = KeyRange::prefix(&format::inherited_record::INHERITED_PREFIX);
    let mut cursor = store.scan(VOLUME, range).map_err(from_store)?;
    Ok(cursor.next().map_err(from_store)?.is_some())
}
