//! Which inodes two trees may differ in, from the differences of the trees. Below a directory that
//! is open in one state alone, they come from a walk.
//!
//! Why a walk finds all of those: let a directory be open in one state alone. Among it and those
//! above it, the lowest one that is open in both has a child on the way that is not. The child's
//! own record, or its access list, differs, for otherwise it were open in both. So the trees differ
//! under the child's own key; from there the walk descends, and ends where a directory is open in
//! both. Each directory is reached by one walk only.
//!
//! Trees that share nothing are compared directory by directory instead. One was pruned, so their
//! difference would read all of the other one, also what is outside the directory.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use format::entry_record::{EntryRecord, Target};
use format::key::{self, Parsed, Part};
use inode::FsError;
use search::NamedEntry;
use store::{Diff, KeyRange, Pinned, prefix_end};
use vfs::FsResult;
use vfs::is_cancelled;
use volume::error::{from_search, from_store, malformed};

use super::bounds::Bounds;
use super::mounts::Mounts;
use super::side::{Half, NEW, OLD, Side, Slot};

/// Takes an entry of a directory: where it is, and its record.
type Take<'t, G> = &'t mut dyn FnMut(&mut G, Slot, &[u8]) -> FsResult<()>;

/// Two states of a directory; one of them may be absent.
pub(super) struct Pair<'a> {
    /// The state of the store that holds both trees.
    pub(super) pin: &'a dyn Pinned,
    /// The old one and the new one.
    pub(super) sides: [Option<Side<'a>>; 2],
    /// What may be kept.
    pub(super) bounds: Bounds,
    /// Set when no caller waits for the result any more.
    pub(super) cancel: &'a AtomicBool,
}

impl Pair<'_> {
    /// Ends the work if no caller waits for it any more.
    pub(super) fn check_wanted(&self) -> FsResult<()> {
        if is_cancelled(self.cancel) { Err(FsError::Interrupted) } else { Ok(()) }
    }

    fn is_open(&mut self, which: usize, directory: u64) -> FsResult<bool> {
        self.sides[which].as_mut().map_or(Ok(false), |side| side.is_open(directory))
    }
}

/// What is known of an inode that may differ.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Noted {
    /// An entry that points to it in each state, in a directory that is open there.
    pub(super) slots: [Option<Slot>; 2],
    /// Whether extents of it differ.
    pub(super) has_data: bool,
    /// Whether anything but extents was noted.
    pub(super) is_placed: bool,
}

/// The inodes that may differ, of a range of numbers.
pub(super) struct Notes {
    /// By number.
    pub(super) inodes: BTreeMap<u64, Noted>,
    from: u64,
    /// The end of the range; `None`: it has none.
    to: Option<u64>,
    most: usize,
}

impl Notes {
    /// Takes inodes from a number on, no more than `most` of them. If there are more, those of the
    /// greater numbers are dropped, and the range ends before them.
    pub(super) fn new(from: u64, most: usize) -> Notes {
        Notes { inodes: BTreeMap::new(), from, to: None, most: most.max(2) }
    }

    /// Where the next range begins, if there is one.
    pub(super) fn next_range(&self) -> Option<u64> {
        self.to
    }

    fn is_in_range(&self, ino: u64) -> bool {
        ino >= self.from && self.to.is_none_or(|to| ino < to)
    }

    /// The note of an inode; `None`: it is not in the range.
    fn note(&mut self, ino: u64) -> Option<&mut Noted> {
        if self.is_in_range(ino)
            && self.inodes.len() >= self.most
            && !self.inodes.contains_key(&ino)
            && let Some(&middle) = self.inodes.keys().nth(self.inodes.len() / 2)
        {
            self.inodes.split_off(&middle);
            self.to = Some(middle);
        }
        if !self.is_in_range(ino) {
            return None;
        }
        Some(self.inodes.entry(ino).or_default())
    }
}

