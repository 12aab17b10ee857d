//! Options of `pando index`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub(super) const HELP: &str = "\
VOLDIR is a volume that holds nothing else; it is made where there is none. It answers the
same queries as any volume. DIR is read with your rights; other file systems mounted below it
are not, unless --cross-mounts is given (those of the kernel's own, like /proc, never are).
What cannot be read keeps its last known state.

Queries see the state of the last complete scan. After Ctrl-C or a crash that is the old one,
and the same command continues. The next scan writes only what differs.

Levels of --refresh:
  full          reads everything, and finds every change
  directories   does not read directories whose times are those of the last scan: finds every
                name that came, went or moved, but not files that were written, or whose
                attributes changed, where no name beside them came or went

With --watch the scan is followed by what the kernel reports as changed, until Ctrl-C: as root by
fanotify, one watch for the whole file system; else by inotify, one watch a directory, as many as
fs.inotify.max_user_watches permits. Changes show within about 0.1 s. Not followed, and found by
the next scan: times of last reading, writes through mmap, link counts of a file's other names,
what other machines do to a network file system, and file systems mounted below.

Examples:
  pando index /data --into /var/lib/pando/data
  pando index --into /var/lib/pando/data --refresh directories
  pando index --into /var/lib/pando/data --watch
  pando find /var/lib/pando/data:/ -name '*.h5' -size +1G";

#[derive(Debug, Args)]
pub(crate) struct IndexArgs {
    /// The directory to index; not needed again once VOLDIR is its index
    #[arg(value_name = "DIR")]
    pub(crate) source: Option<PathBuf>,
    /// The volume that the index is
    #[arg(long, value_name = "VOLDIR")]
    pub(crate) into: PathBuf,
    /// How much of the tree to read again
    #[arg(long, value_enum, default_value = "full")]
    pub(crate) refresh: Refresh,
    /// Also index file systems mounted below DIR; later scans do so by themselves
    #[arg(long)]
    pub(crate) cross_mounts: bool,
    /// Also index extended attributes; later scans do so by themselves
    #[arg(long)]
    pub(crate) xattrs: bool,
    /// After the scan, follow changes until interrupted
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, default_missing_value = "auto")]
    #[arg(require_equals = true)]
    pub(crate) watch: Option<Watch>,
    /// Threads that read; default: one per processor, 2 to 32
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<usize>,
}

/// How a source is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Watch {
    /// fanotify where permitted, else inotify
    Auto,
    /// The whole file system; as root
    Fanotify,
    /// A watch for each directory
    Inotify,
}

/// How much a scan reads of what an earlier one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Refresh {
    /// Everything
    Full,
    /// Directories whose times changed
    Directories,
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=256) => Ok(threads),
        _ => Err("expected a number from 1 to 256".to_owned()),
    }
}
