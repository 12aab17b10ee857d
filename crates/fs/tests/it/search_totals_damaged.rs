//! Totals when part of the volume cannot be read. The base is looked up at the places that changed
//! only for speed, so damage there does not prevent an answer.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use device::Clock;
use fs::{Engine, FileSystem, Fs, NewNode, OpenOptions};
use inode::{Caller, Kind, NodeId, SetAttr};
use search::aggregate::Question;
use search::cluster::Fields;
use search::query::Expr;
use search::{Start, index};
use store::Durability;
use testing::SimDevice;

use crate::script;
use crate::search::{Everybody, everything_below};
use crate::subject::{Base, FsSubject};

on_each_engine!(damage_of_what_a_base_had_does_not_keep_totals_from_being_reported);

const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
const DIRECTORIES: usize = 160;
const FILES: usize = 25;
/// How far apart the bits are that are flipped.
const STEP: usize = 4096;

fn options() -> OpenOptions {
    let mut options = script::options(Durability::Async);
    let index = options.index.as_mut().expect("an index");
    index.limits = index::ClusterLimits { directories: 8, rows: 250 };
    index.flush.rows_min = usize::MAX / 2;
    index.flush.interval = Duration::from_secs(1 << 20);
    options
}

/// A volume that was closed, with a base, and a few changes since.
fn closed(engine: Engine) -> (SimDevice, Base) {
    let device = SimDevice::new(1);
    let subject = FsSubject::format(&device, &options(), &Base::Engine(engine));
    let (fs, root) = (subject.fs(), Caller::root());
    let mut files = Vec::new();
    for directory in 0..DIRECTORIES {
        let name = format!("d{directory}");
        let made = fs.mkdir(&root, NodeId::ROOT, name.as_bytes(), 0o755).expect("space").node;
        for file in 0..FILES {
            let name = format!("f{file}");
            files.push(fs.mknod(&root, made, name.as_bytes(), &FILE).expect("space").node);
        }
    }
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    fs.sync_all().expect("it syncs");
    // One in a cluster: those are read from the tree of the base.
    for file in files.iter().step_by(8 * FILES) {
        subject.clock().sleep(Duration::from_millis(1));
        let set = SetAttr { size: Some(12_345), ..SetAttr::default() };
        fs.setattr(&root, *file, &set).expect("a file");
    }
    fs.close().expect("it closes");
    let base = subject.base().clone();
    drop(subject);
    (device, base)
}

/// Whether a search of everything completes.
fn searches(fs: &Fs) -> bool {
    let expr = Expr::yes();
    let root = Caller::root();
    let request = everything_below(fs, NodeId::ROOT, &root, (&expr, Fields::ATTRIBUTES));
    fs.search(&request, &mut |_| ControlFlow::Continue(())).is_ok()
}

/// Fails if a volume that can be walked and searched does not return its totals; returns whether it
/// can.
fn check(fs: &Fs, place: &str) -> bool {
    let Ok((subvolume, directory)) = fs.search_place(NodeId::ROOT) else { return false };
    let question = Question {
        start: Start { subvolume, directory, path: b"/", depth: 0 },
        caller: &Caller::root(),
        accounts: &Everybody,
        directories: None,
        largest: 3,
        groups: true,
        cancel: &AtomicBool::new(false),
    };
    // First, for what others read is in memory then.
    let reported = fs.aggregate(&question);
    let Ok(walked) = fs.aggregate_by_walking(&question) else { return false };
    if !searches(fs) {
        return false;
    }
    let reported = reported.unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_eq!(reported.total, walked.total, "{place}");
    assert_eq!(reported.largest, walked.largest, "{place}");
    true
}

fn damage_of_what_a_base_had_does_not_keep_totals_from_being_reported(engine: Engine) {
    let (device, base) = closed(engine);
    let (mut whole, mut failed) = (0, 0);
    for (path, _) in device.files() {
        if path.starts_with(index::DIRECTORY) || path.starts_with("log/") {
            continue;
        }
        for (block, bytes) in device.read_file(&path).chunks(STEP).enumerate() {
            let Some(at) = bytes.iter().position(|byte| *byte != 0) else { continue };
            let damaged = device.copy();
            damaged.flip_bit(&path, ((block * STEP + at) * 8) as u64);
            let Ok(subject) = FsSubject::open(&damaged, &options(), &base) else { continue };
            let checked = check(subject.fs(), &format!("{engine:?}: block {block} of {path}"));
            *(if checked { &mut whole } else { &mut failed }) += 1;
        }
    }
    assert!(whole > 0 && failed > 0, "{whole} and {failed}");
}
