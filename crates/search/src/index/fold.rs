//! From differences between two states of a tree to the rows that differ.
//!
//! A row depends on its entry, on what that leads to (a linked inode, a directory's own record)
//! and on its extended attributes. So each difference names the places whose rows it changes:
//!
//! * an entry or its attributes: that place;
//! * a directory's own record or attributes: where the directory is, by its record;
//! * a linked inode or its attributes: all its names, by its back references.
//!
//! An entry that has its inode in it is its row: who wants rows takes it from the difference, where
//! it stands in order. The other places are then read again, once each and in order, from the later
//! state. Where an entry leads to a directory that is somewhere else, its old place has a
//! difference of its own.

use std::sync::atomic::{AtomicBool, Ordering};

use device::{Map, Set};
use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Parsed, Part};
use store::{Cursor, Diff, DiffCursor, KeyRange, Pinned, TreeId};

use super::below::Below;
use super::layer::Layer;
use super::logged::Logged;
use super::parts::{self, Helpers, Together};
use crate::Result;
use crate::assemble::Records;

/// Deepest path: a longer chain of parents is a loop.
const DEPTH_MAX: usize = 1 << 16;
/// Most directories of which it is remembered whether they are below the root.
const KNOWN_MAX: usize = 1 << 18;
/// Bytes a place takes while places are collected.
pub(super) const PLACE_BYTES: usize = 16;
/// Places that are asked for before the first of them is read.
pub(super) const PLACES_AHEAD: usize = 512;

/// So many differences in a directory that is of no interest, and the others are not looked at: a
/// clone of a directory has the names beside it, of which there may be any number of others.
const OUTSIDE_MAX: u32 = 16;

/// What nobody cancels.
pub(super) static NEVER: AtomicBool = AtomicBool::new(false);

/// Where differences ended.
enum End {
    /// There are no more.
    Whole,
    /// They take more memory than was allowed.
    TooLarge,
    /// What is behind this directory is to be looked at next.
    Behind(u64),
    /// There were many: what is from this key on is for several threads.
    Many(Vec<u8>),
}

/// What a fold came to.
pub(crate) enum Folded {
    /// The rows that differ.
    Layer(Layer),
    /// They take more memory than was allowed.
    TooLarge,
}

/// What differs between two states.
#[derive(Default)]
pub(crate) struct Touched {
    /// Places whose rows differ, in order after [`Touched::finish`].
    pub(crate) places: Vec<(u64, u64)>,
    /// Directories whose own record differs.
    pub(crate) directories: Vec<u64>,
    /// Those of them that are somewhere else, or new.
    pub(crate) moved: Vec<u64>,
    /// Rows that differ and are known already, where rows are collected; their places are not
    /// among [`Touched::places`], or as well.
    pub(super) rows: Option<Layer>,
    /// Memory for the attributes of a row.
    xattrs: Vec<u8>,
    /// Whether directories may lie below the root.
    known: Map<u64, bool>,
    /// Those that may, where no others do.
    only: Option<Set<u64>>,
    /// Records that differ, and how many are too many.
    counted: usize,
    count_max: Option<usize>,
    /// Memory that the other parts of a fold were told of.
    told: usize,
    /// Directories that names lead to which differ, where those are asked for.
    arrived: Option<Vec<u64>>,
}

/// What of a tree is of interest.
#[derive(Clone, Copy)]
pub(crate) struct Folding<'a> {
    /// The later state.
    pub(crate) new: &'a dyn Pinned,
    /// The tree in it.
    pub(crate) records: Records<'a>,
    /// The root directory, where the tree holds more than what is below it: a clone of a
    /// directory has all that its source had.
    pub(crate) root: Option<u64>,
    /// Most memory to take.
    pub(crate) bytes_max: usize,
    /// Who may help, if anybody.
    pub(crate) helpers: Option<Helpers<'a>>,
    /// Where this is a part of a fold: what all parts take.
    pub(crate) together: Option<&'a Together>,
    /// Where the log may say what differs.
    pub(crate) logged: Option<Logged<'a>>,
    /// By what it is known which directories were below the root, where that is compared with a
    /// base.
    pub(crate) below: Option<Below<'a>>,
    /// Whether it is not wanted any more: then it ends, as if it were too much.
    pub(super) cancel: Option<&'a AtomicBool>,
}

