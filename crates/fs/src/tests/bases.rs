//! Bases of the index as they are stored.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use inode::{Caller, FsError, Kind, NodeId, SetAttr};
use search::aggregate::Question;
use search::cluster::Fields;
use search::index::IndexOptions;
use search::query::{Accounts, Expr};
use search::{Request, Start};
use store::Pinned;
use testing::{SimDevice, SimEnv};

use crate::Fs;
use opening::create::FormatOptions;
use opening::engine::Engine;
use upkeep::search_bases::{all, remove, remove_all};
use vfs::{FileSystem, NewNode};
use volume::OpenOptions;

struct Nobody;

impl Accounts for Nobody {
    fn has_user(&self, _: u32) -> bool {
        false
    }

    fn has_group(&self, _: u32) -> bool {
        false
    }
}

fn make(fs: &Fs, number: u32) -> NodeId {
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let name = format!("f{number}");
    fs.mknod(&Caller::root(), NodeId::ROOT, name.as_bytes(), &new).expect("space").node
}

/// A volume with 300 files, and a base that has them.
fn with_base() -> (Arc<Fs>, Vec<NodeId>) {
    let env = SimEnv::on(SimDevice::new(1), 1).env();
    Fs::format(&env, &FormatOptions::default()).expect("an empty disk");
    let options = OpenOptions { index: Some(IndexOptions::default()), ..OpenOptions::default() };
    let fs = Fs::open(env, &options).expect("it was made just now");
    let files = (0..300).map(|number| make(&fs, number)).collect();
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    (fs, files)
}

/// For a state without space for the commit that removes references to a base, as in
/// `remove_all`.
#[test]
fn totals_are_returned_if_a_record_names_a_missing_base() {
    let (fs, files) = with_base();
    let root = Caller::root();
    let ask = || {
        let (subvolume, directory) = fs.search_place(NodeId::ROOT).expect("the root");
        let question = Question {
            start: Start { subvolume, directory, path: b"/", depth: 0 },
            caller: &root,
            accounts: &Nobody,
            directories: None,
            largest: 0,
            groups: false,
            cancel: &AtomicBool::new(false),
        };
        let reported = fs.aggregate(&question).expect("totals are returned");
        assert_eq!(reported, fs.aggregate_by_walking(&question).expect("a walk"));
    };
    ask();
    let bases = all(&fs).expect("they are listed");
    assert_eq!(bases.len(), 1);
    remove(&fs, bases[0].tree).expect("it goes");
    let set = SetAttr { size: Some(1 << 20), ..SetAttr::default() };
    fs.setattr(&root, files[7], &set).expect("a file");
    ask();
    ask();
    let index = fs.index.as_ref().expect("there is an index");
    assert!(index.is_lost(bases[0].tree), "another is needed");
}

/// A query may take long, or its matches may not be taken. It sees the state that it began with,
/// even if it reaches a subvolume after that got another base.
#[test]
fn a_base_named_only_by_an_older_state_is_released() {
    let (fs, _) = with_base();
    let root = Caller::root();
    let pinned: Arc<dyn Pinned> = Arc::from(fs.store.pin().expect("a state"));
    make(&fs, 300);
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    let (subvolume, directory) = fs.search_place(NodeId::ROOT).expect("the root");
    let request = Request {
        start: Start { subvolume, directory, path: b"/", depth: 0 },
        expr: &Expr::yes(),
        prune: None,
        alone: false,
        caller: &root,
        min_depth: 0,
        max_depth: None,
        contents_first: false,
        order: None,
        limit: None,
        fields: Fields::NONE,
        accounts: &Nobody,
        cancel: &AtomicBool::new(false),
    };
    let index = fs.index.as_ref().expect("there is an index");
    assert_eq!(index.count(pinned, &request).expect("it is counted").matched, 301);
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    assert_eq!(fs.search_counted(&request).expect("it is counted").matched, 302);
    assert!(!index.wants_base(), "all have one");
}

/// Bases were removed before the records that name them, for which there was no space then.
fn remove_all_without_space(engine: Engine) {
    let device = SimDevice::new(2);
    let env = SimEnv::on(device.clone(), 2).env();
    let format = FormatOptions { engine, ..FormatOptions::default() };
    Fs::format(&env, &format).expect("an empty disk");
    let options = OpenOptions {
        index: Some(IndexOptions::default()),
        log_segment_bytes: 256 << 10,
        checkpoint_bytes: 1 << 20,
        ..OpenOptions::default()
    };
    let fs = Fs::open(env.clone(), &options).expect("it was made just now");
    let root = Caller::root();
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let one = fs.mkdir(&root, NodeId::ROOT, b"one", 0o755).expect("space").node;
    for number in 0..300 {
        let name = format!("f{number}");
        fs.mknod(&root, one, name.as_bytes(), &new).expect("space");
    }
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    for number in 0..20 {
        fs.snapshot_create(&root, one, format!("s{number}").as_bytes()).expect("space");
    }
    assert!(!all(&fs).expect("they are listed").is_empty(), "{engine:?}");
    fs.sync().expect("it is written");
    while !fs.store.checkpoint().expect("there is space") {}
    device.set_capacity(Some(device.used_bytes() + (1 << 20)));
    let is_full = (0..100_000).any(|number| {
        let made = fs.mknod(&root, one, format!("{number:0200}").as_bytes(), &new);
        matches!(made, Err(FsError::NoSpace))
    });
    assert!(is_full, "{engine:?}: 100,000 files fit into a small disk");
    let removed = remove_all(&fs).expect("what removes goes through");
    assert!(removed > 0 && all(&fs).expect("they are listed").is_empty(), "{engine:?}");
    fs.sync().expect("it is written");
    drop(fs);
    let mut proceed = |_, _| ControlFlow::Continue(());
    let report = Fs::check_offline(&env, &mut proceed).expect("it answers");
    let reported: Vec<_> = report.problems.iter().map(|problem| &problem.what).collect();
    assert!(reported.is_empty(), "{engine:?}: {reported:#?}");
}

#[test]
fn without_space_no_record_names_a_deleted_base() {
    remove_all_without_space(Engine::Btree);
}

#[test]
fn without_space_no_record_names_a_deleted_base_on_the_log_structured_engine() {
    remove_all_without_space(Engine::Lsm);
}
