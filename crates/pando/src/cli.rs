//! The command line: verbs, options, and an example for each. Parsing only; what a verb does
//! stands in the file of its name.

mod check;
mod index;

use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) use check::{FsckArgs, GcArgs};
use clap::{Args, Parser, Subcommand, ValueEnum};
pub(crate) use index::{IndexArgs, Refresh, Watch};

use crate::cli_totals::{DU_HELP, DuArgs, HISTORY_HELP, HistoryArgs, SUMMARY_HELP, SummaryArgs};

use crate::{cache_size, index_cache};

const PATHS: &str = "\
PATH is a path below a mounted volume, or VOLDIR:/inner/path for a volume directory,
mounted or not. Where no process owns the volume, the command starts one in the
background, which leaves when it has been idle for a while (30 s, PANDO_IDLE_SECONDS). It
caches in a quarter of the memory (PANDO_CACHE_SIZE), and keeps the index for searches in
256 MiB (PANDO_INDEX_CACHE, 0 for none).

Exit codes:
  0  done
  1  failed for another reason
  2  wrong usage
  3  no such path, volume or snapshot
  4  permission denied
  5  damaged data, or an I/O error
  6  in the way: exists, not empty, busy, mounted, of another kind
  7  no space, or read-only
  8  not a volume, or of a newer format
  130 interrupted";

/// A file-system namespace with O(1) snapshots and clones of any directory.
#[derive(Debug, Parser)]
#[command(name = "pando", version, after_help = PATHS, max_term_width = 100)]
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
pub(crate) enum Verb {
    /// Make a volume in a directory that is empty or not there
    #[command(after_help = "Example:\n  pando format /data/vol")]
    Format(FormatArgs),
    /// Mount a volume
    #[command(after_help = MOUNT_HELP)]
    Mount(MountArgs),
    /// Unmount a volume, and wait until it is closed
    #[command(after_help = "Examples:\n  pando umount /mnt/vol\n  pando umount /data/vol")]
    Umount(UmountArgs),
    /// Show the state of a volume and of its owner
    #[command(after_help = "Examples:\n  pando status /data/vol\n  pando status /mnt/vol --json")]
    Status(VolumeArg),
    /// Show what is known of a path: subvolume, snapshots, attributes
    #[command(after_help = "Example:\n  pando info /mnt/vol/project")]
    Info(PathArg),
    /// List a directory
    #[command(after_help = "Examples:\n  pando ls -l /mnt/vol\n  pando ls -R /data/vol:/project")]
    Ls(LsArgs),
    /// Find files by name, size, owner, time and more: GNU find's expressions, or a search box's
    Find(FindArgs),
    /// Show the attributes of paths
    #[command(after_help = "Example:\n  pando stat /data/vol:/project/a.txt --json")]
    Stat(PathsArg),
    /// Write the contents of files to standard output
    #[command(after_help = "Example:\n  pando cat /data/vol:/project/a.txt")]
    Cat(PathsArg),
    /// Copy a tree, or a file, into a volume: DST becomes what SRC is
    #[command(after_help = IMPORT_HELP)]
    Import(ImportArgs),
    /// Keep an index of an existing tree, of any file system: attributes without contents
    #[command(after_help = index::HELP)]
    Index(IndexArgs),
    /// Snapshots of a directory
    #[command(subcommand)]
    Snapshot(SnapshotVerb),
    /// Clone a directory: writable, in constant time whatever its size
    #[command(after_help = "Example:\n  pando clone /mnt/vol/project /mnt/vol/experiment")]
    Clone(CloneArgs),
    /// Make a directory again what one of its snapshots holds
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
    /// Remove a tree: detached at once, its room reclaimed in the background
    #[command(
        after_help = "Examples:\n  pando rmr /mnt/vol/old\n  pando rmr --wait /data/vol:/old"
    )]
    Rmr(RmrArgs),
    /// Subvolumes
    #[command(subcommand)]
    Subvolume(SubvolumeVerb),
    /// Make everything in a volume durable
    #[command(after_help = "Example:\n  pando sync /data/vol")]
    Sync(VolumeArg),
    /// Check all that a volume has on the medium, and mend it
    #[command(after_help = check::FSCK_HELP)]
    Fsck(FsckArgs),
    /// Find what nothing names, and delete it
    #[command(after_help = check::GC_HELP)]
    Gc(GcArgs),
    /// Measure, in process and without a mount; one JSON object a line
    #[command(after_help = BENCH_HELP)]
    Bench(BenchArgs),
    /// Own a volume (started by other verbs)
    #[command(hide = true)]
    Owner(OwnerArgs),
}

