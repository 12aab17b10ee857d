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

pub(super) const SCHEDULE_HELP: &str = "\
The daemon takes the snapshots, with the rights of the user who set the schedule, while the volume
is mounted or in use; one that was missed is taken when it runs again. Their names are the prefix
and the time in UTC. Afterwards it deletes snapshots with such names that are not kept: of each of
the last so many hours, days, weeks, months and years that have a snapshot, the newest is.
Others, and those with a hold, stay. Without WHEN it shows the schedule, the next time, and why
the last attempt failed.

Examples:
  pando snapshot schedule /mnt/vol/project '*/15 * * * *' --keep 24h7d4w12m
  pando snapshot schedule /mnt/vol/home @daily --keep 30d --prefix nightly
  pando snapshot schedule /mnt/vol/project
  pando snapshot schedule --all /mnt/vol
  pando snapshot schedule --off /mnt/vol/project";

pub(super) const PRUNE_HELP: &str = "\
Examples:
  pando snapshot prune /mnt/vol/project --keep 7d --dry-run
  pando snapshot prune /mnt/vol/project";

pub(super) const HOLD_HELP: &str = "\
`pando snapshot list --json` shows the holds.

Examples:
  pando snapshot hold /mnt/vol/project monday backup
  pando snapshot release /mnt/vol/project monday backup
  pando snapshot release --number /data/vol 17 backup     (of a removed directory)";
