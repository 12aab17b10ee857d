//! Changes between two states of a directory, as `Diff` returns them.

use inode::{ChangeKind, Field};
use serde::{Deserialize, Serialize};

use crate::{Attr, Bytes};

/// A change of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// What happened.
    pub kind: ChangeKind,
    /// The path in the old state, relative to its directory, which is the empty path, and the
    /// attributes there. `None` for a name that was created.
    pub old: Option<(Bytes, Attr)>,
    /// The same of the new state. `None` for a name that was removed.
    pub new: Option<(Bytes, Attr)>,
    /// What differs, where there are both.
    pub fields: Vec<Field>,
    /// For a name that was created or removed: the inode is in both states under other names.
    pub is_link: bool,
}
