//! What is told of a trash.

use serde::{Deserialize, Serialize};

use crate::{Attr, Bytes};

/// A trash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trash {
    /// Inode number of the directory that has it, as users see it.
    pub directory: u64,
    /// How long it keeps what is removed, in seconds.
    pub keep_seconds: u64,
    /// Directories below the one that was asked about that have a trash of their own with
    /// something in it: some of them, where there are many.
    pub below: Vec<Bytes>,
}

/// Something in a trash that comes back as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Where it was, from the root of the volume.
    pub path: Bytes,
    /// When it was removed, in nanoseconds since 1970.
    pub removed: i64,
    /// What it is.
    pub attr: Attr,
}
