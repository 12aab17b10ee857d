//! What queries of snapshots and clones read of bases. What a base shares with another one that was
//! searched is not read again. Of a base that covers more than the query, only the needed part is
//! read.

use std::ops::ControlFlow;

use fs::{Engine, FileSystem, Fs, NewNode};
use inode::{Caller, Kind, NodeId, SetAttr};
use search::Outcome;
use search::cluster::Fields;
use search::query::{Expr, Glob, Test};
use store::Durability;
use testing::{Op, SimDevice};

use crate::check::assert_clean;
use crate::script::options;
use crate::search::{compare, everything_below};
use crate::subject::{Base, FsSubject};

on_each_engine!(what_is_copied_of_a_removed_subvolume_names_no_base_that_went);

const DIRECTORIES: usize = 200;
const SNAPSHOTS: usize = 12;
const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };

/// Searches a directory for a name; returns the outcome.
fn search(fs: &Fs, node: NodeId, name: &[u8]) -> Outcome {
    let expr = Expr::Test(Test::Name(Glob::literal(name).expect("it is short")));
    let root = Caller::root();
    let request = everything_below(fs, node, &root, (&expr, Fields::NONE));
    let found = fs.search(&request, &mut |_| ControlFlow::Continue(())).expect("a search");
    assert!(found.clusters > DIRECTORIES as u64 / 8, "{found:?}");
    found
}

/// Directories with two files each; the files.
fn fill(fs: &Fs) -> Vec<NodeId> {
    let root = Caller::root();
    let mut files = Vec::new();
    for number in 0..DIRECTORIES {
        let name = format!("d{number}");
        let made = fs.mkdir(&root, NodeId::ROOT, name.as_bytes(), 0o755).expect("space").node;
        for file in [&b"one"[..], b"two"] {
            files.push(fs.mknod(&root, made, file, &FILE).expect("space").node);
        }
    }
    files
}

#[test]
fn bases_of_snapshots_are_read_only_where_they_differ() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let device = SimDevice::new(1);
        let subject =
            FsSubject::format(&device, &options(Durability::Async), &Base::Engine(engine));
        let (fs, root) = (subject.fs(), Caller::root());
        let files = fill(fs);
        for number in 0..SNAPSHOTS {
            let change = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            fs.setattr(&root, files[number * 7], &change).expect("a file");
            fs.index_flush(NodeId::ROOT).expect("a flush goes well");
            let name = format!("s{number:02}");
            fs.snapshot_create(&root, NodeId::ROOT, name.as_bytes()).expect("a snapshot");
        }
        fs.sync_all().expect("it syncs");
        let copy = device.copy();
        let again = FsSubject::open(&copy, &options(Durability::Async), subject.base());
        let again = again.expect("it opens");
        let fs = again.fs();
        let mut snapshots = fs.snapshot_list(&root, NodeId::ROOT).expect("it lists");
        snapshots.sort_by_key(|snapshot| snapshot.subvol);
        let mut reads = Vec::new();
        for snapshot in snapshots {
            let before = copy.counts().of(Op::Read);
            assert_eq!(search(fs, snapshot.root, b"nowhere").matched, 0);
            reads.push(copy.counts().of(Op::Read) - before);
        }
        assert_eq!(reads.len(), SNAPSHOTS);
        let others: u64 = reads[1..].iter().sum();
        assert!(others / (SNAPSHOTS as u64 - 1) < reads[0] / 4, "{engine:?}: {reads:?} reads");
        compare(fs, &mut fastrand::Rng::with_seed(1), 100, &format!("{engine:?}"));
    }
}

/// A clone of a directory was searched through all that its source's base has.
#[test]
fn a_search_of_a_directory_clone_excludes_its_siblings() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let device = SimDevice::new(1);
        let subject =
            FsSubject::format(&device, &options(Durability::Async), &Base::Engine(engine));
        let (fs, root) = (subject.fs(), Caller::root());
        fill(fs);
        fs.index_flush(NodeId::ROOT).expect("a flush goes well");
        let source = fs.lookup(&root, NodeId::ROOT, b"d7").expect("it is there").node;
        let clone = fs.clone_dir(&root, source, NodeId::ROOT, b"clone").expect("a clone").root;
        for _ in 0..2 {
            let found = search(fs, clone, b"one");
            assert_eq!(found.matched, 1, "{engine:?}");
            assert!(found.clusters_read < 3, "{engine:?}: {found:?}");
            let all = search(fs, NodeId::ROOT, b"one");
            assert_eq!(all.matched, DIRECTORIES as u64 + 1, "{engine:?}");
            // Again when what is beside it is taken out of its tree.
            subject.background(200).expect("background work goes well");
        }
        compare(fs, &mut fastrand::Rng::with_seed(2), 100, &format!("{engine:?}"));
    }
}

/// A removed subvolume that is still held keeps its base no longer than others name it. Snapshots
/// and clones of it that were taken after that named a missing base.
fn what_is_copied_of_a_removed_subvolume_names_no_base_that_went(engine: Engine) {
    let device = SimDevice::new(1);
    let subject = FsSubject::format(&device, &options(Durability::Async), &Base::Engine(engine));
    let (fs, root) = (subject.fs(), Caller::root());
    for is_early in [false, true] {
        let made = fs.subvolume_create(&root, NodeId::ROOT, b"subvolume", 0o755);
        let held = made.expect("space").node;
        for number in 0..20 {
            let name = format!("f{number}");
            fs.mknod(&root, held, name.as_bytes(), &FILE).expect("space");
        }
        fs.index_flush(held).expect("a flush goes well");
        fs.rmr(&root, NodeId::ROOT, b"subvolume").expect("it is removed");
        let copy = |when: &str| {
            fs.snapshot_create(&root, held, when.as_bytes()).expect("a snapshot");
            let name = format!("{when}-{is_early}");
            fs.clone_dir(&root, held, NodeId::ROOT, name.as_bytes()).expect("a clone");
        };
        if is_early {
            // These name the base, so it stays.
            copy("before");
        }
        // The creation of a base removes those that are not named.
        fs.index_flush(NodeId::ROOT).expect("a flush goes well");
        copy("after");
        compare(fs, &mut fastrand::Rng::with_seed(3), 100, &format!("{engine:?}, {is_early}"));
        fs.sync_all().expect("it syncs");
        assert_clean(&device.copy(), &format!("{engine:?}, early copies: {is_early}"));
    }
}
