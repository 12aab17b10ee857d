//! What power cuts leave of objects in a directory.

use std::sync::Arc;

use device::{Blobs, Device, LocalBlobs};
use testing::{CrashPolicy, SimDevice};

use crate::shared::contents;

fn open(device: &SimDevice) -> LocalBlobs {
    LocalBlobs::open(Arc::new(device.clone()), "objects").unwrap()
}

#[test]
fn an_object_is_durable_and_whole_when_create_returns() {
    for seed in 0..50 {
        let device = SimDevice::new(seed);
        let (send, receive) = device::sync::channel();
        device.watch(move |image, _| send.send(image.copy()).unwrap());
        let blobs = open(&device);
        assert!(blobs.create("a", &[1; 5000]).unwrap());
        let done = device.ops();
        assert!(blobs.create("b", &[2; 5000]).unwrap());
        device.unwatch();
        drop(blobs);
        for (op, image) in receive.iter().enumerate() {
            for policy in CrashPolicy::ALL {
                let found = contents(&open(&image.after_crash(policy, seed)));
                assert!(op < done as usize || found.contains_key("a"), "{op} {policy:?}");
                for (name, bytes) in found {
                    let byte = if name == "a" { 1 } else { 2 };
                    assert_eq!(bytes, [byte; 5000]);
                }
            }
        }
    }
}

#[test]
fn an_interrupted_adoption_leaves_the_file_or_the_object_or_both() {
    for seed in 0..50 {
        let device = SimDevice::new(seed);
        let blobs = open(&device);
        device.create_dir("open").unwrap();
        device.sync_dir("").unwrap();
        let file = device.create("open/a").unwrap();
        file.write_at(&[1; 5000], 0).unwrap();
        file.sync_data().unwrap();
        device.sync_dir("open").unwrap();
        let (send, receive) = device::sync::channel();
        device.watch(move |image, _| send.send(image.copy()).unwrap());
        assert!(blobs.adopt("a", &device, "open/a").unwrap());
        device.unwatch();
        for image in &receive {
            for policy in CrashPolicy::ALL {
                let after = image.after_crash(policy, seed);
                let file = after.metadata("open/a").unwrap().is_some();
                let blobs = open(&after);
                let object = contents(&blobs);
                assert!(file || object.contains_key("a"), "{policy:?}");
                if file {
                    // A caller that finds both may call again.
                    blobs.adopt("a", &after, "open/a").unwrap();
                }
                assert_eq!(contents(&blobs)["a"], [1; 5000]);
            }
        }
        let lost = device.after_crash(CrashPolicy::LoseAll, seed);
        assert_eq!(contents(&open(&lost))["a"], [1; 5000]);
    }
}
