//! Which tree a trace expects.

use format::trace::{Call, Ended, Event, Listed, Setting, Shown};
use trace::Expected;

fn file(node: u64, size: u64) -> Shown {
    Shown { node, kind: 0, mode: 0o644, size, ..Shown::default() }
}

fn directory(node: u64) -> Shown {
    Shown { node, kind: 1, mode: 0o755, ..Shown::default() }
}

fn lookup(node: u64, name: &[u8], found: Shown) -> Event<'_> {
    Event { node, name, found, ..Event::new(Call::Lookup) }
}

fn expected(events: &[Event<'_>]) -> Expected {
    let mut expected = Expected::default();
    for event in events {
        expected.add(event);
    }
    expected
}

/// Names with their inodes and sizes, as `parent/name`.
fn tree(expected: &Expected) -> Vec<(String, u64)> {
    let mut tree: Vec<_> = expected
        .nodes()
        .flat_map(|(_, placed)| {
            placed.names.iter().map(|place| {
                let name = String::from_utf8_lossy(&place.name).into_owned();
                (format!("{}/{name}", place.parent), placed.shown.size)
            })
        })
        .collect();
    tree.sort();
    tree
}

fn of(pairs: &[(&str, u64)]) -> Vec<(String, u64)> {
    pairs.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect()
}

#[test]
fn what_is_found_before_it_is_created_was_there() {
    let found = [
        lookup(1, b"dir", directory(2)),
        lookup(2, b"old", file(3, 77)),
        Event { node: 2, name: b"new", found: file(4, 0), ..Event::new(Call::Mknod) },
        lookup(2, b"new", file(4, 9)),
        Event { ended: Ended::NotFound, ..lookup(2, b"none", Shown::default()) },
        Event { node: 2, name: b"none", found: file(5, 0), ..Event::new(Call::Mknod) },
        Event { node: 1, name: b"gone", ..Event::new(Call::Unlink) },
        Event { node: 1, name: b"there", ended: Ended::Exists, ..Event::new(Call::Mknod) },
        Event { node: 1, name: b"empty", ..Event::new(Call::Rmdir) },
    ];
    let expected = expected(&found);
    let want = [("1/dir", 0), ("1/empty", 0), ("1/gone", 0), ("1/there", 0), ("2/old", 77)];
    assert_eq!(tree(&expected), of(&want));
    let kind = |name: &[u8]| {
        let placed = expected.nodes().find(|(_, placed)| *placed.names[0].name == *name);
        placed.unwrap().1.shown.kind
    };
    assert_eq!((kind(b"empty"), kind(b"gone")), (1, 0));
}

#[test]
fn a_rename_moves_what_was_there_and_expects_nothing_at_the_target() {
    let found = [
        lookup(1, b"a", file(2, 5)),
        Event { node: 1, name: b"a", other: 1, other_name: b"b", ..Event::new(Call::Rename) },
        lookup(1, b"b", file(2, 5)),
        Event { ended: Ended::NotFound, ..lookup(1, b"a", Shown::default()) },
        lookup(1, b"link", file(2, 5)),
    ];
    // `link` is another name that the inode had from the start.
    assert_eq!(tree(&expected(&found)), of(&[("1/a", 5), ("1/link", 5)]));
}

#[test]
fn sizes_are_those_before_the_first_change() {
    let write = |node| Event { node, length: 100, ..Event::new(Call::Write) };
    let truncate = Event {
        node: 4,
        how: Setting::SIZE,
        length: 1,
        found: file(4, 1),
        ..Event::new(Call::Setattr)
    };
    let entries = vec![
        Listed { name: b"plain", shown: file(3, 0), with_attributes: false },
        Listed { name: b"cut", shown: file(4, 0), with_attributes: false },
        Listed { name: b"whole", shown: file(5, 50), with_attributes: true },
    ];
    let found = [
        Event { node: 1, entries, ..Event::new(Call::Readdir) },
        Event { node: 3, offset: 10, length: 99, returned: 30, ..Event::new(Call::Read) },
        write(3),
        Event { node: 3, found: file(3, 130), ..Event::new(Call::Getattr) },
        truncate,
        write(5),
        lookup(1, b"whole", file(5, 150)),
    ];
    let want = [("1/cut", 0), ("1/plain", 40), ("1/whole", 50)];
    assert_eq!(tree(&expected(&found)), of(&want));
}

#[test]
fn a_file_that_is_used_after_its_last_name_is_held() {
    let found = [
        lookup(1, b"a", file(2, 0)),
        lookup(1, b"b", file(3, 0)),
        Event { node: 1, name: b"c", other: 3, found: file(3, 0), ..Event::new(Call::Link) },
        Event { node: 1, name: b"a", ..Event::new(Call::Unlink) },
        Event { node: 1, name: b"b", ..Event::new(Call::Unlink) },
        Event { node: 2, length: 1, ..Event::new(Call::Write) },
        Event { node: 3, length: 1, ..Event::new(Call::Write) },
        Event { node: 1, found: file(9, 0), ..Event::new(Call::Tmpfile) },
        Event { node: 9, length: 1, ..Event::new(Call::Write) },
    ];
    let expected = expected(&found);
    assert!(expected.is_held(2), "it has no name when it is written");
    assert!(!expected.is_held(3), "it has another name");
    assert!(expected.is_held(9), "it never had a name");
}
