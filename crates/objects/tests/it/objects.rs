//! What `Blobs` promises, on a server.

use std::io::ErrorKind;

use device::{Blobs, Device, LocalDevice};
use objects::S3Bucket;

use super::{connect, fresh_prefix, open, place, server};

#[test]
fn an_object_is_created_at_most_once() {
    let blobs = open(&fresh_prefix());
    assert_eq!(blobs.length("a").unwrap(), None);
    assert!(blobs.create("a", b"first").unwrap());
    assert!(!blobs.create("a", b"second").unwrap());
    assert_eq!(blobs.length("a").unwrap(), Some(5));
    assert!(blobs.create("empty", b"").unwrap());
    assert_eq!(blobs.length("empty").unwrap(), Some(0));
    assert_eq!(blobs.list("").unwrap(), ["a", "empty"]);
}

#[test]
fn of_many_creators_of_a_name_one_succeeds() {
    let blobs = open(&fresh_prefix());
    let made: usize = device::scope(|scope| {
        let threads: Vec<_> = (0..8_u8)
            .map(|thread| {
                let blobs = &blobs;
                scope.spawn(move || usize::from(blobs.create("name", &[thread; 1000]).unwrap()))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(made, 1);
    let mut bytes = [255; 1000];
    assert_eq!(blobs.read_at("name", &mut bytes, 0).unwrap(), 1000);
    assert!(bytes.iter().all(|byte| *byte == bytes[0] && *byte < 8));
}

#[test]
fn objects_are_read_in_ranges_up_to_their_end() {
    let blobs = open(&fresh_prefix());
    let bytes: Vec<u8> = (0..50_000_u32).map(|n| (n % 251) as u8).collect();
    assert!(blobs.create("a", &bytes).unwrap());
    let mut buffer = [0; 1000];
    assert_eq!(blobs.read_at("a", &mut buffer, 4321).unwrap(), 1000);
    assert_eq!(buffer[..], bytes[4321..5321]);
    assert_eq!(blobs.read_at("a", &mut buffer, 49_990).unwrap(), 10);
    assert_eq!(blobs.read_at("a", &mut buffer, 60_000).unwrap(), 0);
    assert_eq!(blobs.read_at("a", &mut [], 0).unwrap(), 0);
    assert!(blobs.read_at("b", &mut buffer, 0).is_err_and(|error| error.is_not_found()));
    assert!(!blobs.punch("a", 0, 100).unwrap());
    assert_eq!(blobs.disk_bytes("a").unwrap(), 50_000);
    assert!(blobs.create("b", b"and another").unwrap());
    assert_eq!(blobs.disk_bytes_all().unwrap(), 50_011);
}

#[test]
fn a_deleted_object_is_gone_and_lists_are_of_a_prefix() {
    let blobs = open(&fresh_prefix());
    for name in ["seg-2", "seg-10", "other.x", "seg_1"] {
        assert!(blobs.create(name, b"x").unwrap());
    }
    assert_eq!(blobs.list("").unwrap(), ["other.x", "seg-10", "seg-2", "seg_1"]);
    assert_eq!(blobs.list("seg-").unwrap(), ["seg-10", "seg-2"]);
    blobs.delete("seg-2").unwrap();
    blobs.delete("seg-2").unwrap();
    assert_eq!(blobs.list("seg-").unwrap(), ["seg-10"]);
    assert!(blobs.create("seg-2", b"again").unwrap());
}

#[test]
fn more_objects_than_a_part_of_a_list_has_are_listed() {
    let blobs = open(&fresh_prefix());
    let names: Vec<String> = (0..1100).map(|n| format!("n{n:05}")).collect();
    for name in &names {
        assert!(blobs.create(name, b"").unwrap());
    }
    assert_eq!(blobs.list("n").unwrap(), names);
}

#[test]
fn a_file_becomes_an_object() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let device = LocalDevice::open(directory.path()).unwrap();
    let blobs = open(&fresh_prefix());
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 253) as u8).collect();
    device.create("file").unwrap().write_at(&bytes, 0).unwrap();
    assert!(blobs.adopt("a", &device, "file").unwrap());
    assert!(device.metadata("file").unwrap().is_none());
    let mut found = vec![0; bytes.len()];
    assert_eq!(blobs.read_at("a", &mut found, 0).unwrap(), bytes.len());
    assert!(found == bytes, "all of the file is in the object");
    device.create("other").unwrap().write_at(b"other", 0).unwrap();
    assert!(!blobs.adopt("a", &device, "other").unwrap());
    assert_eq!(device.metadata("other").unwrap().unwrap().length, 5);
    let error = blobs.adopt("b", &device, "absent").expect_err("there is no such file");
    assert_eq!((error.kind, error.path.as_str()), (ErrorKind::NotFound, "absent"), "{error}");
}

#[test]
fn a_server_that_overwrites_is_refused() {
    let endpoint = server::start_careless();
    let place = S3Bucket { endpoint, ..place(&fresh_prefix()) };
    let error = connect(&place).err().expect("refused");
    assert!(error.to_string().contains("overwrites"), "{error}");
}

#[test]
fn a_missing_server_is_an_error() {
    let endpoint = format!("http://127.0.0.1:{}", testing::unused_port());
    let place = S3Bucket { endpoint, ..place("x/") };
    let refused = |place: &S3Bucket| connect(place).err().expect("there is no server").to_string();
    let error = refused(&place);
    assert!(error.contains(&place.endpoint), "names no server: {error}");
    let place = S3Bucket { endpoint: "no server".to_owned(), ..place };
    let error = refused(&place);
    assert!(error.contains("no server"), "names no server: {error}");
}

/// Each finds out for itself whether the server heeds conditions.
#[test]
fn many_clients_may_open_a_prefix_at_once() {
    let prefix = fresh_prefix();
    device::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| drop(open(&prefix)));
        }
    });
    assert_eq!(open(&prefix).list("").unwrap(), Vec::<String>::new());
}
