//! Totals of directories, for `du` and `summary`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use format::cluster_groups::{self, Groups};
use format::inode_record::FileKind;
use fs::{FileSystem, Follow, Volume};
use inode::{Caller, FsError, Kind};
use search::Start;
use search::aggregate::{Aggregate, LargeDirectory, Question};
use wire::{Answer, Body, Bytes, DIRECTORIES_MAX, Failure, FailureKind, Sums, SumsOf, Top};

use super::about::about;
use super::accounts::Accounts;
use super::held::Held;
use super::parts::Parts;
use super::replies::Replies;
use super::{find, find_from, watch};

/// Approximate bytes of a directory without its path.
const DIRECTORY_BYTES: usize = 96;
/// Approximate bytes of sums without their group's name.
const SUMS_BYTES: usize = 64;
const DAY: i64 = 86_400_000_000_000;
/// Days of age beyond which days are not distinguished.
const DAYS_REPORTED: i64 = 3 * 365 + 1;

/// A request for totals.
pub(super) struct Ask {
    /// Directories to this depth are reported one by one.
    pub(super) depth: Option<u32>,
    /// Which sums by group are reported; `None` for no such sums.
    pub(super) top: Option<Top>,
}

/// Sends the totals of a directory and everything below it.
pub(super) fn totals(
    fs: &Volume,
    caller: &Caller,
    path: &[u8],
    ask: &Ask,
    replies: &mut Replies,
) -> Result<Answer, Failure> {
    let directories = ask.top.map_or(0, |top| top.directories);
    if directories > DIRECTORIES_MAX {
        let message = format!("at most {DIRECTORIES_MAX} of the largest directories are listed");
        return Err(Failure::new(FailureKind::Invalid, message).hint("give a smaller --top"));
    }
    let (path, held) = match find_from::locate(fs, caller, path) {
        Ok(path) => {
            let held = Held::resolve(fs, caller, &path, Follow::Yes)?;
            (path, held)
        }
        Err(failure) if ask.top.is_none() && is_nowhere(&failure) => {
            (path.to_vec(), dangling(fs, caller, path).ok_or(failure)?)
        }
        Err(failure) => return Err(failure),
    };
    if held.entry.attr.kind != Kind::Directory {
        if ask.top.is_some() {
            return Err(about(FsError::NotDirectory, &path));
        }
        return Ok(Answer::Totals(Box::new(of_one(&held.entry.attr, fs.now().0))));
    }
    let (subvolume, directory) =
        fs.search_place(held.entry.node).map_err(|error| about(error, &path))?;
    let stream = replies.stream().map_err(|error| watch::cannot(&error))?;
    let cancel = AtomicBool::new(false);
    let question = Question {
        // Paths are relative to this directory.
        start: Start { subvolume, directory, path: b".", depth: 0 },
        caller,
        accounts: &Accounts::default(),
        directories: ask.depth.filter(|depth| *depth > 0),
        largest: directories as usize,
        groups: ask.top.is_some(),
        cancel: &cancel,
    };
    let found = watch::while_heard(&stream, &cancel, || {}, || fs.aggregate(&question))?;
    let found = found.map_err(|error| about(fs::from_search(error), &path))?;
    if found.cancelled {
        return Err(watch::cut_off("the count"));
    }
    if let Some(depth) = ask.depth {
        send_directories(&found.directories, depth, replies)?;
    }
    if let Some(top) = ask.top {
        summed(&found.groups, top, replies)?;
        largest(&found.largest, replies)?;
    }
    Ok(Answer::Totals(Box::new(answer(&found, fs.now().0))))
}

/// Whether nothing exists at a path. A path that cannot be read, for lack of rights or for damage,
/// may hold much data.
fn is_nowhere(failure: &Failure) -> bool {
    use FailureKind::{Invalid, NotDirectory, NotFound};
    // A loop of symbolic links holds nothing, either.
    matches!(failure.kind, NotFound | NotDirectory | Invalid)
}

/// A dangling symbolic link: the link itself has a size, which `du` counts.
fn dangling<'a>(fs: &'a Volume, caller: &Caller, path: &[u8]) -> Option<Held<'a>> {
    let held = Held::resolve(fs, caller, path, Follow::No).ok()?;
    (held.entry.attr.kind == Kind::Symlink).then_some(held)
}

/// Reports directories to some depth.
fn send_directories(
    directories: &search::aggregate::Directories,
    depth: u32,
    replies: &mut Replies,
) -> Result<(), Failure> {
    let mut parts = Parts::new(replies, Body::Totalled);
    directories.each(find::PATH_BYTES_MAX - DIRECTORY_BYTES, &mut |directory| {
        if directory.depth > depth {
            return Ok(());
        }
        let reported = directory_totals(directory);
        let length = reported.path.0.len() + DIRECTORY_BYTES;
        if is_reportable(directory.path_bytes, &directory.path, &mut parts)? {
            parts.push(reported, length)?;
        }
        Ok::<(), Failure>(())
    })?;
    parts.end()
}

