//! The command line: verbs, options, and an example for each. Parsing only; the file named after a
//! verb implements it.

mod bench;
mod check;
mod diff;
mod help;
mod index;
mod ls;
mod quota;
mod search;
mod serve;
mod session;
mod snapshot;
mod trace;
mod transfer;
mod stream;
mod trash;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bench::BENCH_HELP;
pub(crate) use bench::BenchArgs;
pub(crate) use check::{FsckArgs, GcArgs};
use clap::{Args, Parser, Subcommand, ValueEnum};
use diff::DIFF_HELP;
pub(crate) use diff::DiffArgs;
pub(crate) use help::{command, rewrite};
pub(crate) use index::{IndexArgs, Refresh, Watch};
pub(crate) use ls::{LsArgs, LsOrder};
pub(crate) use program::EngineArg;
pub(crate) use quota::{QuotaSetArgs, QuotaVerb};
pub(crate) use search::SearchVerb;
use serve::{CLUSTER_HELP, SERVE_HELP};
pub(crate) use serve::{CertsArgs, ClusterVerb, EtcdArgs, FarMountArgs, PORT, ServeArgs};
pub(crate) use session::SessionVerb;
pub(crate) use stream::{DumpArgs, DumpFormat, LoadArgs, ReceiveArgs, SendArgs};
pub(crate) use trace::{MixArg, ReplayArgs, Timing, TraceVerb};
pub(crate) use transfer::{Appear, ExportArgs, ExportFormat, ImportArgs, ImportFormat, OnConflict};
use transfer::{EXPORT_HELP, IMPORT_HELP};
pub(crate) use trash::{RestoreArgs, TrashVerb};

use program::{cache_size, index_cache};

use crate::cli_totals::{DU_HELP, DuArgs, HISTORY_HELP, HistoryArgs, SUMMARY_HELP, SummaryArgs};
use crate::environment::{CACHE_SIZE, INDEX_CACHE};
use crate::metrics;
use crate::retention;
use wire::Keep;

/// A time from the command line.
fn duration(text: &str) -> Result<Duration, String> {
    inode::parse_duration(text)
        .ok_or_else(|| "expected a number with s, m, h, d, w or y, such as 90m or 7d".to_owned())
}

/// A size from the command line.
fn bytes(text: &str) -> Result<u64, String> {
    inode::parse_bytes(text).ok_or_else(|| "expected a number of bytes, such as 10G".to_owned())
}

