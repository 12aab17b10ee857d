//! What the owner says: parts of an answer, and its end.

use serde::{Deserialize, Serialize};

use crate::{
    Attr, Bytes, DirectoryTotals, Failure, Found, FoundOutcome, ItemError, Removed, ScanDirectory,
    ScanInfo, Sums, SumsOf, Totals, Trash, Version,
};

/// One message of the owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The request that it answers.
    pub id: u32,
    /// What it says.
    pub body: Body,
}

/// A part of an answer, or its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// End: done.
    Done(Answer),
    /// End: not done. With the id 0, which no request has: the end of the connection, and why.
    Failed(Failure),
    /// End of the connection: the owner leaves, and did nothing of what it was asked since its
    /// last answer. The successor is to be asked.
    Leaving,
    /// Part: contents of a file.
    Data(Bytes),
    /// Part: entries of a directory. With `List { recursive: true }` a new directory begins
    /// wherever the directory differs.
    Entries {
        /// The directory, relative to the path asked for; empty for that one itself.
        directory: Bytes,
        /// Its next entries.
        entries: Vec<ListEntry>,
    },
    /// Part: snapshots of the directory asked for.
    Snapshots(Vec<Snapshot>),
    /// Part: snapshots of the volume, the oldest first.
    KeptSnapshots(Vec<KeptSnapshot>),
    /// Part: directories with their totals, what is below one before it.
    Totalled(Vec<DirectoryTotals>),
    /// Part: sums by what they are of, of each sort the largest first.
    Summed(Vec<(SumsOf, Sums)>),
    /// Part: directories that hold the most by themselves, the largest first.
    Largest(Vec<DirectoryTotals>),
    /// Part: versions of the path asked for, the oldest first.
    Versions(Vec<Version>),
    /// Part: a search goes on from here; what is found next is below it. How it is shown.
    Searching(Bytes),
    /// Part: rows that matched.
    Found(Vec<Found>),
    /// Part: directories of an index.
    Directories(Vec<ScanDirectory>),
    /// Part: something below could not be listed; the rest goes on.
    Skipped(Failure),
    /// Part: what is in the trash.
    Removed(Vec<Removed>),
    /// Part: how far a check is, in bytes.
    Progress {
        /// Looked at.
        done: u64,
        /// All, about.
        total: u64,
    },
}

/// What a request that was done answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Nothing but that it is done.
    Nothing,
    /// To `Status`.
    Status(Box<Status>),
    /// To `Sessions`.
    Sessions(Vec<Session>),
    /// To `Remove`.
    Removed {
        /// Snapshots of what was removed that stay.
        snapshots: u64,
        /// The number under which it waits to be reclaimed; 0: it does not.
        detached: u64,
    },
    /// To `Reclaiming`: of the tree and the subvolumes that were mounted in it,
    Reclaiming {
        /// how many wait to be reclaimed,
        trees: u64,
        /// how many of them an open file or a working directory holds,
        held: u64,
        /// and how many of them cannot be reclaimed.
        stuck: u64,
    },
    /// To `Info`.
    Info(Box<Info>),
    /// To `Totals`.
    Totals(Box<Totals>),
    /// To `Searchable`: names.
    Searchable(Vec<Bytes>),
    /// To `ClusterLimits`: what they are now.
    ClusterLimits {
        /// Most directories.
        directories: u32,
        /// Most inodes.
        inodes: u32,
    },
    /// To `Stat`.
    Stat(Box<StatAnswer>),
    /// To `Check`.
    Checked(Box<Checked>),
    /// To `Collect`.
    Collected(Box<Collected>),
    /// To `Find`, after what was found.
    Found(FoundOutcome),
    /// To `ImportOpen` and `ImportEnter`, after what was there before.
    Entered {
        /// Whether the directory was there before.
        existed: bool,
    },
    /// To `ImportFlush` and `ImportClose`: what could not be done since the last answer.
    Imported {
        /// The first of them.
        errors: Vec<ItemError>,
        /// How many more there are.
        more: u64,
    },
    /// To `ScanInfo`; `None`: the volume is no index.
    ScanInfo(Option<ScanInfo>),
    /// To `ScanOpen`: the index's number of the source itself.
    ScanOpened {
        /// The number.
        root: u64,
        /// What was known before this scan.
        info: ScanInfo,
    },
    /// To `ScanFlush`: directories (by the numbers that the items gave them) about which something
    /// came out since the last answer.
    Scanned {
        /// Told as `Find`, and not in the index.
        unknown: Vec<u64>,
        /// Told in a row, and not in the index before, or another directory there.
        fresh: Vec<u64>,
    },
    /// To `ScanClose`.
    ScanClosed {
        /// Whether anything differed from what was known.
        changed: bool,
    },
    /// To `QuotaSet` and `OwnerQuotaSet`: the limits that hold.
    QuotaLimits {
        /// Most inodes; `None`: no limit.
        files: Option<u64>,
        /// Most bytes; `None`: no limit.
        bytes: Option<u64>,
    },
    /// To `QuotaGet`, `OwnerQuotaGet` and `QuotaList`.
    Quotas(Vec<Quota>),
    /// To `QuotaCheck`: where the records differ from what was counted.
    QuotasChecked(Vec<QuotaDifference>),
    /// To `TrashList`, after what is in it.
    Trash(Trash),
    /// To `TrashEmpty`: hours of the trash that were deleted.
    Emptied(u64),
    /// To `Restore`.
    Restored {
        /// Names that were moved back.
        names: u64,
        /// Names that stay in the trash, as there is something else where they were.
        left: u64,
    },
}

