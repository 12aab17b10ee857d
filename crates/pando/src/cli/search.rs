//! Options of `pando search`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;

pub(super) const HELP: &str = "\
A search for an extended attribute (xattr:NAME=VALUE, -xattr NAME=PATTERN) reads the attributes of
all files that meet its other conditions. Of attributes that are declared, the index holds the
values (of long ones the first 256 bytes), so that it is read where they are found. A declaration
holds for the whole volume. The index is made anew in the background; searches find the same
before and after.

Examples:
  pando search declare /mnt/vol user.project user.sample
  pando find /mnt/vol 'xattr:user.project=apollo'
  pando search list /mnt/vol";

#[derive(Debug, Subcommand)]
pub(crate) enum SearchVerb {
    /// Make searches for extended attributes fast
    Declare {
        /// Directory of the volume, or a path below its mount
        #[arg(value_name = "VOLUME")]
        path: PathBuf,
        /// Names, such as user.project
        #[arg(required = true, value_name = "NAME")]
        names: Vec<OsString>,
    },
    /// Take that back
    Undeclare {
        /// Directory of the volume, or a path below its mount
        #[arg(value_name = "VOLUME")]
        path: PathBuf,
        /// Names that were declared
        #[arg(required = true, value_name = "NAME")]
        names: Vec<OsString>,
    },
    /// List the names that are declared
    List {
        /// Directory of the volume, or a path below its mount
        #[arg(value_name = "VOLUME")]
        path: PathBuf,
    },
}
