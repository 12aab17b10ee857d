//! The first moments of a server that took a volume over, with clients that all arrive at once.

use std::net::SocketAddr;
use std::sync::Arc;

use device::sync::{Condvar, Mutex};
use device::{SystemClock, SystemNet, SystemRandom};
use fs::Engine;
use inode::{Caller, Kind, NodeId};
use remote::{Bounds, Security, Server, Settings, Warrant};
use rpc::Grant;
use vfs::{FileSystem, NewNode};
use wire::remote::{
    Asked, Asker, FrameKind, FsAnswer, FsCall, LockKind, LockRange, Node, OPEN_READ, OPEN_WRITE,
    Resume,
};
use wire::{FailureKind, encode};

use crate::bounds::Raw as Attacker;
use crate::lasting::{Raw, ServedVolume, frame};
use crate::rig::wait_until;

/// A right that nobody knows of until the store answers.
#[derive(Default)]
struct Slow {
    answers: Mutex<bool>,
    changed: Condvar,
    /// How many wait.
    waiting: Mutex<usize>,
}

impl Warrant for Slow {
    fn may_answer(&self) -> bool {
        *self.waiting.lock() += 1;
        let mut answers = self.answers.lock();
        self.changed.wait_while(&mut answers, |answers| !*answers);
        true
    }

    fn is_known(&self) -> bool {
        *self.answers.lock()
    }
}

/// The store is slow after a take-over, so a client connects again and again: all its hellos
/// continue at the same moment. They are of one session.
#[test]
fn hellos_of_a_session_that_wait_for_the_store_are_of_one_session() {
    let mut place = ServedVolume::new(Engine::Btree);
    let raw = Raw::begin(&place, None);
    let slow = Arc::new(Slow::default());
    place.warrant = Some(Arc::<Slow>::clone(&slow));
    place.replace();
    let session = raw.welcome.session;
    let (server, place) = (place.server.address(), place);
    device::scope(|scope| {
        let hellos: Vec<_> = (1..9)
            .map(|attempt| {
                scope.spawn(move || Raw::try_begin(server, Some(Resume { attempt, ..session })))
            })
            .collect();
        wait_until(|| *slow.waiting.lock() == 8);
        *slow.answers.lock() = true;
        slow.changed.notify_all();
        let greeted: Vec<Raw> =
            hellos.into_iter().filter_map(|hello| hello.join().unwrap()).collect();
        assert!(!greeted.is_empty());
        for raw in &greeted {
            assert_eq!(raw.welcome.session.session, session.session, "another session");
        }
    });
    wait_until(|| place.server.held().0 == 1);
    // It is the one that the volume has: changes are made.
    let mut raw = Raw::try_begin(server, Some(Resume { attempt: 20, ..session })).unwrap();
    assert!(raw.welcome.resumed);
    raw.claim(Vec::new());
    let make = FsCall::MakeDir { parent: Node::ROOT, name: b"made", mode: 0o755 };
    raw.ask(0, make, |answer| assert!(answer.is_ok(), "{answer:?}"));
    assert_eq!(place.server.held().0, 1);
}

/// What is refused leaves nothing in the volume, which keeps a bounded number of sessions for all.
#[test]
fn hellos_that_are_refused_leave_no_session_in_the_volume() {
    let who = |_: SocketAddr, _: SocketAddr| Some(("test".to_owned(), Grant::all()));
    let settings = Settings {
        security: Security::Local(Box::new(who)),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom),
        grace: None,
    };
    let (any, bounds) = (
        SocketAddr::from(([127, 0, 0, 1], 0)),
        Bounds { sessions_of_client: 3, ..Bounds::default() },
    );
    let server = Server::start_within(&SystemNet, any, settings, bounds).unwrap();
    let place = ServedVolume::on(Engine::Lsm, server);
    let sessions: Vec<_> = (0..3).map(|_| Raw::begin(&place, None)).collect();
    assert_eq!(place.fs().sessions().unwrap().len(), 3);
    for _ in 0..20 {
        let refused = Attacker::of(&place.server, None).err().map(|failure| failure.kind);
        assert_eq!(refused, Some(FailureKind::Busy));
    }
    assert_eq!(place.fs().sessions().unwrap().len(), 3);
    for raw in sessions {
        raw.channel.send(&frame(FrameKind::Bye, 0, |_| {})).unwrap();
    }
    wait_until(|| place.fs().sessions().unwrap().is_empty());
}

/// Locks wait for earlier clients, and take no thread meanwhile: anything else is answered.
#[test]
fn locks_that_wait_for_clients_of_before_keep_nothing_else_waiting() {
    let mut place = ServedVolume::new(Engine::Btree);
    let new = NewNode { kind: Kind::File, mode: 0o666, rdev: 0 };
    let file = place.fs().mknod(&Caller::root(), NodeId::ROOT, b"shown", &new).unwrap().node;
    place.fs().forget(file, 1);
    // One that does not come back for as long as it is waited for.
    let _absent = Raw::begin(&place, None);
    place.replace();
    let mut clients: Vec<Raw> = (0..2).map(|_| Raw::begin(&place, None)).collect();
    for raw in &mut clients {
        let call = FsCall::Lookup { parent: Node::ROOT, name: b"shown" };
        let node = raw.ask(0, call, |answer| match answer {
            Ok(FsAnswer::Entry(entry)) => entry.node,
            other => panic!("{other:?}"),
        });
        let flags = OPEN_READ | OPEN_WRITE;
        raw.ask(0, FsCall::Open { node, flags }, |answer| assert!(answer.is_ok()));
        for id in 100..160 {
            let kind = LockKind::Exclusive;
            let lock = LockRange { owner: id, pid: 1, kind, start: id, end: id, whole: false };
            let call = FsCall::Lock { node, lock, wait: true };
            let who = Asker::default();
            let asked = Asked { acknowledged: Vec::new(), once: 0, done: 0, who, call };
            raw.channel.send(&frame(FrameKind::Request, id, |out| encode(&asked, out))).unwrap();
        }
    }
    // More than all threads, and than those of one client: this is answered before any of them.
    for raw in &mut clients {
        let of = raw.ask_for_number(FsCall::GetAttr { node: Node::ROOT });
        assert!(of < 100, "the answer to a lock came first");
    }
}
