//! Moves a name to another in the same subvolume, by the rules of `rename`.
//!
//! 1. Read, without locks, what the two names point to, and everything above the target when a
//!    directory changes its parent.
//! 2. Lock both names, both inodes, and the places of everything above the target (shared) and of
//!    the directory that moves (exclusively). So two renames that together would make a loop
//!    exclude each other. There is no global lock for renames.
//! 3. Read again; if anything differs from what was locked, start over. What is above the target is
//!    read again only if some directory changed its parent since step 1. A directory that is above,
//!    or comes there, has its place locked until that is counted.
//! 4. When it is known that no loop is made, release the places of what is above the target. A
//!    rename of one of them below the directory that moves waits for the place of that. While it is
//!    checked that a user owns a tree, they stay locked. Its top is not taken away before the
//!    commit, which is noted.
//! 5. One batch, then the node table.

use std::sync::Arc;

use format::directory_record::DirectoryRecord;
use format::entry_record::Target;
use inode::permissions::WRITE;
use inode::{Caller, FsError, NameHash};
use vfs::{FsResult, RenameMode};
use volume::error::inconsistent;
use volume::locks::Mode;
use volume::permit;
use volume::view::{FoundEntry, Search, Vacancy};

use super::mknod::parent_directory;
use super::rmdir::lose_directory;
use super::unlink::lose_name;
use super::whiteout;
use crate::execute::{Context, Operation, Outcome, moved};
use crate::object::{EntrySlot, Object};
use crate::plan::{Effect, Plan};
use crate::policy::{Move, Removal};

/// Deepest directory into which a directory is moved from elsewhere: others that move directories
/// may wait until all above are read.
const DEPTH_MAX: usize = 1 << 16;

/// That a directory is deeper.
pub const TOO_DEEP: &str = "a directory has at most 65,536 directories above it: choose a \
                            destination that is less deep";

/// A name, and the directory that it is in.
#[derive(Clone, Copy)]
pub struct End<'a> {
    dir: u64,
    hash: u64,
    name: &'a [u8],
}

impl<'a> End<'a> {
    /// A name of a directory.
    pub fn of(hash: &NameHash, dir: u64, name: &'a [u8]) -> End<'a> {
        End { dir, hash: hash.hash(name), name }
    }
}

/// A move.
pub struct Moving<'a> {
    caller: &'a Caller,
    from: End<'a>,
    to: End<'a>,
    mode: RenameMode,
    /// What was above the directories of the two names when that was last read.
    above: [Option<Above>; 2],
}

/// A directory and everything above it.
#[derive(Clone)]
struct Above {
    directories: Arc<[u64]>,
    /// How many directories had changed their parents before this was read.
    rehung: u64,
}

/// Whether it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// It is.
    Done,
    /// Nothing is: one of the names is a subvolume's.
    Subvolume,
}

/// What was found, before locking or after.
pub struct ReadSet {
    from: FoundEntry,
    to: Search,
    /// Directories above the target, from its own directory to the root; empty when no directory
    /// moves there from elsewhere.
    above_to: Arc<[u64]>,
    /// The same for the source, for a directory that is swapped there.
    above_from: Arc<[u64]>,
}

