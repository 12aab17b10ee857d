//! Requirements for every `Blobs` that several processes may use at once: servers, shared
//! directories, and what wraps them. One behaviour per function; a test runs all of them on new
//! objects each.

use ::device::{Blobs, Compared, Device, compare, part_of};

/// A store without objects, and a device for files that become objects.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The objects.
    pub blobs: &'a dyn Blobs,
    /// The same objects as another process sees them.
    pub other: &'a dyn Blobs,
    /// Has no files.
    pub device: &'a dyn Device,
}

/// A requirement.
pub type Case = fn(Subject<'_>);

/// All requirements, by name.
pub const CASES: [(&str, Case); 9] = [
    ("an object is created once", created_once),
    ("of many creators of a name one succeeds", one_creator_succeeds),
    ("names have parts", names_have_parts),
    ("names that no store accepts are refused", bad_names_are_refused),
    ("objects are read in ranges", read_in_ranges),
    ("a deleted object is gone", deleted_is_gone),
    ("a file becomes an object", file_becomes_object),
    ("what one process creates the other finds", processes_see_each_other),
    ("prefixes end anywhere", prefixes_end_anywhere),
];

fn read_all(blobs: &dyn Blobs, name: &str) -> Vec<u8> {
    let length = blobs.length(name).expect("known").expect("present");
    let mut bytes = vec![0; length as usize];
    assert_eq!(blobs.read_at(name, &mut bytes, 0).expect("readable"), bytes.len());
    bytes
}

/// Names in the order of their bytes.
fn listed(blobs: &dyn Blobs, prefix: &str) -> Vec<String> {
    let mut names = blobs.list(prefix).expect("list");
    names.sort();
    names
}

fn created_once(Subject { blobs, .. }: Subject<'_>) {
    assert_eq!(blobs.length("a").expect("known"), None);
    assert!(blobs.create("a", b"first").expect("create"));
    assert!(!blobs.create("a", b"second").expect("create"));
    assert!(!blobs.create("a", b"first").expect("create"), "equal bytes are not ours");
    assert_eq!(read_all(blobs, "a"), b"first");
    assert!(blobs.create("empty", b"").expect("create"));
    assert_eq!(blobs.length("empty").expect("known"), Some(0));
    assert_eq!(blobs.read_at("empty", &mut [0; 4], 0).expect("readable"), 0);
    assert_eq!(listed(blobs, ""), ["a", "empty"], "nothing is left over");
}

fn one_creator_succeeds(Subject { blobs, other, .. }: Subject<'_>) {
    for name in ["log/1/1", "log/1/2", "flat"] {
        let made: usize = device::scope(|scope| {
            let create = |thread: u8| {
                let blobs = if thread.is_multiple_of(2) { blobs } else { other };
                move || usize::from(blobs.create(name, &[thread; 3000]).expect("create"))
            };
            let threads: Vec<_> = (0..16).map(|thread| scope.spawn(create(thread))).collect();
            threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
        });
        assert_eq!(made, 1, "{name}");
        let bytes = read_all(blobs, name);
        assert!(bytes.len() == 3000 && bytes.iter().all(|byte| *byte == bytes[0]), "{name}");
        assert!(read_all(other, name) == bytes, "{name}");
    }
    assert_eq!(listed(blobs, ""), ["flat", "log/1/1", "log/1/2"]);
}

fn names_have_parts(Subject { blobs, .. }: Subject<'_>) {
    let names = ["log/10/1", "log/2/1", "log/2/10", "log/2/2", "manifest/7", "z"];
    for name in names {
        assert!(blobs.create(name, name.as_bytes()).expect("create"), "{name}");
    }
    assert!(!blobs.create("log/2/10", b"again").expect("create"));
    assert_eq!(listed(blobs, ""), names);
    assert_eq!(listed(blobs, "log/"), names[..4]);
    assert_eq!(listed(blobs, "log/2/"), ["log/2/1", "log/2/10", "log/2/2"]);
    assert!(listed(blobs, "log/3/").is_empty() && listed(blobs, "none/").is_empty());
    assert_eq!(blobs.length("log/2").expect("known"), None, "a part is no object");
    assert_eq!(blobs.length("log/3/1").expect("known"), None);
    assert!(blobs.read_at("log/3/1", &mut [0], 0).is_err_and(|error| error.is_not_found()));
    for name in names {
        assert_eq!(read_all(blobs, name), name.as_bytes());
        blobs.delete(name).expect("delete");
        assert_eq!(blobs.length(name).expect("known"), None);
    }
    blobs.delete("log/4/1").expect("an absent one is fine");
    assert!(listed(blobs, "").is_empty());
    assert!(blobs.create("log/2/1", b"again").expect("create"));
}

fn bad_names_are_refused(Subject { blobs, device, .. }: Subject<'_>) {
    device.create("file").expect("new").write_at(b"bytes", 0).expect("space");
    let long = "a/".repeat(450) + "a";
    let long_part = "a".repeat(241);
    let bad = ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/.", ".staged/a", ".hidden"];
    let worse = ["a.staged", "a.staged/b", "a b", "a%2f", "a\\b", "\u{e4}", &long, &long_part];
    for name in bad.into_iter().chain(worse) {
        let refused = blobs.create(name, b"bytes").expect_err(name);
        assert_eq!(refused.kind, std::io::ErrorKind::InvalidInput, "{name:?}: {refused}");
        let refused = blobs.adopt(name, device, "file").expect_err(name);
        assert_eq!(refused.kind, std::io::ErrorKind::InvalidInput, "{name:?}: {refused}");
    }
    assert!(listed(blobs, "").is_empty());
    assert!(device.metadata("file").expect("known").is_some(), "the file stays");
    for name in ["a.b-c_D9", "a/b", &long[2..], &long_part[1..]] {
        assert!(blobs.create(name, b"bytes").expect("valid"), "{name:?}");
    }
}

fn read_in_ranges(Subject { blobs, .. }: Subject<'_>) {
    let bytes: Vec<u8> = (0..250_000_u32).map(|n| (n % 251) as u8).collect();
    assert!(blobs.create("run/1", &bytes).expect("create"));
    for (offset, length) in [(4321, 1000), (0, 1), (0, 250_000), (65_536, 65_536), (131_071, 2)] {
        let mut buffer = vec![0; length];
        assert_eq!(blobs.read_at("run/1", &mut buffer, offset as u64).expect("readable"), length);
        assert!(buffer == bytes[offset..offset + length], "{offset} {length}");
    }
    let mut buffer = [0; 1000];
    assert_eq!(blobs.read_at("run/1", &mut buffer, 249_990).expect("readable"), 10);
    assert_eq!(buffer[..10], bytes[249_990..]);
    assert_eq!(blobs.read_at("run/1", &mut buffer, 250_000).expect("readable"), 0);
    assert_eq!(blobs.read_at("run/1", &mut buffer, 1 << 40).expect("readable"), 0);
    assert_eq!(blobs.read_at("run/1", &mut [], 0).expect("readable"), 0);
    let part = |buffer: &mut [u8], at: u64| Ok(part_of(&bytes, buffer, at));
    assert_eq!(compare(blobs, "run/1", 250_000, &part).expect("read"), Compared::Same);
    assert_eq!(compare(blobs, "run/1", 249_999, &part).expect("read"), Compared::Other);
    assert_eq!(compare(blobs, "run/2", 250_000, &part).expect("read"), Compared::Nothing);
    assert!(blobs.disk_bytes("run/1").expect("known") >= 250_000);
    assert!(blobs.disk_bytes_all().expect("known") >= 250_000);
}

fn deleted_is_gone(Subject { blobs, other, .. }: Subject<'_>) {
    blobs.delete("a").expect("an absent one is fine");
    assert!(blobs.create("a", b"first").expect("create"));
    assert_eq!(read_all(blobs, "a"), b"first");
    assert_eq!(read_all(other, "a"), b"first");
    blobs.delete("a").expect("delete");
    blobs.delete("a").expect("delete");
    assert_eq!(blobs.length("a").expect("known"), None);
    assert_eq!(other.length("a").expect("known"), None);
    assert!(blobs.read_at("a", &mut [0], 0).is_err_and(|error| error.is_not_found()));
    assert!(listed(blobs, "").is_empty() && listed(other, "").is_empty());
}

fn file_becomes_object(Subject { blobs, device, .. }: Subject<'_>) {
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 253) as u8).collect();
    device.create("file").expect("new").write_at(&bytes, 0).expect("space");
    assert!(blobs.adopt("run/a", device, "file").expect("adopt"));
    assert!(device.metadata("file").expect("known").is_none());
    assert!(read_all(blobs, "run/a") == bytes, "all of the file is in the object");
    device.create("other").expect("new").write_at(b"other", 0).expect("space");
    assert!(!blobs.adopt("run/a", device, "other").expect("adopt"));
    assert_eq!(device.metadata("other").expect("known").expect("present").length, 5);
    assert!(blobs.adopt("run/b", device, "absent").is_err_and(|error| error.is_not_found()));
    assert_eq!(listed(blobs, ""), ["run/a"]);
}

