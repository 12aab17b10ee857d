//! Directories that were removed, with their contents, when a base of the index was made. Contents
//! can return by a move out of a removed directory, or by a clone of one below. A roll-back may
//! also have taken one away from a clone that shares its tree with a snapshot. Then searches find
//! them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use device::Clock;
use fs::{Engine, FileSystem, Fs, NewNode, OpenOptions, RenameMode};
use inode::{Caller, Kind, NodeId};
use store::Durability;
use testing::SimDevice;

use crate::script;
use crate::search::compare;
use crate::subject::{Base, FsSubject};

on_each_engine!(
    what_is_moved_out_of_a_removed_directory_is_found,
    a_clone_of_what_is_in_a_removed_directory_is_searched,
    what_was_rolled_back_beside_a_snapshot_is_found_there,
);

const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };

/// No base is made but those that are requested.
fn options() -> OpenOptions {
    let mut options = script::options(Durability::Async);
    let index = options.index.as_mut().expect("an index");
    index.flush.rows_min = 1 << 30;
    index.flush.age = Duration::from_secs(1 << 30);
    options
}

fn directory(fs: &Fs, parent: NodeId, name: &[u8]) -> NodeId {
    fs.mkdir(&Caller::root(), parent, name, 0o755).expect("there is space").node
}

fn files(fs: &Fs, directories: &[NodeId], count: u32) {
    for number in 0..count {
        let name = format!("f{number}");
        for &directory in directories {
            fs.mknod(&Caller::root(), directory, name.as_bytes(), &FILE).expect("there is space");
        }
    }
}

fn what_is_moved_out_of_a_removed_directory_is_found(engine: Engine) {
    for (earlier, later) in [(false, false), (true, false), (true, true)] {
        let device = SimDevice::new(1);
        let subject = FsSubject::format(&device, &options(), &Base::Engine(engine));
        let (fs, root) = (subject.fs(), Caller::root());
        let live = directory(fs, NodeId::ROOT, b"live");
        let gone = directory(fs, NodeId::ROOT, b"gone");
        let within = directory(fs, gone, b"within");
        let moved = directory(fs, within, b"moved");
        let below = directory(fs, moved, b"below");
        files(fs, &[live, moved, below], 30);
        if earlier {
            fs.index_flush(NodeId::ROOT).expect("a base is made");
        }
        fs.rmr(&root, NodeId::ROOT, b"gone").expect("it goes");
        fs.index_flush(NodeId::ROOT).expect("a base is made");
        let mut random = fastrand::Rng::with_seed(1);
        let place = format!("{engine:?}, {earlier}, {later}");
        compare(fs, &mut random, 20, &format!("{place}: removed"));
        let (from, to) = ((within, &b"moved"[..]), (live, &b"moved"[..]));
        fs.rename(&root, from, to, RenameMode::Replace).expect("it moves");
        if later {
            fs.index_flush(NodeId::ROOT).expect("a base is made");
        }
        compare(fs, &mut random, 40, &format!("{place}: moved"));
    }
}

fn a_clone_of_what_is_in_a_removed_directory_is_searched(engine: Engine) {
    let device = SimDevice::new(1);
    let subject = FsSubject::format(&device, &options(), &Base::Engine(engine));
    let (fs, root) = (subject.fs(), Caller::root());
    let gone = directory(fs, NodeId::ROOT, b"gone");
    let within = directory(fs, gone, b"within");
    let below = directory(fs, within, b"below");
    files(fs, &[gone, within, below], 30);
    fs.rmr(&root, NodeId::ROOT, b"gone").expect("it goes");
    fs.index_flush(NodeId::ROOT).expect("a base is made");
    fs.clone_dir(&root, within, NodeId::ROOT, b"clone")
        .expect("the caller may clone its working directory");
    let mut random = fastrand::Rng::with_seed(1);
    compare(fs, &mut random, 40, &format!("{engine:?}"));
}

/// A snapshot of a clone is pruned by taking the tree, and the base, of the clone that was.
fn what_was_rolled_back_beside_a_snapshot_is_found_there(engine: Engine) {
    let mut wrong = Vec::new();
    for steps in 8..18 {
        let device = SimDevice::new(1);
        let options = OpenOptions { prune_records: 16, ..options() };
        let subject = FsSubject::format(&device, &options, &Base::Engine(engine));
        let (fs, root) = (subject.fs(), Caller::root());
        let beside = directory(fs, NodeId::ROOT, b"beside");
        let source = directory(fs, NodeId::ROOT, b"source");
        let within = directory(fs, source, b"within");
        let below = directory(fs, within, b"below");
        files(fs, &[beside], 300);
        files(fs, &[source, within, below], 10);
        let clone = fs.clone_dir(&root, source, NodeId::ROOT, b"clone").expect("a clone").root;
        let held = fs.lookup(&root, clone, b"within").expect("it is there").node;
        fs.lookup(&root, held, b"below").expect("it is there");
        fs.snapshot_create(&root, held, b"before").expect("there is space");
        fs.snapshot_create(&root, clone, b"all").expect("there is space");
        for number in 0..300 {
            fs.unlink(&root, beside, format!("f{number}").as_bytes()).expect("it is there");
        }
        for _ in 0..steps {
            fs.background_step(16).expect("it goes");
        }
        fs.rollback(&root, held, b"before").expect("it goes back");
        fs.index_flush(clone).expect("a base is made");
        for _ in 0..300 {
            subject.clock().sleep(Duration::from_millis(100));
            fs.background_step(64).expect("it goes");
        }
        let mut random = fastrand::Rng::with_seed(1);
        let place = format!("{engine:?}, {steps} steps");
        let compared = || compare(fs, &mut random, 20, &place);
        if catch_unwind(AssertUnwindSafe(compared)).is_err() {
            wrong.push(steps);
        }
    }
    assert!(wrong.is_empty(), "{engine:?}: after {wrong:?} steps");
}
