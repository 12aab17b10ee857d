//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum};
use program::{EngineArg, cache_size, index_cache};

const HELP: &str = "\
Workloads:
  create-flat   files in one directory
  create-deep   files in directories of 1,000
  create-scattered  files in --directories directories drawn at random, beside files in one
                directory after the other, in --rounds rounds on a volume that has --files
  create-latency  how long a create takes: normally, while a checkpoint is written, and while
                a snapshot is taken and written (BabuDB, Table I); --rounds volumes
  lookup        look up each file by name, random order
  stat          attributes of each file by path, random order
  list          list all directories with attributes
  rename        rename each file
  unlink        remove each file
  clone         clone a directory with all files, then write in the clone
  clones-scale  --clones of one tree of --files records, chains of them too: write, drop; a
                line a tenth (--volume is the directory to work in)
  clone-lookups  look-ups in a tree of --files records and in clones of it, before there are
                any, when there are --clones, and after a checkpoint
  reopen        close a volume of --files files, drop caches, open it, look up a file
  recover       open after a crash with as many operations in the log
  search        --queries of each of five sets (attributes, names, parts of names) by the index of
                a volume of --files files like --profile; a line for the filling and a line a set
  cluster-search  one cluster of rows by itself, of 500 to --files rows: its size, and queries
                beside other ways to search the same rows (no volume)
  search-clones  --clones of one directory of --files files, with a change each: what they take
                of the index, and a query over all
  import        --files names of a list, parsed and made durable: many at once, and by single
                calls
  postmark      small files in --directories directories: made, read, appended to, removed
  churn         --files operations of each of eleven patterns that change the same place again
                and again: a line a pattern
  counts        thirteen operations, --files times each and then twice as often, between marks at
                which callgrind counts instructions (bench/counts.sh)
  two-threads   as many entries a thread, in one tree or a tree each, beside threads on a
                store each (in memory; --threads 2 or more; --volume is the directory to
                work in; --operations each in a round)
  served        durable creates by --sessions clients of a server, --in-flight each, whose volume is
                in an object store (a directory below --volume) that takes --put-ms longer
                for each object, and nothing longer, in --rounds rounds that alternate
  recover-scattered  open after a crash, caches dropped, with changes scattered
                over --directories directories

Workloads of a bare store (--entries):
  checkpoint-stall  how long updates take while a checkpoint writes all leaves
  group-commit  durable commits by 1 to 32 threads, by how long one waits for others;
                --files commits each, --rounds rounds

Workloads of a bare store of the engine lsm (--entries), past the page cache, one line each:
  write-amplification  bytes that logs, checkpoints and merges write for each that was given, by
                --policy: full merges as BabuDB's, tiers, and tiers with value logs
  column-style  rows in runs and in value logs: insertions in order and at random, of each of
                --value-bytes, then look-ups and scans (IndexFS, Fig. 10 and Table III); the
                cache has 30 % of the data unless --cache-size is given

The experiments of section 7 of O. Rodeh, B-trees, Shadowing, and Clones, on the engine alone, on
a clone of a tree of --files entries that is kept where --volume names a directory for it:
  rodeh-search100, -search80, -modify, -insert   the mixes of Table V
  rodeh-append, -remove                          insert behind all keys; remove
  rodeh-checkpoint   a mix with a checkpoint after a fifth, and without
  rodeh-clones2      a mix on two clones, and on one
  rodeh-clones256    search80 on runs of 100 keys in 256 clones
The line carries ideal_ops_per_second and ratio: a structure without index that takes no processor
time, computed from raw reads and writes, or an ordered map where all is in memory;
settled_ops_per_second counts the time until a checkpoint has written the rest as well.

With --yardstick the same record operations run on BTreeMap<Vec<u8>, Vec<u8>> in the same
process, interleaved in rounds; the line then carries yardstick_ops_per_second and ratio.

Example:
  pando-bench create-deep --files 1000000 --yardstick
  pando-bench rodeh-search100 --files 9684662 --volume /data/rodeh --in-memory-percent 5";

