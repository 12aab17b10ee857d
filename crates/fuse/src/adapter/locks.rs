//! Locks that programs agree on, for a file system that keeps them itself.

use vfs::{FileLock, Locked};

use super::{Adapter, Answer, Who, failed};
use crate::errno::Errno;

impl Adapter {
    /// Whether the kernel passes locks on, and does not keep them by itself.
    pub(crate) fn keeps_locks(&self) -> bool {
        self.fs.keeps_locks()
    }

    /// Takes or ends a lock.
    pub(crate) fn lock(&self, who: Who, number: u64, lock: &FileLock, wait: bool) -> Answer<()> {
        let locked = self.fs.lock(&self.caller(who), self.node(number), lock, wait);
        match locked.map_err(failed("lock", number))? {
            Locked::Done => Ok(()),
            Locked::Busy => Err(Errno(libc::EAGAIN)),
            Locked::TooMany => Err(Errno(libc::ENOLCK)),
            Locked::Deadlock => Err(Errno(libc::EDEADLK)),
        }
    }

    /// The first lock of another that conflicts.
    pub(crate) fn test_lock(
        &self,
        who: Who,
        number: u64,
        lock: &FileLock,
    ) -> Answer<Option<FileLock>> {
        let found = self.fs.test_lock(&self.caller(who), self.node(number), lock);
        found.map_err(failed("lock", number))
    }

    /// Ends the locks of an owner: a file was closed.
    pub(crate) fn unlock(&self, who: Who, number: u64, owner: u64, whole: bool) -> Answer<()> {
        let done = self.fs.unlock(&self.caller(who), self.node(number), owner, whole);
        done.map_err(failed("unlock", number))
    }
}