const PATHS: &str = "\
PATH is a path below a mounted volume, or VOLDIR:/inner/path for a volume directory,
 mounted or not. The URL of a volume in an object store (s3://BUCKET/PREFIX, file:///DIR) may
 replace VOLDIR everywhere. pando://HOST[:PORT]/VOLUME/path names a path in a volume of a server
 (`pando serve`), for verbs that look and for snapshots and clones. Where no daemon has the volume
 open, the command starts one in the
background, which ends when it has been idle for a while (30 s, PANDO_IDLE_SECONDS). It
caches in a quarter of the memory (PANDO_CACHE_SIZE), and keeps the index for searches in
256 MiB (PANDO_INDEX_CACHE, 0 for none).";

const FORMAT_HELP: &str = "\
In an object store, credentials and the server's address come from the environment and the files
of the AWS tools (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE, AWS_REGION,
AWS_ENDPOINT_URL).

Examples:
  pando format /data/vol
  pando format s3://bucket/prefix";

const UMOUNT_HELP: &str = "\
umount leaves a mount that is in use, and lists the processes that use it. --lazy detaches it at
once; its daemon ends when the last open file is closed. With the volume's directory, umount ends
the daemon of a volume that is not mounted. Where the volume is mounted only in another mount
namespace (a container), --lazy ends its daemon: those mounts then fail.

Examples:
  pando umount /mnt/vol
  pando umount --lazy /mnt/vol    # while files are open there
  pando umount /data/vol          # unmounts it, or ends its idle daemon
  pando umount --lazy /data/vol   # mounted only in a container: ends its daemon";

const STATUS_HELP: &str = "\
Of a volume that `pando index` keeps, it shows the directory that is indexed, the last complete
scan, and the process that follows the directory, if one does.

Examples:
  pando status /data/vol
  pando status /mnt/vol --json";

/// A file-system namespace with O(1) snapshots and clones of any directory.
#[derive(Debug, Parser)]
#[command(name = "pando", version, after_help = after_help(), max_term_width = 100)]
#[command(propagate_version = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// Print JSON: one object a line, errors too (on standard error)
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// No progress
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
#[expect(clippy::large_enum_variant, reason = "there is one, for the whole run")]
pub(crate) enum Verb {
    /// Create a volume in an empty or new directory
    #[command(after_help = FORMAT_HELP)]
    Format(FormatArgs),
    /// Mount a volume
    #[command(after_help = mount_help())]
    Mount(MountArgs),
    /// Unmount a volume, and wait until it is closed
    #[command(after_help = UMOUNT_HELP)]
    Umount(UmountArgs),
    /// Show the state of a volume and of its daemon
    #[command(after_help = STATUS_HELP)]
    Status(VolumeArg),
    /// List the sessions of a volume's daemon, and end them
    #[command(subcommand, after_help = session::HELP)]
    Session(SessionVerb),
    /// Show details of a path: subvolume, snapshots, attributes
    #[command(after_help = "Example:\n  pando info /mnt/vol/project")]
    Info(PathArg),
    /// List directories, or files
    #[command(after_help = ls::LS_HELP, disable_help_flag = true)]
    Ls(LsArgs),
    /// Find files by name, size, owner, time and more: GNU find's expressions, or a search box's
    Find(FindArgs),
    /// Set what the search index holds, its cluster sizes, and flush it
    #[command(subcommand, after_help = search::HELP)]
    Search(SearchVerb),
    /// Show the attributes of paths
    #[command(after_help = "Example:\n  pando stat /data/vol:/project/a.txt --json")]
    Stat(PathsArg),
    /// Write the contents of files to standard output
    #[command(after_help = "Example:\n  pando cat /data/vol:/project/a.txt")]
    Cat(PathsArg),
    /// Copy a file or a tree into a volume: DST becomes a copy of SRC
    #[command(after_help = IMPORT_HELP)]
    Import(ImportArgs),
    /// Copy a tree out of a volume: into a directory, or as an archive
    #[command(after_help = EXPORT_HELP)]
    Export(ExportArgs),
    /// Index an existing tree of any file system: attributes without contents
    #[command(after_help = index::HELP)]
    Index(IndexArgs),
    /// Snapshots of a directory
    #[command(subcommand, after_help = SNAPSHOT_HELP)]
    Snapshot(SnapshotVerb),
    /// Clone a directory: writable, in constant time whatever its size
    #[command(after_help = snapshot::CLONE_HELP)]
    Clone(CloneArgs),
    /// Roll a directory back to one of its snapshots
    #[command(after_help = ROLLBACK_HELP)]
    Rollback(RollbackArgs),
    /// Show how much directories hold, without walking them
    #[command(after_help = DU_HELP, disable_help_flag = true)]
    Du(DuArgs),
    /// Show what a directory holds, by owner, kind, size, age and extension, without walking it
    #[command(after_help = SUMMARY_HELP)]
    Summary(SummaryArgs),
    /// Show in which snapshots a path existed, and when it changed or vanished
    #[command(after_help = HISTORY_HELP)]
    History(HistoryArgs),
    /// Show what changed from one state of a directory to another: snapshots, clones, the present
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArgs),
    /// Send a snapshot, or what differs between two, as a stream on standard output
    #[command(after_help = stream::SEND_HELP)]
    Send(SendArgs),
    /// Receive a stream of `pando send` from standard input
    #[command(after_help = stream::RECEIVE_HELP)]
    Receive(ReceiveArgs),
    /// Write all metadata of a directory as JSON lines
    #[command(after_help = stream::DUMP_HELP)]
    Dump(DumpArgs),
    /// Make a tree of a dump: all metadata, files without contents
    #[command(after_help = stream::LOAD_HELP)]
    Load(LoadArgs),
    /// Remove a tree: detached at once, its space reclaimed in the background
    #[command(
        after_help = "Examples:\n  pando rmr /mnt/vol/old\n  pando rmr --wait /data/vol:/old"
    )]
    Rmr(RmrArgs),
    /// Subvolumes
    #[command(subcommand, after_help = SUBVOLUME_HELP)]
    Subvolume(SubvolumeVerb),
    /// Limits on what directories hold
    #[command(subcommand, after_help = quota::HELP)]
    Quota(QuotaVerb),
    /// Directories that keep removed files for a while
    #[command(subcommand, after_help = trash::HELP)]
    Trash(TrashVerb),
    /// Restore removed files from the trash
    #[command(after_help = trash::RESTORE_HELP)]
    Restore(RestoreArgs),
    /// Make everything in a volume durable
    #[command(after_help = "Example:\n  pando sync /data/vol")]
    Sync(VolumeArg),
    /// Verify everything that a volume stores, and repair it
    #[command(after_help = check::FSCK_HELP)]
    Fsck(FsckArgs),
    /// Find unreferenced data, and delete it
    #[command(after_help = check::GC_HELP)]
    Gc(GcArgs),
    /// Measure a mounted volume: files, snapshots and searches in a directory that is removed again
    #[command(after_help = BENCH_HELP)]
    Bench(BenchArgs),
    /// Traces of the calls of a mount: what they have, as JSON, without names, generated
    #[command(subcommand, after_help = trace::HELP)]
    Trace(TraceVerb),
    /// Replay a trace in a directory of any file system, and measure it
    #[command(after_help = trace::REPLAY_HELP)]
    Replay(ReplayArgs),
    /// Serve volumes to other machines, until a signal ends it
    #[command(after_help = SERVE_HELP)]
    Serve(ServeArgs),
    /// Certificates for servers and their clients
    #[command(subcommand, after_help = CLUSTER_HELP)]
    Cluster(ClusterVerb),
    /// Serve the mount of a volume of a server (started by `mount`)
    #[command(hide = true)]
    FarMount(FarMountArgs),
    /// Serve a volume as its daemon (started by other verbs)
    #[command(hide = true)]
    Daemon(DaemonArgs),
    /// Write man pages and shell completions below a directory
    #[command(hide = true)]
    Generate(GenerateArgs),
}