/// Reports sums by group, of which there may be any number.
fn summed(groups: &Groups, top: Top, replies: &mut Replies) -> Result<(), Failure> {
    let narrow = |number: &u64| u32::try_from(*number).unwrap_or(u32::MAX);
    let mut parts = Parts::new(replies, Body::Summed);
    for (number, of) in first(&groups.owners, top.owners) {
        parts.push((SumsOf::Owner(narrow(number)), sums(*of)), SUMS_BYTES)?;
    }
    for (number, of) in first(&groups.groups, top.owners) {
        parts.push((SumsOf::Group(narrow(number)), sums(*of)), SUMS_BYTES)?;
    }
    for (name, of) in first(&groups.extensions, top.extensions) {
        let reported = SumsOf::Extension(Bytes::from(&name[..]));
        parts.push((reported, sums(*of)), SUMS_BYTES + name.len())?;
    }
    parts.end()
}

/// Some entries of a list, or all: the largest first.
fn first<K: Ord>(
    list: &BTreeMap<K, cluster_groups::Sums>,
    most: Option<u32>,
) -> Vec<(&K, &cluster_groups::Sums)> {
    type One<'a, K> = (&'a K, &'a cluster_groups::Sums);
    let order = |one: &One<'_, K>, other: &One<'_, K>| {
        let by = |of: &cluster_groups::Sums| Reverse((of.bytes, of.files));
        by(one.1).cmp(&by(other.1)).then_with(|| one.0.cmp(other.0))
    };
    let mut all: Vec<One<'_, K>> = list.iter().collect();
    // There may be hundreds of thousands.
    let most = most.map_or(usize::MAX, |most| most as usize);
    if all.len() > most {
        all.select_nth_unstable_by(most, order);
        all.truncate(most);
    }
    all.sort_unstable_by(order);
    all
}

/// Reports the largest directories. One whose path is too long for a message is reported as
/// skipped.
fn largest(found: &[LargeDirectory], replies: &mut Replies) -> Result<(), Failure> {
    let mut parts = Parts::new(replies, Body::Largest);
    for one in found {
        let reported = large_directory(one);
        let length = reported.path.0.len() + DIRECTORY_BYTES;
        if is_reportable(one.path.len(), &one.path, &mut parts)? {
            parts.push(reported, length)?;
        }
    }
    parts.end()
}

/// Whether a message can hold a path of so many bytes, of which the end is given. One that is too
/// long is reported as skipped.
fn is_reportable<T>(bytes: usize, path: &[u8], parts: &mut Parts<'_, T>) -> Result<bool, Failure> {
    if bytes + DIRECTORY_BYTES <= find::PATH_BYTES_MAX {
        return Ok(true);
    }
    let message = format!("a path of {bytes} bytes is too long to report");
    let failure = Failure::new(FailureKind::Invalid, message);
    let failure = failure.at(find::last_bytes(path)).hint("begin at a directory on that path");
    parts.beside(Body::Skipped(failure))?;
    Ok(false)
}