/// Collects notes.
pub(super) struct Gathering<'p, 'a> {
    /// What is compared.
    pub(super) pair: &'p mut Pair<'a>,
    /// What was found.
    pub(super) notes: &'p mut Notes,
    /// What is mounted below; `None`: that is known already.
    pub(super) mounts: Option<&'p mut Mounts>,
    /// The entry whose own record differed last.
    pub(super) last: Slot,
    /// Whether entries of directories that are open in neither state were skipped.
    pub(super) has_passed: bool,
}

/// Records of a directory that is open in neither state read before others are skipped.
const PASSED_FROM: u64 = 16;

impl Gathering<'_, '_> {
    /// Notes all inodes that may differ, and the root if that was moved.
    pub(super) fn run(&mut self, is_moved: bool) -> FsResult<()> {
        if let Some(side) = self.pair.sides[OLD].as_ref().filter(|_| is_moved) {
            self.note(side.half.root);
        }
        let halves = [OLD, NEW].map(|which| self.pair.sides[which].as_ref().map(|side| &side.half));
        match halves {
            [Some(old), Some(new)] if is_related(old, new) => self.differences(KeyRange::all()),
            [Some(old), Some(_)] => {
                let root = old.root;
                self.in_step(root)
            }
            [old, new] => {
                let which = if old.is_some() { OLD } else { NEW };
                let root = old.or(new).map_or(0, |half| half.root);
                self.note(root);
                self.walk(which, root)
            }
        }
    }

    /// Notes an inode for a reason other than its extents.
    fn note(&mut self, ino: u64) {
        if let Some(noted) = self.notes.note(ino) {
            noted.is_placed = true;
        }
    }

    fn note_at(&mut self, which: usize, ino: u64, slot: Slot) {
        if let Some(noted) = self.notes.note(ino) {
            noted.slots[which] = Some(slot);
            noted.is_placed = true;
        }
    }

    /// Takes the differences of a range of keys. The tree of a subvolume has more than the
    /// directory that is compared. What is in a directory that is open in neither state has no
    /// visible name, and is skipped.
    fn differences(&mut self, mut range: KeyRange) -> FsResult<()> {
        let pin = self.pair.pin;
        let [Some(old), Some(new)] = &self.pair.sides else { return Ok(()) };
        let trees = [old.half.tree, new.half.tree];
        let mut taken = 0_u64;
        loop {
            let to = range.to.clone();
            let mut cursor = pin.diff(trees[OLD], pin, trees[NEW], range).map_err(from_store)?;
            let mut closed = (0, 0);
            let passed = loop {
                let Some(diff) = cursor.next().map_err(from_store)? else { return Ok(()) };
                taken += 1;
                if taken.is_multiple_of(256) {
                    self.pair.check_wanted()?;
                }
                let which = if diff.new.is_some() { NEW } else { OLD };
                let parsed = key::parse(diff.key).map_err(|e| malformed(trees[which], &e))?;
                self.difference(parsed, &diff)?;
                if let Parsed::Entry { directory, .. } = parsed
                    && !self.pair.is_open(OLD, directory)?
                    && !self.pair.is_open(NEW, directory)?
                {
                    // To begin again costs as much as some records.
                    let records = if closed.0 == directory { closed.1 + 1 } else { 1 };
                    closed = (directory, records);
                    if records > PASSED_FROM {
                        break directory;
                    }
                }
            };
            self.has_passed = true;
            let Some(from) = prefix_end(&key::directory_prefix(passed)) else { return Ok(()) };
            range = KeyRange { from, to };
        }
    }

