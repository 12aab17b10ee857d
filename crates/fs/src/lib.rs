//! POSIX semantics: one file per operation; inodes, subvolumes, snapshots, clones.
//!
//! A call enters by [`FileSystem`] and is one file in `ops/`. An operation finds its subvolume
//! (`subvol`), passes its gate, takes locks (`locks`), reads records (`view`, `load`), builds a
//! batch (`txn`, `edit`) and commits it; the node table (`nodes`) learns what front ends hold.

mod account;
mod api;
mod arrivals;
mod attributes;
mod background;
mod cancellation;
mod check;
mod collect;
mod compare;
mod contents;
mod create;
mod distinct;
mod edit;
mod engine;
mod error;
mod filesystem;
mod find;
mod handles;
mod header;
mod history;
mod info;
mod inherited;
mod load;
mod locks;
mod nodes;
mod numbers;
mod open_error;
mod ops;
mod orphan;
mod own;
mod owner_count;
mod owners;
mod path_of;
mod permit;
mod quota;
mod quota_adopt;
mod quota_check;
mod quota_copies;
mod ranges;
mod reclaim;
mod room;
mod scan;
mod search_bases;
mod search_call;
mod search_declared;
mod search_dir;
mod search_due;
mod search_limits;
mod search_links;
mod search_upkeep;
mod slots;
mod snapdir;
mod subvol;
mod subvolumes;
mod trash;
mod txn;
mod view;
mod volume;

pub use api::{
    Allocate, DirEntry, Entry, FileSystem, FsResult, Invalidate, NewNode, RenameMode, Seek,
    SetXattr, StatFs, SyncScope, WalkControl,
};
pub use cancellation::with_cancellation;
pub use check::{
    Action, Garbage, GarbageKind, Gc, GcReport, Problem, ProblemKind, Repair, RepairReport,
    VolumeReport,
};
pub use compare::{ChangeKind, Changes, Compared, Difference, Field, Fields};
pub use engine::{LOG_DIRECTORY, volume_files};
pub use find::{Find, Matches};
pub use format::owner_quota::Owner;
pub use format::retention::Keep;
pub use header::is_volume;
pub use history::{Change, Version};
use info::SubvolumeCounts;
pub use info::{
    Atime, CloneInfo, Engine, Follow, FormatOptions, Hold, KeptSnapshot, Layout, LimitChange,
    OpenOptions, OwnerQuota, Progress, QuotaChange, QuotaDifference, QuotaInfo, QuotaLimits,
    QuotaOf, Removed, RestoreOptions, Restored, RmrInfo, Schedule, ScheduleInfo, SnapshotInfo,
    SnapshotsOf, TrashSetting, VolumeId, VolumeStatus,
};
pub use open_error::OpenError;
pub use ops::totals::is_total;
pub use reclaim::Waiting;
pub use scan::{
    KnownChild, KnownDirectory, Listed, Names, Outside, Scan, ScanDirectory, ScanDone, ScanInfo,
    ScanOptions,
};
pub use search_call::from_search;
pub use search_dir::{Questions, is_volatile};
pub use snapdir::{is_virtual as takes_snapshots, name_of_number};
pub use subvolumes::SubvolumeBounds;
pub use volume::Fs;
