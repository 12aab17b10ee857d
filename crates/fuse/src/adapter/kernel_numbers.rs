//! The kernel's numbers of nodes (`nodeid`), which are not the numbers that users see.
//!
//! A node has 24 bits of slot and 64 of inode; the kernel's number has 64. A narrow inode is in
//! the lower 40 bits, and needs no memory here. Of a wide one, the lower 40 bits are there, XORed
//! with a mix of the upper 24, which the generation in handles has. Such nodes are in a table while
//! the kernel holds them. If two held nodes would have one number, the second gets one of slot 0,
//! which no subvolume has, for the session. The kernel also holds narrow inodes that are not in the
//! table. So a wide one takes a number only if the narrow inode of that number is not held.
//!
//! Order: a look-up marks its node as held, then asks here. A wide node is entered here first, and
//! then the narrow one is looked at. So of two threads at least one sees the other's.

use std::sync::atomic::{AtomicUsize, Ordering};

use device::sync::Mutex;
use device::{Map, Timestamp};
use inode::{Ino, NodeId, Slot};

/// Bits of the inode in a number.
const INODE_BITS: u32 = 40;
const INODE_MASK: u64 = (1 << INODE_BITS) - 1;
/// The bit of a slot that virtual directories have.
const VIRTUAL: u64 = 1 << 23;
/// The first number of a session. Those below are the root and what is never used.
const FIRST_OF_SESSION: u64 = 1 << 20;

/// What distinguishes inodes whose numbers differ in the upper 24 bits; 0 of 0.
pub(crate) type Mix = fn(u64) -> u64;

/// The numbers of one mount.
pub(crate) struct KernelNumbers {
    mix: Mix,
    /// How many nodes are in the table. Changed with the table locked.
    count: AtomicUsize,
    table: Mutex<Table>,
    /// The generation of all numbers of this session.
    session: u32,
}

struct Table {
    nodes: Map<u64, Held>,
    numbers: Map<NodeId, u64>,
    /// The next number of this session.
    next: u64,
}

struct Held {
    node: NodeId,
    lookups: u64,
}

/// The mix of mounts.
pub(crate) fn mix(upper: u64) -> u64 {
    let mixed = upper.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29) & INODE_MASK
}

