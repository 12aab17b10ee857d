//! Changes all over a tree that are counted in it. So a crash is known to leave the first of them,
//! all of each and no others.

use btree::BtreeStore;
use store::{Batch, KeyRange, Read};

use crate::util::{TREE, checked, commit};

pub(crate) fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Where the changes are counted.
const COUNTER: [u8; 9] = [0; 9];

/// A tree of so many entries, each of which is changed by one of the later commits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) entries: u64,
    /// The distance between successive commits. Odd, and no divisor of `entries`.
    pub(crate) step: u64,
    /// One in so many values is in an overflow node, where there are any: no leaf that points to
    /// such a one is pre-flushed.
    pub(crate) long: Option<u64>,
}

impl Load {
    /// Bytes of a value.
    fn length(self, n: u64) -> usize {
        if self.long.is_some_and(|long| n.is_multiple_of(long)) { 3000 } else { 100 }
    }

    fn value(self, n: u64, count: u64) -> Vec<u8> {
        vec![count as u8; self.length(n)]
    }

    pub(crate) fn fill(self, store: &BtreeStore) {
        commit(store, |batch| batch.create_tree(TREE));
        for chunk in 0..self.entries.div_ceil(1000) {
            commit(store, |batch| {
                for n in chunk * 1000..self.entries.min(chunk * 1000 + 1000) {
                    batch.put(TREE, &key(n), &self.value(n, 0));
                }
            });
        }
        checked(store);
    }

    /// The `count`th change, from 1.
    pub(crate) fn change(self, store: &BtreeStore, count: u64) {
        commit(store, |batch| self.fill_change(batch, count));
    }

    /// The same, put into a batch.
    pub(crate) fn fill_change(self, batch: &mut Batch, count: u64) {
        let n = count * self.step % self.entries;
        batch.put(TREE, &key(n), &self.value(n, count));
        batch.put(TREE, &COUNTER, &count.to_be_bytes());
    }

    /// Asserts that the first changes are there, and no others; returns how many. Entries are
    /// compared where the cursor shows them: the trees are large, and looked at many times.
    pub(crate) fn whole(self, store: &BtreeStore, place: &str) -> u64 {
        let count = store.get(TREE, &COUNTER).expect(place);
        let count =
            count.map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().expect("eight bytes")));
        let mut last = vec![0; self.entries as usize];
        for count in 1..=count {
            last[(count * self.step % self.entries) as usize] = count;
        }
        let mut cursor = store.scan(TREE, KeyRange::all()).expect(place);
        let mut n = 0;
        while let Some(item) = cursor.next().expect(place) {
            if item.key == COUNTER {
                continue;
            }
            assert!(n < self.entries, "{place}: more than {n} entries");
            let (byte, length) = (last[n as usize] as u8, self.length(n));
            // Its first byte is right, and each equals the next.
            let value = item.value;
            let same = value[0] == byte && value[1..] == value[..length - 1];
            assert!(item.key == key(n) && same, "{place}: entry {n} of {count}");
            n += 1;
        }
        assert_eq!(n, self.entries, "{place}");
        count
    }
}
