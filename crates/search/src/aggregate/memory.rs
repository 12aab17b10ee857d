//! How much memory an answer takes while it is counted, beside the directories that it lists
//! (`tree`). It holds inodes with several names that were seen, and groups. It also holds
//! directories that may be among the largest, and mounted subvolumes that wait. For callers other
//! than root it is bounded, because several ask at a time.

use device::Map;
use format::cluster_groups::Groups;
use inode::Caller;

use super::tree::DirectoryId;
use super::{GroupCounts, Question};
use crate::{Error, Result};

/// Most memory of a sum alone, of which more run at a time than of answers with groups, or with
/// directories one by one.
const SUM: usize = 64 << 20;
const LISTS: usize = 256 << 20;

/// What a group takes: twice, while the answer is put together.
const GROUP_BYTES: usize = 256;
/// What one word of seen inodes takes in a map that is a little more than half full.
const WORD_BYTES: usize = 2 * (size_of::<(DirectoryId, u64)>() + 1);
/// What a subvolume that waits takes beside its path.
pub(crate) const WAITING_BYTES: usize = 96;

/// The most that an answer may take.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    most: usize,
    refusal: &'static str,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::within(&Caller::root(), true, usize::MAX)
    }
}

impl Memory {
    /// What an answer may take.
    pub(crate) fn of(question: &Question<'_>) -> Memory {
        let is_sum = !question.groups && question.largest == 0 && question.directories.is_none();
        Memory::within(question.caller, is_sum, if is_sum { SUM } else { LISTS })
    }

    fn within(caller: &Caller, is_sum: bool, most: usize) -> Memory {
        let refusal = if is_sum {
            "so many files with several names take more than the 64 MiB that one user gets for a \
             sum; begin at directories further down"
        } else {
            "so many files with several names, groups and large directories take more than the 256 \
             MiB that one user gets; begin at directories further down"
        };
        Memory { most: if caller.is_root() { usize::MAX } else { most }, refusal }
    }

    /// Refuses to take more.
    pub(crate) fn check(self, bytes: usize) -> Result<()> {
        if bytes <= self.most { Ok(()) } else { Err(Error::Limit(self.refusal)) }
    }
}

/// The bytes of groups that were counted.
pub(crate) fn group_bytes(groups: &Groups) -> usize {
    let Groups { owners, groups, days, extensions, .. } = groups;
    (owners.len() + groups.len() + days.len() + extensions.len()) * GROUP_BYTES
}

/// The bytes of groups that are being counted.
pub(crate) fn counted_bytes(groups: &GroupCounts) -> usize {
    groups.len() * GROUP_BYTES
}

/// Inodes that were seen. Those that were made one after the other have consecutive numbers, and
/// share a word.
#[derive(Default)]
pub(crate) struct Seen(Map<DirectoryId, u64>);

impl Seen {
    /// Notes an inode, a subvolume and a number; returns whether it was not seen before.
    pub(crate) fn insert(&mut self, (subvolume, ino): DirectoryId) -> bool {
        let word = self.0.entry((subvolume, ino / 64)).or_default();
        let bit = 1 << (ino % 64);
        let is_first = *word & bit == 0;
        *word |= bit;
        is_first
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.len() * WORD_BYTES
    }
}

/// Directories with something each, of which one takes so much.
pub(crate) const fn directory_bytes<T>() -> usize {
    // In a map that is a little more than half full, and in lists while the largest are looked for.
    3 * (size_of::<(u64, T)>() + 1)
}

#[cfg(test)]
mod tests {
    use format::inode_record::FileKind;

    use super::*;
    use crate::Row;
    use crate::aggregate::walked::Tally;

    fn user() -> Caller {
        Caller { uid: 1000, gid: 1000, ..Caller::root() }
    }

    fn file(name: &[u8]) -> Row<'_> {
        Row {
            directory: 1,
            cookie: 1 << 8,
            ino: 2,
            name,
            kind: FileKind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            size: 1,
            allocated: 512,
            entries: 0,
            atime: 0,
            mtime: 0,
            ctime: 0,
            btime: 0,
            subvolume: 0,
            xattrs: b"",
        }
    }

    #[test]
    fn an_inode_is_seen_first_once() {
        let (mut seen, mut known) = (Seen::default(), std::collections::BTreeSet::new());
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..10_000 {
            let inode = (random.u64(..3), random.u64(..1000));
            assert_eq!(seen.insert(inode), known.insert(inode), "{inode:?}");
        }
        assert!(seen.insert((1, u64::MAX)) && !seen.insert((1, u64::MAX)));
        assert!(seen.bytes() < known.len() * 8, "neighbours share a word");
    }

    /// Ten million inodes took hundreds of megabytes of the daemon, for each of 32 callers.
    #[test]
    fn seen_inodes_and_groups_take_no_more_memory_than_they_may() {
        const MOST: usize = 1 << 20;
        let (user, root) = (user(), Caller::root());
        let within = |caller: &Caller, is_sum| Tally {
            memory: Memory::within(caller, is_sum, MOST),
            ..Tally::default()
        };
        for (is_sum, named) in [(true, "64 MiB"), (false, "256 MiB")] {
            let mut tally = within(&user, is_sum);
            // The worst case: no two share a word.
            let refused = (0..).find_map(|ino| tally.is_first(2, (1, 64 * ino)).err());
            assert!(matches!(refused, Some(Error::Limit(what)) if what.contains(named)));
            let bytes = tally.linked.0.capacity() * (size_of::<(DirectoryId, u64)>() + 1);
            assert!(bytes < 2 * MOST && tally.linked.0.len() > 10_000, "{bytes}");
        }
        let mut tally = within(&user, false);
        let mut names = (0_u64..).map(|number| format!("f.{number}"));
        let refused = names.find_map(|name| tally.file(&file(name.as_bytes())).err());
        assert!(matches!(refused, Some(Error::Limit(_))));
        assert!(counted_bytes(&tally.groups) < MOST + 10 * GROUP_BYTES);
        // Root may, and files with one name take nothing.
        let mut tally = within(&root, true);
        assert!((0..50_000).all(|ino| tally.is_first(2, (1, 64 * ino)).unwrap()));
        let mut tally = within(&user, true);
        assert!((0..50_000).all(|ino| tally.is_first(1, (1, 64 * ino)).unwrap()));
        assert_eq!(tally.bytes(), 0);
    }
}