impl Operation for Moving<'_> {
    /// `None`: there is no source, or both names are the same.
    type Reads = Option<ReadSet>;
    type Answer = Moved;

    fn guess(&mut self, at: &Context<'_>) -> FsResult<Option<ReadSet>> {
        at.policy.makes_name(at, self.to.dir, self.to.name)?;
        if self.mode == RenameMode::Exchange || self.mode.leaves_whiteout() {
            at.policy.makes_name(at, self.from.dir, self.from.name)?;
        }
        self.look(at)
    }

    fn aim(&mut self, at: &Context<'_>, guess: &Option<ReadSet>, plan: &mut Plan) -> FsResult<()> {
        let Some(seen) = guess.as_ref().filter(|seen| !seen.has_subvolume()) else {
            return Ok(());
        };
        self.lock(at, seen, plan);
        let replaces = matches!(self.mode, RenameMode::Replace | RenameMode::Whiteout);
        match target_of(&seen.to).filter(|to| replaces && to.ino != seen.from.ino) {
            Some(victim) => at.policy.removes(at, plan, &self.removal(&victim, seen.from.ino)),
            None => Ok(()),
        }
    }

    fn look(&mut self, at: &Context<'_>) -> FsResult<Option<ReadSet>> {
        if self.is_same_name() { Ok(None) } else { self.read(at) }
    }

    fn agree(guess: &Option<ReadSet>, found: &Option<ReadSet>) -> bool {
        match (guess, found) {
            (Some(guess), Some(found)) => guess.agrees_with(found),
            (None, None) => true,
            _ => false,
        }
    }

    fn plan(
        &mut self,
        at: &Context<'_>,
        found: Option<ReadSet>,
        plan: &mut Plan,
    ) -> FsResult<Outcome<Moved>> {
        let Some(found) = found else { return self.trivial(at) };
        if found.has_subvolume() {
            return Ok(Outcome::Done(Moved::Subvolume));
        }
        let source = parent_directory(at.fs, at.subvol, at.view, self.caller, self.from.dir)?;
        let target = parent_directory(at.fs, at.subvol, at.view, self.caller, self.to.dir)?;
        let mut object = Object::load(at.view, self.from.dir, &found.from)?;
        plan.on_behalf(self.caller);
        if found.above_to.len() + found.above_from.len() > 0 {
            plan.frees_ancestors();
        }
        let (from, to) = ((self.from.dir, &source), (self.to.dir, &target));
        let moves = Move { ino: found.from.ino, object: &object, from, to };
        at.policy.may_move(at, plan, &moves)?;
        self.check_leaving(at, from, &found.from, &object)?;
        check_loop(&found.from, &object, &found.above_to)?;
        match (self.mode, found.to) {
            (mode, Search::Found(_)) if mode.keeps_target() => return Err(FsError::Exists),
            (RenameMode::Exchange, Search::Vacant(_)) => return Err(FsError::NotFound),
            (_, Search::Found(to)) if to.ino == found.from.ino => {}
            (RenameMode::Exchange, Search::Found(to)) => {
                let other = Object::load(at.view, self.to.dir, &to)?;
                self.check_leaving(at, (self.to.dir, &target), &to, &other)?;
                check_loop(&to, &other, &found.above_from)?;
                self.exchange(at, plan, (found.from, object), (to, other));
            }
            (_, Search::Found(to)) => {
                let victim = Object::load(at.view, self.to.dir, &to)?;
                permit::removal(at.view, self.to.dir, &target, self.caller, victim.uid())?;
                object.check_replaces(&victim)?;
                if !self.lose(at, plan, found.from.ino, (to, &victim))? {
                    return Ok(Outcome::Again);
                }
                self.leave(at, plan, &found.from, false)?;
                at.policy.moves(plan, (at.id(), found.from.ino), &mut object, &target)?;
                self.replace(at, plan, (found.from, object), (to, victim));
            }
            (_, Search::Vacant(vacancy)) => {
                permit::directory(at.view, self.to.dir, &target, self.caller, WRITE)?;
                self.make_way(at, plan, &found.from, &vacancy)?;
                at.policy.moves(plan, (at.id(), found.from.ino), &mut object, &target)?;
                let place = (vacancy.cookie, vacancy.chained);
                self.put(at, plan, (self.from.dir, &found.from), &object, place);
                self.touch(at, plan, 1, i64::from(object.is_directory()));
                self.relocated(at, plan, &found.from, (self.to.dir, vacancy.cookie));
            }
        }
        Ok(Outcome::Done(Moved::Done))
    }
}

impl<'a> Moving<'a> {
    /// A move from one name to another.
    pub fn new(caller: &'a Caller, (from, to): (End<'a>, End<'a>), mode: RenameMode) -> Moving<'a> {
        Moving { caller, from, to, mode, above: [None, None] }
    }

    fn is_same_name(&self) -> bool {
        self.from.dir == self.to.dir && self.from.name == self.to.name
    }

    /// The removal of what is at the target, as a policy sees it.
    fn removal<'r>(&self, found: &'r FoundEntry, successor: u64) -> Removal<'r>
    where
        'a: 'r,
    {
        let End { dir, hash, name } = self.to;
        Removal { dir, name, hash, found, successor }
    }

