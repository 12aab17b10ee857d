//! Matches in order: the first so many of them, kept in a heap while the rows go by.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use store::TreeId;

use crate::assemble::Records;
use crate::cluster::{Fields, Like};
use crate::condition::Attribute;
use crate::request::{Emit, Match, Sort, SortBy};
use crate::row::RowBuf;
use crate::stored::Stored;

/// The first matches of those seen so far.
pub(crate) struct Ranking {
    sort: Sort,
    limit: usize,
    /// The last of those kept is on top.
    kept: BinaryHeap<Ranked>,
}

struct Ranked {
    key: Rank,
    row: RowBuf,
    depth: u32,
    subvolume: u64,
    tree: TreeId,
}

/// Where a match stands: its value, and among equal ones its path.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    value: Value,
    path: Vec<u8>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Up(Key),
    Down(Reverse<Key>),
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Number(i128),
    Bytes(Vec<u8>),
}

impl Ranking {
    /// An order, and how many of the first are wanted. Without a limit all are kept.
    pub(crate) fn new(sort: Sort, limit: Option<u64>) -> Ranking {
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Ranking { sort, limit, kept: BinaryHeap::new() }
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

    /// Adds a match. `tree` is that of its subvolume.
    pub(crate) fn add(&mut self, found: &Match<'_>, tree: TreeId) {
        let key = Rank { value: self.value(found), path: found.path.to_vec() };
        if self.kept.len() >= self.limit {
            match self.kept.peek() {
                Some(last) if key < last.key => {
                    self.kept.pop();
                }
                _ => return,
            }
        }
        let (row, depth, subvolume) = (found.row.to_buf(), found.depth, found.subvolume);
        self.kept.push(Ranked { key, row, depth, subvolume, tree });
    }

    /// Where nearest rows are wanted and enough are there: the distance of the farthest of them.
    /// What is farther is not among the first.
    pub(crate) fn farthest(&self) -> Option<u64> {
        let last = self.kept.peek().filter(|_| self.kept.len() >= self.limit)?;
        match (self.sort, &last.key.value) {
            (Sort { by: SortBy::Like(_), .. }, Value::Up(Key::Number(number))) => {
                u64::try_from(*number).ok()
            }
            _ => None,
        }
    }

    fn value(&self, found: &Match<'_>) -> Value {
        let key = match self.sort.by {
            SortBy::Size => Key::Number(i128::from(found.row.size)),
            SortBy::Mtime => Key::Number(i128::from(found.row.mtime)),
            SortBy::Name => Key::Bytes(found.row.name.to_vec()),
            SortBy::Path => Key::Bytes(found.path.to_vec()),
            SortBy::Like(like) => Key::Number(i128::from(like.units(found.row))),
        };
        if self.sort.descending { Value::Down(Reverse(key)) } else { Value::Up(key) }
    }

    /// Gives the matches out in order; how many, and whether whoever takes them had enough.
    pub(crate) fn give(self, records: Records<'_>, emit: Emit<'_>) -> (u64, bool) {
        let mut given = 0;
        for ranked in self.kept.into_sorted_vec() {
            let details = Stored { records: records.of_tree(ranked.tree) };
            let found = Match {
                row: &ranked.row.as_row(),
                path: &ranked.key.path,
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

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.key == other.key
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
        self.key.cmp(&other.key)
    }
}
