//! The `--help` texts of the verbs on snapshots.

pub(super) const LIST_HELP: &str = "\
Snapshots of a directory stay when the directory is removed, and keep their space. --removed
lists them: number, name, files and bytes, and the path that the directory had when the
snapshot was taken, where that is still known. What is in one is found at
VOLDIR:/.snapshots/#N: `pando clone` makes a directory of it again.

Examples:
  pando snapshot list /mnt/vol/project
  pando snapshot list /data/vol --removed
  pando clone '/data/vol:/.snapshots/#17' /data/vol:/project
  pando snapshot delete /data/vol --number 17";

pub(super) const DELETE_HELP: &str = "\
Examples:
  pando snapshot delete /mnt/vol/project monday
  pando snapshot delete /data/vol --number 17     (from `snapshot list --all`)";

pub(super) const CLONE_HELP: &str = "\
Examples:
  pando clone /mnt/vol/project /mnt/vol/experiment
  pando clone /mnt/vol/project/.snapshots/monday /mnt/vol/monday
  pando clone '/data/vol:/.snapshots/#17' /data/vol:/project     (of a removed directory)";