impl KernelNumbers {
    /// The numbers of a mount that begins now.
    pub(crate) fn new(now: Timestamp, mix: Mix) -> KernelNumbers {
        // Handles that programs kept from earlier sessions must not fit numbers of this one.
        let mut seed = (now.0 as u64 ^ 0x5851_f42d_4c95_7f2d).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        seed = (seed ^ seed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        seed ^= seed >> 31;
        let table = Table { nodes: Map::default(), numbers: Map::default(), next: seed >> 24 };
        let count = AtomicUsize::new(0);
        KernelNumbers { mix, count, table: Mutex::new(table), session: seed as u32 }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// The number that a node has unless another one has it.
    fn natural(&self, node: NodeId) -> u64 {
        let (slot, ino) = (node.slot().0, node.ino());
        slot << INODE_BITS | (ino.0 ^ (self.mix)(ino.upper())) & INODE_MASK
    }

    /// The number of a node that was looked up, and is held from before the call. `may_be_held` is
    /// asked about a narrow inode of the same number.
    #[inline]
    pub(crate) fn hold(&self, may_be_held: impl Fn(NodeId) -> bool, node: NodeId) -> u64 {
        if node.ino().is_narrow() && self.is_empty() {
            return node.shown();
        }
        self.enter(&may_be_held, node)
    }

    #[cold]
    fn enter(&self, may_be_held: &dyn Fn(NodeId) -> bool, node: NodeId) -> u64 {
        let mut table = self.table.lock();
        if let Some(number) = table.numbers.get(&node).copied() {
            if let Some(held) = table.nodes.get_mut(&number) {
                held.lookups = held.lookups.saturating_add(1);
            }
            return number;
        }
        let natural = self.natural(node);
        let is_taken = table.nodes.contains_key(&natural);
        if node.ino().is_narrow() && !is_taken {
            return natural;
        }
        // Look-ups of virtual directories are not counted, so it is not known which process has a
        // number.
        if !is_taken && node.slot().0 & VIRTUAL == 0 {
            self.insert(&mut table, natural, node);
            if !may_be_held(NodeId::narrow(natural)) {
                return natural;
            }
            self.remove(&mut table, natural);
        }
        let number = table.new_number();
        self.insert(&mut table, number, node);
        number
    }

    fn insert(&self, table: &mut Table, number: u64, node: NodeId) {
        table.nodes.insert(number, Held { node, lookups: 1 });
        table.numbers.insert(node, number);
        self.count.store(table.nodes.len(), Ordering::Relaxed);
    }

    fn remove(&self, table: &mut Table, number: u64) {
        if let Some(held) = table.nodes.remove(&number) {
            table.numbers.remove(&held.node);
        }
        self.count.store(table.nodes.len(), Ordering::Relaxed);
    }

    /// The node of a number that the kernel holds.
    #[inline]
    pub(crate) fn node(&self, number: u64) -> NodeId {
        if self.is_empty() {
            return NodeId::narrow(number);
        }
        self.entered(number).unwrap_or(NodeId::narrow(number))
    }

    fn entered(&self, number: u64) -> Option<NodeId> {
        self.table.lock().nodes.get(&number).map(|held| held.node)
    }

    /// The number of a node, if the kernel may hold it.
    pub(crate) fn known(&self, node: NodeId) -> Option<u64> {
        let is_narrow = node.ino().is_narrow();
        if self.is_empty() {
            return is_narrow.then(|| node.shown());
        }
        let table = self.table.lock();
        let natural = self.natural(node);
        let free = is_narrow && !table.nodes.contains_key(&natural);
        table.numbers.get(&node).copied().or_else(|| free.then_some(natural))
    }

    /// Subtracts look-ups that the kernel returns.
    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        if self.is_empty() {
            return;
        }
        let mut table = self.table.lock();
        let Some(held) = table.nodes.get_mut(&number) else { return };
        held.lookups = held.lookups.saturating_sub(lookups);
        if held.lookups == 0 {
            self.remove(&mut table, number);
        }
    }

    /// The nodes, the most likely ones first, that a number from a handle may mean. The kernel
    /// compares the generation of what is found with the handle's.
    pub(crate) fn candidates(&self, uppers: impl FnOnce() -> Vec<u64>, number: u64) -> Vec<NodeId> {
        if let Some(node) = self.entered(number) {
            return vec![node];
        }
        let (slot, low) = (number >> INODE_BITS, number & INODE_MASK);
        if slot == 0 {
            // The number is of this session, or of an earlier one, and forgotten.
            return Vec::new();
        }
        if slot & VIRTUAL != 0 {
            return vec![NodeId::narrow(number)];
        }
        let of = |upper| {
            let low = (low ^ (self.mix)(upper)) & INODE_MASK;
            NodeId::of(Slot(slot), Ino(upper << INODE_BITS | low))
        };
        uppers().into_iter().map(of).collect()
    }

    /// The generation of a node in handles, from that of the file system. Number and generation
    /// together have all bits of the inode, so a handle opens no other one.
    #[inline]
    pub(crate) fn generation(&self, number: u64, node: NodeId, of_slot: u64) -> u64 {
        if node.ino().is_narrow() && number >> INODE_BITS != 0 {
            return of_slot;
        }
        self.other_generation(number, node, of_slot)
    }

    #[cold]
    fn other_generation(&self, number: u64, node: NodeId, of_slot: u64) -> u64 {
        if number >> INODE_BITS == 0 {
            return u64::from(self.session);
        }
        // The kernel has 32 bits for it, of which a volume's first 256 generations leave these.
        (of_slot ^ node.ino().upper() << 8) & u64::from(u32::MAX)
    }
}

impl Table {
    /// A number of this session that no node has.
    fn new_number(&mut self) -> u64 {
        loop {
            let number = self.next.max(FIRST_OF_SESSION);
            self.next = (number + 1) & INODE_MASK;
            if !self.nodes.contains_key(&number) {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests;
