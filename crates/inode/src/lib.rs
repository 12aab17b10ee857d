//! Attributes, names and permission rules, shared by the namespace and search.
//!
//! Promises: nothing here does I/O, takes a lock or keeps state. So every function may be called
//! from any thread, and returns the same for the same arguments. Rules of permissions exist here
//! once ([`permissions`]); extended attributes have further ones in `ops`. An [`FsError`] is an
//! answer of POSIX, or [`FsError::Io`] for what a lower layer could not do; its text names what and
//! where. Times are nanoseconds since 1970 and may be negative; sizes are bytes; names are bytes, 1
//! to 255 of them, in no encoding. Types that cross the socket keep the order of their fields and
//! variants.
//!
//! Which module decides what:
//! * `permissions`: who may read, write, remove and change what; set-id bits
//! * `caller`: the caller of an operation, and what the kernel checks already
//! * `name`, `name_hash`: which names are refused; their order in a directory
//! * `id`: numbers of inodes, subvolumes and nodes
//! * `attr`, `outside`: attributes; those of other file systems
//! * `errors`: errors of calls
//! * `change`: what may differ between two states
//! * `units`: sizes and times as people write them

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
pub use change::{ChangeKind, Field, VersionChange};
pub use errors::{FsError, IoFailure};
pub use id::{AtomicNode, Ino, NodeId, Slot, SubvolId};
pub use name::{NAME_BYTES_MAX, Name, PATH_BYTES_MAX, SYMLINK_BYTES_MAX};
pub use name_hash::NameHash;
pub use outside::Outside;
pub use permissions::Owned;
pub use units::{parse_bytes, parse_duration, parse_limit};
