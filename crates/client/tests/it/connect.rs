//! Sockets of any path length, owners that leave, peers.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Connection, Launch, LaunchReport, Listening, Opened, connect_or_spawn, peer};
use device::{Clock, SystemClock};
use wire::{
    Answer, Body, Call, Failure, FailureKind, HELLO_MAGIC, Reply, Request, VERSION, Welcome,
    decode, encode, read_frame, write_frame,
};

/// Listens in a directory.
fn bind(volume: &Path) -> std::io::Result<Listening> {
    let directory = device::LocalDevice::open(volume).unwrap();
    Listening::bind(directory.directory())
}

/// Accepts one connection and answers every request with nothing.
fn serve_one(listener: &Listening, version: u32) {
    let mut stream = listener.accept().unwrap();
    let mut buffer = Vec::new();
    read_frame(&mut stream, &mut buffer).unwrap();
    let mut out = Vec::new();
    encode(&Welcome { magic: HELLO_MAGIC, version, pid: 77, mount_point: None }, &mut out);
    write_frame(&mut stream, &out).unwrap();
    while read_frame(&mut stream, &mut buffer).is_ok() {
        let Request { id, .. } = decode(&buffer).unwrap();
        out.clear();
        encode(&Reply { id, body: Body::Done(Answer::Nothing) }, &mut out);
        write_frame(&mut stream, &out).unwrap();
    }
}

/// Pieces of a message that are sent from where they are arrive as one message, however many there
/// are and however slowly the daemon reads. A message that is too long is refused, and nothing is
/// sent.
#[test]
fn a_message_in_pieces_arrives_whole() {
    let temporary = tempfile::tempdir().unwrap();
    let listener = bind(temporary.path()).unwrap();
    let server = device::spawn("server", move || {
        let mut stream = listener.accept().unwrap();
        let (mut buffer, mut out) = (Vec::new(), Vec::new());
        read_frame(&mut stream, &mut buffer).unwrap();
        let welcome = Welcome { magic: HELLO_MAGIC, version: VERSION, pid: 77, mount_point: None };
        encode(&welcome, &mut out);
        write_frame(&mut stream, &out).unwrap();
        let mut requests = Vec::new();
        while read_frame(&mut stream, &mut buffer).is_ok() {
            requests.push(buffer.clone());
        }
        requests
    })
    .unwrap();
    let Opened::Connected(mut connection) = Connection::open(temporary.path()).unwrap() else {
        panic!("not connected");
    };
    let bytes: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let pieces = [&[][..], &bytes[..1], &bytes[1..500_000], &[], &bytes[500_000..]];
    // More than the kernel takes at once.
    let many: Vec<&[u8]> = bytes.chunks(300).collect();
    for (id, pieces) in [(1, &pieces[..]), (2, &many), (3, &[])] {
        assert_eq!(connection.send_items(pieces).unwrap(), id);
    }
    let refused = connection.send_items(&[&bytes, &bytes]).unwrap_err();
    assert_eq!(refused.kind, FailureKind::Invalid);
    drop(connection);
    let requests = server.join().unwrap();
    let requests: Vec<Request<'_>> = requests.iter().map(|it| decode(it).unwrap()).collect();
    let items: [&[u8]; 3] = [&bytes, &bytes, &[]];
    let expected = items.into_iter().zip(1..);
    let expected = expected.map(|(items, id)| Request { id, call: Call::Import { items } });
    assert!(requests == expected.collect::<Vec<_>>());
}

