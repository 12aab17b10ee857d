//! What a number of an inode consists of (`docs/format/keys.md`). Its home assigned it and is part
//! of it for ever; the rest is its place in the sequence of the home.

/// Bits of an inode's number that count: the sequence. Those above are its home.
const SEQUENCE_BITS: u32 = 49;
/// The greatest home. The one above it is reserved: no inode has a number of which all of the upper
/// bits are set.
pub const INODE_HOME_MAX: u64 = (1 << (64 - SEQUENCE_BITS)) - 2;
/// The greatest number of an inode.
pub const INO_MAX: u64 = inode_of(INODE_HOME_MAX, SEQUENCE_MAX);
/// The greatest number of a narrow inode: of home 0, and with 40 bits. All others are wide.
pub const NARROW_INO_MAX: u64 = (1 << 40) - 1;

const SEQUENCE_MAX: u64 = (1 << SEQUENCE_BITS) - 1;

/// The number of an inode.
#[inline]
pub const fn inode_of(home: u64, sequence: u64) -> u64 {
    home << SEQUENCE_BITS | sequence
}

/// The home of an inode: the volume, or the part of one, that assigned its number.
#[inline]
pub const fn home_of(ino: u64) -> u64 {
    ino >> SEQUENCE_BITS
}

/// The greatest number of a home.
#[inline]
pub const fn last_inode_of(home: u64) -> u64 {
    inode_of(home, SEQUENCE_MAX)
}

#[cfg(test)]
mod tests {
    use super::{INO_MAX, INODE_HOME_MAX, NARROW_INO_MAX, home_of, inode_of, last_inode_of};

    #[test]
    fn a_number_is_a_home_and_a_sequence() {
        assert_eq!(inode_of(0, 77), 77);
        assert_eq!(home_of(inode_of(5, 77)), 5);
        assert_eq!((home_of(NARROW_INO_MAX), home_of(last_inode_of(0))), (0, 0));
        assert_eq!(last_inode_of(5) + 1, inode_of(6, 0));
        assert_eq!((home_of(INO_MAX), last_inode_of(INODE_HOME_MAX)), (INODE_HOME_MAX, INO_MAX));
        assert_eq!(INO_MAX >> 49, 0x7ffe, "the home of all ones is reserved");
    }
}
