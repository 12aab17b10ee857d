//! Collects rows to sort them: rows of several paths, of a daemon that does not sort, or of one
//! that returns them in several runs. With a limit, at most that many rows are kept.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::rc::Rc;

use search::{Rank, Sort, last_name};
use wire::{Attr, Failure, FailureKind, Found, Kind};

use super::like;
use crate::failure::Result;
use crate::output;

/// Approximate bytes of collected rows: a million and more, for which the caller's machine has
/// memory beside other programs.
const BYTES_MAX: usize = 1 << 30;

/// The attributes of a row when none were requested.
pub(crate) const NOTHING: Attr = Attr {
    node: 0,
    kind: Kind::File,
    mode: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    size: 0,
    blocks: 0,
    atime: 0,
    mtime: 0,
    ctime: 0,
    btime: 0,
};

/// Receives a row: the index of the typed path, the path where the search began, and the row with
/// its whole path.
pub(crate) type Take<'a> = &'a mut dyn FnMut(usize, &[u8], &Found) -> Result<()>;

/// The first rows of those seen so far.
pub(crate) struct Ordered {
    sort: Sort,
    limit: usize,
    bytes_max: usize,
    /// The last of the kept rows is on top.
    kept: BinaryHeap<Waiting>,
    /// Approximate memory of those rows.
    bytes: usize,
}

/// A collected row.
struct Waiting {
    rank: Rank,
    place: usize,
    start: Rc<[u8]>,
    /// A row without its path, which is in the rank.
    found: Found,
}

impl Ordered {
    /// Creates a collection with an order and a limit on the number of first rows. Without a limit
    /// it keeps all.
    pub(crate) fn new(sort: Sort, limit: Option<u64>) -> Ordered {
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Ordered { sort, limit, bytes_max: BYTES_MAX, kept: BinaryHeap::new(), bytes: 0 }
    }

    /// Adds a row with its whole path. Fails if the kept rows take too much memory.
    pub(crate) fn add(&mut self, place: usize, start: &Rc<[u8]>, mut found: Found) -> Result<()> {
        let path = std::mem::take(&mut found.path.0);
        let name = last_name(&path).to_vec();
        let row = like::row(found.attr.as_ref().unwrap_or(&NOTHING), &name);
        let rank = Rank::new(self.sort, &row, path);
        let waiting = Waiting { rank, place, start: Rc::clone(start), found };
        if self.kept.len() >= self.limit {
            match self.kept.peek() {
                Some(last) if waiting < *last => {}
                _ => return Ok(()),
            }
            if let Some(last) = self.kept.pop() {
                self.bytes -= last.memory_bytes();
            }
        }
        self.bytes += waiting.memory_bytes();
        self.kept.push(waiting);
        if self.bytes > self.bytes_max { Err(self.too_many()) } else { Ok(()) }
    }

    fn too_many(&self) -> Failure {
        let rows = output::number(self.kept.len() as u64);
        let message = format!("{rows} rows are too many to sort in memory");
        let hint = "limit the rows with --limit, narrow the query, or pipe what \
                    -printf prints to sort, which orders in files";
        Failure::new(FailureKind::Invalid, message).hint(hint)
    }

    /// Passes the rows on in order.
    pub(crate) fn give(self, take: Take<'_>) -> Result<()> {
        for Waiting { rank, place, start, mut found } in self.kept.into_sorted_vec() {
            found.path.0 = rank.into_path();
            take(place, &start, &found)?;
        }
        Ok(())
    }
}

impl Waiting {
    /// Approximate memory: a heap has capacity for up to twice its elements.
    fn memory_bytes(&self) -> usize {
        let target = self.found.target.as_ref().map_or(0, |target| target.0.len());
        let fired = size_of_val(&self.found.fired[..]);
        2 * size_of::<Waiting>() + self.rank.memory_bytes() + target + fired
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> Ordering {
        self.rank.cmp(&other.rank).then_with(|| self.place.cmp(&other.place))
    }
}

#[cfg(test)]
mod tests {
    use search::SortBy;

    use super::*;

    fn found(path: &[u8], size: u64) -> Found {
        let attr = Some(Attr { size, ..NOTHING });
        Found { path: path.into(), depth: 1, fired: Vec::new(), attr, target: None }
    }

    /// The paths and sizes of a list of rows, in output order.
    fn given(ordered: Ordered) -> Vec<(Vec<u8>, u64)> {
        let mut rows = Vec::new();
        let gave = ordered.give(&mut |_, start, found| {
            assert_eq!(start, b"/v");
            rows.push((found.path.0.clone(), found.attr.map_or(0, |attr| attr.size)));
            Ok(())
        });
        assert!(gave.is_ok());
        rows
    }

    #[test]
    fn a_limit_keeps_only_the_first_rows() {
        let seed = 11;
        let mut random = fastrand::Rng::with_seed(seed);
        let start: Rc<[u8]> = b"/v"[..].into();
        for descending in [false, true] {
            let sort = Sort { by: SortBy::Size, descending };
            let mut ordered = Ordered::new(sort, Some(100));
            let mut all = Vec::new();
            for number in 0..20_000_u32 {
                let (path, size) = (format!("/v/{number}").into_bytes(), random.u64(..5000));
                assert!(ordered.add(0, &start, found(&path, size)).is_ok());
                assert!(ordered.kept.len() <= 100 && ordered.bytes < 100 << 10, "seed {seed}");
                all.push((path, size));
            }
            all.sort_by_key(|(path, size)| {
                (if descending { -(*size as i64) } else { *size as i64 }, path.clone())
            });
            all.truncate(100);
            assert_eq!(given(ordered), all, "seed {seed}");
        }
    }

    #[test]
    fn rows_beyond_the_bound_are_refused_with_a_remedy() {
        let start: Rc<[u8]> = b"/v"[..].into();
        let sort = Sort { by: SortBy::Path, descending: true };
        let ordered = Ordered::new(sort, None);
        let mut ordered = Ordered { bytes_max: 1 << 20, ..ordered };
        let refused = (0..10_000).find_map(|number| {
            let path = format!("/v/{number}").into_bytes();
            ordered.add(0, &start, found(&path, 0)).err()
        });
        let refused = refused.expect("ten thousand rows are more than a mebibyte");
        assert_eq!(refused.kind, FailureKind::Invalid);
        assert!(refused.message.contains("too many to sort"), "{}", refused.message);
        assert!(refused.hint.contains("--limit"), "{}", refused.hint);
    }
}
