//! Clients that mean harm: none gets more than its connection ended.

use std::sync::Arc;
use std::time::Duration;

use device::{Link, Net, SystemClock, SystemNet};
use fs::Engine;
use inode::{Caller, NodeId};
use rpc::Channel;
use vfs::FileSystem;
use wire::remote::{
    Asked, Asker, FrameKind, FsCall, Node, RemoteHello, RemoteWelcome, put_head, split_head,
};
use wire::{Bytes, decode, encode};

use crate::rig::{self, Rig, VOLUME, wait_until};

const SOON: Duration = Duration::from_secs(60);

fn link(rig: &Rig) -> Arc<dyn Link> {
    SystemNet.connect(rig.server.address(), SOON).unwrap()
}

fn channel(rig: &Rig) -> Channel {
    Channel::plain(link(rig), Arc::new(SystemClock::new())).unwrap()
}

fn hello(volume: &[u8], (version_min, version): (u32, u32)) -> RemoteHello {
    let volume = Bytes::from(volume);
    RemoteHello { version_min, version, features: u64::MAX, volume, ..rig::hello(None) }
}

fn frame(kind: FrameKind, number: u64, body: &impl serde_free::Encoded) -> Vec<u8> {
    let mut frame = Vec::new();
    put_head(kind, number, &mut frame);
    body.encode_to(&mut frame);
    frame
}

/// What can be the body of a frame.
mod serde_free {
    use super::*;

    pub(super) trait Encoded {
        fn encode_to(&self, out: &mut Vec<u8>);
    }

    impl Encoded for RemoteHello {
        fn encode_to(&self, out: &mut Vec<u8>) {
            encode(self, out);
        }
    }

    impl Encoded for Asked<'_> {
        fn encode_to(&self, out: &mut Vec<u8>) {
            encode(self, out);
        }
    }

    impl Encoded for &[u8] {
        fn encode_to(&self, out: &mut Vec<u8>) {
            out.extend_from_slice(self);
        }
    }
}

/// A session, and its channel.
fn begun(rig: &Rig) -> (Channel, RemoteWelcome) {
    let channel = channel(rig);
    channel.send(&frame(FrameKind::Hello, 0, &hello(VOLUME.as_bytes(), (2, 2)))).unwrap();
    let mut received = Vec::new();
    channel.receive(&mut received, 1 << 20, SOON).unwrap();
    let (kind, _, body) = split_head(&received).unwrap();
    assert_eq!(kind, FrameKind::Welcome);
    (channel, decode(body).unwrap())
}

fn is_ended(channel: &Channel) -> bool {
    let mut received = Vec::new();
    for _ in 0..1000 {
        if channel.receive(&mut received, 2 << 20, SOON).is_err() {
            return true;
        }
    }
    false
}

fn works(rig: &Rig) {
    rig.far().getattr(&Caller::root(), NodeId::ROOT).unwrap();
}

#[test]
fn what_is_no_hello_ends_the_connection() {
    let rig = Rig::new(Engine::Btree, 1);
    let mut wrong = hello(VOLUME.as_bytes(), (2, 2));
    wrong.magic = *b"pando-1\n";
    let ping = frame(FrameKind::Ping, 0, &&b""[..]);
    let garbage = vec![0xff; 1000];
    for message in [frame(FrameKind::Hello, 0, &wrong), ping, garbage, Vec::new()] {
        let channel = channel(&rig);
        channel.send(&message).unwrap();
        assert!(is_ended(&channel));
    }
    // A length, and then as many bytes, without end.
    let huge = link(&rig);
    huge.write_all(&u32::MAX.to_le_bytes()).unwrap();
    let mut buffer = [0; 100];
    wait_until(|| huge.write_all(&[7; 4096]).is_err() || huge.read(&mut buffer).unwrap_or(0) == 0);
    works(&rig);
}

#[test]
fn other_versions_and_volumes_are_refused_with_the_reason() {
    let rig = Rig::new(Engine::Btree, 2);
    for (hello, words) in [
        (hello(VOLUME.as_bytes(), (3, 9)), "versions 2 to 2"),
        (hello(VOLUME.as_bytes(), (0, 1)), "versions 2 to 2"),
        (hello(b"other", (2, 2)), "no volume other"),
        (hello(b"\xff/../..", (2, 2)), "no volume"),
    ] {
        let channel = channel(&rig);
        channel.send(&frame(FrameKind::Hello, 0, &hello)).unwrap();
        let mut received = Vec::new();
        channel.receive(&mut received, 1 << 20, SOON).unwrap();
        let (kind, _, body) = split_head(&received).unwrap();
        assert_eq!(kind, FrameKind::Refused);
        let failure: wire::Failure = decode(body).unwrap();
        assert!(failure.message.contains(words), "{}", failure.message);
        assert!(is_ended(&channel));
    }
    // A newer client that still speaks this version is welcome.
    let channel = channel(&rig);
    channel.send(&frame(FrameKind::Hello, 0, &hello(VOLUME.as_bytes(), (1, 7)))).unwrap();
    let mut received = Vec::new();
    channel.receive(&mut received, 1 << 20, SOON).unwrap();
    let welcome: RemoteWelcome = decode(split_head(&received).unwrap().2).unwrap();
    assert_eq!((welcome.version, welcome.features), (2, 0));
}

