//! The tree of the volume's own records: those of subvolumes, segments, and what is detached.

use format::key;
use store::TreeId;

/// The volume's own tree.
pub const VOLUME: TreeId = TreeId(key::VOLUME_TREE);