    fn difference(&mut self, parsed: Parsed, diff: &Diff<'_>) -> FsResult<()> {
        match parsed {
            Parsed::Entry { directory, cookie: 0, .. } => {
                self.note(directory);
                self.turn(directory)
            }
            Parsed::Entry { directory, cookie, part: Part::Attributes } => {
                self.last = (directory, cookie);
                for (which, value) in [diff.old, diff.new].into_iter().enumerate() {
                    if let Some(value) = value {
                        self.entry(which, (directory, cookie), value)?;
                    }
                }
                Ok(())
            }
            Parsed::Entry { directory, cookie, .. } if self.last != (directory, cookie) => {
                self.same_entry((directory, cookie))
            }
            Parsed::Entry { .. } => Ok(()),
            Parsed::Linked { ino, .. } | Parsed::BackReference { ino, .. } => {
                self.note(ino);
                Ok(())
            }
            Parsed::Extent { ino, .. } => {
                if let Some(noted) = self.notes.note(ino) {
                    noted.has_data = true;
                }
                Ok(())
            }
        }
    }

    /// Notes what an entry of one state points to, and returns that.
    fn entry(&mut self, which: usize, slot: Slot, value: &[u8]) -> FsResult<Option<(u64, Target)>> {
        let Some(side) = self.pair.sides[which].as_mut() else { return Ok(None) };
        let tree = side.half.tree;
        let entry = EntryRecord::decode(value).map_err(|error| malformed(tree, &error))?;
        if entry.target == Target::Tombstone {
            return Ok(None);
        }
        let is_open = side.is_open(slot.0)?;
        match entry.target {
            Target::Subvolume(id) => {
                if let Some(mounts) = self.mounts.as_mut().filter(|_| is_open) {
                    mounts.add(which, side, (slot, entry.name), id)?;
                }
            }
            _ if is_open => self.note_at(which, entry.ino, slot),
            _ => self.note(entry.ino),
        }
        Ok(Some((entry.ino, entry.target)))
    }

    /// Notes the inode of an entry whose other records differ.
    fn same_entry(&mut self, slot: Slot) -> FsResult<()> {
        for which in [OLD, NEW] {
            let mut entry = NamedEntry::default();
            if let Some(side) = self.pair.sides[which].as_mut()
                && side.is_open(slot.0)?
            {
                side.records.entry(slot.0, slot.1, &mut entry).map_err(from_search)?;
                if entry.target.is_some() {
                    self.note_at(which, entry.ino, slot);
                }
            }
        }
        Ok(())
    }

    /// Walks from a directory whose own records differ, if it is open in one state alone.
    fn turn(&mut self, directory: u64) -> FsResult<()> {
        for (which, other) in [(OLD, NEW), (NEW, OLD)] {
            if self.pair.is_open(other, directory)? || !self.pair.is_open(which, directory)? {
                continue;
            }
            let Some(side) = self.pair.sides[which].as_mut() else { continue };
            let is_root = side.half.root == directory;
            let above = side.parent(directory)?;
            if is_root || self.pair.is_open(other, above)? {
                self.walk(which, directory)?;
            }
        }
        Ok(())
    }

    /// Notes everything below a directory, but what is below directories that are open in the other
    /// state, too.
    fn walk(&mut self, which: usize, top: u64) -> FsResult<()> {
        let mut left = vec![top];
        while let Some(directory) = left.pop() {
            self.pair.check_wanted()?;
            if self.pair.is_open(1 - which, directory)?
                || !self.pair.is_open(which, directory)?
                || self.is_mounted_over(which, directory)?
            {
                continue;
            }
            self.entries(which, directory, &mut |gathering, slot, value| {
                if let Some((ino, Target::Directory)) = gathering.entry(which, slot, value)? {
                    left.push(ino);
                }
                gathering.pair.bounds.check_waiting(left.len())
            })?;
        }
        Ok(())
    }

    /// Whether a directory was replaced by a copy of itself, as by a rollback. Then the two are
    /// compared with each other.
    fn is_mounted_over(&mut self, which: usize, directory: u64) -> FsResult<bool> {
        let [Some(old), Some(new)] = &mut self.pair.sides else { return Ok(false) };
        let (side, other) = if which == OLD { (old, new) } else { (new, old) };
        let Some(mounts) = self.mounts.as_mut().filter(|_| side.half.root != directory) else {
            return Ok(false);
        };
        let slot = side.slot(directory)?;
        if !other.is_open(slot.0)? {
            return Ok(false);
        }
        mounts.add_over(which, (side, directory), (other, slot))
    }

