//! Tests of `Blobs` in a directory of a device, one behaviour per function.

use std::sync::Arc;

use ::device::{Blobs, Device, LocalBlobs};

use super::DeviceUnderTest;

fn blobs(device: &Arc<dyn Device>) -> LocalBlobs {
    LocalBlobs::open(Arc::clone(device), "objects").expect("the directory is made")
}

fn read_all(blobs: &dyn Blobs, name: &str) -> Vec<u8> {
    let length = blobs.length(name).expect("known").expect("present");
    let mut bytes = vec![0; length as usize];
    assert_eq!(blobs.read_at(name, &mut bytes, 0).expect("readable"), bytes.len());
    bytes
}

/// The first to create a name wins, and the second changes nothing.
pub fn an_object_is_created_once<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let blobs = blobs(&device);
    assert_eq!(blobs.length("a").expect("known"), None);
    assert!(blobs.create("a", b"first").expect("create"));
    assert!(!blobs.create("a", b"second").expect("create"));
    assert_eq!(read_all(&blobs, "a"), b"first");
    assert!(blobs.create("empty", b"").expect("create"));
    assert_eq!(blobs.length("empty").expect("known"), Some(0));
    assert_eq!(device.list("objects").expect("list"), ["a", "empty"], "nothing is left over");
}

/// Names come sorted.
pub fn objects_are_listed_by_prefix<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let blobs = blobs(&device);
    assert!(blobs.list("").expect("list").is_empty());
    for name in ["seg-2", "seg-10", "other.x", "seg_1"] {
        assert!(blobs.create(name, b"x").expect("create"));
    }
    assert_eq!(blobs.list("").expect("list"), ["other.x", "seg-10", "seg-2", "seg_1"]);
    assert_eq!(blobs.list("seg-").expect("list"), ["seg-10", "seg-2"]);
    assert!(blobs.list("z").expect("list").is_empty());
    let again = self::blobs(&device);
    assert_eq!(again.list("").expect("list").len(), 4);
}

/// Reads are positional and end with the object.
pub fn an_object_is_read_in_ranges<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let blobs = blobs(&device);
    let bytes: Vec<u8> = (0..50_000_u32).map(|n| (n % 251) as u8).collect();
    assert!(blobs.create("a", &bytes).expect("create"));
    let mut buffer = [0; 1000];
    assert_eq!(blobs.read_at("a", &mut buffer, 4321).expect("readable"), 1000);
    assert_eq!(buffer[..], bytes[4321..5321]);
    assert_eq!(blobs.read_at("a", &mut buffer, 49_990).expect("readable"), 10);
    assert_eq!(blobs.read_at("a", &mut buffer, 60_000).expect("readable"), 0);
    assert!(blobs.read_at("b", &mut buffer, 0).is_err_and(|error| error.is_not_found()));
    assert!(blobs.disk_bytes("a").expect("known") >= 50_000);
}

/// Deleting is final, may be repeated, and frees the name.
pub fn a_deleted_object_is_gone<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let blobs = blobs(&device);
    blobs.delete("a").expect("an absent one is fine");
    assert!(blobs.create("a", b"first").expect("create"));
    assert_eq!(read_all(&blobs, "a"), b"first");
    blobs.delete("a").expect("delete");
    blobs.delete("a").expect("delete");
    assert_eq!(blobs.length("a").expect("known"), None);
    let absent = blobs.read_at("a", &mut [0], 0);
    assert!(absent.is_err_and(|error| error.is_not_found()));
    assert!(blobs.create("a", b"second").expect("create"));
    assert_eq!(read_all(&blobs, "a"), b"second");
}

/// `adopt` turns a file into an object, unless the name is taken.
pub fn a_file_becomes_an_object<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let blobs = blobs(&device);
    device.create_dir("open").expect("create");
    for path in ["open/a", "top"] {
        device.create(path).expect("the file is new").write_at(b"bytes", 0).expect("space");
    }
    assert!(blobs.adopt("a", &*device, "open/a").expect("adopt"));
    assert_eq!(read_all(&blobs, "a"), b"bytes");
    assert!(device.list("open").expect("list").is_empty());
    assert!(!blobs.adopt("a", &*device, "top").expect("adopt"));
    assert_eq!(device.metadata("top").expect("known").expect("present").length, 5);
    assert!(blobs.adopt("b", &*device, "top").expect("adopt"));
    assert_eq!(blobs.list("").expect("list"), ["a", "b"]);
    let absent = blobs.adopt("c", &*device, "absent");
    assert!(absent.is_err_and(|error| error.is_not_found()));
}

/// An object that was being created before a crash is not listed, and does not block its name.
pub fn a_half_written_object_is_never_listed<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let blobs = blobs(&device);
    let staged = device.create("objects/a.staged").expect("the file is new");
    staged.write_at(b"half", 0).expect("there is space");
    assert!(blobs.list("").expect("list").is_empty());
    assert!(blobs.create("a", b"whole").expect("create"));
    assert_eq!(read_all(&blobs, "a"), b"whole");
    assert_eq!(device.list("objects").expect("list"), ["a"]);
}

/// A punched range reads as zero, and its space is freed.
pub fn a_punched_object_keeps_its_length<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let blobs = blobs(&device);
    assert!(blobs.create("a", &vec![3; 200_000]).expect("create"));
    let before = blobs.disk_bytes("a").expect("known");
    if blobs.punch("a", 8192, 100_000).expect("punch") {
        let mut expected = vec![3; 200_000];
        expected[8192..108_192].fill(0);
        assert_eq!(read_all(&blobs, "a"), expected);
        assert!(blobs.disk_bytes("a").expect("known") + 80_000 < before);
        assert_eq!(blobs.occupied("a", 8192, 98_304).expect("known"), 0);
        assert_eq!(blobs.occupied("a", 0, 8192).expect("known"), 8192);
    }
}

/// More objects can be read than files may be open.
pub fn more_objects_than_files_may_be_open<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let blobs = blobs(&device);
    for n in 0..600_u32 {
        assert!(blobs.create(&format!("{n}"), &n.to_le_bytes()).expect("create"));
    }
    for _ in 0..2 {
        for n in 0..600_u32 {
            assert_eq!(read_all(&blobs, &format!("{n}")), n.to_le_bytes());
        }
    }
}
