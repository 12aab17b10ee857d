//! Numbers of inodes and subvolumes.

/// An inode inside its subvolume; a clone has the same numbers as its source. Never reused in a
/// volume. 40 bits; records and keys have space for 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

/// A subvolume: the volume's root, a snapshot, a clone. Never reused in a volume. 55 bits: a slot
/// (the lowest 23) and a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubvolId(pub u64);

/// The part of the kernel's inode number that identifies a subvolume: 23 bits, unique among
/// subvolumes that exist at one time, and one more bit for virtual directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u64);

/// An inode as users and the kernel see it, unique over all subvolumes of a volume that exist at
/// one time: the slot of the subvolume in the upper 24 bits, the inode in the lower 40. It is not
/// stored, because slots are reused. The root of a file system is always [`NodeId::ROOT`], in any
/// subvolume and for any inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl Ino {
    /// The greatest number.
    pub const MAX: Ino = Ino(format::key::INO_MAX);
}

impl SubvolId {
    /// The greatest number.
    pub const MAX: SubvolId = SubvolId(format::key::SUBVOLUME_MAX);

    /// Its slot.
    #[inline]
    pub fn slot(self) -> Slot {
        Slot(format::key::slot(self.0))
    }

    /// Distinguishes it from earlier users of its slot.
    #[inline]
    pub fn generation(self) -> u64 {
        format::key::generation(self.0)
    }
}

impl NodeId {
    /// The root of the mounted file system, as FUSE numbers it.
    pub const ROOT: NodeId = NodeId(1);

    /// The number shown for an inode.
    pub fn new(subvol: SubvolId, ino: Ino) -> NodeId {
        assert!(ino <= Ino::MAX, "inode {} is out of range", ino.0);
        NodeId(subvol.slot().0 << 40 | ino.0)
    }

    /// The slot of its subvolume.
    #[inline]
    pub fn slot(self) -> Slot {
        Slot(self.0 >> 40)
    }

    /// The inode part.
    pub fn ino(self) -> Ino {
        Ino(self.0 & Ino::MAX.0)
    }
}
