//! Requests that are executed once, as a server does it: it looks whether a request was executed,
//! and if not makes the change for it. A repeat gets the first answer, also after a crash, after
//! which a change and its answer are both there or neither.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use format::answer_record::{answers_prefix, parse_answer};
use fs::{Engine, FileSystem, FormatOptions, Fs, FsResult, NewNode, OpenOptions};
use inode::{Caller, FsError, Kind, NodeId};
use ops::once::{ANSWERS, Request, UNCONFIRMED_MAX};
use store::{Durability, KeyRange};
use testing::{CrashPolicy, SimDevice, SimEnv};

use crate::script;
use crate::support::assert_whole;

on_each_engine!(
    a_repeat_gets_the_first_answer,
    a_change_and_its_answer_are_both_there_or_neither,
    sessions_end_with_their_answers,
    any_number_of_answers_is_removed,
    a_confirmation_is_as_short_for_many_answers,
);

const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };

fn options() -> OpenOptions {
    OpenOptions { answers: true, ..script::options(Durability::Async) }
}

fn open(device: &SimDevice, seed: u64) -> Arc<Fs> {
    Fs::open(SimEnv::on(device.clone(), seed).env(), &options()).expect("it opens")
}

fn fresh(engine: Engine) -> (SimDevice, Arc<Fs>) {
    let device = SimDevice::new(3);
    let format = FormatOptions { engine, ..FormatOptions::default() };
    Fs::format(&SimEnv::on(device.clone(), 3).env(), &format).expect("an empty disk");
    let fs = open(&device, 3);
    (device, fs)
}

/// A request's answer: an inode.
#[derive(Debug, PartialEq, Eq)]
enum Once {
    /// It was executed now.
    First(u64),
    /// It was executed before.
    Repeat(u64),
}

/// Makes a file in the root once.
fn make(fs: &Fs, request: &Request, name: &[u8]) -> FsResult<Once> {
    if let Some(ino) = executed(fs, request)? {
        return Ok(Once::Repeat(ino));
    }
    let mknod = || fs.mknod(&Caller::root(), NodeId::ROOT, name, &FILE);
    let made = vfs::with_request(request, mknod)?.node;
    fs.forget(made, 1);
    Ok(Once::First(made.ino().0))
}

/// The inode that a request made, if it was executed.
fn executed(fs: &Fs, request: &Request) -> FsResult<Option<u64>> {
    let executed = ops::Ops::executed(fs, request)?;
    Ok(executed.map(|executed| executed.node.expect("it makes one").1))
}

fn inode_of(fs: &Fs, name: &[u8]) -> Option<u64> {
    let found = fs.lookup(&Caller::root(), NodeId::ROOT, name).ok()?;
    fs.forget(found.node, 1);
    Some(found.node.ino().0)
}

fn answered(fs: &Fs, request: &Request) -> Option<u64> {
    executed(fs, request).expect("the session lives")
}

fn a_repeat_gets_the_first_answer(engine: Engine) {
    let (device, fs) = fresh(engine);
    let session = fs.begin_session().expect("a session");
    let request = |number| Request { session, number, hash: number * 7 };
    let Once::First(ino) = make(&fs, &request(1), b"one").expect("space") else {
        panic!("a request was executed before it was sent");
    };
    let check = |fs: &Fs| {
        let again = make(fs, &request(1), b"one").expect("the first answer");
        assert_eq!(again, Once::Repeat(ino));
        // Even if the name is taken or free by now.
        assert_eq!(inode_of(fs, b"one"), Some(ino));
    };
    check(&fs);
    // What failed is not executed, and has no answer.
    let exists = make(&fs, &request(2), b"one");
    assert!(matches!(exists, Err(FsError::Exists)), "{exists:?}");
    assert_eq!(answered(&fs, &request(2)), None);
    let other = Request { hash: 1, ..request(1) };
    assert!(matches!(executed(&fs, &other), Err(FsError::InvalidArgument(_))));
    // A snapshot and a roll-back do not take answers back.
    fs.snapshot_create(&Caller::root(), NodeId::ROOT, b"s").expect("a snapshot");
    fs.unlink(&Caller::root(), NodeId::ROOT, b"one").expect("it is there");
    let again = make(&fs, &request(1), b"one").expect("the first answer");
    assert_eq!(again, Once::Repeat(ino));
    assert_eq!(inode_of(&fs, b"one"), None, "a repeat made it again");
    fs.close().expect("it closes");
    drop(fs);
    let fs = open(&device, 4);
    let again = make(&fs, &request(1), b"one").expect("the first answer");
    assert_eq!(again, Once::Repeat(ino));
    assert_whole(&fs);
}