    /// The source is missing, or source and target are the same name.
    fn trivial(&self, at: &Context<'_>) -> FsResult<Outcome<Moved>> {
        parent_directory(at.fs, at.subvol, at.view, self.caller, self.from.dir)?;
        parent_directory(at.fs, at.subvol, at.view, self.caller, self.to.dir)?;
        match at.view.find_entry(self.from.dir, self.from.hash, self.from.name)? {
            None => Err(FsError::NotFound),
            Some(_) if !self.is_same_name() => Ok(Outcome::Again),
            Some(_) if self.mode.keeps_target() => Err(FsError::Exists),
            Some(_) => Ok(Outcome::Done(Moved::Done)),
        }
    }

    /// Reads both names. `None`: there is no source.
    fn read(&mut self, at: &Context<'_>) -> FsResult<Option<ReadSet>> {
        let (from, to, view) = (self.from, self.to, at.view);
        let Some(source) = view.find_entry(from.dir, from.hash, from.name)? else {
            return Ok(None);
        };
        let target = view.find(to.dir, to.hash, to.name)?;
        let crosses = from.dir != to.dir;
        let [above_to, above_from] = &mut self.above;
        let swapped = self.mode == RenameMode::Exchange
            && target_of(&target).is_some_and(|to| to.is_directory());
        Ok(Some(ReadSet {
            from: source,
            to: target,
            above_to: above(at, crosses && source.is_directory(), to.dir, above_to)?,
            above_from: above(at, crosses && swapped, from.dir, above_from)?,
        }))
    }

    fn lock(&self, at: &Context<'_>, seen: &ReadSet, plan: &mut Plan) {
        let place = |ino| volume::locks::Lock::Place { subvol: at.id(), ino };
        at.lock_name(plan, self.from.dir, self.from.hash);
        at.lock_name(plan, self.to.dir, self.to.hash);
        plan.lock(at.object(seen.from.ino), Mode::Exclusive);
        let other = match &seen.to {
            Search::Found(to) => Some(to.ino),
            Search::Vacant(vacancy) => vacancy.predecessor.map(|(_, ino)| ino),
        };
        if let Some(other) = other {
            plan.lock(at.object(other), Mode::Exclusive);
        }
        for ino in seen.above_to.iter().chain(&*seen.above_from) {
            plan.lock(place(*ino), Mode::Shared);
        }
        if !seen.above_to.is_empty() {
            plan.lock(place(seen.from.ino), Mode::Exclusive);
        }
        if let (false, Some(to)) = (seen.above_from.is_empty(), target_of(&seen.to)) {
            plan.lock(place(to.ino), Mode::Exclusive);
        }
    }

    /// Whether the caller may move an object out of a directory.
    fn check_leaving(
        &self,
        at: &Context<'_>,
        (dir, directory): (u64, &DirectoryRecord),
        found: &FoundEntry,
        object: &Object,
    ) -> FsResult<()> {
        permit::removal(at.view, dir, directory, self.caller, object.uid())?;
        if let Object::Directory(record) = object {
            at.policy.may_leave(directory, record)?;
        }
        match object {
            // Its `..` changes, which is a write to it.
            Object::Directory(record) if self.from.dir != self.to.dir => {
                permit::directory(at.view, found.ino, record, self.caller, WRITE)
            }
            _ => Ok(()),
        }
    }

    /// Frees the old name, for a new one that does not exist.
    fn make_way(
        &self,
        at: &Context<'_>,
        plan: &mut Plan,
        from: &FoundEntry,
        vacancy: &Vacancy,
    ) -> FsResult<()> {
        // Both in one chain, the new one later: the old place stays marked, also as the one that
        // points to the new one.
        let followed = self.from.dir == self.to.dir
            && vacancy.cookie >> 8 == from.cookie >> 8
            && vacancy.cookie > from.cookie;
        let leads =
            followed && vacancy.predecessor.is_some_and(|(cookie, _)| cookie == from.cookie);
        self.leave(at, plan, from, followed)?;
        match vacancy.predecessor {
            Some((cookie, ino)) if !leads => plan.flag_chained(at.view, self.to.dir, cookie, ino),
            _ => Ok(()),
        }
    }

