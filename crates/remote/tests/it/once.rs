//! A connection that is cut at any byte, and a server that forgot its sessions.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use device::{SystemClock, SystemNet};
use fs::Engine;
use inode::{Caller, FsError, NodeId};
use remote::{Remote, RemoteFs, ServerAddress, Target};
use vfs::FileSystem;

use crate::rig::{Rig, TRUSTED, VOLUME, user};

/// Carries connections to a server and cuts each after a number of bytes from the server, which
/// it doubles each time.
fn cutting(server: SocketAddr, first: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let cuts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&cuts);
    device::spawn("cutting", move || {
        let mut left = first;
        while let Ok((client, _)) = listener.accept() {
            let Ok(server) = TcpStream::connect(server) else { return };
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            device::spawn("to", move || std::io::copy(&mut from, &mut to).unwrap_or(0)).unwrap();
            let mut rest = left;
            let mut buffer = [0; 512];
            while rest > 0 {
                let most = buffer.len().min(rest);
                let count = (&server).read(&mut buffer[..most]).unwrap_or(0);
                if count == 0 || (&client).write_all(&buffer[..count]).is_err() {
                    break;
                }
                rest -= count;
            }
            counted.fetch_add(1, Ordering::SeqCst);
            client.shutdown(std::net::Shutdown::Both).unwrap_or_default();
            server.shutdown(std::net::Shutdown::Both).unwrap_or_default();
            left = left * 9 / 8 + 1;
        }
    })
    .unwrap();
    (address, cuts)
}

/// Exclusive creations, links and appends: executed twice, each would fail or show.
#[test]
fn answers_that_are_cut_at_any_byte_are_given_again() {
    let rig = Rig::new(Engine::Btree, 1);
    let (address, cuts) = cutting(rig.server.address(), 150);
    let (host, volume) = ("127.0.0.1".to_owned(), VOLUME.to_owned());
    let target = Target {
        places: vec![ServerAddress { host, port: address.port() }],
        volume,
        proof: TRUSTED,
    };
    let clock = Arc::new(SystemClock::new());
    let patience = Some(Duration::from_secs(60));
    let remote = Remote::connect(Arc::new(SystemNet), clock, target, patience).unwrap();
    let far = RemoteFs::new(Arc::clone(&remote));
    let root = Caller::root();
    let log = far.create(&root, NodeId::ROOT, b"log", (0o644, 2)).unwrap().node;
    let mut expected = Vec::new();
    for round in 0..60_u8 {
        let name = format!("file-{round}").into_bytes();
        let made = far.create(&root, NodeId::ROOT, &name, (0o644, 2));
        let made = made.unwrap_or_else(|error| panic!("round {round}: {error}"));
        far.link(&root, made.node, NodeId::ROOT, format!("link-{round}").as_bytes()).unwrap();
        far.append(&root, log, &[round; 10]).unwrap();
        expected.extend([round; 10]);
        if round % 3 == 0 {
            far.unlink(&root, NodeId::ROOT, &name).unwrap();
        }
    }
    let mut found = vec![0; 1000];
    let length = far.read(&root, log, 0, &mut found).unwrap();
    assert_eq!(&found[..length], &expected[..]);
    assert!(cuts.load(Ordering::SeqCst) > 10, "{}", cuts.load(Ordering::SeqCst));
    remote.end();
}

#[test]
fn a_server_that_forgot_the_session_repeats_no_change() {
    let rig = Rig::new(Engine::Lsm, 2);
    let root = Caller::root();
    let far = rig.far();
    let held = far.create(&root, NodeId::ROOT, b"held", (0o600, 2)).unwrap().node;
    far.write(&root, held, 0, b"before").unwrap();
    // The volume is served again: its sessions are gone.
    rig.server.remove(VOLUME);
    assert_eq!(rig.server.held(), (0, 0));
    let waiting = device::scope(|scope| {
        let asks = scope.spawn(|| far.getattr(&user(5), NodeId::ROOT));
        device::Clock::sleep(&SystemClock::new(), Duration::from_millis(300));
        rig.serve_again();
        asks.join().unwrap()
    });
    waiting.expect("a call that changes nothing is asked again");
    assert!(matches!(far.getattr(&root, held), Err(FsError::Stale)), "it was the session's");
    let found = far.lookup(&root, NodeId::ROOT, b"held").unwrap().node;
    let mut bytes = [0; 6];
    assert_eq!(far.read(&root, found, 0, &mut bytes).unwrap(), 6);
    assert_eq!(&bytes, b"before");
}

/// What was unlinked while it was open is there until the session ends, and then no longer.
#[test]
fn open_files_outlive_their_names_until_the_session_ends() {
    let rig = Rig::new(Engine::Btree, 3);
    let (root, far) = (Caller::root(), rig.far());
    let node = far.create(&root, NodeId::ROOT, b"gone", (0o600, 2)).unwrap().node;
    far.write(&root, node, 0, b"contents").unwrap();
    far.unlink(&root, NodeId::ROOT, b"gone").unwrap();
    rig.server.hang_up();
    let mut bytes = [0; 8];
    assert_eq!(far.read(&root, node, 0, &mut bytes).unwrap(), 8);
    assert_eq!(&bytes, b"contents");
    assert_eq!(rig.server.held(), (1, 1));
    rig.remote.end();
    rig.wait_for_held(0);
    assert!(matches!(rig.near().getattr(&root, node), Err(FsError::Stale)));
}

/// Without a server a call ends with an error, after the time that it may wait.
#[test]
fn calls_without_a_server_end_with_an_error() {
    let rig = Rig::new(Engine::Btree, 4);
    let remote = crate::rig::connect(&rig.server, Duration::from_millis(300));
    let far = RemoteFs::new(Arc::clone(&remote));
    rig.server.remove(VOLUME);
    let error = far.mkdir(&Caller::root(), NodeId::ROOT, b"x", 0o755).unwrap_err();
    assert!(matches!(&error, FsError::Io(_)), "{error}");
    remote.end();
}
