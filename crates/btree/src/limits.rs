//! How full a node may be: the bounds [b, 3b] of Rodeh's B-tree, in bytes.
//!
//! Every node but a root weighs between `WEIGHT_MIN` = b and `WEIGHT_MAX` = 3b. Weights are upper
//! bounds of encoded sizes. The rules follow from three facts. An entry of a leaf weighs at most
//! `ENTRY_MAX`, a child with its separator at most `CHILD_MAX`, and both are small against b.
//!
//! * On the way down an interior node that could not take one more child is split, so a split below
//!   always finds space above. Either half weighs at least (3b - CHILD_MAX - CHILD_MAX) / 2, which
//!   is more than b.
//! * On the way down to remove something, an interior node that could not lose a child is merged
//!   with a sibling, or takes from it. A leaf is merged after it has become underfull.
//! * Two siblings become one when they weigh at most `MERGE_MAX` together, which leaves space for
//!   insertions. Otherwise they share evenly, and each then weighs far more than b.

use format::batch::KEY_BYTES_MAX;
use format::node::INLINE_VALUE_BYTES_MAX;
use format::{POINTER_BYTES, batch};

/// Greatest weight (3b): with its header a node then takes at most 16 KiB. Larger nodes make
/// smaller trees; smaller ones cost less to shadow.
pub(crate) const WEIGHT_MAX: usize = (16 << 10) - 64;
/// Least weight (b) of a node that is not a root.
pub(crate) const WEIGHT_MIN: usize = WEIGHT_MAX / 3;
/// Greatest weight of the node that two siblings are merged into.
pub(crate) const MERGE_MAX: usize = WEIGHT_MAX / 20 * 17;
/// Greatest weight of an entry of a leaf.
pub(crate) const ENTRY_MAX: usize = KEY_BYTES_MAX + INLINE_VALUE_BYTES_MAX + 4;
/// Greatest weight of a child with its separator.
pub(crate) const CHILD_MAX: usize = KEY_BYTES_MAX + POINTER_BYTES + 4;

const _: () = assert!((WEIGHT_MAX - 2 * CHILD_MAX) / 2 >= WEIGHT_MIN + CHILD_MAX);
const _: () = assert!((WEIGHT_MAX - 2 * ENTRY_MAX) / 2 >= WEIGHT_MIN);
const _: () = assert!((MERGE_MAX - ENTRY_MAX) / 2 >= WEIGHT_MIN);
const _: () = assert!(MERGE_MAX + CHILD_MAX <= WEIGHT_MAX);
const _: () = assert!(batch::VALUE_BYTES_MAX <= 1 << 20);
