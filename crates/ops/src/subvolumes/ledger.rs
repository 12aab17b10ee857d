//! The ledger: numbers of subvolumes, trees, epochs and detached things, and which subvolume is
//! mounted in which. A thread that creates, moves or removes a subvolume holds its lock, so
//! such changes happen one after the other; each is short.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::sync::{Mutex, MutexGuard};
use format::detached_record::DetachedRecord;
use format::inherited_record::Home;
use format::kept_twice::{Features, RootCounter};
use format::key::{self, Counter};
use inode::{Caller, FsError, SubvolId};
use store::{Batch, KeyRange, Need, Store, TreeId};
use vfs::FsResult;
use volume::error::from_store;
use volume::numbers::{Counts, read_root};
use volume::subvol::VOLUME;

use super::changes::Changes;
use super::learn::{Learned, Unreadable};
use super::mounts::{MountPoint, Mounts, Slot};
use super::shares::{Makes, Shares};
use volume::Core;

/// The ledger with its lock.
pub struct Admin {
    ledger: Mutex<Ledger>,
    epoch: AtomicU64,
    /// How many copies were made that inherit.
    copies: AtomicU64,
    /// Whether the ledger knows where subvolumes are mounted, and who made how many.
    is_known: AtomicBool,
    /// Held by the thread that reads that.
    learning: Mutex<()>,
    /// How often the ledger was locked.
    turns: AtomicU64,
}

/// Numbers that come next, and who is mounted where.
pub struct Ledger {
    next_subvolume: u64,
    next_tree: u64,
    next_detached: u64,
    /// What was counted to in commits that were made, or may have been. A caller that is refused
    /// after it took numbers, for example for lack of space, has not used them up.
    committed: Cell<[u64; 3]>,
    /// What is in the store of that; `None`: it is not known.
    stored: Cell<Option<[u64; 3]>>,
    /// Who makes subvolumes, and how many users have.
    shares: RefCell<Shares>,
    /// The features in the counter of the root that a program must know.
    features: Cell<Features>,
    /// The volume's root and the features, where the next batch is to write them.
    root_to_write: Cell<Option<(u64, Features)>>,
    /// Where subvolumes are mounted; unknown until somebody needs it (`learn`).
    mounts: Option<Mounts>,
    /// How far heirs were given what they inherit. Nothing of it need survive a crash.
    pub(super) reached: BTreeMap<u64, Reached>,
    /// Heirs for which something could not be copied because of damage, since the volume was
    /// opened. Callers that make copies do no work for them: the background tries again.
    pub(super) damaged: BTreeSet<u64>,
    changes: Changes,
    /// The record because of which that is not known.
    unreadable: Option<Unreadable>,
}

/// How far an heir was given what it inherits.
#[derive(Debug, Clone, Default)]
pub(super) struct Reached {
    /// Which of its homes is next.
    pub(super) home: usize,
    /// The last entry there with a subvolume that was looked at, directory and cookie.
    pub(super) after: Slot,
    /// The last entry that was looked at of those with a copy.
    pub(super) doubted: Slot,
    /// Why one of those could not be copied.
    pub(super) failed: Option<FsError>,
    /// The homes with something that could not be copied.
    pub(super) left: Vec<u64>,
}

impl Admin {
    /// Reads the counters.
    pub fn open(store: &dyn Store) -> FsResult<Admin> {
        let Counts { next_subvolume, next_tree, next_detached, epoch } = Counts::read(store)?;
        let committed = Cell::new([next_subvolume, next_tree, next_detached]);
        let ledger = Ledger {
            next_subvolume,
            next_tree,
            next_detached,
            stored: Cell::new(Some(committed.get())),
            committed,
            shares: RefCell::default(),
            features: Cell::new(read_root(store)?.features),
            root_to_write: Cell::new(None),
            mounts: None,
            reached: BTreeMap::new(),
            damaged: BTreeSet::new(),
            changes: Changes::default(),
            unreadable: None,
        };
        let copies = AtomicU64::new(u64::from(inherits(store)?));
        Ok(Admin {
            ledger: Mutex::new(ledger),
            epoch: AtomicU64::new(epoch),
            copies,
            is_known: AtomicBool::new(false),
            learning: Mutex::default(),
            turns: AtomicU64::new(0),
        })
    }

