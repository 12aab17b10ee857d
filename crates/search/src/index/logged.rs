//! What differs from a base, as the log says it.
//!
//! A base is a clone of a tree, and the log has the record of that clone and all batches since, if
//! it was kept (`store::Store::keep_log`). What these put and deleted in the tree is what differs,
//! with the rows themselves: to read it takes as many bytes as were changed, where comparing two
//! trees takes all leaves of both when changes are scattered. Places that the log says nothing
//! whole of - several names, directories, attributes - are read from the tree, as in any fold.
//!
//! What it takes of memory stays within the fold's bound, but for a chunk of rows and a segment of
//! the log: rows are never copied where they would not fit twice.
//!
//! The log is not believed where it may say less than all: a batch that puts a whole tree, a range
//! or a run there, or a tree that is not the one that the base is a clone of, and the trees are
//! compared. It may say more: a place that was changed back does not differ, and has its row here,
//! which is as true as the base's.

use std::sync::atomic::{AtomicU64, Ordering};

use format::batch::{Op, Ops};
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Parsed, Part};
use store::{CommitToken, KeyRange, TreeId};

use super::fold::{Folding, PLACE_BYTES, PLACES_AHEAD, Touched};
use super::layer::{Layer, PLACED_BYTES};
use super::packed::{CHUNK_BYTES, GONE, LEAST, Packed, UNREAD, grow, next_room};
use super::table::Table;
use crate::assemble::Records;
use crate::{Result, Row};

/// How often what was changed again is taken out, to make room.
const COMPACTIONS_MAX: u32 = 16;
/// Bytes of the number of a change where changes are put in order.
const ORDER_BYTES: usize = 4;
/// So often a list of places or directories is there while it grows, and while it is handed on.
const TIMES_LISTED: usize = 3;

/// Where the log may say what differs.
#[derive(Clone, Copy)]
pub(crate) struct Logged<'a> {
    /// The tree.
    pub(crate) tree: TreeId,
    /// The base, a clone of it.
    pub(crate) base: TreeId,
    /// A commit before it was cloned.
    pub(crate) behind: CommitToken,
    /// Counts how often it did.
    pub(crate) count: &'a AtomicU64,
}

/// Places that were changed, in the order of the changes.
#[derive(Default)]
struct Changes {
    keys: Vec<(u64, u64)>,
    at: Vec<u32>,
    rows: Packed,
    /// How many of them were noted as to be read.
    unread: usize,
}

impl Changes {
    fn push(&mut self, place: (u64, u64), row: Option<&Row<'_>>) {
        let at = row.map_or(GONE, |row| self.rows.push(row));
        self.add(place, at);
    }

    fn note_unread(&mut self, place: (u64, u64)) {
        self.unread += 1;
        self.add(place, UNREAD);
    }

    fn add(&mut self, place: (u64, u64), at: u32) {
        grow(&mut self.keys, 1, LEAST);
        self.keys.push(place);
        grow(&mut self.at, 1, LEAST);
        self.at.push(at);
    }

    /// Memory that it takes, and will take until it is part of a fold: while changes are put in
    /// order, and while their places, which are in one list, are copied because that grows.
    fn memory_bytes(&self) -> usize {
        let grown = self.keys.len() + next_room(self.keys.len()).max(LEAST);
        self.keys.capacity() * (PLACED_BYTES + ORDER_BYTES)
            + grown * PLACED_BYTES
            + self.rows.memory_bytes()
            + self.unread * PLACE_BYTES * TIMES_LISTED
    }

