//! Callers that a signal interrupts while there is no server.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{Clock, SystemClock, SystemNet};
use fs::Engine;
use inode::{Caller, FsError, NodeId};
use remote::{Remote, RemoteFs, ServerAddress, Target};
use vfs::{FileLock, FileSystem, LockKind, Locked};

use crate::rig::{Rig, TRUSTED, VOLUME, wait_until};

/// Between a client and a server.
#[derive(Default)]
struct Proxy {
    /// What the server sends is dropped.
    mute: AtomicBool,
    /// Connections are closed.
    cut: AtomicBool,
}

fn through(server: SocketAddr) -> (SocketAddr, Arc<Proxy>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let proxy = Arc::new(Proxy::default());
    let own = Arc::clone(&proxy);
    device::spawn("proxy", move || {
        while let Ok((client, _)) = listener.accept() {
            let Ok(server) = TcpStream::connect(server) else { return };
            if own.cut.load(Ordering::SeqCst) {
                continue;
            }
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            device::spawn("to", move || std::io::copy(&mut from, &mut to).unwrap_or(0)).unwrap();
            server.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let mut buffer = [0; 4096];
            while !own.cut.load(Ordering::SeqCst) {
                let count = match (&server).read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => count,
                    Err(_) => continue,
                };
                if !own.mute.load(Ordering::SeqCst)
                    && (&client).write_all(&buffer[..count]).is_err()
                {
                    break;
                }
            }
            client.shutdown(Shutdown::Both).unwrap_or_default();
            server.shutdown(Shutdown::Both).unwrap_or_default();
        }
    })
    .unwrap();
    (address, proxy)
}

fn far_through(rig: &Rig) -> (Arc<Remote>, RemoteFs, Arc<Proxy>) {
    let (address, proxy) = through(rig.server.address());
    let (host, volume) = ("127.0.0.1".to_owned(), VOLUME.to_owned());
    let target = Target {
        places: vec![ServerAddress { host, port: address.port() }],
        volume,
        proof: TRUSTED,
    };
    let patience = Some(Duration::from_secs(60));
    let clock = Arc::new(SystemClock::new());
    let remote = Remote::connect(Arc::new(SystemNet), clock, target, patience).unwrap();
    let far = RemoteFs::new(Arc::clone(&remote));
    (remote, far, proxy)
}

/// "Interrupted" would have the program make the change again.
#[test]
fn a_change_that_was_sent_is_not_interrupted() {
    let rig = Rig::new(Engine::Btree, 11);
    let (remote, far, proxy) = far_through(&rig);
    let root = Caller::root();
    let cancel = Arc::new(AtomicBool::new(false));
    proxy.mute.store(true, Ordering::SeqCst);
    let made = device::scope(|scope| {
        let make =
            || vfs::with_cancellation(&cancel, || far.mkdir(&root, NodeId::ROOT, b"d", 0o755));
        let making = scope.spawn(make);
        wait_until(|| rig.near().lookup(&root, NodeId::ROOT, b"d").is_ok());
        proxy.cut.store(true, Ordering::SeqCst);
        SystemClock::new().sleep(Duration::from_millis(300));
        cancel.store(true, Ordering::SeqCst);
        SystemClock::new().sleep(Duration::from_millis(500));
        proxy.mute.store(false, Ordering::SeqCst);
        proxy.cut.store(false, Ordering::SeqCst);
        making.join().unwrap()
    });
    assert!(made.is_ok(), "{made:?}");
    remote.end();
}

/// A process that is killed in an outage leaves no lock.
#[test]
fn an_end_of_locks_that_is_interrupted_is_made_later() {
    let rig = Rig::new(Engine::Lsm, 12);
    let (remote, far, proxy) = far_through(&rig);
    let root = Caller::root();
    let node = far.create(&root, NodeId::ROOT, b"f", (0o600, 2)).unwrap().node;
    let lock = |owner| FileLock {
        owner,
        pid: 1,
        kind: LockKind::Exclusive,
        start: 0,
        end: u64::MAX,
        whole: false,
    };
    assert!(matches!(far.lock(&root, node, &lock(1), false).unwrap(), Locked::Done));
    proxy.cut.store(true, Ordering::SeqCst);
    SystemClock::new().sleep(Duration::from_millis(300));
    let cancel = Arc::new(AtomicBool::new(true));
    let ended = vfs::with_cancellation(&cancel, || far.unlock(&root, node, 1, false));
    assert!(matches!(ended, Err(FsError::Interrupted)), "{ended:?}");
    proxy.cut.store(false, Ordering::SeqCst);
    wait_until(|| matches!(far.lock(&root, node, &lock(2), false), Ok(Locked::Done)));
    // The same owner's next lock is not ended by that.
    far.unlock(&root, node, 2, false).unwrap();
    assert!(matches!(far.lock(&root, node, &lock(1), false).unwrap(), Locked::Done));
    remote.end();
}
