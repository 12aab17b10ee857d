//! Messages of the daemon: parts of an answer, and its end.

use serde::{Deserialize, Serialize};

use crate::{
    Attr, Bytes, Difference, DirectoryTotals, Failure, Found, FoundOutcome, ItemError,
    KeptSnapshot, Received, Receiving, Removed, ScanDirectory, ScanInfo, Scheduled, Sent, Snapshot,
    Status, Sums, SumsOf, Totals, Trash, Version,
};

/// One message of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The request that it answers.
    pub id: u32,
    /// The content.
    pub body: Body,
}

/// A part of an answer, or its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// End: done.
    Done(Answer),
    /// End: failed. With the id 0, which no request has: the end of the connection, and the reason.
    Failed(Failure),
    /// End of the connection: the daemon is exiting, and executed no request since its last answer.
    /// Send them to its successor.
    Leaving,
    /// Part: contents of a file.
    Data(Bytes),
    /// Part: items of an export, as [`crate::ExportItem`] encodes them.
    Exported(Bytes),
    /// Part: entries of a directory. With `List { recursive: true }` a new directory begins where
    /// `directory` changes.
    Entries {
        /// The directory, relative to the requested path; empty for that path itself.
        directory: Bytes,
        /// Its next entries.
        entries: Vec<ListEntry>,
    },
    /// Part: snapshots of the requested directory.
    Snapshots(Vec<Snapshot>),
    /// Part: snapshots of the volume, the oldest first.
    KeptSnapshots(Vec<KeptSnapshot>),
    /// Part: quotas.
    Quotas(Vec<Quota>),
    /// Part: quotas whose records differ from what was counted.
    QuotasDiffer(Vec<QuotaDifference>),
    /// Part: schedules of snapshots.
    Schedules(Vec<Scheduled>),
    /// Part: directories with their totals, descendants before their ancestor.
    Totalled(Vec<DirectoryTotals>),
    /// Part: sums by what they are of, the largest of each kind first.
    Summed(Vec<(SumsOf, Sums)>),
    /// Part: directories with the largest direct contents, the largest first.
    Largest(Vec<DirectoryTotals>),
    /// Part: versions of the requested path, the oldest first.
    Versions(Vec<Version>),
    /// Part: changes of a directory, sorted by path; beyond some megabytes, several sorted runs.
    Differences(Vec<Difference>),
    /// Part: the search continues at this path, as displayed; later results are below it.
    Searching(Bytes),
    /// Part: rows that matched.
    Found(Vec<Found>),
    /// Part: directories of an index.
    Directories(Vec<ScanDirectory>),
    /// Part: an object below could not be listed; the rest continues.
    Skipped(Failure),
    /// Part: the contents of the trash.
    Removed(Vec<Removed>),
    /// Part: the progress of a check, in bytes.
    Progress {
        /// Bytes checked.
        done: u64,
        /// Approximate total.
        total: u64,
    },
}

/// Answers of successful requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Success, without a result.
    Nothing,
    /// To `Status`.
    Status(Box<Status>),
    /// To `Sessions`.
    Sessions(Vec<Session>),
    /// To `Remove`.
    Removed {
        /// Snapshots of the removed object that stay.
        snapshots: u64,
        /// The number under which it waits to be reclaimed; 0: it does not wait.
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
    /// To `ClusterLimits`: the present limits.
    ClusterLimits {
        /// Maximum directories.
        directories: u32,
        /// Maximum inodes.
        inodes: u32,
    },
    /// To `Stat`.
    Stat(Box<StatAnswer>),
    /// To `Check`.
    Checked(Box<Checked>),
    /// To `Collect`.
    Collected(Box<Collected>),
    /// To `Find`, after the results.
    Found(FoundOutcome),
    /// To `Send`, after the stream.
    Sent(Sent),
    /// To `Receive`.
    Receiving(Receiving),
    /// To `ReceiveClose`.
    Received(Received),
    /// To `ReceiveToken`; `None`: none was cut.
    Token(Option<String>),
    /// To `ImportOpen` and `ImportEnter`, after the existing entries.
    Entered {
        /// Whether the directory existed before.
        existed: bool,
        /// Whether an import of the caller's made it, and ended before it gave it its attributes.
        unfinished: bool,
    },
    /// To `ImportFlush` and `ImportClose`: items that failed since the last answer.
    Imported {
        /// The first of them.
        errors: Vec<ItemError>,
        /// How many more there are.
        more: u64,
    },
    /// To `ScanInfo`; `None`: the volume is not an index.
    ScanInfo(Option<ScanInfo>),
    /// To `ScanOpen`: the index's inode number of the source itself.
    ScanOpened {
        /// The number.
        root: u64,
        /// The index's information before this scan.
        info: ScanInfo,
    },
    /// To `ScanFlush`: directories (by the numbers in the items) with a result since the last
    /// answer.
    Scanned {
        /// Sent as `Find`, and not in the index.
        unknown: Vec<u64>,
        /// Sent in a row, and not in the index before, or a different directory there.
        fresh: Vec<u64>,
    },
    /// To `ScanClose`.
    ScanClosed {
        /// Whether anything differed from the index.
        changed: bool,
    },
    /// To `QuotaSet` and `OwnerQuotaSet`: the limits in effect.
    QuotaLimits {
        /// Maximum inodes; `None`: no limit.
        inodes: Option<u64>,
        /// Maximum bytes; `None`: no limit.
        bytes: Option<u64>,
    },
    /// To `QuotaGet`, `OwnerQuotaGet` and `QuotaList`.
    Quotas(Vec<Quota>),
    /// To `ScheduleGet`; to `Schedules` after its parts, empty.
    Schedules(Vec<Scheduled>),
    /// To `TrashList`, after its contents.
    Trash(Trash),
    /// To `TrashEmpty`: number of hourly trash directories that were deleted.
    Emptied(u64),
    /// To `Restore`.
    Restored {
        /// Names that were moved back.
        names: u64,
        /// Names that stay in the trash, because other objects have taken their place.
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
    /// The process id, 0 where it is in another pid namespace.
    pub pid: i32,
    /// The running request, for people; `None`: the connection is idle.
    pub request: Option<String>,
    /// Whether it continues after an unmount, and so keeps the volume open.
    pub holds: bool,
    /// For how long the request has been running, or the connection idle, in seconds.
    pub seconds: u64,
    /// For how long it has sent no request, in seconds.
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

/// A change of a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitChange {
    /// It stays.
    #[default]
    Keep,
    /// It is removed.
    Remove,
    /// It is set to this.
    Set(u64),
}

/// The unit to which usage is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuotaOf {
    /// A quota directory, by the quota's number.
    Directory(u64),
    /// A user or a group.
    Owner(QuotaOwner),
}