/// Measures PandoFS in process, without a mount: one JSON object a line.
#[derive(Debug, Parser)]
#[command(name = "pando-bench", version, after_help = HELP, max_term_width = 100)]
pub(crate) struct Cli {
    /// Print JSON: one object a line, errors too (on standard error)
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) bench: BenchArgs,
}

/// What is measured; the help has a line for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    CreateFlat,
    CreateDeep,
    CreateScattered,
    CreateLatency,
    Lookup,
    Stat,
    List,
    Rename,
    Unlink,
    Clone,
    ClonesScale,
    CloneLookups,
    Recover,
    Reopen,
    TwoThreads,
    RecoverScattered,
    CheckpointStall,
    Churn,
    GroupCommit,
    Served,
    ClusterSearch,
    ColumnStyle,
    Counts,
    WriteAmplification,
    RodehSearch100,
    RodehSearch80,
    RodehModify,
    RodehInsert,
    RodehRemove,
    RodehAppend,
    RodehCheckpoint,
    RodehClones2,
    RodehClones256,
    Search,
    SearchClones,
    Postmark,
    Import,
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
    /// Removals alone, for their latency (Table IV).
    #[value(skip)]
    Remove,
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
            Mix::Remove => [0, 0, 100],
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
#[expect(clippy::struct_excessive_bools, reason = "each is an option")]
pub(crate) struct BenchArgs {
    /// What to do
    #[arg(value_enum)]
    pub(crate) workload: Workload,
    /// Engine of the store; default is that of the volume where --volume names one, else btree
    #[arg(long, value_enum)]
    pub(crate) engine: Option<EngineArg>,
    /// How many files, or entries of a bare store
    #[arg(long, visible_alias = "entries", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) files: u64,
    /// How many clones clones-scale and clone-lookups make
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(10..))]
    pub(crate) clones: u64,
    /// How many directories (postmark, recover-scattered, create-scattered)
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) directories: u64,
    /// How many threads; default is 1
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(crate) threads: Option<u64>,
    /// A volume to use, made when not there; default is one in a temporary directory
    #[arg(long, value_name = "VOLDIR")]
    pub(crate) volume: Option<PathBuf>,
    /// Compare with the ordered map of the standard library
    #[arg(long)]
    pub(crate) yardstick: bool,
    /// Count a server and its client, too (counts)
    #[arg(long)]
    pub(crate) far: bool,
    /// Rounds of a comparison; default is 9
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=99))]
    pub(crate) rounds: Option<u64>,
    /// When changes are durable
    #[arg(long, value_enum, default_value = "async")]
    pub(crate) durability: DurabilityArg,
    /// Memory for cached nodes, such as 512M; default is a quarter of all memory
    #[arg(long, value_name = "SIZE", value_parser = cache_size::parse)]
    pub(crate) cache_size: Option<u64>,
    /// Read past the page cache of the operating system, as if all memory were --cache-size
    #[arg(long)]
    pub(crate) direct: bool,
    /// What the namespace of cluster-search and search is like
    #[arg(long, value_enum, default_value = "home")]
    pub(crate) profile: Profile,
    /// Memory for the search index, such as 80M; 0: no index, and searches walk; the
    /// search workload takes ten bytes a file unless set
    #[arg(long, value_name = "SIZE", value_parser = index_cache::parse)]
    pub(crate) index_cache: Option<u64>,
    /// Keep no index for searches, as --index-cache 0
    #[arg(long, conflicts_with = "index_cache")]
    pub(crate) no_index: bool,
    #[command(flatten)]
    pub(crate) rodeh: RodehArgs,
    #[command(flatten)]
    pub(crate) search: SearchArgs,
    #[command(flatten)]
    pub(crate) lsm: LsmArgs,
    #[command(flatten)]
    pub(crate) two_threads: ThreadsArgs,
    #[command(flatten)]
    pub(crate) served: ServedArgs,
    #[command(flatten)]
    pub(crate) churn: ChurnArgs,
}

impl BenchArgs {
    /// How many threads work.
    pub(crate) fn threads(&self) -> u64 {
        self.threads.unwrap_or(1)
    }

    /// How many rounds there are of a comparison.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.unwrap_or(9)
    }
}