fn sums(sums: cluster_groups::Sums) -> Sums {
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

fn large_directory(found: &LargeDirectory) -> wire::DirectoryTotals {
    wire::DirectoryTotals {
        path: found.path.strip_prefix(b".").unwrap_or(&found.path).into(),
        depth: found.depth,
        sums: Sums::default(),
        directories: 0,
        own: sums(found.own),
    }
}

/// The totals of something that is not a directory, with its kind.
fn of_one(attr: &inode::Attr, now: i64) -> wire::Totals {
    let attr = wire::Attr::from(attr);
    let allocated = u128::from(attr.blocks) * 512;
    let sums = Sums { files: 1, bytes: attr.size.into(), allocated };
    let (kind, ctime) = (attr.kind.name().to_owned(), attr.ctime);
    wire::Totals { sums, ctime, kinds: vec![(kind, sums)], now, ..wire::Totals::default() }
}

fn answer(found: &Aggregate, now: i64) -> wire::Totals {
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
    let today = now.div_euclid(DAY);
    let mut days = BTreeMap::<i64, Sums>::new();
    for (day, of) in &groups.days {
        let day = (*day).clamp(today.saturating_sub(DAYS_REPORTED), today.saturating_add(1));
        days.entry(day).or_default().add(sums(*of));
    }
    wire::Totals {
        sums: sums(found.total.sums),
        directories: found.total.directories,
        ctime: found.total.ctime,
        unreadable: found.unreadable,
        kinds: groups.kinds.iter().map(|(one, of)| (kind(*one).to_owned(), sums(*of))).collect(),
        owners_in_all: groups.owners.len() as u64,
        groups_in_all: groups.groups.len() as u64,
        sizes: groups.sizes.iter().map(|(one, of)| (*one as u8, sums(*of))).collect(),
        days: days.into_iter().collect(),
        extensions_in_all: groups.extensions.len() as u64,
        now,
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;
    use std::os::unix::net::UnixStream;

    use wire::{Reply, decode, read_frame};

    use super::*;
    use crate::daemon::peer_wait::Outgoing;

    #[test]
    fn reported_days_are_few_and_complete() {
        let mut found = Aggregate::default();
        let one = cluster_groups::Sums { files: 1, bytes: 2, allocated: 3 };
        for day in -100_000..100_000 {
            found.groups.days.insert(day, one);
        }
        let reported = answer(&found, 20_000 * DAY).days;
        assert!(reported.len() < 1200, "{} days", reported.len());
        assert_eq!(reported.iter().map(|(_, sums)| sums.files).sum::<u64>(), 200_000);
        let of = |day| {
            reported.iter().find(|(reported, _)| *reported == day).map(|(_, sums)| sums.files)
        };
        assert_eq!((of(20_000), of(20_000 - 1095)), (Some(1), Some(1)));
        assert_eq!(of(20_001), Some(79_999));
    }

    /// The parts that are sent.
    fn sent(send: impl FnOnce(&mut Replies) -> Result<(), Failure>) -> Vec<Body> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        device::scope(|scope| {
            let reader = scope.spawn(move || {
                let (mut reader, mut frame) = (BufReader::new(theirs), Vec::new());
                let mut parts = Vec::new();
                while read_frame(&mut reader, &mut frame).is_ok() {
                    parts.push(decode::<Reply>(&frame).unwrap().body);
                }
                parts
            });
            let mut replies = Replies::new(Outgoing::for_tests(ours));
            send(&mut replies).unwrap();
            replies.flush().unwrap();
            drop(replies);
            reader.join().unwrap()
        })
    }

    fn all_sums(parts: Vec<Body>) -> Vec<(SumsOf, Sums)> {
        let one = |part| match part {
            Body::Summed(sums) => sums,
            other => panic!("{other:?}"),
        };
        parts.into_iter().flat_map(one).collect()
    }

    #[test]
    fn any_number_of_owners_is_sent_in_parts_largest_first() {
        const OWNERS: u64 = 50_000;
        let mut groups = Groups::default();
        for owner in 0..OWNERS {
            // Beyond 64 bits, and several of one size.
            let bytes = u128::from(owner / 3) << 60;
            let one = cluster_groups::Sums { files: owner % 3, bytes, allocated: u128::MAX };
            groups.owners.insert(owner << 16, one);
            groups.extensions.insert(owner.to_string().into_bytes(), one);
        }
        let top = |owners, extensions| Top { owners, extensions, directories: 0 };
        let parts = sent(|replies| summed(&groups, top(None, Some(7)), replies));
        assert!(parts.len() > 10, "{} parts", parts.len());
        let reported = all_sums(parts);
        let (owners, extensions) = reported.split_at(OWNERS as usize);
        let by = |(_, sums): &(SumsOf, Sums)| Reverse((sums.bytes, sums.files));
        assert!(owners.is_sorted_by_key(by) && extensions.is_sorted_by_key(by));
        let mut seen: Vec<u64> = owners
            .iter()
            .map(|(of, _)| match of {
                SumsOf::Owner(number) => u64::from(*number),
                other => panic!("{other:?}"),
            })
            .collect();
        seen.sort_unstable();
        assert!(seen.iter().eq(groups.owners.keys()), "every owner once");
        assert_eq!(extensions.len(), 7);
        assert_eq!(extensions[0].0, SumsOf::Extension(Bytes::from(&b"49999"[..])));
        let few = all_sums(sent(|replies| summed(&groups, top(Some(2), Some(0)), replies)));
        assert_eq!(few, owners[..2]);
        let found = Aggregate { groups, ..Aggregate::default() };
        let answer = answer(&found, 0);
        assert_eq!((answer.owners_in_all, answer.extensions_in_all), (OWNERS, OWNERS));
    }

    #[test]
    fn a_large_directory_with_too_long_a_path_is_reported_and_hides_no_other() {
        let directory = |length: usize| LargeDirectory {
            path: [b"./", &b"n/".repeat(length / 2)[..]].concat(),
            depth: 1,
            place: (1, 2),
            own: cluster_groups::Sums { files: 1, bytes: 1 << 70, allocated: 0 },
        };
        let all = [directory(10), directory(600 << 10), directory(400 << 10), directory(400 << 10)];
        let (mut reported, mut skipped) = (Vec::new(), 0);
        for part in sent(|replies| largest(&all, replies)) {
            match part {
                Body::Largest(some) => {
                    reported.extend(some.into_iter().map(|one| one.path.0.len()));
                }
                Body::Skipped(failure) => {
                    assert!(failure.message.contains("a path of 614402"), "{}", failure.message);
                    skipped += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((reported, skipped), (vec![11, 409_601, 409_601], 1));
    }
}
