//! The trait of what keeps names for servers.

use std::time::Duration;

/// Names with values, some of which vanish when their lease ends. Every call is linearizable, waits
/// for its answer for a bounded time, and may be sent to several machines. After
/// [`Error::Unreachable`] the caller does not know whether a change was made: it reads.
pub trait Coordinator: Send + Sync {
    /// Begins a lease. It ends when this time has passed without `keep_alive`, or soon after,
    /// even if the one who asked does not live. Counted from some moment after the call began.
    fn grant(&self, length: Duration) -> Result<Lease>;

    /// Lets the time of a lease begin again. [`Error::LeaseEnded`]: its names are gone.
    fn keep_alive(&self, lease: Lease) -> Result<()>;

    /// Ends a lease, and removes its names. One that has ended is no error.
    fn revoke(&self, lease: Lease) -> Result<()>;

    /// Makes a name, if it does not exist. [`Error::LeaseEnded`]: the lease has.
    fn put_if_absent(&self, key: &str, value: &[u8], lease: Option<Lease>) -> Result<Put>;

    /// A name.
    fn get(&self, key: &str) -> Result<Option<Item>>;

    /// All names that begin with a prefix, in order.
    fn list(&self, prefix: &str) -> Result<Vec<Item>>;

    /// Removes a name, if it has this revision; whether it did.
    fn remove(&self, key: &str, revision: u64) -> Result<bool>;
}

/// A lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lease(pub u64);

/// A name with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The name.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// Raised with each change of any name: the same name made again has another one.
    pub revision: u64,
    /// The lease with which it ends.
    pub lease: Option<Lease>,
}

/// What became of a name that was to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Put {
    /// It was made, with this revision.
    Made(u64),
    /// It exists.
    Exists(Item),
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No answer in time, or an answer that says that it does not work now. A change may have been
    /// made.
    #[error("{0}")]
    Unreachable(String),
    /// The lease has ended.
    #[error("the lease has ended")]
    LeaseEnded,
    /// It takes no more names until an administrator makes space. What it has can be read.
    #[error("{0}: it is full; compact and defragment it, then disarm its NOSPACE alarm")]
    Full(String),
    /// It does not let this program in.
    #[error("{0}")]
    Refused(String),
    /// It answers something that is not understood.
    #[error("{0}")]
    Foreign(String),
}

impl Error {
    /// Whether the same call may succeed later without anybody's help.
    pub fn may_pass(&self) -> bool {
        matches!(self, Error::Unreachable(_) | Error::LeaseEnded)
    }
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;
