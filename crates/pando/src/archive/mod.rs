//! Tar archives: members with everything that this program keeps, written in the pax format of
//! POSIX, and read in the forms that are in use (pax, GNU, ustar, v7).
//!
//! Header blocks are encoded and decoded by the crate `tar`; what it does not carry is here:
//! extended attributes and access lists as pax records, times of nanoseconds, sparse files of all
//! formats, and limits on what a hostile archive can make a reader keep in memory.

pub(crate) mod acl;
pub(crate) mod write;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 512;

/// How the pax record of an extended attribute begins.
const XATTR: &[u8] = b"SCHILY.xattr.";
/// The pax records of access lists, as text.
const ACCESS_TEXT: &[u8] = b"SCHILY.acl.access";
const DEFAULT_TEXT: &[u8] = b"SCHILY.acl.default";

/// How many bytes fill up the last block of contents.
pub(crate) fn padding(length: u64) -> usize {
    (length.wrapping_neg() % BLOCK as u64) as usize
}
