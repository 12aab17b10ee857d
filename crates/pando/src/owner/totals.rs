//! Totals of directories: `du` and `summary` ask for them.

use std::cmp::Reverse;
use std::sync::atomic::AtomicBool;

use format::inode_record::FileKind;
use fs::{FileSystem, Follow, Fs};
use inode::{Caller, FsError, Kind};
use search::Start;
use search::aggregate::{Aggregate, Question};
use wire::{Answer, Body, Bytes, Failure, Sums};

use super::accounts::Accounts;
use super::calls::{Held, about};
use super::connection::Replies;
use super::find_from;

/// Directories in one message.
const DIRECTORIES_A_PART: usize = 1000;

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
    let question = Question {
        // Paths are told from here on.
        start: Start { subvolume, directory, path: b".", depth: 0 },
        caller,
        accounts: &Accounts::default(),
        directories: ask.depth.is_some_and(|depth| depth > 0) || ask.top.is_some(),
        groups: ask.top.is_some(),
        cancel: &AtomicBool::new(false),
    };
    let found = fs.aggregate(&question).map_err(|error| about(fs::from_search(error), &path))?;
    if let Some(depth) = ask.depth {
        let told = found.directories.iter().filter(|directory| directory.depth <= depth);
        let told: Vec<_> = told.map(directory_totals).collect();
        for part in told.chunks(DIRECTORIES_A_PART) {
            replies.part(Body::Totalled(part.to_vec()))?;
        }
    }
    Ok(Answer::Totals(Box::new(answer(&found, ask.top.unwrap_or(0) as usize, fs.now().0))))
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
        own: sums(found.own.sums),
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
    let mut extensions: Vec<(Bytes, Sums)> = groups
        .extensions
        .iter()
        .map(|(extension, of)| (Bytes::from(&extension[..]), sums(*of)))
        .collect();
    extensions.sort_by_key(|(_, of)| Reverse((of.bytes, of.files)));
    extensions.truncate(top);
    let mut largest: Vec<_> =
        found.directories.iter().filter(|one| one.own.sums.files > 0).collect();
    largest.sort_by_key(|one| Reverse((one.own.sums.bytes, one.own.sums.files)));
    largest.truncate(top);
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
        largest: largest.into_iter().map(directory_totals).collect(),
        now,
    }
}
