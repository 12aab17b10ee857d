//! `rename`: moves a name, atomically, over what is at the target, or swaps the two; or leaves a
//! whiteout behind.
//!
//! 1. Read, without locks, what the two names point to, and everything above the target when a
//!    directory changes its parent.
//! 2. Lock both names, both inodes, and the places of everything above the target (shared) and of
//!    the directory that moves (exclusively): two renames that together would make a loop exclude
//!    each other. There is no global lock for renames.
//! 3. Read again; if anything differs from what was locked, start over.
//! 4. One batch, then the node table.

use format::directory_record::DirectoryRecord;
use format::entry_record::Target;
use format::quota::Charge;
use inode::permissions::WRITE;
use inode::{Caller, FsError, NodeId};

use super::mknod::parent_directory;
use super::object::{EntrySlot, Object};
use super::rmdir::{erase_directory, removed};
use super::unlink::drop_name;
use super::whiteout;
use crate::account::signed;
use crate::error::inconsistent;
use crate::inherited::Ways;
use crate::locks::{Lock, Mode};
use crate::nodes::Location;
use crate::orphan::LastName;
use crate::subvol::Subvol;
use crate::trash::{Keeping, Kept, Removal, check_outside};
use crate::txn::Txn;
use crate::view::{Found, Search, Vacancy, View};
use crate::{Fs, FsResult, RenameMode, permit, quota};

/// Deepest directory whose ancestors are counted, in case records form a loop.
const DEPTH_MAX: usize = 1 << 20;

/// Renames.
pub(crate) fn rename(
    fs: &Fs,
    caller: &Caller,
    from: (NodeId, &[u8]),
    to: (NodeId, &[u8]),
    (mode, removal): (RenameMode, Removal),
) -> FsResult<()> {
    let old = fs.old_name(from.1)?;
    let new = fs.new_name(to.1)?;
    let (subvol, from_dir) = fs.place(from.0)?;
    let (other, to_dir) = fs.place(to.0)?;
    if subvol.id != other.id {
        return crate::subvolumes::rename_across(fs, caller, from, to, mode);
    }
    let entered = fs.enter(&subvol)?;
    let rename = Rename {
        fs,
        caller,
        subvol: &subvol,
        view: View::new(&*fs.store, entered.tree),
        from: End { dir: from_dir, hash: fs.hash.hash(old.as_bytes()), name: old.as_bytes() },
        to: End { dir: to_dir, hash: fs.hash.hash(new.as_bytes()), name: new.as_bytes() },
        mode,
        way: Way::Plain(removal),
    };
    check_outside(fs, &subvol, rename.view, (to_dir, new.as_bytes()))?;
    if mode == RenameMode::Exchange || mode.leaves_whiteout() {
        check_outside(fs, &subvol, rename.view, (from_dir, old.as_bytes()))?;
    }
    loop {
        match rename.attempt()? {
            Attempt::Done => return Ok(()),
            Attempt::Changed => {}
            Attempt::Subvolume => {
                drop(entered);
                return crate::subvolumes::rename_across(fs, caller, from, to, mode);
            }
        }
    }
}

/// A name, and the directory that it is in.
#[derive(Clone, Copy)]
struct End<'a> {
    dir: u64,
    hash: u64,
    name: &'a [u8],
}

struct Rename<'a> {
    fs: &'a Fs,
    caller: &'a Caller,
    subvol: &'a Subvol,
    view: View<'a>,
    from: End<'a>,
    to: End<'a>,
    mode: RenameMode,
    way: Way,
}

/// The kind of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// As the caller requested, with what happens to the replaced object.
    Plain(Removal),
    /// Into the trash, with the inode that was read before. The directory there is not written by a
    /// user, and keeps its times.
    Away(u64),
    /// Out of the trash, the same for the directory that it comes from.
    Back,
}