    /// The last change of each place, in order of places.
    fn newest(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.keys.len() as u32).collect();
        order.sort_unstable_by_key(|&change| (self.keys[change as usize], change));
        let place = |change: u32| self.keys[change as usize];
        // The last of each run is to stay: runs are walked from behind.
        order.reverse();
        order.dedup_by(|next, kept| place(*next) == place(*kept));
        order.reverse();
        order
    }

    /// Where the row lies that was packed after that of a change, if any was.
    fn next(&self, change: usize) -> Option<u32> {
        self.at[change + 1..].iter().find(|at| **at < UNREAD).copied()
    }

    /// Takes out what was changed again. Takes the room of a chunk more.
    fn compact(&mut self) {
        let mut newest = self.newest();
        if newest.len() == self.keys.len() {
            return;
        }
        newest.sort_unstable();
        let mut old = std::mem::take(&mut self.rows);
        for (kept, &change) in newest.iter().enumerate() {
            let change = change as usize;
            let mut at = self.at[change];
            if at < UNREAD {
                old.forget_before(at);
                at = self.rows.push_bytes(old.bytes(at, self.next(change)));
            }
            self.keys[kept] = self.keys[change];
            self.at[kept] = at;
        }
        self.keys.truncate(newest.len());
        self.at.truncate(newest.len());
        self.unread = self.at.iter().filter(|at| **at == UNREAD).count();
    }

    /// The rows in order of places, and the places that are to be read. Rows lie in that order too
    /// where there is room for them twice, so that who goes through them goes through memory;
    /// where there is not, they stay where they are.
    fn finish(self, bytes_max: usize) -> (Layer, Vec<(u64, u64)>) {
        let copied = self.rows.memory_bytes() + self.keys.len() * PLACED_BYTES + CHUNK_BYTES;
        if self.memory_bytes() + copied <= bytes_max { self.copied() } else { self.in_place() }
    }

    fn copied(self) -> (Layer, Vec<(u64, u64)>) {
        let newest = self.newest();
        let mut places = Vec::with_capacity(self.unread);
        let (mut keys, mut at) = (Vec::new(), Vec::new());
        keys.reserve_exact(newest.len());
        at.reserve_exact(newest.len());
        let mut rows = Packed::default();
        for change in newest {
            let change = change as usize;
            at.push(match self.at[change] {
                UNREAD => {
                    places.push(self.keys[change]);
                    continue;
                }
                GONE => GONE,
                from => rows.push_bytes(self.rows.bytes(from, self.next(change))),
            });
            keys.push(self.keys[change]);
        }
        (Layer::of_packed(keys, at, rows), places)
    }

    fn in_place(mut self) -> (Layer, Vec<(u64, u64)>) {
        self.compact();
        // Each is the last change of its place: where each goes is known by where it comes from.
        let mut from = self.newest();
        for start in 0..from.len() {
            let first = (self.keys[start], self.at[start]);
            let mut to = start;
            loop {
                let next = std::mem::replace(&mut from[to], to as u32) as usize;
                if next == start {
                    break;
                }
                (self.keys[to], self.at[to]) = (self.keys[next], self.at[next]);
                to = next;
            }
            (self.keys[to], self.at[to]) = first;
        }
        let mut places = Vec::with_capacity(self.unread);
        let mut kept = 0;
        for change in 0..self.keys.len() {
            if self.at[change] == UNREAD {
                places.push(self.keys[change]);
                continue;
            }
            (self.keys[kept], self.at[kept]) = (self.keys[change], self.at[change]);
            kept += 1;
        }
        self.keys.truncate(kept);
        self.at.truncate(kept);
        (Layer::of_packed(self.keys, self.at, self.rows), places)
    }
}

/// What became of reading the log.
#[derive(PartialEq, Eq)]
enum State {
    /// The record of the clone has not come yet.
    Before,
    /// It goes on.
    Since,
    /// It cannot be used.
    Useless,
    /// It is more than fits into memory.
    TooLarge,
}

/// Reads what the log says.
struct Reading<'a> {
    logged: Logged<'a>,
    records: Records<'a>,
    range: &'a KeyRange,
    folding: Folding<'a>,
    state: State,
    changes: Changes,
    /// Places to be read beside those among the changes.
    places: Vec<(u64, u64)>,
    /// Directories whose own record changed.
    directories: Vec<u64>,
    compactions: u32,
    /// Memory for attributes.
    xattrs: Vec<u8>,
}

