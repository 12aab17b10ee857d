//! How a volume is opened, and what it reports about itself: the types of the calls.

use std::sync::atomic::AtomicBool;

use device::Timestamp;
use format::owner_quota::Owner;
use format::retention::Keep;
use inode::{Caller, Ends, Enforce, NodeId, SubvolId};
use store::Durability;

/// Random name of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeId(pub [u8; 16]);

impl std::fmt::Display for VolumeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        uuid::Uuid::from_bytes(self.0).fmt(f)
    }
}

/// When reading changes the time of the last read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Atime {
    /// When it is not after the last change, or a day old.
    #[default]
    Relative,
    /// Never.
    Never,
}

/// Options for opening a volume.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Memory for cached nodes of trees.
    pub cache_bytes: u64,
    /// When operations become durable.
    pub durability: Durability,
    /// Whether changes are refused.
    pub read_only: bool,
    /// Why they are, if that is not what the user chose.
    pub read_only_because: Option<std::sync::Arc<str>>,
    /// When reading changes times.
    pub atime: Atime,
    /// Length of a segment of the log: what is reserved on disk at a time.
    pub log_segment_bytes: u64,
    /// Log bytes in memory from which operations wait until they are written.
    pub log_buffer_bytes: usize,
    /// Log bytes since the last checkpoint from which one is due: what a crash makes replay.
    pub checkpoint_bytes: u64,
    /// Most bytes that merges of the log-structured engine write in a second; 0: no bound.
    pub merge_bytes_per_second: u64,
    /// Bytes up to which a file of a volume in an object store is stored in its records; `None`:
    /// the default. Other volumes ignore it.
    pub small_file_bytes: Option<u64>,
    /// Least time between two commits to an object store. Other volumes ignore it.
    pub commit_interval: std::time::Duration,
    /// Limits of file contents; the volume's id in them is set by `open`.
    pub data: data::Options,
    /// The tree of a snapshot or clone is pruned to what is reachable in it when it differs from
    /// its source by so many records. A page of contents counts as one.
    pub prune_records: usize,
    /// How the index for searches is kept; `None`: there is no index, and searches walk.
    pub index: Option<search::index::IndexOptions>,
    /// How many subvolumes users may create and have.
    pub subvolumes: SubvolumeBounds,
    /// Whether requests of clients are to be executed once: then there is a tree for their answers.
    pub answers: bool,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        let engine = store::EngineOptions::default();
        OpenOptions {
            cache_bytes: 256 << 20,
            durability: Durability::Async,
            read_only: false,
            read_only_because: None,
            atime: Atime::Relative,
            log_segment_bytes: engine.log_segment_bytes,
            log_buffer_bytes: engine.log_buffer_bytes,
            checkpoint_bytes: engine.checkpoint_bytes,
            merge_bytes_per_second: 0,
            small_file_bytes: None,
            commit_interval: std::time::Duration::ZERO,
            data: data::Options::default(),
            prune_records: 4096,
            index: Some(search::index::IndexOptions::default()),
            subvolumes: SubvolumeBounds::default(),
            answers: false,
        }
    }
}

/// The state of the object store that keeps a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectsStatus {
    /// How long changes have been waiting to become durable because the store does not accept
    /// objects, and its last error.
    pub waits: Option<(std::time::Duration, String)>,
    /// Bytes that it has of the volume, as last measured.
    pub bytes: Option<u64>,
    /// Objects of contents, without those of the log, of trees and of small files.
    pub contents: u64,
    /// How long commits to it took.
    pub commits: device::TimeCounts,
}