/// Moves a name of a directory into another of the same subvolume, where it does not exist yet,
/// into the trash or out of it. The caller is inside the gate. Returns whether it moved: a
/// subvolume does not.
pub(crate) fn move_name(
    fs: &Fs,
    caller: &Caller,
    (subvol, view): (&Subvol, View<'_>),
    (from, old): (u64, &[u8]),
    (to, new): (u64, &[u8]),
    way: Way,
) -> FsResult<bool> {
    let rename = Rename {
        fs,
        caller,
        subvol,
        view,
        from: End { dir: from, hash: fs.hash.hash(old), name: old },
        to: End { dir: to, hash: fs.hash.hash(new), name: new },
        mode: RenameMode::NoReplace,
        way,
    };
    loop {
        match rename.attempt()? {
            Attempt::Done => return Ok(true),
            Attempt::Changed => {}
            Attempt::Subvolume => return Ok(false),
        }
    }
}

enum Attempt {
    Done,
    /// Something changed between the read and the lock.
    Changed,
    /// One of the names is a subvolume's.
    Subvolume,
}

/// What was found, before locking or after.
struct ReadSet {
    from: Found,
    to: Search,
    /// Directories above the target, from its own directory to the root; empty when no directory
    /// moves there from elsewhere.
    above_to: Vec<u64>,
    /// The same for the source, for a directory that is swapped there.
    above_from: Vec<u64>,
}

impl Rename<'_> {
    fn attempt(&self) -> FsResult<Attempt> {
        let (Some(seen), false) = (self.look()?, self.is_same_name()) else {
            return self.trivial();
        };
        if is_subvolume(&seen.from) || target_of(&seen.to).is_some_and(|to| is_subvolume(&to)) {
            return Ok(Attempt::Subvolume);
        }
        if let Way::Away(ino) = self.way
            && ino != seen.from.ino
        {
            return Err(FsError::Busy("the name was changed concurrently; try again"));
        }
        let keeping = self.keeping(&seen)?;
        let mut wanted = self.locks(&seen);
        if let Some(keeping) = &keeping {
            wanted.extend(keeping.locks(self.to.hash));
        }
        let locks = self.fs.locks.lock(&wanted);
        let Some(found) = self.look()? else { return Ok(Attempt::Changed) };
        if !seen.agrees_with(&found) {
            return Ok(Attempt::Changed);
        }
        let source = parent_directory(self.fs, self.subvol, self.view, self.caller, self.from.dir)?;
        let target = parent_directory(self.fs, self.subvol, self.view, self.caller, self.to.dir)?;
        let (left, domain) = (quota::domain_of(&source), quota::domain_of(&target));
        let moved = Object::load(self.view, self.from.dir, &found.from)?;
        // What is restored from the trash is charged to the quota that holds there now.
        if self.way != Way::Back || !matches!(moved, Object::File { nlink: 1, .. }) {
            quota::check_same(left, domain)?;
        }
        self.check_leaving((self.from.dir, &source), &found.from, &moved)?;
        check_loop(&found.from, &moved, &found.above_to)?;
        match (self.mode, found.to) {
            (mode, Search::Found(_)) if mode.keeps_target() => Err(FsError::Exists),
            (RenameMode::Exchange, Search::Vacant(_)) => Err(FsError::NotFound),
            (_, Search::Found(to)) if to.ino == found.from.ino => Ok(Attempt::Done),
            (RenameMode::Exchange, Search::Found(to)) => {
                let other = Object::load(self.view, self.to.dir, &to)?;
                self.check_leaving((self.to.dir, &target), &to, &other)?;
                check_loop(&to, &other, &found.above_from)?;
                self.exchange((found.from, moved), (to, other))
            }
            (_, Search::Found(to)) => {
                let victim = Object::load(self.view, self.to.dir, &to)?;
                permit::removal(self.view, self.to.dir, &target, self.caller, victim.uid())?;
                moved.check_replaces(&victim)?;
                let done = self.replace((found.from, moved), (to, victim), keeping.as_ref())?;
                drop(locks);
                if let (Attempt::Done, Some(keeping)) = (&done, &keeping) {
                    keeping.tell(self.to.name);
                }
                Ok(done)
            }
            (_, Search::Vacant(vacancy)) => {
                permit::directory(self.view, self.to.dir, &target, self.caller, WRITE)?;
                self.fill((found.from, moved), &vacancy, domain)
            }
        }
    }

    /// Where the replaced object goes, if it is kept.
    fn keeping(&self, seen: &ReadSet) -> FsResult<Option<Keeping<'_>>> {
        let Way::Plain(removal) = self.way else { return Ok(None) };
        if !matches!(self.mode, RenameMode::Replace | RenameMode::Whiteout) {
            return Ok(None);
        }
        let victim = target_of(&seen.to).filter(|to| to.ino != seen.from.ino);
        let name = (self.to.dir, self.to.name);
        let keeping = Keeping::of(self.fs, self.subvol, self.view, name, (victim, removal))?;
        // A directory is restored from the trash into its old place: the empty one there is
        // removed.
        Ok(keeping.filter(|keeping| !keeping.is_in(seen.from.ino)))
    }

    fn is_same_name(&self) -> bool {
        self.from.dir == self.to.dir && self.from.name == self.to.name
    }

    /// The source is missing, or source and target are the same name.
    fn trivial(&self) -> FsResult<Attempt> {
        parent_directory(self.fs, self.subvol, self.view, self.caller, self.from.dir)?;
        parent_directory(self.fs, self.subvol, self.view, self.caller, self.to.dir)?;
        match self.view.find_entry(self.from.dir, self.from.hash, self.from.name)? {
            None => Err(FsError::NotFound),
            Some(_) if !self.is_same_name() => Ok(Attempt::Changed),
            Some(_) if self.mode.keeps_target() => Err(FsError::Exists),
            Some(_) => Ok(Attempt::Done),
        }
    }

    /// Reads both names. `None`: there is no source.
    fn look(&self) -> FsResult<Option<ReadSet>> {
        let (from, to, view) = (self.from, self.to, self.view);
        let Some(source) = view.find_entry(from.dir, from.hash, from.name)? else {
            return Ok(None);
        };
        let target = view.find(to.dir, to.hash, to.name)?;
        let crosses = from.dir != to.dir;
        let above = |wanted: bool, dir| if wanted { self.above(dir) } else { Ok(Vec::new()) };
        let swapped = self.mode == RenameMode::Exchange
            && target_of(&target).is_some_and(|to| to.is_directory());
        Ok(Some(ReadSet {
            from: source,
            to: target,
            above_to: above(crosses && source.is_directory(), to.dir)?,
            above_from: above(crosses && swapped, from.dir)?,
        }))
    }

    /// A directory and everything above it in its subvolume.
    fn above(&self, dir: u64) -> FsResult<Vec<u64>> {
        let mut above = vec![dir];
        let mut at = dir;
        while at != self.subvol.root {
            let record = self.view.directory(at)?.ok_or(FsError::NotFound)?;
            at = record.parent;
            above.push(at);
            if above.len() > DEPTH_MAX {
                return Err(inconsistent(self.view.tree, "directories form a cycle", dir));
            }
        }
        Ok(above)
    }

    fn locks(&self, seen: &ReadSet) -> Vec<(Lock, Mode)> {
        let subvol = self.subvol.id.0;
        let object = |ino| Lock::Object { subvol, ino };
        let name = |end: End<'_>| Lock::Name { subvol, dir: end.dir, hash: end.hash };
        let place = |ino| Lock::Place { subvol, ino };
        let mut locks = vec![
            (object(self.from.dir), Mode::Shared),
            (object(self.to.dir), Mode::Shared),
            (name(self.from), Mode::Exclusive),
            (name(self.to), Mode::Exclusive),
            (object(seen.from.ino), Mode::Exclusive),
        ];
        match &seen.to {
            Search::Found(to) => locks.push((object(to.ino), Mode::Exclusive)),
            Search::Vacant(vacancy) => {
                locks.extend(vacancy.predecessor.map(|(_, ino)| (object(ino), Mode::Exclusive)));
            }
        }
        for ino in seen.above_to.iter().chain(&seen.above_from) {
            locks.push((place(*ino), Mode::Shared));
        }
        if !seen.above_to.is_empty() {
            locks.push((place(seen.from.ino), Mode::Exclusive));
        }
        if let (false, Some(to)) = (seen.above_from.is_empty(), target_of(&seen.to)) {
            locks.push((place(to.ino), Mode::Exclusive));
        }
        locks
    }

    /// Whether the caller may move an object out of a directory.
    fn check_leaving(
        &self,
        (dir, directory): (u64, &DirectoryRecord),
        found: &Found,
        object: &Object,
    ) -> FsResult<()> {
        permit::removal(self.view, dir, directory, self.caller, object.uid())?;
        if let Object::Directory(record) = object {
            quota::check_adopted(directory, record)?;
        }
        match object {
            // Its `..` changes, which is a write to it.
            Object::Directory(record) if self.from.dir != self.to.dir => {
                permit::directory(self.view, found.ino, record, self.caller, WRITE)
            }
            _ => Ok(()),
        }
    }

    /// To a name that does not exist.
    fn fill(
        &self,
        (from, moved): (Found, Object),
        vacancy: &Vacancy,
        domain: u64,
    ) -> FsResult<Attempt> {
        let mut txn = Txn::new(self.fs);
        // Both in one chain, the new one later: the old place stays marked, also as the one that
        // points to the new one.
        let followed = self.from.dir == self.to.dir
            && vacancy.cookie >> 8 == from.cookie >> 8
            && vacancy.cookie > from.cookie;
        let leads =
            followed && vacancy.predecessor.is_some_and(|(cookie, _)| cookie == from.cookie);
        self.leave(&mut txn, &from, followed)?;
        if let (false, Some((cookie, ino))) = (leads, vacancy.predecessor) {
            txn.flag_chained(self.view, self.to.dir, cookie, ino)?;
        }
        let moved = self.charged(&mut txn, from.ino, moved)?;
        let moved = match self.way {
            Way::Back => self.recharged(&mut txn, from.ino, moved, domain)?,
            Way::Plain(_) | Way::Away(_) => moved,
        };
        self.put(&mut txn, (self.from.dir, &from), &moved, (vacancy.cookie, vacancy.chained));
        self.touch(&mut txn, 1, i64::from(moved.is_directory()));
        txn.commit()?;
        self.moved(&from, self.to.dir, vacancy.cookie);
        Ok(Attempt::Done)
    }

    /// A directory that was created in the trash is charged when it leaves it. One with such a mark
    /// that was inherited is charged to no one, wherever it goes.
    fn charged(&self, txn: &mut Txn<'_>, ino: u64, object: Object) -> FsResult<Object> {
        let (Way::Back | Way::Plain(_), Object::Directory(record)) = (self.way, &object) else {
            return Ok(object);
        };
        let subvolume = self.subvol.id.0;
        let own = self.fs.subvols.first_own_ino(subvolume).is_some_and(|first| ino >= first);
        let nobody = |charge: &Charge| own && charge.subvolume == Charge::NOBODY;
        let Some(charge) = record.charge.filter(nobody) else {
            return Ok(object);
        };
        if record.subdirectories != 0 {
            // Those below would stay uncharged.
            return Err(FsError::CrossSubvolume("directories of the trash are charged one by one"));
        }
        txn.charge(charge.domain, subvolume, 1, 0)?;
        if self.fs.quotas.owners.is_on() {
            txn.on_behalf(self.caller);
            txn.charge_new_owned(subvolume, (record.uid, record.gid), 0)?;
        }
        let charge = Some(Charge { subvolume, ..charge });
        Ok(Object::Directory(DirectoryRecord { charge, ..*record }))
    }

    /// A file is restored to where another quota holds than when it was removed.
    fn recharged(
        &self,
        txn: &mut Txn<'_>,
        ino: u64,
        mut object: Object,
        domain: u64,
    ) -> FsResult<Object> {
        let Object::File { inode, .. } = &mut object else { return Ok(object) };
        let known = inode.charge.map_or(Charge::NO_DOMAIN, |charge| charge.domain);
        if known != domain {
            let (subvolume, bytes) = (self.subvol.id.0, inode.charged_bytes());
            let own = txn.is_own(subvolume, ino, inode.charge);
            if let Some(charge) = inode.charge {
                txn.credit(subvolume, charge, bytes);
            }
            let nobody = inode.charge.map_or(Charge::NOBODY, |charge| charge.subvolume);
            if own {
                txn.charge(domain, subvolume, 1, signed(bytes))?;
            }
            inode.charge = Some(Charge { domain, subvolume: if own { subvolume } else { nobody } });
        }
        Ok(object)
    }

    /// Over an existing target.
    fn replace(
        &self,
        (from, moved): (Found, Object),
        (to, victim): (Found, Object),
        keeping: Option<&Keeping<'_>>,
    ) -> FsResult<Attempt> {
        let (view, id) = (self.view, self.subvol.id.0);
        let mut txn = match keeping {
            None if !self.mode.leaves_whiteout() => Txn::removing(self.fs),
            _ => Txn::new(self.fs),
        };
        let (mut lost, mut kept): (Option<LastName>, _) = (None, None);
        match (&victim, keeping) {
            (Object::Directory(record), None) => {
                erase_directory(&mut txn, view, id, to.ino, record);
            }
            (Object::Directory(record), Some(keeping)) => {
                kept = Some(keeping.put_directory(&mut txn, view, (to.ino, record))?);
            }
            (Object::File { inode, nlink, .. }, None) => {
                let name = (id, self.to.dir, &to);
                lost = drop_name(&mut txn, view, &mut Ways::new(), name, inode, *nlink)?;
                txn.erase_attached(view.tree, self.to.dir, &to);
            }
            (Object::File { .. }, Some(keeping)) => {
                txn.erase_attached(view.tree, self.to.dir, &to);
                let name = (self.to.name, self.to.hash);
                kept = Some(keeping.put_file(&mut txn, view, (self.to.dir, &to), name)?);
            }
        }
        if let Some(Kept::Again) = kept {
            return Ok(Attempt::Changed);
        }
        self.leave(&mut txn, &from, false)?;
        let moved = self.charged(&mut txn, from.ino, moved)?;
        self.put(&mut txn, (self.from.dir, &from), &moved, (to.cookie, to.chained));
        let subdirectories = i64::from(moved.is_directory());
        let left = i64::from(self.mode.leaves_whiteout());
        if self.from.dir == self.to.dir {
            let gone = i64::from(victim.is_directory());
            txn.touch_directory(view.tree, self.from.dir, left - 1, -gone);
        } else {
            txn.touch_directory(view.tree, self.from.dir, left - 1, -subdirectories);
            let gone = i64::from(victim.is_directory());
            txn.touch_directory(view.tree, self.to.dir, 0, subdirectories - gone);
        }
        txn.commit()?;
        let now = txn.now;
        self.moved(&from, self.to.dir, to.cookie);
        if let (Some(keeping), Some(Kept::Put(cookie))) = (keeping, kept) {
            keeping.settle(&to, cookie);
        }
        if let Some(lost) = lost {
            lost.settle(self.fs);
        }
        if let Object::Directory(record) = victim {
            self.fs.nodes.orphan(self.subvol.node(to.ino), || removed(record, now));
        }
        Ok(Attempt::Done)
    }

    /// Removes the entry of the source, or turns it into a whiteout.
    fn leave(&self, txn: &mut Txn<'_>, from: &Found, followed: bool) -> FsResult<()> {
        if !self.mode.leaves_whiteout() {
            return txn.erase_entry(self.view, self.from.dir, from, followed);
        }
        let place = (self.subvol.id.0, self.view);
        let left = Found { chained: from.chained || followed, ..*from };
        whiteout::put(txn, self.caller, place, (self.from.dir, self.from.name), &left)
    }

    /// Swaps the two.
    fn exchange(
        &self,
        (from, moved): (Found, Object),
        (to, other): (Found, Object),
    ) -> FsResult<Attempt> {
        let mut txn = Txn::new(self.fs);
        let tree = self.view.tree;
        txn.erase_attached(tree, self.from.dir, &from);
        txn.erase_attached(tree, self.to.dir, &to);
        self.put(&mut txn, (self.from.dir, &from), &moved, (to.cookie, to.chained));
        let back = Rename { from: self.to, to: self.from, ..*self };
        back.put(&mut txn, (self.to.dir, &to), &other, (from.cookie, from.chained));
        let gained = i64::from(moved.is_directory()) - i64::from(other.is_directory());
        if self.from.dir == self.to.dir {
            txn.touch_directory(tree, self.from.dir, 0, 0);
        } else {
            txn.touch_directory(tree, self.from.dir, 0, -gained);
            txn.touch_directory(tree, self.to.dir, 0, gained);
        }
        txn.commit()?;
        self.moved(&from, self.to.dir, to.cookie);
        self.moved(&to, self.from.dir, from.cookie);
        Ok(Attempt::Done)
    }

    /// Writes an object under the target's name.
    fn put(
        &self,
        txn: &mut Txn<'_>,
        old: (u64, &Found),
        object: &Object,
        (cookie, chained): (u64, bool),
    ) {
        let slot = EntrySlot { dir: self.to.dir, name: self.to.name, cookie, chained };
        object.put(txn, self.view, old, &slot);
    }

    /// Counts and times of both directories, when an object moved to an unused name.
    fn touch(&self, txn: &mut Txn<'_>, entries: i64, subdirectories: i64) {
        let tree = self.view.tree;
        let left = i64::from(self.mode.leaves_whiteout());
        if self.from.dir == self.to.dir {
            txn.touch_directory(tree, self.from.dir, left, 0);
            return;
        }
        match self.way {
            Way::Back => txn.count_entries(tree, self.from.dir, -entries, -subdirectories),
            _ => txn.touch_directory(tree, self.from.dir, left - entries, -subdirectories),
        }
        match self.way {
            Way::Away(_) => txn.count_entries(tree, self.to.dir, entries, subdirectories),
            _ => txn.touch_directory(tree, self.to.dir, entries, subdirectories),
        }
    }

    /// Updates the node table for an inode that is stored beside its name, and the trash for
    /// directories.
    fn moved(&self, found: &Found, dir: u64, cookie: u64) {
        if found.is_directory() {
            self.fs.trash.directories_moved();
        }
        if let Target::Embedded(_) = found.target {
            let node = self.subvol.node(found.ino);
            self.fs.nodes.relocate(node, Location::Entry { dir, cookie });
        }
    }
}

impl ReadSet {
    /// Whether the locks that were taken for one read also cover another.
    fn agrees_with(&self, other: &ReadSet) -> bool {
        let key =
            |found: &Found| (found.cookie, found.ino, matches!(found.target, Target::Linked(_)));
        let target = |read: &ReadSet| match &read.to {
            Search::Found(to) => (true, Some((to.cookie, to.ino))),
            Search::Vacant(vacancy) => (false, vacancy.predecessor),
        };
        key(&self.from) == key(&other.from)
            && target(self) == target(other)
            && self.above_to == other.above_to
            && self.above_from == other.above_from
    }
}

/// The result of a search.
fn target_of(search: &Search) -> Option<Found> {
    match search {
        Search::Found(found) => Some(*found),
        Search::Vacant(_) => None,
    }
}

fn is_subvolume(found: &Found) -> bool {
    matches!(found.target, Target::Subvolume(_))
}

/// Whether an object may go to where all of `above` is above it.
fn check_loop(found: &Found, object: &Object, above: &[u64]) -> FsResult<()> {
    if object.is_directory() && above.contains(&found.ino) {
        return Err(FsError::InvalidArgument("a directory cannot be moved below itself"));
    }
    Ok(())
}