fn sessions_end_with_their_answers(engine: Engine) {
    let (device, fs) = fresh(engine);
    let (one, two) = (fs.begin_session().expect("one"), fs.begin_session().expect("two"));
    let request = |session, number| Request { session, number, hash: 9 };
    for number in 1..=5 {
        make(&fs, &request(one, number), format!("one {number}").as_bytes()).expect("space");
        make(&fs, &request(two, number), format!("two {number}").as_bytes()).expect("space");
    }
    fs.confirm(&one, 3).expect("it lives");
    for number in 1..=3 {
        let old = make(&fs, &request(one, number), b"again");
        assert!(matches!(old, Err(FsError::InvalidArgument(_))), "{number}: {old:?}");
    }
    assert!(answered(&fs, &request(one, 4)).is_some());
    // An older confirmation, which was under way for long, changes nothing.
    assert_eq!(fs.confirm(&one, 2).expect("it lives"), 3);
    let old = make(&fs, &request(one, 3), b"again");
    assert!(matches!(old, Err(FsError::InvalidArgument(_))), "{old:?}");
    let far = make(&fs, &request(one, 4 + UNCONFIRMED_MAX), b"far");
    assert!(matches!(far, Err(FsError::LimitReached(_))), "{far:?}");
    // After confirmations that failed the next one may be any number ahead.
    let ahead = 5 * UNCONFIRMED_MAX;
    assert_eq!(fs.confirm(&one, ahead).expect("it lives"), ahead);
    make(&fs, &request(one, ahead + 1), b"after all").expect("space");
    fs.end_sessions(&[one]).expect("it lives");
    let gone = make(&fs, &request(one, 6), b"gone");
    assert!(matches!(gone, Err(FsError::Stale)), "{gone:?}");
    assert!(matches!(fs.confirm(&one, 4), Err(FsError::Stale)));
    assert_eq!(inode_of(&fs, b"gone"), None);
    fs.sync().expect("it is durable");
    drop(fs);
    let fs = open(&device, 4);
    assert_eq!(fs.sessions().expect("they are read").len(), 1);
    assert!(answered(&fs, &request(two, 5)).is_some());
    fs.end_sessions(&[two]).expect("it lives");
    assert!(fs.sessions().expect("they are read").is_empty());
    assert_whole(&fs);
}

/// More than a batch takes, of a process that did not refuse them.
fn any_number_of_answers_is_removed(engine: Engine) {
    let (device, fs) = fresh(engine);
    let (one, two) = (fs.begin_session().expect("one"), fs.begin_session().expect("two"));
    let root = Caller::root();
    let node = fs.mknod(&root, NodeId::ROOT, b"file", &FILE).expect("space").node;
    let changes = inode::SetAttr { mode: Some(0o600), ..inode::SetAttr::default() };
    for (session, numbers) in [(one, 5000), (two, 3)] {
        for number in 1..=numbers {
            let request = Request { session, number, hash: 9 };
            vfs::with_request(&request, || fs.setattr(&root, node, &changes)).expect("space");
        }
    }
    fs.confirm(&one, 2100).expect("it lives");
    fs.end_sessions(&[one, [9; 16], two]).expect("they live");
    assert!(fs.sessions().expect("they are read").is_empty());
    fs.sync().expect("it is durable");
    drop(fs);
    assert_whole(&open(&device, 4));
}

