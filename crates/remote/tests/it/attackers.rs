//! Each bound of a server, reached by a client that means harm: it is refused, and others are not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use device::sync::Mutex;
use device::{Net, SystemClock, SystemNet, SystemRandom};
use fs::Engine;
use inode::{Caller, FsError, NodeId};
use remote::{Bounds, Security, Server, Settings};
use rpc::{Channel, ChannelError, Grant};
use vfs::FileSystem;
use wire::FailureKind;
use wire::remote::{
    Asked, Asker, FrameKind, FsAnswer, FsCall, FsFailure, Node, OPEN_READ, OPEN_WRITE, put_head,
};

use crate::bounds::Raw;
use crate::rig::{Rig, export, wait_until};

const SOON: Duration = Duration::from_secs(60);

/// A server with small bounds; the name of the client that connects next.
pub(crate) fn serve(rig: &Rig, bounds: Bounds) -> (Server, Arc<Mutex<String>>) {
    let name = Arc::new(Mutex::new("attacker".to_owned()));
    let named = Arc::clone(&name);
    let who = move |_: SocketAddr, _: SocketAddr| Some((named.lock().clone(), Grant::all()));
    let settings = Settings {
        security: Security::Local(Box::new(who)),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom),
        grace: None,
    };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::start_within(&SystemNet, any, settings, bounds).unwrap();
    assert!(server.add(export(rig.volume())));
    (server, name)
}

/// Another client is served.
fn others_are_served((server, name): &(Server, Arc<Mutex<String>>)) {
    let attacker = std::mem::replace(&mut *name.lock(), "honest".to_owned());
    let (mut raw, _) = Raw::of(server, None).unwrap_or_else(|failure| panic!("{failure}"));
    raw.call(1, FsCall::GetAttr { node: Node::ROOT }, |answer| assert!(answer.is_ok()));
    raw.send(FrameKind::Bye, 0);
    *name.lock() = attacker;
}

/// The server has closed a connection, sooner than it misses a hello.
fn is_closed(channel: &Channel) -> bool {
    let received = channel.receive(&mut Vec::new(), 1 << 10, Duration::from_secs(5));
    matches!(received, Err(ChannelError::Closed | ChannelError::Broken(_)))
}

fn refused(server: &Server) -> FailureKind {
    match Raw::of(server, None) {
        Ok(_) => panic!("it is let in"),
        Err(failure) => failure.kind,
    }
}

#[test]
fn connections_that_identify_themselves_to_nobody_make_way() {
    let rig = Rig::new(Engine::Btree, 31);
    let served = serve(&rig, Bounds { strangers_of_address: 4, ..Bounds::default() });
    let connect = || SystemNet.connect(served.0.address(), SOON).unwrap();
    let channel = |link| Channel::plain(link, Arc::new(SystemClock::new())).unwrap();
    // They send nothing.
    let silent: Vec<_> = (0..12).map(|_| channel(connect())).collect();
    // (At most four are left: each of the others is closed long before a hello is missed.)
    for closed in &silent[..8] {
        assert!(is_closed(closed));
    }
    others_are_served(&served);
}

#[test]
fn one_client_has_not_all_connections() {
    let rig = Rig::new(Engine::Btree, 32);
    let served = serve(&rig, Bounds { connections_of_client: 3, ..Bounds::default() });
    let mut sessions: Vec<_> = (0..3).map(|_| Raw::of(&served.0, None)).collect();
    assert_eq!(refused(&served.0), FailureKind::Busy);
    others_are_served(&served);
    let (one, _) = sessions.pop().unwrap().unwrap_or_else(|failure| panic!("{failure}"));
    one.send(FrameKind::Bye, 0);
    wait_until(|| Raw::of(&served.0, None).is_ok());
}

