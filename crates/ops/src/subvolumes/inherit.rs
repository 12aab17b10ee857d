//! What a copy inherits: subvolumes that are mounted in what it was copied from.
//!
//! A copy shares its source's tree, so its names point to the subvolumes that are mounted in the
//! source. They are not copied with it: the cost of a copy does not depend on how many there are.
//! The copy records its **homes**, the subvolumes whose children it inherits, and is their
//! **heir**.
//!
//! The invariant: an inherited subvolume is what it was when the heir was made. So
//!
//! 1. before it changes, moves or goes, each heir is given a copy of its own (`before_change`,
//!    where every change begins). That clones one tree for each heir and points the heir's entry to
//!    the clone, in one commit for many heirs;
//! 2. a look-up in the heir copies it first (`nested_at`), for a node is of one
//!    subvolume;
//! 3. a step of reclaiming copies what is left, so that heirs are few (`inherit_step`; what a
//!    caller that makes more does itself: `spare`).
//!
//! A copy that is given inherits in turn what is mounted in what it was copied from.
//!
//! Why an heir is a consistent cut: the copy is counted (`Admin::copies`) after its commit and
//! before the source's gate opens. A change reads the count with its own subvolume's gate held. One
//! that sees the new count gives first, so the heir does not see it. One that saw the old count is
//! waited for by the thread that copies that subvolume, so the heir sees all of it. All that it
//! depends on ended before it began, thus before the count. In the source that was before its gate
//! was taken, elsewhere with the old count. So nothing is seen that depends on something unseen.

use std::sync::Arc;

use format::entry_record::{EntryRecord, Target};
use format::inherited_record::{HOMES_MAX, Home, InheritedRecord};
use format::key;
use inode::{FsError, SubvolId};
use vfs::FsResult;
use volume::locks::{Lock, Mode};
use volume::subvol::{Subvol, VOLUME};
use volume::view::{FoundEntry, NameBuf, View};

use super::copy::{self, Purpose};
use super::execute::{Through, execute_through, execute_with};
use super::ledger::{Ledger, Reached};
use super::mounts::Slot;
use super::nested::{Member, homes_of, inherited_at};
use crate::Ops;
use crate::plan::{Effect, Plan};
use crate::reach::Reach;

/// Most copies that are given with the ledger locked: a writer may wait for it.
pub(super) const GIVEN_AT_ONCE: usize = 16;
/// Most subvolumes that are looked at with the ledger locked.
const LOOKED_AT_ONCE: usize = 256;
/// Steps of giving that a search waits for: some thousand copies.
const STEPS_BEFORE_SEARCH: usize = 256;

/// Why a copy is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// It is due. There must be space, and the share of the heir's maker bounds it.
    Due,
    /// Somebody looks at it. The share bounds that; what is kept of a full disk may be used.
    Look,
    /// Something changes. What is kept of a full disk may be used, for a removal may wait for it.
    /// The share of the heir's maker, or of the maker of what changes, bounds it.
    Change,
    /// What it is inherited from was removed. Nothing bounds it: the space and the shares that the
    /// removal gives back wait for it.
    Removal,
}

/// An entry of an heir that points to an inherited subvolume.
pub(super) struct Lead<'a> {
    pub(super) heir: &'a Subvol,
    pub(super) slot: Slot,
    pub(super) id: u64,
}

impl Lead<'_> {
    /// Locks it: another name of the hash may flag it meanwhile.
    fn lock(&self, plan: &mut Plan) {
        let (subvol, (dir, cookie)) = (self.heir.id.0, self.slot);
        plan.lock(Lock::Name { subvol, dir, hash: cookie >> 8 }, Mode::Exclusive);
    }

    /// Reads it under the lock; `None`: it points to something else by now.
    fn entry<'n>(&self, fs: &Ops, name: &'n mut NameBuf) -> FsResult<Option<EntryRecord<'n>>> {
        let view = View::new(&*fs.store, self.heir.tree());
        let found = view.entry_at(self.slot.0, self.slot.1, name)?;
        let found = found.filter(|found| found.target == Target::Subvolume(self.id));
        Ok(found.map(|FoundEntry { chained, ino, target, .. }| EntryRecord {
            chained,
            ino,
            name: name.as_bytes(),
            target,
        }))
    }

    /// Plans that it points to a copy.
    fn plan(&self, plan: &mut Plan, entry: &EntryRecord<'_>, copy: u64) {
        let entry = EntryRecord { target: Target::Subvolume(copy), ..*entry };
        plan.put_entry(self.heir.tree(), self.slot.0, self.slot.1, &entry);
    }

    /// Points it to a copy that was made before; `None`, as of `entry`.
    fn point_to(&self, fs: &Ops, ledger: &mut Ledger, copy: u64) -> FsResult<Option<u64>> {
        let aim = |plan: &mut Plan| {
            self.lock(plan);
            Ok(())
        };
        execute_through(fs, ledger, Through::default(), aim, |_, plan| {
            plan.removes();
            let mut name = NameBuf::empty();
            let Some(entry) = self.entry(fs, &mut name)? else { return Ok(None) };
            self.plan(plan, &entry, copy);
            Ok(Some(copy))
        })
    }
}