impl Reading<'_> {
    fn batch(&mut self, ops: Ops<'_>) -> bool {
        for op in ops {
            let state = match op {
                Ok(op) => self.op(&op),
                Err(_) => Some(State::Useless),
            };
            if let Some(state) = state {
                self.state = state;
                if matches!(self.state, State::Useless | State::TooLarge) {
                    return false;
                }
            }
        }
        !self.folding.is_cancelled()
    }

    /// Takes an operation; tells what that changes.
    fn op(&mut self, op: &Op<'_>) -> Option<State> {
        let is_own = |tree: u64| self.state == State::Since && tree == self.logged.tree.0;
        match *op {
            Op::CloneTree { source, target, .. } => {
                if target == self.logged.base.0 {
                    let is_of_this = source == self.logged.tree.0;
                    return Some(if is_of_this { State::Since } else { State::Useless });
                }
                is_own(target).then_some(State::Useless)
            }
            Op::Put { tree, key, value } if is_own(tree) => self.change(key, Some(value)),
            Op::Delete { tree, key } if is_own(tree) => self.change(key, None),
            Op::Merge { tree, key, .. } if is_own(tree) && self.range.contains(key) => {
                match key::parse(key) {
                    Ok(Parsed::Entry { directory, cookie: 0, part: Part::Attributes }) => {
                        self.directory(directory);
                        self.bounded()
                    }
                    _ => Some(State::Useless),
                }
            }
            Op::DeleteRange { tree, from, to } if is_own(tree) => {
                let is_before = self.range.to.as_ref().is_none_or(|end| from < &end[..]);
                (is_before && to > &self.range.from[..]).then_some(State::Useless)
            }
            Op::CreateTree { tree }
            | Op::DropTree { tree }
            | Op::Ingest { tree, .. }
            | Op::Link { tree, .. } => is_own(tree).then_some(State::Useless),
            Op::Put { .. } | Op::Delete { .. } | Op::Merge { .. } | Op::DeleteRange { .. } => None,
        }
    }

    fn directory(&mut self, directory: u64) {
        if self.directories.last() != Some(&directory) {
            grow(&mut self.directories, 1, LEAST);
            self.directories.push(directory);
        }
    }

    fn change(&mut self, key: &[u8], value: Option<&[u8]>) -> Option<State> {
        if !self.range.contains(key) {
            return None;
        }
        let Ok(Parsed::Entry { directory, cookie, part }) = key::parse(key) else {
            return Some(State::Useless);
        };
        match part {
            Part::Attributes | Part::Xattrs if cookie == 0 => self.directory(directory),
            Part::Attributes => return self.entry((directory, cookie), value),
            Part::Xattrs => {
                grow(&mut self.places, 1, LEAST);
                self.places.push((directory, cookie));
            }
            Part::Bulk | Part::BackReference => return None,
        }
        self.bounded()
    }

    fn entry(&mut self, place: (u64, u64), value: Option<&[u8]>) -> Option<State> {
        match value.map(EntryRecord::decode) {
            None => self.changes.push(place, None),
            // Whoever compares the trees will say so.
            Some(Err(_)) => return Some(State::Useless),
            Some(Ok(entry)) => match entry.target {
                Target::Embedded(_) | Target::Tombstone => {
                    match self.records.row(place, &entry, &mut self.xattrs) {
                        Ok(row) => self.changes.push(place, row.as_ref()),
                        Err(_) => return Some(State::Useless),
                    }
                }
                Target::Linked(_) | Target::Directory | Target::Subvolume(_) => {
                    self.changes.note_unread(place);
                }
            },
        }
        self.bounded()
    }

    fn memory_bytes(&self) -> usize {
        self.changes.memory_bytes()
            + self.places.capacity() * PLACE_BYTES * TIMES_LISTED
            + self.directories.capacity() * 8 * TIMES_LISTED
    }

    /// Takes out what was changed again where there is too much.
    fn bounded(&mut self) -> Option<State> {
        let is_within = |this: &Self| {
            this.changes.rows.has_room() && this.memory_bytes() <= this.folding.bytes_max
        };
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
        (!fits).then_some(State::TooLarge)
    }
}

