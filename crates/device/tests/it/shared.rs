//! Objects in a directory that several processes use: all requirements of shared stores, and what
//! kills and power cuts leave.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use device::{Blobs, Device, LocalBlobs, LocalDevice, SharedDir, SystemClock, SystemRandom};
use testing::blobs_conformance::{CASES, Subject};
use testing::{CrashPolicy, SeededRandom, SimClock, SimDevice};

fn open(device: Arc<dyn Device>) -> SharedDir {
    SharedDir::open(device, Arc::new(SystemClock::new()), Arc::new(SystemRandom)).unwrap()
}

fn simulated(device: &SimDevice, seed: u64) -> SharedDir {
    let random = Arc::new(SeededRandom::new(seed));
    SharedDir::open(Arc::new(device.clone()), Arc::new(SimClock::new()), random).unwrap()
}

/// All objects, by name.
pub(crate) fn contents(blobs: &dyn Blobs) -> BTreeMap<String, Vec<u8>> {
    let read = |name: String| {
        let mut bytes = vec![0; blobs.length(&name).unwrap().unwrap() as usize];
        assert_eq!(blobs.read_at(&name, &mut bytes, 0).unwrap(), bytes.len());
        (name, bytes)
    };
    blobs.list("").unwrap().into_iter().map(read).collect()
}

#[test]
fn a_shared_directory_meets_all_requirements() {
    for (name, case) in CASES {
        println!("{name}");
        let (shared, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let device = || Arc::new(LocalDevice::open(shared.path()).unwrap());
        let (blobs, other) = (open(device()), open(device()));
        let device: &dyn Device = &LocalDevice::open(own.path()).unwrap();
        case(Subject { blobs: &blobs, other: &other, device });
        let left = std::fs::read_dir(shared.path().join(".staged"));
        assert_eq!(left.map_or(0, Iterator::count), 0, "nothing unfinished is left");
    }
}

#[test]
fn a_simulated_shared_directory_meets_all_requirements() {
    for (name, case) in CASES {
        println!("{name}");
        let (shared, own) = (SimDevice::new(1), SimDevice::new(2));
        let (blobs, other) = (simulated(&shared, 3), simulated(&shared, 4));
        case(Subject { blobs: &blobs, other: &other, device: &own });
    }
}

/// The store of one process meets those requirements that one process can have.
#[test]
fn objects_of_one_process_have_names_in_parts() {
    for (name, case) in CASES.into_iter().filter(|(name, _)| !name.contains("many creators")) {
        println!("{name}");
        let (disk, own) = (SimDevice::new(1), SimDevice::new(2));
        let open = || LocalBlobs::open(Arc::new(disk.clone()), "objects").unwrap();
        let blobs = open();
        case(Subject { blobs: &blobs, other: &blobs, device: &disk });
        let found = contents(&blobs);
        let lost = disk.after_crash(CrashPolicy::LoseAll, 1);
        let after = LocalBlobs::open(Arc::new(lost), "objects").unwrap();
        assert_eq!(contents(&after), found, "with the directories of their names");
        drop(own);
    }
}

/// At each operation of a creation the power is cut, for the creator and for another process that
/// creates the same name. What either learned is true afterwards, and every object is whole.
#[test]
fn what_a_process_learned_of_an_object_outlives_a_power_cut() {
    for seed in 0..30 {
        let device = SimDevice::new(seed);
        let (send, receive) = device::sync::channel();
        device.watch(move |image, _| send.send(image.copy()).unwrap());
        let blobs = simulated(&device, seed);
        assert!(blobs.create("log/1/1", &[1; 5000]).unwrap());
        let done = device.ops();
        assert!(blobs.create("log/2/1", &[2; 5000]).unwrap());
        device.unwatch();
        drop(blobs);
        for (op, image) in receive.iter().enumerate() {
            for policy in CrashPolicy::ALL {
                let found = contents(&simulated(&image.after_crash(policy, seed), seed + 1));
                assert!(op < done as usize || found.contains_key("log/1/1"), "{op} {policy:?}");
                for (name, bytes) in found {
                    let byte = if name == "log/1/1" { 1 } else { 2 };
                    assert_eq!(bytes, [byte; 5000]);
                }
                // The creator was killed, and the power is cut after another process has looked.
                let image = image.copy();
                let other = simulated(&image, seed + 2);
                let learned = match seed % 4 {
                    0 => other.create("log/1/1", &[1; 5000]).map(|_| true),
                    1 => other.list("log/").map(|names| names.contains(&"log/1/1".to_owned())),
                    2 => other.length("log/1/1").map(|length| length.is_some()),
                    _ => Ok(other.read_at("log/1/1", &mut [0; 9], 0).is_ok()),
                };
                let after = simulated(&image.after_crash(policy, seed), seed + 3);
                let there = after.list("log/").unwrap().contains(&"log/1/1".to_owned());
                assert!(there || !learned.unwrap(), "{op} {policy:?} {}", seed % 4);
            }
        }
    }
}

/// What a killed process was writing is removed a day later, and not while it may still be written.
#[test]
fn unfinished_files_are_removed_after_a_day() {
    let device = SimDevice::new(1);
    let clock = Arc::new(SimClock::new());
    let random = Arc::new(SeededRandom::new(1));
    let blobs = SharedDir::open(Arc::new(device.clone()), clock.clone(), random).unwrap();
    assert_eq!(blobs.remove_stale().unwrap(), 0);
    let (send, receive) = device::sync::channel();
    device.watch(move |image, _| send.send(image.copy()).unwrap());
    assert!(blobs.create("a", b"bytes").unwrap());
    device.unwatch();
    let images: Vec<SimDevice> = receive.iter().collect();
    let killed = images
        .iter()
        .rev()
        .find(|image| image.list(".staged").is_ok_and(|names| !names.is_empty()));
    let killed = killed.expect("a moment before the rename");
    let random = Arc::new(SeededRandom::new(2));
    let blobs = SharedDir::open(Arc::new(killed.clone()), clock.clone(), random).unwrap();
    assert!(blobs.list("").unwrap().is_empty());
    assert_eq!(blobs.remove_stale().unwrap(), 0);
    clock.advance(Duration::from_secs(24 * 3600 + 1));
    assert_eq!(blobs.remove_stale().unwrap(), 1);
    assert!(killed.list(".staged").unwrap().is_empty());
    assert!(blobs.create("a", b"bytes").unwrap());
}
