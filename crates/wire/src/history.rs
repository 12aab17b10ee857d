//! Versions of a path, as `History` returns them.

use inode::VersionChange;
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
    pub change: VersionChange,
}
