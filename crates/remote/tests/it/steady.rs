//! Clients that write all the time, over TLS, to a server with the least memory. Each has its part,
//! acknowledges in time, and keeps its connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use device::{Clock, Link, Listener, Net, SystemClock, SystemNet, SystemRandom};
use inode::{Caller, NodeId};
use remote::{
    Bounds, Export, Proof, Remote, RemoteFs, Security, Server, ServerAddress, Settings, Target,
};
use rpc::certificates::For;
use rpc::{ClientTls, Grant, ServerTls};
use testing::MemoryFs;
use vfs::{FileSystem, FsResult, Layer, Operation};

use crate::rig::VOLUME;
use crate::tls::{authority, files};

const CLIENTS: usize = 10;
/// Writes of a client that are under way, how many it makes, and their bytes.
const IN_FLIGHT: usize = 8;
const WRITES: usize = 3;
const BYTES: usize = 1 << 20;
/// What `--memory 128M` leaves to clients: a quarter of it for requests, less than what all want.
const MEMORY: u64 = 40 << 20;
/// How long a write takes, so that clients wait for each other.
const PAUSE: Duration = Duration::from_millis(50);
/// Most bytes of answers that all clients have not acknowledged, or not read.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

struct Slow(MemoryFs);

impl Layer for Slow {
    fn below(&self) -> &(dyn FileSystem + 'static) {
        &self.0
    }

    fn around<T>(
        &self,
        kind: Operation,
        call: impl FnOnce(&(dyn FileSystem + 'static)) -> FsResult<T>,
    ) -> FsResult<T> {
        if kind == Operation::Write {
            SystemClock::new().sleep(PAUSE);
        }
        call(self.below())
    }
}

/// Counts connections.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicUsize>);

impl Net for Counting {
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        SystemNet.resolve(host, port)
    }

    fn connect(&self, to: SocketAddr, within: Duration) -> io::Result<Arc<dyn Link>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        SystemNet.connect(to, within)
    }

    fn listen(&self, at: SocketAddr) -> io::Result<Arc<dyn Listener>> {
        SystemNet.listen(at)
    }
}

#[test]
fn ten_clients_that_write_steadily_keep_their_connections_and_acknowledge_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let ours = authority(directory);
    ours.make("server", &For::Server(&["127.0.0.1".into()]), 30).unwrap();
    let grant = Grant { keeps_root: true, ..Grant::all() };
    let tls = ServerTls::read(&files(directory, "server", directory)).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let (security, random) = (Security::Tls(tls), Arc::new(SystemRandom));
    let settings = Settings { security, clock: Arc::clone(&clock), random, grace: None };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let bounds = Bounds::within(MEMORY);
    let server = Server::start_within(&SystemNet, any, settings, bounds).unwrap();
    let control = |_: &str, _: Caller| Err(io::ErrorKind::Unsupported.into());
    let (name, fs) = (VOLUME.to_owned(), Arc::new(Slow(MemoryFs::new())));
    let control = Box::new(control);
    assert!(server.add(Export { name, fs, control, warrant: None, lasting: None }));
    let net = Counting::default();
    let connect = |number: usize| {
        let name = format!("client{number}");
        ours.make(&name, &For::Client(&grant), 30).unwrap();
        let proof = ClientTls::read(&files(directory, &name, directory)).unwrap();
        let (host, port) = ("127.0.0.1".to_owned(), server.address().port());
        let places = vec![ServerAddress { host, port }];
        let target = Target { places, volume: VOLUME.to_owned(), proof: Proof::Tls(proof) };
        Remote::connect(Arc::new(net.clone()), Arc::clone(&clock), target, None).unwrap()
    };
    let clients: Vec<_> = (0..CLIENTS).map(connect).collect();
    let mounts: Vec<_> = clients.iter().map(|one| RemoteFs::new(Arc::clone(one))).collect();
    let root = Caller::root();
    let most = device::scope(|scope| {
        let mut writers = Vec::new();
        for (number, far) in mounts.iter().enumerate() {
            let name = format!("file{number}");
            let made = far.create(&root, NodeId::ROOT, name.as_bytes(), (0o666, 2)).unwrap();
            for _ in 0..IN_FLIGHT {
                let root = &root;
                writers.push(scope.spawn(move || {
                    for _ in 0..WRITES {
                        far.write(root, made.node, 0, &vec![1; BYTES]).unwrap();
                    }
                }));
            }
        }
        let mut most = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            most = most.max(server.totals().answer_bytes);
            clock.sleep(Duration::from_millis(2));
        }
        most
    });
    println!("at most {most} bytes of answers");
    assert!(most <= ANSWER_BYTES_MAX, "{most} bytes of answers");
    assert_eq!((net.0.load(Ordering::SeqCst), server.totals().refused), (CLIENTS, 0));
    for client in clients {
        client.end();
    }
}