const MOUNT_HELP: &str = "\
Options for -o, comma-separated:
  ro, rw                 read-only or not
  allow_other            let other users in (root's mounts always do)
  default_permissions    let the kernel check permissions (always on)
  noatime, relatime      when reading sets the time of last read
  subdir=PATH            mount a directory of the volume instead of its root
  attr-timeout=SECONDS   how long the kernel keeps attributes
  entry-timeout=SECONDS  how long the kernel keeps names
  sync                   every change is durable when it returns
  remount                change ro, suid, dev, exec, sync of a mount that is there
  cache-size=SIZE        like --cache-size

In /etc/fstab, with mount.pando a link to pando:
  /data/vol  /mnt/vol  pando  defaults,noatime  0  0

Examples:
  pando mount /data/vol /mnt/vol
  pando mount -f -o ro,subdir=project /data/vol /mnt/project";

const IMPORT_HELP: &str = "\
Keeps modes, times, owners (as root), extended attributes, hard links, symbolic links, holes
and special files. SRC is read with your rights. What is already in DST with the same size and
time is not copied again, so that an import which was interrupted (Ctrl-C) goes on when the
same command is run again. Nothing that DST has beyond SRC is removed.

Examples:
  pando import /usr/share /mnt/vol/share
  pando import /home/alice /data/vol:/home/alice";

const ROLLBACK_HELP: &str = "\
What DIR held is removed, in the background; open files keep the old contents. Take a
snapshot first to keep it.

Example:
  pando rollback /mnt/vol/project before-upgrade";

const BENCH_HELP: &str = "\
Workloads:
  create-flat   files in one directory
  create-deep   files in directories of 1,000
  lookup        look up each file by name, random order
  stat          attributes of each file by path, random order
  list          list all directories with attributes
  rename        rename each file
  unlink        remove each file
  clone         clone a directory with all files, then write in the clone
  clones-scale  --clones of one tree of --files records, chains of them too: write, drop; a
                line a tenth (--volume is the directory to work in)
  recover       open after a crash with as many operations in the log
  two-threads   as many entries a thread, in one tree or a tree each, beside threads on a
                store each (in memory; --threads 2 or more; --volume is the directory to
                work in)
  recover-scattered  open after a crash, caches dropped, with changes scattered
                over --directories directories

Workloads of a bare store (--entries):
  checkpoint-stall  how long updates take while a checkpoint writes all leaves
  group-commit  durable commits by 1 to 32 threads, by how long one waits for others;
                --files commits each, --rounds rounds

The experiments of section 7 of O. Rodeh, B-trees, Shadowing, and Clones, on the engine alone, on
a clone of a tree of --files entries that is kept where --volume names a directory for it:
  rodeh-search100, -search80, -modify, -insert   the mixes of Table V
  rodeh-append                                   insert behind all keys
  rodeh-checkpoint   a mix with a checkpoint after a fifth, and without
  rodeh-clones2      a mix on two clones, and on one
  rodeh-clones256    search80 on runs of 100 keys in 256 clones
The line carries ideal_ops_per_second and ratio: a structure without index that takes no processor
time, computed from raw reads and writes, or an ordered map where all is in memory.

With --yardstick the same record operations run on BTreeMap<Vec<u8>, Vec<u8>> in the same
process, interleaved in rounds; the line then carries yardstick_ops_per_second and ratio.

Example:
  pando bench create-deep --files 1000000 --threads 1 --yardstick
  pando bench rodeh-search100 --files 9684662 --volume /data/rodeh --in-memory-percent 5";

#[derive(Debug, Args)]
pub(crate) struct FormatArgs {
    /// Directory of the volume
    pub(crate) voldir: PathBuf,
    /// Name of the hidden directory of snapshots that every directory has
    #[arg(long, default_value = ".snapshots")]
    pub(crate) snapshot_dir: OsString,
    /// Engine that keeps names and attributes
    #[arg(long, value_enum, default_value_t = EngineArg::Btree)]
    pub(crate) engine: EngineArg,
}

/// An engine, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineArg {
    /// Copy-on-write B-tree: reads and clones in constant time, whatever the history
    Btree,
    /// Log-structured: packed sorted runs, merged in the background
    Lsm,
}

