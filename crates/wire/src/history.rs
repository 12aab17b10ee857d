//! Versions of a path, as `History` returns them.

use serde::{Deserialize, Serialize};

use crate::{Attr, Bytes, Snapshot};

/// The object at a path in a snapshot, or at present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The snapshot; `None`: now.
    pub snapshot: Option<Snapshot>,
    /// The directory of the snapshot.
    pub directory: Bytes,
    /// Its attributes; `None`: no object, or none that the caller may see.
    pub attr: Option<Attr>,
    /// How it differs from the version before.
    pub change: Change,
}

/// How a version differs from the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// It does not exist, as before.
    Absent,
    /// It exists, and did not before.
    Appeared,
    /// It exists, and no snapshot shows the state before.
    Present,
    /// It is unchanged.
    Same,
    /// Its contents changed.
    Contents,
    /// Its attributes changed.
    Attributes,
    /// Another object has replaced it.
    Replaced,
    /// It was removed.
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
