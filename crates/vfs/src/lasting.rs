//! What a volume keeps of the clients of the server that serves it. Another process that serves the
//! volume later requests parts of it.

use inode::NodeId;

use crate::{Entry, FsResult, Request};

/// The secret of a session, by which the volume knows it.
pub type SessionId = [u8; 16];

/// The effect of a request that was executed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Executed {
    /// The node that it made, or gave a name.
    pub node: Option<NodeId>,
    /// The number that it is answered with.
    pub number: u64,
}

/// What a volume keeps for its server.
pub trait Lasting: Send + Sync {
    /// Begins a session, which is durable when this returns.
    fn begin(&self) -> FsResult<SessionId>;

    /// The sessions.
    fn sessions(&self) -> FsResult<Vec<SessionId>>;

    /// What a request did, if it was executed.
    fn executed(&self, request: &Request) -> FsResult<Option<Executed>>;

    /// The client has the answers to all requests up to this one. Returns up to which one it has
    /// them, as the volume knows: that may be a later one.
    fn confirm(&self, session: &SessionId, done: u64) -> FsResult<u64>;

    /// Ends sessions. They may not have begun.
    fn end(&self, sessions: &[SessionId]) -> FsResult<()>;

    /// Finds a node again that a session of another process held; takes one look-up.
    fn find_again(&self, node: NodeId) -> FsResult<Entry>;

    /// Sessions of other processes claim nothing any more: what nobody holds may be removed.
    fn settle(&self);

    /// This process serves the volume no more: what only its sessions hold stays for the next one,
    /// although it is held no more here.
    fn keep_orphans(&self);

    /// A key that is the volume's alone.
    fn key(&self) -> [u8; 16];
}
