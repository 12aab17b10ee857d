//! Options of `pando fsck` and `pando gc`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

pub(super) const FSCK_HELP: &str = "\
Verifies every structure in the volume once, even when clones share it:
the store's nodes, counts and log; the subvolumes and their trees; every directory, name, inode and
count of links; every extent of every file, with its contents; the index. Each finding names what is
wrong, and where: subvolume, path, inode, file of the volume and byte in it:
  unreadable   bytes differ from what was written; what is named as lost cannot be read
  read-error   the disk does not return the bytes
  structure    a valid structure breaks a rule
  count, lost  a reference count is wrong; space is in use that nothing points to
  name         a name points to nothing, or an inode has no name
  links        a count of links or names is wrong
  subvolume    the table of subvolumes, the names of snapshots
  contents     an extent does not read, or overlaps another one
  space        the recorded usage of segments or subvolumes is wrong
  quota        the recorded charges of a quota are wrong
  index        the index, which affects only the speed of searches
A mounted volume, or one that a daemon has open, is checked by its daemon, beside its work. Any
other is checked as it is on disk, and is not changed.

--repair repairs a volume that is not mounted. Each repair is one commit; after a crash the next
repair continues. Files without a name are moved to lost+found in the root of their subvolume.
Nothing is removed because it could not be read. --dry-run prints what would be done. A log that
is damaged in the middle is truncated there only with --discard-log: later changes, those of the
last seconds before a crash, are lost, and the number of lost records and bytes is printed. A
segment that became shorter keeps its remaining records. A segment of which only the header is
damaged is repaired without --discard-log and loses nothing.

Exit code 0 when nothing is wrong (any more), 5 otherwise.

Examples:
  pando fsck /data/vol
  pando fsck --json /mnt/vol
  pando fsck --repair --dry-run /data/vol
  pando fsck --repair /data/vol";

pub(super) const GC_HELP: &str = "\
Finds unreferenced data: pages of data segments that belong to no file of any subvolume or
snapshot, trees that no record names, index files that no base names. Usually there is almost
none: removed files free their space in the background. Reads and writes continue.

Without --delete it only reports. With it, findings are recorded with the time, and a finding that
was recorded longer than --grace ago and is found again is deleted. A read error stops it, with
nothing deleted. A tree that no record names and that has directories (lost-tree) is never deleted:
it belonged to a subvolume whose record is lost, and `pando fsck --repair` moves it to lost+found.

Examples:
  pando gc /mnt/vol
  pando gc --delete /mnt/vol             (and again, an hour later)
  pando gc --delete --grace 0s /mnt/vol";

#[derive(Debug, Args)]
pub(crate) struct FsckArgs {
    /// The volume, or a directory where it is mounted
    #[arg(value_name = "VOLUME")]
    pub(crate) path: PathBuf,
    /// Repair what can be repaired; the volume must not be mounted
    #[arg(long)]
    pub(crate) repair: bool,
    /// Truncate the log at the damage; later changes are lost
    #[arg(long, requires = "repair")]
    pub(crate) discard_log: bool,
    /// Print what --repair would do
    #[arg(long, requires = "repair")]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// The volume, or a directory where it is mounted
    #[arg(value_name = "VOLUME")]
    pub(crate) path: PathBuf,
    /// Record findings, and delete those recorded long enough ago
    #[arg(long)]
    pub(crate) delete: bool,
    /// How long ago: a number with s, m, h, d, w or y
    #[arg(long, value_name = "TIME", default_value = "1h", requires = "delete")]
    #[arg(value_parser = super::duration)]
    pub(crate) grace: Duration,
}