#[test]
fn connections_in_all_are_bounded() {
    let rig = Rig::new(Engine::Btree, 33);
    let served = serve(&rig, Bounds { connections: 5, ..Bounds::default() });
    let sessions: Vec<_> = (0..5).map(|_| Raw::of(&served.0, None)).collect();
    let link = SystemNet.connect(served.0.address(), SOON).unwrap();
    let channel = Channel::plain(link, Arc::new(SystemClock::new())).unwrap();
    assert!(is_closed(&channel));
    drop(sessions);
    wait_until(|| served.0.totals().connections == 0);
    assert_eq!((served.0.held().0, served.0.totals().refused), (5, 1));
    others_are_served(&served);
}

#[test]
fn one_client_has_not_all_sessions() {
    let rig = Rig::new(Engine::Btree, 34);
    let served = serve(&rig, Bounds { sessions_of_client: 2, ..Bounds::default() });
    let one = Raw::of(&served.0, None);
    let two = Raw::of(&served.0, None);
    for _ in 0..5 {
        assert_eq!(refused(&served.0), FailureKind::Busy);
    }
    others_are_served(&served);
    // Sessions whose connection is lost count: their clients may come back.
    drop(one);
    assert_eq!(refused(&served.0), FailureKind::Busy);
    let (two, _) = two.unwrap_or_else(|failure| panic!("{failure}"));
    two.send(FrameKind::Bye, 0);
    wait_until(|| Raw::of(&served.0, None).is_ok());
}

#[test]
fn nodes_that_a_client_holds_are_bounded() {
    let rig = Rig::new(Engine::Btree, 35);
    let names: Vec<String> = (0..6).map(|number| format!("f{number}")).collect();
    for name in &names {
        let made = rig.near().create(&Caller::root(), NodeId::ROOT, name.as_bytes(), (0o666, 2));
        rig.near().forget(made.unwrap().node, 1);
    }
    let served = serve(&rig, Bounds { nodes_of_client: 4, ..Bounds::default() });
    // Two of its sessions: the bound is the client's.
    let mut sessions: Vec<_> = (0..2)
        .map(|_| Raw::of(&served.0, None).unwrap_or_else(|failure| panic!("{failure}")).0)
        .collect();
    let mut held = Vec::new();
    for (id, name) in (1..).zip(&names) {
        let call = FsCall::Lookup { parent: Node::ROOT, name: name.as_bytes() };
        let looked_up = sessions[id as usize % 2].call(id, call, |answer| match answer {
            Ok(FsAnswer::Entry(entry)) => Ok(entry.node),
            Ok(other) => panic!("{other:?}"),
            Err(failure) => Err(failure),
        });
        held.push(looked_up);
    }
    assert!(held[..4].iter().all(Result::is_ok), "{held:?}");
    assert_eq!(held[4..], [Err(FsFailure::Busy), Err(FsFailure::Busy)]);
    // A name that it makes would be one more; the file is not made.
    let create =
        FsCall::Create { parent: Node::ROOT, name: b"new", mode: 0o666, flags: OPEN_WRITE };
    sessions[0].call(10, create, |answer| assert_eq!(answer, Err(FsFailure::Busy)));
    let made = rig.near().lookup(&Caller::root(), NodeId::ROOT, b"new");
    assert!(matches!(made, Err(FsError::NotFound)), "{made:?}");
    // A listing is one, and holds no more either.
    let list = FsCall::List { directory: Node::ROOT, cookie: 0, attributes: true, bytes: 1 << 16 };
    sessions[0].call(11, list, |answer| {
        let Ok(FsAnswer::Listing(listed, true)) = answer else { panic!("{answer:?}") };
        assert!(listed.len() >= names.len() && listed.iter().all(|one| one.entry.is_none()));
    });
    others_are_served(&served);
    let items = vec![(held[0].clone().unwrap(), 1)];
    sessions[1].call(12, FsCall::Forget { items }, |answer| assert!(answer.is_ok()));
    let call = FsCall::Lookup { parent: Node::ROOT, name: b"f5" };
    sessions[0].call(12, call, |answer| assert!(answer.is_ok()));
}

