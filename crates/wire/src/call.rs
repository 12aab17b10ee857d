//! What a client says: hello once, then requests.
//!
//! Paths in calls are absolute inside the volume (`/a/b`), any bytes. They are resolved by the
//! owner with the rights of the caller.

use serde::{Deserialize, Serialize};

use crate::{Bytes, Find, LimitChange, QuotaOwner, Top};

/// First bytes of a connection.
pub const HELLO_MAGIC: [u8; 8] = *b"pando-1\n";

/// The version of the messages. Both sides must have the same: owner and command are the same
/// program nearly always, and where they are not, the message says which to restart.
pub const VERSION: u32 = 18;

/// First message of a client. Its layout never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`HELLO_MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`] of the client.
    pub version: u32,
}

/// First message of the owner. Its layout never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`HELLO_MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`] of the owner.
    pub version: u32,
    /// The owner's process. 0: it refuses the connection, and one reply says why.
    pub pid: u32,
    /// Where the owner has the volume mounted.
    pub mount_point: Option<Bytes>,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request<'a> {
    /// Chosen by the client; every answer carries it.
    pub id: u32,
    /// What is asked for.
    #[serde(borrow)]
    pub call: Call<'a>,
}

/// What can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call<'a> {
    /// The state of the volume and of its owner.
    Status,
    /// What PandoFS knows of a path beyond `stat`: subvolume, snapshots, source of a clone.
    Info {
        /// The path.
        path: &'a [u8],
    },
    /// Attributes of a path, symbolic link not followed.
    Stat {
        /// The path.
        path: &'a [u8],
    },
    /// Entries of a directory, with attributes, streamed.
    List {
        /// The path; something else than a directory lists itself.
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
    /// Takes a snapshot of a directory; answered when durable.
    SnapshotCreate {
        /// The directory.
        path: &'a [u8],
        /// Its name.
        name: &'a [u8],
    },
    /// The snapshots of a directory.
    SnapshotList {
        /// The directory.
        path: &'a [u8],
    },
    /// The snapshots of the volume, streamed.
    SnapshotsOfVolume {
        /// Whether only those of directories that were removed.
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
    /// Removes a tree; answered when it is detached durably. Reclaim goes on in the background.
    Remove {
        /// The path.
        path: &'a [u8],
    },
    /// How far a tree is that `Remove` detached.
    Reclaiming {
        /// The number that `Remove` answered.
        detached: u64,
    },
    /// Creates an empty subvolume.
    SubvolumeCreate {
        /// The new path.
        path: &'a [u8],
        /// Permission bits that it does not get, unless the directory has a default access list.
        umask: u32,
    },
    /// Totals of a directory and all below it; directories, and sums of which there may be any
    /// number, are streamed.
    Totals {
        /// The directory; `DIR@SNAPSHOT` as in a search.
        path: &'a [u8],
        /// Directories to this depth are told one by one; `None`: none.
        depth: Option<u32>,
        /// Sums by what they are of, and which of them; `None`: only what it all comes to.
        top: Option<Top>,
    },
    /// The versions of a path in snapshots, streamed.
    History {
        /// The path, which need not exist any more.
        path: &'a [u8],
    },
    /// The extended attributes that are declared searchable.
    Searchable,
    /// Declares extended attributes searchable, or takes that back; answered when durable.
    Declare {
        /// Their names.
        names: Vec<&'a [u8]>,
        /// Whether they are to be searchable.
        searchable: bool,
    },
    /// The limits of clusters of the index; those that are given are set first, durably.
    ClusterLimits {
        /// Most directories of one.
        directories: Option<u32>,
        /// Most inodes of one, but for the names of one directory.
        inodes: Option<u32>,
    },
    /// Writes what differs from the index of the subvolume of a path; answered when durable.
    IndexFlush {
        /// The path.
        path: &'a [u8],
    },
    /// Makes everything durable.
    Sync,
    /// Asks an owner that has no mount to leave, so that the caller can mount.
    HandOver,
    /// The connections of others than this one: all, for root and whose the volume is, and for
    /// anybody else the caller's.
    Sessions,
    /// Ends one of those.
    SessionEnd {
        /// Its number.
        id: u64,
    },
    /// Checks all that the volume has on disk; progress is streamed.
    Check,
    /// Finds what nothing names; progress is streamed.
    Collect {
        /// Seconds after which what was noted is deleted; `None`: nothing is noted or deleted.
        delete_after: Option<u64>,
    },
    /// Begins an import to a path on this connection.
    ImportOpen {
        /// Where to.
        path: &'a [u8],
        /// Whether a directory is imported (else one file, symbolic link or special file, which
        /// the first item is, under any name).
        directory: bool,
    },
    /// Does the next items of the import, in order. Not answered by itself: failed items are
    /// told with the answer to the next `ImportFlush`.
    Import {
        /// The items, as [`crate::Items`] encodes them.
        #[serde(serialize_with = "crate::bytes::run")]
        items: &'a [u8],
    },
    /// Enters a directory that may be there already, and tells what it holds (streamed).
    ImportEnter {
        /// Its name in the current directory.
        name: &'a [u8],
    },
    /// Answers when all items so far are done.
    ImportFlush,
    /// Ends the import; answered when it is durable.
    ImportClose,
    /// What the index in the volume's root knows of its scans.
    ScanInfo,
    /// Begins a scan of another file system into the volume's root on this connection.
    ScanOpen {
        /// The directory that is indexed, absolute.
        source: &'a [u8],
        /// When the scan began, in nanoseconds since 1970.
        started: i64,
        /// Whether file systems mounted below belong to it.
        crosses_mounts: bool,
        /// Whether extended attributes are kept.
        keeps_xattrs: bool,
    },
    /// The directories that the last scan found, streamed.
    ScanDirectories,
    /// Does the next items of the scan, in order. Not answered by itself: what failed is told by
    /// the answer to the next `ScanFlush`, and nothing is done after it.
    Scan {
        /// The items, as [`crate::push_scan_item`] encodes them.
        #[serde(serialize_with = "crate::bytes::run")]
        items: &'a [u8],
    },
    /// Answers when all items so far are done.
    ScanFlush,
    /// Ends the scan; answered when what it told is what everybody sees, durably.
    ScanClose {
        /// When it ended, in nanoseconds since 1970.
        ended: i64,
        /// How much of the source could not be read.
        unread: u64,
    },
    /// Sets limits of a directory; answered when durable.
    QuotaSet {
        /// The directory.
        path: &'a [u8],
        /// Most inodes.
        files: LimitChange,
        /// Most bytes.
        bytes: LimitChange,
    },
    /// The quota that a path is charged to.
    QuotaGet {
        /// The path.
        path: &'a [u8],
    },
    /// Sets limits of a user or a group; answered when durable.
    OwnerQuotaSet {
        /// Who.
        owner: QuotaOwner,
        /// Most inodes.
        files: LimitChange,
        /// Most bytes.
        bytes: LimitChange,
    },
    /// What a user or a group is charged.
    OwnerQuotaGet {
        /// Who.
        owner: QuotaOwner,
    },
    /// All quotas.
    QuotaList,
    /// Counts all quotas again.
    QuotaCheck,
    /// Gives a directory a trash, or takes it away; answered when durable.
    TrashSet {
        /// The directory.
        path: &'a [u8],
        /// How long it keeps what is removed, in seconds; `None`: it has none.
        keep_seconds: Option<u64>,
    },
    /// What was removed at a path or below, streamed, newest first; the path need not be there.
    TrashList {
        /// The path.
        path: &'a [u8],
    },
    /// Deletes all that is in the trash that keeps what is removed in a directory.
    TrashEmpty {
        /// The directory.
        path: &'a [u8],
    },
    /// Brings back what was removed at a path; answered when durable.
    Restore {
        /// The path.
        path: &'a [u8],
        /// Where to instead.
        to: Option<&'a [u8]>,
        /// Nothing that was removed later, in nanoseconds since 1970.
        at: Option<i64>,
        /// Of a directory, what was removed from it since then.
        since: Option<i64>,
    },
    /// Whether the daemon serves the mount of a device number, as in `0:53`: asked before what the
    /// source of another user's mount says is believed. It fails if not.
    ServesMount {
        /// The number.
        device: &'a [u8],
    },
}
