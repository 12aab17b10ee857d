//! Access lists: if a mode has the flag of a list, a whole one is among the attributes.
//!
//! A lost list cannot be rebuilt. The bits of the group class were its mask, so a repair clears
//! them all: nobody gets more rights than the list granted.

use format::Malformed;
use format::acl::{ACCESS, access_of};
use format::xattr_record::XattrRecord;
use inode::permissions::HAS_ACL;
use store::TreeId;
use vfs::FsResult;

use super::look::{self, Look};
use super::{Checker, Edit, Problem, ProblemKind};

/// The repair, in words.
pub(super) const REMEDY: &str = "remove the list, and what the group had";

/// Whether attributes have an access list. Those that do not decode may, and are reported anyway.
pub(super) fn may_list(xattrs: &Result<XattrRecord, Malformed>) -> bool {
    xattrs.as_ref().map_or(true, |xattrs| access_of(xattrs).is_some())
}

/// Whether a mode has the flag of a list although there is no list.
pub(super) fn lacks_list(mode: u32, listed: bool) -> bool {
    mode & HAS_ACL != 0 && !listed
}

/// Reports that it does.
pub(super) fn problem() -> Problem {
    let what = "its access list is missing or malformed".to_owned();
    Problem::new(ProblemKind::Structure, what)
}

impl Checker<'_, '_> {
    /// The change that removes the access list from the attributes at a key, and whether others are
    /// left; `None`: not known.
    pub(super) fn strip_list(
        &self,
        tree: TreeId,
        key: &[u8],
    ) -> FsResult<Option<(Vec<Edit>, bool)>> {
        let mut xattrs = match look::get(self.pin, tree, key, XattrRecord::decode)? {
            Look::Unknown => return Ok(None),
            Look::Absent => return Ok(Some((Vec::new(), false))),
            Look::Found(xattrs) => xattrs,
        };
        let had = xattrs.remove(ACCESS);
        let edits = match (xattrs.is_empty(), had) {
            (true, _) => vec![Edit::Delete(tree, key.to_vec())],
            (false, true) => vec![Edit::Put(tree, key.to_vec(), xattrs.encode())],
            (false, false) => Vec::new(),
        };
        Ok(Some((edits, !xattrs.is_empty())))
    }
}
