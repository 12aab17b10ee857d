//! Cursors: a position in a range of keys of a tree, or of a pinned state's.
//!
//! A cursor holds no lock between its moves. It merges a chunk of entries at a time. It first
//! copies the part of the active tree that it needs, so that commits continue while it reads
//! blocks. It seeks to its position again where the chunk ends. A chunk grows while a scan
//! continues.
//!
//! A cursor of the present that visited many deleted keys in a row notes it in the tree as one
//! deleted range (`Tree::note_deleted`). So a queue, whose cursors begin where everything was
//! removed, does not become slower with each removal.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::batch::KEY_BYTES_MAX;
use format::cluster_filter::hash;
use store::{Cursor, Item, KeyRange, Result};

use crate::key::{Direction, Key};
use crate::layer::{Stack, View};
use crate::merge::{From, Merge};
use crate::ranges::OwnedSpan;
use crate::rows::Content;
use crate::run::Caching;
use crate::tree::Tree;

/// Entries of the first chunk, and of the largest chunk.
const CHUNK_ENTRIES: usize = 16;
const CHUNK_ENTRIES_MAX: usize = 512;
/// A cursor notes that it visited so many deleted keys in a row: as many as the first chunk takes
/// of the active tree.
const DELETED_MIN: u64 = CHUNK_ENTRIES as u64;
/// Bytes at which a chunk ends.
const CHUNK_BYTES: usize = 256 << 10;

/// What a cursor walks over.
pub(crate) enum Source {
    Live(Arc<Tree>),
    Pinned(Arc<Stack>),
}

/// The position of a cursor.
enum Position {
    /// Before the least key that is not less than this key.
    Before(Vec<u8>),
    /// On the current entry of the chunk.
    On,
    /// Behind every key of the range.
    End,
}

/// Entries that were merged together, in the direction of the chunk.
struct Chunk {
    direction: Direction,
    bytes: Vec<u8>,
    /// Where each begins, and the lengths of key and value.
    entries: Vec<(usize, usize, usize)>,
    at: usize,
    /// Whether the range ends behind it, in its direction.
    last: bool,
}

impl Chunk {
    fn item(&self, at: usize) -> Item<'_> {
        let (start, key, value) = self.entries[at];
        let (key, value) = self.bytes[start..start + key + value].split_at(key);
        Item { key, value }
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.entries.push((self.bytes.len(), key.len(), value.len()));
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }
}

/// A cursor.
pub(crate) struct TreeCursor {
    source: Source,
    range: KeyRange,
    /// The directory that contains all keys of the range, and its hash.
    prefix: Option<(Vec<u8>, u64)>,
    position: Position,
    chunk: Chunk,
    size: usize,
    /// Keys whose values are read even if they are in a value log.
    wanted: fn(&[u8]) -> bool,
}

impl TreeCursor {
    pub(crate) fn new(source: Source, range: KeyRange, prefix_bytes: usize) -> TreeCursor {
        let position = Position::Before(range.from.clone());
        let chunk = Chunk {
            direction: Direction::Forward,
            bytes: Vec::new(),
            entries: Vec::new(),
            at: 0,
            last: false,
        };
        let prefix = common_prefix(&range, prefix_bytes).map(|prefix| {
            let member = hash(&prefix);
            (prefix, member)
        });
        let wanted = |_: &[u8]| true;
        TreeCursor { source, range, prefix, position, chunk, size: CHUNK_ENTRIES, wanted }
    }

