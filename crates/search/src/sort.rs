//! Ordered matches: the first ones, up to the limit, are kept in a heap during the search.
//!
//! 1. A match that cannot be among the first is dropped at once.
//! 2. The others are kept, up to a bound of bytes: the length of paths is not bounded.
//! 3. Above the bound, all kept matches are emitted as a run, in order, and the next run starts. If
//!    a run had as many matches as the limit, matches no better than its last one are dropped from
//!    then on.
//!
//! So the first matches of all are among the first of the runs; the receiver selects them. Nearly
//! always there is one run.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use store::TreeId;

use crate::assemble::Records;
use crate::cluster::{Fields, Like};
use crate::condition::Attribute;
use crate::matches::{Emit, Match, Sort, SortBy};
use crate::row::{Row, RowBuf};
use crate::stored::Stored;

/// Estimated bytes of matches that an ordered query keeps. A hundred thousand with paths of a
/// hundred bytes take 80 MiB, and several such queries must fit in memory beside the caches.
const ORDERED_BYTES_MAX: usize = 128 << 20;

/// The first matches of those seen so far.
pub(crate) struct Ranking {
    sort: Sort,
    limit: usize,
    bytes_max: usize,
    /// The last of those kept is on top.
    kept: BinaryHeap<Ranked>,
    /// Estimated memory of those.
    bytes: usize,
    /// A match with this rank or a later one is not among the first: an earlier run had as many as
    /// the limit.
    end: Option<Rank>,
}

struct Ranked {
    rank: Rank,
    row: RowBuf,
    depth: u32,
    subvolume: u64,
    tree: TreeId,
}

/// The rank of a match: its value, and among equal ones its path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    value: Value,
    path: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Up(Key),
    Down(Reverse<Key>),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Number(i128),
    Bytes(Vec<u8>),
}

impl Rank {
    /// The rank of a row at a path, as shown. Uses the row's field for [`SortBy`], and its name.
    pub fn new(sort: Sort, row: &Row<'_>, path: Vec<u8>) -> Rank {
        let key = match sort.by {
            SortBy::Size => Key::Number(i128::from(row.size)),
            SortBy::Mtime => Key::Number(i128::from(row.mtime)),
            SortBy::Name => Key::Bytes(row.name.to_vec()),
            // All equal: then the path decides.
            SortBy::Path if !sort.descending => Key::Number(0),
            SortBy::Path => Key::Bytes(path.clone()),
            SortBy::Like(like) => Key::Number(i128::from(like.units(row))),
        };
        let value = if sort.descending { Value::Down(Reverse(key)) } else { Value::Up(key) };
        Rank { value, path }
    }

    /// The path.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The path.
    pub fn into_path(self) -> Vec<u8> {
        self.path
    }

    /// Memory that it takes besides its own size.
    pub fn memory_bytes(&self) -> usize {
        let (Value::Up(key) | Value::Down(Reverse(key))) = &self.value;
        let key = if let Key::Bytes(bytes) = key { bytes.len() } else { 0 };
        self.path.len() + key
    }
}

impl Ranking {
    /// An order, and the limit on the first matches. Without a limit, all are kept.
    pub(crate) fn new(sort: Sort, limit: Option<u64>) -> Ranking {
        Ranking::within(ORDERED_BYTES_MAX, sort, limit)
    }

    fn within(bytes_max: usize, sort: Sort, limit: Option<u64>) -> Ranking {
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Ranking { sort, limit, bytes_max, kept: BinaryHeap::new(), bytes: 0, end: None }
    }

    /// The fields of rows that an order depends on.
    pub(crate) fn fields(sort: Sort) -> Fields {
        match sort.by {
            SortBy::Size => Fields::of(Attribute::Size),
            SortBy::Mtime => Fields::of(Attribute::Mtime),
            SortBy::Name | SortBy::Path => Fields::NAME,
            SortBy::Like(_) => Like::FIELDS.and(Fields::NAME),
        }
    }

    /// Adds a match. `tree` is that of its subvolume. The caller must emit the kept matches before
    /// the next one if it [`is_full`](Ranking::is_full).
    pub(crate) fn add(&mut self, found: &Match<'_>, tree: TreeId) {
        let rank = Rank::new(self.sort, found.row, found.path.to_vec());
        if self.end.as_ref().is_some_and(|end| rank >= *end) {
            return;
        }
        if self.kept.len() >= self.limit {
            match self.kept.peek() {
                Some(last) if rank < last.rank => {}
                _ => return,
            }
            if let Some(last) = self.kept.pop() {
                self.bytes -= last.memory_bytes();
            }
        }
        let (row, depth, subvolume) = (found.row.to_buf(), found.depth, found.subvolume);
        let ranked = Ranked { rank, row, depth, subvolume, tree };
        self.bytes += ranked.memory_bytes();
        self.kept.push(ranked);
    }