fn processes_see_each_other(Subject { blobs, other, .. }: Subject<'_>) {
    for round in 0..20 {
        let name = format!("turn/{round}");
        let (one, two) = if round % 2 == 0 { (blobs, other) } else { (other, blobs) };
        assert_eq!(two.length(&name).expect("known"), None);
        assert!(one.create(&name, name.as_bytes()).expect("create"));
        assert_eq!(two.list("turn/").expect("list").len(), round + 1, "a list after a creation");
        assert!(!two.create(&name, b"late").expect("create"));
        assert_eq!(read_all(two, &name), name.as_bytes());
    }
    blobs.delete("turn/7").expect("delete");
    assert!(!other.list("turn/").expect("list").contains(&"turn/7".to_owned()));
}

fn prefixes_end_anywhere(Subject { blobs, .. }: Subject<'_>) {
    for name in ["seg-2", "seg-10", "seg/1", "other.x", "segment/2/1"] {
        assert!(blobs.create(name, b"x").expect("create"));
    }
    assert_eq!(listed(blobs, "seg"), ["seg-10", "seg-2", "seg/1", "segment/2/1"]);
    assert_eq!(listed(blobs, "seg-"), ["seg-10", "seg-2"]);
    assert_eq!(listed(blobs, "segment/2"), ["segment/2/1"]);
    assert_eq!(listed(blobs, "segment/2/1"), ["segment/2/1"]);
    assert!(listed(blobs, "z").is_empty());
}
