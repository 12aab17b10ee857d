//! What a copy inherits: subvolumes that are mounted in what it was copied from.
//!
//! A copy shares its source's tree, so its names lead to the subvolumes that are mounted in the
//! source. They are not copied with it: the cost of a copy does not depend on how many there are.
//! The copy records its **homes**, the subvolumes whose children it inherits, and is their
//! **heir**.
//!
//! The invariant: an inherited subvolume is what it was when the heir was made. So
//!
//! 1. before it changes, moves or goes, each heir is given a copy of its own (`give_to_heirs`,
//!    which is where every change begins): one commit for each that clones one tree and points
//!    the heir's entry to the clone;
//! 2. a look-up in the heir copies it first (`nested_at`), for a node is of one
//!    subvolume;
//! 3. a step of reclaiming copies what is left, so that heirs are few (`inherit_step`).
//!
//! A copy that is given inherits in turn what is mounted in what it was copied from.
//!
//! Why an heir is a consistent cut: the copy is counted (`Admin::copies`) after its commit and
//! before the source's gate opens. A change reads the count with its own subvolume's gate held. One
//! that sees the new count gives first, so the heir does not see it. One that saw the old count is
//! waited for by the thread that copies that subvolume, so the heir sees all of it; and all that it
//! depends on ended before it began, thus before the count: in the source before its gate was
//! taken, elsewhere with the old count. So nothing is seen that depends on something unseen.

use format::entry_record::{EntryRecord, Target};
use format::inherited_record::{HOMES_MAX, Home};
use format::key;
use inode::{FsError, SubvolId};
use store::{KeyRange, Pinned};

use super::copy::{self, Purpose};
use super::ledger::Ledger;
use super::nested::Member;
use super::snapshot::commit;
use crate::error::inconsistent;
use crate::locks::{Lock, Mode};
use crate::reclaim::Reach;
use crate::subvol::{Subvol, VOLUME};
use crate::txn::Txn;
use crate::view::{NameBuf, View};
use crate::{Fs, FsResult};

/// Most copies that are given with the ledger locked: a writer may wait for it.
const GIVEN_AT_ONCE: u64 = 16;
/// Most subvolumes that are looked at with the ledger locked.
const LOOKED_AT_ONCE: usize = 256;
/// Most heirs of a subvolume, and homes of a heir, when another copy is made: a writer gives to
/// each of them, and a caller that copies more often waits until the oldest has all.
const HEIRS_MAX: usize = 32;
const _: () = assert!(HEIRS_MAX < HOMES_MAX);
/// Steps of giving that a search waits for: some thousand copies.
const STEPS_BEFORE_SEARCH: usize = 256;

/// A directory and a cookie in it.
pub(crate) type Slot = (u64, u64);

/// Why a copy is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// It is due. There must be room, and the share of the heir's maker bounds it.
    Due,
    /// Somebody looks at it. The share bounds that; what is kept of a full disk may be used.
    Look,
    /// Something changes. What is kept of a full disk may be used, for a removal may wait for it,
    /// and nobody's share keeps others from changes.
    Change,
}

/// What became of an entry.
enum Nested {
    /// It leads to a subvolume that is mounted there.
    Own(u64),
    /// It led to an inherited one, and leads to a copy now.
    Given(u64),
    /// It leads to none, or to one of which the heir has no part any more.
    Gone,
}

impl Fs {
    /// The subvolume that an entry leads to, which is `id` but where that is inherited: then it
    /// is a copy of that, made now. No gate and no lock is held.
    #[inline]
    pub(crate) fn nested_at(&self, above: &Subvol, slot: Slot, id: u64) -> FsResult<u64> {
        if above.inherits() { self.own_nested(above, slot, id) } else { Ok(id) }
    }

    #[cold]
    fn own_nested(&self, above: &Subvol, slot: Slot, id: u64) -> FsResult<u64> {
        if self.is_mounted_at(above, slot, id)? {
            return Ok(id);
        }
        self.may_change()?;
        self.nested_with(&mut self.admin.lock(), above, slot, id)
    }

    /// As [`Fs::nested_at`], for those who hold the ledger.
    pub(crate) fn nested_with(
        &self,
        ledger: &mut Ledger,
        above: &Subvol,
        slot: Slot,
        id: u64,
    ) -> FsResult<u64> {
        if !above.inherits() {
            return Ok(id);
        }
        match self.give(ledger, above, slot, Need::Look)? {
            Nested::Own(id) | Nested::Given(id) => Ok(id),
            Nested::Gone => Err(FsError::NotFound),
        }
    }

    /// Whether a subvolume is mounted where an entry leads to it, and not inherited there.
    pub(crate) fn is_mounted_at(&self, above: &Subvol, slot: Slot, id: u64) -> FsResult<bool> {
        let record = crate::subvol::read_record(&*self.store, SubvolId(id))?;
        let place = (above.id.0, slot.0, slot.1);
        Ok(record.ok_or(FsError::NotFound)?.parent == place)
    }

