//! Options of `pando session`.

use std::path::PathBuf;

use clap::Subcommand;

pub(super) const HELP: &str = "\
A session is a connection of a command to the daemon of a volume. Root and the user of the
volume see and end all of them; others see and end their own. What an ended session has done
stays; an import that is run again continues where it stopped.

Examples:
  pando session list /data/vol
  pando session end /data/vol 17";

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum SessionVerb {
    /// List the sessions of a volume's daemon: who, what for, for how long
    #[command(after_help = "Examples:\n  pando session list /mnt/vol\n  \
                      pando session list /data/vol --json")]
    List {
        /// Directory of the volume, or a path below its mount
        #[arg(value_name = "VOLUME")]
        path: PathBuf,
    },
    /// End sessions and cancel their current requests
    #[command(after_help = "Example:\n  pando session end /data/vol 17 18")]
    End {
        /// Directory of the volume, or a path below its mount
        #[arg(value_name = "VOLUME")]
        path: PathBuf,
        /// Numbers that `pando session list` shows
        #[arg(required = true, value_name = "ID")]
        ids: Vec<u64>,
    },
}
