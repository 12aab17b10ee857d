//! Numbers of inodes and subvolumes.

/// An inode inside its subvolume; a clone has the same numbers as its source. Never reused in a
/// volume. 40 bits, of which the uppermost 4 are reserved for shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

/// A subvolume: the volume's root, a snapshot, a clone. Never reused in a volume. 24 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubvolId(pub u64);

/// An inode as users and the kernel see it, unique over all subvolumes of a volume: the
/// subvolume in the upper 24 bits, the inode in the lower 40. The root of a file system is
/// always [`NodeId::ROOT`], whatever subvolume and inode it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl Ino {
    /// The greatest number.
    pub const MAX: Ino = Ino(format::key::INO_MAX);
}

impl SubvolId {
    /// The greatest number of an ordinary subvolume; those above are virtual directories, the
    /// last of them queries.
    pub const MAX: SubvolId = SubvolId(format::key::SUBVOLUME_MAX);
}

impl NodeId {
    /// The root of the mounted file system, as FUSE numbers it.
    pub const ROOT: NodeId = NodeId(1);

    /// The number shown for an inode.
    pub fn new(subvol: SubvolId, ino: Ino) -> NodeId {
        assert!(ino <= Ino::MAX, "inode {} is out of range", ino.0);
        assert!(subvol.0 < 1 << 24, "subvolume {} is out of range", subvol.0);
        NodeId(subvol.0 << 40 | ino.0)
    }

    /// The subvolume part.
    pub fn subvol(self) -> SubvolId {
        SubvolId(self.0 >> 40)
    }

    /// The inode part.
    pub fn ino(self) -> Ino {
        Ino(self.0 & Ino::MAX.0)
    }
}
