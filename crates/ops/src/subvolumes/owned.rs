//! Who owns a tree: `rmr` and `rollback` take away what only its owner may. So every directory
//! below must belong to the caller when the tree is detached, in nested subvolumes too.
//!
//! 1. From the start of the check on, directories that change or arrive are noted (`arrivals.rs`).
//! 2. The tree is walked without locks. Before a subvolume is walked its gate is passed once
//!    exclusively. So each change that was under way by then is in the tree, or noted.
//! 3. The caller takes its locks. [`OwnedTree::holds`] closes the watch and checks what was noted:
//!    other users' changes of directories in the subvolumes that were walked wait. Where that takes
//!    few reads, its answer is true of the state that the caller detaches, with whose commit the
//!    watch opens. Where it takes many, the watch opens at once. The caller releases what it holds,
//!    has [`OwnedTree::catch_up`] look at what was noted, and repeats step 3.
//!
//! Writers wait for step 3 alone. Its cost depends on none of the size of the tree, the number
//! of subvolumes in it, and how much changed during the walk.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Parsed, Part};
use inode::{Caller, FsError, SubvolId};
use store::{KeyRange, TreeId};
use vfs::FsResult;
use volume::arrivals::Arrival;
use volume::error::{from_store, inconsistent, malformed};
use volume::subvol::{Subvol, VOLUME, read_record};
use volume::view::{NameBuf, View};

use super::access::directory_of;
use super::nested::{Budget, Member};
use crate::Ops;
use crate::plan::Plan;

/// Most of what was noted that is looked at while writers wait.
pub const NOTES_MAX: usize = 64;
/// Most records that are read for it: directories, those above them, and entries.
pub const READS_MAX: usize = 1024;
/// How often a caller catches up before it gives up.
const ATTEMPTS_MAX: usize = 100;

/// A directory of a subvolume.
type DirectoryId = (SubvolId, u64);

/// A directory to walk, and where it was found: in a directory, by a cookie.
type Step = (DirectoryId, Option<(DirectoryId, u64)>);

/// A tree of which the caller owns every directory, as far as is known.
pub struct OwnedTree<'a> {
    fs: &'a Ops,
    caller: &'a Caller,
    start: DirectoryId,
    /// The number of the watch. Root may take away everything, and has none.
    watch: Option<usize>,
    /// The subvolumes that were walked, and in which tree.
    members: BTreeMap<SubvolId, (Arc<Subvol>, TreeId)>,
    /// The same by their trees.
    trees: BTreeMap<TreeId, SubvolId>,
    attempts: usize,
    /// The subvolume with its name, if it was found by that.
    named_in: Option<SubvolId>,
}

impl Drop for OwnedTree<'_> {
    fn drop(&mut self) {
        if let Some(watch) = self.watch {
            self.fs.arrivals.end(watch);
        }
    }
}

