//! What fails in an import: names that are not made, and parts of them that the caller may not set.
//!
//! A file whose owner or attribute the caller may not set is complete without it, as `cp` and `tar`
//! leave it. It is reported, and counts as failed: the import ends with the exit code of one that
//! is not whole.

use fs::FsResult;
use inode::permissions::{SET_GID, SET_UID};
use inode::{FsError, Kind, SetAttr};

/// Most parts of a name that one error lists.
const PARTS_MAX: usize = 4;

const BOTH: &str = ": the old file stays until the new one is complete, so both need space; where \
                    that is too much, remove the old one first";

/// Why a name was not made.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: FsError,
    /// Whether an old file has the name, which stays until the new one is complete.
    pub(super) replaces: bool,
}

impl From<FsError> for Failed {
    fn from(error: FsError) -> Failed {
        Failed { error, replaces: false }
    }
}

impl Failed {
    /// What the command gets.
    pub(super) fn message(&self) -> String {
        let is_full = matches!(self.error, FsError::NoSpace | FsError::QuotaExceeded);
        let also = if self.replaces && is_full { BOTH } else { "" };
        format!("{}{also}", self.error)
    }
}

/// What the caller may not set of something that was made. The rest was set.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    parts: Vec<String>,
    more: usize,
    why: Option<FsError>,
}

impl Withheld {
    /// Takes the outcome of setting a part. What the caller may not set is noted, any other
    /// failure is returned.
    pub(super) fn take(&mut self, done: FsResult<()>, part: impl Fn() -> String) -> FsResult<()> {
        match done {
            Err(why) if is_refused(&why) => {
                if self.parts.len() < PARTS_MAX {
                    self.parts.push(part());
                } else {
                    self.more += 1;
                }
                self.why.get_or_insert(why);
                Ok(())
            }
            done => done,
        }
    }

    /// Why something was not set, and what the command gets; `None`: all was set.
    pub(super) fn message(&self) -> Option<(&FsError, String)> {
        let why = self.why.as_ref()?;
        let more = if self.more > 0 { format!(" and {} more", self.more) } else { String::new() };
        Some((why, format!("imported without {}{more}: {why}", self.parts.join(", "))))
    }
}

/// Whether the caller may not do it.
pub(super) fn is_refused(error: &FsError) -> bool {
    matches!(error, FsError::NotPermitted(_) | FsError::RootOnly(_))
}

/// The same changes without the owner, and with or without the group. Nothing then runs as somebody
/// whom the source does not name. On a directory with the group of the source, the bit of the group
/// stays. It gives no right there; what is made in the directory gets that group.
pub(super) fn without_owner(kind: Kind, changes: &SetAttr, group: bool) -> SetAttr {
    let without = if kind == Kind::Directory && group { SET_UID } else { SET_UID | SET_GID };
    let mode = changes.mode.map(|mode| mode & !without);
    SetAttr { mode, uid: None, gid: changes.gid.filter(|_| group), ..*changes }
}