const MOUNT_EXAMPLES: &str = "\
In /etc/fstab, with /sbin/mount.pando a link to pando:
  /data/vol  /mnt/vol  pando  defaults,noatime  0  0

Examples:
  pando mount /data/vol /mnt/vol
  pando mount /data/vol:/project /mnt/project
  pando mount pando://files.example.org/home /mnt/home   # of `pando serve` on that host
  pando mount -f -o ro,subdir=project /data/vol /mnt/project";

fn after_help() -> String {
    format!("{PATHS}\n\n{}", program::exit::help())
}

fn mount_help() -> String {
    let options = fuse::options_help();
    format!("Options for -o, comma-separated:\n{options}\n{MOUNT_EXAMPLES}")
}

const SNAPSHOT_HELP: &str = "\
Through a mount, mkdir, rmdir, mv and ls in DIR/.snapshots do the same. DIR@NAME is what a snapshot
holds, for verbs that read; for other programs it is DIR/.snapshots/NAME.

Examples:
  pando snapshot create /mnt/vol/project monday
  pando snapshot list /mnt/vol/project
  pando ls /mnt/vol/project@monday";

const SUBVOLUME_HELP: &str = "Example:\n  pando subvolume create /mnt/vol/builds";

const ROLLBACK_HELP: &str = "\
What DIR held is removed, in the background; open files keep the old contents. Take a
snapshot first to keep it.

Example:
  pando rollback /mnt/vol/project before-upgrade";

#[derive(Debug, Args)]
pub(crate) struct FormatArgs {
    /// Directory of the volume, or the URL of an object store: s3://BUCKET/PREFIX, or file:///DIR
    /// for a directory that hosts share
    pub(crate) voldir: PathBuf,
    /// Name of the hidden directory of snapshots that every directory has
    #[arg(long, default_value = ".snapshots")]
    pub(crate) snapshot_dir: OsString,
    /// Engine that keeps names and attributes (default btree, and lsm in an object store)
    #[arg(long, value_enum)]
    pub(crate) engine: Option<EngineArg>,
    /// How --engine lsm lays records out (default rows, and column in an object store)
    #[arg(long, value_enum)]
    pub(crate) layout: Option<LayoutArg>,
    /// Directory of the log, on a separate disk; empty or new (default: in VOLDIR)
    #[arg(long, value_name = "DIR")]
    pub(crate) log_dir: Option<PathBuf>,
    /// Home of the inodes that the volume makes, from 0 to 32766
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(..=32766))]
    pub(crate) inode_home: u16,
}

