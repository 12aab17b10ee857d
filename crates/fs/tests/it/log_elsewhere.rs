//! A log on a disk of its own, and the space of the two: neither can use that of the other.

use std::sync::Arc;

use device::Env;
use fs::{Engine, FileSystem, FormatOptions, Fs, FsResult, NewNode, OpenOptions};
use inode::{Caller, FsError, Kind, NodeId};
use testing::{SplitDevice, sim_env};

use crate::trash::listed;

on_each_engine!(a_quota_that_could_not_be_set_is_not_there);

const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
/// Half of it is more than metadata leaves free.
const BYTES: usize = 2_000_000;

/// A volume with some files in its trash, and one that has a name.
fn volume(engine: Engine) -> (SplitDevice, Arc<Fs>) {
    let device = SplitDevice::new(1);
    let sim = sim_env(1);
    let env = Env { device: Arc::new(device.clone()), ..sim.env() };
    let options = FormatOptions { engine, ..FormatOptions::default() };
    Fs::format(&env, &options).expect("two empty media");
    let options =
        OpenOptions { index: None, log_segment_bytes: 256 << 10, ..OpenOptions::default() };
    let fs = Fs::open(env, &options).expect("it was made just now");
    let root = Caller::root();
    fs.trash_set(&root, NodeId::ROOT, Some(86_400)).expect("a trash");
    for hour in 0..5 {
        let name = format!("f{hour}");
        file(&fs, name.as_bytes(), BYTES).expect("there is space");
        if hour < 4 {
            fs.unlink(&root, NodeId::ROOT, name.as_bytes()).expect("it is kept");
            sim.clock.advance(std::time::Duration::from_secs(3600));
        }
    }
    fs.sync().expect("there is space");
    (device, fs)
}

fn file(fs: &Fs, name: &[u8], bytes: usize) -> FsResult<()> {
    let root = Caller::root();
    let node = fs.mknod(&root, NodeId::ROOT, name, &FILE)?.node;
    let written = if bytes > 0 { fs.write(&root, node, 0, &vec![7; bytes]) } else { Ok(()) };
    fs.forget(node, 1);
    written
}

/// Creations on a full disk of the log had the whole trash deleted, hour by hour, and were
/// refused all the same.
#[test]
fn a_full_log_disk_purges_no_trash() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let (device, fs) = volume(engine);
        let kept = listed(&fs, NodeId::ROOT);
        assert_eq!(kept.len(), 4, "{engine:?}: {kept:?}");
        device.log.set_capacity(Some(device.log.used_bytes()));
        let refused = (0..100_000).find_map(|n| file(&fs, format!("n{n}").as_bytes(), 0).err());
        assert!(matches!(refused, Some(FsError::NoSpace)), "{engine:?}: {refused:?}");
        for n in 0..5 {
            let again = file(&fs, format!("again{n}").as_bytes(), 0);
            assert!(matches!(again, Err(FsError::NoSpace)), "{engine:?}: {again:?}");
        }
        assert_eq!(listed(&fs, NodeId::ROOT), kept, "{engine:?}");
        // What is removed is kept, or stays where it was.
        let removed = fs.unlink(&Caller::root(), NodeId::ROOT, b"f4");
        let there = listed(&fs, NodeId::ROOT).len() + usize::from(removed.is_err());
        assert_eq!(there, kept.len() + 1, "{engine:?}: {removed:?}");
        device.log.set_capacity(None);
        file(&fs, b"space", 0).unwrap_or_else(|error| panic!("{engine:?}: {error}"));
    }
}

/// A quota that could not be set for lack of space is in force nowhere.
fn a_quota_that_could_not_be_set_is_not_there(engine: Engine) {
    let (device, fs) = volume(engine);
    let root = Caller::root();
    let dir = fs.mkdir(&root, NodeId::ROOT, b"d", 0o755).expect("there is space").node;
    device.log.set_capacity(Some(device.log.used_bytes()));
    let refused = (0..100_000).find_map(|n| file(&fs, format!("n{n}").as_bytes(), 0).err());
    assert!(matches!(refused, Some(FsError::NoSpace)), "{refused:?}");
    let limits = fs::QuotaLimits { inodes: Some(1), bytes: None };
    let set = fs.quota_set(&root, dir, limits);
    assert!(matches!(set, Err(FsError::NoSpace)), "{set:?}");
    assert_eq!(fs.quota_list(&root).expect("a list"), []);
    device.log.set_capacity(None);
    for n in 0..2 {
        fs.mkdir(&root, dir, format!("n{n}").as_bytes(), 0o755).expect("no quota holds");
    }
    fs.quota_set(&root, dir, limits).expect("there is space");
    assert_eq!(fs.quota_list(&root).expect("a list").len(), 1);
}

/// Space for contents is still reclaimed from the trash.
#[test]
fn a_disk_full_of_contents_purges_the_oldest_hour() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let (device, fs) = volume(engine);
        device.volume.set_capacity(Some(device.volume.used_bytes() + BYTES as u64 / 2));
        file(&fs, b"more", BYTES).unwrap_or_else(|error| panic!("{engine:?}: {error}"));
        let left = listed(&fs, NodeId::ROOT).len();
        assert!((1..4).contains(&left), "{engine:?}: {left}");
    }
}
