//! Finds the differences from a base in the log.
//!
//! A base is a clone of a tree. If the log was kept (`store::Durable::keep_log`), it has the record
//! of that clone and all batches since. Their puts and deletes in the tree are the differences,
//! with the rows themselves. Reading them takes as many bytes as were changed, while comparing two
//! trees reads all leaves of both if changes are scattered. Places that the log describes only in
//! part - several names, directories, attributes - are read from the tree, as in any fold.
//!
//! Directories that were removed with all their contents, and those that came as a run of an
//! import, are compared separately. Other log entries for them are ignored.
//!
//! Memory stays within the fold's bound, plus a chunk of rows and a segment of the log. Rows are
//! never copied if they would not fit twice.
//!
//! The log is not used where it may be incomplete. That is so for a batch that installs a whole
//! tree, or a run or the removal of a range that is not of directories. It is also so for a tree
//! that the base is not a clone of. Then the trees are compared. The log may report too much. A
//! place that was changed back does not differ, but has its row here, which is as valid as the
//! base's.

use std::sync::atomic::Ordering;

use device::sync::Mutex;
use format::batch::{Op, Ops};
use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Parsed, Part};
use store::KeyRange;

use super::changes::{Changes, TIMES_LISTED};
use super::directory_ranges::DirectoryRanges;
use super::fold::{PLACE_BYTES, PLACES_AHEAD, Touched};
use super::folding::{Folding, Helpers, Logged, Old};
use super::merged::Merged;
use super::packed::{LEAST, grow};
use super::spread::spread;
use super::table::Table;
use crate::Result;
use crate::assemble::Records;

/// How often replaced changes are removed to free memory.
const COMPACTIONS_MAX: u32 = 16;

/// The state of reading the log.
#[derive(PartialEq, Eq)]
enum ReadState {
    /// The record of the clone is still to come.
    Before,
    /// Reading continues.
    Since,
    /// The record of the later clone was read, if that is what is compared.
    Ended,
    /// The log cannot be used, for this reason.
    Useless(&'static str),
    /// The result does not fit in memory.
    TooLarge,
}

/// Reads the log.
struct Reading<'a> {
    logged: Logged<'a>,
    records: Records<'a>,
    range: &'a KeyRange,
    folding: Folding<'a>,
    state: ReadState,
    /// Whether rows are collected, and not only places.
    takes_rows: bool,
    changes: Changes,
    /// Places to read, besides those among the changes.
    places: Vec<(u64, u64)>,
    /// Directories whose own record changed.
    directories: Vec<u64>,
    /// Directories with changes to counts and times only.
    merged: Merged,
    compactions: u32,
    /// Memory for attributes.
    xattrs: Vec<u8>,
}

