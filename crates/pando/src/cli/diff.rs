//! The command line of `diff`.

use std::path::PathBuf;

use clap::Args;

use super::stream::memory;

pub(crate) const DIFF_HELP: &str = "\
OLD and NEW are two states of one directory: a snapshot (DIR@NAME), the present (DIR), a clone of
it, or the directory in a snapshot or clone of one above. Prints one change a line, sorted by path:

  + path            created; a directory ends with a slash
  - path            removed
  M path (fields)   modified: contents, size, mode, uid, gid, device, acl, xattrs, mtime, ctime
  R old -> new      renamed, or moved to another directory; (fields) if it changed, too

An entry below a renamed directory is reported only if it changed itself. A new hard link to a file
is reported as created, with `(link)`. Reading a file is not a change. The cost depends on what
differs, not on the size of the directory. You see what you may reach in each of the two states.

With -p a unified diff follows each file whose contents changed, up to 1 MiB, from the moment of
the call. The exit code is 0 whether anything differs or not, unless --exit-code is given.

Examples:
  pando diff /mnt/vol/project@monday /mnt/vol/project
  pando diff --stat /mnt/vol/project@monday /mnt/vol/project@tuesday
  pando diff -p /mnt/vol/project@monday/src /mnt/vol/project/src
  pando diff --json /data/vol:/project /data/vol:/clone-of-project";

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The old state: a directory, or DIR@SNAPSHOT
    pub(crate) old: PathBuf,
    /// The new state
    pub(crate) new: PathBuf,
    /// Print sums only
    #[arg(long, conflicts_with = "patch")]
    pub(crate) stat: bool,
    /// Print unified diffs of text files, too
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) patch: bool,
    /// Memory at the daemon, and for changes that -p keeps. At most 256M unless as root [default:
    /// 64M, or half of what other requests of this user leave]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<u64>,
    /// Exit with 1 if anything differs
    #[arg(long)]
    pub(crate) exit_code: bool,
}
