//! Snapshots, as answers name them.

use serde::{Deserialize, Serialize};

use crate::{Bytes, Hold};

/// One snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its name.
    pub name: Bytes,
    /// Its subvolume number.
    pub subvolume: u64,
    /// Its lineage.
    pub lineage: u64,
    /// When it was taken, in nanoseconds since 1970.
    pub created: i64,
    /// What prevents its deletion.
    pub holds: Vec<Hold>,
}

/// A snapshot in the list of all snapshots of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSnapshot {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Whether its directory was removed.
    pub removed: bool,
    /// The present path of its directory, or the path when the snapshot was taken; `None`: not
    /// known.
    pub path: Option<Bytes>,
    /// Where its contents can be read: a path inside the volume.
    pub at: Bytes,
}