#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// Directory of the volume
    pub(crate) voldir: PathBuf,
    /// Where to mount it
    pub(crate) mnt: PathBuf,
    /// Stay in the foreground
    #[arg(long, short)]
    pub(crate) foreground: bool,
    /// Memory for cached nodes of the volume, such as 512M; default is a quarter of all memory
    #[arg(long, value_name = "SIZE", value_parser = cache_size::parse)]
    pub(crate) cache_size: Option<u64>,
    /// Memory for the index of searches, such as 80M; 0: none is kept, and searches walk
    #[arg(long, value_name = "SIZE", value_parser = index_cache::parse)]
    pub(crate) index_cache: Option<u64>,
    /// Mount options, comma-separated
    #[arg(long = "options", short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub(crate) options: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UmountArgs {
    /// Mount point, or directory of the volume
    pub(crate) path: PathBuf,
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

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of ls")]
pub(crate) struct LsArgs {
    /// Path below a mount, or VOLDIR:/inner/path
    pub(crate) path: PathBuf,
    /// Mode, links, owner, size, time
    #[arg(long, short)]
    pub(crate) long: bool,
    /// Names that start with a dot too
    #[arg(long, short)]
    pub(crate) all: bool,
    /// Directories below too
    #[arg(long, short = 'R')]
    pub(crate) recursive: bool,
    /// In the volume's order, without waiting for the end
    #[arg(long, short = 'U')]
    pub(crate) unsorted: bool,
}

/// `find` takes its arguments apart itself: they are those of GNU find.
#[derive(Debug, Args)]
pub(crate) struct FindArgs {
    /// Paths, search-box queries, and the expression
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// What to copy
    pub(crate) src: PathBuf,
    /// What it is to become: a path below a mount, or VOLDIR:/inner/path
    pub(crate) dst: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotVerb {
    /// Take a snapshot of a directory
    #[command(after_help = "Example:\n  pando snapshot create /mnt/vol/project monday")]
    Create {
        /// The directory
        dir: PathBuf,
        /// Name of the snapshot
        name: OsString,
    },
    /// List the snapshots of a directory
    #[command(after_help = "Example:\n  pando snapshot list /mnt/vol/project")]
    List {
        /// The directory
        dir: PathBuf,
    },
    /// Delete a snapshot
    #[command(after_help = "Example:\n  pando snapshot delete /mnt/vol/project monday")]
    Delete {
        /// The directory
        dir: PathBuf,
        /// Name of the snapshot
        name: OsString,
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
    /// Wait until the room is reclaimed, and show how far that is
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SubvolumeVerb {
    /// Make an empty directory that is a subvolume: the cheapest to snapshot and clone
    #[command(after_help = "Example:\n  pando subvolume create /mnt/vol/builds")]
    Create {
        /// The new directory
        path: PathBuf,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    CreateFlat,
    CreateDeep,
    Lookup,
    Stat,
    List,
    Rename,
    Unlink,
    Clone,
    ClonesScale,
    Recover,
    TwoThreads,
    RecoverScattered,
    CheckpointStall,
    GroupCommit,
    ClusterSearch,
    RodehSearch100,
    RodehSearch80,
    RodehModify,
    RodehInsert,
    RodehAppend,
    RodehCheckpoint,
    RodehClones2,
    RodehClones256,
    Search,
}

/// What a namespace is like: the three of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    Web,
    Eng,
    Home,
}

/// A mix of operations on single keys (Rodeh, Table V).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mix {
    Search100,
    Search80,
    Modify,
    Insert,
    /// How clones are aged before they are measured.
    #[value(skip)]
    Age,
}

impl Mix {
    /// Look-ups, insertions and removals in a hundred.
    pub(crate) fn percent(self) -> [u8; 3] {
        match self {
            Mix::Search100 => [100, 0, 0],
            Mix::Search80 => [80, 10, 10],
            Mix::Modify => [20, 40, 40],
            Mix::Insert => [0, 100, 0],
            Mix::Age => [0, 50, 50],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurabilityArg {
    Sync,
    Async,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to do
    #[arg(value_enum)]
    pub(crate) workload: Workload,
    /// How many files, or entries of a bare store
    #[arg(long, visible_alias = "entries", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) files: u64,
    /// How many clones clones-scale makes
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(10..))]
    pub(crate) clones: u64,
    /// How many directories (recover-scattered)
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) directories: u64,
    /// How many threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(crate) threads: u64,
    /// A volume to use, made when not there; default is one in a temporary directory
    #[arg(long, value_name = "VOLDIR")]
    pub(crate) volume: Option<PathBuf>,
    /// Compare with the ordered map of the standard library
    #[arg(long)]
    pub(crate) yardstick: bool,
    /// Rounds of a comparison
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..=99))]
    pub(crate) rounds: u64,
    /// When changes are durable
    #[arg(long, value_enum, default_value = "async")]
    pub(crate) durability: DurabilityArg,
    /// Memory for cached nodes, such as 512M; default is a quarter of all memory
    #[arg(long, value_name = "SIZE", value_parser = cache_size::parse)]
    pub(crate) cache_size: Option<u64>,
    /// What the namespace of cluster-search and search is like
    #[arg(long, value_enum, default_value = "home")]
    pub(crate) profile: Profile,
    /// Memory for the index of searches, such as 80M; 0: none is kept, and searches walk; the
    /// search workload takes ten bytes a file unless told
    #[arg(long, value_name = "SIZE", value_parser = index_cache::parse)]
    pub(crate) index_cache: Option<u64>,
    /// Keep no index for searches, as --index-cache 0
    #[arg(long, conflicts_with = "index_cache")]
    pub(crate) no_index: bool,
    #[command(flatten)]
    pub(crate) rodeh: RodehArgs,
    #[command(flatten)]
    pub(crate) search: SearchArgs,
}

