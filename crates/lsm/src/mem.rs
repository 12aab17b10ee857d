//! One in-memory tree of an index: the newest entries, and the ranges they delete from below.
//!
//! An entry holds a value or, as a tombstone, nothing. The entries of a tree in memory take
//! precedence over its own ranges: a key that was put after its range was deleted exists.
//!
//! A value may be unknown: the log adds to a value that could not be read when the log was replayed
//! (`recover`). Such a key has an entry for later changes, and a reader gets the cause as an error.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;

use store::{Error, Result};

use crate::key::Key;
use crate::ranges::Ranges;

/// A value; none is a tombstone.
pub(crate) type Value = Option<Arc<[u8]>>;

/// Memory of an entry in addition to its bytes: a share of a node, and the head of its value.
const ENTRY_BYTES: usize = 88;

/// Ranges from which on no more are noted. A run keeps its ranges in memory, tombstones on disk.
const NOTED_MAX: usize = 4096;

/// What one layer knows of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known<T> {
    /// Its value.
    Value(T),
    /// That it is deleted.
    Deleted,
    /// Nothing: look in the layer below.
    Nothing,
}

/// An in-memory tree.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mem {
    pub(crate) entries: BTreeMap<Key, Value>,
    pub(crate) ranges: Ranges,
    bytes: usize,
    /// Keys with unknown values, and the causes. A store that takes changes has none.
    unknown: Option<Arc<BTreeMap<Key, Error>>>,
}

/// Whether there is anything below that a deletion must hide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Below {
    Nothing,
    Layers,
}

impl Mem {
    /// A tree of some of its entries, which ascend, and of everything else that it holds.
    pub(crate) fn part(&self, entries: Vec<(Key, Value)>) -> Mem {
        let (ranges, unknown) = (self.ranges.clone(), self.unknown.clone());
        Mem { entries: entries.into_iter().collect(), ranges, bytes: 0, unknown }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.ranges.is_empty()
    }

