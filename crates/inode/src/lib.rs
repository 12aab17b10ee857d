//! Attributes, names and permission rules, shared by the namespace and search.

mod outside;
pub mod permissions;
mod attr;
mod id;
mod caller;
mod name;
mod errors;
mod change;
mod name_hash;
mod units;

pub use attr::{Attr, Kind, SetAttr, SetTime};
pub use caller::{Caller, Ends, Enforce};
pub use change::{ChangeKind, Field};
pub use errors::{FsError, IoFailure};
pub use id::{AtomicNode, Ino, NodeId, Slot, SubvolId};
pub use name::{NAME_BYTES_MAX, Name, PATH_BYTES_MAX, SYMLINK_BYTES_MAX};
pub use name_hash::NameHash;
pub use outside::Outside;
pub use permissions::Owned;
pub use units::{parse_bytes, parse_duration, parse_limit};