/// Options of the search workload; none is heeded by others.
#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// Queries of each set of search
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) queries: u32,
    /// Ask each query of search of a volume just opened, with nothing of it cached
    #[arg(long)]
    pub(crate) cold: bool,
    /// Write the files that search would make to FILE as lines instead, for other programs
    #[arg(long, value_name = "FILE")]
    pub(crate) list: Option<PathBuf>,
}

/// Options of the rodeh workloads; none is heeded by others, nor has a value with them.
#[derive(Debug, Args)]
pub(crate) struct RodehArgs {
    /// rodeh: how much of the tree the cache holds (default 5)
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) in_memory_percent: Option<u64>,
    /// rodeh: operations that are measured (default 20000)
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) operations: Option<u64>,
    /// rodeh: what the base tree and the operations are drawn from (default 7)
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// rodeh-checkpoint, rodeh-clones2: the mix (default modify)
    #[arg(long, value_enum)]
    pub(crate) mix: Option<Mix>,
}

impl RodehArgs {
    pub(crate) fn in_memory_percent(&self) -> u64 {
        self.in_memory_percent.unwrap_or(5)
    }

    pub(crate) fn operations(&self) -> u64 {
        self.operations.unwrap_or(20_000)
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or(7)
    }
}

#[derive(Debug, Args)]
pub(crate) struct OwnerArgs {
    /// Directory of the volume
    pub(crate) voldir: PathBuf,
    /// Seconds without a request after which the owner leaves
    #[arg(long, default_value_t = 30)]
    pub(crate) idle_seconds: u64,
    /// Memory for cached nodes; default is a quarter of all memory
    #[arg(long, value_name = "SIZE", value_parser = cache_size::parse)]
    pub(crate) cache_size: Option<u64>,
    /// Memory for the index of searches, such as 80M; 0: none is kept, and searches walk
    #[arg(long, value_name = "SIZE", value_parser = index_cache::parse)]
    pub(crate) index_cache: Option<u64>,
    /// Mount it there, and stay until it is unmounted
    #[arg(long)]
    pub(crate) mount: Option<PathBuf>,
    /// Mount options
    #[arg(long, short = 'o', value_delimiter = ',')]
    pub(crate) options: Vec<String>,
}
