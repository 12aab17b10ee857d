//! `pando trace` and `pando replay`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::stream::memory;

pub(super) const HELP: &str = "\
A trace is made by `pando mount --trace FILE`. It has every call that reached the file system, with
time, duration, caller, arguments and result; names, but no contents. What the kernel answers from
its cache is not in it. To record everything, mount with
-o attr-timeout=0,entry-timeout=0,negative-timeout=0,trace_opens, which costs a message each.

Examples:
  pando trace info build.trace
  pando trace convert build.trace - | jq .call
  pando trace anonymise build.trace shared.trace
  pando trace generate --mix hp --operations 1000000 --seed 1 hp.trace";

const ANONYMISE_HELP: &str = "\
Example:
  pando trace anonymise --keep-extensions build.trace shared.trace";

pub(super) const REPLAY_HELP: &str = "\
DIR is a directory of any file system; the trace is replayed by system calls in it, and nothing
outside of it is reached. Calls on one name, inode or file run in the order of the trace.

Examples:
  pando replay --prepare build.trace /mnt/vol/replay
  pando replay --prepare --threads 8 --json build.trace /mnt/ext4/replay";

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum TraceVerb {
    /// Show what a trace has: calls, errors, latencies, time span
    #[command(after_help = "Example:\n  pando trace info build.trace")]
    Info {
        /// The trace
        file: PathBuf,
        /// Memory for the numbers of users, processes and inodes; beyond it the counts of these
        /// are the least that there are
        #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = memory)]
        memory: u64,
    },
    /// Convert a trace to lines of JSON, or such lines to a trace
    #[command(after_help = "Example:\n  pando trace convert build.trace - | jq .call")]
    Convert {
        /// The trace, or lines of JSON if its name ends in .json or .jsonl; - is standard input
        input: PathBuf,
        /// The new file: lines of JSON if the input is a trace, and a trace otherwise; - is
        /// standard output
        output: PathBuf,
    },
    /// Replace the names of a trace by hashes, and the numbers of users, groups and processes
    #[command(alias = "anonymize", after_help = ANONYMISE_HELP)]
    Anonymise {
        /// The trace
        input: PathBuf,
        /// The new trace
        output: PathBuf,
        /// Keep the lengths of names
        #[arg(long)]
        keep_lengths: bool,
        /// Keep what follows a name's last dot, if it has at most eight letters and digits
        #[arg(long)]
        keep_extensions: bool,
        /// Key of the hashes, 32 digits in hexadecimal, to replace names alike in several traces
        /// [default: a random one that is forgotten]
        #[arg(long, value_name = "HEX", value_parser = key)]
        key: Option<[u8; 16]>,
        /// Memory for the names of the trace
        #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = memory)]
        memory: u64,
    },
    /// Make a trace with the mix of a published workload
    #[command(
        after_help = "Example:\n  pando trace generate --mix hp --operations 1000000 hp.trace"
    )]
    Generate {
        /// The workload
        #[arg(long, value_enum)]
        mix: MixArg,
        /// Number of calls
        #[arg(long, value_name = "N")]
        operations: u64,
        /// Number of files that are there before [default: a tenth of the calls]
        #[arg(long, value_name = "N")]
        files: Option<u64>,
        /// The same seed makes the same trace
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The new trace
        file: PathBuf,
    },
}

/// A key from the command line.
fn key(text: &str) -> Result<[u8; 16], String> {
    let number = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32);
    number.map(u128::to_be_bytes).ok_or_else(|| "expected 32 digits in hexadecimal".to_owned())
}

/// A workload, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MixArg {
    /// 21 hours of a time-sharing system (FPFS, Table 1)
    Hp,
    /// A day of an HDFS cluster (IndexFS, III.B)
    Linkedin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Timing {
    /// Each call as soon as those before it allow
    Fast,
    /// Each call not before its time in the trace
    AsRecorded,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct ReplayArgs {
    /// The trace
    pub(crate) file: PathBuf,
    /// The directory
    pub(crate) dir: PathBuf,
    /// First build the tree that the trace expects; DIR must be empty, or absent
    #[arg(long)]
    pub(crate) prepare: bool,
    /// Only build that tree
    #[arg(long, requires = "prepare")]
    pub(crate) prepare_only: bool,
    /// When calls are made
    #[arg(long, value_enum, default_value_t = Timing::Fast)]
    pub(crate) timing: Timing,
    /// How many threads make calls
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: u16,
    /// Memory for the names and inodes of the trace
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = memory)]
    pub(crate) memory: u64,
    /// Change owners as recorded, make device nodes and set set-id bits; otherwise these calls are
    /// left out
    #[arg(long)]
    pub(crate) privileged: bool,
    /// Exit with 1 if a result differs from the recorded one
    #[arg(long)]
    pub(crate) strict: bool,
}
