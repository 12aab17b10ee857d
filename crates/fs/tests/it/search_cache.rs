//! The cluster cache keeps its budget of bytes under queries over many more clusters than fit. Its
//! own count shows that, and what is read from the disk again.

use std::ops::ControlFlow;

use device::Device;
use fs::{Engine, FileSystem, Fs, NewNode, OpenOptions};
use inode::{Caller, Kind, NodeId};
use search::Outcome;
use search::cluster::Fields;
use search::index::{ClusterLimits, DIRECTORY, IndexStats};
use search::query::{Expr, Glob, Letters, Test};
use store::Durability;
use testing::SimDevice;

use crate::script;
use crate::search::{compare, everything_below};
use crate::subject::{Base, FsSubject};

const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
const DIRECTORIES: usize = 100;
const FILES: usize = 100;

/// The index has so many bytes, and each directory a cluster.
fn options(cache_bytes: usize) -> OpenOptions {
    let mut options = script::options(Durability::Async);
    options.checkpoint_bytes = 4 << 20;
    // All disk reads are the index's.
    options.cache_bytes = 64 << 20;
    let index = options.index.as_mut().expect("an index");
    index.limits = ClusterLimits { directories: 2, rows: FILES as u32 + 50 };
    index.cache_bytes = cache_bytes;
    options
}

/// A disk with many clusters on it.
fn disk(engine: Engine) -> (SimDevice, Base) {
    let device = SimDevice::new(1);
    let subject = FsSubject::format(&device, &options(64 << 20), &Base::Engine(engine));
    let (fs, root) = (subject.fs(), Caller::root());
    for number in 0..DIRECTORIES {
        let name = format!("d{number}");
        let directory = fs.mkdir(&root, NodeId::ROOT, name.as_bytes(), 0o755).expect("space").node;
        for file in 0..FILES {
            let name = format!("file{number}-{file}");
            let made = fs.mknod(&root, directory, name.as_bytes(), &FILE).expect("space");
            fs.forget(made.node, 1);
        }
    }
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    fs.close().expect("it closes");
    (device, subject.base().clone())
}

fn search(fs: &Fs, expr: &Expr) -> Outcome {
    let root = Caller::root();
    let request = everything_below(fs, NodeId::ROOT, &root, (expr, Fields::ATTRIBUTES));
    fs.search(&request, &mut |_| ControlFlow::Continue(())).expect("a search")
}

fn named(pattern: &str) -> Expr {
    let glob = Glob::new(pattern.as_bytes(), false, Letters::Bytes);
    Expr::Test(Test::Name(glob.expect("a pattern")))
}

fn stats(fs: &Fs) -> IndexStats {
    fs.index_stats().expect("it answers").expect("there is an index")
}

/// Bytes that a search of all rows has read of the disk.
fn read_by_all(device: &SimDevice, fs: &Fs) -> u64 {
    let before = device.counts().read_bytes;
    let found = search(fs, &Expr::yes());
    assert_eq!(found.matched as usize, DIRECTORIES * (FILES + 1) + 1);
    assert!(found.clusters_read as usize >= DIRECTORIES, "{found:?}");
    device.counts().read_bytes - before
}

/// Fails unless clusters take no more than what other parts of the index leave, or an eighth.
#[track_caller]
fn check(fs: &Fs, cache_bytes: usize) {
    let stats = stats(fs);
    let left = (cache_bytes as u64).saturating_sub(stats.base_bytes + stats.delta_bytes);
    assert!(stats.cluster_bytes <= left.max(cache_bytes as u64 / 8), "{cache_bytes}: {stats:?}");
}

#[test]
fn cached_clusters_stay_within_their_budget() {
    for engine in Engine::ALL {
        let (device, base) = disk(engine);
        let open = |bytes: usize| {
            let copy = device.copy();
            let subject = FsSubject::open(&copy, &options(bytes), &base).expect("it opens");
            // The base is in memory then.
            assert_eq!(search(subject.fs(), &named("nowhere")).matched, 0);
            (copy, subject)
        };
        // All fit: nothing is read twice.
        let (copy, subject) = open(64 << 20);
        let first = read_by_all(&copy, subject.fs());
        let all = stats(subject.fs());
        assert_eq!(read_by_all(&copy, subject.fs()), 0);
        assert!(first > 100 << 10 && all.clusters as usize >= DIRECTORIES, "{first}: {all:?}");

        // A tenth fits, so that no more than a tenth is not read again.
        let budget = (all.base_bytes + all.cluster_bytes / 10) as usize;
        let (copy, subject) = open(budget);
        let fs = subject.fs();
        for round in 0..4 {
            let read = read_by_all(&copy, fs);
            check(fs, budget);
            assert!(read >= first / 10 * 8, "{engine:?}, {round}: {read} of {first} bytes read");
            for pattern in ["file1*", "*-7", "file99-9", "d?"] {
                assert!(search(fs, &named(pattern)).matched > 0);
                check(fs, budget);
            }
        }
        compare(fs, &mut fastrand::Rng::with_seed(1), 20, "with a small cache");
        check(fs, budget);
        // Clusters that cannot be read are made again in memory, and take the more for it.
        for name in copy.list(DIRECTORY).expect("it lists") {
            if name.starts_with("cluster-") {
                copy.remove(&format!("{DIRECTORY}/{name}")).expect("it goes");
            }
        }
        for _ in 0..2 {
            assert_eq!(search(fs, &named("file*-7")).matched as usize, DIRECTORIES);
            check(fs, budget);
        }
    }
}
