//! The requirements of all stores that several processes use: on the server of these tests, and on
//! what other tests use in its place.

use device::LocalDevice;
use testing::blobs_conformance::{CASES, Subject};
use testing::{FarBlobs, SimDevice, SimObjects};

use super::{fresh_prefix, open};

#[test]
fn the_server_meets_all_requirements() {
    for (name, case) in CASES {
        println!("{name}");
        let prefix = fresh_prefix();
        let (blobs, other) = (open(&prefix), open(&prefix));
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let device = LocalDevice::open(directory.path()).unwrap();
        case(Subject { blobs: &*blobs, other: &*other, device: &device });
    }
}

#[test]
fn objects_in_memory_meet_all_requirements() {
    for (name, case) in CASES {
        println!("{name}");
        let (far, device) = (FarBlobs::new(), SimDevice::new(1));
        case(Subject { blobs: &*far, other: &*far, device: &device });
        let (disk, device) = (SimDevice::new(2), SimDevice::new(3));
        let (blobs, other) =
            (SimObjects::below(&disk, "objects"), SimObjects::below(&disk, "objects"));
        case(Subject { blobs: &*blobs, other: &*other, device: &device });
    }
}
