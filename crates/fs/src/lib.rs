//! POSIX semantics: one file per operation; inodes, subvolumes, snapshots, clones.
//!
//! A call enters by [`FileSystem`] and is one file in `ops/`. An operation finds its subvolume
//! (`subvol`), passes its gate, takes locks (`locks`), reads records (`view`, `load`), builds a
//! batch (`txn`, `edit`) and commits it; the node table (`nodes`) learns what front ends hold.
//!
//! Modules are listed by floors, in the order in which a request meets them. A file imports nothing
//! of a higher floor; `xtask/src/tidy/floors.rs` counts the imports that still do.

// The volume as a whole, as front ends and programs call it.
mod compare;
mod create;
mod engine;
mod filesystem;
mod find;
mod front_end;
mod header;
mod history;
mod paths;
mod volume;

// Operations and subvolume verbs.
mod contents;
mod edit;
mod execute;
mod handles;
mod ops;
mod orphan;
mod path_of;
mod plan;
mod policy;
mod ranges;
mod snapshots;
mod subvolumes;
mod txn;

// What sees an operation before it is executed: quotas and the trash.
mod owners;
mod policies;
mod quota;
mod quota_adopt;
mod quota_check;
mod quota_copies;
mod trash;

// What operations are made of: records, views, locks, tables.
mod account;
mod arrivals;
mod attributes;
mod error;
mod info;
mod inherited;
mod load;
mod locks;
mod nodes;
mod numbers;
mod objects;
mod open_error;
mod own;
mod permit;
mod slots;
mod subvol;
mod view;

// Steps that a caller drives: reclaim, pruning, counting, the index.
mod background;
mod collect;
mod distinct;
mod reclaim;
mod room;
mod scan;
mod search_bases;
mod search_call;
mod search_declared;
mod search_due;
mod search_limits;
mod search_upkeep;

// Checks and repairs.
mod check;

pub use check::{
    Action, Garbage, GarbageKind, Gc, GcReport, Problem, ProblemKind, Repair, RepairReport,
    VolumeReport,
};
pub use compare::{ChangeKind, Changes, Compared, Difference, Field, Fields};
pub use engine::{LOG_DIRECTORY, volume_files};
pub use find::{Find, Matches};
pub use format::owner_quota::Owner;
pub use format::retention::Keep;
pub use front_end::Volume;
pub use header::{HostDirectory, host_directory, is_volume, make_host};
pub use history::{Change, Version};
pub use info::{
    Atime, CloneInfo, Engine, FormatOptions, Hold, KeptSnapshot, Layout, LimitChange,
    ObjectsStatus, OpenOptions, OwnerQuota, Progress, QuotaChange, QuotaDifference, QuotaInfo,
    QuotaLimits, QuotaOf, Removed, RestoreOptions, Restored, RmrInfo, Schedule, ScheduleInfo,
    SnapshotInfo, SnapshotsOf, TrashSetting, VolumeId, VolumeStatus,
};
pub use open_error::OpenError;
pub use paths::Paths;
pub use reclaim::Waiting;
pub use scan::{
    KnownChild, KnownDirectory, Listed, Names, Outside, Scan, ScanDirectory, ScanDone, ScanInfo,
    ScanOptions,
};
pub use search_call::from_search;
pub use subvolumes::SubvolumeBounds;
pub use vfs::{
    Allocate, DirEntry, Entry, FileSystem, Follow, FsResult, Invalidate, NewNode, Query,
    RenameMode, Search, Seek, SetXattr, StatFs, SyncScope, VirtualDirs, Waits, WalkControl,
    name_of_number, with_cancellation,
};
pub use volume::Fs;
