//! Tar archives: members with everything that this program keeps. They are written in the pax
//! format of POSIX, and read in the forms that are in use (pax, GNU, ustar, v7).
//!
//! The crate `tar` was not enough. It does not read GNU's sparse formats of pax archives, nor times
//! before 1970, and does not bound the memory of a hostile header.

pub(crate) mod read;
pub(crate) mod pax;
pub(crate) mod write;
pub(crate) mod acl;
pub(crate) mod path;

#[cfg(test)]
mod tests;

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
