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
use super::{find, find_from, watch};

/// Bytes of directories in one message.
const PART_BYTES: usize = 64 << 10;
/// Bytes of a directory beside its path, about.
const DIRECTORY_BYTES: usize = 96;
/// Most extensions, and most of the largest directories, that are told, and bytes of their paths.
const TOP_MAX: u32 = 1000;
const LARGEST_BYTES_MAX: usize = find::PATH_BYTES_MAX;
const DAY: i64 = 86_400_000_000_000;
/// Days of age beyond which one day is as good as another.
const DAYS_TOLD: i64 = 3 * 365 + 1;

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
    let top = ask.top.map(|top| top.min(TOP_MAX) as usize);
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
        largest: top.unwrap_or(0),
        groups: top.is_some(),
        cancel: &cancel,
    };
    let found = watch::while_heard(&stream, &cancel, || {}, || fs.aggregate(&question))?;
    let found = found.map_err(|error| about(fs::from_search(error), &path))?;
    if found.cancelled {
        return Err(watch::cut_off());
    }
    if let Some(depth) = ask.depth {
        tell(&found.directories, depth, replies)?;
    }
    Ok(Answer::Totals(Box::new(answer(&found, top.unwrap_or(0), fs.now().0))))
}

/// Tells of directories to some depth, in messages of bounded size.
fn tell(
    directories: &search::aggregate::Directories,
    depth: u32,
    replies: &mut Replies,
) -> Result<(), Failure> {
    let (mut part, mut bytes) = (Vec::new(), 0);
    directories.each(&mut |directory| {
        if directory.depth > depth {
            return Ok(());
        }
        let told = directory_totals(directory);
        let length = told.path.0.len() + DIRECTORY_BYTES;
        if bytes + length > PART_BYTES && !part.is_empty() {
            replies.part(Body::Totalled(std::mem::take(&mut part)))?;
            bytes = 0;
        }
        if length > find::PATH_BYTES_MAX {
            let message = format!("the path of a directory has {} bytes", told.path.0.len());
            return Err(Failure::new(FailureKind::Invalid, message));
        }
        bytes += length;
        part.push(told);
        Ok(())
    })?;
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
    let today = now.div_euclid(DAY);
    let mut days = std::collections::BTreeMap::<i64, Sums>::new();
    for (day, of) in &groups.days {
        let day = (*day).clamp(today.saturating_sub(DAYS_TOLD), today.saturating_add(1));
        let sum = days.entry(day).or_default();
        sum.files += of.files;
        sum.bytes = sum.bytes.wrapping_add(of.bytes);
        sum.allocated = sum.allocated.wrapping_add(of.allocated);
    }
    let mut room = LARGEST_BYTES_MAX;
    let largest = found.largest.iter().map_while(|one| {
        room = room.checked_sub(one.path.len() + DIRECTORY_BYTES)?;
        Some(large_directory(one))
    });
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
        days: days.into_iter().collect(),
        extensions_in_all: groups.extensions.len() as u64,
        extensions,
        largest: largest.collect(),
        now,
    }
}

#[cfg(test)]
mod tests {
    use format::cluster_groups;

    use super::*;

    #[test]
    fn days_that_are_told_are_few_and_none_is_lost() {
        let mut found = Aggregate::default();
        let one = cluster_groups::Sums { files: 1, bytes: 2, allocated: 3 };
        for day in -100_000..100_000 {
            found.groups.days.insert(day, one);
        }
        let told = answer(&found, 10, 20_000 * DAY).days;
        assert!(told.len() < 1200, "{} days", told.len());
        assert_eq!(told.iter().map(|(_, sums)| sums.files).sum::<u64>(), 200_000);
        let of = |day| told.iter().find(|(told, _)| *told == day).map(|(_, sums)| sums.files);
        assert_eq!((of(20_000), of(20_000 - 1095)), (Some(1), Some(1)));
        assert_eq!(of(20_001), Some(79_999));
    }
}
