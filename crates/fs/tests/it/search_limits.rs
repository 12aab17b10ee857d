//! Clusters of the index keep the limits that the volume sets for them. The test counts directories
//! and rows of each cluster in the files that a flush wrote.

use std::collections::BTreeSet;
use std::time::Duration;

use device::{Clock, Device};
use format::cluster_directories::Directories;
use format::manifest::{ClusterEntry, Manifest};
use fs::{Engine, FileSystem, Fs, NewNode, OpenOptions};
use inode::{Caller, FsError, Kind, NodeId, SetAttr};
use search::index::{ClusterLimits, DIRECTORY};
use store::Durability;
use testing::SimDevice;

use crate::script;
use crate::search::compare;
use crate::subject::{Base, FsSubject};

on_each_engine!(
    clones_and_snapshots_are_searched_by_clusters_of_other_limits,
    limits_that_make_no_sense_are_refused_and_change_nothing,
);

const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
const DIRECTORIES: usize = 120;
const LARGE: usize = 300;
/// Those of the tree, but for its root: directories with three files each, and a large one.
const ROWS: u32 = (DIRECTORIES * 4 + LARGE + 1) as u32;

/// The limits are those of the program.
fn options() -> OpenOptions {
    let mut options = script::options(Durability::Async);
    options.index.as_mut().expect("an index").limits = ClusterLimits::default();
    options
}

/// Directories in directories, four below each, and a large one.
fn fill(fs: &Fs) {
    let root = Caller::root();
    let file = |parent: NodeId, number: usize| {
        let made = fs.mknod(&root, parent, format!("f{number}").as_bytes(), &FILE).expect("space");
        fs.forget(made.node, 1);
    };
    let mut made = vec![NodeId::ROOT];
    for number in 0..DIRECTORIES {
        let (above, name) = (made[number / 4], format!("d{number}"));
        let directory = fs.mkdir(&root, above, name.as_bytes(), 0o755).expect("space").node;
        (0..3).for_each(|number| file(directory, number));
        made.push(directory);
    }
    let large = fs.mkdir(&root, NodeId::ROOT, b"large", 0o755).expect("space").node;
    (0..LARGE).for_each(|number| file(large, number));
}

fn read(device: &SimDevice, name: &str) -> Vec<u8> {
    device.read_file(&format!("{DIRECTORY}/{name}"))
}

/// The clusters of the only base, as its files have them.
fn entries(device: &SimDevice, fs: &Fs) -> Vec<ClusterEntry> {
    let names = device.list(DIRECTORY).expect("it lists");
    let manifests: Vec<_> =
        names.iter().filter_map(|name| Some((name, name.strip_prefix("manifest-")?))).collect();
    let [(name, base)] = manifests[..] else { panic!("one base is wanted: {names:?}") };
    let base = u64::from_str_radix(base, 16).expect("a number");
    let volume = fs.status().expect("it answers").id.0;
    Manifest::decode(&read(device, name), volume, base).expect("a manifest").clusters
}

/// Directories and rows of each cluster.
fn sizes(device: &SimDevice, fs: &Fs) -> Vec<(usize, u32)> {
    let entries = entries(device, fs);
    let sizes = entries.iter().map(|entry| {
        let name = format!("cluster-{:016x}-{:08x}", entry.owner, entry.number);
        let (bytes, at) = (read(device, &name), entry.cluster_bytes as usize);
        let bytes = &bytes[at..at + entry.directories_bytes as usize];
        let (mut directories, mut count) = (Directories::new(bytes), 0);
        while directories.read_next().expect("directories of a cluster").is_some() {
            count += 1;
        }
        (count, entry.rows)
    });
    sizes.collect()
}

/// Fails unless all clusters keep the limits, and are as full as that lets them be.
#[track_caller]
fn check(sizes: &[(usize, u32)], limits: ClusterLimits, rows: u32) {
    let ClusterLimits { directories, rows: most } = limits;
    assert_eq!(sizes.iter().map(|(_, rows)| rows).sum::<u32>(), rows);
    for &(inside, rows) in sizes {
        assert!(inside <= directories as usize, "{inside} directories of {directories}: {sizes:?}");
        assert!(rows <= most * 2, "{rows} rows of {most}: {sizes:?}");
    }
    let least = (DIRECTORIES as u32).div_ceil(directories).max(rows.div_ceil(most * 2)) as usize;
    assert!((least..=least * 6).contains(&sizes.len()), "{} clusters: {sizes:?}", sizes.len());
}

