//! Which files of objects are kept open.

use std::sync::Arc;

use device::{Blobs, Device, LocalBlobs, LocalDevice};
use testing::{Op, SimDevice};

/// Of more objects than are kept open, those that are read again and again are not opened again,
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

/// A process that may have few descriptors reads more objects than that: those that were kept open
/// are closed, where an error was returned before. In a process of its own, as the limit is of all.
#[test]
fn when_descriptors_run_out_cached_files_are_closed() {
    const CHILD: &str = "PANDO_TEST_FEW_DESCRIPTORS";
    if std::env::var_os(CHILD).is_none() {
        let name = "blobs_open::when_descriptors_run_out_cached_files_are_closed";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let child = child.args(["--exact", name]).env(CHILD, "1").output().unwrap();
        let printed = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && printed.contains("1 passed"), "{printed}");
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
    let few = rustix::process::Rlimit { current: Some(64), maximum: Some(64) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
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