/// What an entry of an heir points to.
pub(super) enum Aim {
    /// A subvolume that is mounted there.
    Own(u64),
    /// The heir has a copy, to which its entry does not point yet.
    Apart { id: u64, copy: u64 },
    /// One that the heir inherits: what that is, and the home in which it is mounted.
    Inherited { id: u64, child: Box<Member>, home: Home },
    /// None, or one of which the heir has no part any more.
    Nothing,
}

/// An heir that is given a copy.
pub(super) struct Receiver<'a> {
    heir: u64,
    read_only: bool,
    /// Who made the heir.
    pub(super) maker: u32,
    home: Home,
    /// Its entry, which points to the copy from then on, if it can be read.
    lead: Option<Lead<'a>>,
}

impl<'a> Receiver<'a> {
    pub(super) fn new(
        fs: &Ops,
        ledger: &mut Ledger,
        heir: u64,
        home: Home,
        lead: Option<Lead<'a>>,
    ) -> FsResult<Receiver<'a>> {
        let maker = ledger.maker_of(fs, heir)?;
        // An heir that was used is in memory, and its record is not read: it may be damaged. Where
        // it must be read and cannot be, nothing will change in the copy.
        let read_only = match fs.subvol(SubvolId(heir)) {
            Ok(subvol) => subvol.read_only,
            Err(FsError::Io(error)) => {
                tracing::error!(%error, heir, "the record of a subvolume is damaged");
                true
            }
            Err(error) => return Err(error),
        };
        Ok(Receiver { heir, read_only, maker, home, lead })
    }

    /// The heir, where its entry can be read.
    pub(super) fn subvol(&self) -> Option<&'a Subvol> {
        self.lead.as_ref().map(|lead| lead.heir)
    }
}

/// What became of an entry.
pub(super) enum Nested {
    /// It points to a subvolume that is mounted there.
    Own(u64),
    /// It pointed to an inherited one, and points to a copy now.
    Given(u64),
    /// It points to none, or to one of which the heir has no part any more.
    Gone,
    /// A copy of what it points to would inherit from too many. That was given some of what it
    /// inherits itself; the caller asks again, until it has few homes.
    Later,
}

impl Ops {
    /// The subvolume that an entry points to: `id` where that is mounted at the entry. Where it is
    /// inherited, this makes a copy and returns that. Otherwise the result is `NotFound`, for
    /// `id` is mounted elsewhere and must not be reached through this entry. No gate and no lock
    /// is held.
    #[inline]
    pub(crate) fn nested_at(&self, above: &Subvol, slot: Slot, id: u64) -> FsResult<u64> {
        if self.is_mounted_at(above, slot, id)? {
            return Ok(id);
        }
        loop {
            // Others have the ledger in between.
            let nested = self.give(&mut self.admin.lock_known(self), above, slot, Need::Look)?;
            match nested {
                Nested::Own(id) | Nested::Given(id) => return Ok(id),
                Nested::Gone => return Err(FsError::NotFound),
                Nested::Later => {}
            }
        }
    }

    /// As [`Ops::nested_at`], for a caller that holds the ledger, which keeps the entry as it is.
    pub(crate) fn nested_with(
        &self,
        ledger: &mut Ledger,
        above: &Subvol,
        slot: Slot,
    ) -> FsResult<u64> {
        loop {
            match self.give(ledger, above, slot, Need::Look)? {
                Nested::Own(id) | Nested::Given(id) => return Ok(id),
                Nested::Gone => return Err(FsError::NotFound),
                Nested::Later => {}
            }
        }
    }