    /// The ledger, for a change of subvolumes. Taken before any gate and any other lock.
    pub fn lock(&self) -> MutexGuard<'_, Ledger> {
        let mut ledger = self.ledger.lock();
        self.turns.fetch_add(1, Ordering::Relaxed);
        let [subvolume, tree, detached] = ledger.committed.get();
        (ledger.next_subvolume, ledger.next_tree) = (subvolume, tree);
        ledger.next_detached = detached;
        ledger.shares.get_mut().begin();
        ledger.root_to_write.set(None);
        ledger
    }

    /// The ledger, for work that needs to know what is mounted where: that is read before.
    pub fn lock_known(&self, fs: &Core) -> MutexGuard<'_, Ledger> {
        self.learn(fs);
        self.lock()
    }

    /// The ledger, for a change before which heirs may have to get what they inherit.
    pub fn lock_to_give(&self, fs: &Core) -> MutexGuard<'_, Ledger> {
        if self.may_inherit() {
            self.learn(fs);
        }
        self.lock()
    }

    /// Whether it is known what is mounted where.
    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Acquire)
    }

    /// Notes that it is, which it stays.
    pub(super) fn set_known(&self, _ledger: &Ledger) {
        self.is_known.store(true, Ordering::Release);
    }

    /// Has one thread at a time read that.
    pub(super) fn learning(&self) -> MutexGuard<'_, ()> {
        self.learning.lock()
    }

    /// Whether a thread has it, for tests of what is done meanwhile.
    pub fn is_locked(&self) -> bool {
        self.ledger.is_locked()
    }

    /// How often it was locked, for the same tests.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// The ledger, for a caller that makes subvolumes. Bounds hold for the caller, and in an outage
    /// of the object store it waits before it holds anything.
    pub(crate) fn lock_for(&self, fs: &Core, caller: &Caller) -> FsResult<MutexGuard<'_, Ledger>> {
        fs.wait_for_objects()?;
        if !caller.is_root() {
            self.learn(fs);
        }
        let mut ledger = self.lock();
        ledger.shares.get_mut().begin_for(fs, caller)?;
        Ok(ledger)
    }

    /// A repair set a counter: nothing before it is handed out.
    pub fn raise(&self, counter: &[u8], to: u64) {
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
        // The repair may have written less than was counted to.
        ledger.wrote(false);
    }

    /// The present epoch: what is written now is born in it. It changes only while the gates of
    /// whatever is copied are held, so that within a change it is constant for the subvolume.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// How many copies were made that inherit from others. While it is unchanged, a thread that
    /// gave its copies all that they inherit of a subvolume need not look again.
    #[inline]
    pub fn copies(&self) -> u64 {
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
    pub fn end_epoch(&self, _ledger: &Ledger, batch: &mut Batch) -> u64 {
        let ended = self.epoch();
        batch.put(VOLUME, &key::counter(Counter::Epoch), &(ended + 1).to_le_bytes());
        ended
    }

    /// Begins the epoch after one that has ended, after the commit that records that and before the
    /// gates open.
    pub fn begin_epoch_after(&self, ended: u64) {
        self.epoch.store(ended + 1, Ordering::Release);
    }
}

impl Ledger {
    /// Makes subvolumes for another maker, whose share of what exists bounds it or not; returns
    /// the user that has the ledger, for [`Ledger::end_as`].
    pub(super) fn begin_as(&mut self, fs: &Core, maker: u32, is_bound: bool) -> FsResult<Makes> {
        self.shares.get_mut().begin_as(fs, maker, is_bound)
    }

    /// Refuses a caller who may have no more subvolumes.
    pub(super) fn may_make_one(&mut self, fs: &Core) -> FsResult<()> {
        self.shares.get_mut().check(fs)
    }

