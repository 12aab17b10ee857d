//! Options of `pando trash` and `pando restore`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

pub(crate) const RESTORE_HELP: &str = "\
PATH is the former path, which need not exist any more. The newest removal is restored, a tree
with all below it. Nothing is overwritten: a file whose name is taken stays in the trash.

With --from, PATH is restored out of a snapshot, at once: a directory as a clone, by its owner or
root; a file as a new file that shares its contents with the snapshot's. Special files are not
restored.

Examples:
  pando restore /mnt/vol/report.txt
  pando restore --from monday /mnt/vol/project/report.txt
  pando restore /mnt/vol/project --to /mnt/vol/project.old
  pando restore --at '2 hours ago' /mnt/vol/report.txt
  pando restore --list /mnt/vol/project";

const ON_HELP: &str = "\
Examples:
  pando trash on /mnt/vol
  pando trash on /mnt/vol/home --keep 30d";

const LIST_HELP: &str = "\
PATH is a directory that has a trash or is below one, or a former path in one.

Examples:
  pando trash list /mnt/vol/home/ada
  pando trash list --json /mnt/vol/home/ada/report";

pub(super) const HELP: &str = "\
Examples:
  pando trash on /mnt/vol --keep 30d
  pando trash list /mnt/vol/home/ada
  pando restore /mnt/vol/home/ada/report";

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum TrashVerb {
    /// Keep what is removed in and below a directory by unlink, rmdir, rename or pando rmr
    #[command(after_help = ON_HELP)]
    On {
        /// The directory; the root for the whole volume
        dir: PathBuf,
        /// How long: a number with s, m, h, d, w or y [default: as it holds there, or 7d]
        #[arg(long, value_name = "TIME", value_parser = super::duration)]
        keep: Option<Duration>,
    },
    /// Delete removed files from now on; what is in .trash stays as ordinary files
    #[command(after_help = "Example:\n  pando trash off /mnt/vol/home")]
    Off {
        /// The directory
        dir: PathBuf,
    },
    /// Show what can be restored
    #[command(after_help = LIST_HELP)]
    List {
        /// The directory, or a former path
        path: PathBuf,
    },
    /// Delete everything in the trash
    #[command(after_help = "Example:\n  pando trash empty /mnt/vol")]
    Empty {
        /// The directory
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The former path
    pub(crate) path: PathBuf,
    /// Restore to this path instead
    #[arg(long, value_name = "PATH")]
    pub(crate) to: Option<PathBuf>,
    /// What was removed at TIME or before: as `pando find -newermt` reads it
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    /// With a directory, all that was removed from it since TIME [default: an hour before it]
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Restore what PATH was in this snapshot: of it, or of the nearest directory above it that has
    /// a snapshot of this name
    #[arg(long, value_name = "SNAPSHOT", conflicts_with_all = ["at", "since", "list"])]
    pub(crate) from: Option<OsString>,
    /// Restore nothing; show what is in the trash
    #[arg(long, conflicts_with_all = ["to", "at", "since"])]
    pub(crate) list: bool,
}
