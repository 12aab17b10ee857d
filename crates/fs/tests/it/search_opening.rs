//! Opening a volume reads nothing of its index, and no more if the index has more files.

use std::ops::ControlFlow;

use fs::{Engine, FileSystem, Fs, NewNode};
use inode::{Caller, Kind, NodeId};
use search::cluster::Fields;
use search::index::DIRECTORY;
use search::query::Expr;
use search::{Outcome, Request};
use store::Durability;
use testing::{Fault, FaultOn, Op, SimDevice};

use crate::script::options;
use crate::search::everything_below;
use crate::subject::{Base, FsSubject};

const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };

/// A volume with so many files in directories of a hundred, and an index, closed.
fn closed(engine: Engine, files: usize) -> (SimDevice, Base) {
    let device = SimDevice::new(1);
    let subject = FsSubject::format(&device, &options(Durability::Async), &Base::Engine(engine));
    let (fs, root) = (subject.fs(), Caller::root());
    for number in 0..files / 100 {
        let name = format!("d{number}");
        let made = fs.mkdir(&root, NodeId::ROOT, name.as_bytes(), 0o755).expect("space").node;
        for number in 0..100 {
            let name = format!("f{number}");
            let file = fs.mknod(&root, made, name.as_bytes(), &FILE).expect("space");
            fs.forget(file.node, 1);
        }
    }
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    fs.close().expect("it closes");
    (device, subject.base().clone())
}

/// Fails the next read of a file of the index, which is how it is known that there was none.
fn watch(device: &SimDevice) {
    device.inject(Fault::io(FaultOn::Only(Op::Read), 0).below(&format!("{DIRECTORY}/")));
}

fn search(fs: &Fs, top: NodeId) -> Outcome {
    let (all, root) = (Expr::yes(), Caller::root());
    let below = everything_below(fs, top, &root, (&all, Fields::NONE));
    let request = Request { min_depth: 1, ..below };
    fs.search(&request, &mut |_| ControlFlow::Continue(())).expect("a search")
}

/// Opens a volume; how often the disk was read, and how many bytes.
fn opening(engine: Engine, files: usize) -> (u64, u64) {
    let (device, base) = closed(engine, files);
    let copy = device.copy();
    watch(&copy);
    let subject = FsSubject::open(&copy, &options(Durability::Async), &base).expect("it opens");
    let counts = copy.counts();
    assert!(copy.faults_left(), "{engine:?}: opening read of the index");
    copy.clear_faults();
    // There is something to read, and a query reads it.
    let found = search(subject.fs(), NodeId::ROOT);
    assert_eq!(found.matched as usize, files + files / 100, "{engine:?}");
    assert!(found.clusters_read as usize >= files / 100, "{engine:?}: {found:?}");
    let again = device.copy();
    let subject = FsSubject::open(&again, &options(Durability::Async), &base).expect("it opens");
    watch(&again);
    assert_eq!(search(subject.fs(), NodeId::ROOT).matched, found.matched, "{engine:?}");
    assert!(!again.faults_left(), "{engine:?}: a read of the index was not seen");
    (counts.of(Op::Read), counts.read_bytes)
}

#[test]
fn opening_reads_the_same_however_many_files_there_are() {
    for engine in Engine::ALL {
        let (few, many) = (opening(engine, 1000), opening(engine, 10_000));
        println!("{engine:?}: {few:?} and {many:?} reads and bytes");
        assert_eq!(few.0, many.0, "{engine:?}: reads");
        // A manifest has its numbers as short as they are.
        assert!(few.1.abs_diff(many.1) < 64, "{engine:?}: {few:?} and {many:?} reads and bytes");
    }
}

/// A clone of a directory learns from the base that it inherits what it has below itself. The base
/// is read once for that and for the query.
#[test]
fn the_first_query_of_a_clone_reads_its_base_once() {
    for engine in Engine::ALL {
        let (device, base) = closed(engine, 2000);
        let mut options = options(Durability::Async);
        options.index.as_mut().expect("an index").threads = 4;
        let subject = FsSubject::open(&device, &options, &base).expect("it opens");
        let (fs, root) = (subject.fs(), Caller::root());
        let source = fs.lookup(&root, NodeId::ROOT, b"d1").expect("a directory").node;
        fs.clone_dir(&root, source, NodeId::ROOT, b"clone").expect("a clone");
        fs.close().expect("it closes");
        drop(subject);
        let subject = FsSubject::open(&device, &options, &base).expect("it opens");
        let clone = subject.fs().lookup(&root, NodeId::ROOT, b"clone").expect("it is there").node;
        let second = Fault::io(FaultOn::Only(Op::Read), 1);
        device.inject(second.below(&format!("{DIRECTORY}/manifest-")));
        assert_eq!(search(subject.fs(), clone).matched, 100, "{engine:?}");
        assert!(device.faults_left(), "{engine:?}: the manifest was read again");
        device.clear_faults();
    }
}