/// A quota.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// The unit charged.
    pub of: QuotaOf,
    /// Inode number of the directory that it was set for, as users see it; 0: of no directory.
    pub directory: u64,
    /// Its path; empty where the caller may not see it, or it is not reachable any more.
    pub path: Bytes,
    /// Inodes charged.
    pub inodes: u64,
    /// Bytes charged.
    pub bytes: u64,
    /// Maximum inodes.
    pub inodes_max: Option<u64>,
    /// Maximum bytes.
    pub bytes_max: Option<u64>,
}

/// A difference between the record of a subvolume's charges and the recount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaDifference {
    /// The unit charged.
    pub of: QuotaOf,
    /// The subvolume.
    pub subvolume: u64,
    /// Files and bytes in the record.
    pub recorded: (i64, i64),
    /// Files and bytes counted.
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
    /// Bytes read and verified.
    pub bytes: u64,
    /// Bytes marked as used but unreachable.
    pub lost_bytes: u64,
    /// Log records after the last checkpoint.
    pub log_records: u64,
    /// Underfull nodes.
    pub underfull: u64,
    /// Subvolumes checked.
    pub subvolumes: u64,
    /// Directories in them.
    pub directories: u64,
    /// Other inodes in them.
    pub files: u64,
    /// Distinct extents.
    pub extents: u64,
    /// Bytes of contents read and verified.
    pub data_bytes: u64,
    /// Files of the index that were read.
    pub index_files: u64,
    /// The first findings. Some of those that the disk does not return come first, then repairable
    /// ones before others, each in the order in which they were found.
    pub findings: Vec<CheckFinding>,
    /// Number of findings.
    pub findings_count: u64,
    /// How many of them a repair without data loss repairs.
    pub repairable_count: u64,
    /// Whether the disk failed to return some of the bytes: then a repair repairs nothing.
    pub unread: bool,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFinding {
    /// The kind of defect, in a word.
    pub kind: String,
    /// The file, below the volume directory; empty: the defect is in a record, not in a file.
    pub file: String,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// The subvolume; 0: of none.
    pub subvolume: u64,
    /// The path from the volume's root; empty when it is not known.
    pub path: Bytes,
    /// The inode; 0: none.
    pub ino: u64,
    /// The defect.
    pub what: String,
    /// What a repair does; empty: nothing repairs it.
    pub remedy: String,
    /// The recommended action.
    pub action: CheckAction,
}

/// The recommended action for a finding. Programs use this, never the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckAction {
    /// Nothing repairs it.
    None,
    /// `fsck --repair` repairs it without data loss.
    Repair,
    /// Truncate the log, on explicit request: later changes are lost.
    DiscardLog,
    /// A checkpoint of the daemon that has the volume open.
    Checkpoint,
    /// Nothing is lost; an administrator moves the named file away.
    MoveAway,
}

/// The result of a collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// Referenced bytes of contents.
    pub live_bytes: u64,
    /// Bytes deleted.
    pub freed_bytes: u64,
    /// Unreferenced data.
    pub garbage: Vec<Garbage>,
}

/// One unreferenced item.
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
    /// Whether it was deleted by this collection.
    pub deleted: bool,
}

/// PandoFS attributes of a path beyond `stat`; its snapshots precede this, as parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// Its attributes.
    pub attr: Attr,
    /// The subvolume that contains it.
    pub subvolume: u64,
    /// Inode number inside the subvolume.
    pub ino: u64,
    /// Names of extended attributes.
    pub xattrs: Vec<Bytes>,
    /// Target of a symbolic link.
    pub target: Option<Bytes>,
    /// Number of names in a directory; 0 for any other type.
    pub entries: u64,
    /// The path of its subvolume's source, if the caller may see that.
    pub copy_of: Option<Bytes>,
}

/// Attributes, with what `stat` shows in addition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatAnswer {
    /// The attributes.
    pub attr: Attr,
    /// Target of a symbolic link.
    pub target: Option<Bytes>,
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEntry {
    /// Its name.
    pub name: Bytes,
    /// Its attributes.
    pub attr: Attr,
    /// Target of a symbolic link.
    pub target: Option<Bytes>,
}