    /// Passes the entries of a directory, in one state, to `take`.
    fn entries(&mut self, which: usize, directory: u64, take: Take<'_, Self>) -> FsResult<()> {
        let Some(side) = self.pair.sides[which].as_ref() else { return Ok(()) };
        let (pin, tree) = (self.pair.pin, side.half.tree);
        let range = KeyRange::prefix(&key::directory_prefix(directory));
        let mut cursor = pin.scan(tree, range).map_err(from_store)?;
        while let Some(item) = cursor.next().map_err(from_store)? {
            let parsed = key::parse(item.key).map_err(|error| malformed(tree, &error))?;
            if let Parsed::Entry { cookie: cookie @ 1.., part: Part::Attributes, .. } = parsed {
                take(self, (directory, cookie), item.value)?;
            }
        }
        Ok(())
    }

    /// Compares two trees directory by directory.
    fn in_step(&mut self, root: u64) -> FsResult<()> {
        let mut left = Vec::new();
        if self.pair.is_open(OLD, root)? && self.pair.is_open(NEW, root)? {
            left.push(root);
        } else {
            self.note(root);
            self.turn(root)?;
        }
        while let Some(directory) = left.pop() {
            self.pair.check_wanted()?;
            self.differences(KeyRange::prefix(&key::directory_prefix(directory)))?;
            for which in [OLD, NEW] {
                self.entries(which, directory, &mut |gathering, slot, value| {
                    gathering.step_into(which, slot, value, &mut left)
                })?;
            }
        }
        Ok(())
    }

    /// Compares what an entry of a directory points to, where both states have the directory.
    fn step_into(
        &mut self,
        which: usize,
        slot: Slot,
        value: &[u8],
        left: &mut Vec<u64>,
    ) -> FsResult<()> {
        let Some(side) = self.pair.sides[which].as_ref() else { return Ok(()) };
        let tree = side.half.tree;
        let entry = EntryRecord::decode(value).map_err(|error| malformed(tree, &error))?;
        match entry.target {
            Target::Directory if !self.pair.is_open(1 - which, entry.ino)? => {
                self.walk(which, entry.ino)
            }
            Target::Directory => {
                if which == OLD && self.pair.is_open(which, entry.ino)? {
                    left.push(entry.ino);
                }
                self.pair.bounds.check_waiting(left.len())
            }
            Target::Linked(_) if which == OLD => {
                self.differences(KeyRange::prefix(&key::linked_prefix(entry.ino)))?;
                self.extents((entry.ino, slot))
            }
            Target::Embedded(inode) if which == OLD && inode.has_extents => {
                self.extents((entry.ino, slot))
            }
            _ => Ok(()),
        }
    }

    /// Notes an inode of the old state if its extents differ.
    fn extents(&mut self, (ino, slot): (u64, Slot)) -> FsResult<()> {
        let pin = self.pair.pin;
        let [Some(old), Some(new)] = &self.pair.sides else { return Ok(()) };
        let range = KeyRange::prefix(&key::extent_prefix(ino));
        let cursor = pin.diff(old.half.tree, pin, new.half.tree, range);
        if cursor.map_err(from_store)?.next().map_err(from_store)?.is_some() {
            self.note_at(OLD, ino, slot);
            if let Some(noted) = self.notes.note(ino) {
                noted.has_data = true;
            }
        }
        Ok(())
    }
}

/// Whether two trees share what did not change. A tree that was reduced to one directory shares
/// only with others that were reduced to it. If one of the two is whole, it may be the tree of a
/// directory above, from which the other was cloned. Or it is what became of a clone of the other's
/// own directory.
fn is_related(old: &Half, new: &Half) -> bool {
    match (old.extracted, new.extracted) {
        ((one, true), (two, true)) => one == two,
        ((one, _), (two, _)) if old.extracted.1 != new.extracted.1 => one != two,
        _ => true,
    }
}
