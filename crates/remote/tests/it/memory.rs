//! What clients make a server keep is bounded for all of them together, and each gets its part.
//! Many clients read slowly and write, with small maxima.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::{Clock, SystemClock};
use fs::Engine;
use inode::{Caller, NodeId};
use remote::{Bounds, Totals};
use testing::SetAtEnd;
use vfs::FileSystem;
use wire::remote::{FrameKind, FsAnswer, FsCall, FsFailure, Node, OPEN_READ, OPEN_WRITE};

use crate::attackers::serve;
use crate::bounds::Raw;
use crate::rig::Rig;

const CLIENTS: u64 = 20;
/// Reads and writes of a client that are under way, and how often it makes them.
const IN_FLIGHT: u64 = 8;
const ROUNDS: u64 = 6;
/// Bytes of one read or write.
const BYTES: usize = 100 << 10;
/// Bytes of requests, and of answers: a third of what all want at a time.
const POT: usize = 8 << 20;

/// Makes reads and writes, and reads each answer a moment later.
fn use_slowly(raw: &mut Raw, node: Node, seed: u64) {
    let bytes = vec![seed as u8; BYTES];
    let mut id = 2;
    let mut read = Vec::new();
    for round in 0..ROUNDS {
        let first = id + 1;
        for call in 0..IN_FLIGHT {
            id += 1;
            let offset = (call * 7 + round) * 1000;
            let asked = if call % 2 == 0 {
                FsCall::Read { node, offset, length: BYTES as u32, untimed: true }
            } else {
                FsCall::Write { node, offset, flags: 0, bytes: &bytes }
            };
            assert!(raw.ask(id, std::mem::take(&mut read), asked));
        }
        while (read.len() as u64) < id + 1 - first {
            SystemClock::new().sleep(Duration::from_millis(3));
            let (kind, of, body) = raw.next().expect("an answer");
            assert_eq!(kind, FrameKind::Reply);
            let answer: Result<FsAnswer<'_>, FsFailure> = wire::decode(&body).unwrap();
            assert!(answer.is_ok(), "request {of}: {answer:?}");
            read.push(of);
        }
    }
}

/// The greatest resident size of this process so far, in KiB.
fn resident_max() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