    /// Plans what becomes of what is at the target. `false`: start again.
    fn lose(
        &self,
        at: &Context<'_>,
        plan: &mut Plan,
        successor: u64,
        (to, victim): (FoundEntry, &Object),
    ) -> FsResult<bool> {
        let frees = !self.mode.leaves_whiteout();
        match victim {
            Object::Directory(record) => lose_directory(at, plan, (to.ino, record), frees),
            Object::File { inode, nlink, .. } => {
                plan.erase_attached(at.view.tree, self.to.dir, &to);
                lose_name(at, plan, &self.removal(&to, successor), (inode, *nlink), frees)
            }
        }
    }

    /// Over an existing target.
    fn replace(
        &self,
        at: &Context<'_>,
        plan: &mut Plan,
        (from, object): (FoundEntry, Object),
        (to, victim): (FoundEntry, Object),
    ) {
        let tree = at.view.tree;
        self.put(at, plan, (self.from.dir, &from), &object, (to.cookie, to.chained));
        let subdirectories = i64::from(object.is_directory());
        let left = i64::from(self.mode.leaves_whiteout());
        let gone = i64::from(victim.is_directory());
        if self.from.dir == self.to.dir {
            plan.touch_directory(tree, self.from.dir, left - 1, -gone);
        } else {
            plan.touch_directory(tree, self.from.dir, left - 1, -subdirectories);
            plan.touch_directory(tree, self.to.dir, 0, subdirectories - gone);
        }
        self.relocated(at, plan, &from, (self.to.dir, to.cookie));
    }

    /// Removes the entry of the source, or turns it into a whiteout.
    fn leave(
        &self,
        at: &Context<'_>,
        plan: &mut Plan,
        from: &FoundEntry,
        followed: bool,
    ) -> FsResult<()> {
        if !self.mode.leaves_whiteout() {
            return plan.erase_entry(at.view, self.from.dir, from, followed);
        }
        let left = FoundEntry { chained: from.chained || followed, ..*from };
        whiteout::put(at, plan, self.caller, (self.from.dir, self.from.name), &left)
    }

    /// Swaps the two.
    fn exchange(
        &self,
        at: &Context<'_>,
        plan: &mut Plan,
        (from, object): (FoundEntry, Object),
        (to, other): (FoundEntry, Object),
    ) {
        let tree = at.view.tree;
        plan.erase_attached(tree, self.from.dir, &from);
        plan.erase_attached(tree, self.to.dir, &to);
        self.put(at, plan, (self.from.dir, &from), &object, (to.cookie, to.chained));
        let back = Moving::new(self.caller, (self.to, self.from), self.mode);
        back.put(at, plan, (self.to.dir, &to), &other, (from.cookie, from.chained));
        let gained = i64::from(object.is_directory()) - i64::from(other.is_directory());
        if self.from.dir == self.to.dir {
            plan.touch_directory(tree, self.from.dir, 0, 0);
        } else {
            plan.touch_directory(tree, self.from.dir, 0, -gained);
            plan.touch_directory(tree, self.to.dir, 0, gained);
        }
        self.relocated(at, plan, &from, (self.to.dir, to.cookie));
        self.relocated(at, plan, &to, (self.from.dir, from.cookie));
    }

    /// An object has another place. The node table learns the place of what is stored beside its
    /// name. Policies and other renames learn that directories moved.
    fn relocated(&self, at: &Context<'_>, plan: &mut Plan, found: &FoundEntry, place: (u64, u64)) {
        if found.is_directory() {
            plan.effect(Effect::DirectoriesMoved);
            if self.from.dir != self.to.dir {
                plan.effect(Effect::DirectoryRehung);
            }
        }
        if let Target::Embedded(_) = found.target {
            moved(at, plan, found.ino, place);
        }
    }

