//! Tests of `Device` and `File`, one behaviour per function.

use std::io::ErrorKind;

use ::device::{Device, File};

use super::DeviceUnderTest;

/// The whole file.
pub(super) fn read_all(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0xaa; file.len().expect("the length is known") as usize + 1];
    let read = file.read_at(&mut bytes, 0).expect("the file is readable");
    assert_eq!(read + 1, bytes.len(), "a read ends where the file ends");
    bytes.truncate(read);
    bytes
}

fn write(device: &dyn Device, path: &str, bytes: &[u8]) {
    let file = device.create(path).expect("the file is new");
    file.write_at(bytes, 0).expect("there is space");
}

/// `create` rejects an existing name, `open` a missing one.
pub fn a_file_is_created_once_and_opened_where_it_is<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    assert!(device.open("a").is_err_and(|error| error.is_not_found()));
    assert_eq!(device.metadata("a").expect("known"), None);
    let file = device.create("a").expect("the file is new");
    assert!(file.is_empty().expect("known"));
    file.write_at(b"hello", 0).expect("there is space");
    file.sync_data().expect("sync");
    device.sync_dir("").expect("sync");
    let again = device.create("a").err().expect("it exists");
    assert_eq!(again.kind, ErrorKind::AlreadyExists);
    let file = device.open("a").expect("it is there");
    assert_eq!(read_all(&*file), b"hello");
    let found = device.metadata("a").expect("known").expect("present");
    assert_eq!((found.length, found.directory), (5, false));
}

/// A read across the end is short; one that starts there is empty.
pub fn reads_end_where_the_file_ends<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let file = device.create("a").expect("the file is new");
    file.write_at(&[7; 10_000], 0).expect("there is space");
    let mut buffer = [0; 100];
    assert_eq!(file.read_at(&mut buffer, 9950).expect("readable"), 50);
    assert_eq!(buffer[..50], [7; 50]);
    assert_eq!(file.read_at(&mut buffer, 10_000).expect("readable"), 0);
    assert_eq!(file.read_at(&mut buffer, 1 << 40).expect("readable"), 0);
    assert_eq!(file.read_at(&mut [], 5).expect("readable"), 0);
    file.write_at(&[], 20_000).expect("nothing is written");
    assert_eq!(file.len().expect("known"), 10_000);
}

/// Bytes between the old end and a write beyond it are zero.
pub fn a_gap_reads_as_zero<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let file = device.create("a").expect("the file is new");
    file.write_at(b"a", 0).expect("there is space");
    file.write_at(b"z", 100_000).expect("there is space");
    let mut expected = vec![0; 100_001];
    expected[0] = b'a';
    expected[100_000] = b'z';
    assert_eq!(read_all(&*file), expected);
    assert!(file.disk_bytes().expect("known") < 64 << 10, "a gap takes no space");
}

/// What `set_len` truncates reads as zero when the file grows again.
pub fn a_cut_file_forgets_what_was_cut<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let file = device.create("a").expect("the file is new");
    file.write_at(&vec![9; 20_000], 0).expect("there is space");
    file.set_len(5000).expect("cut");
    assert_eq!(file.len().expect("known"), 5000);
    file.set_len(20_000).expect("grown");
    let mut expected = vec![9; 5000];
    expected.resize(20_000, 0);
    assert_eq!(read_all(&*file), expected);
    file.set_len(0).expect("cut");
    assert_eq!(file.disk_bytes().expect("known"), 0);
}

/// `allocate` reserves space and grows the file; existing bytes stay.
pub fn reserved_space_is_allocated_and_reads_as_zero<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let file = device.create("a").expect("the file is new");
    file.write_at(b"here", 0).expect("there is space");
    file.allocate(0, 1 << 20).expect("there is space");
    assert_eq!(file.len().expect("known"), 1 << 20);
    assert!(file.disk_bytes().expect("known") >= 1 << 20);
    assert_eq!(read_all(&*file)[..5], *b"here\0");
    file.allocate(100, 100).expect("there is space");
    assert_eq!(file.len().expect("known"), 1 << 20);
    assert!(file.allocate(0, 0).is_err_and(|error| error.kind == ErrorKind::InvalidInput));
}