/// A confirmation takes as much of the log, however many answers it removes.
fn a_confirmation_is_as_short_for_many_answers(engine: Engine) {
    let (device, fs) = fresh(engine);
    let root = Caller::root();
    let node = fs.mknod(&root, NodeId::ROOT, b"file", &FILE).expect("space").node;
    let changes = inode::SetAttr { mode: Some(0o600), ..inode::SetAttr::default() };
    let written = [1, 1000].map(|answers| {
        let session = fs.begin_session().expect("a session");
        let request = |number| Request { session, number, hash: 9 };
        for number in 1..=answers + 1 {
            vfs::with_request(&request(number), || fs.setattr(&root, node, &changes))
                .expect("space");
        }
        fs.sync().expect("it is durable");
        let before = device.counts().written_bytes;
        assert_eq!(fs.confirm(&session, answers).expect("it lives"), answers);
        fs.sync().expect("it is durable");
        let written = device.counts().written_bytes - before;
        let left: Vec<_> = answers_left(&fs);
        assert_eq!(left, [answers + 1], "of {answers}");
        fs.end_sessions(&[session]).expect("it lives");
        assert!(answers_left(&fs).is_empty(), "of {answers}");
        written
    });
    assert!(written[1] < written[0] + 1024, "{written:?} bytes for 1 and 1000 answers");
}

/// The numbers of the requests that have answers.
fn answers_left(fs: &Fs) -> Vec<u64> {
    let prefix = &answers_prefix(&[0; 16])[..1];
    let mut cursor = fs.store.scan(ANSWERS, KeyRange::prefix(prefix)).expect("it is read");
    let mut left = Vec::new();
    while let Some(item) = cursor.next().expect("it is read") {
        left.push(parse_answer(item.key).expect("an answer").1);
    }
    left
}

/// Before each write and sync the power is cut.
fn a_change_and_its_answer_are_both_there_or_neither(engine: Engine) {
    let (device, fs) = fresh(engine);
    let session = fs.begin_session().expect("a session");
    let points = Arc::new(AtomicU64::new(0));
    let durable = Arc::new(AtomicU64::new(0));
    let request = move |number| Request { session, number, hash: number };
    let name = |number: u64| format!("f{number}").into_bytes();
    let (counted, seen) = (Arc::clone(&points), Arc::clone(&durable));
    device.watch(move |disk, op| {
        counted.fetch_add(1, Ordering::SeqCst);
        for (at, policy) in CrashPolicy::ALL.into_iter().enumerate() {
            let seed = op * 3 + at as u64;
            let fs = open(&disk.after_crash(policy, seed), seed);
            for number in 1..=12 {
                let place = format!("before operation {op}, {policy:?} {seed}, request {number}");
                let answer = answered(&fs, &request(number));
                assert_eq!(inode_of(&fs, &name(number)), answer, "{place}");
                assert!(answer.is_some() || number > seen.load(Ordering::SeqCst), "{place}");
                let again = make(&fs, &request(number), &name(number)).expect("space");
                assert_eq!(matches!(again, Once::Repeat(_)), answer.is_some(), "{place}");
                let now = inode_of(&fs, &name(number));
                assert_eq!(now, answered(&fs, &request(number)), "{place}");
            }
            assert_whole(&fs);
        }
    });
    for number in 1..=12 {
        make(&fs, &request(number), &name(number)).expect("space");
        if number % 3 == 0 {
            fs.sync().expect("it is durable");
            durable.store(number, Ordering::SeqCst);
        }
    }
    device.unwatch();
    let points = points.load(Ordering::SeqCst);
    assert!(points >= 4, "only {points} points");
}
