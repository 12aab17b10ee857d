//! How many subvolumes users make and have. Numbers never run out, but slots and space do: without
//! a bound one user could take them from everybody.
//!
//! The superuser and the owner of the volume's root directory are not bound. All others have a
//! rate, a share of the subvolumes that exist, and a bound on all of them together. The bound
//! leaves the rest to those who are not bound. What exists is counted once, before the first bound
//! user makes one (`learn`), and kept in memory from then on.

use std::time::Duration;

use device::Map;
use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::{Caller, FsError};
use vfs::FsResult;
use volume::SubvolumeBounds;

use super::access::directory_of;
use volume::Core;

/// Users that bounds are kept of at once: those that made none for long are forgotten first.
const RATES_MAX: usize = 4096;

const SHARES_USED: &str = "the maker of a snapshot or clone that inherits this subvolume may have \
                           no more, and the maker of the subvolume neither; remove some";

/// Who makes subvolumes now, and what users have.
#[derive(Default)]
pub(super) struct Shares {
    /// The user that has the ledger; 0: the superuser, or the volume itself.
    maker: u32,
    /// Whether bounds hold for them.
    is_bound: bool,
    /// Whether their rate counts what is made: they called, and did not only make its source.
    is_rated: bool,
    /// Numbers given out since the ledger was locked.
    pending: u64,
    existing: Option<Existing>,
    rates: Map<u32, Rate>,
}

/// The user that has the ledger, and whether bounds hold for them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Makes {
    maker: u32,
    is_bound: bool,
    is_rated: bool,
}

#[derive(Default, PartialEq, Eq)]
struct Existing {
    all: u64,
    by_maker: Map<u32, u64>,
}

impl FromIterator<u32> for Existing {
    /// By the makers of all.
    fn from_iter<I: IntoIterator<Item = u32>>(makers: I) -> Existing {
        let mut existing = Existing::default();
        for maker in makers {
            existing.all += 1;
            *existing.by_maker.entry(maker).or_default() += 1;
        }
        existing
    }
}

#[derive(Clone, Copy)]
struct Rate {
    /// How many may be made now. Below 0 after an operation that made several.
    left: f64,
    at: Duration,
}

impl Shares {
    /// Somebody else has the ledger.
    pub(super) fn begin(&mut self) {
        (self.maker, self.is_bound, self.is_rated, self.pending) = (0, false, false, 0);
    }

    /// The maker of subvolumes from now on, for their records.
    pub(super) fn maker(&self) -> u32 {
        self.maker
    }

    /// A caller makes subvolumes from now on.
    pub(super) fn begin_for(&mut self, fs: &Core, caller: &Caller) -> FsResult<()> {
        self.maker = caller.uid;
        if caller.is_root() {
            return Ok(());
        }
        self.is_bound = is_bound(fs, caller.uid)?;
        self.is_rated = self.is_bound;
        if !self.is_bound {
            return Ok(());
        }
        let bounds = fs.options.subvolumes;
        let now = fs.env.clock.monotonic();
        let full = f64::from(bounds.at_once);
        if self.rates.len() >= RATES_MAX && !self.rates.contains_key(&caller.uid) {
            self.rates.retain(|_, rate| rate.at(now, bounds) < full);
        }
        let rate = self.rates.entry(caller.uid).or_insert(Rate { left: full, at: now });
        *rate = Rate { left: rate.at(now, bounds), at: now };
        if rate.left < 1.0 {
            let what = "this user makes snapshots and clones too fast; try again in a second";
            return Err(FsError::Busy(what));
        }
        Ok(())
    }

    /// What was copied for a maker makes more in the background, or because somebody looks at it.
    /// The maker's share bounds that, and not the rate.
    pub(super) fn begin_as(&mut self, fs: &Core, maker: u32, is_bound: bool) -> FsResult<Makes> {
        let Shares { maker: had, is_bound: was_bound, is_rated, .. } = *self;
        let caller = Makes { maker: had, is_bound: was_bound, is_rated };
        let bound = is_bound && self::is_bound(fs, maker)?;
        (self.maker, self.is_bound, self.is_rated, self.pending) = (maker, bound, false, 0);
        Ok(caller)
    }

    /// The caller has the ledger again.
    pub(super) fn end_as(&mut self, caller: Makes) {
        (self.maker, self.is_bound, self.pending) = (caller.maker, caller.is_bound, 0);
        self.is_rated = caller.is_rated;
    }