impl Reading<'_> {
    fn batch(&mut self, ops: Ops<'_>) -> bool {
        for op in ops {
            let state = match op {
                Ok(op) => self.op(&op),
                Err(_) => Some(ReadState::Useless("a batch is malformed")),
            };
            if let Some(state) = state {
                self.state = state;
                if !matches!(self.state, ReadState::Before | ReadState::Since) {
                    return false;
                }
            }
        }
        !self.folding.is_cancelled()
    }

    /// Processes an operation; returns the new state, if that changes.
    fn op(&mut self, op: &Op<'_>) -> Option<ReadState> {
        let is_own = |tree: u64| self.state == ReadState::Since && tree == self.logged.tree.0;
        match *op {
            Op::CloneTree { source, target, .. } => {
                if target == self.logged.base.0 {
                    let is_of_this = source == self.logged.tree.0;
                    let other = ReadState::Useless("the base is a clone of another tree");
                    return Some(if is_of_this { ReadState::Since } else { other });
                }
                if is_own(source) && self.logged.end.is_some_and(|end| end.0 == target) {
                    return Some(ReadState::Ended);
                }
                is_own(target).then_some(ReadState::Useless("a clone took the tree's place"))
            }
            Op::Put { tree, key, value } if is_own(tree) => self.change(key, Some(value)),
            Op::Delete { tree, key } if is_own(tree) => self.change(key, None),
            Op::Merge { tree, key, lanes } if is_own(tree) && self.range.contains(key) => {
                match key::parse(key) {
                    Ok(Parsed::Entry { directory, cookie: 0, part: Part::Attributes }) => {
                        if self.logged.clusters.is_none() || !self.merged.add(directory, lanes) {
                            self.directory(directory);
                        }
                        self.bounded()
                    }
                    _ => Some(ReadState::Useless("a merge that is not of a directory's record")),
                }
            }
            Op::DeleteRange { tree, from, to } if is_own(tree) => self.removed(from, to),
            Op::Ingest { tree, first, last, .. } if is_own(tree) => self.came(first, last),
            Op::Link { tree, ref linked } if is_own(tree) => match linked.range {
                Some((first, last)) => self.came(first, last),
                None => Some(ReadState::Useless("a run came of which the log has no range")),
            },
            Op::CreateTree { tree } | Op::DropTree { tree } => {
                is_own(tree).then_some(ReadState::Useless("all of the tree came or went at once"))
            }
            Op::Put { .. }
            | Op::Delete { .. }
            | Op::Merge { .. }
            | Op::DeleteRange { .. }
            | Op::Ingest { .. }
            | Op::Link { .. } => None,
        }
    }

    /// Processes a run, from its first key to its last: only one of entries.
    fn came(&mut self, first: &[u8], last: &[u8]) -> Option<ReadState> {
        let is_before = self.range.to.as_ref().is_none_or(|end| first < &end[..]);
        if !is_before || last < &self.range.from[..] {
            return None;
        }
        let (Some(first), Some(last)) = (within(first), within(last)) else {
            return Some(ReadState::Useless("a run came that is not of directories"));
        };
        self.changes.apart.add(first, last.saturating_add(1));
        self.bounded()
    }

    /// Processes the removal of a range: only whole directories.
    fn removed(&mut self, from: &[u8], to: &[u8]) -> Option<ReadState> {
        let is_before = self.range.to.as_ref().is_none_or(|end| from < &end[..]);
        if !is_before || to <= &self.range.from[..] {
            return None;
        }
        let (Some(from), Some(to)) = (whole(from), whole(to)) else {
            return Some(ReadState::Useless("a range went that is not of whole directories"));
        };
        self.changes.apart.add(from, to);
        self.bounded()
    }

    fn directory(&mut self, directory: u64) {
        if self.directories.last() != Some(&directory) {
            grow(&mut self.directories, 1, LEAST);
            self.directories.push(directory);
        }
    }

    fn change(&mut self, key: &[u8], value: Option<&[u8]>) -> Option<ReadState> {
        if !self.range.contains(key) {
            return None;
        }
        let Ok(Parsed::Entry { directory, cookie, part }) = key::parse(key) else {
            return Some(ReadState::Useless("a key that is not of an entry"));
        };
        match part {
            Part::Attributes | Part::Xattrs if cookie == 0 => self.directory(directory),
            Part::Attributes if self.takes_rows => return self.entry((directory, cookie), value),
            Part::Attributes | Part::Xattrs => {
                grow(&mut self.places, 1, LEAST);
                self.places.push((directory, cookie));
            }
            Part::Bulk | Part::BackReference => return None,
        }
        self.bounded()
    }

    fn entry(&mut self, place: (u64, u64), value: Option<&[u8]>) -> Option<ReadState> {
        match value.map(EntryRecord::decode) {
            None => self.changes.push(place, None),
            // Comparing the trees reports this error.
            Some(Err(_)) => return Some(ReadState::Useless("an entry is malformed")),
            Some(Ok(entry)) => match entry.target {
                Target::Embedded(_) | Target::Tombstone => {
                    match self.records.row(place, &entry, &mut self.xattrs) {
                        Ok(row) => self.changes.push(place, row.as_ref()),
                        Err(_) => return Some(ReadState::Useless("an entry's row cannot be made")),
                    }
                }
                // The target is read in its current state; if it is gone, the log has more entries
                // for the place.
                Target::Linked(_) | Target::Directory => {
                    match self.records.row(place, &entry, &mut self.xattrs) {
                        Ok(row) => self.changes.push(place, row.as_ref()),
                        Err(_) => self.changes.note_unread(place),
                    }
                }
                Target::Subvolume(_) => self.changes.note_unread(place),
            },
        }
        self.bounded()
    }

    fn memory_bytes(&self) -> usize {
        self.changes.memory_bytes()
            + self.places.capacity() * PLACE_BYTES * TIMES_LISTED
            + self.directories.capacity() * 8 * TIMES_LISTED
            + self.merged.memory_bytes()
    }

    /// Whether reading reached the end and saw everything; otherwise why the result is useless.
    fn end(&self, whole: bool) -> std::result::Result<(), &'static str> {
        match self.state {
            ReadState::Since if self.logged.end.is_some() => Err("the later clone is not in it"),
            ReadState::Since | ReadState::Ended if whole => Ok(()),
            ReadState::Since | ReadState::Ended => Err("it is not all there"),
            ReadState::Before => Err("the clone that is the base is not in it"),
            ReadState::Useless(why) => Err(why),
            ReadState::TooLarge => Err("it is more than fits into memory"),
        }
    }

    /// Removes replaced changes if memory is over the limit.
    fn bounded(&mut self) -> Option<ReadState> {
        let is_within =
            |this: &Self| this.changes.has_space() && this.memory_bytes() <= this.folding.bytes_max;
        if is_within(self) {
            return None;
        }
        self.compactions += 1;
        self.changes.compact();
        self.places.sort_unstable();
        self.places.dedup();
        self.places.shrink_to_fit();
        self.directories.sort_unstable();
        self.directories.dedup();
        self.directories.shrink_to_fit();
        let fits = is_within(self) && self.compactions <= COMPACTIONS_MAX;
        (!fits).then_some(ReadState::TooLarge)
    }
}

