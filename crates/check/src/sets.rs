//! Sets of inode numbers: a bit for each number of a range in which there is one.

use std::collections::BTreeMap;

/// Words of the bits of one part.
const WORDS: usize = 64;
/// Numbers of one part.
const PART: u64 = WORDS as u64 * 64;

/// Inode numbers. Numbers are handed out one after the other, so parts are dense: 512 bytes for
/// 4096 numbers.
#[derive(Default, Clone)]
pub(super) struct InoSet {
    parts: BTreeMap<u64, Box<[u64; WORDS]>>,
}

impl InoSet {
    /// Adds a number; returns whether it was new.
    pub(super) fn insert(&mut self, ino: u64) -> bool {
        let part = self.parts.entry(ino / PART).or_insert_with(|| Box::new([0; WORDS]));
        let index = (ino % PART) as usize;
        let (word, bit) = (&mut part[index / 64], 1 << (index % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Removes a number.
    pub(super) fn remove(&mut self, ino: u64) {
        let index = (ino % PART) as usize;
        if let Some(part) = self.parts.get_mut(&(ino / PART)) {
            part[index / 64] &= !(1 << (index % 64));
        }
    }

    /// Whether a number is in it.
    pub(super) fn contains(&self, ino: u64) -> bool {
        let index = (ino % PART) as usize;
        self.parts.get(&(ino / PART)).is_some_and(|part| part[index / 64] >> (index % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::InoSet;

    #[test]
    fn a_number_is_new_once() {
        let mut set = InoSet::default();
        for ino in [0, 63, 64, 4095, 4096, u64::MAX] {
            assert!(!set.contains(ino) && set.insert(ino) && set.contains(ino));
            assert!(!set.insert(ino));
        }
        assert!(!set.contains(1) && !set.contains(4097));
        set.remove(63);
        set.remove(9999);
        assert!(!set.contains(63) && set.contains(0) && set.insert(63));
    }
}