/// `punch` zeroes exactly the range, frees whole blocks, and leaves the length.
pub fn a_punched_range_reads_as_zero_and_is_free<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let file = device.create("a").expect("the file is new");
    file.write_at(&vec![5; 1 << 20], 0).expect("there is space");
    file.sync_data().expect("sync");
    let before = file.disk_bytes().expect("known");
    if !file.punch(1000, 900_000).expect("punch") {
        // A disk without support for it leaves everything unchanged.
        assert_eq!(read_all(&*file), vec![5; 1 << 20]);
        return;
    }
    let mut expected = vec![5; 1 << 20];
    expected[1000..901_000].fill(0);
    assert_eq!(read_all(&*file), expected);
    assert!(file.disk_bytes().expect("known") + 800_000 < before);
    assert!(file.punch((1 << 20) - 100, 1 << 20).expect("punch"), "across the end");
    assert_eq!(file.len().expect("known"), 1 << 20);
    file.write_at(&[6; 10], 5000).expect("there is space");
    expected[5000..5010].fill(6);
    let end = expected.len();
    expected[end - 100..].fill(0);
    assert_eq!(read_all(&*file), expected);
    assert!(file.punch(0, 0).is_err_and(|error| error.kind == ErrorKind::InvalidInput));
}

/// Punched ranges occupy no space, and all others do.
pub fn holes_are_reported<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let file = device.create("a").expect("the file is new");
    file.write_at(&vec![5; 1 << 20], 0).expect("there is space");
    let occupied = |offset, length| file.occupied(offset, length).expect("known");
    assert_eq!(occupied(0, 1 << 20), 1 << 20);
    assert_eq!(occupied((1 << 20) - 4096, 8192), 4096, "across the end");
    assert_eq!(occupied(1 << 20, 4096), 0, "beyond the end");
    if file.punch(65_536, 131_072).expect("punch") {
        assert_eq!(occupied(65_536, 131_072), 0);
        assert_eq!(occupied(0, 1 << 20), (1 << 20) - 131_072);
        assert_eq!(occupied(61_440, 8192), 4096);
        file.write_at(&[6; 4096], 131_072).expect("there is space");
        assert_eq!(occupied(65_536, 131_072), 4096);
    }
}

/// Directories are created one level at a time and list their names sorted.
pub fn directories_list_their_names_in_order<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    assert!(device.list("").expect("list").is_empty());
    assert!(device.create_dir("a/b").is_err_and(|error| error.is_not_found()));
    device.create_dir("a").expect("create");
    device.create_dir("a").expect("an existing one is fine");
    device.create_dir("a/b").expect("create");
    for name in ["z", "c", "m-1", "m.2"] {
        device.create(&format!("a/{name}")).expect("the file is new");
    }
    device.sync_dir("a").expect("sync");
    device.sync_dir("").expect("sync");
    assert_eq!(device.list("").expect("list"), ["a"]);
    assert_eq!(device.list("a").expect("list"), ["b", "c", "m-1", "m.2", "z"]);
    assert!(device.list("a/b").expect("list").is_empty());
    assert!(device.list("x").is_err_and(|error| error.is_not_found()));
    assert!(device.list("a/c").is_err_and(|error| error.kind == ErrorKind::NotADirectory));
    assert!(device.sync_dir("x").is_err_and(|error| error.is_not_found()));
    assert!(device.create("x/y").is_err_and(|error| error.is_not_found()));
    assert!(device.create("a/c/d").is_err_and(|error| error.kind == ErrorKind::NotADirectory));
    assert!(device.create_dir("a/c").is_err_and(|error| error.kind == ErrorKind::AlreadyExists));
    let found = device.metadata("a").expect("known").expect("present");
    assert_eq!((found.length, found.directory), (0, true));
    assert!(device.open("a").is_err_and(|error| error.kind == ErrorKind::IsADirectory));
}

