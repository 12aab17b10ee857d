//! What failed of an import, as the command gets it: names that were not made, and parts of names
//! that the caller may not set.
//!
//! A file whose owner or attribute the caller may not set is complete without it, as `cp` and `tar`
//! leave it. It is reported, and counts as failed: the import ends with the exit code of one that
//! is not whole.

use fs::FsResult;
use inode::permissions::{SET_GID, SET_UID};
use inode::{FsError, SetAttr};
use wire::{Bytes, FailureKind, ImportStop, ItemError};

use super::Import;

/// Most errors that are reported in full between two flushes.
const ERRORS_MAX: usize = 100;

/// Most bytes of their paths.
const ERROR_PATHS_BYTES_MAX: usize = 64 << 10;

/// Most parts of a name that one error lists.
const PARTS_MAX: usize = 4;

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
}

/// Whether the caller may not do it.
pub(super) fn is_refused(error: &FsError) -> bool {
    matches!(error, FsError::NotPermitted(_) | FsError::RootOnly(_))
}

/// The same changes without the owner, and with or without the group. Nothing then runs as somebody
/// whom the source does not name.
pub(super) fn without_owner(changes: &SetAttr, group: bool) -> SetAttr {
    let mode = changes.mode.map(|mode| mode & !(SET_UID | SET_GID));
    SetAttr { mode, uid: None, gid: changes.gid.filter(|_| group), ..*changes }
}

impl Import<'_> {
    /// Records that something was not made.
    pub(super) fn failed(&mut self, name: &[u8], failed: impl Into<Failed>) {
        let Failed { error, replaces } = failed.into();
        let stop = match error {
            FsError::NoSpace => Some(ImportStop::Full),
            FsError::QuotaExceeded => Some(ImportStop::Quota),
            FsError::LimitReached(_) => Some(ImportStop::Limit),
            FsError::ReadOnly(_) => Some(ImportStop::ReadOnly),
            _ => None,
        };
        let mut message = error.to_string();
        if replaces && matches!(error, FsError::NoSpace | FsError::QuotaExceeded) {
            message.push_str(
                ": the old file stays until the new one is complete, so both need space; \
                 where that is too much, remove the old one first",
            );
        }
        self.report(name, (FailureKind::from(&error), message), stop);
    }

    /// Records what something was made without, if that is anything.
    pub(super) fn withheld(&mut self, name: &[u8], withheld: &Withheld) {
        let Some(why) = &withheld.why else { return };
        let mut without = withheld.parts.join(", ");
        if withheld.more > 0 {
            without.push_str(&format!(" and {} more", withheld.more));
        }
        let message = format!("imported without {without}: {why}");
        self.report(name, (FailureKind::from(why), message), None);
    }

    fn report(
        &mut self,
        name: &[u8],
        (kind, message): (FailureKind, String),
        stop: Option<ImportStop>,
    ) {
        if self.errors.len() >= ERRORS_MAX || self.error_paths_bytes >= ERROR_PATHS_BYTES_MAX {
            self.more_errors += 1;
            return;
        }
        let path = self.path_of(name);
        self.error_paths_bytes += path.len();
        self.errors.push(ItemError { path: Bytes(path), message, kind, stop });
    }
}