    /// Writes an object under the target's name.
    fn put(
        &self,
        at: &Context<'_>,
        plan: &mut Plan,
        old: (u64, &FoundEntry),
        object: &Object,
        (cookie, chained): (u64, bool),
    ) {
        let slot = EntrySlot { dir: self.to.dir, name: self.to.name, cookie, chained };
        object.put(plan, at.view, old, &slot);
    }

    /// Counts and times of both directories, when an object moved to an unused name.
    fn touch(&self, at: &Context<'_>, plan: &mut Plan, entries: i64, subdirectories: i64) {
        let tree = at.view.tree;
        let left = i64::from(self.mode.leaves_whiteout());
        if self.from.dir == self.to.dir {
            plan.touch_directory(tree, self.from.dir, left, 0);
            return;
        }
        plan.touch_directory(tree, self.from.dir, left - entries, -subdirectories);
        plan.touch_directory(tree, self.to.dir, entries, subdirectories);
    }
}

impl ReadSet {
    /// Whether the locks that were taken for one read also cover another.
    fn agrees_with(&self, other: &ReadSet) -> bool {
        let key = |found: &FoundEntry| {
            (found.cookie, found.ino, matches!(found.target, Target::Linked(_)))
        };
        let target = |read: &ReadSet| match &read.to {
            Search::Found(to) => (true, Some((to.cookie, to.ino))),
            Search::Vacant(vacancy) => (false, vacancy.predecessor),
        };
        key(&self.from) == key(&other.from)
            && target(self) == target(other)
            && self.above_to == other.above_to
            && self.above_from == other.above_from
            && self.has_subvolume() == other.has_subvolume()
    }

    /// Whether one of the names is a subvolume's: then nothing is locked.
    fn has_subvolume(&self) -> bool {
        let is_one = |found: &FoundEntry| matches!(found.target, Target::Subvolume(_));
        is_one(&self.from) || target_of(&self.to).is_some_and(|to| is_one(&to))
    }
}

/// A directory and everything above it in its subvolume; nothing where that is not wanted. `known`
/// is what was read before, and holds while no directory has changed its parent.
fn above(
    at: &Context<'_>,
    wanted: bool,
    dir: u64,
    known: &mut Option<Above>,
) -> FsResult<Arc<[u64]>> {
    if !wanted {
        return Ok(Arc::default());
    }
    let rehung = at.fs.rehung();
    match known {
        Some(above) if above.rehung == rehung => Ok(Arc::clone(&above.directories)),
        _ => {
            let directories: Arc<[u64]> = read_above(at, dir)?.into();
            *known = Some(Above { directories: Arc::clone(&directories), rehung });
            Ok(directories)
        }
    }
}

/// What was taken away with all below it is nowhere: nothing moves there, to be destroyed with it.
fn read_above(at: &Context<'_>, dir: u64) -> FsResult<Vec<u64>> {
    let mut above = vec![dir];
    let mut parent = dir;
    while parent != at.subvol.root {
        let record = at.view.directory(parent)?.filter(|record| !record.detached);
        parent = record.ok_or(FsError::NotFound)?.parent;
        above.push(parent);
        if above.len() > DEPTH_MAX {
            above.sort_unstable();
            return Err(if above.is_sorted_by(|one, next| one < next) {
                FsError::LimitReached(TOO_DEEP)
            } else {
                inconsistent(at.view.tree, "directories form a cycle", dir)
            });
        }
    }
    Ok(above)
}

/// The result of a search.
fn target_of(search: &Search) -> Option<FoundEntry> {
    match search {
        Search::Found(found) => Some(*found),
        Search::Vacant(_) => None,
    }
}

/// Whether an object may go to where all of `above` is above it.
fn check_loop(found: &FoundEntry, object: &Object, above: &[u64]) -> FsResult<()> {
    if object.is_directory() && above.contains(&found.ino) {
        return Err(FsError::InvalidArgument("a directory cannot be moved below itself"));
    }
    Ok(())
}