/// A rename replaces the target; handles follow the file, not the name.
pub fn a_rename_replaces_and_keeps_handles<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    device.create_dir("d").expect("create");
    write(&*device, "a", b"new");
    write(&*device, "d/b", b"old");
    let (new, old) = (device.open("a").expect("open"), device.open("d/b").expect("open"));
    device.rename("a", "d/b").expect("rename");
    assert_eq!(device.list("").expect("list"), ["d"]);
    assert_eq!(device.list("d").expect("list"), ["b"]);
    assert_eq!(read_all(&*device.open("d/b").expect("open")), b"new");
    new.write_at(b"er", 3).expect("there is space");
    assert_eq!(read_all(&*device.open("d/b").expect("open")), b"newer");
    assert_eq!(read_all(&*old), b"old");
    device.rename("d/b", "d/b").expect("onto itself");
    device.rename("d/b", "d/c").expect("rename");
    assert_eq!(device.list("d").expect("list"), ["c"]);
    assert!(device.rename("absent", "a").is_err_and(|error| error.is_not_found()));
    assert!(device.rename("d/c", "e/c").is_err_and(|error| error.is_not_found()));
}

/// The bytes of a removed file exist until its last handle is closed.
pub fn a_removed_file_stays_while_it_is_open<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    write(&*device, "a", b"old");
    let file = device.open("a").expect("open");
    device.remove("a").expect("remove");
    assert!(device.open("a").is_err_and(|error| error.is_not_found()));
    assert!(device.remove("a").is_err_and(|error| error.is_not_found()));
    write(&*device, "a", b"another");
    assert_eq!(read_all(&*file), b"old");
    file.write_at(b"er", 3).expect("there is space");
    file.sync_data().expect("sync");
    assert_eq!(read_all(&*file), b"older");
    assert_eq!(read_all(&*device.open("a").expect("open")), b"another");
    device.create_dir("d").expect("create");
    assert!(device.remove("d").is_err_and(|error| error.kind == ErrorKind::IsADirectory));
}

/// An error names the operation and the path as the caller gave them.
pub fn errors_name_the_operation_and_the_file<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let error = device.open("some/file").err().expect("it is not there");
    assert_eq!((error.operation, error.path.as_str()), ("open", "some/file"));
    assert!(error.to_string().contains("some/file"));
    assert!(error.os.is_some() && !error.is_no_space());
    let error = device.remove("file").expect_err("it is not there");
    assert_eq!((error.operation, error.path.as_str()), ("remove", "file"));
}

/// One guard at a time holds a lock, and the lock's file has the holder's text.
pub fn a_lock_has_one_holder<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let lock = device.try_lock("owner").expect("lock").expect("it is free");
    assert!(device.try_lock("owner").expect("lock").is_none());
    lock.describe("a long description").expect("describe");
    lock.describe("pid 7").expect("describe");
    assert_eq!(read_all(&*device.open("owner").expect("open")), b"pid 7");
    drop(lock);
    drop(device.try_lock("owner").expect("lock").expect("it is free again"));
}

/// The reported disk space is plausible.
pub fn space_is_reported<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let space = device.space().expect("known");
    assert!(space.total_bytes > 0 && space.free_bytes <= space.total_bytes);
}

/// Reads and writes are positional: threads share one handle.
pub fn files_are_shared_by_threads<D: DeviceUnderTest>() {
    let (device, _guard) = D::create();
    let file = device.create("a").expect("the file is new");
    file.set_len(4 * 10_000).expect("grow");
    device::scope(|scope| {
        for thread in 0..4_u64 {
            let file = &file;
            scope.spawn(move || {
                for round in 1..20_u8 {
                    let bytes = vec![round; 10_000];
                    file.write_at(&bytes, thread * 10_000).expect("there is space");
                    let mut back = vec![0; 10_000];
                    let read = file.read_at(&mut back, thread * 10_000).expect("readable");
                    assert!(read == back.len() && back == bytes);
                }
            });
        }
    });
    assert_eq!(read_all(&*file), vec![19; 40_000]);
}