    /// Gives all that inherit a subvolume a copy of it, before it changes, moves or goes.
    #[cold]
    pub(crate) fn give_to_heirs(&self, ledger: &mut Ledger, subvol: &Subvol) -> FsResult<()> {
        let copies = self.admin.copies();
        if subvol.given_to() == copies {
            return Ok(());
        }
        // From the top: who inherits what it is in has that first.
        let mut chain = Vec::new();
        let mut at = subvol.id.0;
        while let Some((above, _)) = ledger.place(self, at)? {
            if chain.iter().any(|(id, _)| *id == at) {
                return Err(inconsistent(VOLUME, "subvolumes lie in one another", at));
            }
            chain.push((at, above));
            at = above;
        }
        for (id, above) in chain.into_iter().rev() {
            let heirs = ledger.heirs(self, above)?;
            if heirs.is_empty() {
                continue;
            }
            let (_, directory, cookie) = Member::get(self, id)?.record.parent;
            for heir in heirs {
                let heir = self.subvol(SubvolId(heir))?;
                // What a copy of a part does not show is nobody's.
                if Reach::new(heir.tree(), heir.root).contains(&*self.store, directory)? {
                    self.give(ledger, &heir, (directory, cookie), Need::Change)?;
                }
            }
        }
        subvol.set_given_to(copies);
        Ok(())
    }

    /// Copies what an entry of an heir leads to, where that is inherited.
    fn give(
        &self,
        ledger: &mut Ledger,
        heir: &Subvol,
        (directory, cookie): Slot,
        need: Need,
    ) -> FsResult<Nested> {
        let (view, mut name) = (View::new(&*self.store, heir.tree()), NameBuf::empty());
        let found = view.entry_at(directory, cookie, &mut name)?;
        let Some(Target::Subvolume(id)) = found.map(|found| found.target) else {
            return Ok(Nested::Gone);
        };
        let child = match Member::get(self, id) {
            Err(FsError::Stale) => return Ok(Nested::Gone),
            child => child?,
        };
        let place = child.record.parent;
        if place == (heir.id.0, directory, cookie) {
            return Ok(Nested::Own(id));
        }
        let homes = ledger.homes(self, heir.id.0)?;
        let is_home = |home: &&Home| (home.subvolume, directory, cookie) == place;
        let Some(home) = homes.iter().find(is_home) else { return Ok(Nested::Gone) };
        let gate = (!child.record.read_only).then(|| child.subvol.quiesce());
        // Another name of the hash may flag the entry meanwhile.
        let entry = Lock::Name { subvol: heir.id.0, dir: directory, hash: cookie >> 8 };
        let locks = self.locks.lock(&[(entry, Mode::Exclusive)]);
        let found = view.entry_at(directory, cookie, &mut name)?;
        let Some(found) = found.filter(|found| found.target == Target::Subvolume(id)) else {
            return Ok(Nested::Gone);
        };
        let maker = Member::get(self, heir.id.0)?.record.maker;
        let mut txn = if need == Need::Due { Txn::new(self) } else { Txn::removing(self) };
        let purpose = Purpose {
            read_only: heir.read_only,
            snapshot: false,
            same_lineage: home.same_lineage,
            parent: (heir.id.0, directory, cookie),
            name: &child.record.name,
        };
        let caller = ledger.begin_as(self, maker, need != Need::Change)?;
        let from = (&child, child.record.root);
        let copied = copy::plan(self, ledger, &mut txn, from, &purpose);
        let copied = copied.inspect_err(|_| ledger.end_as(caller))?;
        let target = Target::Subvolume(copied.id);
        let (chained, ino) = (found.chained, found.ino);
        let entry = EntryRecord { chained, ino, name: name.as_bytes(), target };
        txn.put_entry(heir.tree(), directory, cookie, &entry);
        let committed = commit(ledger, &mut txn);
        ledger.end_as(caller);
        committed?;
        copied.settle(self, ledger);
        drop((locks, gate));
        Ok(Nested::Given(copied.id))
    }