/// The directory whose keys begin at this key, and before it end those of all earlier ones. The end
/// of a prefix may be shorter than a prefix.
fn whole(key: &[u8]) -> Option<u64> {
    let number = key.strip_prefix(&key::DIRECTORIES_PREFIX)?;
    let mut bytes = [0; size_of::<u64>()];
    bytes.get_mut(..number.len())?.copy_from_slice(number);
    Some(u64::from_be_bytes(bytes))
}

/// The directory that an entry's key is in.
fn within(key: &[u8]) -> Option<u64> {
    let number = key.strip_prefix(&key::DIRECTORIES_PREFIX)?;
    number.first_chunk().map(|number| u64::from_be_bytes(*number))
}

impl Touched {
    /// Takes the differences in a range of entries from the log. `None` if the log is incomplete or
    /// the result does not fit in memory, and nothing was taken; `false` if everything together
    /// does not fit.
    pub(super) fn take_logged(
        &mut self,
        old: Old<'_>,
        folding: Folding<'_>,
        helpers: Helpers<'_>,
        range: &KeyRange,
    ) -> Result<Option<bool>> {
        let Some(logged) = folding.logged else { return Ok(None) };
        let records = folding.records;
        let mut reading = Reading {
            logged,
            records,
            range,
            folding,
            state: ReadState::Before,
            takes_rows: self.rows.is_some(),
            changes: Changes::default(),
            places: Vec::new(),
            directories: Vec::new(),
            merged: Merged::default(),
            compactions: 0,
            xattrs: Vec::new(),
        };
        let whole = folding.new.logged_since(logged.behind, &mut |ops| reading.batch(ops));
        if folding.is_cancelled() {
            return Ok(Some(false));
        }
        // The result may be too large only because of changes that were undone; trees may differ
        // less.
        if let Err(why) = reading.end(whole) {
            let (changes, bytes) = (reading.changes.len(), reading.memory_bytes());
            let (tree, places) = (logged.tree.0, reading.places.len());
            let of = "the log does not contain what differs";
            tracing::debug!(tree, why, changes, places, bytes, "{of}");
            return Ok(None);
        }
        logged.count.fetch_add(1, Ordering::Relaxed);
        let others = reading.memory_bytes() - reading.changes.memory_bytes();
        let left = folding.bytes_max.saturating_sub(others);
        let (layer, places, apart) = reading.changes.finish(left);
        if self.rows.as_mut().is_some_and(|rows| !rows.join(layer)) {
            return Ok(Some(false));
        }
        self.places.extend(places);
        self.places.append(&mut reading.places);
        if !self.take_apart(old, folding, (&apart, range))? {
            return Ok(Some(false));
        }
        let Reading { mut directories, mut merged, .. } = reading;
        directories.retain(|ino| !apart.has(*ino));
        directories.sort_unstable();
        directories.dedup();
        merged.leave_out(|ino| apart.has(ino) || directories.binary_search(&ino).is_ok());
        if !self.take_merged(&mut merged, logged.clusters, folding) {
            return Ok(Some(false));
        }
        directories.extend(merged.directories());
        directories.sort_unstable();
        self.logged_directories(&directories, folding, helpers)
    }

