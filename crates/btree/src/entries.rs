//! Sorted keys with short values, packed: the in-memory content of a node.
//!
//! The prefix that all keys share is kept once (`prefix`). The next eight bytes of each
//! key are kept as a number in `heads`. So a search touches one dense array and hardly ever a key.
//! Keys (without the prefix) and values are in one `heap`; `slots` locates them. No entry has an
//! allocation of its own. Invariants: keys ascend strictly; `heads` and `slots` have one element an
//! entry; `weight` is the sum of [`entry_weight`] with whole keys. So the weight does not depend on
//! the prefix and is never less than the encoded size.

use std::cmp::Ordering;

/// Weight of an entry beside its key and value: an upper bound of their encoded lengths.
const ENTRY_OVERHEAD: usize = 4;
/// Spare capacity when something has to grow: one part in this many of the size. Nodes are
/// bounded, so doubling, which makes unbounded growth cheap, would only hold memory that others
/// could use.
const GROWTH_SHARE: usize = 8;
/// Marks a value that is an index into the leaf's table of overflow cells.
const FLAG: u16 = 0x8000;

/// Weight of an entry: not less than its encoded size.
pub(crate) fn entry_weight(key: usize, value: usize) -> usize {
    key + value + ENTRY_OVERHEAD
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    offset: u32,
    /// Length of the key without the prefix.
    key: u16,
    /// Length of the value, and [`FLAG`].
    value: u16,
}

impl Slot {
    fn value_len(self) -> usize {
        usize::from(self.value & !FLAG)
    }
}

/// A value, and whether it is flagged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) flagged: bool,
}

/// Sorted keys with values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entries {
    prefix: Vec<u8>,
    heads: Vec<u64>,
    slots: Vec<Slot>,
    heap: Vec<u8>,
    garbage: usize,
    weight: usize,
}

/// The first eight bytes as a number that sorts like them, zeros behind a shorter string.
#[inline]
fn head_of(suffix: &[u8]) -> u64 {
    if let Some(head) = suffix.first_chunk::<8>() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; 8];
    head[..suffix.len()].copy_from_slice(suffix);
    u64::from_be_bytes(head)
}

/// Reserves capacity for `more` elements, and a little more.
fn grow<T>(vec: &mut Vec<T>, more: usize) {
    vec.reserve_exact(more.max(4) + vec.len() / GROWTH_SHARE);
}

fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Entries {
    /// Empty, with capacity for `entries` of `bytes` together, whose keys will share `prefix`.
    pub(crate) fn with_capacity(prefix: &[u8], entries: usize, bytes: usize) -> Entries {
        Entries {
            prefix: prefix.to_vec(),
            heads: Vec::with_capacity(entries),
            slots: Vec::with_capacity(entries),
            heap: Vec::with_capacity(bytes),
            garbage: 0,
            weight: 0,
        }
    }

    /// A copy with the same spare capacity, for a caller that is about to insert: a plain copy
    /// would be copied once more for that.
    pub(crate) fn copy_with_spare(&self) -> Entries {
        fn copy<T: Copy>(list: &Vec<T>) -> Vec<T> {
            let mut copy = Vec::with_capacity(list.capacity());
            copy.extend_from_slice(list);
            copy
        }
        Entries {
            prefix: self.prefix.clone(),
            heads: copy(&self.heads),
            slots: copy(&self.slots),
            heap: copy(&self.heap),
            ..*self
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    /// Memory held, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.heap.capacity() + 16 * self.slots.capacity()
    }

    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The key of an entry without the prefix.
    #[inline]
    pub(crate) fn suffix(&self, at: usize) -> &[u8] {
        let slot = self.slots[at];
        let start = slot.offset as usize;
        &self.heap[start..start + usize::from(slot.key)]
    }

    /// The value of an entry.
    #[inline]
    pub(crate) fn value(&self, at: usize) -> Cell<'_> {
        let slot = self.slots[at];
        let start = slot.offset as usize + usize::from(slot.key);
        Cell { bytes: &self.heap[start..start + slot.value_len()], flagged: slot.value & FLAG != 0 }
    }

    /// The value of an entry, to be changed in place.
    pub(crate) fn value_mut(&mut self, at: usize) -> &mut [u8] {
        let slot = self.slots[at];
        let start = slot.offset as usize + usize::from(slot.key);
        &mut self.heap[start..start + slot.value_len()]
    }

    /// Appends an entry's whole key to `out`.
    pub(crate) fn key_to(&self, at: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        out.extend_from_slice(self.suffix(at));
    }

    /// An entry's whole key.
    pub(crate) fn key(&self, at: usize) -> Vec<u8> {
        let mut key = Vec::new();
        self.key_to(at, &mut key);
        key
    }

    /// Whether a key equals the key of another set of entries.
    #[inline]
    pub(crate) fn same_key(&self, at: usize, other: &Entries, other_at: usize) -> bool {
        if self.prefix == other.prefix {
            return self.heads[at] == other.heads[other_at]
                && self.suffix(at) == other.suffix(other_at);
        }
        let (one, two) = (self.suffix(at), other.suffix(other_at));
        self.prefix.len() + one.len() == other.prefix.len() + two.len()
            && self.prefix.iter().chain(one).eq(other.prefix.iter().chain(two))
    }

    /// Weight of one entry.
    pub(crate) fn weight_of(&self, at: usize) -> usize {
        let slot = self.slots[at];
        entry_weight(self.prefix.len() + usize::from(slot.key), slot.value_len())
    }

    /// Where the key is, or where it would be inserted.
    #[inline]
    pub(crate) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let Some(suffix) = key.strip_prefix(self.prefix.as_slice()) else {
            return Err(if key < self.prefix.as_slice() { 0 } else { self.len() });
        };
        let head = head_of(suffix);
        let mut low = self.heads.partition_point(|&other| other < head);
        if low == self.heads.len() || self.heads[low] != head {
            return Err(low);
        }
        let mut high = low + 1;
        if high < self.heads.len() && self.heads[high] == head {
            high += self.heads[high..].partition_point(|&other| other == head);
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.suffix(middle).cmp(suffix) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// How many keys are not greater than `key`.
    #[inline]
    pub(crate) fn rank(&self, key: &[u8]) -> usize {
        match self.search(key) {
            Ok(at) => at + 1,
            Err(at) => at,
        }
    }

    /// How many keys are less than `key`.
    pub(crate) fn rank_below(&self, key: &[u8]) -> usize {
        match self.search(key) {
            Ok(at) | Err(at) => at,
        }
    }

    /// Inserts a key that is not there, at the place that `search` gave.
    pub(crate) fn insert(&mut self, at: usize, key: &[u8], value: Cell<'_>) {
        if self.slots.is_empty() {
            self.prefix.clear();
            self.prefix.extend_from_slice(key);
        } else if !key.starts_with(&self.prefix) {
            let kept = common(key, &self.prefix);
            self.repack(kept);
        }
        let suffix = &key[self.prefix.len()..];
        self.grow_buffer(suffix.len() + value.bytes.len());
        if self.slots.len() == self.slots.capacity() {
            self.grow_all(suffix.len() + value.bytes.len());
        }
        let slot = self.append(suffix, value);
        self.heads.insert(at, head_of(suffix));
        self.slots.insert(at, slot);
        self.weight += entry_weight(key.len(), value.bytes.len());
    }

    /// Appends an entry behind all others; `suffix` is its key without this prefix. For decoding
    /// and for moving.
    pub(crate) fn push_suffix(&mut self, suffix: &[u8], value: Cell<'_>) {
        let slot = self.append(suffix, value);
        self.heads.push(head_of(suffix));
        self.slots.push(slot);
        self.weight += entry_weight(self.prefix.len() + suffix.len(), value.bytes.len());
    }

    fn append(&mut self, suffix: &[u8], value: Cell<'_>) -> Slot {
        let offset = self.heap.len() as u32;
        self.heap.extend_from_slice(suffix);
        self.heap.extend_from_slice(value.bytes);
        let flag = if value.flagged { FLAG } else { 0 };
        Slot { offset, key: suffix.len() as u16, value: value.bytes.len() as u16 | flag }
    }

    /// Replaces a value.
    pub(crate) fn set_value(&mut self, at: usize, value: Cell<'_>) {
        let slot = self.slots[at];
        let (old, new) = (slot.value_len(), value.bytes.len());
        let flag = if value.flagged { FLAG } else { 0 };
        self.weight = self.weight + new - old;
        if new <= old {
            self.slots[at].value = new as u16 | flag;
            self.value_mut(at).copy_from_slice(value.bytes);
            self.garbage += old - new;
            return;
        }
        let suffix = self.suffix(at).to_vec();
        self.garbage += suffix.len() + old;
        // A compaction that still counts the old bytes must not move them.
        self.slots[at] = Slot { key: 0, value: 0, ..slot };
        self.grow_buffer(suffix.len() + new);
        self.slots[at] = self.append(&suffix, value);
        self.heads[at] = head_of(&suffix);
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, at: usize) {
        self.weight -= self.weight_of(at);
        let slot = self.slots.remove(at);
        self.heads.remove(at);
        self.garbage += usize::from(slot.key) + slot.value_len();
        if self.slots.is_empty() {
            self.heap.clear();
            self.garbage = 0;
        }
    }

    /// Removes the entries in `from..to`.
    pub(crate) fn remove_range(&mut self, from: usize, to: usize) {
        for at in from..to {
            self.weight -= self.weight_of(at);
            let slot = self.slots[at];
            self.garbage += usize::from(slot.key) + slot.value_len();
        }
        self.slots.drain(from..to);
        self.heads.drain(from..to);
    }

    /// Compacts the heap instead of growing it, if there is enough garbage.
    fn grow_buffer(&mut self, need: usize) {
        let full = self.heap.len() + need > self.heap.capacity();
        if full && self.garbage >= need.max(self.heap.len() / 8) {
            self.repack(self.prefix.len());
        } else if full {
            self.grow_all(need);
        }
    }

    /// Reserves capacity for one more entry, and a little more, in all three arrays at once. Each
    /// time the memory of a node changes, counters that all threads share must be updated.
    fn grow_all(&mut self, need: usize) {
        grow(&mut self.heap, need);
        grow(&mut self.heads, 1);
        grow(&mut self.slots, 1);
    }

    /// Rebuilds the heap with a prefix of `prefix` bytes, which is a prefix of the present one.
    fn repack(&mut self, prefix: usize) {
        let moved = self.prefix.split_off(prefix);
        let bytes = self.heap.len() - self.garbage + moved.len() * (self.slots.len() + 1);
        let mut heap = Vec::with_capacity(bytes.max(self.heap.capacity()));
        for (slot, head) in self.slots.iter_mut().zip(&mut self.heads) {
            let start = slot.offset as usize;
            let end = start + usize::from(slot.key) + slot.value_len();
            slot.offset = heap.len() as u32;
            slot.key += moved.len() as u16;
            heap.extend_from_slice(&moved);
            heap.extend_from_slice(&self.heap[start..end]);
            let start = slot.offset as usize;
            *head = head_of(&heap[start..start + usize::from(slot.key)]);
        }
        self.heap = heap;
        self.garbage = 0;
    }

    /// A copy of the entries in `from..to`, with the longest prefix that they share, and spare
    /// capacity. `map` may exchange flagged values.
    pub(crate) fn extract(&self, from: usize, to: usize) -> Entries {
        let count = to - from;
        if count == 0 {
            return Entries::default();
        }
        let more = common(self.suffix(from), self.suffix(to - 1));
        let prefix = [self.prefix.as_slice(), &self.suffix(from)[..more]].concat();
        let slots = &self.slots[from..to];
        let bytes: usize =
            slots.iter().map(|slot| usize::from(slot.key) - more + slot.value_len()).sum();
        let (entries, bytes) = (count + count / GROWTH_SHARE, bytes + bytes / GROWTH_SHARE);
        let mut part = Entries::with_capacity(&prefix, entries, bytes);
        for at in from..to {
            part.push_suffix(&self.suffix(at)[more..], self.value(at));
        }
        part
    }

    /// Appends all entries of `other`, whose keys are greater.
    pub(crate) fn extend(&mut self, other: &Entries) {
        let mut key = Vec::new();
        for at in 0..other.len() {
            key.clear();
            other.key_to(at, &mut key);
            self.insert(self.len(), &key, other.value(at));
        }
    }

    /// Where to split so that the left part weighs about `share` of all: a place with at least
    /// one entry on either side.
    pub(crate) fn split_point(&self, share: usize) -> usize {
        let mut left = 0;
        for at in 0..self.len() {
            let weight = self.weight_of(at);
            // Half of the entry beyond the share decides which side takes it.
            if left + weight / 2 >= share {
                return at.clamp(1, self.len() - 1);
            }
            left += weight;
        }
        self.len() - 1
    }

    /// Whether the arrays agree and keys ascend; for the checker.
    pub(crate) fn is_sorted(&self) -> bool {
        let weight: usize = (0..self.len()).map(|at| self.weight_of(at)).sum();
        weight == self.weight
            && self.heads.len() == self.len()
            && (1..self.len()).all(|at| self.suffix(at - 1) < self.suffix(at))
            && (0..self.len()).all(|at| self.heads[at] == head_of(self.suffix(at)))
    }
}

/// The shortest key that is greater than `left` and not greater than `right`.
pub(crate) fn separator(left: &[u8], right: &[u8]) -> Vec<u8> {
    right[..(common(left, right) + 1).min(right.len())].to_vec()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn plain(bytes: &[u8]) -> Cell<'_> {
        Cell { bytes, flagged: false }
    }

    fn random_key(random: &mut fastrand::Rng) -> Vec<u8> {
        let shared = [&b""[..], b"D", b"Dabcdefgh", b"Dabcdefgi\0\0"][random.usize(0..4)];
        let mut key = shared.to_vec();
        key.extend((0..random.usize(0..12)).map(|_| random.u8(0..3)));
        key
    }

    #[test]
    fn behaves_like_an_ordered_map() {
        for seed in 0..40 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut entries = Entries::default();
            let mut model = BTreeMap::new();
            for _ in 0..1500 {
                let key = random_key(&mut random);
                let value = vec![random.u8(..); random.usize(0..40)];
                match (entries.search(&key), random.u8(0..3)) {
                    (Ok(at), 0) => {
                        entries.remove(at);
                        model.remove(&key);
                    }
                    (Ok(at), _) => {
                        entries.set_value(at, plain(&value));
                        model.insert(key, value);
                    }
                    (Err(at), 0 | 1) => {
                        entries.insert(at, &key, plain(&value));
                        model.insert(key, value);
                    }
                    (Err(_), _) => assert!(!model.contains_key(&key)),
                }
            }
            assert!(entries.is_sorted(), "seed {seed}");
            let all: BTreeMap<_, _> = (0..entries.len())
                .map(|at| (entries.key(at), entries.value(at).bytes.to_vec()))
                .collect();
            assert_eq!(all, model, "seed {seed}");
            let middle = entries.split_point(entries.weight() / 2);
            let (mut left, right) =
                (entries.extract(0, middle), entries.extract(middle, entries.len()));
            assert_eq!(left.weight() + right.weight(), entries.weight());
            left.extend(&right);
            assert!(left.is_sorted() && left.len() == entries.len());
        }
    }

    #[test]
    fn separators_are_short_and_between_their_keys() {
        for (left, right, expected) in
            [("a", "b", "b"), ("abc", "abd", "abd"), ("ab", "abcd", "abc"), ("a", "zz", "z")]
        {
            assert_eq!(separator(left.as_bytes(), right.as_bytes()), expected.as_bytes());
        }
    }
}