    /// Whose share has the copies of a subvolume that some heirs get before it changes. Given are
    /// the makers of the heirs and of the subvolume.
    pub(super) fn payer(&mut self, fs: &Core, makers: (u32, u32), more: usize) -> FsResult<u32> {
        self.shares.get_mut().payer(fs, makers, more as u64)
    }

    /// Continues for the caller.
    pub(super) fn end_as(&mut self, caller: Makes) {
        self.shares.get_mut().end_as(caller);
    }

    /// Who makes subvolumes, for their records.
    pub fn maker(&self) -> u32 {
        self.shares.borrow().maker()
    }

    /// A number for a new subvolume: the next one whose slot no other subvolume has.
    pub fn new_subvolume(&mut self, fs: &Core) -> FsResult<u64> {
        self.shares.get_mut().check(fs)?;
        for _ in 0..=key::SLOT_MAX + 1 {
            if self.next_subvolume > SubvolId::MAX.0 {
                return Err(FsError::LimitReached(
                    "all subvolume numbers were used; copy the files to a new volume",
                ));
            }
            let number = self.next_subvolume;
            self.next_subvolume += 1;
            if fs.subvols.slots.take(&*fs.store, &fs.nodes, number)? {
                self.shares.get_mut().took();
                if key::generation(number) > 0 || self.maker() != 0 {
                    self.require(fs, Features { makers: true, ..Features::NONE })?;
                }
                return Ok(number);
            }
        }
        Err(FsError::LimitReached("the maximum number of subvolumes exists; remove some"))
    }

    /// Has the next batch write that only programs that know some features open the volume.
    pub(crate) fn require(&self, fs: &Core, more: Features) -> FsResult<()> {
        let pending = self.root_to_write.get();
        let now = pending.map_or(self.features.get(), |(_, features)| features);
        if now.with(more) != now {
            let root = match pending {
                Some((root, _)) => root,
                None => fs.root_subvol()?.id.0,
            };
            self.root_to_write.set(Some((root, now.with(more))));
        }
        Ok(())
    }

    /// Adds to a batch that another subvolume is the volume's root.
    pub fn set_root(&mut self, batch: &mut Batch, subvolume: u64) {
        let pending = self.root_to_write.get();
        let features = pending.map_or(self.features.get(), |(_, features)| features);
        put_root(batch, subvolume, features);
        self.root_to_write.set(Some((subvolume, features)));
    }

    /// Notes that a subvolume was removed, after the commit.
    pub fn removed(&mut self, subvol: u64, maker: u32) {
        self.changes.note_record(subvol);
        self.shares.get_mut().removed(maker);
    }

    /// A number for a new tree.
    pub fn new_tree(&mut self) -> TreeId {
        self.next_tree += 1;
        TreeId(self.next_tree - 1)
    }

    /// Records something detached and returns the number it waits under.
    pub fn detach(&mut self, batch: &mut Batch, record: DetachedRecord) -> u64 {
        batch.mark(Need::Relieves);
        self.put_detached(batch, record)
    }

    /// As `detach`, of something that is being made: it needs space as any other change.
    pub(crate) fn put_detached(&mut self, batch: &mut Batch, record: DetachedRecord) -> u64 {
        let sequence = self.next_detached;
        self.next_detached += 1;
        batch.put(VOLUME, &key::detached(sequence), &record.encode());
        sequence
    }

    /// Notes that the counters were committed, or that this is unknown.
    pub fn wrote(&self, is_certain: bool) {
        let counts = self.counts();
        self.committed.set(counts);
        self.stored.set(is_certain.then_some(counts));
        self.shares.borrow_mut().wrote();
        // To write that a feature is used twice harms nothing, to believe that it was written does.
        if let Some((_, features)) = self.root_to_write.take()
            && is_certain
        {
            self.features.set(features);
        }
    }

    fn counts(&self) -> [u64; 3] {
        [self.next_subvolume, self.next_tree, self.next_detached]
    }