/// A connection to the daemon of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its number.
    pub id: u64,
    /// The user.
    pub uid: u32,
    /// The process, 0 where it is in another pid namespace.
    pub pid: i32,
    /// The request under way, for people; `None`: it is idle.
    pub request: Option<String>,
    /// Whether it goes on when the mount goes, and so keeps the volume open.
    pub holds: bool,
    /// For how long the request has been under way, or the connection idle, in seconds.
    pub seconds: u64,
    /// For how long it has sent nothing to do, in seconds.
    pub silent_seconds: u64,
}

/// A user or a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuotaOwner {
    /// A user, by number.
    User(u32),
    /// A group, by number.
    Group(u32),
}

/// What becomes of a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitChange {
    /// It stays as it is.
    #[default]
    Keep,
    /// There is none from now on.
    Remove,
    /// It is this from now on.
    Set(u64),
}

/// What is charged together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuotaOf {
    /// A quota directory, by the number of the quota.
    Directory(u64),
    /// A user or a group.
    Owner(QuotaOwner),
}

/// A quota.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Of what.
    pub of: QuotaOf,
    /// Inode number of the directory that it was set for, as users see it; 0: of no directory.
    pub directory: u64,
    /// Its path; empty where the caller may not see it, or nothing leads there any more.
    pub path: Bytes,
    /// Inodes charged.
    pub files: u64,
    /// Bytes charged.
    pub bytes: u64,
    /// Most inodes.
    pub files_max: Option<u64>,
    /// Most bytes.
    pub bytes_max: Option<u64>,
}

/// Where the record of what a subvolume is charged differs from what was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaDifference {
    /// To what it is charged.
    pub of: QuotaOf,
    /// The subvolume.
    pub subvolume: u64,
    /// Files and bytes by the record.
    pub recorded: (i64, i64),
    /// Files and bytes that were counted.
    pub found: (i64, i64),
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Trees of the store.
    pub trees: u64,
    /// Distinct nodes.
    pub nodes: u64,
    /// Entries of distinct leaves.
    pub entries: u64,
    /// Bytes that were read and verified.
    pub bytes: u64,
    /// Bytes marked as used to which nothing leads.
    pub lost_bytes: u64,
    /// Log records after the last checkpoint.
    pub log_records: u64,
    /// Nodes that are lighter than they should be.
    pub light: u64,
    /// Subvolumes that were looked at.
    pub subvolumes: u64,
    /// Directories in them.
    pub directories: u64,
    /// Other inodes in them.
    pub files: u64,
    /// Distinct extents.
    pub extents: u64,
    /// Bytes of contents that were read and verified.
    pub data_bytes: u64,
    /// Files of the index that were read.
    pub index_files: u64,
    /// The first of what is wrong: some of what the disk does not give, then what can be repaired
    /// before what cannot, all in the order in which it was met.
    pub findings: Vec<CheckFinding>,
    /// How much is wrong.
    pub findings_count: u64,
    /// How much of it a repair repairs that gives nothing up.
    pub mendable_count: u64,
    /// Whether the disk did not give some of the bytes: then a repair repairs nothing.
    pub unread: bool,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFinding {
    /// What sort of thing is wrong, in a word.
    pub kind: String,
    /// The file, below the volume directory; empty: a record is wrong, and no file.
    pub file: String,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// The subvolume; 0: of none.
    pub subvolume: u64,
    /// The path from the volume's root; empty when it is not known.
    pub path: Bytes,
    /// The inode; 0: none.
    pub ino: u64,
    /// What is wrong.
    pub what: String,
    /// What a repair does; empty: nothing repairs it.
    pub remedy: String,
    /// What to do about it.
    pub action: CheckAction,
}