    /// Gives an heir some of what it inherits; tells how many subvolumes were looked at, 0 when
    /// it has all.
    pub(crate) fn give_some(&self, ledger: &mut Ledger, heir: u64) -> FsResult<u64> {
        let homes = ledger.homes(self, heir)?;
        let heir = self.subvol(SubvolId(heir))?;
        let mut reach = Reach::new(heir.tree(), heir.root);
        let (mut at, mut after) = ledger.reached(heir.id.0);
        let (mut given, mut looked) = (0, 0);
        while let Some(home) = homes.get(at) {
            let most = LOOKED_AT_ONCE - looked;
            let children = ledger.children_after(self, home.subvolume, after, most)?;
            for &(directory, child) in &children {
                let (_, _, cookie) = Member::get(self, child)?.record.parent;
                if reach.contains(&*self.store, directory)?
                    && let Nested::Given(_) =
                        self.give(ledger, &heir, (directory, cookie), Need::Due)?
                {
                    given += 1;
                }
                after = (directory, child);
                looked += 1;
                if given == GIVEN_AT_ONCE {
                    break;
                }
            }
            if given == GIVEN_AT_ONCE || looked == LOOKED_AT_ONCE {
                ledger.reach(heir.id.0, (at, after));
                return Ok(looked as u64);
            }
            (at, after) = (at + 1, (0, 0));
        }
        let mut txn = Txn::removing(self);
        let mut record = Member::get(self, heir.id.0)?.record;
        record.inherits = false;
        txn.batch().put(VOLUME, &key::subvolume(heir.id.0), &record.encode());
        txn.batch().delete(VOLUME, &format::inherited_record::inherited(heir.id.0));
        txn.commit()?;
        ledger.inherited(heir.id.0, Vec::new());
        heir.set_inherits_nothing();
        Ok(0)
    }

    /// Gives some to one of the heirs of a subvolume; `None`: it has none.
    pub(crate) fn give_to_one_heir(&self, ledger: &mut Ledger, id: u64) -> FsResult<Option<u64>> {
        if !self.admin.may_inherit() {
            return Ok(None);
        }
        match ledger.heirs(self, id)?.first() {
            Some(&heir) => self.give_some(ledger, heir).map(|given| Some(given.max(1))),
            None => Ok(None),
        }
    }

    /// One step of giving heirs what they inherit; tells how much was done, 0 when none is left
    /// that can be given to now.
    pub(crate) fn inherit_step(
        &self,
        resting: &dyn Fn(u64) -> bool,
    ) -> Result<u64, (u64, FsError)> {
        if !self.admin.may_inherit() {
            return Ok(0);
        }
        let mut ledger = self.admin.lock();
        let heir = ledger.last_heir(self, resting).map_err(|error| (0, error))?;
        let Some(heir) = heir else { return Ok(0) };
        let given = self.give_some(&mut ledger, heir).map_err(|error| (heir, error))?;
        Ok(given.max(1))
    }

    /// Gives all heirs what they inherit, in steps that let others have the ledger.
    pub(crate) fn end_inheriting(&self) -> FsResult<()> {
        while self.inherit_step(&|_| false).map_err(|(_, error)| error)? > 0 {}
        Ok(())
    }

    /// Sees to it that a subvolume has few heirs and few homes before one more copy is made of it.
    pub(super) fn spare_heirs(&self, subvol: u64) -> FsResult<()> {
        loop {
            let mut ledger = self.admin.lock();
            let heirs = ledger.heirs(self, subvol)?;
            let oldest = match heirs.first() {
                Some(&oldest) if heirs.len() >= HEIRS_MAX => oldest,
                _ if ledger.homes(self, subvol)?.len() >= HEIRS_MAX => subvol,
                _ => return Ok(()),
            };
            if let Err(error) = self.give_some(&mut ledger, oldest) {
                // One that is damaged keeps nobody from making others.
                tracing::warn!(%error, heir = oldest, "cannot be given what it inherits");
                return Ok(());
            }
        }
    }

    /// Gives heirs some of what they inherit, before something is looked for that is found faster
    /// where nothing is inherited. There may be any number, so that not all are waited for.
    pub(crate) fn inherit_some(&self) {
        for _ in 0..STEPS_BEFORE_SEARCH {
            match self.inherit_step(&|_| false) {
                Ok(0) => return,
                Ok(_) => {}
                Err((heir, error)) => {
                    tracing::debug!(%error, heir, "a search walks what is inherited");
                    return;
                }
            }
        }
    }
}

/// Whether something is inherited in a state: then what is below a subvolume is known by its
/// names alone.
pub(crate) fn inherits_in(pin: &dyn Pinned) -> store::Result<bool> {
    let range = KeyRange::prefix(&format::inherited_record::INHERITED_PREFIX);
    let mut cursor = pin.scan(VOLUME, range)?;
    Ok(cursor.next()?.is_some())
}

/// What a copy of a subvolume inherits.
pub(super) fn homes_of(
    fs: &Fs,
    ledger: &mut Ledger,
    source: u64,
    same_lineage: bool,
) -> FsResult<Vec<Home>> {
    let mut homes = Vec::new();
    if ledger.has_children(fs, source)? {
        homes.push(Home { subvolume: source, same_lineage });
    }
    for home in ledger.homes(fs, source)? {
        let same_lineage = same_lineage && home.same_lineage;
        homes.push(Home { same_lineage, ..home });
    }
    Ok(homes)
}