#[test]
fn clusters_are_rebuilt_when_their_limits_change() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let device = SimDevice::new(1);
        let subject = FsSubject::format(&device, &options(), &Base::Engine(engine));
        let fs = subject.fs();
        fill(fs);
        fs.index_flush(NodeId::ROOT).expect("a flush goes well");
        assert_eq!(fs.cluster_limits().expect("it answers"), ClusterLimits::default());
        assert_eq!(sizes(&device, fs), [(DIRECTORIES + 2, ROWS)]);
        for (directories, rows) in [(15, 40), (100, 10), (3, 1000), (40, 200), (1, 10)] {
            let limits = ClusterLimits { directories, rows };
            let set = fs.set_cluster_limits(Some(directories), Some(rows)).expect("it is set");
            assert_eq!((set, fs.cluster_limits().expect("it answers")), (limits, limits));
            // Nothing of the tree changed since the last.
            fs.index_flush(NodeId::ROOT).expect("a flush goes well");
            check(&sizes(&device, fs), limits, ROWS);
        }
        let set = fs.set_cluster_limits(Some(30), None).expect("it is set");
        assert_eq!(set, ClusterLimits { directories: 30, rows: 10 });
        let set = fs.set_cluster_limits(None, Some(100)).expect("it is set");
        let limits = ClusterLimits { directories: 30, rows: 100 };
        assert_eq!(set, limits);
        // In the background, without being asked.
        for _ in 0..100 {
            subject.clock().sleep(Duration::from_millis(200));
            fs.background_step(64).expect("background work goes well");
        }
        check(&sizes(&device, fs), limits, ROWS);
        fs.sync_all().expect("it syncs");
        reopened(&device, &subject, limits);
    }
}

/// What was set holds after the volume was closed, for what is written then.
fn reopened(device: &SimDevice, subject: &FsSubject, limits: ClusterLimits) {
    let copy = device.copy();
    let subject = FsSubject::open(&copy, &options(), subject.base()).expect("it opens");
    let (fs, root) = (subject.fs(), Caller::root());
    assert_eq!(fs.cluster_limits().expect("it answers"), limits);
    let written = |fs: &Fs| -> BTreeSet<(u64, u32)> {
        entries(&copy, fs).iter().map(|entry| (entry.owner, entry.number)).collect()
    };
    let before = written(fs);
    // The same again is no change, and clusters that nothing touched are taken over.
    fs.set_cluster_limits(Some(limits.directories), Some(limits.rows)).expect("it is set");
    let large = fs.lookup(&root, NodeId::ROOT, b"large").expect("it is there").node;
    let file = fs.lookup(&root, large, b"f7").expect("it is there").node;
    let change = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    fs.setattr(&root, file, &change).expect("a file");
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    let after = written(fs);
    assert!(after != before && after.intersection(&before).count() + 4 > before.len());
    for number in LARGE..2 * LARGE {
        let made = fs.mknod(&root, large, format!("f{number}").as_bytes(), &FILE);
        fs.forget(made.expect("space").node, 1);
    }
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    check(&sizes(&copy, fs), limits, ROWS + LARGE as u32);
    let mut random = fastrand::Rng::with_seed(3);
    compare(fs, &mut random, 60, "after the limits were set");
}

/// A clone keeps the clusters that it shares until it gets a base of its own.
fn clones_and_snapshots_are_searched_by_clusters_of_other_limits(engine: Engine) {
    let device = SimDevice::new(2);
    let subject = FsSubject::format(&device, &options(), &Base::Engine(engine));
    let (fs, root) = (subject.fs(), Caller::root());
    fill(fs);
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    let large = fs.lookup(&root, NodeId::ROOT, b"large").expect("it is there").node;
    let clone = fs.clone_dir(&root, large, NodeId::ROOT, b"clone").expect("a clone").root;
    fs.snapshot_create(&root, NodeId::ROOT, b"old").expect("a snapshot");
    fs.set_cluster_limits(Some(5), Some(20)).expect("it is set");
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    let mut random = fastrand::Rng::with_seed(2);
    compare(fs, &mut random, 60, "clusters of two limits");
    let clusters = || device.list(DIRECTORY).expect("it lists").len();
    let before = clusters();
    fs.index_flush(clone).expect("a flush goes well");
    // The clone has the large directory in at least so many clusters of its own.
    assert!(clusters() >= before + LARGE / 40, "{before} files, then {}", clusters());
    compare(fs, &mut random, 60, "clusters of the clone's own");
}

fn limits_that_make_no_sense_are_refused_and_change_nothing(engine: Engine) {
    let device = SimDevice::new(3);
    let subject = FsSubject::format(&device, &options(), &Base::Engine(engine));
    let fs = subject.fs();
    for (directories, rows) in [
        (Some(0), None),
        (Some(1_000_001), Some(100)),
        (None, Some(0)),
        (None, Some(9)),
        (Some(10), Some(1_000_001)),
    ] {
        let refused = fs.set_cluster_limits(directories, rows);
        let Err(FsError::InvalidArgument(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("1000000"), "{why}");
        assert_eq!(fs.cluster_limits().expect("it answers"), ClusterLimits::default());
    }
}
