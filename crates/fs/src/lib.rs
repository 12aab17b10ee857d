//! An open volume as front ends and programs call it: [`Fs`] is every floor over the one below.
//!
//! A call enters by [`FileSystem`] and is one file of `ops::posix`. An operation passes the gate of
//! its subvolume and yields a plan (`ops`): its locks, what it read, the batch, and what front ends
//! learn. Quotas and the trash see the plan (`policy`). If there is no space for it, `upkeep`
//! reclaims some.
//!
//! Promises: a change is atomic, to other calls, to snapshots and to a crash. A snapshot shows
//! every change that returned before it began, and each other one whole or not at all. After `sync`
//! and `fsync` what returned before is durable. After a crash the volume is in the state after some
//! change, and that state has everything that was durable. What cannot be read is an error that
//! names the place, and never counts as absent.
//!
//! Which module decides what:
//! * `open_volume`: the order in which floors are opened
//! * `filesystem`, `snapshots`, `verbs`, `paths`: calls of front ends and verbs, and who answers
//!   each
//! * `builder`, `bulk`: many inodes at once
//! * `find`: a search from a path
//! * `compare`: what differs between two states
//! * `history`: a path in all snapshots
//! * `lasting`: sessions of clients, as a server asks for them
//! * `front_end`: the volume with `.snapshots` and `.search`, as front ends see it

mod filesystem;
mod lasting;
mod snapshots;
mod verbs;

// What is made of several calls.
mod builder;
mod bulk;
mod compare;
mod paths;
mod find;
mod history;

mod front_end;
mod open_volume;

pub use builder::{Builder, BulkNode};
pub use bulk::Bulk;
pub use check::{
    Action, Garbage, GarbageKind, Gc, GcReport, Problem, ProblemKind, Repair, RepairReport,
    VolumeReport,
};
pub use compare::{ChangeKind, Changes, Compared, Difference, Field, Fields};
pub use find::{Find, Matches};
pub use format::owner_quota::Owner;
pub use format::retention::Keep;
pub use front_end::Volume;
pub use history::Version;
pub use open_volume::Fs;
pub use opening::create::FormatOptions;
pub use opening::engine::{Engine, LOG_DIRECTORY, Layout, volume_files};
pub use opening::header::{HostDirectory, has_trees, host_directory, is_volume, make_host};
pub use ops::bulk::{DirId, Draft, FileId, MEMORY as BULK_MEMORY, Refusal};
pub use ops::subvolumes::copies_of_this_thread;
pub use paths::Paths;
pub use upkeep::Waiting;
pub use upkeep::{
    KnownChild, KnownDirectory, Listed, Names, Outside, Scan, ScanDirectory, ScanDone, ScanInfo,
    ScanOptions,
};
pub use vfs::{
    Allocate, DirEntry, Entry, FileSystem, Follow, FsResult, Invalidate, NewNode, Query,
    RenameMode, Search, Seek, SetXattr, StatFs, SyncScope, VirtualDirs, Waits, WalkControl,
    name_of_number, with_cancellation,
};
pub use volume::OpenError;
pub use volume::error::from_search;
pub use volume::{
    Atime, CloneInfo, Hold, KeptSnapshot, LimitChange, ObjectsStatus, OpenOptions, OwnerQuota,
    Progress, QuotaChange, QuotaDifference, QuotaInfo, QuotaLimits, QuotaOf, Removed,
    RestoreOptions, Restored, RmrInfo, Schedule, ScheduleInfo, SnapshotInfo, SnapshotQuery,
    SnapshotsOf, SubvolumeBounds, TrashSetting, VolumeId, VolumeStatus,
};

#[cfg(test)]
mod tests;