    /// Whether kept matches exceed the bound.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes > self.bytes_max
    }

    /// For a search of the nearest rows with enough found: the distance of the farthest of them.
    /// Farther rows are not among the first.
    pub(crate) fn farthest(&self) -> Option<u64> {
        let last = self.kept.peek().filter(|_| self.kept.len() >= self.limit);
        let last = last.map(|last| &last.rank).or(self.end.as_ref())?;
        match (self.sort, &last.value) {
            (Sort { by: SortBy::Like(_), .. }, Value::Up(Key::Number(number))) => {
                u64::try_from(*number).ok()
            }
            _ => None,
        }
    }

    /// Emits the kept matches in order, and keeps none: later ones are another run. Returns their
    /// number, and whether the receiver ended the query.
    pub(crate) fn give(&mut self, records: Records<'_>, emit: Emit<'_>) -> (u64, bool) {
        if self.kept.len() >= self.limit
            && let Some(last) = self.kept.peek()
        {
            self.end = Some(last.rank.clone());
        }
        self.bytes = 0;
        let mut given = 0;
        for ranked in std::mem::take(&mut self.kept).into_sorted_vec() {
            let details = Stored { records: records.of_tree(ranked.tree) };
            let found = Match {
                row: &ranked.row.as_row(),
                path: &ranked.rank.path,
                depth: ranked.depth,
                subvolume: ranked.subvolume,
                details: &details,
            };
            given += 1;
            if emit(&found).is_break() {
                return (given, true);
            }
        }
        (given, false)
    }
}

impl Ranked {
    /// Estimated memory: a heap has capacity for up to twice its contents.
    fn memory_bytes(&self) -> usize {
        let row = self.row.as_row();
        2 * size_of::<Ranked>() + self.rank.memory_bytes() + row.name.len() + row.xattrs.len()
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> Ordering {
        self.rank.cmp(&other.rank)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use format::inode_record::FileKind;
    use store::{Cursor, KeyRange, Read};

    use super::*;
    use crate::assemble::{CARRY_NOTHING, VOLUME};

    /// A store in which nothing is looked up.
    struct Nowhere;

    impl Read for Nowhere {
        fn get_with(&self, _: TreeId, _: &[u8], _: &mut dyn FnMut(&[u8])) -> store::Result<bool> {
            Ok(false)
        }

        fn scan(&self, _: TreeId, _: KeyRange) -> store::Result<Box<dyn Cursor + '_>> {
            unreachable!("nothing is looked for")
        }
    }

    fn row(name: &[u8], size: u64) -> Row<'_> {
        Row {
            directory: 2,
            cookie: 1,
            ino: 3,
            name,
            kind: FileKind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            size,
            allocated: 0,
            entries: 0,
            atime: 0,
            mtime: -(size as i64),
            ctime: 0,
            btime: 0,
            subvolume: 0,
            xattrs: b"",
        }
    }

    /// Kept matches never exceed the bound plus one match, and the first of all runs together are
    /// the first of all.
    #[test]
    fn memory_is_bounded_and_the_first_matches_are_kept() {
        const BOUND: usize = 64 << 10;
        let records = Records { read: &Nowhere, tree: VOLUME, searchable: &CARRY_NOTHING };
        for seed in 0..40 {
            let mut random = fastrand::Rng::with_seed(seed);
            let by = [SortBy::Size, SortBy::Mtime, SortBy::Name, SortBy::Path];
            let sort = Sort { by: by[random.usize(..4)], descending: random.bool() };
            let limit = [None, Some(0), Some(1), Some(30), Some(700)][random.usize(..5)];
            let longest = [20, 2000, 100_000][random.usize(..3)];
            let count = if longest > 2000 { 60 } else { 3000 };
            let mut ranking = Ranking::within(BOUND, sort, limit);
            let (mut all, mut given, mut runs) = (Vec::new(), Vec::new(), 0);
            let mut give = |ranking: &mut Ranking| {
                let mut run: Vec<Rank> = Vec::new();
                ranking.give(records, &mut |found: &Match<'_>| {
                    run.push(Rank::new(sort, found.row, found.path.to_vec()));
                    ControlFlow::Continue(())
                });
                assert!(run.is_sorted(), "seed {seed}: a run is in order");
                given.append(&mut run);
                runs += 1;
            };
            for _ in 0..count {
                let length = random.usize(1..longest);
                let path: Vec<u8> = (0..length).map(|_| random.u8(b'a'..b'c')).collect();
                let row = row(&path[..length.min(3)], random.u64(..50));
                let details = Stored { records };
                let found =
                    Match { row: &row, path: &path, depth: 1, subvolume: 1, details: &details };
                all.push(Rank::new(sort, &row, path.clone()));
                ranking.add(&found, VOLUME);
                let held: usize = ranking.kept.iter().map(Ranked::memory_bytes).sum();
                assert_eq!(held, ranking.bytes, "seed {seed}");
                assert!(held <= BOUND + 3 * longest + 4096, "seed {seed}: {held} bytes are kept");
                if ranking.is_full() {
                    give(&mut ranking);
                }
            }
            give(&mut ranking);
            let wanted = limit.map_or(usize::MAX, |limit| limit as usize);
            all.sort();
            all.truncate(wanted);
            given.sort();
            given.truncate(wanted);
            assert!(all == given, "seed {seed}: {sort:?}, {limit:?}, {runs} runs");
            assert!(limit.is_some() || longest < 2000 || runs > 1, "seed {seed}: {runs} runs");
        }
    }
}
