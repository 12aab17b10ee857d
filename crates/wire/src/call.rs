//! Messages of a client: one hello, then requests.
//!
//! Paths in calls are absolute inside the volume (`/a/b`), any bytes. The daemon resolves them with
//! the caller's rights.

use crate::ScanWatch;
use serde::{Deserialize, Serialize};

use crate::{Bytes, Find, LimitChange, QuotaOwner, ScheduleChange, Top, codec};

/// First bytes of a connection.
pub const HELLO_MAGIC: [u8; 8] = *b"pando-1\n";

/// The version of the messages. Both sides must have the same: daemon and command are nearly always
/// the same program, and otherwise the error names the one to restart.
pub const VERSION: u32 = 33;

/// Bytes of memory of a stream or dump whose caller names none.
pub const STREAM_MEMORY: u64 = 256 << 20;

/// The same of a comparison.
pub const DIFF_MEMORY: u64 = 64 << 20;

/// First message of a client. Its layout never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`HELLO_MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`] of the client.
    pub version: u32,
}

/// First message of the daemon. Its layout never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`HELLO_MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`] of the daemon.
    pub version: u32,
    /// The daemon's process. 0: it refuses the connection, and one reply gives the reason.
    pub pid: u32,
    /// Where the daemon has mounted the volume.
    pub mount_point: Option<Bytes>,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request<'a> {
    /// Chosen by the client; every answer carries it.
    pub id: u32,
    /// The call.
    #[serde(borrow)]
    pub call: Call<'a>,
}

impl Request<'_> {
    /// Appends a request for items of an import, of `length` bytes, which follow.
    pub fn begin_import(id: u32, length: usize, out: &mut Vec<u8>) {
        codec::encode(&Request { id, call: Call::Import { items: &[] } }, out);
        // Their length, which is 0 here.
        out.truncate(out.len() - 1);
        codec::encode(&length, out);
    }
}

