//! The seam to the FUSE protocol: what carries requests to the adapter and answers back.
//!
//! `kernel/` is the one implementation, which reads and writes the device by itself. It can be
//! replaced (by FUSE over io_uring, say) without a change anywhere else, for nothing else knows a
//! structure of the protocol.

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
    /// Whether each has a channel of its own.
    pub(crate) clone_channel: bool,
}

/// A way to talk to the kernel.
pub(crate) trait Transport {
    /// Agrees with the kernel on version and features over an attached channel.
    fn negotiate(
        &self,
        channel: OwnedFd,
        adapter: Arc<Adapter>,
        workers: Workers,
    ) -> io::Result<Box<dyn Session>>;
}

/// An agreed connection.
pub(crate) trait Session: Send {
    /// What tells the kernel to drop what it caches.
    fn notifier(&self) -> Box<dyn Notifier>;

    /// The threads that serve, once they do.
    fn turns(&self) -> Arc<Turns>;

    /// Serves requests until the file system is unmounted.
    fn run(self: Box<Self>) -> io::Result<()>;
}

/// Tells the kernel to drop what it caches. But for `attributes`, must not be called by a thread
/// that serves requests: the kernel may need such a thread to let go of the lock that a call waits
/// for.
pub(crate) trait Notifier: Send + Sync {
    /// A name of a directory, with all that is cached below it and is not in use: that takes time
    /// in proportion to how much it is.
    fn name(&self, parent: u64, name: &[u8]) -> io::Result<()>;

    /// Has a name looked up again when it is next used, at once and whatever is cached below it.
    fn expire(&self, parent: u64, name: &[u8]) -> io::Result<()>;

    /// Whether the kernel can do that (6.2 and later).
    fn can_expire(&self) -> bool;

    /// Attributes and contents of an inode; of a directory, its listing.
    fn node(&self, node: u64) -> io::Result<()>;

    /// A part of the contents of an inode.
    fn contents(&self, node: u64, offset: u64, length: u64) -> io::Result<()>;

    /// Attributes of an inode alone; pages of its contents stay. It waits for no request, where
    /// the inode is one of the request that is being served.
    fn attributes(&self, node: u64) -> io::Result<()>;

    /// All names at once, where the kernel can do that (6.16 and later).
    fn all_names(&self) -> io::Result<()>;

    /// Whether the kernel can drop all names at once.
    fn can_drop_all_names(&self) -> bool;
}
