//! The first messages of both sides.

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// First bytes of a hello and of a welcome.
pub const REMOTE_MAGIC: [u8; 8] = *b"pando-r\n";

/// The newest version of the remote messages that this program speaks.
pub const REMOTE_VERSION: u32 = 2;

/// The oldest one.
pub const REMOTE_VERSION_MIN: u32 = 2;

/// Bits of features that this program has.
pub const FEATURES: u64 = FEATURE_TAKEN_OVER;

/// In a welcome: another server may take the volume over. In a hello: the client knows what then.
pub const FEATURE_TAKEN_OVER: u64 = 1;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Use {
    /// Calls of a file system.
    Mount,
    /// One connection to the control socket of the volume's daemon, for the given user and groups.
    Control,
}

/// A session to continue after its connection was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// Its number.
    pub session: u64,
    /// What only its client knows.
    pub secret: [u8; 16],
    /// A number that the client raises with each connection that it makes for the session, from 0
    /// for the first. So a hello that arrives late does not replace a newer connection.
    pub attempt: u64,
}

/// First message of a client. The layout of its first three fields never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteHello {
    /// [`REMOTE_MAGIC`].
    pub magic: [u8; 8],
    /// The oldest version that the client speaks.
    pub version_min: u32,
    /// The newest one.
    pub version: u32,
    /// Features that the client has.
    pub features: u64,
    /// The name of the volume, as the server calls it.
    pub volume: Bytes,
    /// What the connection is for.
    pub use_for: Use,
    /// For whom, if it is a control connection.
    pub who: super::Asker,
    /// The session to continue.
    pub resume: Option<Resume>,
    /// Of that session, the requests whose answers the client still awaits.
    pub awaits: Vec<u64>,
}

/// The answer to a hello. The layout of its first two fields never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteWelcome {
    /// [`REMOTE_MAGIC`].
    pub magic: [u8; 8],
    /// The version that is spoken from now on.
    pub version: u32,
    /// Features that both sides have.
    pub features: u64,
    /// The session.
    pub session: Resume,
    /// Whether it is the session that the client asked to continue.
    pub resumed: bool,
    /// Whether the server took over from another one, and the client must claim what it holds.
    pub reclaims: bool,
    /// Most requests that may be in flight.
    pub requests_max: u32,
    /// How long the client may be silent, in seconds.
    pub silence_seconds: u32,
    /// Whether the client may change nothing.
    pub read_only: bool,
}

/// What a client holds of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldNode {
    /// The node.
    pub node: super::Node,
    /// Its generation.
    pub generation: u64,
    /// Look-ups that it has not returned.
    pub lookups: u64,
    /// How often it is open.
    pub opens: u32,
    /// How it was opened ([`super::OPEN_READ`] and [`super::OPEN_WRITE`], or neither), with the
    /// proof of that.
    pub proofs: Vec<(u8, u64)>,
}

/// The body of a reclaim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reclaim {
    /// Nodes, each once.
    pub nodes: Vec<HeldNode>,
    /// Locks on nodes of this message, or of those before it.
    pub locks: Vec<(super::Node, super::LockRange)>,
    /// Whether that is all.
    pub last: bool,
}
