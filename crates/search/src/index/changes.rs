//! Places that the log reports as changed: first in the order of the changes, finally in the order
//! of places.

use super::directory_ranges::DirectoryRanges;
use super::fold::PLACE_BYTES;
use super::layer::{Layer, PLACED_BYTES};
use super::packed::{CHUNK_BYTES, GONE, LEAST, Packed, UNREAD, grow, next_space};
use crate::Row;

/// Bytes of a change's number while changes are sorted.
const ORDER_BYTES: usize = 4;
/// Number of copies of a list of places or directories while it grows and while it is passed on.
pub(super) const TIMES_LISTED: usize = 3;

/// Places that were changed, in the order of the changes.
#[derive(Default)]
pub(super) struct Changes {
    keys: Vec<(u64, u64)>,
    at: Vec<u32>,
    rows: Packed,
    /// How many of them are marked as to be read.
    unread: usize,
    /// Directories that are compared separately.
    pub(super) apart: DirectoryRanges,
}

impl Changes {
    pub(super) fn push(&mut self, place: (u64, u64), row: Option<&Row<'_>>) {
        let at = row.map_or(GONE, |row| self.rows.push(row));
        self.add(place, at);
    }

    pub(super) fn note_unread(&mut self, place: (u64, u64)) {
        self.unread += 1;
        self.add(place, UNREAD);
    }

    /// How many changes there are.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether row offsets are not exhausted.
    pub(super) fn has_space(&self) -> bool {
        self.rows.has_space()
    }

    fn add(&mut self, place: (u64, u64), at: u32) {
        grow(&mut self.keys, 1, LEAST);
        self.keys.push(place);
        grow(&mut self.at, 1, LEAST);
        self.at.push(at);
    }

    /// Memory that it takes now, and until it is part of a fold. Changes are sorted, and the single
    /// list of places is copied to grow.
    pub(super) fn memory_bytes(&self) -> usize {
        let grown = self.keys.len() + next_space(self.keys.len()).max(LEAST);
        self.keys.capacity() * (PLACED_BYTES + ORDER_BYTES)
            + grown * PLACED_BYTES
            + self.rows.memory_bytes()
            + self.unread * PLACE_BYTES * TIMES_LISTED
            + self.apart.memory_bytes()
    }

    /// The last change of each place, in order of places, except separate directories.
    fn newest(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.keys.len() as u32).collect();
        if !self.apart.is_empty() {
            order.retain(|&change| !self.apart.has(self.keys[change as usize].0));
        }
        order.sort_unstable_by_key(|&change| (self.keys[change as usize], change));
        let place = |change: u32| self.keys[change as usize];
        // The last of each run must stay, so runs are walked from the end.
        order.reverse();
        order.dedup_by(|next, kept| place(*next) == place(*kept));
        order.reverse();
        order
    }

    /// Offset of the row that was packed after the row of a change, if there is one.
    fn next(&self, change: usize) -> Option<u32> {
        self.at[change + 1..].iter().find(|at| **at < UNREAD).copied()
    }

    /// Removes changes that a later change replaced, or that are in separate directories. Takes one
    /// extra chunk of memory.
    pub(super) fn compact(&mut self) {
        self.apart.settle();
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

    /// The rows in order of places, the places to read, and the separate directories. If memory
    /// allows a second copy, rows are copied in that order too, so that a scan reads memory
    /// sequentially. Otherwise they stay where they are.
    pub(super) fn finish(mut self, bytes_max: usize) -> (Layer, Vec<(u64, u64)>, DirectoryRanges) {
        self.apart.settle();
        let copied = self.rows.memory_bytes() + self.keys.len() * PLACED_BYTES + CHUNK_BYTES;
        if self.memory_bytes() + copied <= bytes_max { self.copied() } else { self.in_place() }
    }

    fn copied(self) -> (Layer, Vec<(u64, u64)>, DirectoryRanges) {
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
        (Layer::of_packed(keys, at, rows), places, self.apart)
    }

    fn in_place(mut self) -> (Layer, Vec<(u64, u64)>, DirectoryRanges) {
        self.compact();
        // Each is the last change of its place, so its source position determines its target.
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
        (Layer::of_packed(self.keys, self.at, self.rows), places, self.apart)
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
    fn the_last_change_at_each_position_counts() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut changes, mut model) = (Changes::default(), BTreeMap::new());
            let is_apart = |directory: u64| seed % 3 == 0 && (2..4).contains(&directory);
            for directory in (0..5).filter(|directory| is_apart(*directory)) {
                changes.apart.add(directory, directory + 1);
            }
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
                if !is_apart(place.0) {
                    model.insert(place, last);
                }
                if random.u8(..) < 10 {
                    changes.compact();
                    assert_eq!(changes.keys.len(), model.len(), "seed {seed}");
                }
            }
            // With memory for a copy, and without.
            let (layer, unread, _) = changes.finish([usize::MAX, 0][seed as usize % 2]);
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

    /// A copied list exists twice for a moment. If a copy does not fit, no byte of a row moves, and
    /// the larger of two layers stays where it is.
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
            let (layer, unread, _) = changes.finish(bytes_max);
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
