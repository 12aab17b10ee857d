//! Records what failed until the command asks for it. The number of errors is bounded, and the rest
//! is counted.

use inode::FsError;
use wire::{Bytes, FailureKind, ImportStop, ItemError};

use super::Import;
use super::failed::{Failed, Withheld};

/// Most errors that are reported in full between two flushes.
const ERRORS_MAX: usize = 100;

/// Most bytes of their paths.
const ERROR_PATHS_BYTES_MAX: usize = 64 << 10;

impl Import<'_> {
    /// Records that something was not made.
    pub(super) fn failed(&mut self, name: &[u8], failed: impl Into<Failed>) {
        let failed = failed.into();
        let stop = match failed.error {
            FsError::NoSpace => Some(ImportStop::Full),
            FsError::QuotaExceeded => Some(ImportStop::Quota),
            FsError::LimitReached(_) => Some(ImportStop::Limit),
            FsError::ReadOnly(_) => Some(ImportStop::ReadOnly),
            _ => None,
        };
        self.report(name, (FailureKind::from(&failed.error), failed.message()), stop);
    }

    /// Records what something was made without, if that is anything.
    pub(super) fn withheld(&mut self, name: &[u8], withheld: &Withheld) {
        if let Some((why, message)) = withheld.message() {
            self.report(name, (FailureKind::from(why), message), None);
        }
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
