//! The interface to the FUSE protocol: carries requests to the adapter and answers back.
//!
//! `kernel/` is the one implementation, which reads and writes the device by itself. It can be
//! replaced (by FUSE over io_uring, for example) without other changes, because no other code knows
//! a structure of the protocol.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::adapter::Adapter;
use crate::turns::Turns;

/// How requests are served.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workers {
    /// Number of threads.
    pub(crate) threads: usize,
    /// Whether each has its own channel.
    pub(crate) clone_channel: bool,
}

/// A way to talk to the kernel.
pub(crate) trait Transport {
    /// Negotiates version and features with the kernel over an attached channel.
    fn negotiate(
        &self,
        channel: OwnedFd,
        adapter: Arc<Adapter>,
        workers: Workers,
    ) -> io::Result<Box<dyn Session>>;
}

/// A negotiated connection.
pub(crate) trait Session: Send {
    /// The notifier that makes the kernel drop its caches.
    fn notifier(&self) -> Box<dyn Notifier>;

    /// The threads that serve, once they run.
    fn turns(&self) -> Arc<Turns>;

    /// Serves requests until the file system is unmounted.
    fn run(self: Box<Self>) -> io::Result<()>;
}

/// Makes the kernel drop its caches. A thread that serves requests may call only `attributes`: the
/// kernel may need such a thread to release the lock that another call waits for.
pub(crate) trait Notifier: Send + Sync {
    /// A name of a directory, with everything that is cached below it and is not in use: takes time
    /// in proportion to that.
    fn name(&self, parent: u64, name: &[u8]) -> io::Result<()>;

    /// Makes the kernel look a name up again at its next use; immediate, whatever is cached below
    /// it.
    fn expire(&self, parent: u64, name: &[u8]) -> io::Result<()>;

    /// Whether the kernel supports that (6.2 and later).
    fn can_expire(&self) -> bool;

    /// Attributes and contents of an inode; of a directory, its listing.
    fn node(&self, node: u64) -> io::Result<()>;

    /// A part of the contents of an inode.
    fn contents(&self, node: u64, offset: u64, length: u64) -> io::Result<()>;

    /// Attributes of an inode only; pages of its contents stay. It waits for no request if the
    /// inode belongs to the request that is being served.
    fn attributes(&self, node: u64) -> io::Result<()>;

    /// All names at once, if the kernel supports that (6.16 and later).
    fn all_names(&self) -> io::Result<()>;

    /// Whether the kernel can drop all names at once.
    fn can_drop_all_names(&self) -> bool;
}