    /// Adds the counters that changed to the batch that uses them. [`Ledger::wrote`] follows.
    pub fn write(&self, batch: &mut Batch) {
        let counters = [Counter::NextSubvolume, Counter::NextTree, Counter::NextDetached];
        let stored = self.stored.get();
        for (at, (counter, value)) in counters.into_iter().zip(self.counts()).enumerate() {
            if stored.is_none_or(|stored| stored[at] != value) {
                batch.put(VOLUME, &key::counter(counter), &value.to_le_bytes());
            }
        }
        if let Some((root, features)) = self.root_to_write.get() {
            put_root(batch, root, features);
        }
    }

    pub(super) fn mounts(&mut self, fs: &Core) -> FsResult<&Mounts> {
        Ok(match &mut self.mounts {
            Some(mounts) => mounts,
            unknown => unknown.insert(Learned::read_unless(fs, &mut self.unreadable)?.mounts),
        })
    }

    /// The record because of which it is not known what is mounted where.
    pub(super) fn unreadable(&mut self) -> &mut Option<Unreadable> {
        &mut self.unreadable
    }

    /// Whether what it knows of all subvolumes is what the volume has, for tests.
    pub fn is_as_stored(&self, fs: &Core) -> FsResult<bool> {
        let stored = Learned::read(fs).map_err(|record| record.error)?;
        let mounts = self.mounts.as_ref().is_some_and(|known| known.is_like(&stored.mounts));
        Ok(mounts && self.shares.borrow().has_counted(stored.makers.into_values()))
    }