    /// Entries and ranges, as what copying it costs.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() + self.ranges.len()
    }

    /// Estimated memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What it knows of a key.
    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Result<Known<&[u8]>> {
        Ok(match self.entries.get(key) {
            Some(Some(value)) => match self.why_unknown(key) {
                None => Known::Value(value),
                Some(why) => return Err(why.clone()),
            },
            Some(None) => Known::Deleted,
            None if self.ranges.covering(key).is_some() => Known::Deleted,
            None => Known::Nothing,
        })
    }

    /// Why the value of a key is unknown, if it is.
    #[inline]
    pub(crate) fn why_unknown(&self, key: &[u8]) -> Option<&Error> {
        self.unknown.as_ref()?.get(key)
    }

    /// Why some value is unknown, if one is.
    pub(crate) fn any_unknown(&self) -> Option<&Error> {
        self.unknown.as_ref()?.values().next()
    }

    /// Records that a key has a value which cannot be known.
    pub(crate) fn put_unknown(&mut self, key: &[u8], why: Error) {
        self.set(key, Some(&[]));
        Arc::make_mut(self.unknown.get_or_insert_default()).insert(Key::from(key), why);
    }

    /// A key gets another value, or none.
    #[inline]
    fn known_again(&mut self, key: &[u8]) {
        if let Some(unknown) = &mut self.unknown {
            Arc::make_mut(unknown).remove(key);
        }
    }

    /// Sets a key's value.
    #[inline]
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.set(key, Some(value));
    }

    /// Removes a key.
    pub(crate) fn delete(&mut self, key: &[u8], below: Below) {
        // What a range deletes below needs no tombstone.
        if below == Below::Layers && self.ranges.covering(key).is_none() {
            self.set(key, None);
        } else if let Some((key, value)) = self.entries.remove_entry(key) {
            self.bytes -= entry_bytes(&key, value.as_deref());
            self.known_again(&key);
        }
    }

    #[inline]
    fn set(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.known_again(key);
        match self.entries.entry(Key::from(key)) {
            Entry::Occupied(mut slot) => {
                let slot = slot.get_mut();
                self.bytes -= slot.as_ref().map_or(0, |old| old.len());
                self.bytes += value.map_or(0, <[u8]>::len);
                match (slot.as_mut().and_then(Arc::get_mut), value) {
                    (Some(old), Some(new)) if old.len() == new.len() => old.copy_from_slice(new),
                    _ => *slot = value.map(Arc::from),
                }
            }
            Entry::Vacant(slot) => {
                self.bytes += entry_bytes(slot.key(), value);
                slot.insert(value.map(Arc::from));
            }
        }
    }

    /// Removes all keys of a range; without an end the range extends to the last key.
    pub(crate) fn delete_range(&mut self, from: &[u8], to: Option<&[u8]>, below: Below) {
        if to.is_some_and(|to| to <= from) {
            return;
        }
        let bounds = (Bound::Included(from), to.map_or(Bound::Unbounded, Bound::Excluded));
        let gone: Vec<Key> =
            self.entries.range::<[u8], _>(bounds).map(|(key, _)| key.clone()).collect();
        for key in gone {
            self.delete(&key, Below::Nothing);
        }
        if below == Below::Layers {
            self.ranges.add(from, to);
            self.bytes += from.len() + to.map_or(0, <[u8]>::len) + ENTRY_BYTES;
        }
    }

    /// How many entries and ranges begin in some ranges, counted up to a bound.
    pub(crate) fn count_within(&self, ranges: &Ranges, most: usize) -> usize {
        let mut count = 0;
        for (from, to) in ranges.iter() {
            let bounds = (Bound::Included(from), to.map_or(Bound::Unbounded, Bound::Excluded));
            count += self.entries.range::<[u8], _>(bounds).take(most - count).count();
            count += self.ranges.beginning_in(bounds).take(most - count).count();
            if count == most {
                break;
            }
        }
        count
    }

    /// Replaces the tombstones of a range in which nothing exists, below neither, by one range.
    /// Changes nothing if the tree has a value there, or very many ranges. A range takes no more
    /// memory than two tombstones, and replaces at least so many. So a reader adds nothing to what
    /// the next checkpoint needs.
    pub(crate) fn join_tombstones(&mut self, from: &[u8], to: Option<&[u8]>) {
        if self.would_join(from, to) {
            self.delete_range(from, to, Below::Layers);
        }
    }

    /// Whether a range has at least two tombstones and no value, and may be noted.
    pub(crate) fn would_join(&self, from: &[u8], to: Option<&[u8]>) -> bool {
        if to.is_some_and(|to| to <= from) || self.ranges.len() >= NOTED_MAX {
            return false;
        }
        let bounds = (Bound::Included(from), to.map_or(Bound::Unbounded, Bound::Excluded));
        let mut tombstones = 0;
        for (_, value) in self.entries.range::<[u8], _>(bounds) {
            if value.is_some() {
                return false;
            }
            tombstones += 1;
        }
        tombstones >= 2
    }

    /// Merges newer content, as if it had been written here.
    pub(crate) fn absorb(&mut self, newer: Mem, below: Below) {
        for (from, to) in newer.ranges.iter() {
            self.delete_range(from, to, below);
        }
        for (key, value) in newer.entries {
            match value {
                None => self.delete(&key, below),
                Some(value) => {
                    self.known_again(&key);
                    let bytes = entry_bytes(&key, Some(&value));
                    self.bytes += bytes;
                    let length = value.len();
                    if let Some(old) = self.entries.insert(key, Some(value)) {
                        // The key is the same.
                        self.bytes -= bytes - length + old.map_or(0, |old| old.len());
                    }
                }
            }
        }
        for (key, why) in newer.unknown.iter().flat_map(|unknown| &**unknown) {
            let unknown = Arc::make_mut(self.unknown.get_or_insert_default());
            unknown.insert(key.clone(), why.clone());
        }
    }
}

