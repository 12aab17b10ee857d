//! Turns the differences between two states of a tree into the rows that differ.
//!
//! A row depends on its entry, on the entry's target (a linked inode, a directory's own record) and
//! on its extended attributes. So each difference names the places whose rows it changes:
//!
//! * an entry or its attributes: that place;
//! * a directory's own record or attributes: the directory's place, by its record;
//! * a linked inode or its attributes: all its names, by its back references.
//!
//! An entry that contains its inode is its row: if the caller collects rows, it takes the row from
//! the difference, which is in order. The other places are then read from the later state, once
//! each and in order. If an entry points to a directory that has moved, its old place has a
//! difference of its own.

use device::{Map, Set};
use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Parsed, Part};
use store::{Diff, DiffCursor, KeyRange};

use super::everything::All;
use super::folding::{Folding, Old};
use super::layer::Layer;
use super::parts;
use crate::Result;
use crate::assemble::Records;

/// Maximum depth of a path: a longer chain of parents is a cycle.
const DEPTH_MAX: usize = 1 << 16;
/// Maximum directories for which the fold remembers whether they are below the root.
const KNOWN_MAX: usize = 1 << 18;
/// Bytes of a place while places are collected.
pub(super) const PLACE_BYTES: usize = 16;
/// Places to prefetch before the first of them is read.
pub(super) const PLACES_AHEAD: usize = 512;

/// After this many differences in an irrelevant directory, skip its remaining ones. A clone of a
/// directory also has the names beside it, in any number.
const OUTSIDE_MAX: u32 = 16;

/// Where the differences ended.
enum End {
    /// There are no more.
    Whole,
    /// They exceed the memory limit.
    TooLarge,
    /// Continue behind this directory.
    Behind(u64),
    /// There are many: the rest, from this key on, is for several threads.
    Many(Vec<u8>),
}

/// The result of a fold.
pub(crate) enum Folded {
    /// The rows that differ.
    Layer(Layer),
    /// They exceed the memory limit.
    TooLarge,
}

/// What differs between two states.
#[derive(Default)]
pub(crate) struct Touched {
    /// Places whose rows differ, in order after [`Touched::finish`].
    pub(crate) places: Vec<(u64, u64)>,
    /// Directories whose own record differs.
    pub(crate) directories: Vec<u64>,
    /// Those of them that moved or are new.
    pub(crate) moved: Vec<u64>,
    /// Rows that differ and are known already, if rows are collected; their places may or may not
    /// be among [`Touched::places`].
    pub(super) rows: Option<Layer>,
    /// Memory for the attributes of a row.
    xattrs: Vec<u8>,
    /// Whether directories may be below the root.
    known: Map<u64, bool>,
    /// The directories that may be, if it is known that no others are.
    only: Option<Set<u64>>,
    /// Number of records that differ, and the limit on it.
    counted: usize,
    count_max: Option<usize>,
    /// Memory reported to the other parts of a fold.
    reported: usize,
    /// Directories that differing names point to, if the caller requests them.
    arrived: Option<Vec<u64>>,
}

impl Touched {
    /// Collects all differences as places; `None` if they exceed `bytes_max`.
    pub(crate) fn collect(old: Old<'_>, folding: Folding<'_>) -> Result<Option<Touched>> {
        Touched::default().all(old, folding)
    }

    /// An empty collection that takes rows.
    pub(super) fn with_rows() -> Touched {
        Touched { rows: Some(Layer::default()), ..Touched::default() }
    }

    /// Counts the relevant records that differ, up to `most`.
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

    /// Collects the differences in a range; `false` if they exceed the memory limit.
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
                    let parts = parts::fold(rest, helpers, range, &|folding, range| {
                        let mut touched = self.another();
                        let whole = touched.range(old, folding, range)?;
                        Ok((whole, touched))
                    })?;
                    return Ok(parts.is_some_and(|parts| self.take(parts)));
                }
            }
        }
    }

    /// A collection of places and arrived directories, without rows, in any order.
    pub(super) fn of_places(&self) -> Touched {
        let (arrived, count_max) = (Some(Vec::new()), self.count_max);
        Touched { count_max, arrived, ..Touched::default() }
    }

    /// Directories that differing names point to, since the last call.
    pub(super) fn take_arrived(&mut self) -> Vec<u64> {
        self.arrived.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes all places and directories of another; `only` lists all directories that may be below
    /// the root.
    pub(super) fn take_places(&mut self, other: Touched, only: Set<u64>) {
        self.places.extend(other.places);
        self.directories.extend(other.directories);
        self.moved.extend(other.moved);
        self.counted += other.counted;
        self.only = Some(only);
    }

    /// The initial state for a part of the fold.
    pub(crate) fn another(&self) -> Touched {
        let rows = self.rows.as_ref().map(|_| Layer::default());
        Touched { rows, ..Touched::default() }
    }

    /// Adds the results of the parts, in order; `false` if one layer cannot hold them.
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
                if !together.is_within(&mut self.reported, bytes, bytes_max) {
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

    /// Processes a difference. Returns the directory if the difference is a name in one that is not
    /// below the root, and therefore irrelevant.
    fn difference(&mut self, diff: &Diff<'_>, folding: Folding<'_>) -> Result<Option<u64>> {
        let records = folding.records;
        let parsed = key::parse(diff.key).map_err(|error| records.malformed(error))?;
        if let (Parsed::Entry { directory, cookie, part }, Some(root)) = (parsed, folding.root)
            && !self.may_reach(records, root, directory)?
        {
            // A moved directory always counts: in the base it may have been below the root.
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
                // A row built from the entry includes its attributes.
                let known = self.rows.as_ref().and_then(Layer::last);
                if known != Some((directory, cookie)) {
                    self.places.push((directory, cookie));
                }
                Ok(())
            }
            Parsed::Linked { ino, part: Part::Attributes | Part::Xattrs } => {
                self.names_of(ino, root, records)
            }
            // A name that was added or removed has a difference of its own.
            Parsed::Entry { .. }
            | Parsed::Linked { .. }
            | Parsed::BackReference { .. }
            | Parsed::Extent { .. } => Ok(()),
        }
    }

    /// Takes an entry that differs: its row, if rows are collected and it is complete, or its
    /// place.
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

    /// Whether a directory may be below the root: `false` only if it is certain that it is not. A
    /// deleted or detached one may have been.
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

    /// Takes the places of all names of an inode that may be below the root.
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
