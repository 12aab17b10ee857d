//! What a search among the orders of a history needs of the model. States that are equal have one
//! fingerprint, and what nothing can reach any more takes no space.

use std::collections::{BTreeMap, BTreeSet};

use device::Timestamp;
use inode::Caller;

use super::op::{Op, Target};
use super::state::{FsModel, Key};
use super::verdict::{Effect, Verdict};

impl FsModel {
    /// A hash of everything that calls can see, but for times and inode numbers.
    pub fn fingerprint(&self) -> u64 {
        let mut print =
            Print { model: self, hash: 0xcbf2_9ce4_8422_2325, numbers: BTreeMap::new() };
        print.node(self.root);
        for (slot, key) in &self.slots {
            print.number(*slot as u64);
            print.node(*key);
        }
        print.hash
    }

    /// The file that is open in a slot, by a number that no other file ever has.
    pub fn file_of(&self, slot: usize) -> Option<u64> {
        self.slots.get(&slot).copied()
    }

    /// Drops what has no name and is not open.
    pub fn drop_unreachable(&mut self) {
        let mut reached = BTreeSet::new();
        let roots = self.subvols.values().map(|subvol| subvol.root);
        let mut left: Vec<Key> = roots.chain(self.slots.values().copied()).collect();
        left.extend(self.snapshots.values().flat_map(|names| names.values().copied()));
        while let Some(key) = left.pop() {
            if reached.insert(key) {
                left.extend(self.inode(key).entries.values().copied());
            }
        }
        self.inodes.retain(|key, _| reached.contains(key));
    }

    /// Appends to an open file.
    pub fn append(&mut self, now: Timestamp, slot: usize, length: usize, seed: u64) -> Verdict {
        let target = || Target::Slot(slot);
        let stat = self.apply(now, &Caller::root(), &Op::Stat { target: target() });
        let Verdict::Ok(Effect::Stat(stat)) = stat else { return stat };
        let write = Op::Write { target: target(), offset: stat.size, length, seed };
        self.apply(now, &Caller::root(), &write)
    }
}

/// A fingerprint being taken: FNV-1a over the tree, in the order of names. An inode is described
/// where it is met first, and has a number afterwards.
struct Print<'a> {
    model: &'a FsModel,
    hash: u64,
    numbers: BTreeMap<Key, u64>,
}

impl Print<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn number(&mut self, number: u64) {
        let mixed = (self.hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.hash = mixed ^ mixed >> 29;
    }

    fn node(&mut self, key: Key) {
        if let Some(number) = self.numbers.get(&key) {
            return self.number(*number);
        }
        self.numbers.insert(key, self.numbers.len() as u64);
        let inode = self.model.inode(key);
        self.number(u64::from(inode.mode) | u64::from(inode.names) << 32);
        self.number(inode.kind as u64);
        self.bytes(&inode.bytes);
        self.number(inode.entries.len() as u64);
        for (name, key) in &inode.entries {
            self.bytes(name);
            self.node(*key);
        }
    }
}