#[test]
fn searches_of_a_client_are_bounded() {
    let rig = Rig::new(Engine::Btree, 36);
    let served = serve(&rig, Bounds { searches_of_client: 0, ..Bounds::default() });
    let (mut raw, _) = Raw::of(&served.0, None).unwrap_or_else(|failure| panic!("{failure}"));
    let name = b"user.pando.rfiles";
    let totals = FsCall::GetXattr { node: Node::ROOT, name };
    raw.call(1, totals, |answer| assert_eq!(answer, Err(FsFailure::Busy)));
    let other = FsCall::GetXattr { node: Node::ROOT, name: b"user.other" };
    raw.call(2, other, |answer| assert_eq!(answer, Err(FsFailure::NoAttribute)));
    let served = serve(&rig, Bounds { searches_of_client: 1, ..Bounds::default() });
    let (mut raw, _) = Raw::of(&served.0, None).unwrap_or_else(|failure| panic!("{failure}"));
    for id in 1..9 {
        let totals = FsCall::GetXattr { node: Node::ROOT, name };
        raw.call(id, totals, |answer| assert_ne!(answer, Err(FsFailure::Busy)));
    }
}

/// It acknowledges no answer that has to be kept for it.
#[test]
fn answers_that_are_kept_for_a_client_are_bounded() {
    let rig = Rig::new(Engine::Btree, 37);
    for number in 0..200 {
        let name = format!("{number:0200}");
        let made = rig.near().create(&Caller::root(), NodeId::ROOT, name.as_bytes(), (0o666, 2));
        rig.near().forget(made.unwrap().node, 1);
    }
    let served = serve(&rig, Bounds { kept_bytes_of_client: 256 << 10, ..Bounds::default() });
    let (mut raw, _) = Raw::of(&served.0, None).unwrap_or_else(|failure| panic!("{failure}"));
    let mut answers = 0;
    for id in 1..100 {
        let (directory, bytes) = (Node::ROOT, 256 << 10);
        let list = FsCall::List { directory, cookie: 0, attributes: true, bytes };
        if !raw.ask(id, Vec::new(), list) || raw.next().is_none() {
            break;
        }
        answers += 1;
    }
    assert!((2..20).contains(&answers), "{answers} answers of 50 KB were kept");
    wait_until(|| served.0.held() == (0, 0));
    others_are_served(&served);
}

#[test]
fn groups_and_long_messages_are_refused() {
    let rig = Rig::new(Engine::Btree, 38);
    let served = serve(&rig, Bounds::default());
    let (mut raw, _) = Raw::of(&served.0, None).unwrap_or_else(|failure| panic!("{failure}"));
    let mut ask = |id: u64, groups: u32| {
        let who = Asker { groups: (0..groups).collect(), ..Asker::default() };
        let call = FsCall::Access { node: Node::ROOT, mask: u32::from(OPEN_READ) };
        let asked = Asked { acknowledged: Vec::new(), once: 0, done: 0, who, call };
        raw.send_asked(id, &asked);
        let (_, _, body) = raw.next().unwrap();
        let answer: Result<FsAnswer<'_>, FsFailure> = wire::decode(&body).unwrap();
        answer.map(|_| ())
    };
    assert_eq!(ask(1, 1024), Ok(()));
    assert_eq!(ask(2, 1025), Err(FsFailure::AccessDenied));
    assert_eq!(ask(3, 100_000), Err(FsFailure::AccessDenied));
    // A frame with a length that none may have, whose bytes are not waited for.
    let mut head = u32::MAX.to_le_bytes().to_vec();
    let mut frame = Vec::new();
    put_head(FrameKind::Request, 9, &mut frame);
    head.extend_from_slice(&frame);
    let link = SystemNet.connect(served.0.address(), SOON).unwrap();
    link.write_all(&head).unwrap();
    let channel = Channel::plain(link, Arc::new(SystemClock::new())).unwrap();
    assert!(is_closed(&channel));
    others_are_served(&served);
}