/// What to do about a finding. Programs decide by this, never by words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckAction {
    /// Nothing repairs it.
    None,
    /// `fsck --repair` repairs it and gives nothing up.
    Repair,
    /// Truncate the log, on explicit request: later changes are lost.
    DiscardLog,
    /// A checkpoint of the daemon that has the volume open.
    Checkpoint,
    /// Nothing is lost; a person moves the named file away.
    MoveAway,
}

/// What a collection found and did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// Bytes of contents that are named.
    pub live_bytes: u64,
    /// Bytes of what was deleted.
    pub freed_bytes: u64,
    /// What nothing names.
    pub garbage: Vec<Garbage>,
}

/// One thing that nothing names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Garbage {
    /// `segment`, `pages`, `tree`, `lost-tree` (which is never deleted) or `index-file`.
    pub kind: String,
    /// Its file, or the tree's number.
    pub name: String,
    /// Bytes that it occupies; 0 where that is not known.
    pub bytes: u64,
    /// When it was first noted, in nanoseconds since 1970.
    pub since: Option<i64>,
    /// Whether it was deleted now.
    pub deleted: bool,
}

/// The state of a volume and of its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Volume id.
    pub volume: String,
    /// Version of the format on disk.
    pub format_version: u32,
    /// Name of the engine.
    pub engine: String,
    /// `sync` or `async`.
    pub durability: String,
    /// The owner's process.
    pub pid: u32,
    /// Where it is mounted.
    pub mount_point: Option<Bytes>,
    /// Inodes of all kinds, root included.
    pub files: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Clones.
    pub clones: u64,
    /// Other subvolumes, with the volume's root.
    pub subvolumes: u64,
    /// Room that the volume occupies on disk, log included.
    pub disk_bytes: u64,
    /// Room of the log.
    pub log_bytes: u64,
    /// Memory of cached nodes.
    pub cache_bytes: u64,
    /// Written since the owner opened the volume.
    pub written_bytes: u64,
    /// Writes since then.
    pub writes: u64,
    /// Of the bytes, those of checkpoints.
    pub checkpoint_bytes: u64,
    /// Of the writes, those of checkpoints.
    pub checkpoint_writes: u64,
    /// Of the bytes, those of merges.
    pub merge_bytes: u64,
    /// Of the bytes, those of ingested runs.
    pub ingest_bytes: u64,
    /// Bytes that operations gave the store.
    pub given_bytes: u64,
    /// What merging is at, in an engine that merges.
    pub merges: Option<Merges>,
    /// Checkpoints since then.
    pub checkpoints: u64,
    /// Batches that were committed since then.
    pub commits: u64,
    /// Log records that opening replayed.
    pub replayed: u64,
    /// Inodes that the kernel and others hold.
    pub nodes: u64,
    /// When the volume was made, in nanoseconds since 1970.
    pub created: i64,
    /// Wall-clock time of the last checkpoint, in nanoseconds since 1970.
    pub last_checkpoint: Option<i64>,
    /// Work that goes on in the background.
    pub background: Background,
    /// Why the store takes no writes, when it takes none.
    pub read_only: Option<String>,
    /// What of the volume's own records is damaged, as far as anybody asked for it.
    pub damaged: Option<String>,
    /// What is to be removed in the background and cannot be.
    pub stuck: Option<Stuck>,
}

