//! What is told of a trash.

use serde::{Deserialize, Serialize};

use crate::{Attr, Bytes};

/// A trash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trash {
    /// Inode number of the directory that has it, as users see it.
    pub directory: u64,
    /// How long it keeps what is removed, in seconds.
    pub keep_seconds: u64,
}

/// Something in a trash that comes back as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Where it was, from the directory that has the trash on.
    pub path: Bytes,
    /// When it was removed, in nanoseconds since 1970.
    pub removed: i64,
    /// What it is.
    pub attr: Attr,
}
