//! Numbers of inodes and subvolumes.
//!
//! [`NodeId`] names an inode of a volume in memory and in calls. Its two parts are never confused
//! with the one number that users see, [`NodeId::shown`].

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use format::key::{self, NARROW_INO_MAX};

/// An inode inside its subvolume; a clone has the same numbers as its source. Never reused in a
/// volume. 64 bits: 15 of its home, and 49 that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

/// A subvolume: the volume's root, a snapshot, a clone. Never reused in a volume. 55 bits: a slot
/// (the lowest 23) and a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubvolId(pub u64);

/// The part of a node that identifies its subvolume. It has 23 bits, unique among subvolumes that
/// exist at one time, and one more bit for virtual directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u64);

/// An inode of any subvolume of a volume: the slot of the subvolume, and the inode. Unique among
/// those that exist at one time. It is not stored, because slots are reused. The root of a file
/// system is always [`NodeId::ROOT`], in any subvolume and for any inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId {
    slot: u32,
    ino: u64,
}

/// Bits of an inode's number that a narrow one has.
const NARROW_BITS: u32 = 40;
const _: () = assert!(NARROW_INO_MAX == (1 << NARROW_BITS) - 1);

impl Ino {
    /// The greatest number.
    pub const MAX: Ino = Ino(key::INO_MAX);

    /// Whether the number is below 2^40: of home 0, and among its first ones.
    #[inline]
    pub const fn is_narrow(self) -> bool {
        self.0 <= NARROW_INO_MAX
    }

    /// The upper 24 bits of the number, which are 0 in a narrow one.
    #[inline]
    pub const fn upper(self) -> u64 {
        self.0 >> NARROW_BITS
    }
}

impl SubvolId {
    /// The greatest number.
    pub const MAX: SubvolId = SubvolId(key::SUBVOLUME_MAX);

    /// Its slot.
    #[inline]
    pub fn slot(self) -> Slot {
        Slot(key::slot(self.0))
    }

    /// Distinguishes it from earlier users of its slot.
    #[inline]
    pub fn generation(self) -> u64 {
        key::generation(self.0)
    }
}

impl NodeId {
    /// The root of the mounted file system, as FUSE numbers it.
    pub const ROOT: NodeId = NodeId { slot: 0, ino: 1 };

    /// An inode of a subvolume.
    #[inline]
    pub fn new(subvol: SubvolId, ino: Ino) -> NodeId {
        NodeId::of(subvol.slot(), ino)
    }

    /// An inode of the subvolume that has a slot. Of a slot, 24 bits count.
    #[inline]
    pub const fn of(Slot(slot): Slot, Ino(ino): Ino) -> NodeId {
        NodeId { slot: slot as u32 & 0xff_ffff, ino }
    }

    /// The node that [`NodeId::shown`] shows as a number, if its inode is narrow.
    #[inline]
    pub const fn narrow(number: u64) -> NodeId {
        NodeId { slot: (number >> NARROW_BITS) as u32, ino: number & NARROW_INO_MAX }
    }

    /// The slot of its subvolume.
    #[inline]
    pub const fn slot(self) -> Slot {
        Slot(self.slot as u64)
    }

    /// The inode.
    #[inline]
    pub const fn ino(self) -> Ino {
        Ino(self.ino)
    }

    /// The number that users see (`st_ino`). A narrow inode shows the slot in the upper 24 bits and
    /// the inode in the lower 40. A wide one shows its 64 bits, XORed with a mix of the slot; see
    /// `shown_wide`. Within a subvolume no two are shown alike.
    #[inline]
    pub const fn shown(self) -> u64 {
        if self.ino().is_narrow() {
            (self.slot as u64) << NARROW_BITS | self.ino
        } else {
            shown_wide(self.slot as u64, self.ino)
        }
    }

    /// The node that a number shows, if it is in the subvolume of this slot.
    pub const fn shown_as(slot: Slot, number: u64) -> NodeId {
        let is_taken = slot.0 > 0 && number & NARROW_INO_MAX <= 1;
        if number >> NARROW_BITS == slot.0 && !is_taken {
            NodeId::narrow(number)
        } else {
            NodeId::of(slot, Ino(wide_shown_as(slot.0, number)))
        }
    }
}

impl Hash for NodeId {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.ino ^ (u64::from(self.slot) << NARROW_BITS));
    }
}