impl<'a> Folding<'a> {
    /// What is of interest, on one thread.
    pub(crate) fn of(
        new: &'a dyn Pinned,
        records: Records<'a>,
        root: Option<u64>,
        bytes_max: usize,
    ) -> Folding<'a> {
        let (helpers, together, logged, below, cancel) = (None, None, None, None, None);
        Folding { new, records, root, bytes_max, helpers, together, logged, below, cancel }
    }

    /// The same, while nobody cancels it.
    #[must_use]
    pub(crate) fn until(self, cancel: &'a AtomicBool) -> Folding<'a> {
        Folding { cancel: Some(cancel), ..self }
    }

    /// Whether it is not wanted any more.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled().load(Ordering::Relaxed)
    }

    /// What says so.
    pub(super) fn cancelled(&self) -> &'a AtomicBool {
        self.cancel.unwrap_or(&NEVER)
    }
}

/// Where a fold starts from.
#[derive(Clone, Copy)]
pub(crate) enum Old<'a> {
    /// A tree of a state.
    State(&'a dyn Pinned, TreeId),
    /// Nothing: everything differs.
    Nothing,
}

impl Touched {
    /// Collects what differs, all of it as places; `None` when that takes more than `bytes_max`.
    pub(crate) fn collect(old: Old<'_>, folding: Folding<'_>) -> Result<Option<Touched>> {
        Touched::default().all(old, folding)
    }

    /// Nothing so far, where rows are wanted.
    pub(super) fn with_rows() -> Touched {
        Touched { rows: Some(Layer::default()), ..Touched::default() }
    }

    /// How many records differ that are of interest, up to `most`.
    pub(crate) fn count(old: Old<'_>, folding: Folding<'_>, most: usize) -> Result<usize> {
        let folding = Folding { helpers: None, ..folding };
        let counting = Touched { count_max: Some(most), ..Touched::default() };
        Ok(counting.all(old, folding)?.map_or(most, |touched| touched.counted))
    }

    fn all(mut self, old: Old<'_>, folding: Folding<'_>) -> Result<Option<Touched>> {
        let Folding { helpers, root, below, .. } = folding;
        for (prefix, helpers) in [(key::DIRECTORIES_PREFIX, helpers), (key::LINKED_PREFIX, None)] {
            let folding = Folding { helpers, ..folding };
            if let (key::DIRECTORIES_PREFIX, Some(below)) = (prefix, root.zip(below)) {
                match self.below(old, folding, below)? {
                    None => {}
                    Some(true) => continue,
                    Some(false) => return Ok(None),
                }
            }
            if !self.range(old, folding, KeyRange::prefix(&prefix))? {
                return Ok(None);
            }
        }
        self.finish();
        Ok(Some(self))
    }

    /// Collects what differs in a range; `false` when that takes too much memory.
    pub(crate) fn range(
        &mut self,
        old: Old<'_>,
        folding: Folding<'_>,
        mut range: KeyRange,
    ) -> Result<bool> {
        let Folding { new, records, .. } = folding;
        let mut alone = folding.helpers.map_or(usize::MAX, |helpers| helpers.from);
        loop {
            let end = match old {
                Old::State(state, tree) => {
                    let mut cursor = state.diff(tree, new, records.tree, range.clone())?;
                    self.differences(&mut *cursor, folding, &mut alone)?
                }
                Old::Nothing => {
                    let mut cursor = All::new(new.scan(records.tree, range.clone())?);
                    self.differences(&mut cursor, folding, &mut alone)?
                }
            };
            match (end, folding.helpers) {
                (End::Whole, _) => return Ok(true),
                (End::TooLarge, _) => return Ok(false),
                (End::Behind(directory), _) => {
                    range.from = store::prefix_end(&key::directory_prefix(directory))
                        .expect("invariant: such keys begin with a letter");
                    if range.to.as_ref().is_some_and(|to| *to <= range.from) {
                        return Ok(true);
                    }
                }
                (End::Many(from), None) => range.from = from,
                (End::Many(from), Some(helpers)) => {
                    range.from = from;
                    let bytes_max = folding.bytes_max.saturating_sub(self.memory_bytes());
                    let rest = Folding { bytes_max, ..folding };
                    if let Some(is_within) = self.take_logged(old, rest, helpers, &range)? {
                        return Ok(is_within);
                    }
                    let parts = parts::fold(old, rest, helpers, range, self)?;
                    return Ok(parts.is_some_and(|parts| self.take(parts)));
                }
            }
        }
    }

    /// What collects places, and directories that came, and no rows: in any order.
    pub(super) fn of_places(&self) -> Touched {
        let (arrived, count_max) = (Some(Vec::new()), self.count_max);
        Touched { count_max, arrived, ..Touched::default() }
    }

