//! Options of `pando search`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Subcommand, value_parser};

pub(super) const HELP: &str = "\
A search for an extended attribute (xattr:NAME=VALUE, -xattr NAME=PATTERN) reads the attributes of
all files that meet its other conditions. Of attributes that are declared, the index holds the
values (of long ones the first 256 bytes), so that it is read where they are found. A declaration
applies to the whole volume. The index is rebuilt in the background; searches find the same
before and after.

Examples:
  pando search declare /mnt/vol user.project user.sample
  pando find /mnt/vol 'xattr:user.project=apollo'
  pando search list /mnt/vol
  pando search limits /mnt/vol --directories 1000
  pando search flush /mnt/vol";

const LIMITS_HELP: &str = "\
The index holds a volume in clusters, each of whole directories close together: at most 2000
directories and 20000 inodes, unless other limits are set here. A directory with more names than
that may hold up to twice as many, and is then divided. A search reads whole columns of those
clusters that may have matches, and changes are written a cluster at a time: smaller clusters suit
small memory and scattered changes, larger ones broad searches. The limits apply to the whole
volume, permanently. The index of the root's subvolume is rebuilt in the background, others when
they are written next (`pando search flush`).

Examples:
  pando search limits /mnt/vol
  pando search limits /mnt/vol --directories 1000 --inodes 10000";

const FLUSH_HELP: &str = "\
The index is written in the background, by how much changed and how long ago. This writes what
changed in the subvolume of PATH now: the volume, a clone, a subvolume. Searches find the same
before and after.

Examples:
  pando search flush /mnt/vol
  pando search flush /data/vol:/clone";

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum SearchVerb {
    /// Make searches for extended attributes fast
    #[command(after_help = "Example:\n  pando search declare /mnt/vol user.project user.sample")]
    Declare {
        /// Directory of the volume, or a path below its mount
        #[arg(value_name = "VOLUME")]
        path: PathBuf,
        /// Names, such as user.project
        #[arg(required = true, value_name = "NAME")]
        names: Vec<OsString>,
    },
    /// Withdraw a declaration
    #[command(after_help = "Example:\n  pando search undeclare /mnt/vol user.sample")]
    Undeclare {
        /// Directory of the volume, or a path below its mount
        #[arg(value_name = "VOLUME")]
        path: PathBuf,
        /// Names that were declared
        #[arg(required = true, value_name = "NAME")]
        names: Vec<OsString>,
    },
    /// Show or set the maximum size of index clusters
    #[command(after_help = LIMITS_HELP)]
    Limits {
        /// Directory of the volume, or a path below its mount
        #[arg(value_name = "VOLUME")]
        path: PathBuf,
        /// Most directories of a cluster
        #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
        directories: Option<u32>,
        /// Most inodes of a cluster; the names of one directory may be up to twice as many
        #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(10..=1_000_000))]
        inodes: Option<u32>,
    },
    /// Write what changed to the index now
    #[command(after_help = FLUSH_HELP)]
    Flush {
        /// Path below a mount, or VOLDIR:/inner/path
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
    /// List the names that are declared
    #[command(after_help = "Example:\n  pando search list /mnt/vol")]
    List {
        /// Directory of the volume, or a path below its mount
        #[arg(value_name = "VOLUME")]
        path: PathBuf,
    },
}