fn long_directory(below: &Path) -> PathBuf {
    let path = below.join("x".repeat(200)).join("y".repeat(200));
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn a_path_longer_than_a_socket_address_works() {
    let temporary = tempfile::tempdir().unwrap();
    let volume = long_directory(temporary.path());
    let listener = bind(&volume).unwrap();
    let server = device::spawn("server", move || serve_one(&listener, VERSION)).unwrap();
    let Opened::Connected(mut connection) = Connection::open(&volume).unwrap() else {
        panic!("not connected");
    };
    assert_eq!(connection.welcome().pid, 77);
    assert_eq!(connection.ask(Call::Sync).unwrap(), Answer::Nothing);
    drop(connection);
    server.join().unwrap();
}

#[test]
fn a_stale_socket_is_replaced() {
    let temporary = tempfile::tempdir().unwrap();
    drop(bind(temporary.path()).unwrap());
    assert!(temporary.path().join(client::SOCKET).exists(), "the name stays");
    assert!(matches!(Connection::open(temporary.path()), Ok(Opened::NoDaemon)));
    drop(bind(temporary.path()).unwrap());
}

#[test]
fn a_removed_socket_is_created_again() {
    let temporary = tempfile::tempdir().unwrap();
    let volume = temporary.path().to_owned();
    let first = bind(&volume).unwrap();
    assert!(first.restored().unwrap().is_none(), "it is there");
    std::fs::remove_file(volume.join(client::SOCKET)).unwrap();
    assert!(matches!(Connection::open(&volume), Ok(Opened::NoDaemon)));
    let second = first.restored().unwrap().unwrap();
    // The socket that the first listener knows is not there.
    first.remove().unwrap();
    let server = device::spawn("server", move || serve_one(&second, VERSION)).unwrap();
    assert!(matches!(Connection::open(&volume), Ok(Opened::Connected(_))));
    server.join().unwrap();
}

/// Only the socket that was made goes, out of the directory where it was made.
#[test]
#[expect(clippy::disallowed_methods, reason = "somebody else does it, behind the owner's back")]
fn another_daemons_socket_is_not_removed() {
    let temporary = tempfile::tempdir().unwrap();
    let (volume, moved) = (temporary.path().join("volume"), temporary.path().join("moved"));
    std::fs::create_dir(&volume).unwrap();
    let old = bind(&volume).unwrap();
    std::fs::rename(&volume, &moved).unwrap();
    std::fs::create_dir(&volume).unwrap();
    let new = bind(&volume).unwrap();
    old.remove().unwrap();
    assert!(volume.join(client::SOCKET).exists() && !moved.join(client::SOCKET).exists());
    // In one directory, too.
    let newest = bind(&volume).unwrap();
    new.remove().unwrap();
    assert!(volume.join(client::SOCKET).exists());
    newest.remove().unwrap();
    assert!(!volume.join(client::SOCKET).exists());
    assert!(newest.restored().unwrap().is_some());
}

/// The owner of the directory may put a link in the place of the socket while the superuser makes
/// it. It may be a symbolic link, or another name of a socket of the superuser's.
#[test]
fn the_target_of_a_link_at_the_sockets_path_is_not_opened_to_all() {
    let temporary = tempfile::tempdir_in("/dev/shm").unwrap();
    let secret = temporary.path().join("secret");
    std::fs::write(&secret, b"").unwrap();
    stays_closed(temporary.path(), &secret, |secret, link| {
        std::os::unix::fs::symlink(secret, link).unwrap();
    });
    let secret = temporary.path().join("socket");
    let _listener = UnixListener::bind(&secret).unwrap();
    stays_closed(temporary.path(), &secret, |secret, link| {
        std::fs::hard_link(secret, link).unwrap();
    });
}

fn stays_closed(place: &Path, secret: &Path, make_link: fn(&Path, &Path)) {
    let volume = tempfile::tempdir_in(place).unwrap();
    std::fs::set_permissions(secret, PermissionsExt::from_mode(0o600)).unwrap();
    let (socket, link) = (volume.path().join(client::SOCKET), volume.path().join("link"));
    make_link(secret, &link);
    let ended = Arc::new(AtomicBool::new(false));
    let (flag, secret_there) = (Arc::clone(&ended), secret.to_owned());
    let other = device::spawn("other", move || {
        while !flag.load(Ordering::Relaxed) {
            let (at, how) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
            // It fails while there is no socket.
            if rustix::fs::renameat_with(at, &link, at, &socket, how).is_ok() {
                std::fs::remove_file(&link).unwrap();
                make_link(&secret_there, &link);
            }
        }
    });
    let (other, clock) = (other.unwrap(), SystemClock::new());
    let mut mode = 0o600;
    while mode == 0o600 && clock.monotonic() < Duration::from_secs(2) {
        // It may report that another file is there.
        bind(volume.path()).map(drop).unwrap_or_default();
        mode = std::fs::metadata(secret).unwrap().permissions().mode() & 0o777;
    }
    ended.store(true, Ordering::Relaxed);
    other.join().unwrap();
    assert_eq!(mode, 0o600);
}

#[test]
fn every_user_may_connect_with_any_umask_of_the_daemon() {
    let temporary = tempfile::tempdir().unwrap();
    let _listening = bind(temporary.path()).unwrap();
    let mode = std::fs::metadata(temporary.path().join(client::SOCKET)).unwrap().permissions();
    assert_eq!(mode.mode() & 0o222, 0o222);
}

#[test]
fn another_protocol_version_is_named() {
    let temporary = tempfile::tempdir().unwrap();
    let listener = bind(temporary.path()).unwrap();
    let server = device::spawn("server", move || serve_one(&listener, VERSION + 1)).unwrap();
    let failure = Connection::open(temporary.path()).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Protocol);
    assert!(failure.message.contains("77"), "{failure:?}");
    server.join().unwrap();
}

#[test]
fn an_ending_daemon_is_replaced_by_a_new_one() {
    let temporary = tempfile::tempdir().unwrap();
    let volume = temporary.path().to_owned();
    let leaving = bind(&volume).unwrap();
    let leaver = device::spawn("leaver", move || drop(leaving.accept().unwrap())).unwrap();
    let spawned = Cell::new(0);
    let mut servers = Vec::new();
    let connection = connect_or_spawn(&volume, &SystemClock::new(), &mut || {
        spawned.set(spawned.get() + 1);
        if spawned.get() == 1 {
            return Ok(Launch::Taken);
        }
        let listener = bind(&volume).unwrap();
        servers.push(device::spawn("server", move || serve_one(&listener, VERSION)).unwrap());
        Ok(Launch::Ready { pid: 77 })
    })
    .unwrap();
    assert_eq!(spawned.get(), 2);
    drop(connection);
    leaver.join().unwrap();
    for server in servers {
        server.join().unwrap();
    }
}

#[test]
fn a_missing_directory_is_an_error() {
    let failure = Connection::open(Path::new("/nowhere/at/all")).unwrap_err();
    assert_eq!(failure.kind, FailureKind::NotFound);
}

#[test]
fn the_kernel_reports_the_peers_ids() {
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let found = peer(one.as_fd()).unwrap();
    assert_eq!(found.pid, std::process::id().cast_signed());
    assert_eq!(found.uid, rustix::process::geteuid().as_raw());
}

#[test]
fn launch_reports_round_trip() {
    let failed = Launch::Failed(Failure::new(FailureKind::NoSpace, "full"));
    let mut bytes = Vec::new();
    LaunchReport::new(&mut bytes).send(&failed);
    assert_eq!(Launch::read(&mut bytes.as_slice()), failed);
    assert!(matches!(Launch::read(&mut [].as_slice()), Launch::Failed(_)));
}