/// A mix of a slot: a bijection, of which any two values differ in about half of their bits.
const fn mix(slot: u64) -> u64 {
    let mut mixed = slot.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The number that a wide inode of a slot shows: XORed with a mix of the slot. Excepted are 0, 1
/// and what narrow inodes of the slot show. A wide inode that would show one of these takes the
/// place that narrow ones left free. So for each slot this is a bijection.
#[cold]
const fn shown_wide(slot: u64, ino: u64) -> u64 {
    let mixed = mix(slot);
    let mut shown = ino ^ mixed;
    if shown >> NARROW_BITS == slot {
        shown = mixed & !NARROW_INO_MAX | shown & NARROW_INO_MAX;
    }
    // Inodes 0 and 1 do not exist, so nothing narrow shows these two.
    if shown <= 1 { slot << NARROW_BITS | shown } else { shown }
}

/// The reverse of `shown_wide`.
const fn wide_shown_as(slot: u64, shown: u64) -> u64 {
    let mixed = mix(slot);
    let mut number = shown;
    if number >> NARROW_BITS == slot && number & NARROW_INO_MAX <= 1 {
        number &= 1;
    }
    if number >> NARROW_BITS == mixed >> NARROW_BITS {
        number = slot << NARROW_BITS | number & NARROW_INO_MAX;
    }
    number ^ mixed
}

/// A node that is stored and loaded by any thread. The inode is that of the first node for as long
/// as it exists. Only the subvolume changes, as that of the root does in a rollback. A reader of a
/// node whose inode changed as well may see a mix of both, which names nothing.
#[derive(Debug)]
pub struct AtomicNode {
    slot: AtomicU64,
    ino: AtomicU64,
}

impl AtomicNode {
    /// Starts with a node.
    pub const fn new(node: NodeId) -> AtomicNode {
        AtomicNode { slot: AtomicU64::new(node.slot as u64), ino: AtomicU64::new(node.ino) }
    }

    /// The node.
    #[inline]
    pub fn load(&self) -> NodeId {
        let slot = self.slot.load(Ordering::Acquire);
        NodeId::of(Slot(slot), Ino(self.ino.load(Ordering::Relaxed)))
    }

    /// Replaces it.
    pub fn store(&self, node: NodeId) {
        self.ino.store(node.ino, Ordering::Relaxed);
        self.slot.store(u64::from(node.slot), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use format::key::{INO_MAX, INODE_HOME_MAX, NARROW_INO_MAX, SLOT_MAX, inode_of};

    use super::{Ino, NodeId, Slot, mix};

    /// Numbers at the edges, and those that a bijection must except for the slot.
    fn inodes(slot: u64) -> Vec<u64> {
        let mut inodes = vec![2, 3, 77, NARROW_INO_MAX - 1, NARROW_INO_MAX, INO_MAX - 1, INO_MAX];
        let upper = [1, 2, 511, 512, 513, mix(slot) >> 40, (mix(slot) >> 40) ^ slot];
        for upper in upper.into_iter().filter(|upper| *upper > 0) {
            let low = mix(slot) & NARROW_INO_MAX;
            inodes.extend([0, 1, 2, 77, low, low ^ 1, NARROW_INO_MAX].map(|low| upper << 40 | low));
        }
        inodes.extend([mix(slot), mix(slot) ^ 1]);
        inodes.extend((1..=INODE_HOME_MAX).step_by(997).map(|home| inode_of(home, 3)));
        inodes.sort_unstable();
        inodes.dedup();
        inodes
    }

    #[test]
    fn no_two_inodes_of_a_subvolume_are_shown_alike() {
        for slot in [1, 2, 3, 77, 1 << 22, SLOT_MAX, 1 << 23 | 5] {
            let mut seen = BTreeMap::new();
            for ino in inodes(slot) {
                let node = NodeId::of(Slot(slot), Ino(ino));
                assert_eq!((node.slot(), node.ino()), (Slot(slot), Ino(ino)));
                let shown = node.shown();
                assert!(shown > 1, "{slot}: {ino:x} shows {shown}");
                assert_eq!(seen.insert(shown, ino), None, "{slot}: {ino:x} shows {shown:x}");
                assert_eq!(NodeId::shown_as(Slot(slot), shown), node, "{slot}: {ino:x}");
            }
        }
    }

    #[test]
    fn narrow_inodes_show_what_they_always_did() {
        let node = NodeId::of(Slot(5), Ino(77));
        assert_eq!(node.shown(), 5 << 40 | 0x4d);
        assert_eq!(NodeId::narrow(5 << 40 | 0x4d), node);
        assert_eq!(NodeId::ROOT.shown(), 1);
        let last = NodeId::of(Slot(5), Ino(NARROW_INO_MAX));
        assert_eq!(NodeId::narrow(last.shown()), last);
        assert_ne!(NodeId::of(Slot(5), Ino(NARROW_INO_MAX + 1)).shown() >> 40, 5);
    }

    #[test]
    fn nodes_are_in_the_order_of_slots_then_inodes() {
        let node = |slot, ino| NodeId::of(Slot(slot), Ino(ino));
        assert!(node(1, INO_MAX) < node(2, 2) && node(2, 2) < node(2, 1 << 40));
    }
}