    /// Whether a subvolume exists and is mounted at the entry that points to it. If not, it may be
    /// inherited there.
    pub fn is_mounted_at(&self, above: &Subvol, slot: Slot, id: u64) -> FsResult<bool> {
        let record = volume::subvol::read_record(&*self.store, SubvolId(id))?;
        let place = (above.id.0, slot.0, slot.1);
        Ok(record.is_some_and(|record| record.parent == place))
    }

    /// For each directory, whether it can be reached in an heir. A copy of a part has others in
    /// its tree, and what is mounted in them is not copied for it. The gate stops changes that
    /// move directories meanwhile. After a rollback, processes reach the previous directory as
    /// long as they hold it.
    pub(super) fn shows(
        &self,
        heir: &Subvol,
        reach: &mut Reach,
        directories: &[u64],
    ) -> Vec<FsResult<bool>> {
        let _gate = (!heir.read_only).then(|| heir.quiesce());
        let is_held = |directory| self.nodes.is_held(heir.node(directory));
        let shows = directories
            .iter()
            .map(|&directory| reach.contains_or(&*self.store, directory, &is_held));
        shows.collect()
    }

    /// Copies what an entry of an heir points to, where that is inherited.
    pub(super) fn give(
        &self,
        ledger: &mut Ledger,
        heir: &Subvol,
        slot: Slot,
        need: Need,
    ) -> FsResult<Nested> {
        let given = match self.aim_of(ledger, heir, slot)? {
            Aim::Own(id) => return Ok(Nested::Own(id)),
            Aim::Nothing => None,
            Aim::Apart { id, copy } => {
                self.may_change()?;
                Lead { heir, slot, id }.point_to(self, ledger, copy)?
            }
            Aim::Inherited { id, child, home } => {
                self.may_change()?;
                if self.gives_to_source(ledger, &child, need)? {
                    return Ok(Nested::Later);
                }
                let lead = Some(Lead { heir, slot, id });
                let to = Receiver::new(self, ledger, heir.id.0, home, lead)?;
                self.copy_for_heirs(ledger, (&*child, slot), need, &[to])?.pop().flatten()
            }
        };
        Ok(given.map_or(Nested::Gone, Nested::Given))
    }

    /// Gives a subvolume some of what it inherits, if a copy of it would inherit from more homes
    /// than a record has. So no number of copies of copies has a change or a look-up fail. `false`:
    /// it has few.
    pub(super) fn gives_to_source(
        &self,
        ledger: &mut Ledger,
        source: &Member,
        need: Need,
    ) -> FsResult<bool> {
        if ledger.homes(self, source.subvol.id.0)?.len() < HOMES_MAX {
            return Ok(false);
        }
        let homes = homes_of(self, ledger, (&source.subvol, source.record.root), true)?;
        if homes.len() <= HOMES_MAX {
            return Ok(false);
        }
        match self.give_some(ledger, source.subvol.id.0, need) {
            // It has all that is not damaged, and the rest is in few homes. So damage of something
            // that is inherited stops no change of anything else.
            Err(error @ FsError::Io(_))
                if ledger.homes(self, source.subvol.id.0)?.len() < HOMES_MAX =>
            {
                tracing::warn!(%error, subvolume = source.subvol.id.0, "cannot copy all for it");
                Ok(true)
            }
            given => given.map(|_| true),
        }
    }

    /// What an entry of an heir points to.
    pub(super) fn aim_of(
        &self,
        ledger: &mut Ledger,
        heir: &Subvol,
        (directory, cookie): Slot,
    ) -> FsResult<Aim> {
        let (view, mut name) = (View::new(&*self.store, heir.tree()), NameBuf::empty());
        let found = view.entry_at(directory, cookie, &mut name)?;
        let Some(Target::Subvolume(id)) = found.map(|found| found.target) else {
            return Ok(Aim::Nothing);
        };
        let place = (heir.id.0, directory, cookie);
        // Its record has that, which needs no knowledge of all others.
        if self.is_mounted_at(heir, (directory, cookie), id)? {
            return Ok(Aim::Own(id));
        }
        if ledger.homes(self, heir.id.0)?.is_empty() {
            return Ok(Aim::Nothing);
        }
        if let Some(copy) = ledger.mounted_at(self, place)? {
            return Ok(Aim::Apart { id, copy });
        }
        Ok(match inherited_at(self, ledger, place, Some(id))? {
            Some((child, home)) => Aim::Inherited { id, child: Box::new(child), home },
            None => Aim::Nothing,
        })
    }

