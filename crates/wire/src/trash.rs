//! Information about a trash.

use serde::{Deserialize, Serialize};

use crate::{Attr, Bytes};

/// A trash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trash {
    /// Inode number of the directory that has it, as users see it.
    pub directory: u64,
    /// How long it keeps removed objects, in seconds.
    pub keep_seconds: u64,
    /// Directories below the requested one that have a non-empty trash of their own: some of them,
    /// if there are many.
    pub below: Vec<Bytes>,
}

/// An object in a trash that is restored as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Its former path, from the root of the volume.
    pub path: Bytes,
    /// When it was removed, in nanoseconds since 1970.
    pub removed: i64,
    /// Its attributes.
    pub attr: Attr,
}