/// What a write-amplification run merges when, and whether it has value logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyArg {
    /// All runs of a tree after each checkpoint
    Full,
    /// Four runs of about one size
    Tiered,
    /// The same, with values in value logs
    Column,
}

/// Options of write-amplification and column-style.
#[derive(Debug, Args)]
pub(crate) struct LsmArgs {
    /// write-amplification: what to measure, comma-separated (default all)
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) policy: Option<Vec<PolicyArg>>,
    /// Bytes of a value, several comma-separated (default 100; column-style 64,320,1024)
    #[arg(long, value_delimiter = ',', value_name = "BYTES")]
    #[arg(value_parser = clap::value_parser!(u32).range(8..=65536))]
    pub(crate) value_bytes: Option<Vec<u32>>,
}

/// What churn does again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pattern {
    /// Small writes at random offsets of a file
    DirectWrites,
    /// A disk image: all of it is punched, then written at random
    Image,
    /// Copies of ranges of a file to others of it, and writes
    Copies,
    /// Writes between snapshots, of which few are kept
    Snapshots,
    /// A log that is appended to and truncated
    Appends,
    /// Transactions with a journal that is removed, as SQLite's
    Database,
    /// Files under temporary names that are renamed, as git's
    Objects,
    /// A file between two names
    Renames,
    /// A file from name to name
    Moves,
    /// Files are made, and the first of a listing is removed
    Queue,
    /// Directories are made and removed
    Directories,
}

/// Options of churn.
#[derive(Debug, Args)]
pub(crate) struct ChurnArgs {
    /// churn: what to measure, comma-separated (default all)
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) pattern: Option<Vec<Pattern>>,
}

/// What the threads of two-threads do in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ThreadsWork {
    /// Insert keys that are not there
    Insert,
    /// Overwrite keys in random order
    Update,
    /// Look keys up in random order
    Get,
    /// Four look-ups for each update
    Mixed,
    /// Read runs of entries
    Scan,
}

/// Options of two-threads; none is heeded by others.
#[derive(Debug, Args)]
pub(crate) struct ThreadsArgs {
    /// two-threads: what to measure, comma-separated (default all)
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) work: Option<Vec<ThreadsWork>>,
}

/// Options of served; others refuse them.
#[derive(Debug, Args)]
pub(crate) struct ServedArgs {
    /// served: how many clients (default 64)
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1000))]
    sessions: Option<u64>,
    /// served: how many creates each client has under way (default 16)
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=64))]
    in_flight: Option<u64>,
    /// served: how many milliseconds longer each object takes in every other round (default 10)
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=1000))]
    put_ms: Option<u64>,
}

impl ServedArgs {
    pub(crate) fn is_given(&self) -> bool {
        self.sessions.is_some() || self.in_flight.is_some() || self.put_ms.is_some()
    }

    pub(crate) fn sessions(&self) -> u64 {
        self.sessions.unwrap_or(64)
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.unwrap_or(16)
    }

    pub(crate) fn put_ms(&self) -> u64 {
        self.put_ms.unwrap_or(10)
    }
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
    /// Most names of a cluster of search; a tenth as many directories (default 20000, and 2000)
    #[arg(long, value_name = "COUNT")]
    #[arg(value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub(crate) cluster_rows: Option<u32>,
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
    /// rodeh: measured operations (default 20000); lookup, stat: the same (default all);
    /// two-threads: those of a thread in a round (default the number of entries)
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

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::{HELP, Workload};

    #[test]
    fn help_has_a_line_for_each_workload() {
        // Of several in one line only what differs is there: `rodeh-search100, -search80`.
        let named = |name: &str| {
            let short = name.strip_prefix("rodeh").filter(|rest| rest.starts_with('-'));
            let mut words = HELP
                .lines()
                .filter(|line| line.starts_with("  "))
                .flat_map(|line| line.split_whitespace().map(|word| word.trim_end_matches(',')));
            words.any(|word| word == name || Some(word) == short)
        };
        for workload in Workload::value_variants() {
            let name = workload.to_possible_value().expect("none is hidden").get_name().to_owned();
            assert!(named(&name), "--help has no line for {name}");
        }
    }
}