    /// Directories that names lead to which differ, since this was last asked.
    pub(super) fn take_arrived(&mut self) -> Vec<u64> {
        self.arrived.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes all places and directories of another; `only` are all directories that may lie below
    /// the root.
    pub(super) fn take_places(&mut self, other: Touched, only: Set<u64>) {
        self.places.extend(other.places);
        self.directories.extend(other.directories);
        self.moved.extend(other.moved);
        self.counted += other.counted;
        self.only = Some(only);
    }

    /// What a part of the fold begins with.
    pub(crate) fn another(&self) -> Touched {
        let rows = self.rows.as_ref().map(|_| Layer::default());
        Touched { rows, ..Touched::default() }
    }

    /// Adds what parts came to, in order; `false` when it is too much for one layer.
    fn take(&mut self, parts: Vec<Touched>) -> bool {
        let mut layers = Vec::with_capacity(parts.len());
        for part in parts {
            self.places.extend(part.places);
            self.directories.extend(part.directories);
            self.moved.extend(part.moved);
            layers.extend(part.rows);
        }
        match &mut self.rows {
            Some(rows) => rows.append(layers),
            None => true,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.places.len() * PLACE_BYTES
            + self.directories.len() * 8
            + self.rows.as_ref().map_or(0, Layer::memory_bytes)
    }

    fn differences(
        &mut self,
        cursor: &mut dyn DiffCursor,
        folding: Folding<'_>,
        alone: &mut usize,
    ) -> Result<End> {
        let bytes_max = folding.bytes_max;
        let mut outside = (0, 0);
        while let Some(diff) = cursor.next()? {
            if *alone == 0 {
                return Ok(End::Many(diff.key.to_vec()));
            }
            *alone -= 1;
            self.counted += 1;
            if let Some(directory) = self.difference(&diff, folding)? {
                self.counted -= 1;
                let count = if outside.0 == directory { outside.1 + 1 } else { 1 };
                outside = (directory, count);
                if count == OUTSIDE_MAX {
                    return Ok(End::Behind(directory));
                }
            }
            if self.rows.as_ref().is_some_and(|rows| !rows.is_within(bytes_max))
                || folding.is_cancelled()
                || self.count_max.is_some_and(|most| self.counted >= most)
            {
                return Ok(End::TooLarge);
            }
            if let Some(together) = folding.together {
                let bytes = self.memory_bytes();
                if !together.is_within(&mut self.told, bytes, bytes_max) {
                    return Ok(End::TooLarge);
                }
                continue;
            }
            let memory = self.places.len() * PLACE_BYTES + self.directories.len() * 8;
            if memory > bytes_max {
                self.finish();
                if self.places.len() * PLACE_BYTES + self.directories.len() * 8 > bytes_max / 2 {
                    return Ok(End::TooLarge);
                }
            }
        }
        Ok(End::Whole)
    }

    /// Takes a difference; tells the directory if it is of a name in one that is not below the
    /// root, and so of no interest.
    fn difference(&mut self, diff: &Diff<'_>, folding: Folding<'_>) -> Result<Option<u64>> {
        let records = folding.records;
        let parsed = key::parse(diff.key).map_err(|error| records.malformed(error))?;
        if let (Parsed::Entry { directory, cookie, part }, Some(root)) = (parsed, folding.root)
            && !self.may_reach(records, root, directory)?
        {
            // Where a directory is counts in any case: by the base it may be below the root.
            let own = cookie == 0 && part == Part::Attributes;
            if own {
                self.directory(directory, part, diff, records)?;
            }
            return Ok(Some(directory).filter(|_| cookie != 0));
        }
        self.inside(parsed, diff, folding).map(|()| None)
    }

    fn inside(&mut self, parsed: Parsed, diff: &Diff<'_>, folding: Folding<'_>) -> Result<()> {
        let Folding { records, root, .. } = folding;
        match parsed {
            Parsed::Entry { directory, cookie: 0, part } => {
                self.directory(directory, part, diff, records)
            }
            Parsed::Entry { directory, cookie, part: Part::Attributes } => {
                self.entry((directory, cookie), diff.new, records)
            }
            Parsed::Entry { directory, cookie, part: Part::Xattrs } => {
                // The attributes of a row that was made of the entry are in it.
                let known = self.rows.as_ref().and_then(Layer::last);
                if known != Some((directory, cookie)) {
                    self.places.push((directory, cookie));
                }
                Ok(())
            }
            Parsed::Linked { ino, part: Part::Attributes | Part::Xattrs } => {
                self.names_of(ino, root, records)
            }
            // A name that came or went has a difference of its own.
            Parsed::Entry { .. }
            | Parsed::Linked { .. }
            | Parsed::BackReference { .. }
            | Parsed::Extent { .. } => Ok(()),
        }
    }

    /// Takes an entry that differs: its row, where that is wanted and all there, or its place.
    fn entry(
        &mut self,
        place: (u64, u64),
        bytes: Option<&[u8]>,
        records: Records<'_>,
    ) -> Result<()> {
        let decode = || {
            let entry = bytes.map(EntryRecord::decode).transpose();
            entry.map_err(|error| records.malformed(error))
        };
        let Some(rows) = &mut self.rows else {
            self.places.push(place);
            if let Some(arrived) = &mut self.arrived {
                let led = decode()?.filter(|entry| entry.target == Target::Directory);
                arrived.extend(led.map(|entry| entry.ino));
            }
            return Ok(());
        };
        match decode()? {
            None => rows.push(place, None),
            Some(entry) => match entry.target {
                Target::Embedded(_) | Target::Tombstone => {
                    rows.push(place, records.row(place, &entry, &mut self.xattrs)?.as_ref());
                }
                Target::Linked(_) | Target::Directory | Target::Subvolume(_) => {
                    self.places.push(place);
                }
            },
        }
        Ok(())
    }

    fn directory(
        &mut self,
        ino: u64,
        part: Part,
        diff: &Diff<'_>,
        records: Records<'_>,
    ) -> Result<()> {
        let decode = |bytes: Option<&[u8]>| {
            let record = bytes.map(DirectoryRecord::decode).transpose();
            record.map_err(|error| records.malformed(error))
        };
        let now = match part {
            Part::Attributes => {
                let (old, new) = (decode(diff.old)?, decode(diff.new)?);
                self.directories.push(ino);
                let place = |record: &DirectoryRecord| (record.parent, record.detached);
                if new.is_some() && old.as_ref().map(place) != new.as_ref().map(place) {
                    self.moved.push(ino);
                }
                new
            }
            Part::Xattrs => records.directory(ino)?,
            Part::Bulk | Part::BackReference => None,
        };
        // The root of a subvolume has no place in it.
        if let Some(record) = now.filter(|record| record.parent_cookie != 0) {
            self.places.push((record.parent, record.parent_cookie));
        }
        Ok(())
    }

    /// Whether a directory may lie below the root: anything but that it surely does not. One that
    /// is gone or detached did perhaps.
    fn may_reach(&mut self, records: Records<'_>, root: u64, directory: u64) -> Result<bool> {
        if let Some(only) = &self.only {
            return Ok(only.contains(&directory));
        }
        let mut chain = Vec::new();
        let mut at = directory;
        let answer = loop {
            if at == root || chain.len() > DEPTH_MAX {
                break true;
            }
            if let Some(known) = self.known.get(&at) {
                break *known;
            }
            chain.push(at);
            match records.directory(at)?.filter(|record| !record.detached) {
                None => break true,
                Some(record) if record.parent == at => break false,
                Some(record) => at = record.parent,
            }
        };
        if self.known.len() > KNOWN_MAX {
            self.known.clear();
        }
        self.known.extend(chain.into_iter().map(|directory| (directory, answer)));
        Ok(answer)
    }

    /// Takes the places of all names of an inode that may lie below the root.
    fn names_of(&mut self, ino: u64, root: Option<u64>, records: Records<'_>) -> Result<()> {
        let range = KeyRange::prefix(&key::back_reference_prefix(ino));
        let mut cursor = records.read.scan(records.tree, range)?;
        while let Some(item) = cursor.next()? {
            let parsed = key::parse(item.key).map_err(|error| records.malformed(error))?;
            let Parsed::BackReference { directory, cookie, .. } = parsed else { continue };
            let inside = root.map_or(Ok(true), |root| self.may_reach(records, root, directory))?;
            self.places.extend(inside.then_some((directory, cookie)));
        }
        Ok(())
    }

    pub(super) fn finish(&mut self) {
        for list in [&mut self.directories, &mut self.moved] {
            list.sort_unstable();
            list.dedup();
        }
        self.places.sort_unstable();
        self.places.dedup();
    }
}

/// The rows of a tree that differ from an older state.
pub(crate) fn fold(old: Old<'_>, folding: Folding<'_>) -> Result<Folded> {
    match Touched::with_rows().all(old, folding)? {
        Some(touched) => touched.read(folding),
        None => Ok(Folded::TooLarge),
    }
}

/// A range of keys as its differences from nothing.
pub(crate) struct All<'a> {
    cursor: Box<dyn Cursor + 'a>,
}

impl<'a> All<'a> {
    /// All that a cursor gives.
    pub(crate) fn new(cursor: Box<dyn Cursor + 'a>) -> All<'a> {
        All { cursor }
    }
}

impl DiffCursor for All<'_> {
    fn next(&mut self) -> store::Result<Option<Diff<'_>>> {
        let item = self.cursor.next()?;
        Ok(item.map(|item| Diff { key: item.key, old: None, new: Some(item.value) }))
    }
}
