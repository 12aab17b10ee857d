//! Which files of objects are kept open.

use std::sync::Arc;

use device::{Blobs, LocalBlobs};
use testing::{Op, SimDevice};

/// Of more objects than are kept open, those that are read again and again are not opened anew,
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