/// The calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call<'a> {
    /// The state of the volume and of its daemon.
    Status,
    /// PandoFS attributes of a path beyond `stat`: subvolume, snapshots, source of a clone.
    Info {
        /// The path.
        path: &'a [u8],
    },
    /// Attributes of a path; a symbolic link is not followed.
    Stat {
        /// The path.
        path: &'a [u8],
    },
    /// Entries of a directory, with attributes, streamed.
    List {
        /// The path; a path that is not a directory lists itself.
        path: &'a [u8],
        /// Whether to descend.
        recursive: bool,
    },
    /// Rows below paths that match, streamed.
    Find(Box<Find>),
    /// Contents of a file, streamed.
    Read {
        /// The path.
        path: &'a [u8],
    },
    /// Everything at a path and below it, with contents, streamed.
    Export {
        /// The path.
        path: &'a [u8],
        /// Bytes of memory for files with several names, of which more may come: at the daemon, and
        /// at the caller (`remembered_bytes`). Names of files beyond it are files of their own.
        memory: u64,
    },
    /// Takes a snapshot of a directory; answered when durable.
    SnapshotCreate {
        /// The directory.
        path: &'a [u8],
        /// The snapshot's name.
        name: &'a [u8],
    },
    /// The snapshots of a directory.
    SnapshotList {
        /// The directory.
        path: &'a [u8],
    },
    /// The snapshots of the volume, streamed.
    SnapshotsOfVolume {
        /// Whether to list only those of removed directories.
        removed: bool,
    },
    /// Deletes a snapshot by its number; answered when durable.
    SnapshotDeleteNumber {
        /// The number.
        number: u64,
    },
    /// Deletes a snapshot; answered when durable.
    SnapshotDelete {
        /// The directory.
        path: &'a [u8],
        /// The snapshot.
        name: &'a [u8],
    },
    /// Renames a snapshot; answered when durable.
    SnapshotRename {
        /// The directory.
        path: &'a [u8],
        /// The snapshot.
        from: &'a [u8],
        /// Its new name.
        to: &'a [u8],
    },
    /// Sets when snapshots of a directory are taken, or that none are; answered when durable.
    ScheduleSet {
        /// The directory.
        path: &'a [u8],
        /// What changes of the schedule; `None`: it has none from now on.
        schedule: Option<ScheduleChange>,
    },
    /// The schedule of a directory.
    ScheduleGet {
        /// The directory.
        path: &'a [u8],
    },
    /// The schedules of the volume whose directories the caller reaches.
    Schedules,
    /// Sets a hold on a snapshot, or ends one; answered when durable.
    SnapshotHold {
        /// The snapshot's number.
        snapshot: u64,
        /// The name of the hold.
        hold: &'a [u8],
        /// Whether it is set.
        on: bool,
    },
    /// Clones a directory; answered when durable.
    Clone {
        /// The directory that is cloned.
        source: &'a [u8],
        /// The new path.
        destination: &'a [u8],
    },
    /// Rolls a directory back to one of its snapshots; answered when durable.
    Rollback {
        /// The directory.
        path: &'a [u8],
        /// The snapshot.
        snapshot: &'a [u8],
    },
    /// Removes a tree; answered when it is detached durably. Reclaim continues in the background.
    Remove {
        /// The path.
        path: &'a [u8],
    },
    /// Progress of reclaiming a tree that `Remove` detached.
    Reclaiming {
        /// The number that `Remove` returned.
        detached: u64,
    },
    /// Creates an empty subvolume.
    SubvolumeCreate {
        /// The new path.
        path: &'a [u8],
        /// Permission bits to clear, unless the parent directory has a default access list.
        umask: u32,
    },
    /// Totals of a directory and everything below it; directories, and unbounded lists of sums, are
    /// streamed.
    Totals {
        /// The directory; `DIR@SNAPSHOT` as in a search.
        path: &'a [u8],
        /// Directories to this depth are returned one by one; `None`: none.
        depth: Option<u32>,
        /// Which sums by owner, group, extension or directory to return; `None`: only the grand
        /// total.
        top: Option<Top>,
    },
    /// The versions of a path in snapshots, streamed.
    History {
        /// The path, which need not exist any more.
        path: &'a [u8],
    },
    /// The changes from one state of a directory to another, streamed.
    Diff {
        /// The directory in the old state.
        old: &'a [u8],
        /// The directory in the new state.
        new: &'a [u8],
        /// Most bytes of memory at the daemon; `None`: [`DIFF_MEMORY`], or half of what the
        /// caller's share has left.
        memory: Option<u64>,
    },
    /// Sends a snapshot as a stream of `pando send`, as `Data`.
    Send {
        /// The older snapshot that the receiver has; `None`: all is sent.
        base: Option<&'a [u8]>,
        /// The snapshot.
        snapshot: &'a [u8],
        /// The token of a stream that was cut.
        token: Option<&'a str>,
        /// Most bytes of memory; `None`: [`STREAM_MEMORY`], or half of what the caller's share has
        /// left.
        memory: Option<u64>,
        /// Whether the stream is only measured.
        dry_run: bool,
        /// The name of the hold that keeps the snapshot as the next base; `None`: none is set.
        hold: Option<&'a [u8]>,
    },
    /// The metadata of a directory of a snapshot as JSON lines, as `Data`.
    Dump {
        /// The directory.
        path: &'a [u8],
        /// Most bytes of memory, as of a stream.
        memory: Option<u64>,
    },
    /// Begins to receive a stream on this connection.
    ReceiveOpen {
        /// The destination.
        path: &'a [u8],
        /// The name of the snapshot; `None`: that in the stream.
        name: Option<&'a [u8]>,
        /// Whether changes are given up that were made there since the base.
        force: bool,
        /// Whether the snapshot is held as the base of the next increment.
        hold: bool,
    },
    /// Applies the next bytes of the stream.
    Receive {
        /// The bytes.
        #[serde(serialize_with = "crate::bytes::run")]
        bytes: &'a [u8],
    },
    /// Ends the stream; answered when what was received is visible and durable.
    ReceiveClose,
    /// The token of a stream to a destination that was cut.
    ReceiveToken {
        /// The destination.
        path: &'a [u8],
    },
    /// The extended attributes that are declared searchable.
    Searchable,
    /// Declares extended attributes searchable, or undeclares them; answered when durable.
    Declare {
        /// Their names.
        names: Vec<&'a [u8]>,
        /// Whether they become searchable.
        searchable: bool,
    },
    /// The limits of clusters of the index; limits given are set first, durably.
    ClusterLimits {
        /// Maximum directories of one.
        directories: Option<u32>,
        /// Maximum inodes of one, except that the names of one directory stay together.
        inodes: Option<u32>,
    },
    /// Writes the differences to the index of the subvolume of a path; answered when durable.
    IndexFlush {
        /// The path.
        path: &'a [u8],
    },
    /// Makes everything durable.
    Sync,
    /// Asks a daemon that has no mount to exit, so that the caller can mount.
    HandOver,
    /// The other connections: all, for root and the volume's owner; for any other user only the
    /// caller's own.
    Sessions,
    /// Ends one of those.
    SessionEnd {
        /// Its number.
        id: u64,
    },
    /// Checks everything that the volume has on disk; progress is streamed.
    Check,
    /// Finds unreferenced data; progress is streamed.
    Collect {
        /// Seconds after which noted garbage is deleted; `None`: nothing is noted or deleted.
        delete_after: Option<u64>,
    },
    /// Begins an import to a path on this connection.
    ImportOpen {
        /// Destination.
        path: &'a [u8],
        /// Whether a directory is imported (otherwise one file, symbolic link or special file,
        /// which is the first item, under any name).
        directory: bool,
        /// Whether a directory that exists must be the caller's own and closed to others. It is
        /// what an earlier import left, and becomes visible under another name when it is complete.
        staged: bool,
    },
    /// Gives the directory that the import began with another name, which must not exist.
    ImportPublish {
        /// The name.
        name: &'a [u8],
    },
    /// Processes the next items of the import, in order. No separate answer: the answer to the next
    /// `ImportFlush` reports failed items.
    Import {
        /// The items, as [`crate::Items`] encodes them.
        #[serde(serialize_with = "crate::bytes::run")]
        items: &'a [u8],
    },
    /// Enters a directory that may already exist, and returns its entries (streamed).
    ImportEnter {
        /// Its name in the current directory.
        name: &'a [u8],
    },
    /// Answers when all items so far are done.
    ImportFlush,
    /// Ends the import; answered when it is durable.
    ImportClose,
    /// What the index in the volume's root records about its scans.
    ScanInfo,
    /// Announces that the caller follows the source of the index, for as long as the connection
    /// lasts. It is repeated, so that the connection does not end by silence.
    ScanFollow {
        /// The means.
        by: ScanWatch,
        /// How many directories it cannot follow.
        unwatched: u64,
    },
    /// Begins a scan of another file system into the volume's root on this connection.
    ScanOpen {
        /// The directory that is indexed, absolute.
        source: &'a [u8],
        /// When the scan began, in nanoseconds since 1970.
        started: i64,
        /// Whether file systems mounted below it are included.
        crosses_mounts: bool,
        /// Whether extended attributes are kept.
        keeps_xattrs: bool,
        /// Whether a directory above the source is closed to some users.
        hidden: bool,
    },
    /// The directories that the last scan found, streamed.
    ScanDirectories,
    /// Processes the next items of the scan, in order. No separate answer: the answer to the next
    /// `ScanFlush` reports a failure, and nothing is processed after it.
    Scan {
        /// The items, as [`crate::push_scan_item`] encodes them.
        #[serde(serialize_with = "crate::bytes::run")]
        items: &'a [u8],
    },
    /// Answers when all items so far are done.
    ScanFlush,
    /// Ends the scan; answered when its results are visible to all users and durable.
    ScanClose {
        /// When it ended, in nanoseconds since 1970.
        ended: i64,
        /// How many objects of the source could not be read.
        unread: u64,
    },
    /// Sets limits of a directory; answered when durable.
    QuotaSet {
        /// The directory.
        path: &'a [u8],
        /// Maximum inodes.
        inodes: LimitChange,
        /// Maximum bytes.
        bytes: LimitChange,
    },
    /// The quota that a path is charged to.
    QuotaGet {
        /// The path.
        path: &'a [u8],
    },
    /// Sets limits of a user or a group; answered when durable.
    OwnerQuotaSet {
        /// The user or group.
        owner: QuotaOwner,
        /// Maximum inodes.
        inodes: LimitChange,
        /// Maximum bytes.
        bytes: LimitChange,
    },
    /// What a user or a group is charged.
    OwnerQuotaGet {
        /// The user or group.
        owner: QuotaOwner,
    },
    /// All quotas.
    QuotaList,
    /// Recounts all quotas.
    QuotaCheck,
    /// Adds a trash to a directory, or removes it; answered when durable.
    TrashSet {
        /// The directory.
        path: &'a [u8],
        /// Whether it has a trash from now on.
        on: bool,
        /// How long it keeps removed objects, in seconds; `None`: as it holds there, or seven
        /// days.
        keep_seconds: Option<u64>,
    },
    /// Objects removed at a path or below, streamed, newest first; the path need not exist.
    TrashList {
        /// The path.
        path: &'a [u8],
    },
    /// Deletes everything in the trash that serves a directory.
    TrashEmpty {
        /// The directory.
        path: &'a [u8],
    },
    /// Restores what was removed at a path; answered when durable.
    Restore {
        /// The path.
        path: &'a [u8],
        /// The destination, if another.
        to: Option<&'a [u8]>,
        /// Ignore objects removed later than this, in nanoseconds since 1970.
        at: Option<i64>,
        /// For a directory, restore what was removed from it since then.
        since: Option<i64>,
    },
    /// Restores a path out of a snapshot of it or of a directory above it; answered when durable.
    RestoreFrom {
        /// The snapshot.
        snapshot: &'a [u8],
        /// The path, which need not exist any more.
        path: &'a [u8],
        /// The destination, if another.
        to: Option<&'a [u8]>,
    },
    /// Whether the daemon serves the mount with a device number, as in `0:53`: checked before the
    /// source name of another user's mount is trusted. Fails if not.
    ServesMount {
        /// The number.
        device: &'a [u8],
    },
    /// Mount the volume again, whose mount point is gone while open files or another mount
    /// namespace keep its mount. The daemon needs the same settings; otherwise it names one that
    /// differs. For root in the daemon's mount namespace.
    MountAgain {
        /// Where, as the daemon sees it.
        mount_point: &'a [u8],
        /// Options of the mount, comma-separated.
        options: &'a str,
        /// Memory for cached nodes, in bytes.
        cache: Option<u64>,
        /// Memory for the index, in bytes.
        index: Option<u64>,
        /// Where to answer scrapes of metrics.
        metrics: Option<&'a str>,
        /// Whether to record a trace.
        traces: bool,
    },
}
