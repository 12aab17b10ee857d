//! Numeric newtypes.

/// A tree of a store. Callers choose numbers and never use one twice; those up to
/// [`TreeId::LAST_RESERVED`] belong to engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u64);

impl TreeId {
    /// The last number that callers may not use.
    pub const LAST_RESERVED: TreeId = TreeId(15);
}

/// Log sequence number: the order of commits, from 1, without gaps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// What a commit returns: pass it to `sync` to wait until the commit is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitToken(pub Lsn);

/// When a commit is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When it returns. Concurrent commits share one write and one `fdatasync`.
    Sync,
    /// When [`crate::Durable::settle`] returns, which the caller waits for before it reports the
    /// commit to anybody; meanwhile its thread executes others. Reported as `sync`.
    Settled,
    /// When `sync` returns, and at the latest after the log's interval while a thread calls
    /// [`crate::Durable::flush_if_due`].
    Async,
}

impl Durability {
    /// The name used on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Sync | Durability::Settled => "sync",
            Durability::Async => "async",
        }
    }
}