    /// The next entry in a direction.
    fn advance(&mut self, direction: Direction) -> Result<Option<Item<'_>>> {
        let on = matches!(self.position, Position::On);
        if on && self.chunk.direction == direction && self.chunk.at + 1 < self.chunk.entries.len() {
            self.chunk.at += 1;
            return Ok(Some(self.chunk.item(self.chunk.at)));
        }
        let ended = on && self.chunk.direction == direction && self.chunk.last;
        if !ended {
            self.fill(direction)?;
        }
        if ended || self.chunk.entries.is_empty() {
            self.chunk.entries.clear();
            self.position = match direction {
                Direction::Forward => Position::End,
                Direction::Backward => Position::Before(self.range.from.clone()),
            };
            return Ok(None);
        }
        self.chunk.at = 0;
        self.position = Position::On;
        Ok(Some(self.chunk.item(0)))
    }

    /// Fills the chunk from the position on.
    fn fill(&mut self, direction: Direction) -> Result<()> {
        let key = match &self.position {
            Position::Before(key) => Some(key.clone()),
            Position::On => Some(self.chunk.item(self.chunk.at).key.to_vec()),
            Position::End => None,
        };
        if !matches!(self.position, Position::On) || self.chunk.direction != direction {
            self.size = CHUNK_ENTRIES;
        }
        let bound = match (&self.position, direction, key.as_deref()) {
            (Position::Before(_), Direction::Forward, Some(key)) => Bound::Included(key),
            (Position::End, Direction::Forward, _) => {
                self.chunk.entries.clear();
                return Ok(());
            }
            (Position::End, Direction::Backward, _) => end(&self.range),
            (_, _, Some(key)) => Bound::Excluded(key),
            (_, _, None) => unreachable!("only the end has no key"),
        };
        // Built separately: if reading fails the cursor keeps its position.
        let mut chunk =
            Chunk { direction, bytes: Vec::new(), entries: Vec::new(), at: 0, last: false };
        let mut beyond = self.read(bound, &mut chunk)?;
        while let Some(edge) = beyond {
            // The whole chunk was deleted. Passing over the deleted entries behind it takes ever
            // fewer chunks.
            self.size = (self.size * 2).min(CHUNK_ENTRIES_MAX);
            beyond = self.read(Bound::Excluded(&edge), &mut chunk)?;
        }
        self.size = (self.size * 2).min(CHUNK_ENTRIES_MAX);
        self.chunk = chunk;
        Ok(())
    }

    /// Merges entries into a chunk. Nothing is known behind the edge of the copied part of the
    /// active tree, not even whether the range ends. If all inspected entries are tombstones of the
    /// active tree, returns the last of them: the merge continues behind it.
    fn read(&self, bound: Bound<&[u8]>, chunk: &mut Chunk) -> Result<Option<Key>> {
        let direction = chunk.direction;
        let (mut views, mut edge) = (Vec::new(), None);
        let stack = match &self.source {
            Source::Pinned(stack) => Arc::clone(stack),
            Source::Live(tree) => {
                let bounds = match direction {
                    Direction::Forward => (bound, end(&self.range)),
                    Direction::Backward => (Bound::Included(self.range.from.as_slice()), bound),
                };
                let part = tree.part(direction, bounds, self.size)?;
                views.push(View::Memory(Arc::new(part.mem)));
                edge = part.edge;
                part.stack
            }
        };
        for layer in &stack.layers {
            let view = layer.view();
            if let (View::Run(run), Some((prefix, member))) = (&view, &self.prefix)
                && !run.may_have_prefix(prefix, *member)?
            {
                continue;
            }
            views.push(view);
        }
        let from = From { direction, bound, caching: Caching::Keep };
        let mut merge = Merge::new(views.iter(), from)?;
        // Behind the edge the active tree may have more keys, or the same ones.
        let behind = match (direction, edge.as_deref()) {
            (_, Some(edge)) => Bound::Included(edge),
            (Direction::Forward, None) => end(&self.range),
            (Direction::Backward, None) => Bound::Included(self.range.from.as_slice()),
        };
        let (mut deleted, mut visited) = (Vec::new(), 0);
        while chunk.entries.len() < self.size && chunk.bytes.len() < CHUNK_BYTES {
            let more = match merge.advance_to(behind) {
                // What was read before is right; a caller that continues behind it meets the error
                // again.
                Err(_) if !chunk.entries.is_empty() => break,
                more => more?,
            };
            if merge.visited - visited >= DELETED_MIN {
                let before = match chunk.entries.len().checked_sub(1) {
                    Some(at) => Bound::Excluded(chunk.item(at).key),
                    None => bound,
                };
                let after = merge.current().map_or(behind, |(key, _)| Bound::Excluded(key));
                deleted.extend(span(direction, before, after));
            }
            visited = merge.visited;
            if !more {
                chunk.last = edge.is_none();
                break;
            }
            let Some((key, content)) = merge.current() else { unreachable!("it is at an entry") };
            if matches!(content, Content::Far(_) | Content::Unknown(_)) && !(self.wanted)(key) {
                chunk.push(key, &[]);
                continue;
            }
            match content.read(key, &mut |value| chunk.push(key, value)) {
                Err(_) if !chunk.entries.is_empty() => break,
                there => assert!(there?, "tombstones are skipped"),
            }
        }
        if let Source::Live(tree) = &self.source {
            tree.visited.fetch_add(merge.visited, Ordering::Relaxed);
            if !deleted.is_empty() {
                tree.note_deleted(&stack, &deleted);
            }
        }
        let nothing = chunk.entries.is_empty() && !chunk.last;
        Ok(edge.filter(|_| nothing))
    }
}

