//! What an import keeps at most, what all imports of a user keep, and the messages beyond that.

/// The most that an import keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Deepest nesting of directories.
    pub(super) levels: usize,
    /// Files that it holds because more names of them may follow.
    pub(super) held: usize,
}

pub(super) const BOUNDS: Bounds = Bounds { levels: 65_536, held: 1 << 20 };

pub(super) const TOO_DEEP: &str = "an import is at most 65,536 directories deep";
pub(super) const TOO_MANY_HELD: &str = "an import keeps the links of at most 1,048,576 files";
pub(super) const TOO_MANY_OF_USERS: &str = "the imports of one user keep the links of at most \
                                            1,048,576 files, and those of all users of 4,194,304";

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use fs::{FileSystem, Follow, Volume};
    use inode::Caller;
    use wire::{Answer, ImportAttr, Item, Items};

    use super::*;
    use crate::daemon::fresh;
    use crate::daemon::import::Import;
    use crate::daemon::peer_wait::Outgoing;
    use crate::daemon::replies::Replies;
    use crate::daemon::shares::{Shares, Taker};

    const ATTR: ImportAttr = ImportAttr { mode: 0o644, owner: None, atime: 0, mtime: 0 };

    fn open(fs: &Volume) -> Import<'_> {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let (root, mut replies) = (Caller::root(), Replies::new(Outgoing::for_tests(ours)));
        Import::open(fs, &root, b"/", (true, None), true, &mut replies).unwrap().0
    }

    /// Imports into the root of a volume; returns the paths and messages of the errors.
    fn errors(fs: &Volume, bounds: Bounds, items: &[Item<'_>]) -> Vec<(String, String)> {
        let mut import = open(fs);
        import.bounds = bounds;
        let errors = errors_of(&mut import, items);
        import.close().unwrap();
        errors
    }

    fn errors_of(import: &mut Import<'_>, items: &[Item<'_>]) -> Vec<(String, String)> {
        let mut encoded = Items::default();
        for item in items {
            encoded.push(item);
        }
        import.items(encoded.as_bytes()).unwrap();
        let Answer::Imported { errors, more } = import.take_errors().unwrap() else {
            unreachable!()
        };
        assert_eq!(more, 0);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        errors.into_iter().map(|error| (text(&error.path.0), error.message)).collect()
    }

    fn there(fs: &Volume, path: &str) -> bool {
        let found = fs.resolve(&Caller::root(), path.as_bytes(), Follow::No);
        found.map(|entry| fs.forget(entry.node, 1)).is_ok()
    }

    fn file(name: &[u8], hold: u64) -> Item<'_> {
        Item::File { name, attr: ATTR, xattrs: Vec::new(), data: b"x", hold }
    }

    #[test]
    fn a_directory_that_is_too_deep_is_left_out_alone() {
        let fs = fresh::volume();
        let leave = || Item::Leave { attr: ATTR, xattrs: Vec::new() };
        let items = [
            Item::Enter { name: b"a" },
            Item::Enter { name: b"b" },
            Item::Enter { name: b"c" },
            Item::Enter { name: b"d" },
            file(b"lost", 0),
            leave(),
            leave(),
            file(b"file", 0),
            leave(),
            Item::Enter { name: b"beside" },
            leave(),
            leave(),
        ];
        // The root of the volume is the first directory.
        let failed = errors(&fs, Bounds { levels: 3, ..BOUNDS }, &items);
        let [(path, message)] = &failed[..] else { panic!("{failed:?}") };
        assert!(path == "a/b/c" && message.contains(TOO_DEEP), "{failed:?}");
        assert!(there(&fs, "/a/b/file") && there(&fs, "/a/beside"));
        assert!(!there(&fs, "/a/b/c"));
        assert_eq!(errors(&fs, Bounds { levels: 5, ..BOUNDS }, &items), []);
        assert!(there(&fs, "/a/b/c/d/lost"));
        assert_eq!(fs.status().unwrap().nodes, 0);
    }

    #[test]
    fn an_import_that_holds_too_many_files_reports_each_further_one() {
        let fs = fresh::volume();
        let items = [
            file(b"one", 1),
            file(b"two", 2),
            // A number that is held already takes no further place.
            file(b"again", 2),
            file(b"three", 3),
            Item::Link { name: b"of one", held: 1 },
            Item::Link { name: b"of three", held: 3 },
        ];
        let failed = errors(&fs, Bounds { held: 2, ..BOUNDS }, &items);
        let [(three, held), (of_three, _)] = &failed[..] else { panic!("{failed:?}") };
        assert!(three == "three" && held.contains(TOO_MANY_HELD), "{failed:?}");
        assert_eq!(of_three, "of three");
        let names = ["/one", "/two", "/again", "/three", "/of one"];
        assert!(names.iter().all(|name| there(&fs, name)) && !there(&fs, "/of three"));
        assert_eq!(fs.status().unwrap().nodes, 0);
    }

    /// Each import had a bound of its own: eight of a user held eight times as many files.
    #[test]
    fn imports_of_one_user_share_what_they_hold() {
        let (fs, shares) = (fresh::volume(), Shares::new(3, 5));
        let of = |user| {
            let mut import = open(&fs);
            import.count_in(shares.of(Taker::User(user)));
            import
        };
        let (mut first, mut second, mut other) = (of(1), of(1), of(2));
        let refused = |import: &mut Import<'_>, prefix: &str, count: u64| {
            let names: Vec<String> = (0..count).map(|n| format!("{prefix}{n}")).collect();
            let items: Vec<_> =
                (1..).zip(&names).map(|(n, name)| file(name.as_bytes(), n)).collect();
            let errors = errors_of(import, &items);
            for (path, message) in &errors {
                assert!(message.contains(TOO_MANY_OF_USERS), "{path}: {message}");
            }
            assert!(names.iter().all(|name| there(&fs, &format!("/{name}"))), "they were made");
            errors.len()
        };
        assert_eq!(refused(&mut first, "a", 2), 0);
        assert_eq!(refused(&mut second, "b", 2), 1, "the share of the user");
        assert_eq!(refused(&mut other, "c", 3), 1, "what all users may");
        // Holding a number again takes no further place.
        assert_eq!(refused(&mut first, "d", 2), 0);
        drop(first);
        assert_eq!(refused(&mut other, "e", 3), 0);
        drop((second, other));
        assert!(shares.is_empty());
        assert_eq!(fs.status().unwrap().nodes, 0);
    }
}
