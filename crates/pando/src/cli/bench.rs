//! The command line of `pando bench`.

use std::path::PathBuf;

use clap::Args;

pub(super) const BENCH_HELP: &str = "\
Works in a directory of its own below DIR, which it removes at the end, after Ctrl-C too:

  create    makes empty files, 1,000 in a directory
  stat      looks at each by path, in random order
  list      reads the directories, with attributes of each file; latencies are those of a directory
  search    finds a file by its name, among all of them
  snapshot  takes a snapshot of them all, durably; the snapshots are deleted again
  delete    removes each file

Files are used through the mount, as programs use them: the caches of the kernel count. With --json
each is an object: measure, operations, per_second, p50_us, p99_us, max_us.

Examples:
  pando bench /mnt/vol
  pando bench /mnt/vol/project --files 100000 --json";

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// A directory below a mount
    pub(crate) dir: PathBuf,
    /// How many files
    #[arg(long, default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) files: u32,
}