impl Touched {
    /// Takes what differs in a range of entries from the log: `None` where it has not all of that,
    /// or more than fits into memory, and nothing was taken; `false` when all together does not
    /// fit.
    pub(super) fn take_logged(
        &mut self,
        folding: Folding<'_>,
        table: &Table,
        range: &KeyRange,
    ) -> Result<Option<bool>> {
        let (Some(logged), Some(rows)) = (folding.logged, &mut self.rows) else { return Ok(None) };
        let records = folding.records;
        let mut reading = Reading {
            logged,
            records,
            range,
            folding,
            state: State::Before,
            changes: Changes::default(),
            places: Vec::new(),
            directories: Vec::new(),
            compactions: 0,
            xattrs: Vec::new(),
        };
        let whole = folding.new.logged_since(logged.behind, &mut |ops| reading.batch(ops));
        if folding.is_cancelled() {
            return Ok(Some(false));
        }
        // What does not fit here, for it was changed back or is gone again, may not differ.
        if reading.state != State::Since || !whole {
            return Ok(None);
        }
        logged.count.fetch_add(1, Ordering::Relaxed);
        let others = reading.memory_bytes() - reading.changes.memory_bytes();
        let (layer, places) = reading.changes.finish(folding.bytes_max.saturating_sub(others));
        if !rows.join(layer) {
            return Ok(Some(false));
        }
        self.places.extend(places);
        self.places.append(&mut reading.places);
        reading.directories.sort_unstable();
        reading.directories.dedup();
        for directories in reading.directories.chunks(PLACES_AHEAD) {
            if folding.is_cancelled() {
                return Ok(Some(false));
            }
            let keys: Vec<_> =
                directories.iter().map(|ino| key::directory(*ino, Part::Attributes)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            folding.new.prefetch(records.tree, &keys);
            for &ino in directories {
                self.logged_directory(ino, records, table)?;
            }
        }
        Ok(Some(true))
    }

    /// Takes a directory whose own record, or whose attributes, changed.
    fn logged_directory(&mut self, ino: u64, records: Records<'_>, table: &Table) -> Result<()> {
        self.directories.push(ino);
        let Some(record) = records.directory(ino)? else { return Ok(()) };
        let is_there = table.facts(ino).is_some_and(|facts| facts.parent == record.parent);
        if !is_there || record.detached {
            self.moved.push(ino);
        }
        // The root of a subvolume has no place in it.
        if record.parent_cookie != 0 {
            self.places.push((record.parent, record.parent_cookie));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use format::inode_record::FileKind;

    use super::*;
    use crate::RowBuf;

    fn row(random: &mut fastrand::Rng, (directory, cookie): (u64, u64)) -> RowBuf {
        let name = vec![b'n'; random.usize(1..60)];
        Row {
            directory,
            cookie,
            ino: random.u64(..),
            name: &name,
            kind: FileKind::File,
            mode: random.u32(..),
            uid: random.u32(..),
            gid: 1,
            nlink: 1,
            rdev: 0,
            size: random.u64(..),
            allocated: 0,
            entries: 0,
            atime: 0,
            mtime: random.i64(..),
            ctime: 0,
            btime: 0,
            subvolume: 0,
            xattrs: b"",
        }
        .to_buf()
    }

    /// What became of a place.
    #[derive(Clone, PartialEq, Debug)]
    enum Last {
        Gone,
        Unread,
        Row(RowBuf),
    }

    #[test]
    fn the_last_change_of_each_place_counts() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut changes, mut model) = (Changes::default(), BTreeMap::new());
            for _ in 0..random.usize(0..200) {
                let place = (random.u64(..5), random.u64(1..20));
                let last = match random.u8(..4) {
                    0 => Last::Gone,
                    1 => Last::Unread,
                    _ => Last::Row(row(&mut random, place)),
                };
                match &last {
                    Last::Gone => changes.push(place, None),
                    Last::Unread => changes.note_unread(place),
                    Last::Row(row) => changes.push(place, Some(&row.as_row())),
                }
                model.insert(place, last);
                if random.u8(..) < 10 {
                    changes.compact();
                    assert_eq!(changes.keys.len(), model.len(), "seed {seed}");
                }
            }
            // With room for a copy, and without.
            let (layer, unread) = changes.finish([usize::MAX, 0][seed as usize % 2]);
            let of = |wanted: fn(&Last) -> bool| {
                let places = model.iter().filter(move |(_, last)| wanted(last));
                places.map(|(place, _)| *place).collect::<Vec<_>>()
            };
            assert_eq!(unread, of(|last| *last == Last::Unread), "seed {seed}");
            assert_eq!(layer.len(), model.len() - unread.len(), "seed {seed}");
            let mut rows = BTreeMap::new();
            super::super::layer::Delta::default().with(layer).each(&mut |row| {
                rows.insert((row.directory, row.cookie), Last::Row(row.to_buf()));
                true
            });
            model.retain(|_, last| matches!(last, Last::Row(_)));
            assert_eq!(rows, model, "seed {seed}");
        }
    }

    /// A list that is copied is there twice for a moment: where a copy does not fit, no byte of a
    /// row moves, and the larger of two layers stays where it is.
    #[test]
    fn rows_are_copied_only_where_they_fit_twice() {
        let filled = || {
            let mut random = fastrand::Rng::with_seed(3);
            let mut changes = Changes::default();
            for _ in 0..20_000 {
                let place = (random.u64(10..50), random.u64(1..1 << 40));
                changes.push(place, Some(&row(&mut random, place).as_row()));
            }
            changes
        };
        let first = || {
            let (mut random, mut first) = (fastrand::Rng::with_seed(4), Layer::default());
            for number in 1..4000 {
                first.push((number, 1), Some(&row(&mut random, (number, 1)).as_row()));
            }
            first
        };
        let bytes = filled().memory_bytes();
        assert!(bytes > 8 * CHUNK_BYTES, "{bytes} bytes");
        for (bytes_max, copies) in [(bytes, false), (bytes * 2 + CHUNK_BYTES, true)] {
            let changes = filled();
            let before = changes.rows.places();
            let (layer, unread) = changes.finish(bytes_max);
            assert_eq!((layer.len(), unread.len()), (20_000, 0));
            assert_eq!(layer.places() != before, copies);
            assert!(layer.memory_bytes() <= bytes);
            let kept = layer.places();
            let mut joined = first();
            assert!(joined.join(layer));
            assert_eq!(joined.len(), 20_000 + 3999);
            assert!(kept.iter().all(|place| joined.places().contains(place)), "rows were copied");
            let mut last = (0, 0);
            super::super::layer::Delta::default().with(joined).each(&mut |row| {
                assert!((row.directory, row.cookie) > last, "places in order");
                last = (row.directory, row.cookie);
                true
            });
        }
    }
}