    /// Takes the differences in directories that the log does not describe.
    fn take_apart(
        &mut self,
        old: Old<'_>,
        folding: Folding<'_>,
        (apart, range): (&DirectoryRanges, &KeyRange),
    ) -> Result<bool> {
        let mut beside = self.another();
        for &(first, end) in apart.ranges() {
            let [first, end] = [first, end].map(key::directory_prefix);
            let from = range.from.clone().max(first.to_vec());
            let to = range.to.clone().map_or(end.to_vec(), |to| to.min(end.to_vec()));
            let bytes_max = folding.bytes_max.saturating_sub(self.memory_bytes());
            let folding = Folding { helpers: None, logged: None, bytes_max, ..folding };
            let range = KeyRange { from, to: Some(to) };
            if folding.is_cancelled() || !beside.range(old, folding, range)? {
                return Ok(false);
            }
        }
        self.places.append(&mut beside.places);
        self.directories.append(&mut beside.directories);
        self.moved.append(&mut beside.moved);
        let rows = self.rows.as_mut().zip(beside.rows);
        Ok(rows.is_none_or(|(rows, beside)| rows.join(beside)))
    }

    /// Takes directories whose own record or attributes changed; `false` if the caller cancelled.
    fn logged_directories(
        &mut self,
        directories: &[u64],
        folding: Folding<'_>,
        helpers: Helpers<'_>,
    ) -> Result<Option<bool>> {
        let Folding { new, records, .. } = folding;
        let parts: Vec<&[u64]> = directories.chunks(PLACES_AHEAD).collect();
        let threads = if directories.len() < helpers.from { 1 } else { helpers.threads };
        // In any order: the lists are sorted at the end.
        let all = Mutex::new(self);
        let taken = spread((threads, "fold"), parts.len(), folding.cancelled(), &|at| {
            let keys = parts[at].iter().map(|ino| key::directory(*ino, Part::Attributes));
            let keys: Vec<_> = keys.collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            new.prefetch(records.tree, &keys);
            for &ino in parts[at] {
                let record = records.directory(ino)?;
                let (moved, place) = logged_directory(ino, record.as_ref(), helpers.table);
                let mut all = all.lock();
                all.directories.push(ino);
                all.moved.extend(moved.then_some(ino));
                all.places.extend(place);
            }
            Ok(())
        })?;
        Ok(Some(taken.is_some()))
    }
}

/// Whether a directory whose own record or attributes changed has moved since a base, or is new;
/// and its place.
fn logged_directory(
    ino: u64,
    record: Option<&DirectoryRecord>,
    table: &Table,
) -> (bool, Option<(u64, u64)>) {
    let Some(record) = record else { return (false, None) };
    let is_there = table.facts(ino).is_some_and(|facts| facts.parent == record.parent);
    // The root of a subvolume has no place in it.
    let place = (record.parent_cookie != 0).then_some((record.parent, record.parent_cookie));
    (!is_there || record.detached, place)
}

#[cfg(test)]
mod tests {
    use format::key::{self, INO_MAX, Part};

    use super::{whole, within};

    #[test]
    fn key_prefixes_yield_the_end_of_any_directory() {
        for ino in [0, 1, 16, 254, 255, 256, 511, 0xff_feff, 0xff_ffff, 0x00ff_00ff, INO_MAX] {
            let prefix = key::directory_prefix(ino);
            let end = store::prefix_end(&prefix).expect("a tag is below 255");
            assert_eq!(whole(&prefix), Some(ino));
            assert_eq!(whole(&end), Some(ino + 1), "{ino:#x}: {end:?}");
            assert_eq!(within(&key::entry(ino, 9, Part::Attributes)), Some(ino));
        }
        assert_eq!(whole(&key::entry(7, 1, Part::Attributes)), None);
        assert_eq!(whole(&key::linked_prefix(7)), None);
        assert_eq!(within(&key::linked(7, Part::Attributes)), None);
    }
}