#[test]
fn a_session_cannot_be_taken_without_its_secret() {
    let rig = Rig::new(Engine::Btree, 3);
    let (_kept, welcome) = begun(&rig);
    let mut guess = welcome.session;
    guess.secret[15] ^= 1;
    let channel = channel(&rig);
    let hello = RemoteHello { resume: Some(guess), ..hello(VOLUME.as_bytes(), (2, 2)) };
    channel.send(&frame(FrameKind::Hello, 0, &hello)).unwrap();
    let mut received = Vec::new();
    channel.receive(&mut received, 1 << 20, SOON).unwrap();
    let other: RemoteWelcome = decode(split_head(&received).unwrap().2).unwrap();
    assert!(!other.resumed && other.session.session != welcome.session.session);
}

#[test]
fn requests_that_are_malformed_or_too_many_harm_nobody_else() {
    let rig = Rig::new(Engine::Btree, 4);
    let (channel, _) = begun(&rig);
    channel.send(&frame(FrameKind::Request, 1, &&[0xff; 40][..])).unwrap();
    let mut received = Vec::new();
    channel.receive(&mut received, 1 << 20, SOON).unwrap();
    assert_eq!(split_head(&received).map(|(kind, id, _)| (kind, id)), Some((FrameKind::Reply, 1)));
    // Nodes that do not exist, numbers that overflow, and no end of them: the client never sends
    // that it has an answer.
    let mut random = fastrand::Rng::with_seed(7);
    let mut refused = false;
    for id in 2..2000 {
        let node = Node { slot: random.u32(..), ino: random.u64(..) };
        let name = [b'x'; 300];
        let call = match id % 8 {
            0 => FsCall::Lookup { parent: node, name: &name },
            1 => FsCall::Read {
                node: Node::ROOT,
                offset: u64::MAX,
                length: u32::MAX,
                untimed: false,
            },
            2 => FsCall::Write { node, offset: u64::MAX, flags: 255, bytes: b"x" },
            3 => FsCall::List {
                directory: Node::ROOT,
                cookie: u64::MAX,
                attributes: true,
                bytes: u32::MAX,
            },
            4 => FsCall::Forget { items: vec![(node, u64::MAX), (Node::ROOT, u64::MAX)] },
            5 => FsCall::Allocate {
                node: Node::ROOT,
                offset: u64::MAX,
                length: u64::MAX,
                mode: random.u8(..),
            },
            6 => FsCall::Lookup { parent: Node::ROOT, name: b"../.." },
            _ => FsCall::Release { node },
        };
        let who = Asker { uid: random.u32(..), umask: u32::MAX, ..Asker::default() };
        let asked = Asked { acknowledged: vec![id + 7, u64::MAX], once: id, done: id, who, call };
        if channel.send(&frame(FrameKind::Request, id, &asked)).is_err() {
            refused = true;
            break;
        }
    }
    assert!(refused || is_ended(&channel), "a bound on what it may leave unanswered");
    works(&rig);
}

/// A thousand sessions that do nothing, and some that only connect.
#[test]
fn a_thousand_idle_sessions_are_carried() {
    // In a process of its own: it measures the memory of its process.
    const ALONE: &str = "PANDO_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut run = std::process::Command::new(std::env::current_exe().unwrap());
        let test = "hostile::a_thousand_idle_sessions_are_carried";
        run.args(["--exact", test, "--nocapture"]).env(ALONE, "1");
        assert!(run.status().unwrap().success());
        return;
    }
    let rig = Rig::new(Engine::Btree, 5);
    device::raise_descriptor_limit();
    let silent: Vec<_> = (0..20).map(|_| link(&rig)).collect();
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
        pages * 4096
    };
    let before = resident();
    let sessions: Vec<_> = (0..1000).map(|_| begun(&rig)).collect();
    let grown = resident().saturating_sub(before);
    println!("1000 idle sessions, with their clients: {} KiB", grown >> 10);
    // Clients and server are this process, whose allocator returns nothing: it shows that none of
    // both has a buffer for each session. What the server alone takes is measured with the program
    // (`pando/tests/it/idle_sessions.rs`).
    assert!(grown < 96 << 20, "{grown} bytes for both sides of a thousand sessions");
    assert_eq!(rig.server.held().0, 1001);
    works(&rig);
    drop(sessions);
    drop(silent);
}