/// What a volume reports about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeStatus {
    /// Its random name.
    pub id: VolumeId,
    /// Version of its format.
    pub format_version: u32,
    /// Its engine.
    pub engine: &'static str,
    /// When operations become durable.
    pub durability: Durability,
    /// When it was created.
    pub created: Timestamp,
    /// Inodes, including those in clones, without snapshots; what was detached and is not reclaimed
    /// yet is included.
    pub files: u64,
    /// Bytes of contents of regular files, likewise.
    pub bytes: u64,
    /// Clones whose inherited files are still being counted, and are missing in `files`.
    pub counting: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Clones that were not rolled back since.
    pub clones: u64,
    /// Other subvolumes: the volume's root, those created empty, and those that were rolled back.
    pub subvolumes: u64,
    /// Space of the log.
    pub log_bytes: u64,
    /// Bytes of log records since the last checkpoint: what an opening would replay.
    pub log_bytes_since_checkpoint: u64,
    /// Space of everything.
    pub disk_bytes: u64,
    /// The object store that keeps the volume, if one does.
    pub objects: Option<ObjectsStatus>,
    /// Written since opening, contents of files not counted.
    pub written_bytes: u64,
    /// Writes since opening, likewise.
    pub writes: u64,
    /// Bytes and writes of checkpoints among the two.
    pub checkpoint_written: (u64, u64),
    /// Bytes of them that merges wrote, and that ingested runs took.
    pub merge_bytes: u64,
    /// See `merge_bytes`.
    pub ingest_bytes: u64,
    /// Bytes that operations gave the store since opening.
    pub given_bytes: u64,
    /// The state of merging, in an engine that merges.
    pub merges: Option<store::MergeStats>,
    /// Checkpoints since opening.
    pub checkpoints: u64,
    /// Batches that were committed since opening.
    pub commits: u64,
    /// When the last checkpoint was.
    pub last_checkpoint: Option<Timestamp>,
    /// Log records that opening replayed.
    pub replayed: u64,
    /// Memory of cached nodes.
    pub cache_bytes: u64,
    /// Inodes that front ends hold.
    pub nodes: u64,
    /// Detached directories that wait to be reclaimed.
    pub detached: u64,
    /// Names, subvolumes and trees that were reclaimed since opening. Detached trees are removed
    /// one object at a time; the growth of this number is the speed.
    pub reclaimed: u64,
    /// Trees that wait to be reclaimed.
    pub dropping: u64,
    /// Subvolumes that wait to be pruned.
    pub prunes: u64,
    /// Bytes of contents that nothing names any more and that will be freed; and those that were
    /// freed since opening.
    pub freeing_bytes: u64,
    /// See `freeing_bytes`.
    pub freed_bytes: u64,
    /// Whether more such contents may be found: inodes wait to be removed, or a collection of
    /// garbage is in progress.
    pub collecting: bool,
    /// Why the volume accepts no changes; `None` when it does.
    pub read_only: Option<String>,
    /// Damage of the volume's own records, as far as they were read, or why they have no copies.
    /// Otherwise the file of contents that frees nothing because its header does not name the
    /// segment that its file name does.
    pub damaged: Option<String>,
}

/// The result of a step of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Whether more is due at once.
    pub more: bool,
    /// How long until the next step is due, when none is due at once.
    pub due_in: std::time::Duration,
    /// What was done: records removed, nodes freed, bytes moved; for progress bars only.
    pub done: u64,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its name in `.snapshots`.
    pub name: Vec<u8>,
    /// When it was taken.
    pub created: Timestamp,
    /// Its subvolume.
    pub subvol: SubvolId,
    /// Its root.
    pub root: NodeId,
    /// The lineage whose snapshots it belongs to.
    pub lineage: u64,
}

/// Which snapshots of a volume are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotsOf {
    /// Those of directories that were removed.
    Removed,
    /// All.
    All,
}

/// Which snapshots of a volume are listed, and how much is done for that.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotQuery<'a> {
    /// Whether only those of removed directories.
    pub of: SnapshotsOf,
    /// Only those of this name.
    pub name: Option<&'a [u8]>,
    /// Only those whose directory was on the way of these names, or at its end, when the snapshot
    /// was taken.
    pub on_the_way_to: Option<&'a [&'a [u8]]>,
    /// Most names on ways up that are followed. Beyond, the list ends with `Busy`.
    pub steps_max: usize,
    /// Ends the list with `Interrupted` when it is set.
    pub cancel: &'a AtomicBool,
}

impl SnapshotQuery<'_> {
    /// All of a kind, until it is cancelled.
    pub fn all(of: SnapshotsOf, cancel: &AtomicBool) -> SnapshotQuery<'_> {
        SnapshotQuery { of, name: None, on_the_way_to: None, steps_max: usize::MAX, cancel }
    }
}

/// A snapshot, as it is listed with all of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSnapshot {
    /// The snapshot.
    pub snapshot: SnapshotInfo,
    /// Whether its directory was removed.
    pub removed: bool,
    /// Where its directory is; for a removed one, where it was when the snapshot was taken, and
    /// `None` if that is not known. `None` also if the caller has no access, or if it is longer
    /// than 256 KiB.
    pub path: Option<Vec<u8>>,
}

/// When snapshots of a directory are taken, and how many are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// When: a cron expression of five fields, in local time. The volume does not interpret it.
    pub cron: String,
    /// How the names of its snapshots begin.
    pub prefix: Vec<u8>,
    /// What is kept.
    pub keep: Keep,
}

/// The schedule of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleInfo {
    /// The lineage that has it.
    pub lineage: u64,
    /// The directory's inode number in each subvolume of the lineage.
    pub directory: u64,
    /// The user who set it.
    pub uid: u32,
    /// That user's group.
    pub gid: u32,
    /// When it last took a snapshot, or was set.
    pub last: Timestamp,
    /// Its content.
    pub schedule: Schedule,
}

impl ScheduleInfo {
    /// The user who set it, with groups: snapshots are taken and deleted with that user's rights.
    pub fn caller(&self, groups: Vec<u32>) -> Caller {
        let (uid, gid) = (self.uid, self.gid);
        Caller { uid, gid, groups, umask: 0, pid: 0, enforce: Enforce::Here, ends: Ends::NONE }
    }
}

/// What prevents the deletion of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Its name.
    pub name: Vec<u8>,
    /// The user who set it.
    pub uid: u32,
    /// When.
    pub since: Timestamp,
}