    /// Checks that one more may be made.
    pub(super) fn check(&mut self, fs: &Core) -> FsResult<()> {
        if self.is_bound { self.check_of(fs, Some(self.maker), 1) } else { Ok(()) }
    }

    /// Checks that so many more may be made, in the share of a user and in that of all users.
    fn check_of(&mut self, fs: &Core, maker: Option<u32>, more: u64) -> FsResult<()> {
        let existing = match self.existing.take() {
            Some(existing) => existing,
            None => count(fs)?,
        };
        let bounds = fs.options.subvolumes;
        let own = maker.and_then(|maker| existing.by_maker.get(&maker)).copied();
        let all = existing.all + self.pending;
        self.existing = Some(existing);
        if maker.is_some() && own.unwrap_or(0) + self.pending + more > bounds.of_user {
            let what = "this user has as many snapshots and clones as one user may have; \
                        remove some";
            return Err(FsError::LimitReached(what));
        }
        if all + more > bounds.of_all {
            let what = "the volume has as many snapshots and clones as its users may make; \
                        remove some";
            return Err(FsError::LimitReached(what));
        }
        Ok(())
    }

    /// Who pays for so many copies that heirs of one maker get before a subvolume changes. That is
    /// their maker or, where no more fit into that share, the maker of what changes. So the share
    /// of one user keeps no other from changes, and each copy is in a share. Where the maker of
    /// what changes is not bound, the bound of all users holds.
    pub(super) fn payer(
        &mut self,
        fs: &Core,
        (heirs, changed): (u32, u32),
        more: u64,
    ) -> FsResult<u32> {
        if !is_bound(fs, heirs)? {
            return Ok(heirs);
        }
        match self.check_of(fs, Some(heirs), more) {
            Err(FsError::LimitReached(_)) => {}
            fits => return fits.map(|()| heirs),
        }
        let bound = is_bound(fs, changed)?.then_some(changed);
        match self.check_of(fs, bound, more) {
            Err(FsError::LimitReached(_)) => Err(FsError::LimitReached(SHARES_USED)),
            fits => fits.map(|()| changed),
        }
    }

    /// Keeps who made each subvolume that exists, unless that was counted.
    pub(super) fn know(&mut self, makers: impl Iterator<Item = u32>) {
        self.existing.get_or_insert_with(|| makers.collect());
    }

    /// Whether these were counted.
    pub(super) fn has_counted(&self, makers: impl Iterator<Item = u32>) -> bool {
        self.existing.as_ref().is_some_and(|existing| *existing == makers.collect::<Existing>())
    }

    /// A number was given out.
    pub(super) fn took(&mut self) {
        self.pending += 1;
    }

    /// Those that numbers were given out for exist.
    pub(super) fn wrote(&mut self) {
        let made = std::mem::take(&mut self.pending);
        if self.is_rated
            && let Some(rate) = self.rates.get_mut(&self.maker)
        {
            rate.left -= made as f64;
        }
        if let Some(existing) = &mut self.existing {
            existing.all += made;
            *existing.by_maker.entry(self.maker).or_default() += made;
        }
    }

    /// One does not exist any more.
    pub(super) fn removed(&mut self, maker: u32) {
        if let Some(existing) = &mut self.existing {
            existing.all = existing.all.saturating_sub(1);
            if let Some(count) = existing.by_maker.get_mut(&maker) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    existing.by_maker.remove(&maker);
                }
            }
        }
    }
}

impl Rate {
    fn at(self, now: Duration, bounds: SubvolumeBounds) -> f64 {
        let rested = now.saturating_sub(self.at).as_secs_f64();
        let left = self.left + rested * f64::from(bounds.each_second);
        left.min(f64::from(bounds.at_once))
    }
}

/// Whether bounds hold for a user.
fn is_bound(fs: &Core, user: u32) -> FsResult<bool> {
    if user == 0 {
        return Ok(false);
    }
    let root = fs.root_subvol()?;
    Ok(directory_of(fs, &root, root.root)?.uid != user)
}

fn count(fs: &Core) -> FsResult<Existing> {
    let mut existing = Existing::default();
    fs.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |_, value| {
        existing.all += 1;
        // What does not decode is damage, and takes its slot all the same.
        if let Ok(record) = SubvolumeRecord::decode(value) {
            *existing.by_maker.entry(record.maker).or_default() += 1;
        }
        Ok(())
    })?;
    Ok(existing)
}
