//! Guarantees of the simulated disk, and their limits.

use device::Device;

use testing::sim::{CrashPolicy, Fault, FaultOn, Op, SimDevice};

fn contents(device: &SimDevice) -> Vec<(String, Vec<u8>)> {
    device.files().into_iter().map(|(path, _)| (path.clone(), device.read_file(&path))).collect()
}

fn lost(device: &SimDevice) -> Vec<(String, Vec<u8>)> {
    contents(&device.after_crash(CrashPolicy::LoseAll, 0))
}

#[test]
fn a_synced_file_may_be_lost_until_its_directory_is_synced() {
    let device = SimDevice::new(1);
    let file = device.create("a").unwrap();
    file.write_at(b"x", 0).unwrap();
    file.sync_data().unwrap();
    assert!(lost(&device).is_empty());
    device.sync_dir("").unwrap();
    assert_eq!(lost(&device), [("a".to_owned(), b"x".to_vec())]);
}

#[test]
fn bytes_and_length_are_lost_until_the_file_is_synced() {
    let device = SimDevice::new(1);
    let file = device.create("a").unwrap();
    device.sync_dir("").unwrap();
    file.write_at(b"one", 0).unwrap();
    assert_eq!(lost(&device)[0].1, b"");
    file.sync_data().unwrap();
    file.write_at(b"two and more", 0).unwrap();
    assert_eq!(lost(&device)[0].1, b"one");
    let kept = device.after_crash(CrashPolicy::KeepAll, 0);
    assert_eq!(contents(&kept)[0].1, b"two and more");
}

#[test]
fn a_torn_write_is_torn_at_sectors() {
    let device = SimDevice::new(1);
    let file = device.create("a").unwrap();
    device.sync_dir("").unwrap();
    file.write_at(&[1; 4096], 0).unwrap();
    file.sync_data().unwrap();
    file.write_at(&[2; 2048], 1024).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..1000 {
        let after = device.after_crash(CrashPolicy::Random, seed).read_file("a");
        for sector in after.chunks(512) {
            assert!(sector.iter().all(|byte| *byte == sector[0]));
        }
        assert!(after[..1024].iter().chain(&after[3072..]).all(|byte| *byte == 1));
        seen.insert(after);
    }
    assert_eq!(seen.len(), 16);
}

#[test]
fn a_rename_between_directories_never_loses_both_names() {
    let device = SimDevice::new(1);
    device.create_dir("d").unwrap();
    device.create("a").unwrap();
    device.sync_dir("").unwrap();
    device.rename("a", "d/b").unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let names: Vec<_> = contents(&device.after_crash(CrashPolicy::Random, seed))
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert!(!names.is_empty());
        seen.insert(names);
    }
    assert_eq!(seen.len(), 3);
    device.sync_dir("").unwrap();
    assert_eq!(lost(&device)[0].0, "d/b");
}

#[test]
fn space_is_accounted_by_blocks() {
    let device = SimDevice::new(1);
    device.set_capacity(Some(4 * 4096));
    let file = device.create("a").unwrap();
    file.allocate(0, 3 * 4096).unwrap();
    assert!(file.allocate(3 * 4096, 2 * 4096).unwrap_err().is_no_space());
    file.write_at(&[1; 3 * 4096], 0).unwrap();
    assert!(file.write_at(&[1; 8192], 3 * 4096).unwrap_err().is_no_space());
    assert_eq!(file.len().unwrap(), 4 * 4096, "the part that fits is written");
    assert!(file.punch(4096, 8192).unwrap());
    assert_eq!(device.used_bytes(), 2 * 4096);
    file.write_at(&[1; 100], 5000).unwrap();
    assert_eq!(device.space().unwrap().free_bytes, 4096);
    device.remove("a").unwrap();
    assert_eq!(device.used_bytes(), 3 * 4096, "an open file keeps its space");
    drop(file);
    assert_eq!(device.used_bytes(), 0);
}

#[test]
fn power_is_cut_at_the_named_operation() {
    let device = SimDevice::new(1);
    let file = device.create("a").unwrap();
    device.crash_at(2);
    file.write_at(b"x", 0).unwrap();
    assert!(file.read_at(&mut [0], 0).is_ok());
    for cut in [file.write_at(b"y", 1).map(drop), file.read_at(&mut [0], 0).map(drop)] {
        assert!(cut.is_err_and(|error| error.message.contains("power")));
    }
    assert!(device.has_crashed());
    assert_eq!(contents(&device.after_crash(CrashPolicy::KeepAll, 0))[0].1, b"x");
}

#[test]
fn a_failed_sync_is_not_repaired_by_the_next() {
    let mut lost_some = false;
    for seed in 0..20 {
        let device = SimDevice::new(seed);
        let file = device.create("a").unwrap();
        device.sync_dir("").unwrap();
        file.write_at(b"x", 0).unwrap();
        device.inject(Fault::io(FaultOn::Only(Op::Sync), 0));
        let failed = file.sync_data().unwrap_err();
        assert_eq!(failed.operation, "sync", "{failed}");
        file.sync_data().unwrap();
        assert_eq!(device.read_file("a"), b"x");
        lost_some |= lost(&device)[0].1.is_empty();
    }
    assert!(lost_some);
}

#[test]
fn a_lock_is_held_once() {
    let device = SimDevice::new(1);
    let lock = device.try_lock("owner").unwrap().unwrap();
    assert!(device.try_lock("owner").unwrap().is_none());
    lock.describe("pid 1").unwrap();
    drop(lock);
    assert!(device.try_lock("owner").unwrap().is_some());
    assert_eq!(device.read_file("owner"), b"pid 1");
}

#[test]
fn a_watcher_sees_every_crash_point() {
    let device = SimDevice::new(1);
    let (send, receive) = device::sync::channel();
    device.watch(move |before, op| send.send((op, before.files().len())).unwrap());
    let file = device.create("a").unwrap();
    file.write_at(b"x", 0).unwrap();
    device.unwatch();
    assert_eq!(receive.iter().collect::<Vec<_>>(), [(0, 0), (1, 1)]);
}

#[test]
fn a_held_call_does_not_block_others() {
    let device = SimDevice::new(1);
    device.hold(Fault::io(FaultOn::Only(Op::Create), 1).below("slow"));
    let names = || device.files().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    let (held, others, before) = device::scope(|scope| {
        scope.spawn(|| ["slow-1", "slow-2"].map(|path| device.create(path).is_ok()));
        let held = device.is_held_within(std::time::Duration::from_secs(60));
        let others = ["other", "slow-3"].map(|path| device.create(path).is_ok());
        let before = names();
        device.let_go();
        (held, others, before)
    });
    assert!(held && others == [true, true]);
    assert_eq!(before, ["other", "slow-1", "slow-3"]);
    assert_eq!(names(), ["other", "slow-1", "slow-2", "slow-3"]);
    assert!(!device.is_held_within(std::time::Duration::ZERO));
}
