//! What differs from a base, as the log says it.
//!
//! A base is a clone of a tree, and the log has the record of that clone and all batches since, if
//! it was kept (`store::Store::keep_log`). What these put and deleted in the tree is what differs,
//! with the rows themselves: to read it takes as many bytes as were changed, where comparing two
//! trees takes all leaves of both when changes are scattered. Places that the log says nothing
//! whole of - several names, directories, attributes - are read from the tree, as in any fold.
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
use super::layer::{BYTES_MAX, GONE, Layer, PACKED_MAX, grow, pack};
use super::table::Table;
use crate::assemble::Records;
use crate::{Result, Row};

/// Offset that says: what is there is to be read.
const UNREAD: u32 = GONE - 1;
/// How often what was changed again is taken out, to make room.
const COMPACTIONS_MAX: u32 = 16;

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
    bytes: Vec<u8>,
}

impl Changes {
    fn push(&mut self, place: (u64, u64), row: Option<&Row<'_>>) {
        let at = if row.is_some() { self.bytes.len() as u32 } else { GONE };
        self.note(place, at);
        if let Some(row) = row {
            grow(&mut self.bytes, PACKED_MAX + row.name.len() + row.xattrs.len());
            pack(row, &mut self.bytes);
        }
    }

    fn note(&mut self, place: (u64, u64), at: u32) {
        grow(&mut self.keys, 1);
        self.keys.push(place);
        grow(&mut self.at, 1);
        self.at.push(at);
    }

    fn memory_bytes(&self) -> usize {
        self.keys.capacity() * 20 + self.bytes.capacity()
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

    /// Where the bytes of a change end.
    fn end(&self, change: usize) -> usize {
        let next = self.at[change + 1..].iter().find(|at| **at < UNREAD);
        next.map_or(self.bytes.len(), |at| *at as usize)
    }

    /// Takes out what was changed again.
    fn compact(&mut self) {
        let mut newest = self.newest();
        newest.sort_unstable();
        let mut to = 0;
        for (kept, &change) in newest.iter().enumerate() {
            let change = change as usize;
            let mut at = self.at[change];
            if at < UNREAD {
                let (from, end) = (at as usize, self.end(change));
                self.bytes.copy_within(from..end, to);
                at = to as u32;
                to += end - from;
            }
            self.keys[kept] = self.keys[change];
            self.at[kept] = at;
        }
        self.bytes.truncate(to);
        self.keys.truncate(newest.len());
        self.at.truncate(newest.len());
    }

    /// The rows in order, and the places that are to be read.
    fn finish(self) -> (Layer, Vec<(u64, u64)>) {
        let newest = self.newest();
        let unread = |change: &&u32| self.at[**change as usize] == UNREAD;
        let places: Vec<_> =
            newest.iter().filter(unread).map(|change| self.keys[*change as usize]).collect();
        let count = newest.len() - places.len();
        let (mut keys, mut at) = (Vec::with_capacity(count), Vec::with_capacity(count));
        // In order too, so that who goes through the rows goes through memory.
        let mut bytes = Vec::with_capacity(self.bytes.len());
        for change in newest {
            let change = change as usize;
            match self.at[change] {
                UNREAD => continue,
                GONE => at.push(GONE),
                from => {
                    at.push(bytes.len() as u32);
                    bytes.extend_from_slice(&self.bytes[from as usize..self.end(change)]);
                }
            }
            keys.push(self.keys[change]);
        }
        bytes.shrink_to_fit();
        (Layer::of_packed(keys, at, bytes), places)
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
            grow(&mut self.directories, 1);
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
                grow(&mut self.places, 1);
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
                    self.changes.note(place, UNREAD);
                }
            },
        }
        self.bounded()
    }

    fn memory_bytes(&self) -> usize {
        self.changes.memory_bytes()
            + self.places.capacity() * PLACE_BYTES
            + self.directories.capacity() * 8
    }

    /// Takes out what was changed again where there is too much.
    fn bounded(&mut self) -> Option<State> {
        let is_within = |this: &Self| {
            this.changes.bytes.len() < BYTES_MAX && this.memory_bytes() <= this.folding.bytes_max
        };
        if is_within(self) {
            return None;
        }
        self.compactions += 1;
        self.changes.compact();
        for list in [&mut self.changes.keys, &mut self.places] {
            list.shrink_to_fit();
        }
        self.changes.at.shrink_to_fit();
        self.changes.bytes.shrink_to_fit();
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
        let (layer, places) = reading.changes.finish();
        if !rows.append(vec![layer]) {
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
                    Last::Unread => changes.note(place, UNREAD),
                    Last::Row(row) => changes.push(place, Some(&row.as_row())),
                }
                model.insert(place, last);
                if random.u8(..) < 10 {
                    changes.compact();
                    assert_eq!(changes.keys.len(), model.len(), "seed {seed}");
                }
            }
            let (layer, unread) = changes.finish();
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
}