/// The keys between two bounds that were met in a direction, if they can be written as a range. Its
/// ends must be as short as keys are, because an index with longer ones cannot be read.
fn span(direction: Direction, first: Bound<&[u8]>, last: Bound<&[u8]>) -> Option<OwnedSpan> {
    let (lower, upper) = match direction {
        Direction::Forward => (first, last),
        Direction::Backward => (last, first),
    };
    // The key behind a key.
    let next = |key: &[u8]| (key.len() < KEY_BYTES_MAX).then(|| [key, &[0]].concat());
    let same = |key: &[u8]| (key.len() <= KEY_BYTES_MAX).then(|| key.to_vec());
    let from = match lower {
        Bound::Unbounded => Vec::new(),
        Bound::Included(key) => same(key)?,
        Bound::Excluded(key) => next(key)?,
    };
    let to = match upper {
        Bound::Unbounded => None,
        Bound::Included(key) => Some(next(key)?),
        Bound::Excluded(key) => Some(same(key)?),
    };
    Some((from, to))
}

/// Where a range ends.
fn end(range: &KeyRange) -> Bound<&[u8]> {
    range.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded)
}

/// The directory of a range, if all its keys begin with one.
fn common_prefix(range: &KeyRange, bytes: usize) -> Option<Vec<u8>> {
    let prefix = range.from.get(..bytes).filter(|prefix| !prefix.is_empty())?;
    let end = store::prefix_end(prefix);
    let inside = match (&range.to, &end) {
        (Some(to), Some(end)) => to <= end,
        (_, None) => true,
        (None, Some(_)) => false,
    };
    inside.then(|| prefix.to_vec())
}

impl Cursor for TreeCursor {
    fn next(&mut self) -> Result<Option<Item<'_>>> {
        self.advance(Direction::Forward)
    }

    fn prev(&mut self) -> Result<Option<Item<'_>>> {
        self.advance(Direction::Backward)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.chunk.entries.clear();
        self.position = if self.range.to.as_deref().is_some_and(|to| key >= to) {
            Position::End
        } else {
            Position::Before(key.max(self.range.from.as_slice()).to_vec())
        };
        Ok(())
    }

    fn want_values(&mut self, of: fn(&[u8]) -> bool) {
        self.wanted = of;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_a_noted_range_are_as_short_as_keys() {
        let (short, long) = (&[1; KEY_BYTES_MAX][..], &[1; KEY_BYTES_MAX + 1][..]);
        let noted = |first, last| span(Direction::Forward, first, last);
        let whole = noted(Bound::Included(short), Bound::Excluded(short));
        assert_eq!(whole, Some((short.to_vec(), Some(short.to_vec()))));
        assert_eq!(noted(Bound::Unbounded, Bound::Unbounded), Some((Vec::new(), None)));
        let next = noted(Bound::Excluded(&short[1..]), Bound::Unbounded);
        assert_eq!(next, Some(([&short[1..], &[0]].concat(), None)));
        for bound in [Bound::Included(long), Bound::Excluded(long), Bound::Excluded(short)] {
            assert_eq!(noted(bound, Bound::Unbounded), None, "{bound:?}");
        }
        for bound in [Bound::Included(long), Bound::Excluded(long), Bound::Included(short)] {
            assert_eq!(noted(Bound::Unbounded, bound), None, "{bound:?}");
        }
    }
}
