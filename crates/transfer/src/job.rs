//! A snapshot that is sent: with whose rights, in how much memory, until when.

use std::sync::atomic::{AtomicBool, Ordering};

use fs::Fs;
use inode::Caller;

use crate::error::{Error, Result};

/// What is sent, for the two ways to do it.
pub(crate) struct Job<'a> {
    pub(crate) fs: &'a Fs,
    pub(crate) caller: &'a Caller,
    pub(crate) memory: usize,
    pub(crate) cancel: &'a AtomicBool,
}

impl Job<'_> {
    /// Ends the work of a caller that has left.
    pub(crate) fn check_wanted(&self) -> Result<()> {
        if self.cancel.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Counts bytes of memory.
    pub(crate) fn count(&self, used: &mut usize, more: usize, what: &'static str) -> Result<()> {
        *used = used.saturating_add(more);
        if *used > self.memory {
            return Err(Error::Memory { what, limit: self.memory });
        }
        Ok(())
    }
}
