//! Which files of objects are kept open.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use device::{Blobs, Device, LocalBlobs, LocalDevice};
use testing::{Op, SimDevice};

/// If there are more objects than are kept open, those that are read often are not opened again,
/// whatever their names are.
#[test]
fn objects_that_are_read_often_stay_open() {
    let device = SimDevice::new(1);
    let blobs = LocalBlobs::open(Arc::new(device.clone()), "objects").unwrap();
    let names: Vec<String> = (0..600).map(|n| format!("{n:04}")).collect();
    for name in &names {
        assert!(blobs.create(name, b"bytes").unwrap());
    }
    let read = |name: &str| assert_eq!(blobs.read_at(name, &mut [0; 5], 0).unwrap(), 5);
    let often = &names[0];
    let before = device.counts().of(Op::Open);
    for name in &names[1..] {
        read(often);
        read(name);
    }
    assert_eq!(device.counts().of(Op::Open) - before, 600, "each once");
}

/// Runs a test of this file again in a process of its own, and returns whether this is that one.
fn in_a_process_of_its_own(test: &str) -> bool {
    const CHILD: &str = "PANDO_TEST_FEW_DESCRIPTORS";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let child = child.args(["--exact", &format!("blobs_open::{test}")]).env(CHILD, "1");
    let child = child.output().unwrap();
    let printed = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && printed.contains("1 passed"), "{printed}");
    false
}

/// Leaves this process 64 descriptors.
fn limit_descriptors() {
    let few = rustix::process::Rlimit { current: Some(64), maximum: Some(64) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
}

/// A process that may have few descriptors reads more objects than that: those that were kept open
/// are closed, where an error was returned before. In a process of its own, as the limit is of all.
#[test]
fn when_descriptors_run_out_cached_files_are_closed() {
    if !in_a_process_of_its_own("when_descriptors_run_out_cached_files_are_closed") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let device = Arc::new(LocalDevice::open(directory.path()).unwrap());
    let all = [(); 2].map(|()| {
        let device: Arc<dyn Device> = Arc::<LocalDevice>::clone(&device);
        LocalBlobs::open(device, "blobs").unwrap()
    });
    for number in 0..200 {
        assert!(all[0].create(&number.to_string(), b"text").unwrap());
    }
    limit_descriptors();
    for number in 0..200 {
        let mut text = [0; 4];
        // Both keep files open, and each has the other's closed.
        for blobs in &all {
            assert_eq!(blobs.read_at(&number.to_string(), &mut text, 0).unwrap(), 4);
            assert_eq!(&text, b"text");
        }
    }
    assert!(all[0].create("more", b"text").unwrap());
}

/// The calls of the standard library by which a daemon gets descriptors: `accept`, and a second
/// handle of a connection. Each closes cached files when none is left, and fails when there are no
/// such files either.
#[test]
fn a_connection_is_accepted_when_cached_files_have_all_descriptors() {
    if !in_a_process_of_its_own("a_connection_is_accepted_when_cached_files_have_all_descriptors") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let device: Arc<dyn Device> = Arc::new(LocalDevice::open(directory.path()).unwrap());
    let blobs = LocalBlobs::open(device, "blobs").unwrap();
    for number in 0..100 {
        assert!(blobs.create(&number.to_string(), b"text").unwrap());
    }
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let mut streams: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
    limit_descriptors();
    let is_full = |error: &std::io::Error| {
        error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error())
    };
    // Cached files get what is free. (Which of them are kept is not stated.)
    let fill = || {
        for number in 0..40 {
            blobs.read_at(&number.to_string(), &mut [0; 4], 0).unwrap();
        }
        let mut rest = Vec::new();
        loop {
            match listener.try_clone() {
                Ok(more) => rest.push(more),
                Err(error) => break assert!(is_full(&error), "{error}"),
            }
        }
        rest
    };
    let rest = fill();
    assert!(is_full(&listener.accept().unwrap_err()), "none is left");
    let (accepted, _) = device::with_a_descriptor(|| listener.accept()).unwrap();
    drop(rest);
    let rest = fill();
    let second = device::with_a_descriptor(|| accepted.try_clone()).unwrap();
    drop(rest);
    // Both are of a connection that waited.
    (&second).write_all(b"text").unwrap();
    let mut text = [0; 4];
    streams[0].read_exact(&mut text).unwrap();
    assert_eq!(&text, b"text");
    // Nothing is cached: the error is that of the call, and no connection is lost by it.
    let mut rest = fill();
    let (other, _) = device::with_a_descriptor(|| listener.accept()).unwrap();
    while let Ok(more) = listener.try_clone() {
        rest.push(more);
    }
    assert!(is_full(&device::with_a_descriptor(|| listener.accept()).unwrap_err()));
    drop((other, rest));
    device::with_a_descriptor(|| listener.accept()).unwrap();
}
