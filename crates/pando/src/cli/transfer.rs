//! The command lines of `import` and `export`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::stream::memory;

pub(crate) const IMPORT_HELP: &str = "\
Keeps modes, times, owners (as root), extended attributes, hard links, symbolic links, holes
and special files. SRC is read with your rights. What is already in DST with the same size and
time is not copied again, so that an import which was interrupted (Ctrl-C) continues when the
same command is run again. Nothing that DST has beyond SRC is removed.

With --format tar, SRC is an archive (pax, GNU, ustar; plain, gzip or zstd), or - for standard
input. The last of several members of one name counts. A leading slash of a name is ignored, a name
with `..` is refused (exit code 2), no symbolic link is followed, and a hard link reaches only what
is below DST. Only root gets owners (by name, where this host knows the name), set-id bits, devices
and attributes other than user.*. An archive that is cut short, or has a member that cannot be made,
makes nothing visible where DST is new; --keep-going shows the rest of the second.

With --format list, SRC (or -) is a list of names with attributes: JSON lines as `pando find
--json` prints them (path and kind; mode, uid, gid, size, mtime, atime, target, device, inode and
links, xattrs), or what GNU find prints with
-printf '%y %#m %U %G %s %T@ %A@ %n %D:%i %P\\0%l\\0'. Files are holes of their size, unless
--contents names the directory that has their contents. What `rsync -rl --list-only` prints is read,
too, with times in the local time zone. A line that is none ends the import, unless --keep-going is
given; its number is printed.

SRC may be s3://BUCKET/PREFIX: objects are copied, with the time of their last change, and the parts
of a key between slashes are names. An empty object whose key ends in / is a directory. A key that
is no path (a//b, .., or below another object) is left out and named. Servers and keys are found
as for volumes (AWS_*).

A conflict is a name that DST had before and that differs in kind, size, time or target. A directory
is merged with a directory, and replaced by nothing. With --on-conflict skip or fail it keeps its
attributes. What is replaced stays until the new file is complete.

Examples:
  pando import /usr/share /mnt/vol/share
  pando import /home/alice /data/vol:/home/alice
  pando import --format tar linux.tar.gz /mnt/vol/linux
  pando find --json /mnt/a | pando import --format list --strip /mnt/a - /mnt/b/names
  pando import s3://bucket/photos /mnt/vol/photos
  ssh host tar -C /srv -cf - . | pando import --format tar - /mnt/vol/srv";

pub(crate) const EXPORT_HELP: &str = "\
SRC is a directory, DIR@SNAPSHOT, or a file. Exporting a snapshot gives one moment of the tree; the
present may change while it is read. Keeps modes, times of nanoseconds, owners (in a directory: as
root), extended attributes, access lists, hard links, symbolic links, special files, and holes of
files over 64 KiB. You get what you may read; what you may not is named, and the exit code is 4.

DST is a new directory. With --format tar it is a new file, or - for standard output, and the
archive is in the pax format: GNU tar and bsdtar read it. Names in it begin with ./ as those of
`tar -C SRC -cf - .`; owners are numbers; sockets are left out, as by tar.

Examples:
  pando export /mnt/vol/project@monday /backup/project
  pando export --format tar /mnt/vol/project@monday - | zstd > project.tar.zst
  pando export --format tar /data/vol:/project /backup/project.tar";

/// What an export makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A directory
    Dir,
    /// An archive in the pax format
    Tar,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// What to copy: a path below a mount, or VOLDIR:/inner/path, or either with @SNAPSHOT
    pub(crate) src: PathBuf,
    /// A new directory; with --format tar a new file, or - for standard output
    pub(crate) dst: PathBuf,
    /// What to make
    #[arg(long, value_enum, default_value = "dir")]
    pub(crate) format: ExportFormat,
    /// Memory for files with several names until the last; names beyond it become separate files,
    /// with a report [default: 256M, of a server 64M]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<u64>,
}

/// What an import reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFormat {
    /// A directory or file
    Dir,
    /// A tar archive
    Tar,
    /// A list of names with attributes
    List,
}

/// What to do about a name that existed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnConflict {
    /// End the import
    Fail,
    /// Keep what is there
    Skip,
    /// Replace it, unless it is a directory
    Replace,
}

/// When what is imported becomes visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Appear {
    /// At the end, at once; DST must be new. Until then it is a hidden directory beside DST
    Whole,
    /// Name by name
    Gradually,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// What to copy; - is standard input, unless it is a directory; s3://BUCKET/PREFIX are objects
    pub(crate) src: PathBuf,
    /// The new path: a path below a mount, or VOLDIR:/inner/path
    pub(crate) dst: PathBuf,
    /// What SRC is
    #[arg(long, value_enum, default_value = "dir")]
    pub(crate) format: ImportFormat,
    /// What to do about what DST has and that differs
    #[arg(long, value_enum, value_name = "RULE", default_value = "replace")]
    pub(crate) on_conflict: OnConflict,
    /// When it becomes visible [default: whole, if DST is new and SRC no directory]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(crate) appear: Option<Appear>,
    /// Read back what was copied, and compare it; files that were there already are not compared
    #[arg(long)]
    pub(crate) verify: bool,
    /// Memory for names and attributes that are kept until the end, and for objects read ahead
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = memory)]
    pub(crate) memory: u64,
    /// Take the numbers of an archive's owners, and not their names
    #[arg(long)]
    pub(crate) numeric_owner: bool,
    /// Copy the contents of a list's files from there
    #[arg(long, value_name = "DIR")]
    pub(crate) contents: Option<PathBuf>,
    /// Ignore this at the beginning of a list's paths
    #[arg(long, value_name = "PREFIX")]
    pub(crate) strip: Option<OsString>,
    /// Leave out malformed lines of a list, and objects that a store never returns; with --appear
    /// whole, show the rest without what failed
    #[arg(long)]
    pub(crate) keep_going: bool,
}
