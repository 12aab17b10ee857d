//! The command line of `ls`: the options of ls(1) that apply to a listing of attributes.

use std::path::PathBuf;

use clap::Args;

pub(crate) const LS_HELP: &str = "\
Prints one entry a line. Options mean what they mean for ls(1); --help has no short form, since -h
belongs to sizes.

Examples:
  pando ls -l /mnt/vol
  pando ls -lhS /mnt/vol/project /mnt/vol/builds
  pando ls -R /data/vol:/project
  cd /mnt/vol/project && pando ls";

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of ls")]
pub(crate) struct LsArgs {
    /// Paths below a mount, or VOLDIR:/inner/path; without one the current directory
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Mode, links, owner, group, size, time of the last change of contents
    #[arg(long, short)]
    long: bool,
    /// Names that start with a dot too
    #[arg(long, short)]
    pub(crate) all: bool,
    /// Directories themselves, not what is in them
    #[arg(long, short, conflicts_with = "recursive")]
    pub(crate) directory: bool,
    /// Sizes as people read them: 4.0K, 22M
    #[arg(long, short = 'h')]
    pub(crate) human_readable: bool,
    /// Numbers of owners and groups, not their names; implies -l
    #[arg(long = "numeric-uid-gid", short = 'n')]
    pub(crate) numeric: bool,
    /// Directories below too
    #[arg(long, short = 'R')]
    pub(crate) recursive: bool,
    /// The last changed first
    #[arg(short = 't')]
    by_time: bool,
    /// The largest first
    #[arg(short = 'S', conflicts_with = "by_time")]
    by_size: bool,
    /// In the reverse order
    #[arg(long, short)]
    pub(crate) reverse: bool,
    /// In the volume's order, without waiting for the end
    #[arg(long, short = 'U', conflicts_with_all = ["by_time", "by_size", "reverse"])]
    pub(crate) unsorted: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// What entries are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LsOrder {
    Name,
    Time,
    Size,
}

impl LsArgs {
    /// Whether attributes are shown.
    pub(crate) fn long(&self) -> bool {
        self.long || self.numeric
    }

    /// What entries are sorted by.
    pub(crate) fn order(&self) -> LsOrder {
        match (self.by_time, self.by_size) {
            (true, _) => LsOrder::Time,
            (false, true) => LsOrder::Size,
            (false, false) => LsOrder::Name,
        }
    }
}
