//! The index may be deleted at any time: queries are answered as before at once. A new base is made
//! in the background, and answers them from then on.

use std::ops::ControlFlow;
use std::time::Duration;

use device::{Clock, Device};
use fs::{Engine, FileSystem, Fs, NewNode};
use inode::{Caller, Kind, NodeId};
use search::Outcome;
use search::cluster::Fields;
use search::index::DIRECTORY;
use search::query::{Expr, Glob, Test};
use store::Durability;
use testing::SimDevice;

use crate::check::assert_clean;
use crate::script::options;
use crate::search::{compare, everything_below};
use crate::subject::{Base, FsSubject};

const DIRECTORIES: u64 = 30;
const FILES: u64 = 12;
const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };

/// What is deleted: files whose names start so.
const DELETED: [&str; 3] = ["", "manifest-", "cluster-"];

/// A volume with an index, and changes since.
fn filled(engine: Engine) -> (SimDevice, FsSubject) {
    let device = SimDevice::new(1);
    let subject = FsSubject::format(&device, &options(Durability::Async), &Base::Engine(engine));
    let (fs, root) = (subject.fs(), Caller::root());
    for number in 0..DIRECTORIES {
        let name = format!("d{number}");
        let made = fs.mkdir(&root, NodeId::ROOT, name.as_bytes(), 0o755).expect("space").node;
        for number in 0..FILES {
            let name = format!("f{number}");
            let file = fs.mknod(&root, made, name.as_bytes(), &FILE).expect("space");
            fs.forget(file.node, 1);
        }
        if number == DIRECTORIES - 2 {
            fs.index_flush(NodeId::ROOT).expect("a flush goes well");
        }
    }
    (device, subject)
}

fn opened(device: &SimDevice, base: &Base) -> FsSubject {
    FsSubject::open(device, &options(Durability::Async), base).expect("it opens")
}

/// The files of the index whose names start so.
fn files(device: &SimDevice, start: &str) -> Vec<String> {
    let all = device.list(DIRECTORY).unwrap_or_default();
    all.into_iter().filter(|name| name.starts_with(start)).collect()
}

fn delete(device: &SimDevice, start: &str) {
    let names = files(device, start);
    assert!(!names.is_empty(), "there is an index");
    for name in names {
        device.delete(&format!("{DIRECTORY}/{name}"));
    }
    assert_eq!(files(device, start), Vec::<String>::new());
}

/// Lets a minute pass, in which the background does what it does.
fn settle(subject: &FsSubject) {
    for _ in 0..300 {
        subject.clock().sleep(Duration::from_millis(200));
        subject.fs().background_step(64).expect("background work goes well");
    }
}

fn search(fs: &Fs, name: &[u8]) -> Outcome {
    let expr = Expr::Test(Test::Name(Glob::literal(name).expect("it is short")));
    let root = Caller::root();
    let request = everything_below(fs, NodeId::ROOT, &root, (&expr, Fields::NONE));
    fs.search(&request, &mut |_| ControlFlow::Continue(())).expect("a search")
}

/// Answers equal a walk at once; then there is a base, which answers.
#[track_caller]
fn check_at_once_and_later(device: &SimDevice, subject: &FsSubject, place: &str) {
    let fs = subject.fs();
    let mut random = fastrand::Rng::with_seed(5);
    assert_eq!(search(fs, b"f3").matched, DIRECTORIES, "{place}");
    compare(fs, &mut random, 40, &format!("{place}, at once"));
    settle(subject);
    check_index(device, fs, place);
    compare(fs, &mut random, 40, &format!("{place}, later"));
}

/// There is a base on disk, and clusters of it are read.
#[track_caller]
fn check_index(device: &SimDevice, fs: &Fs, place: &str) {
    for kind in ["manifest-", "cluster-"] {
        assert!(!files(device, kind).is_empty(), "{place}: there is no {kind} file");
    }
    let found = search(fs, b"f3");
    assert_eq!(found.matched, DIRECTORIES, "{place}");
    assert!(found.clusters_read >= DIRECTORIES / 4, "{place}: {found:?}");
}

#[test]
fn an_index_deleted_while_closed_is_rebuilt() {
    for engine in Engine::ALL {
        for deleted in DELETED {
            let place = format!("{engine:?}, '{deleted}*' deleted while closed");
            let (device, subject) = filled(engine);
            let base = subject.base().clone();
            check_index(&device, subject.fs(), &place);
            subject.fs().close().expect("it closes");
            drop(subject);
            delete(&device, deleted);
            let subject = opened(&device, &base);
            check_at_once_and_later(&device, &subject, &place);
            subject.fs().close().expect("it closes");
            drop(subject);
            assert_clean(&device, &place);
            // What came is on disk, and nothing of it is in memory.
            let subject = opened(&device, &base);
            check_index(&device, subject.fs(), &format!("{place}, opened again"));
        }
    }
}

#[test]
fn an_index_deleted_while_open_is_rebuilt() {
    for engine in Engine::ALL {
        for deleted in DELETED {
            let place = format!("{engine:?}, '{deleted}*' deleted while open");
            let (device, subject) = filled(engine);
            let base = subject.base().clone();
            subject.fs().close().expect("it closes");
            drop(subject);
            let subject = opened(&device, &base);
            delete(&device, deleted);
            check_at_once_and_later(&device, &subject, &place);
            delete(&device, deleted);
            // Whatever of it was read is in memory: answers are right, and stay so when it is not.
            compare(subject.fs(), &mut fastrand::Rng::with_seed(6), 40, &place);
            subject.fs().close().expect("it closes");
            drop(subject);
            let subject = opened(&device, &base);
            check_at_once_and_later(&device, &subject, &format!("{place}, opened again"));
        }
    }
}
