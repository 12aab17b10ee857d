//! Options of `pando fsck` and `pando gc`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

pub(super) const FSCK_HELP: &str = "\
Verifies every structure in the volume once, even when clones share it:
the store's nodes, counts and log; the subvolumes and their trees; every directory, name, inode and
count of links; every extent of every file, with its contents; the index. Each finding says what is
wrong, and where: subvolume, path, inode, file of the volume and byte in it:
  unreadable   bytes are not what was written; what is named as lost cannot be read
  structure    something whole breaks a rule
  count, lost  a reference count is wrong; room is in use to which nothing leads
  name         a name leads to nothing, or something has no name
  links        a count of links or names is wrong
  subvolume    the table of subvolumes, the names of snapshots
  contents     an extent does not read, or overlaps another one
  space        what segments or subvolumes are said to hold
  index        the index, on which nothing but the speed of searches depends
A volume that is mounted, or that a daemon has open, is checked by its daemon, beside its work.
Any other is looked at as opening it would find it, and nothing of it is changed.

With --repair, of a volume that is not mounted, what can be repaired is: each thing by one commit,
and a crash leaves a volume that the next repair goes on with. What has no name is kept in
lost+found, in the root of its subvolume. Nothing is removed because it could not be read.
--dry-run says what would be done. A log that is damaged in the middle is cut off there only with
--discard-log: changes behind the damage are lost, those of the last seconds before a crash, and
it is said how many records, and bytes of them. A segment that became shorter keeps what it has,
and one of which only the header is damaged is repaired without it, and loses nothing.

Exit code 0 when nothing is wrong (any more), 5 otherwise.

Examples:
  pando fsck /data/vol
  pando fsck --json /mnt/vol
  pando fsck --repair --dry-run /data/vol
  pando fsck --repair /data/vol";

pub(super) const GC_HELP: &str = "\
Finds what nothing names: pages of data segments that no file of any subvolume or snapshot has,
trees that no record names, files of the index that no base names. Commonly there is next to
nothing: what is removed gives its room back in the background. Reads and writes go on.

Without --delete it only says so. With it, what is found is noted with the time, and what was noted
before --grace and is found again is deleted. Anything that cannot be read ends it, with nothing
deleted. A tree that no record names and that has directories (lost-tree) is never deleted, nor is
anything in it: it is what a subvolume had whose record is gone, and `pando fsck --repair` puts it
into lost+found.

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
    /// Cut a damaged log off: changes that were made behind the damage are lost
    #[arg(long, requires = "repair")]
    pub(crate) discard_log: bool,
    /// Say what --repair would do
    #[arg(long, requires = "repair")]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// The volume, or a directory where it is mounted
    #[arg(value_name = "VOLUME")]
    pub(crate) path: PathBuf,
    /// Note what is found, and delete what was noted long enough ago
    #[arg(long)]
    pub(crate) delete: bool,
    /// How long ago: a number with s, m, h, d, w or y
    #[arg(long, value_name = "TIME", default_value = "1h", requires = "delete")]
    #[arg(value_parser = super::duration)]
    pub(crate) grace: Duration,
}
