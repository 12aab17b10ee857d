//! Versions of a path, as `History` tells them.

use serde::{Deserialize, Serialize};

use crate::{Attr, Bytes, Snapshot};

/// What stood at a path in a snapshot, or stands there now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The snapshot; `None`: now.
    pub snapshot: Option<Snapshot>,
    /// The directory that it is a snapshot of.
    pub directory: Bytes,
    /// What stood there; `None`: nothing, or nothing that the caller may see.
    pub attr: Option<Attr>,
    /// How it differs from the version before.
    pub change: Change,
}

/// How a version differs from the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// There is nothing, as before.
    Absent,
    /// It is there, and was not before.
    Appeared,
    /// It is there, and no snapshot tells what was before.
    Present,
    /// It is what it was.
    Same,
    /// Its contents changed.
    Contents,
    /// Its attributes changed.
    Attributes,
    /// Something else stands there.
    Replaced,
    /// It is gone.
    Vanished,
}

impl Change {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Change::Absent => "absent",
            Change::Appeared => "appeared",
            Change::Present => "present",
            Change::Same => "same",
            Change::Contents => "contents",
            Change::Attributes => "attributes",
            Change::Replaced => "replaced",
            Change::Vanished => "vanished",
        }
    }
}
