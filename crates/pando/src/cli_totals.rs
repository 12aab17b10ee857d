//! The command line of the verbs that report totals and histories.

use std::path::PathBuf;

use clap::Args;

pub(crate) const DU_HELP: &str = "\
Prints for every directory, after those below it, the space used below it, in KiB, and its path,
as du does. An inode with several names counts once. The figures are of the moment of the call.
Directories that you may not read are not counted but reported; the exit code is then 1.
DIR@SNAPSHOT means a snapshot. There is no -a: list single files by
`pando find DIR -printf '%k\\t%p\\n'`.

Examples:
  pando du -sh /mnt/vol/project
  pando du -d1 -b /mnt/vol
  pando du -hd2 /mnt/vol | sort -h
  pando du --json /data/vol:/project@monday";

pub(crate) const SUMMARY_HELP: &str = "\
Ages are counted in days of UTC from the last change of contents. An inode with several names
counts once. DIR@SNAPSHOT means a snapshot.

Prints the owners and extensions with the most bytes, then the sum of all others; --all prints
each. With --json, all owners and groups are printed in any case.

Examples:
  pando summary /mnt/vol
  pando summary --top 30 /mnt/vol/project
  pando summary --all --json /data/vol:/project@monday";

pub(crate) const HISTORY_HELP: &str = "\
Looks PATH up in the snapshots of every directory above it, the oldest first. PATH need not
exist any more; snapshots of a removed directory are listed under the path that it had, where
that is still known. What was renamed is another path: its history ends with `vanished`.

Examples:
  pando history /mnt/vol/project/report.txt
  pando history --all --json /data/vol:/project/report.txt";

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct DuArgs {
    /// The directories, or files
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Only the directories named
    #[arg(long, short, conflicts_with = "max_depth")]
    pub(crate) summarize: bool,
    /// Only directories at most this deep below those named
    #[arg(long, short = 'd', value_name = "N")]
    pub(crate) max_depth: Option<u32>,
    /// Sizes as people read them, and `sort -h`: 4.0K, 22M
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Lengths of files instead of the space they use
    #[arg(long)]
    pub(crate) apparent_size: bool,
    /// Lengths of files, in bytes
    #[arg(long, short)]
    pub(crate) bytes: bool,
    /// Numbers of inodes
    #[arg(long, conflicts_with_all = ["bytes", "apparent_size", "human_readable"])]
    pub(crate) inodes: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub(crate) help: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct SummaryArgs {
    /// The directory
    pub(crate) path: PathBuf,
    /// Number of owners, extensions and directories to print, at most 1000
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(..=i64::from(wire::DIRECTORIES_MAX)))]
    pub(crate) top: u32,
    /// All owners, groups and extensions
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// The path, which need not exist any more
    pub(crate) path: PathBuf,
    /// Show also the snapshots in which nothing changed
    #[arg(long, short)]
    pub(crate) all: bool,
}