/// A layout, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayoutArg {
    /// Whole records in sorted runs, which are merged
    Rows,
    /// Names with their attributes in runs; small files' contents, targets of links and extended
    /// attributes in value logs, which are not merged
    Column,
}

impl From<LayoutArg> for fs::Layout {
    fn from(layout: LayoutArg) -> fs::Layout {
        match layout {
            LayoutArg::Rows => fs::Layout::Rows,
            LayoutArg::Column => fs::Layout::Column,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// Directory or URL of the volume, pando://HOST/VOLUME on a server; VOLDIR:/path mounts a
    /// directory of it
    pub(crate) voldir: PathBuf,
    /// Where to mount it
    pub(crate) mnt: PathBuf,
    /// Stay in the foreground
    #[arg(long, short)]
    pub(crate) foreground: bool,
    /// Replace a daemon that has the volume open on another host: what is not durable there is lost
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Memory for cached nodes of the volume, such as 512M; default: a quarter of all memory
    #[arg(long, value_name = "SIZE", value_parser = cache_size::parse, env = CACHE_SIZE)]
    pub(crate) cache_size: Option<u64>,
    /// Memory for the search index, such as 80M; 0: no index, and searches walk
    #[arg(long, value_name = "SIZE", value_parser = index_cache::parse, env = INDEX_CACHE)]
    pub(crate) index_cache: Option<u64>,
    /// Answer scrapes of Prometheus there, such as 127.0.0.1:9478, at /metrics
    #[arg(long, value_name = "HOST:PORT", value_parser = metrics::parse)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Record all calls of the mount in this file, for `pando trace` and `pando replay`; it must
    /// not exist
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// End the trace before its file is longer, such as 10G; the mount continues
    #[arg(long, value_name = "SIZE", requires = "trace", value_parser = bytes)]
    pub(crate) trace_limit: Option<u64>,
    /// Mount options, comma-separated
    #[arg(long = "options", short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub(crate) options: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UmountArgs {
    /// Mount point, or directory of the volume
    pub(crate) path: PathBuf,
    /// Detach it even while it is in use; the volume is closed when the last user leaves
    #[arg(short, long)]
    pub(crate) lazy: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VolumeArg {
    /// Directory of the volume, or a path below its mount
    #[arg(value_name = "VOLUME")]
    pub(crate) path: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct PathArg {
    /// Path below a mount, or VOLDIR:/inner/path
    pub(crate) path: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct PathsArg {
    /// Paths below a mount, or VOLDIR:/inner/path
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

// `find` takes its arguments apart itself: they are those of GNU find. (Documentation here would be
// the help's text of the verb.)
#[derive(Debug, Args)]
pub(crate) struct FindArgs {
    /// Paths, search-box queries, and the expression
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum SnapshotVerb {
    /// Take a snapshot of a directory
    #[command(after_help = "Example:\n  pando snapshot create /mnt/vol/project monday")]
    Create {
        /// The directory
        dir: PathBuf,
        /// Name of the snapshot
        name: OsString,
    },
    /// List the snapshots of a directory, or of a volume
    #[command(after_help = snapshot::LIST_HELP)]
    List {
        /// The directory; with --removed or --all the volume, or a path in it
        dir: PathBuf,
        /// Those of directories of the volume that were removed
        #[arg(long, conflicts_with = "all")]
        removed: bool,
        /// All of the volume
        #[arg(long)]
        all: bool,
    },
    /// Delete a snapshot
    #[command(after_help = snapshot::DELETE_HELP)]
    Delete {
        /// The directory; with --number the volume, or a path in it
        dir: PathBuf,
        /// Name of the snapshot
        #[arg(required_unless_present = "number")]
        name: Option<OsString>,
        /// The snapshot of this number: its directory may have been removed
        #[arg(long, value_name = "N", conflicts_with = "name")]
        number: Option<u64>,
    },
    /// Rename a snapshot
    #[command(after_help = "Example:\n  pando snapshot rename /mnt/vol/project monday release-1")]
    Rename {
        /// The directory
        dir: PathBuf,
        /// Name of the snapshot
        name: OsString,
        /// Its new name
        new_name: OsString,
    },
    /// Take snapshots of a directory at set times, and delete old ones; or show when
    #[command(after_help = snapshot::SCHEDULE_HELP)]
    Schedule {
        /// The directory; with --all the volume, or a path in it
        dir: PathBuf,
        /// Minute, hour, day, month, weekday as in crontab, in the daemon's local time; or @hourly,
        /// @daily, @weekly, @monthly, @yearly
        #[arg(conflicts_with_all = ["off", "all"])]
        when: Option<String>,
        /// How many to keep: the newest of each of so many hours, days, weeks, months, years; or
        /// `all` [default: as before, or all]
        #[arg(
            long,
            value_name = "24h7d4w12m",
            conflicts_with_all = ["off", "all"],
            value_parser = retention::keep_or_all
        )]
        keep: Option<Keep>,
        /// How the snapshots' names begin [default: as before, or auto]
        #[arg(long, conflicts_with_all = ["off", "all"])]
        prefix: Option<OsString>,
        /// Take no more; those that there are stay
        #[arg(long, conflicts_with = "all")]
        off: bool,
        /// Show all schedules of the volume
        #[arg(long)]
        all: bool,
    },
    /// Delete the snapshots of a schedule that are no longer kept
    #[command(after_help = snapshot::PRUNE_HELP)]
    Prune {
        /// The directory
        dir: PathBuf,
        /// How many to keep [default: as in the directory's schedule]
        #[arg(long, value_name = "24h7d4w12m", value_parser = retention::keep)]
        keep: Option<Keep>,
        /// How the names of the snapshots begin [default: as in the schedule, or auto]
        #[arg(long)]
        prefix: Option<OsString>,
        /// Delete nothing; show what would be deleted, and what would be kept
        #[arg(long)]
        dry_run: bool,
    },
    /// Keep a snapshot from being deleted, until the hold of this name is released
    #[command(after_help = snapshot::HOLD_HELP)]
    Hold {
        /// The directory; with --number the volume, or a path in it
        dir: PathBuf,
        /// Name of the snapshot, or its number with --number
        snapshot: OsString,
        /// Name of the hold
        name: OsString,
        /// SNAPSHOT is a number: its directory may have been removed
        #[arg(long)]
        number: bool,
    },
    /// End a hold
    #[command(after_help = snapshot::HOLD_HELP)]
    Release {
        /// The directory; with --number the volume, or a path in it
        dir: PathBuf,
        /// Name of the snapshot, or its number with --number
        snapshot: OsString,
        /// Name of the hold
        name: OsString,
        /// SNAPSHOT is a number: its directory may have been removed
        #[arg(long)]
        number: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CloneArgs {
    /// The directory to clone
    pub(crate) src: PathBuf,
    /// The new path, in the same volume
    pub(crate) dst: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    /// The directory
    pub(crate) dir: PathBuf,
    /// Name of one of its snapshots
    pub(crate) snapshot: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct RmrArgs {
    /// What to remove
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Wait until the space of the contents is free, and show progress; the small space of names
    /// follows with the next checkpoints
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum SubvolumeVerb {
    /// Make an empty directory that is a subvolume: the cheapest to snapshot and clone
    #[command(after_help = "Example:\n  pando subvolume create /mnt/vol/builds")]
    Create {
        /// The new directory
        path: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// The directory
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct DaemonArgs {
    /// Directory of the volume
    pub(crate) voldir: PathBuf,
    /// Seconds without a request after which the daemon ends
    #[arg(long, default_value_t = 30)]
    pub(crate) idle_seconds: u64,
    /// Memory for cached nodes; default is a quarter of all memory
    #[arg(long, value_name = "SIZE", value_parser = cache_size::parse, env = CACHE_SIZE)]
    pub(crate) cache_size: Option<u64>,
    /// Memory for the search index, such as 80M; 0: no index, and searches walk
    #[arg(long, value_name = "SIZE", value_parser = index_cache::parse, env = INDEX_CACHE)]
    pub(crate) index_cache: Option<u64>,
    /// Answer scrapes of metrics there
    #[arg(long, value_parser = metrics::parse)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Record all calls of the mount there
    #[arg(long)]
    pub(crate) trace: Option<PathBuf>,
    /// Longest trace
    #[arg(long, requires = "trace", value_parser = bytes)]
    pub(crate) trace_limit: Option<u64>,
    /// Mount it there, and stay until it is unmounted
    #[arg(long)]
    pub(crate) mount: Option<PathBuf>,
    /// Replace a daemon on another host
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Mount options
    #[arg(long, short = 'o', value_delimiter = ',')]
    pub(crate) options: Vec<String>,
}
