//! POSIX semantics: one file per operation; inodes, subvolumes, snapshots, clones.
//!
//! A call enters by [`FileSystem`] and is one file in `ops/`. An operation passes the gate of its
//! subvolume (`subvol`) and yields a `plan`: what it locks (`locks`), what it read (`view`,
//! `load`), the batch, and what front ends (`nodes`) learn. Policies see the plan (`policy`),
//! and `execute` alone locks, commits and applies it.
//!
//! Promises: a change is atomic, to other calls, to snapshots and to a crash. A snapshot shows
//! every change that returned before it began, and each other one whole or not at all. After
//! [`Fs::sync`] and `fsync` what returned before is durable; after a crash the volume is in the
//! state after some change, and that state has everything that was durable. What cannot be read is
//! an error that names the place, and never taken for absent.
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
mod snapshots;
mod verbs;
mod volume;

// Operations and subvolume verbs.
mod contents;
mod edit;
mod execute;
mod handles;
mod operations;
mod ops;
mod orphan;
mod path_of;
mod plan;
mod policy;
mod queue;
mod ranges;
mod reach;
mod search_call;
mod subvolumes;
mod txn;

// What sees an operation before it is executed: quotas and the trash.
mod governed;
mod owners;
mod policies;
mod quota;
mod quota_adopt;
mod quota_check;
mod quota_copies;
mod settings;
mod trash;

// What operations are made of: records, views, locks, tables.
mod account;
mod arrivals;
mod attributes;
mod core;
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
mod readable;
mod slots;
mod subvol;
mod view;

// Steps that a caller drives: reclaim, pruning, counting, the index.
mod background;
mod collect;
mod distinct;
mod reclaim;
mod removal;
mod room;
mod scan;
mod search_bases;
mod search_declared;
mod search_due;
mod search_limits;
mod search_upkeep;
mod upkeep;

// Checks and repairs.
mod check;

pub use check::{
    Action, Garbage, GarbageKind, Gc, GcReport, Problem, ProblemKind, Repair, RepairReport,
    VolumeReport,
};
pub use compare::{ChangeKind, Changes, Compared, Difference, Field, Fields};
pub use engine::{LOG_DIRECTORY, volume_files};
pub use error::from_search;
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
    SnapshotInfo, SnapshotsOf, SubvolumeBounds, TrashSetting, VolumeId, VolumeStatus,
};
pub use open_error::OpenError;
pub use paths::Paths;
pub use reclaim::Waiting;
pub use scan::{
    KnownChild, KnownDirectory, Listed, Names, Outside, Scan, ScanDirectory, ScanDone, ScanInfo,
    ScanOptions,
};
pub use vfs::{
    Allocate, DirEntry, Entry, FileSystem, Follow, FsResult, Invalidate, NewNode, Query,
    RenameMode, Search, Seek, SetXattr, StatFs, SyncScope, VirtualDirs, WalkControl,
    name_of_number, with_cancellation,
};
pub use volume::Fs;

pub(crate) use crate::core::Core;
pub(crate) use governed::Governed;
pub(crate) use operations::Ops;
pub(crate) use upkeep::Upkeep;