#[test]
fn twenty_clients_that_read_slowly_and_write_stay_within_the_memory_and_all_are_served() {
    let rig = Rig::new(Engine::Btree, 51);
    let root = Caller::root();
    let made = rig.near().create(&root, NodeId::ROOT, b"f", (0o666, 2)).unwrap().node;
    rig.near().write(&root, made, 0, &vec![1; 1 << 20]).unwrap();
    let bounds = Bounds { request_bytes: POT, answer_bytes: POT, ..Bounds::default() };
    let (server, name) = serve(&rig, bounds);
    let before = resident_max();
    let (ended, most) = (AtomicBool::new(false), AtomicU64::new(0));
    let begin = device::sync::Barrier::new(CLIENTS as usize);
    let mut peak = Totals::default();
    device::scope(|scope| {
        let _end = SetAtEnd(&ended);
        let opened = |number| {
            *name.lock() = format!("client {number}");
            let (mut raw, _) = Raw::of(&server, None).unwrap_or_else(|why| panic!("{why}"));
            let node = raw.open(b"f", OPEN_READ | OPEN_WRITE);
            (number, raw, node)
        };
        // All of them first: threads that began would wait forever for one that fails.
        let all: Vec<_> = (0..CLIENTS).map(opened).collect();
        let workers: Vec<_> = all
            .into_iter()
            .map(|(number, mut raw, node)| {
                let begin = &begin;
                scope.spawn(move || {
                    begin.wait();
                    use_slowly(&mut raw, node, number);
                    raw.send(FrameKind::Bye, 0);
                })
            })
            .collect();
        let watching = scope.spawn(|| {
            while !ended.load(Ordering::SeqCst) {
                let now = server.totals();
                peak.request_bytes = peak.request_bytes.max(now.request_bytes);
                peak.answer_bytes = peak.answer_bytes.max(now.answer_bytes);
                most.fetch_max(now.request_bytes + now.answer_bytes, Ordering::SeqCst);
                device::yield_now();
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        ended.store(true, Ordering::SeqCst);
        watching.join().unwrap();
    });
    println!(
        "most bytes of requests {}, of answers {}, of both {}; VmHWM grew by {} KiB",
        peak.request_bytes,
        peak.answer_bytes,
        most.load(Ordering::SeqCst),
        resident_max() - before
    );
    // (Answers of what runs already are short, but for those that have their space.)
    assert!(peak.request_bytes <= POT as u64, "{peak:?}");
    assert!(peak.answer_bytes <= (POT + (64 << 10)) as u64, "{peak:?}");
    // Nobody took more than clients need: there was something to bound.
    assert!(peak.request_bytes + peak.answer_bytes > (POT / 2) as u64, "{peak:?}");
    crate::rig::wait_until(|| {
        let left = server.totals();
        (left.request_bytes, left.answer_bytes, left.nodes) == (0, 0, 0)
    });
}

/// Nodes that clients hold are bounded for all together, too.
#[test]
fn one_client_leaves_half_of_the_nodes_to_others() {
    let rig = Rig::new(Engine::Btree, 52);
    for number in 0..30 {
        let file = format!("f{number}");
        let made = rig.near().create(&Caller::root(), NodeId::ROOT, file.as_bytes(), (0o666, 2));
        rig.near().forget(made.unwrap().node, 1);
    }
    let (server, name) = serve(&rig, Bounds { nodes: 20, ..Bounds::default() });
    let look_up = |client: &str| {
        *name.lock() = client.to_owned();
        let (mut raw, _) = Raw::of(&server, None).unwrap_or_else(|why| panic!("{why}"));
        let mut found = 0;
        for number in 0..30 {
            let file = format!("f{number}");
            let call = FsCall::Lookup { parent: Node::ROOT, name: file.as_bytes() };
            raw.call(number + 1, call, |answer| match answer {
                Ok(_) => found += 1,
                Err(failure) => assert_eq!(failure, FsFailure::Busy),
            });
        }
        (found, raw)
    };
    let (one, mut held) = look_up("one");
    let (two, _also) = look_up("two");
    assert_eq!((one, two), (10, 5));
    assert_eq!(server.totals().nodes, 15);
    // What it holds it can look up and use, whatever others took since.
    for number in 0..10 {
        let file = format!("f{number}");
        let call = FsCall::Lookup { parent: Node::ROOT, name: file.as_bytes() };
        held.call(31 + number, call, |answer| assert!(answer.is_ok(), "{file}: {answer:?}"));
    }
    let one_more = FsCall::Lookup { parent: Node::ROOT, name: b"f10" };
    held.call(41, one_more, |answer| assert_eq!(answer.err(), Some(FsFailure::Busy)));
    let none = FsCall::Lookup { parent: Node::ROOT, name: b"none" };
    held.call(42, none, |answer| assert_eq!(answer.err(), Some(FsFailure::NotFound)));
    assert_eq!(server.totals().nodes, 15);
    held.send(FrameKind::Bye, 0);
    crate::rig::wait_until(|| server.totals().nodes == 5);
}

/// An answer that is kept is sent again, but not as often as a client likes that does not read.
#[test]
fn repeats_of_a_long_listing_take_no_more_than_the_memory() {
    const BYTES: u64 = 4 << 20;
    let rig = Rig::new(Engine::Btree, 53);
    for number in 0..600 {
        let name = format!("{number:0250}");
        let made = rig.near().create(&Caller::root(), NodeId::ROOT, name.as_bytes(), (0o666, 2));
        rig.near().forget(made.unwrap().node, 1);
    }
    let (server, _name) = serve(&rig, Bounds { answer_bytes: BYTES as usize, ..Bounds::default() });
    let (mut raw, _) = Raw::of(&server, None).unwrap_or_else(|why| panic!("{why}"));
    let list = || {
        let (directory, bytes) = (Node::ROOT, 256 << 10);
        FsCall::List { directory, cookie: 0, attributes: true, bytes }
    };
    assert!(raw.ask(1, Vec::new(), list()));
    crate::rig::wait_until(|| server.totals().answer_bytes > 150 << 10);
    let mut most = 0;
    for _ in 0..1000 {
        let is_sent = raw.ask(1, Vec::new(), list());
        most = most.max(server.totals().answer_bytes);
        if !is_sent {
            break;
        }
    }
    let replies = std::iter::from_fn(|| raw.next()).filter(|(kind, ..)| *kind == FrameKind::Reply);
    let replies = replies.count();
    println!("at most {most} bytes of answers, {replies} answers");
    assert!(most <= BYTES && replies <= 2, "{most} bytes, {replies} answers");
}

/// A connection whose message waits for memory is not deaf. Its client hears that the server is
/// there, and a newer connection of the session ends it.
#[test]
fn a_connection_that_waits_for_memory_shows_that_it_lives_and_ends() {
    let rig = Rig::new(Engine::Btree, 54);
    let made = rig.near().create(&Caller::root(), NodeId::ROOT, b"f", (0o666, 2)).unwrap();
    rig.near().forget(made.node, 1);
    // Less than the message takes: there never is space.
    let (server, _name) = serve(&rig, Bounds { request_bytes: 80 << 10, ..Bounds::default() });
    let (mut raw, welcome) = Raw::of(&server, None).unwrap_or_else(|why| panic!("{why}"));
    let node = raw.open(b"f", OPEN_READ | OPEN_WRITE);
    let bytes = vec![1; BYTES];
    assert!(raw.ask(3, vec![2], FsCall::Write { node, offset: 0, flags: 0, bytes: &bytes }));
    for _ in 0..2 {
        assert_eq!(raw.next().map(|(kind, id, _)| (kind, id)), Some((FrameKind::Pong, 0)));
    }
    let resume = wire::remote::Resume { attempt: 1, ..welcome.session };
    let (mut newer, welcome) = Raw::of(&server, Some(resume)).unwrap_or_else(|why| panic!("{why}"));
    assert!(welcome.resumed);
    crate::rig::wait_until(|| server.totals().connections == 1);
    newer.call(4, FsCall::GetAttr { node }, |answer| assert!(answer.is_ok(), "{answer:?}"));
}

/// What a client has not acknowledged keeps its own long answers waiting, and nothing else.
#[test]
fn a_client_beyond_its_share_of_answers_waits_and_its_writes_continue() {
    let rig = Rig::new(Engine::Btree, 55);
    for number in 0..600 {
        let name = format!("{number:0250}");
        let made = rig.near().create(&Caller::root(), NodeId::ROOT, name.as_bytes(), (0o666, 2));
        rig.near().forget(made.unwrap().node, 1);
    }
    let bounds = Bounds { answer_bytes: 2 << 20, ..Bounds::default() };
    let (server, _name) = serve(&rig, bounds);
    let (mut raw, _) = Raw::of(&server, None).unwrap_or_else(|why| panic!("{why}"));
    let node = raw.open(format!("{:0250}", 7).as_bytes(), OPEN_READ | OPEN_WRITE);
    let list = || {
        let (directory, bytes) = (Node::ROOT, 256 << 10);
        FsCall::List { directory, cookie: 0, attributes: true, bytes }
    };
    let next = |raw: &mut Raw, id: u64| {
        let (kind, of, body) = raw.next().expect("an answer");
        assert_eq!((kind, of), (FrameKind::Reply, id));
        let answer: Result<FsAnswer<'_>, FsFailure> = wire::decode(&body).unwrap();
        assert!(answer.is_ok(), "{answer:?}");
    };
    assert!(raw.ask(3, vec![2], list()));
    next(&mut raw, 3);
    // There is no space for another one beside the first, which is not acknowledged.
    assert!(raw.ask(4, Vec::new(), list()));
    for id in 5..40 {
        let write = FsCall::Write { node, offset: 0, flags: 0, bytes: &[1; 100] };
        assert!(raw.ask(id, vec![id - 1].into_iter().filter(|id| *id > 4).collect(), write));
        next(&mut raw, id);
    }
    let write = FsCall::Write { node, offset: 0, flags: 0, bytes: &[1; 100] };
    assert!(raw.ask(40, vec![3, 39], write));
    let mut answered = Vec::new();
    for _ in 0..2 {
        let (_, of, body) = raw.next().expect("an answer");
        let answer: Result<FsAnswer<'_>, FsFailure> = wire::decode(&body).unwrap();
        assert!(answer.is_ok(), "{answer:?}");
        answered.push(of);
    }
    answered.sort_unstable();
    assert_eq!(answered, [4, 40]);
}
