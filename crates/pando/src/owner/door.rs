//! What makes a process the owner, and by what it is found: the lock, and the socket.
//!
//! Both lie in the directory that is held, whatever its path leads to by now. A socket that
//! somebody removed is made again, or nobody would find the owner any more, nor become it.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use client::Listening;
use device::Lock;
use parking_lot::Mutex;

/// The lock and the socket of an owner.
pub(super) struct Door {
    /// `None` when it was let go of.
    lock: Mutex<Option<Box<dyn Lock>>>,
    listening: Mutex<Arc<Listening>>,
}

impl Door {
    /// Listens in the directory of the lock.
    pub(super) fn open(lock: Box<dyn Lock>, directory: BorrowedFd<'_>) -> io::Result<Arc<Door>> {
        let listening = Arc::new(Listening::bind(directory)?);
        Ok(Arc::new(Door { lock: Mutex::new(Some(lock)), listening: Mutex::new(listening) }))
    }

    /// The socket.
    pub(super) fn listening(&self) -> Arc<Listening> {
        Arc::clone(&self.listening.lock())
    }

    /// Whether a socket is the one that we are found by.
    pub(super) fn is_in_use(&self, listening: &Arc<Listening>) -> bool {
        Arc::ptr_eq(&self.listening.lock(), listening)
    }

    /// Makes the socket again if it is gone, and returns it. Not where the lock is gone, too: then
    /// the volume is, and who finds a socket there means another one.
    pub(super) fn restore(&self) -> io::Result<Option<Arc<Listening>>> {
        let mut listening = self.listening.lock();
        let lock = self.lock.lock();
        if !lock.as_ref().is_some_and(|lock| lock.is_there().unwrap_or(false)) {
            return Ok(None);
        }
        let Some(restored) = listening.restored()? else { return Ok(None) };
        // Who waits for a connection there waits no more.
        listening.close().unwrap_or_default();
        *listening = Arc::new(restored);
        Ok(Some(Arc::clone(&listening)))
    }

    /// Takes no more connections, and is not found any more.
    pub(super) fn close(&self) -> io::Result<()> {
        let listening = self.listening.lock();
        let removed = listening.remove();
        listening.close().unwrap_or_default();
        removed
    }

    /// Lets go of the lock: another one may be the owner.
    pub(super) fn release(&self) {
        let Some(lock) = self.lock.lock().take() else { return };
        if let Err(error) = lock.describe("") {
            tracing::debug!(%error, "the lock file keeps our number");
        }
    }
}
