//! What operations on a volume are made of. [`Core`] is an open volume with its store, and the
//! tables of nodes, locks, numbers and subvolumes. The other modules read records of it.
//!
//! Nothing here changes a record by itself, except the numbers that are reserved in advance and
//! the copies of the volume's own records ([`record_copies`]). No operation, no policy and no
//! background work is known here.
//!
//! Promises: a number of an inode or a segment is handed out once, whatever crashes ([`numbers`]).
//! A record that does not decode is an error that names its tree, never an absent one. A volume
//! that is refused when it is opened is left as it is. Locks of a set are taken in one order, so
//! no two sets wait for each other ([`locks`]). A gate that is passed exclusively keeps a
//! subvolume as it is ([`subvol`]). What a front end holds stays known until it forgets it
//! ([`nodes`]).
//!
//! Which module decides what:
//! * `core`: an open volume; what opening refuses; names; notices
//! * `view`, `load`, `attributes`: records of a tree, where an inode is, what callers see of it
//! * `permit`, `inherited`: permissions of stored inodes, what new ones inherit; names in copies
//! * `record_copies`, `readable`: the volume's own records and their copies; scans past damage
//! * `objects`, `contents`: a volume in an object store: what is where, who waits
//! * `numbers`, `slots`: numbers of inodes, segments and subvolumes
//! * `subvol`, `own_tree`, `nodes`, `locks`: gates, held inodes, locks of names and objects
//! * `arrivals`: what changes while a tree's owner is checked
//! * `account`: limits, and what is charged
//! * `info`: options, and what a volume reports
//! * `error`, `open_error`: errors of lower layers; why a volume is not opened

// Records as they are seen.
pub mod permit;
pub mod load;
pub mod attributes;
pub mod inherited;
pub mod view;

pub mod core;

// The volume's own records, twice; where contents are.
pub mod objects;
mod contents;
pub mod record_copies;
pub mod readable;

// Tables in memory.
pub mod numbers;
pub mod subvol;
pub mod slots;
mod own_tree;
pub mod nodes;
pub mod locks;
pub mod arrivals;
pub mod account;

// What callers see.
pub mod open_error;
pub mod error;
pub mod info;

pub use crate::core::Core;
pub use info::{
    Atime, CloneInfo, Hold, KeptSnapshot, LimitChange, ObjectsStatus, OpenOptions, OwnerQuota,
    Progress, QuotaChange, QuotaDifference, QuotaInfo, QuotaLimits, QuotaOf, Removed,
    RestoreOptions, Restored, RmrInfo, Schedule, ScheduleInfo, SnapshotInfo, SnapshotQuery,
    SnapshotsOf, SubvolumeBounds, TrashSetting, VolumeId, VolumeStatus,
};
pub use open_error::OpenError;
