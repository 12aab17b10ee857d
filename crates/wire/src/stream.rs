//! Streams of snapshots: what was sent, and what was received.

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// What was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Records, without the first and the last.
    pub records: u64,
    /// Bytes of contents in them.
    pub bytes: u64,
    /// Bytes of the stream; of a dry run, an estimate.
    pub stream_bytes: u64,
    /// Whether the snapshot is held as the base of the next increment.
    pub held: bool,
    /// How many older snapshots the hold of this name was released from.
    pub released: u64,
}

/// How much of a stream was applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receiving {
    /// Records.
    pub records: u64,
    /// Bytes of contents in them.
    pub bytes: u64,
    /// About how many bytes of contents the stream has; 0: not known.
    pub expected_bytes: u64,
    /// About how many inodes the stream has; 0: not known.
    pub expected_changes: u64,
}

/// What was received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// The snapshot's name.
    pub snapshot: Bytes,
    /// The name of the base, if the stream was an increment.
    pub base: Option<Bytes>,
    /// Records that were applied.
    pub records: u64,
    /// Bytes of contents in them.
    pub bytes: u64,
}