/// A clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneInfo {
    /// Its subvolume.
    pub subvol: SubvolId,
    /// Its root.
    pub root: NodeId,
    /// The lineage whose snapshots it belongs to.
    pub lineage: u64,
}

/// A directory that was removed with everything below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RmrInfo {
    /// Number under which it waits to be reclaimed; 0: it is in the trash.
    pub detached: u64,
    /// Names that were directly in it.
    pub entries: u64,
}

/// A trash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrashSetting {
    /// The directory that has it.
    pub directory: NodeId,
    /// How long it keeps what is removed, in seconds.
    pub keep_seconds: u64,
}

/// An object in the trash that `restore` restores as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// The former path, relative to the directory that has the trash.
    pub path: Vec<Vec<u8>>,
    /// When it was removed, in nanoseconds since 1970.
    pub removed: i64,
    /// What it is.
    pub attr: inode::Attr,
}

/// Options of `restore`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestoreOptions {
    /// Nothing that was removed later than this, in nanoseconds since 1970.
    pub at: Option<i64>,
    /// With a directory, what was removed from it since then; by default since an hour before the
    /// hour in which the directory was removed.
    pub since: Option<i64>,
}

/// What was restored from the trash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restored {
    /// Names that were moved back; a tree that moved as a whole is one.
    pub names: u64,
    /// Names that stay in the trash because another object is in their place.
    pub left: u64,
}

/// The limits of a quota; `None`: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Files, directories and other inodes.
    pub inodes: Option<u64>,
    /// Bytes of contents.
    pub bytes: Option<u64>,
}

/// A change of a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LimitChange {
    /// It stays unchanged.
    #[default]
    Keep,
    /// It is removed.
    Remove,
    /// It is set to this.
    Set(u64),
}

/// Changes of the limits of a quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaChange {
    /// Limit of files, directories and other inodes.
    pub inodes: LimitChange,
    /// Limit of bytes.
    pub bytes: LimitChange,
}

impl From<QuotaLimits> for QuotaChange {
    fn from(limits: QuotaLimits) -> QuotaChange {
        let set = |limit: Option<u64>| limit.map_or(LimitChange::Remove, LimitChange::Set);
        QuotaChange { inodes: set(limits.inodes), bytes: set(limits.bytes) }
    }
}

/// A quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaInfo {
    /// Its number.
    pub id: u64,
    /// The directory that it was set for.
    pub directory: NodeId,
    /// Its limits.
    pub limits: QuotaLimits,
    /// Inodes that are charged to it.
    pub inodes: u64,
    /// Bytes that are charged to it.
    pub bytes: u64,
}

/// The charges and limits of a user or a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerQuota {
    /// Who.
    pub owner: Owner,
    /// The limits.
    pub limits: QuotaLimits,
    /// Inodes that are charged.
    pub inodes: u64,
    /// Bytes that are charged.
    pub bytes: u64,
}

/// An account of charges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaOf {
    /// The quota of a directory, by its number.
    Directory(u64),
    /// A user or a group.
    Owner(Owner),
}

impl std::fmt::Display for QuotaOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            QuotaOf::Directory(id) => write!(f, "quota {id}"),
            QuotaOf::Owner(Owner::User(user)) => write!(f, "user {user}"),
            QuotaOf::Owner(Owner::Group(group)) => write!(f, "group {group}"),
        }
    }
}

/// A difference between the recorded charges of a quota and its inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaDifference {
    /// The account that is charged.
    pub of: QuotaOf,
    /// The subvolume whose inodes were counted.
    pub subvolume: u64,
    /// Inodes and bytes in the record.
    pub recorded: (i64, i64),
    /// Inodes and bytes that were found.
    pub found: (i64, i64),
}

/// Numbers of subvolumes, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SubvolumeCounts {
    /// Read-only ones, in `.snapshots`.
    pub snapshots: u64,
    /// Writable ones that `clone` created.
    pub clones: u64,
    /// Those that were created empty, and those that were rolled back.
    pub others: u64,
    /// Those whose trees hold more than what is reachable.
    pub prunes: u64,
    /// Inodes in the writable ones.
    pub files: i64,
    /// Bytes of contents in them, saturating at the greatest number.
    pub bytes: u64,
    /// Those whose contents were not counted yet.
    pub counting: u64,
}

/// Bounds on the subvolumes of a volume.
#[derive(Debug, Clone, Copy)]
pub struct SubvolumeBounds {
    /// Most existing subvolumes that one user has made.
    pub of_user: u64,
    /// With how many that exist, of all users, users that are bound make no more.
    pub of_all: u64,
    /// How many one user makes in a second.
    pub each_second: u32,
    /// How many one user makes at once after a rest.
    pub at_once: u32,
}

impl Default for SubvolumeBounds {
    fn default() -> SubvolumeBounds {
        // An eighth and seven eighths of the slots. At this rate a user takes an hour and a half
        // for the share, and the reclaim of one removed (0.1 ms) keeps up.
        SubvolumeBounds { of_user: 1 << 20, of_all: 7 << 20, each_second: 200, at_once: 10_000 }
    }
}