impl<'a> OwnedTree<'a> {
    /// Checks that the caller owns a directory and every directory below it. For anybody but root
    /// this is a walk.
    pub fn check(
        fs: &'a Ops,
        caller: &'a Caller,
        subvol: SubvolId,
        dir: u64,
    ) -> FsResult<OwnedTree<'a>> {
        let watch = (!caller.is_root()).then(|| fs.arrivals.watch(caller.uid));
        let (start, members, trees) = ((subvol, dir), BTreeMap::new(), BTreeMap::new());
        let mut owned =
            OwnedTree { fs, caller, start, watch, members, trees, attempts: 0, named_in: None };
        if watch.is_some() {
            owned.walk(start, &mut Budget::unlimited())?;
        }
        Ok(owned)
    }

    /// It was found by a name in this subvolume.
    pub(super) fn set_named_in(&mut self, subvol: SubvolId) {
        self.named_in = Some(subvol);
    }

    /// Whether it was found by a name in this subvolume. A rollback of the volume's root has the
    /// same path point into another one, where the caller may own less.
    pub fn is_named_in(&self, subvol: SubvolId) -> bool {
        self.named_in == Some(subvol)
    }

    /// Whether the caller owns every directory now, and until the plan is committed that takes them
    /// away. All locks of the plan are held. `false`: too much changed to find that out while
    /// writers wait.
    pub fn holds(&mut self, plan: &mut Plan) -> FsResult<bool> {
        let Some(watch) = self.watch else { return Ok(true) };
        let Some(found) = self.fs.arrivals.close(watch, NOTES_MAX) else { return Ok(false) };
        let mut budget = Budget::of(READS_MAX);
        for &arrival in &found {
            let looked = self.look_at(arrival, &mut budget);
            if !matches!(looked, Ok(true)) {
                self.fs.arrivals.put_back(watch, &found);
                self.reopen();
                return looked;
            }
        }
        plan.opens(watch);
        Ok(true)
    }

    /// The plan is made again: nobody waits for it meanwhile.
    pub fn reopen(&self) {
        if let Some(watch) = self.watch {
            self.fs.arrivals.open(watch);
        }
    }

    /// Without locks: looks at what changed since the walk.
    pub fn catch_up(&mut self) -> FsResult<()> {
        let Some(watch) = self.watch else { return Ok(()) };
        self.attempts += 1;
        if self.attempts > ATTEMPTS_MAX {
            return Err(FsError::Busy("directories below it are changing continuously; try again"));
        }
        let arrived = self.fs.arrivals.take(watch);
        let mut budget = Budget::unlimited();
        // What was noted of a subvolume that has another tree by now names the old one.
        let was_replaced = |arrival: &Arrival| match arrival {
            Arrival::Replaced(tree) => self.trees.contains_key(tree),
            _ => false,
        };
        if arrived.overflowed || arrived.found.iter().any(was_replaced) {
            self.fs.arrivals.walks_again(watch);
            self.members.clear();
            self.trees.clear();
            self.walk(self.start, &mut budget)?;
            return Ok(());
        }
        for arrival in arrived.found {
            self.look_at(arrival, &mut budget)?;
        }
        Ok(())
    }

    /// Checks a directory that changed or arrived. `false`: the budget is spent, or a subvolume is
    /// below now that was not walked, or has another tree.
    fn look_at(&mut self, arrival: Arrival, budget: &mut Budget) -> FsResult<bool> {
        let (place, whole) = match arrival {
            Arrival::Written(tree, ino) | Arrival::Moved(tree, ino) => {
                // What is mounted below since the walk is walked itself when its mount is looked
                // at.
                let Some(id) = self.trees.get(&tree) else { return Ok(true) };
                ((*id, ino), matches!(arrival, Arrival::Moved(..)))
            }
            Arrival::Replaced(tree) => return Ok(!self.trees.contains_key(&tree)),
            Arrival::Mounted(_, id) => match read_record(&*self.fs.store, SubvolId(id))? {
                Some(record) if !record.detached => ((SubvolId(id), record.root), true),
                _ => return Ok(true),
            },
        };
        let (start, at) = ((self.start.0.0, self.start.1), (place.0.0, place.1));
        match self.fs.is_below_within(at, start, budget)? {
            Some(true) => {}
            below => return Ok(below.is_some()),
        }
        if whole {
            return self.walk(place, budget);
        }
        match directory_of(self.fs, &*self.fs.subvol(place.0)?, place.1) {
            Ok(record) => self.check_owner(&record).map(|()| true),
            Err(FsError::NotFound | FsError::Stale) => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn check_owner(&self, record: &DirectoryRecord) -> FsResult<()> {
        if record.uid == self.caller.uid {
            return Ok(());
        }
        Err(FsError::NotPermitted("a directory below belongs to another user"))
    }

    /// Checks a directory and all below it. `false`, as of `look_at`.
    fn walk(&mut self, start: DirectoryId, budget: &mut Budget) -> FsResult<bool> {
        let fs = self.fs;
        let mut left: Vec<Step> = vec![(start, None)];
        while let Some(((mut id, dir), from)) = left.pop() {
            if !budget.spend() {
                return Ok(false);
            }
            if let Some((above, cookie)) = from
                && id != above.0
            {
                let heir = fs.subvol(above.0)?;
                let slot = (above.1, cookie);
                // What is inherited is copied first, without gates.
                if !fs.is_mounted_at(&heir, slot, id.0)? {
                    if budget.is_limited() {
                        return Ok(false);
                    }
                    match fs.nested_at(&heir, slot, id.0) {
                        Err(FsError::NotFound) => continue,
                        own => id = SubvolId(own?),
                    }
                }
            }
            let Some((subvol, tree)) = self.member(id, !budget.is_limited())? else {
                return Ok(false);
            };
            let record = match directory_of(fs, &subvol, dir) {
                // It went, or is elsewhere, which was noted.
                Err(FsError::NotFound | FsError::Stale) if (id, dir) != self.start => continue,
                record => record?,
            };
            self.check_owner(&record)?;
            if let Some((above, cookie)) = from {
                let place = place_of(fs, (id, dir), &record, above)?;
                // Damaged records may form a circle. Each is in one place, so that a circle that
                // is come into leads through where this began. It may have moved meanwhile.
                if (place != (above, cookie) || (id, dir) == start)
                    && points_to(fs, (above, cookie), (id, dir))?
                {
                    return Err(inconsistent(
                        tree,
                        "a directory is not in its recorded parent",
                        dir,
                    ));
                }
            }
            if !directories_in(fs, (id, tree), dir, (&mut left, &mut *budget))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A subvolume to walk. `None`: it was not walked, and writers wait.
    fn member(&mut self, id: SubvolId, may_wait: bool) -> FsResult<Option<(Arc<Subvol>, TreeId)>> {
        if let Some((subvol, tree)) = self.members.get(&id) {
            return Ok(Some((Arc::clone(subvol), *tree)));
        }
        if !may_wait {
            return Ok(None);
        }
        let subvol = self.fs.subvol(id)?;
        // Changes that began before the watch end, and are in the tree then. It is registered
        // behind the gate: a tree that takes its place later is noted.
        let gate = subvol.quiesce();
        let tree = subvol.tree();
        if let Some(watch) = self.watch {
            self.fs.arrivals.walks(watch, tree);
        }
        drop(gate);
        self.members.insert(id, (Arc::clone(&subvol), tree));
        self.trees.insert(tree, id);
        Ok(Some((subvol, tree)))
    }
}

/// Adds the directories in a directory, with where each was found. `false`: the budget is spent.
fn directories_in(
    fs: &Ops,
    (id, tree): (SubvolId, TreeId),
    dir: u64,
    (found, budget): (&mut Vec<Step>, &mut Budget),
) -> FsResult<bool> {
    let range = KeyRange::prefix(&key::directory_prefix(dir));
    let mut cursor = fs.store.scan(tree, range).map_err(from_store)?;
    while let Some(item) = cursor.next().map_err(from_store)? {
        if !budget.spend() {
            return Ok(false);
        }
        let parsed = key::parse(item.key).map_err(|error| malformed(tree, &error))?;
        let Parsed::Entry { cookie: cookie @ 1.., part: Part::Attributes, .. } = parsed else {
            continue;
        };
        let entry = EntryRecord::decode(item.value).map_err(|error| malformed(tree, &error))?;
        let from = Some(((id, dir), cookie));
        match entry.target {
            Target::Directory => found.push(((id, entry.ino), from)),
            Target::Subvolume(below) => found.push(((SubvolId(below), entry.ino), from)),
            _ => {}
        }
    }
    Ok(true)
}

/// Whether an entry of a directory points to a directory.
fn points_to(
    fs: &Ops,
    ((id, dir), cookie): ((SubvolId, u64), u64),
    to: (SubvolId, u64),
) -> FsResult<bool> {
    let subvol = fs.subvol(id)?;
    let mut name = NameBuf::empty();
    let found = View::new(&*fs.store, subvol.tree()).entry_at(dir, cookie, &mut name)?;
    Ok(found.is_some_and(|found| match found.target {
        Target::Directory => (id, found.ino) == to,
        Target::Subvolume(below) => (SubvolId(below), found.ino) == to,
        _ => false,
    }))
}

/// The directory that a directory is in, and the cookie of its entry there. They come from its
/// record, or from that of its subvolume if it was reached from another.
fn place_of(
    fs: &Ops,
    (id, dir): (SubvolId, u64),
    record: &DirectoryRecord,
    above: (SubvolId, u64),
) -> FsResult<((SubvolId, u64), u64)> {
    if id == above.0 {
        return Ok(((id, record.parent), record.parent_cookie));
    }
    let mounted = Member::get(fs, id.0)?.record;
    let (subvolume, directory, cookie) = mounted.parent;
    if mounted.root != dir {
        return Err(inconsistent(
            VOLUME,
            "the name of a subvolume points to a different root",
            dir,
        ));
    }
    Ok(((SubvolId(subvolume), directory), cookie))
}