    /// What changed.
    pub(super) fn changes(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// Keeps what was learned, unless it is known meanwhile.
    pub(super) fn know(&mut self, learned: Learned) {
        self.shares.get_mut().know(learned.makers.into_values());
        self.mounts.get_or_insert(learned.mounts);
    }

    /// When something in a subvolume, at any depth, was last mounted, moved or inherited: a number
    /// that grows with each such change in the volume.
    pub fn changed_inside(&self, subvol: u64) -> u64 {
        self.changes.inside(subvol)
    }

    /// Some of the subvolumes that are mounted directly in one.
    pub fn some_children(&mut self, fs: &Core, subvol: u64, most: usize) -> FsResult<Vec<u64>> {
        let children = self.mounts(fs)?.behind(subvol, (0, 0)).map(|(_, _, id)| id);
        Ok(children.take(most).collect())
    }

    /// The directories of a subvolume in which others are mounted; `None`: there are more.
    pub(super) fn mount_points_up_to(
        &mut self,
        fs: &Core,
        subvol: u64,
        most: usize,
    ) -> FsResult<Option<Vec<u64>>> {
        let some: Vec<u64> = self.mounts(fs)?.directories(subvol).take(most + 1).collect();
        Ok((some.len() <= most).then_some(some))
    }

    /// The directories of a subvolume in which others are mounted.
    pub(crate) fn mount_points(&mut self, fs: &Core, subvol: u64) -> FsResult<Vec<u64>> {
        Ok(self.mounts(fs)?.directories(subvol).collect())
    }

    /// Whether nothing is mounted in a subvolume, and it inherits nothing.
    pub(super) fn holds_none(&mut self, fs: &Core, subvol: u64) -> FsResult<bool> {
        let mounts = self.mounts(fs)?;
        let is_empty = mounts.directories(subvol).next().is_none();
        Ok(is_empty && !mounts.homes.contains_key(&subvol))
    }

    /// The subvolumes that are mounted in a directory of one.
    pub fn mounted_in(&mut self, fs: &Core, place: (u64, u64)) -> FsResult<Vec<u64>> {
        Ok(self.mounts(fs)?.within(place.0, place.1).collect())
    }

    /// The subvolume that is mounted at an entry. In an heir, the entry may not point to it.
    pub(super) fn mounted_at(&mut self, fs: &Core, place: MountPoint) -> FsResult<Option<u64>> {
        Ok(self.mounts(fs)?.at(place))
    }

    /// Whether an heir has a subvolume of its own at an entry, which points to that.
    pub(super) fn has_certainly(&mut self, fs: &Core, place: MountPoint) -> FsResult<bool> {
        let mounts = self.mounts(fs)?;
        Ok(mounts.at(place).is_some() && !mounts.doubted.contains(&place))
    }

    /// Notes where a subvolume is mounted now, as in its record; `None`: nowhere, and it inherits
    /// nothing any more.
    pub fn moved(&mut self, subvol: u64, to: Option<MountPoint>) {
        self.changes.note(subvol, self.mounts.as_ref());
        if let Some(mounts) = &mut self.mounts {
            mounts.set(subvol, to);
        }
        self.changes.note(subvol, self.mounts.as_ref());
        if to.is_none() {
            self.inherited(subvol, Vec::new(), 0);
            self.changes.forget(subvol);
        }
    }

    /// Where a subvolume is mounted.
    pub(super) fn place(&mut self, fs: &Core, subvol: u64) -> FsResult<Option<MountPoint>> {
        Ok(self.mounts(fs)?.places.get(&subvol).copied())
    }

    /// The first entries of a subvolume, after one of them, at which others are mounted. Each call
    /// begins where the one before ended: one directory may have very many.
    pub(super) fn children_after(
        &mut self,
        fs: &Core,
        subvol: u64,
        after: Slot,
        most: usize,
    ) -> FsResult<Vec<Slot>> {
        let behind = self.mounts(fs)?.behind(subvol, after);
        Ok(behind.take(most).map(|(directory, cookie, _)| (directory, cookie)).collect())
    }

    /// The first entry of an heir, after a directory and a cookie, that may not point to what the
    /// heir has there.
    pub(super) fn doubted_after(
        &mut self,
        fs: &Core,
        heir: u64,
        (directory, cookie): Slot,
    ) -> FsResult<Option<MountPoint>> {
        let after = self.any_doubted_after(fs, (heir, directory, cookie))?;
        Ok(after.filter(|place| place.0 == heir))
    }

    /// The same of all heirs, after an entry of one.
    pub(super) fn any_doubted_after(
        &mut self,
        fs: &Core,
        place: MountPoint,
    ) -> FsResult<Option<MountPoint>> {
        let after = (Bound::Excluded(place), Bound::Unbounded);
        Ok(self.mounts(fs)?.doubted.range(after).next().copied())
    }

    /// Notes that an entry of an heir does not point to the copy that was mounted there.
    pub(super) fn set_doubted(&mut self, place: MountPoint) {
        if let Some(mounts) = &mut self.mounts {
            mounts.doubted.insert(place);
        }
    }

    /// Notes that an entry points to what the heir has there.
    pub(super) fn unset_doubted(&mut self, place: MountPoint) {
        if let Some(mounts) = &mut self.mounts {
            mounts.doubted.remove(&place);
        }
    }

    /// Notes what an heir still inherits, after the commit that records it; nothing: it has all.
    pub(super) fn inherits_only(&mut self, heir: u64, homes: Vec<Home>) {
        let maker = self.mounts.as_ref().and_then(|mounts| mounts.makers.get(&heir).copied());
        let maker = if homes.is_empty() { 0 } else { maker.unwrap_or_default() };
        self.inherited(heir, homes, maker);
    }

    /// Notes what a copy inherits, after the commit that records it.
    pub(super) fn inherited(&mut self, copy: u64, homes: Vec<Home>, maker: u32) {
        self.changes.note(copy, self.mounts.as_ref());
        if homes.is_empty() {
            self.reached.remove(&copy);
            self.damaged.remove(&copy);
        }
        if let Some(mounts) = &mut self.mounts {
            mounts.inherit(copy, homes, maker);
        }
    }
}

fn put_root(batch: &mut Batch, subvolume: u64, features: Features) {
    let root = RootCounter { subvolume, copies: false, features };
    batch.put(VOLUME, &key::counter(Counter::Root), &root.encode());
}

/// Whether there are copies that inherit.
pub(super) fn inherits(store: &dyn Store) -> FsResult<bool> {
    let range = KeyRange::prefix(&format::inherited_record::INHERITED_PREFIX);
    let mut cursor = store.scan(VOLUME, range).map_err(from_store)?;
    Ok(cursor.next().map_err(from_store)?.is_some())
}
