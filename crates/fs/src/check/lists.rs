//! Access lists: where a mode says that there is one, a whole one is among the attributes.
//!
//! A list that is lost cannot be rebuilt. The bits of the group class were its mask, so repairing
//! takes them all: nobody gets more than the list gave.

use format::Malformed;
use format::acl::{ACCESS, access_of};
use format::xattr_record::XattrRecord;
use inode::permissions::HAS_ACL;
use store::TreeId;

use super::look::{self, Look};
use super::{Checker, Edit, Problem, ProblemKind};
use crate::FsResult;

/// What repairs it, in words.
pub(super) const REMEDY: &str = "remove the list, and what the group had";

/// Whether attributes have an access list. Those that do not decode may, and are told anyway.
pub(super) fn may_list(xattrs: &Result<XattrRecord, Malformed>) -> bool {
    xattrs.as_ref().map_or(true, |xattrs| access_of(xattrs).is_some())
}

/// Whether a mode says that there is a list where there is none.
pub(super) fn lacks_list(mode: u32, listed: bool) -> bool {
    mode & HAS_ACL != 0 && !listed
}

/// That it does.
pub(super) fn problem() -> Problem {
    let what = "its access list is gone, or is none".to_owned();
    Problem::new(ProblemKind::Structure, what)
}

impl Checker<'_, '_> {
    /// What leaves the attributes at a key without an access list, and whether others are left;
    /// `None`: that is not known.
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
