//! What the last scan recorded of directories, and when a directory need not be read again.
//!
//! A directory's names change only together with its change time, and clocks have a resolution:
//! two changes within one tick may show the same time. So a directory has the same names as before
//! if its times are unchanged and precede the last scan by more than any clock's tick. This proves
//! nothing about its files: writing a file does not change its directory.

use device::Map;
use inode::Outside;
use wire::ScanDirectory;

/// Longest tick of file systems in use: FAT's two seconds.
const TICK: i64 = 2_000_000_000;

/// The directories of an index.
#[derive(Default)]
pub(super) struct Known {
    directories: Map<u64, Directory>,
    /// When the scan that recorded them began.
    started: i64,
}

/// A directory as the scan recorded it.
pub(super) struct Directory {
    elsewhere: (u64, u64),
    mtime: i64,
    ctime: i64,
    /// Its subdirectories, by name.
    children: Vec<(Box<[u8]>, u64)>,
}

impl Known {
    /// An empty set, for a scan that began at a given time.
    pub(super) fn new(started: i64) -> Known {
        Known { directories: Map::default(), started }
    }

    /// Adds a directory, or more of its subdirectories.
    pub(super) fn add(&mut self, directory: ScanDirectory) {
        let ScanDirectory { ino, elsewhere, mtime, ctime, children } = directory;
        let mut children: Vec<_> =
            children.into_iter().map(|(name, ino)| (name.0.into_boxed_slice(), ino)).collect();
        if let Some(before) = self.directories.remove(&ino) {
            children.extend(before.children);
        }
        children.sort_unstable();
        self.directories.insert(ino, Directory { elsewhere, mtime, ctime, children });
    }

    /// The directory with a number; 0 means none.
    pub(super) fn get(&self, ino: u64) -> Option<&Directory> {
        self.directories.get(&ino)
    }

    /// Whether a directory with these attributes has the same names as before.
    pub(super) fn has_same_names(&self, known: &Directory, attr: &Outside) -> bool {
        let last = attr.mtime.max(attr.ctime);
        (attr.device, attr.number) == known.elsewhere
            && (attr.mtime, attr.ctime) == (known.mtime, known.ctime)
            && last.saturating_add(TICK) < self.started
    }
}

impl Directory {
    /// The number of a subdirectory; 0 if there was none of this name.
    pub(super) fn child(&self, name: &[u8]) -> u64 {
        let found = self.children.binary_search_by(|(known, _)| known[..].cmp(name));
        found.map_or(0, |at| self.children[at].1)
    }

    /// Its subdirectories.
    pub(super) fn children(&self) -> &[(Box<[u8]>, u64)] {
        &self.children
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Kind;

    #[test]
    fn names_are_trusted_only_with_an_old_equal_time() {
        let mut known = Known::new(100 * TICK);
        known.add(ScanDirectory {
            ino: 5,
            elsewhere: (1, 2),
            mtime: 7,
            ctime: 90 * TICK,
            children: vec![(b"b".as_slice().into(), 9), (b"a".as_slice().into(), 8)],
        });
        let attr = Outside {
            kind: Kind::Directory,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: 2,
            rdev: 0,
            size: 0,
            allocated: 0,
            atime: 0,
            mtime: 7,
            ctime: 90 * TICK,
            btime: 0,
            device: 1,
            number: 2,
        };
        let directory = known.get(5).expect("added");
        assert!(known.has_same_names(directory, &attr));
        for other in [
            Outside { mtime: 8, ..attr },
            Outside { ctime: 6, ..attr },
            Outside { number: 3, ..attr },
            Outside { device: 3, ..attr },
        ] {
            assert!(!known.has_same_names(directory, &other));
        }
        // So shortly before the scan that a later change may show the same time.
        let recent = Outside { ctime: 99 * TICK, ..attr };
        let late = Directory { ctime: 99 * TICK, children: Vec::new(), ..*directory };
        assert!(!known.has_same_names(&late, &recent));
        assert_eq!(
            (directory.child(b"a"), directory.child(b"b"), directory.child(b"c")),
            (8, 9, 0)
        );
    }
}
