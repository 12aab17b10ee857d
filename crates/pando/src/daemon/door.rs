//! What makes a process the daemon of a volume, and how clients find it: the lock, and the socket.
//!
//! Both are in the directory that this process holds open, even if its path points elsewhere by
//! now. A socket that was removed is created again. Otherwise no client could reach the daemon,
//! and no process could replace it.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use client::Listening;
use device::Lock;
use device::sync::Mutex;

/// The lock and the socket of a daemon.
pub(super) struct Door {
    /// `None` after it was released.
    lock: Mutex<Option<Box<dyn Lock>>>,
    listening: Mutex<Arc<Listening>>,
}

impl Door {
    /// Listens in the directory of the lock.
    pub(super) fn open(lock: Box<dyn Lock>, directory: BorrowedFd<'_>) -> io::Result<Arc<Door>> {
        let listening = Arc::new(Listening::bind(directory)?);
        Ok(Arc::new(Door { lock: Mutex::new(Some(lock)), listening: Mutex::new(listening) }))
    }

    /// The listening socket.
    pub(super) fn listening(&self) -> Arc<Listening> {
        Arc::clone(&self.listening.lock())
    }

    /// Whether a socket is the one that clients currently connect to.
    pub(super) fn is_in_use(&self, listening: &Arc<Listening>) -> bool {
        Arc::ptr_eq(&self.listening.lock(), listening)
    }

    /// Creates the socket again if it is gone, and returns it. Does nothing if the lock file is
    /// gone, too: then the volume is gone, and a client that finds a socket there expects another
    /// daemon.
    pub(super) fn restore(&self) -> io::Result<Option<Arc<Listening>>> {
        let mut listening = self.listening.lock();
        let lock = self.lock.lock();
        if !lock.as_ref().is_some_and(|lock| lock.is_there().unwrap_or(false)) {
            return Ok(None);
        }
        let Some(restored) = listening.restored()? else { return Ok(None) };
        // Clients that wait for a connection on the old socket stop waiting.
        listening.close().unwrap_or_default();
        *listening = Arc::new(restored);
        Ok(Some(Arc::clone(&listening)))
    }

    /// Whether the lock file is gone, and with it the volume. No client can find this daemon, and
    /// its lock on the directory blocks the daemon of a volume that takes its place.
    pub(super) fn is_lost(&self) -> bool {
        let lock = self.lock.lock();
        lock.as_ref().is_some_and(|lock| matches!(lock.is_there(), Ok(false)))
    }

    /// Accepts no more connections, and removes the socket.
    pub(super) fn close(&self) -> io::Result<()> {
        let listening = self.listening.lock();
        let removed = listening.remove();
        listening.close().unwrap_or_default();
        removed
    }

    /// Releases the lock: another process may take it.
    pub(super) fn release(&self) {
        let Some(lock) = self.lock.lock().take() else { return };
        if let Err(error) = lock.describe("") {
            tracing::debug!(%error, "cannot clear the process ID in the lock file");
        }
    }
}
