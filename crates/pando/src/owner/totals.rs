//! Totals of directories: `du` and `summary` ask for them.

use std::cmp::Reverse;
use std::sync::atomic::AtomicBool;

use format::inode_record::FileKind;
use fs::{FileSystem, Follow, Fs};
use inode::{Caller, FsError, Kind};
use search::Start;
use search::aggregate::{Aggregate, Question};
use wire::{Answer, Body, Bytes, Failure, FailureKind, Sums};

use super::accounts::Accounts;
use super::calls::{Held, about};
use super::connection::Replies;
use super::{find_from, watch};

/// Bytes of directories in one message.
const PART_BYTES: usize = 64 << 10;
/// Bytes of a directory beside its path, about.
const DIRECTORY_BYTES: usize = 96;
/// Longest path that is told: names without number can be made below one another.
const PATH_BYTES_MAX: usize = 1 << 20;

/// What is asked for.
pub(super) struct Ask {
    /// Directories to this depth are told one by one.
    pub(super) depth: Option<u32>,
    /// So many of the largest are told; none: no groups either.
    pub(super) top: Option<u32>,
}

/// Tells the totals of a directory and all below it.
pub(super) fn totals(
    fs: &Fs,
    caller: &Caller,
    path: &[u8],
    ask: &Ask,
    replies: &mut Replies,
) -> Result<Answer, Failure> {
    let path = find_from::locate(fs, caller, path)?;
    let held = Held::resolve(fs, caller, &path, Follow::Yes)?;
    if held.entry.attr.kind != Kind::Directory {
        return Err(about(FsError::NotDirectory, &path));
    }
    let (subvolume, directory) =
        fs.search_place(held.entry.node).map_err(|error| about(error, &path))?;
    let stream = replies.stream().map_err(|error| watch::cannot(&error))?;
    let cancel = AtomicBool::new(false);
    let question = Question {
        // Paths are told from here on.
        start: Start { subvolume, directory, path: b".", depth: 0 },
        caller,
        accounts: &Accounts::default(),
        directories: ask.depth.filter(|depth| *depth > 0),
        largest: ask.top.unwrap_or(0) as usize,
        groups: ask.top.is_some(),
        cancel: &cancel,
    };
    let found = watch::while_heard(&stream, &cancel, || {}, || fs.aggregate(&question))?;
    let found = found.map_err(|error| about(fs::from_search(error), &path))?;
    if found.cancelled {
        return Err(watch::cut_off());
    }
    if let Some(depth) = ask.depth {
        let told = found.directories.iter().filter(|directory| directory.depth <= depth);
        tell(told, replies)?;
    }
    Ok(Answer::Totals(Box::new(answer(&found, ask.top.unwrap_or(0) as usize, fs.now().0))))
}

/// Tells of directories, in messages of bounded size.
fn tell<'a>(
    directories: impl Iterator<Item = &'a search::aggregate::DirectoryTotals>,
    replies: &mut Replies,
) -> Result<(), Failure> {
    let (mut part, mut bytes) = (Vec::new(), 0);
    for directory in directories {
        let told = directory_totals(directory);
        let length = told.path.0.len() + DIRECTORY_BYTES;
        if bytes + length > PART_BYTES && !part.is_empty() {
            replies.part(Body::Totalled(std::mem::take(&mut part)))?;
            bytes = 0;
        }
        if length > PATH_BYTES_MAX {
            let message = format!("the path of a directory has {} bytes", told.path.0.len());
            return Err(Failure::new(FailureKind::Invalid, message));
        }
        bytes += length;
        part.push(told);
    }
    if !part.is_empty() {
        replies.part(Body::Totalled(part))?;
    }
    Ok(())
}

fn sums(sums: format::cluster_groups::Sums) -> Sums {
    Sums { files: sums.files, bytes: sums.bytes, allocated: sums.allocated }
}

fn directory_totals(found: &search::aggregate::DirectoryTotals) -> wire::DirectoryTotals {
    wire::DirectoryTotals {
        path: found.path.strip_prefix(b".").unwrap_or(&found.path).into(),
        depth: found.depth,
        sums: sums(found.totals.sums),
        directories: found.totals.directories,
        own: Sums::default(),
    }
}

fn large_directory(found: &search::aggregate::LargeDirectory) -> wire::DirectoryTotals {
    wire::DirectoryTotals {
        path: found.path.strip_prefix(b".").unwrap_or(&found.path).into(),
        depth: found.depth,
        sums: sums(found.own),
        directories: 0,
        own: sums(found.own),
    }
}

fn answer(found: &Aggregate, top: usize, now: i64) -> wire::Totals {
    let groups = &found.groups;
    let kind = |byte: u64| {
        let kind = u8::try_from(byte).ok().and_then(FileKind::decode);
        match kind {
            Some(FileKind::File) => "file",
            Some(FileKind::Directory) => "directory",
            Some(FileKind::Symlink) => "symlink",
            Some(FileKind::Fifo) => "fifo",
            Some(FileKind::Socket) => "socket",
            Some(FileKind::CharDevice) => "character device",
            Some(FileKind::BlockDevice) => "block device",
            None => "unknown",
        }
    };
    // There may be hundreds of thousands.
    let mut extensions: Vec<_> = groups.extensions.iter().collect();
    type Extension<'a> = (&'a Vec<u8>, &'a format::cluster_groups::Sums);
    let order = |one: &Extension<'_>, other: &Extension<'_>| {
        let by = |of: &format::cluster_groups::Sums| Reverse((of.bytes, of.files));
        by(one.1).cmp(&by(other.1)).then_with(|| one.0.cmp(other.0))
    };
    if extensions.len() > top {
        extensions.select_nth_unstable_by(top, order);
        extensions.truncate(top);
    }
    extensions.sort_unstable_by(order);
    let extensions: Vec<(Bytes, Sums)> =
        extensions.into_iter().map(|(one, of)| (Bytes::from(&one[..]), sums(*of))).collect();
    let narrow = |number: &u64| u32::try_from(*number).unwrap_or(u32::MAX);
    wire::Totals {
        sums: sums(found.total.sums),
        directories: found.total.directories,
        ctime: found.total.ctime,
        unreadable: found.unreadable,
        kinds: groups.kinds.iter().map(|(one, of)| (kind(*one).to_owned(), sums(*of))).collect(),
        owners: groups.owners.iter().map(|(one, of)| (narrow(one), sums(*of))).collect(),
        groups: groups.groups.iter().map(|(one, of)| (narrow(one), sums(*of))).collect(),
        sizes: groups.sizes.iter().map(|(one, of)| (*one as u8, sums(*of))).collect(),
        days: groups.days.iter().map(|(one, of)| (*one, sums(*of))).collect(),
        extensions_in_all: groups.extensions.len() as u64,
        extensions,
        largest: found.largest.iter().map(large_directory).collect(),
        now,
    }
}
