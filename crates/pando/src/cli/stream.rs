//! The command line of `send` and `receive`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub(super) const SEND_HELP: &str = "\
Writes a stream to standard output. Without --from it has all of the snapshot; with --from only
what differs from that older snapshot of the same directory, which the receiver must have.

The snapshot and its base are held (`pando snapshot list` shows holds) from the first byte on,
because the next increment needs them. An increment releases the holds of the same name on what is
older than its base: with several receivers, give each a name by --hold, or what one of them needs
is released for another. You need the right to read everything that is sent. Only root sends
increments.

A stream that was cut continues: `pando receive --token DST` prints a token, and --resume sends what
is missing, of an increment with the same --from. The snapshot and its base stay held until then.

Examples:
  pando send /mnt/vol/home@monday | pando receive /backup/vol:/home
  pando send --from /mnt/vol/home@monday /mnt/vol/home@tuesday | ssh host pando receive /mnt/b/home
  pando send --from /mnt/vol/home@monday --resume TOKEN /mnt/vol/home@tuesday > rest
  pando send --hold weekly /mnt/vol/home@monday | ssh attic pando receive /mnt/b/home
  pando send --dry-run --from /mnt/vol/home@monday /mnt/vol/home@tuesday
  pando send /mnt/vol/home@monday | zstd > monday.zst";

pub(super) const RECEIVE_HELP: &str = "\
Reads a stream from standard input. A complete one makes DST, a new directory, with a snapshot. An
increment gives DST, which was received before, the new state, and makes a snapshot of it. Nothing
is visible before the whole stream has arrived and was verified.

DST must not have changed since the base; --force discards such changes. The base is found by its
identity, whatever it is called. The snapshot is held until the next increment.

Only root receives streams.

Examples:
  pando send /mnt/vol/home@monday | pando receive /backup/vol:/home
  pando receive --token /backup/vol:/home
  pando receive --name tue /backup/vol:/home < increment";

pub(super) const DUMP_HELP: &str = "\
Writes one line for each name below a directory: path, kind, mode, owners, size, all times,
extended attributes and access lists, targets. A further name of a file has `link_to`, the first
one. Bytes that are no text are in fields that end in `_hex`. The order is that of the names, so
equal trees have equal dumps. Of the present the daemon takes a snapshot `.pando-dump-N`, and
deletes it at the end, also after an interrupt. If the daemon is killed meanwhile, the next dump of
the directory deletes it.
The first line is {\"pando_dump\":1}, the last one has the number of lines between.

Examples:
  pando dump /mnt/vol/project > project.jsonl
  pando dump /data/vol:/project@monday | zstd > monday.jsonl.zst
  pando dump --format parquet /mnt/vol/project > project.parquet
  pando dump /mnt/vol/project | jq -r 'select(.size > 1e9) | .path'";

pub(super) const LOAD_HELP: &str = "\
Reads a dump from standard input, and makes DST of it: a new directory with a snapshot `loaded`.
Files have the right length and no contents. Nothing is visible before the last line was read. Only
root loads dumps. A Parquet file is not loaded: keep lines for that.

Example:
  pando load /data/vol:/project < project.jsonl";

/// Least memory for a stream.
const MEMORY_MIN: u64 = 1 << 20;

pub(super) fn memory(text: &str) -> Result<u64, String> {
    match inode::parse_bytes(text) {
        Some(bytes) if bytes >= MEMORY_MIN => Ok(bytes),
        Some(_) => Err("must be at least 1 MiB".to_owned()),
        None => Err("expected bytes, such as 256M or 1G".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The snapshot: DIR@NAME
    pub(crate) snapshot: PathBuf,
    /// Send only what differs from this older snapshot of the directory; as root
    #[arg(long, value_name = "BASE")]
    pub(crate) from: Option<PathBuf>,
    /// Send the rest of a stream that was cut
    #[arg(long, value_name = "TOKEN")]
    pub(crate) resume: Option<String>,
    /// Print the size of the stream only
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Memory for changes and for files with several names. At most 256M unless as root [default:
    /// 256M, or half of what other streams of this user leave]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<u64>,
    /// The name of the hold on the snapshot: one for each receiver
    #[arg(long, value_name = "NAME", default_value = "sent")]
    pub(crate) hold: OsString,
    /// Set no hold: nothing keeps the snapshot from being pruned, also while it is sent
    #[arg(long, conflicts_with = "hold")]
    pub(crate) no_hold: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReceiveArgs {
    /// The directory: a new one, or for an increment one that was received
    pub(crate) dst: PathBuf,
    /// Name of the snapshot, instead of that in the stream
    #[arg(long)]
    pub(crate) name: Option<OsString>,
    /// Discard changes that were made to DST since the base
    #[arg(long)]
    pub(crate) force: bool,
    /// Print the token of an interrupted stream to DST
    #[arg(long, conflicts_with_all = ["name", "force", "no_hold"])]
    pub(crate) token: bool,
    /// Set no hold on the snapshot
    #[arg(long)]
    pub(crate) no_hold: bool,
}

/// What a dump is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpFormat {
    /// A line of JSON for each name
    Lines,
    /// A Parquet file with a row for each name
    Parquet,
}

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// The directory, or DIR@SNAPSHOT
    pub(crate) dir: PathBuf,
    /// What to write
    #[arg(long, value_enum, default_value = "lines")]
    pub(crate) format: DumpFormat,
    /// Memory for names of directories and files with several names. At most 256M unless as root
    /// [default: 256M, or half of what other streams of this user leave]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// The directory, which does not exist
    pub(crate) dst: PathBuf,
    /// Memory for attributes of the directories above a name
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = memory)]
    pub(crate) memory: u64,
}