    /// Copies a subvolume that is mounted in homes at a slot for some heirs of one maker, in one
    /// commit; returns the copy of each. `None`: its entry no longer points to what is inherited.
    pub(super) fn copy_for_heirs(
        &self,
        ledger: &mut Ledger,
        (child, slot): (&Member, Slot),
        need: Need,
        to: &[Receiver<'_>],
    ) -> FsResult<Vec<Option<u64>>> {
        let Some(first) = to.first() else { return Ok(Vec::new()) };
        let quiet = [Arc::clone(&child.subvol)];
        let quiet = if child.record.read_only { &[] } else { &quiet[..] };
        let through = Through { quiet, changed: None };
        let aim = |plan: &mut Plan| {
            to.iter().filter_map(|to| to.lead.as_ref()).for_each(|lead| lead.lock(plan));
            Ok(())
        };
        let maker = match need {
            Need::Due | Need::Look | Need::Removal => first.maker,
            Need::Change => ledger.payer(self, (first.maker, child.record.maker), to.len())?,
        };
        let is_bound = matches!(need, Need::Due | Need::Look);
        let caller = ledger.begin_as(self, maker, is_bound)?;
        let given = execute_through(self, ledger, through, aim, |ledger, plan| {
            if need != Need::Due {
                plan.removes();
            }
            let plan_one = |to| self.plan_given((&mut *ledger, &mut *plan), (child, slot), to);
            to.iter().map(plan_one).collect()
        });
        ledger.end_as(caller);
        given
    }

    /// Plans the copy for one heir; returns its number.
    fn plan_given(
        &self,
        (ledger, plan): (&mut Ledger, &mut Plan),
        (child, (directory, cookie)): (&Member, Slot),
        to: &Receiver<'_>,
    ) -> FsResult<Option<u64>> {
        let mut name = NameBuf::empty();
        let entry = match &to.lead {
            Some(lead) => match lead.entry(self, &mut name)? {
                Some(entry) => Some((lead, entry)),
                None => return Ok(None),
            },
            None => None,
        };
        let place = (to.heir, directory, cookie);
        let purpose = Purpose {
            read_only: to.read_only,
            snapshot: false,
            same_lineage: to.home.same_lineage,
            parent: place,
            name: &child.record.name,
        };
        let source = (child, child.record.root);
        let mut copied = copy::plan(self, ledger, plan, source, &purpose)?;
        copied.counts_with = to.maker;
        let id = copied.id;
        plan.effect(Effect::Given(Box::new(copied)));
        match &entry {
            Some((lead, entry)) => lead.plan(plan, entry, id),
            None => plan.effect(Effect::Doubted(place)),
        }
        Ok(Some(id))
    }

    /// Gives an heir some of what it inherits; returns how many subvolumes were looked at, 0 when
    /// it has all. Where one cannot be copied because of damage, the others are. The heir
    /// inherits on then, and the error follows after the last.
    pub(super) fn give_some(&self, ledger: &mut Ledger, heir: u64, need: Need) -> FsResult<u64> {
        self.may_change()?;
        let homes = ledger.homes(self, heir)?;
        let heir = self.subvol(SubvolId(heir))?;
        let mut reach = Reach::new(heir.tree(), heir.root);
        let mut to = ledger.reached(heir.id.0);
        let (mut given, mut looked) = (0, 0);
        while let Some(home) = homes.get(to.home) {
            let most = (GIVEN_AT_ONCE - given).min(LOOKED_AT_ONCE - looked);
            let children = ledger.children_after(self, home.subvolume, to.after, most)?;
            let directories: Vec<u64> = children.iter().map(|(directory, _)| *directory).collect();
            let shows = self.shows(&heir, &mut reach, &directories);
            for (&child, shows) in children.iter().zip(shows) {
                let done = shows.and_then(|shows| {
                    if shows { self.give(ledger, &heir, child, need) } else { Ok(Nested::Gone) }
                });
                match done {
                    Ok(Nested::Later) => {
                        ledger.reach(heir.id.0, to);
                        return Ok(looked.max(1) as u64);
                    }
                    Ok(done) => given += usize::from(matches!(done, Nested::Given(_))),
                    Err(error @ FsError::Io(_)) => {
                        to.failed = to.failed.or(Some(error));
                        to.left.push(home.subvolume);
                        to.left.dedup();
                    }
                    Err(error) => return Err(error),
                }
                to.after = child;
                looked += 1;
            }
            if given == GIVEN_AT_ONCE || looked == LOOKED_AT_ONCE {
                ledger.reach(heir.id.0, to);
                return Ok(looked as u64);
            }
            if children.len() < most {
                (to.home, to.after) = (to.home + 1, (0, 0));
            }
        }
        while let Some((_, directory, cookie)) =
            ledger.doubted_after(self, heir.id.0, to.doubted)?
        {
            match self.correct(ledger, (heir.id.0, directory, cookie), need) {
                Err(error @ FsError::Io(_)) => to.failed = to.failed.or(Some(error)),
                Ok(Nested::Later) => {
                    ledger.reach(heir.id.0, to);
                    return Ok(looked.max(1) as u64);
                }
                done => {
                    done?;
                }
            }
            (to.doubted, looked) = ((directory, cookie), looked + 1);
            if looked == LOOKED_AT_ONCE {
                ledger.reach(heir.id.0, to);
                return Ok(looked as u64);
            }
        }
        self.end_giving(ledger, heir.id.0, (homes, to))
    }

    /// All that an heir inherits was looked at. From now on it inherits from those homes alone in
    /// which something damaged could not be copied. So copies of it have few homes, too.
    fn end_giving(
        &self,
        ledger: &mut Ledger,
        heir: u64,
        (mut homes, to): (Vec<Home>, Reached),
    ) -> FsResult<u64> {
        let before = homes.len();
        match &to.failed {
            None => homes.clear(),
            // An entry of its own could not be read. A copy that inherits nothing has no such
            // entries.
            Some(_) if to.left.is_empty() => homes.truncate(1),
            Some(_) => homes.retain(|home| to.left.contains(&home.subvolume)),
        }
        if to.failed.is_some() {
            ledger.reach(heir, Reached::default());
            ledger.note_damaged(heir);
        }
        if homes.len() < before {
            execute_with(self, ledger, |_, plan| {
                plan.removes();
                let mut record = Member::get(self, heir)?.record;
                let inherited = format::inherited_record::inherited(heir);
                if homes.is_empty() {
                    record.inherits = false;
                    plan.batch().put(VOLUME, &key::subvolume(heir), &record.encode());
                    plan.batch().delete(VOLUME, &inherited);
                } else {
                    let left = InheritedRecord { homes: homes.clone() };
                    plan.batch().put(VOLUME, &inherited, &left.encode());
                }
                plan.effect(Effect::Inherits(heir, homes));
                Ok(())
            })?;
        }
        to.failed.map_or(Ok(0), Err)
    }

    /// Gives some to one of the heirs of a subvolume that was removed; `None`: it has none. The
    /// space that the removal frees waits for this, so that a full disk or a share do not stop it.
    pub fn give_to_one_heir(&self, ledger: &mut Ledger, id: u64) -> FsResult<Option<u64>> {
        if !self.admin.may_inherit() {
            return Ok(None);
        }
        match ledger.heirs(self, id)?.first() {
            Some(&heir) => {
                let given = self.give_some(ledger, heir, Need::Removal)?;
                Ok(Some(given.max(1)))
            }
            None => Ok(None),
        }
    }

    /// One step of giving heirs what they inherit; returns how much was done, 0 when none is left
    /// that can be given to now.
    pub fn inherit_step(&self, resting: &dyn Fn(u64) -> bool) -> Result<u64, (u64, FsError)> {
        if !self.admin.may_inherit() {
            return Ok(0);
        }
        let mut ledger = self.admin.lock_known(self);
        let heir = ledger.last_heir(self, resting).map_err(|error| (0, error))?;
        let Some(heir) = heir else { return Ok(0) };
        let given = self.give_some(&mut ledger, heir, Need::Due);
        let given = given.map_err(|error| (heir, error))?;
        Ok(given.max(1))
    }

    /// Gives heirs some of what they inherit, before something is looked for that is found faster
    /// where nothing is inherited. There may be any number, so that not all are waited for.
    pub(crate) fn inherit_some(&self) {
        if self.may_change().is_err() {
            return;
        }
        for _ in 0..STEPS_BEFORE_SEARCH {
            match self.inherit_step(&|_| false) {
                Ok(0) => return,
                Ok(_) => {}
                Err((heir, error)) => {
                    tracing::debug!(%error, heir, "a search walks inherited subvolumes");
                    return;
                }
            }
        }
    }
}