/// Trees that cannot be reclaimed, as that was when it was tried last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// How many, of those that wait.
    pub trees: u64,
    /// Why one of them cannot.
    pub failure: Failure,
}

/// What the merging of runs has done since the owner opened the volume, and what it is at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merges {
    /// Merges that ended.
    pub ended: u64,
    /// Of those, such as emptied value logs.
    pub cleaned: u64,
    /// Value logs, in a volume that has them.
    pub logs: Option<ValueLogs>,
    /// Of the one under way, bytes that were written, and bytes of what it merges.
    pub under_way: Option<(u64, u64)>,
    /// Of the one that is planned next, its runs and their bytes.
    pub next: Option<(u64, u64)>,
    /// Runs of the deepest tree.
    pub depth: u64,
    /// Most bytes a second; 0: no bound.
    pub rate: u64,
}

/// Value logs of a volume that is laid out column-style.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueLogs {
    /// Bytes from which a record goes to one.
    pub values_from: u64,
    /// How many there are.
    pub logs: u64,
    /// Their bytes on disk.
    pub disk_bytes: u64,
    /// Bytes of all their rows, unpacked.
    pub rows_bytes: u64,
    /// Of those, such as are live.
    pub live_bytes: u64,
    /// Logs that are to be emptied: less than half is live.
    pub sparse: u64,
}

/// Work that is still to be done in the background.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Background {
    /// Detached trees that are not reclaimed yet.
    pub detached: u64,
    /// Dropped engine trees that are not freed yet.
    pub dropping: u64,
    /// Clones that are to be pruned.
    pub prunes: u64,
    /// Bytes of contents that were removed and are not given back to the disk yet.
    pub freeing_bytes: u64,
    /// Bytes of contents that were given back since the owner started.
    pub freed_bytes: u64,
    /// Whether more contents to be given back may come to light.
    pub collecting: bool,
    /// Clones whose files are still being counted.
    pub counting: u64,
    /// Records and nodes reclaimed since the owner started.
    pub reclaimed: u64,
}

impl Background {
    /// Whether nothing is left to do.
    pub fn is_idle(&self) -> bool {
        self.trees() == 0 && self.freeing_bytes == 0 && !self.collecting
    }

    /// What is to be removed, and has room that is not free yet.
    pub fn trees(&self) -> u64 {
        self.detached + self.dropping + self.prunes
    }
}

/// What PandoFS knows of a path beyond `stat`; its snapshots come before, as parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// Its attributes.
    pub attr: Attr,
    /// The subvolume that it lies in.
    pub subvolume: u64,
    /// Inode number inside the subvolume.
    pub ino: u64,
    /// Names of extended attributes.
    pub xattrs: Vec<Bytes>,
    /// Target, when it is a symbolic link.
    pub target: Option<Bytes>,
    /// How many names a directory has; 0 for anything else.
    pub entries: u64,
    /// The path of what its subvolume is a copy of, where the caller may see that.
    pub copy_of: Option<Bytes>,
}

/// Attributes, with what `stat` shows beside them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatAnswer {
    /// The attributes.
    pub attr: Attr,
    /// Target, when it is a symbolic link.
    pub target: Option<Bytes>,
}

/// One snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its name.
    pub name: Bytes,
    /// The subvolume that it is.
    pub subvolume: u64,
    /// The lineage that it belongs to.
    pub lineage: u64,
    /// When it was taken, in nanoseconds since 1970.
    pub created: i64,
}

/// A snapshot, as it is listed with all of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSnapshot {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Whether its directory was removed.
    pub removed: bool,
    /// Where its directory is, or was when the snapshot was taken; `None`: not known.
    pub path: Option<Bytes>,
    /// Where its contents can be read: a path inside the volume.
    pub at: Bytes,
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEntry {
    /// Its name.
    pub name: Bytes,
    /// Its attributes.
    pub attr: Attr,
    /// Target, when it is a symbolic link.
    pub target: Option<Bytes>,
}
