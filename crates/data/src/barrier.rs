//! Data before the record that names it.
//!
//! The log calls [`Barrier::reach`] before it writes. A commit is made after the writes that it
//! names have returned. So what is dirty when `reach` starts includes all that such a commit may
//! name. Numbered crash argument:
//! 1. a page is written and counted as dirty before the batch that names it is committed;
//! 2. `reach` syncs every segment that is dirty when it starts, or waits for the thread that does;
//! 3. the log writes the batch after that. So a record that survives names pages that did.
//!
//! A failed sync may have lost bytes that the kernel then considers clean, so a second sync would
//! falsely succeed. After the first failure, nothing is written until the volume is reopened.

use std::sync::atomic::Ordering;

use store::{Barrier, Error, Result};

use crate::Data;

/// Where only objects are durable, a writer that holds its file syncs from so many times the usual
/// bound on.
const UNSYNCED_TIMES: u64 = 4;

impl Barrier for Data {
    fn has_failed(&self) -> bool {
        self.failed.lock().is_some()
    }

    fn reach(&self) -> std::result::Result<(), device::Error> {
        // First: bytes whose sync failed may be counted as synced.
        if let Some(error) = self.failed.lock().as_ref() {
            return Err(error.clone());
        }
        if self.unsynced.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        if self.uploads() {
            return self.upload_all().map_err(|error| match error {
                Error::Device(error) => error,
                other => self.latch(device::Error::new(
                    "create",
                    "a segment of contents",
                    std::io::Error::other(other.to_string()),
                )),
            });
        }
        for segment in self.segments.open() {
            match segment.sync() {
                Ok(bytes) => {
                    self.unsynced.fetch_sub(bytes, Ordering::AcqRel);
                }
                Err(error) => return Err(self.latch(error)),
            }
        }
        Ok(())
    }
}

impl Data {
    /// Makes every write durable that returned before the call.
    pub fn sync(&self) -> Result<()> {
        Ok(self.reach()?)
    }

    /// Bytes written and not known to be durable.
    pub fn unsynced_bytes(&self) -> u64 {
        self.unsynced.load(Ordering::Acquire)
    }

    /// Remembers the first failed sync.
    pub(crate) fn latch(&self, error: device::Error) -> device::Error {
        tracing::error!(%error, "a sync of file data failed: refusing further writes");
        self.failed.lock().get_or_insert(error).clone()
    }

    /// Fails if a sync failed earlier.
    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.failed.lock().as_ref() {
            None => Ok(()),
            Some(error) => Err(Error::ReadOnly(error.to_string().into())),
        }
    }

    /// Bounds the unsynced bytes: a writer that finds too many syncs them. For a caller that is
    /// about to write and holds no lock, since a sync may take long.
    pub fn make_space(&self, bytes: u64) -> Result<()> {
        self.bound_unsynced(bytes, self.options.unsynced_bytes_max)
    }

    /// The same for a caller that may hold its file, and has no write under way, for which a sync
    /// would wait. Where a sync waits for an object store, the bound is higher. A writer that made
    /// space before it took its file then waits here only if others have filled that since.
    pub(crate) fn make_space_to_write(&self, bytes: u64) -> Result<()> {
        let times = if self.uploads() { UNSYNCED_TIMES } else { 1 };
        self.bound_unsynced(bytes, self.options.unsynced_bytes_max.saturating_mul(times))
    }

    fn bound_unsynced(&self, bytes: u64, most: u64) -> Result<()> {
        if self.unsynced_bytes() + bytes > most {
            self.sync()?;
        }
        Ok(())
    }
}