fn entry_bytes(key: &Key, value: Option<&[u8]>) -> usize {
    key.heap_bytes() + value.map_or(0, <[u8]>::len) + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use store::Error;

    use super::{Below, Known, Mem, NOTED_MAX};

    fn get<'m>(mem: &'m Mem, key: &[u8]) -> Known<&'m [u8]> {
        mem.get(key).expect("its value is known")
    }

    #[test]
    fn tombstones_are_kept_only_above_older_entries() {
        let mut mem = Mem::default();
        mem.put(b"a", b"1");
        mem.delete(b"a", Below::Nothing);
        mem.delete_range(b"a", Some(b"z"), Below::Nothing);
        assert!(mem.is_empty());
        assert_eq!(mem.bytes(), 0);
        mem.put(b"a", b"1");
        mem.put(b"c", b"2");
        mem.delete(b"a", Below::Layers);
        assert_eq!(get(&mem, b"a"), Known::Deleted);
        mem.delete_range(b"b", Some(b"d"), Below::Layers);
        assert_eq!((get(&mem, b"c"), get(&mem, b"d")), (Known::Deleted, Known::Nothing));
        mem.put(b"c", b"3");
        assert_eq!(get(&mem, b"c"), Known::Value(&b"3"[..]));
    }

    #[test]
    fn tombstones_become_a_range_only_where_nothing_exists() {
        let mut mem = Mem::default();
        for key in 0..10_u8 {
            mem.delete(&[key], Below::Layers);
        }
        mem.put(&[5], b"");
        let bytes = mem.bytes();
        mem.join_tombstones(&[3], Some(&[6]));
        mem.join_tombstones(&[9], None);
        mem.join_tombstones(&[4], Some(&[1]));
        assert_eq!((mem.len(), mem.bytes()), (10, bytes), "a value, one tombstone, no keys");
        mem.join_tombstones(&[0], Some(&[5]));
        assert!(mem.len() == 6 && mem.bytes() < bytes);
        assert!((0..5).all(|key| get(&mem, &[key]) == Known::Deleted));
        // What comes and goes in the range leaves nothing; outside of it a tombstone.
        mem.put(&[2], b"again");
        mem.delete(&[2], Below::Layers);
        mem.delete(&[5], Below::Layers);
        assert!(mem.len() == 6 && get(&mem, &[2]) == Known::Deleted);
        assert_eq!((get(&mem, &[5]), get(&mem, &[10])), (Known::Deleted, Known::Nothing));
    }

    #[test]
    fn ranges_that_are_noted_are_bounded() {
        let mut mem = Mem::default();
        for number in 0..NOTED_MAX as u32 + 10 {
            let key = |at| [&number.to_be_bytes()[..], &[at]].concat();
            mem.delete(&key(1), Below::Layers);
            mem.delete(&key(2), Below::Layers);
            mem.join_tombstones(&key(1), Some(&key(3)));
        }
        assert_eq!((mem.ranges.len(), mem.entries.len()), (NOTED_MAX, 20));
    }

    #[test]
    fn an_unknown_value_becomes_known_when_it_is_set() {
        let unknown = || {
            let mut mem = Mem::default();
            mem.put_unknown(b"a", Error::RunTooLong);
            assert!(mem.get(b"a").is_err() && mem.any_unknown().is_some() && !mem.is_empty());
            mem
        };
        let mut put = unknown();
        put.put(b"a", b"");
        assert_eq!(get(&put, b"a"), Known::Value(&b""[..]));
        let (mut deleted, mut gone) = (unknown(), unknown());
        deleted.delete(b"a", Below::Layers);
        assert_eq!(get(&deleted, b"a"), Known::Deleted);
        gone.delete_range(b"a", None, Below::Nothing);
        assert!(gone.is_empty() && gone.bytes() == 0);
        for mem in [put, deleted, gone] {
            assert!(mem.any_unknown().is_none());
        }
    }

    #[test]
    fn absorbing_equals_writing() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let below = if random.bool() { Below::Layers } else { Below::Nothing };
            let (mut whole, mut parts) = (Mem::default(), [Mem::default(), Mem::default()]);
            for part in &mut parts {
                for _ in 0..20 {
                    let (key, other) = ([random.u8(0..20)], [random.u8(0..20)]);
                    // The newer tree does not know that nothing is below both.
                    match random.u8(0..5) {
                        0 => {
                            whole.delete(&key, below);
                            part.delete(&key, Below::Layers);
                        }
                        1 => {
                            whole.delete_range(&key, Some(&other), below);
                            part.delete_range(&key, Some(&other), Below::Layers);
                        }
                        2 => {
                            whole.put_unknown(&key, Error::RunTooLong);
                            part.put_unknown(&key, Error::RunTooLong);
                        }
                        _ => {
                            whole.put(&key, &other);
                            part.put(&key, &other);
                        }
                    }
                }
            }
            let [mut older, newer] = parts;
            older.absorb(newer, Below::Layers);
            for key in 0..20 {
                let (found, expected) = (older.get(&[key]), whole.get(&[key]));
                let same = match (&found, &expected) {
                    (Ok(found), Ok(Known::Nothing)) if below == Below::Nothing => {
                        matches!(found, Known::Nothing | Known::Deleted)
                    }
                    (Ok(found), Ok(expected)) => found == expected,
                    (found, expected) => found.is_err() && expected.is_err(),
                };
                assert!(same, "seed {seed}, key {key}: {found:?}, expected {expected:?}");
            }
        }
    }
}
