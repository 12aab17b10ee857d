//! What a client can make a server keep, and what ends: clients that speak the protocol, and mean
//! harm or are unlucky.

use std::sync::Arc;
use std::time::Duration;

use device::{Net, SystemClock, SystemNet};
use fs::Engine;
use inode::{Caller, FsError, NodeId, SetAttr, SetTime};
use remote::Server;
use rpc::{Channel, Grant};
use vfs::{FileLock, FileSystem, Locked};
use wire::remote::{
    Asked, Asker, FrameKind, FsAnswer, FsCall, FsFailure, LockKind, LockRange, Node, OPEN_READ,
    OPEN_WRITE, RemoteWelcome, Resume, put_head, split_head,
};
use wire::{Failure, decode, encode};

use crate::rig::{self, Rig, wait_until};

const SOON: Duration = Duration::from_secs(60);

/// A client that sends what it likes.
pub(crate) struct Raw {
    channel: Channel,
    frame: Vec<u8>,
}

impl Raw {
    fn new(rig: &Rig, resume: Option<Resume>) -> (Raw, RemoteWelcome) {
        Raw::of(&rig.server, resume).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// A session of a server, or why it refuses.
    pub(crate) fn of(
        server: &Server,
        resume: Option<Resume>,
    ) -> Result<(Raw, RemoteWelcome), Failure> {
        let link = SystemNet.connect(server.address(), SOON).unwrap();
        let channel = Channel::plain(link, Arc::new(SystemClock::new())).unwrap();
        let mut raw = Raw { channel, frame: Vec::new() };
        raw.hello(resume);
        let (kind, _, body) = raw.next().unwrap();
        if kind == FrameKind::Refused {
            return Err(decode(&body).unwrap());
        }
        assert_eq!(kind, FrameKind::Welcome);
        let welcome = decode(&body).unwrap();
        Ok((raw, welcome))
    }

    /// Makes a call and reads its answer.
    pub(crate) fn call<T>(
        &mut self,
        id: u64,
        call: FsCall<'_>,
        read: impl FnOnce(Result<FsAnswer<'_>, FsFailure>) -> T,
    ) -> T {
        let have = if id > 1 { vec![id - 1] } else { Vec::new() };
        assert!(self.ask(id, have, call));
        let (_, of, body) = self.next().expect("an answer");
        assert_eq!(of, id);
        read(decode(&body).unwrap())
    }

    fn hello(&self, resume: Option<Resume>) {
        let mut frame = Vec::new();
        put_head(FrameKind::Hello, 0, &mut frame);
        encode(&rig::hello(resume), &mut frame);
        self.channel.send(&frame).unwrap();
    }

    pub(crate) fn next(&mut self) -> Option<(FrameKind, u64, Vec<u8>)> {
        self.channel.receive(&mut self.frame, 2 << 20, SOON).ok()?;
        let (kind, id, body) = split_head(&self.frame).unwrap();
        Some((kind, id, body.to_vec()))
    }

    pub(crate) fn ask(&self, id: u64, acknowledged: Vec<u64>, call: FsCall<'_>) -> bool {
        let asked = Asked { acknowledged, once: 0, done: 0, who: Asker::default(), call };
        self.send_asked(id, &asked)
    }

    pub(crate) fn send_asked(&self, id: u64, asked: &Asked<'_>) -> bool {
        let mut frame = Vec::new();
        put_head(FrameKind::Request, id, &mut frame);
        encode(asked, &mut frame);
        self.channel.send(&frame).is_ok()
    }

    pub(crate) fn send(&self, kind: FrameKind, number: u64) {
        let mut frame = Vec::new();
        put_head(kind, number, &mut frame);
        if kind == FrameKind::Ping {
            encode(&Vec::<u64>::new(), &mut frame);
        }
        self.channel.send(&frame).unwrap();
    }

    /// Looks a file of the root up and opens it, with the requests 1 and 2.
    pub(crate) fn open(&mut self, name: &[u8], flags: u8) -> Node {
        assert!(self.ask(1, Vec::new(), FsCall::Lookup { parent: Node::ROOT, name }));
        let (_, _, body) = self.next().unwrap();
        let answer: Result<FsAnswer<'_>, FsFailure> = decode(&body).unwrap();
        let Ok(FsAnswer::Entry(entry)) = answer else { panic!("{answer:?}") };
        assert!(self.ask(2, vec![1], FsCall::Open { node: entry.node, flags }));
        self.next().unwrap();
        entry.node
    }
}

fn file(rig: &Rig, bytes: &[u8]) -> NodeId {
    let (far, root) = (rig.far(), Caller::root());
    let node = far.create(&root, NodeId::ROOT, b"f", (0o666, 2)).unwrap().node;
    far.write(&root, node, 0, bytes).unwrap();
    node
}

/// It acknowledges what it has not read, so that no count of requests holds it.
#[test]
fn answers_that_nobody_reads_do_not_pile_up() {
    let rig = Rig::new(Engine::Btree, 11);
    file(&rig, &vec![7; 1 << 20]);
    let (mut raw, _) = Raw::new(&rig, None);
    let node = raw.open(b"f", OPEN_READ);
    let mut sent = 0;
    for id in 3..500 {
        let read = FsCall::Read { node, offset: 0, length: 1 << 20, untimed: true };
        let have: Vec<u64> = if id % 50 == 0 { (3..id).collect() } else { Vec::new() };
        if !raw.ask(id, have, read) {
            break;
        }
        sent += 1;
        if id % 50 == 0 {
            device::Clock::sleep(&SystemClock::new(), Duration::from_millis(400));
        }
    }
    let mut answers = 0;
    while let Some((kind, ..)) = raw.next()
        && answers < sent
    {
        answers += usize::from(kind == FrameKind::Reply);
    }
    println!("{sent} requests, {answers} answers before its connection ended");
    assert!(answers < 250, "{answers} of {sent} answers were kept for it");
    rig.far().getattr(&Caller::root(), NodeId::ROOT).unwrap();
}

/// A hello that the network held back arrives after that of the next connection.
#[test]
fn an_old_hello_does_not_replace_a_newer_connection() {
    let rig = Rig::new(Engine::Btree, 12);
    let (_first, welcome) = Raw::new(&rig, None);
    let attempt = |attempt| Some(Resume { attempt, ..welcome.session });
    let (mut newer, resumed) = Raw::new(&rig, attempt(2));
    assert!(resumed.resumed);
    newer.send(FrameKind::Ping, 1);
    assert_eq!(newer.next().map(|(kind, ..)| kind), Some(FrameKind::Pong));
    let (mut late, _) = Raw::new(&rig, attempt(1));
    assert_eq!(late.next().map(|(kind, ..)| kind), Some(FrameKind::Refused));
    newer.send(FrameKind::Ping, 2);
    assert_eq!(newer.next().map(|(kind, id, _)| (kind, id)), Some((FrameKind::Pong, 2)));
}

/// A request for a lock and the end of its session, and its cancellation, at the same time.
#[test]
fn no_lock_outlives_its_session_or_the_caller_who_waits() {
    let rig = Rig::new(Engine::Btree, 13);
    let node = file(&rig, b"x");
    let (far, root) = (rig.far(), Caller::root());
    let all = (0, u64::MAX);
    let range = LockRange {
        owner: 1,
        pid: 1,
        kind: LockKind::Exclusive,
        start: all.0,
        end: all.1,
        whole: false,
    };
    for _ in 0..200 {
        let (mut raw, _) = Raw::new(&rig, None);
        let node = raw.open(b"f", OPEN_WRITE);
        assert!(raw.ask(3, vec![2], FsCall::Lock { node, lock: range, wait: false }));
        raw.send(FrameKind::Bye, 0);
    }
    wait_until(|| rig.server.held().0 == 1);
    let kind = vfs::LockKind::Exclusive;
    let own = FileLock { owner: 9, pid: 1, kind, start: 0, end: u64::MAX, whole: false };
    wait_until(|| matches!(far.lock(&root, node, &own, false), Ok(Locked::Done)));
    let (mut raw, _) = Raw::new(&rig, None);
    let theirs = raw.open(b"f", OPEN_WRITE);
    for id in 3..200 {
        assert!(raw.ask(id, vec![id - 1], FsCall::Lock { node: theirs, lock: range, wait: true }));
        raw.send(FrameKind::Cancel, id);
        let (kind, of, body) = raw.next().expect("a wait that is cancelled ends");
        assert_eq!((kind, of), (FrameKind::Reply, id));
        let answer: Result<FsAnswer<'_>, FsFailure> = decode(&body).unwrap();
        assert_eq!(answer, Err(FsFailure::Interrupted));
    }
    far.unlock(&root, node, 9, false).unwrap();
    assert_eq!(far.lock(&root, node, &own, false).unwrap(), Locked::Done);
}

#[test]
fn a_client_that_may_only_read_keeps_nobody_from_writing() {
    let rig = Rig::with(Engine::Btree, 14, Grant { read_only: true, ..Grant::all() });
    let (far, root) = (rig.far(), Caller::root());
    let file = rig.near().create(&root, NodeId::ROOT, b"f", (0o666, 2)).unwrap().node;
    rig.near().write(&root, file, 0, b"abc").unwrap();
    let before = rig.near().getattr(&root, file).unwrap();
    rig.set_clock(device::Timestamp(before.atime.0 + 200_000_000_000_000));
    let node = far.lookup(&root, NodeId::ROOT, b"f").unwrap().node;
    far.open(&root, node, 0).unwrap();
    let mut bytes = [0; 3];
    assert_eq!(far.read(&root, node, 0, &mut bytes).unwrap(), 3);
    assert_eq!(rig.near().getattr(&root, file).unwrap().atime, before.atime);
    let shared = vfs::LockKind::Shared;
    let lock = FileLock { owner: 1, pid: 1, kind: shared, start: 0, end: 9, whole: true };
    assert_eq!(far.lock(&root, node, &lock, false).unwrap(), Locked::Done);
    let exclusive = FileLock { kind: vfs::LockKind::Exclusive, ..lock };
    let refused = far.lock(&root, node, &exclusive, false);
    assert!(matches!(refused, Err(FsError::ReadOnly(_))), "{refused:?}");
    rig.near().forget(file, 1);
}

#[test]
fn the_time_of_the_last_change_is_the_servers() {
    let rig = Rig::new(Engine::Lsm, 15);
    let node = file(&rig, b"x");
    let old = SetTime::At(device::Timestamp(1));
    let changes = SetAttr { mtime: Some(old), ctime: Some(old), ..SetAttr::default() };
    let attr = rig.far().setattr(&Caller::root(), node, &changes).unwrap();
    assert_eq!(attr.mtime.0, 1);
    assert!(attr.ctime.0 > 1_000_000_000, "{:?}", attr.ctime);
}
