//! The first of Magellan's conditions for writing clusters (4.1): memory is full. Queries hold in
//! memory what differs from a base. If that would exceed its limit, a new base is made; no other
//! condition is met here.

use std::ops::ControlFlow;
use std::time::Duration;

use device::{Clock, Device};
use fs::{Engine, FileSystem, Fs, NewNode, OpenOptions};
use inode::{Caller, Kind, NodeId, SetAttr};
use search::cluster::Fields;
use search::query::Expr;
use search::{Outcome, Request};
use store::Durability;
use testing::SimDevice;

use crate::script;
use crate::search::{compare, everything_below};
use crate::subject::{Base, FsSubject};

const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
const FILES: usize = 3000;
/// Memory of the index. A row that differs is thought to take 400 bytes of it.
const SMALL: usize = 400 * 500;

/// Neither a share of the base nor its age makes a new one due.
fn options(cache_bytes: usize) -> OpenOptions {
    let mut options = script::options(Durability::Async);
    options.checkpoint_bytes = 4 << 20;
    let index = options.index.as_mut().expect("an index");
    index.limits = search::index::ClusterLimits { directories: 50, rows: 500 };
    index.cache_bytes = cache_bytes;
    index.rows_without_base = 100;
    index.flush.rows_min = 1_000_000;
    index.flush.age = Duration::from_secs(1 << 30);
    index.flush.commits = 10;
    options
}

/// A volume with a base, and nothing that differs.
struct Volume {
    device: SimDevice,
    subject: FsSubject,
    files: Vec<NodeId>,
    /// Files that were changed.
    changed: usize,
}

impl Volume {
    fn new(engine: Engine, cache_bytes: usize) -> Volume {
        let device = SimDevice::new(1);
        let subject = FsSubject::format(&device, &options(cache_bytes), &Base::Engine(engine));
        let (fs, root) = (subject.fs(), Caller::root());
        let mut files = Vec::new();
        for number in 0..FILES / 100 {
            let name = format!("d{number}");
            let made = fs.mkdir(&root, NodeId::ROOT, name.as_bytes(), 0o755).expect("space").node;
            for number in 0..100 {
                let name = format!("f{number}");
                files.push(fs.mknod(&root, made, name.as_bytes(), &FILE).expect("space").node);
            }
        }
        fs.index_flush(NodeId::ROOT).expect("a flush goes well");
        let volume = Volume { device, subject, files, changed: 0 };
        volume.settle();
        volume
    }

    /// Changes so many files that were not changed.
    fn change(&mut self, files: usize) {
        let change = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        for file in &self.files[self.changed..self.changed + files] {
            self.subject.fs().setattr(&Caller::root(), *file, &change).expect("a file");
        }
        self.changed += files;
    }

    /// Lets a minute pass, in which the background does what it does.
    fn settle(&self) {
        for _ in 0..300 {
            self.subject.clock().sleep(Duration::from_millis(200));
            self.subject.fs().background_step(64).expect("background work goes well");
        }
    }

    fn manifests(&self) -> Vec<String> {
        let files = self.device.list(search::index::DIRECTORY).expect("it lists");
        files.into_iter().filter(|name| name.starts_with("manifest-")).collect()
    }

    /// A base is there that all but so many rows are as in.
    #[track_caller]
    fn check(&self, differing: u64, place: &str) {
        let fs = self.subject.fs();
        let found = search(fs);
        assert_eq!(found.matched as usize, FILES + FILES / 100, "{place}");
        assert!(found.clusters > 0 && found.clusters_read > 0, "{place}: {found:?}");
        let stats = fs.index_stats().expect("it answers").expect("there is an index");
        assert_eq!(stats.delta_rows, differing, "{place}");
        compare(fs, &mut fastrand::Rng::with_seed(1), 10, place);
    }
}

fn search(fs: &Fs) -> Outcome {
    let (all, root) = (Expr::yes(), Caller::root());
    let below = everything_below(fs, NodeId::ROOT, &root, (&all, Fields::ATTRIBUTES));
    let request = Request { min_depth: 1, ..below };
    fs.search(&request, &mut |_| ControlFlow::Continue(())).expect("a search")
}

#[test]
fn a_base_is_built_when_differences_exceed_memory() {
    for engine in Engine::ALL {
        let mut volume = Volume::new(engine, SMALL);
        let before = volume.manifests();
        assert_eq!(before.len(), 1, "{engine:?}: {before:?}");
        volume.change(400);
        volume.settle();
        assert_eq!(volume.manifests(), before, "{engine:?}: there is memory for 400 rows");
        volume.change(200);
        volume.settle();
        assert_ne!(volume.manifests(), before, "{engine:?}: there is none for 600 rows");
        volume.check(0, &format!("{engine:?}"));
    }
}

#[test]
fn a_base_is_built_when_queries_hold_more_than_memory() {
    for engine in Engine::ALL {
        let mut volume = Volume::new(engine, SMALL);
        let before = volume.manifests();
        volume.change(300);
        volume.check(300, &format!("{engine:?}, few"));
        volume.settle();
        assert_eq!(volume.manifests(), before, "{engine:?}: there is memory for 300 rows");
        volume.change(400);
        search(volume.subject.fs());
        volume.settle();
        assert_ne!(volume.manifests(), before, "{engine:?}: there is none for 700 rows");
        volume.check(0, &format!("{engine:?}, many"));
    }
}

#[test]
fn changes_that_fit_in_memory_trigger_no_base() {
    for engine in Engine::ALL {
        let mut volume = Volume::new(engine, 64 << 20);
        let before = volume.manifests();
        volume.change(700);
        volume.settle();
        volume.check(700, &format!("{engine:?}"));
        volume.settle();
        assert_eq!(volume.manifests(), before, "{engine:?}");
    }
}
