//! What the walk over a directory keeps of the entry that it read last.

use format::inode_record::InodeRecord;

use super::look::Named;

/// The entry before the present one.
pub(super) struct Last {
    pub(super) cookie: u64,
    pub(super) entry: Named,
    /// Names of its hash so far.
    pub(super) names: Vec<Vec<u8>>,
}

/// The data stored beside an entry, as the entry announces it, and what was found of it.
pub(super) struct Attached {
    pub(super) cookie: u64,
    pub(super) named: Named,
    pub(super) inode: Option<InodeRecord>,
    pub(super) bulk: bool,
    pub(super) xattrs: bool,
    /// Whether an access list is among the attributes.
    pub(super) listed: bool,
}
