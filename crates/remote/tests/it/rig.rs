//! A volume on a simulated disk, its server on a loopback address, and a client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, Env, SystemClock, SystemNet, SystemRandom, Timestamp};
use fs::{Engine, FormatOptions, Fs, OpenOptions};
use inode::{Caller, Ends, Enforce, FsError};
use remote::{Export, Proof, Remote, RemoteFs, Security, Server, ServerAddress, Settings, Target};
use rpc::Grant;
use store::Durability;
use testing::{SimDevice, SimEnv};
use vfs::{FileSystem, FsResult};
use wire::Bytes;
use wire::remote::{Asker, REMOTE_MAGIC, REMOTE_VERSION, RemoteHello, Resume, Use};

/// The name of the volume.
pub(crate) const VOLUME: &str = "vol";

/// How a client of this version begins, or takes a session up.
pub(crate) fn hello(resume: Option<Resume>) -> RemoteHello {
    RemoteHello {
        magic: REMOTE_MAGIC,
        version_min: REMOTE_VERSION,
        version: REMOTE_VERSION,
        features: 0,
        volume: Bytes::from(VOLUME.as_bytes()),
        use_for: Use::Mount,
        who: Asker::default(),
        resume,
        awaits: Vec::new(),
    }
}

/// A clock that is set.
#[derive(Debug, Default)]
pub(crate) struct SetClock(Mutex<i64>);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp(*self.0.lock())
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(u64::try_from(*self.0.lock()).unwrap_or(0))
    }

    fn sleep(&self, duration: Duration) {
        *self.0.lock() += i64::try_from(duration.as_nanos()).unwrap_or(0);
        device::yield_now();
    }
}

/// All of it.
pub(crate) struct Rig {
    env: Env,
    clock: Arc<SetClock>,
    volume: Option<Arc<fs::Volume>>,
    pub(crate) server: Server,
    pub(crate) remote: Arc<Remote>,
    far: RemoteFs,
    /// Connections are cut before every so many operations; 0: never.
    pub(crate) cut_every: u64,
    operations: AtomicU64,
}

fn options() -> OpenOptions {
    OpenOptions { durability: Durability::Sync, cache_bytes: 4 << 20, ..OpenOptions::default() }
}

/// A server on a loopback address whose clients have this grant.
pub(crate) fn server(grant: Grant, grace: Duration) -> Server {
    let who = move |_: SocketAddr, _: SocketAddr| Some(("test".to_owned(), grant.clone()));
    let settings = Settings {
        security: Security::Local(Box::new(who)),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom),
        grace: Some(grace),
    };
    Server::start(&SystemNet, SocketAddr::from(([127, 0, 0, 1], 0)), settings).unwrap()
}

/// The server of a test is trusted.
pub(crate) const TRUSTED: Proof = Proof::Local(|_, _| Ok(()));

/// How a client reaches a server.
pub(crate) fn target(server: &Server) -> Target {
    let (host, port) = ("127.0.0.1".to_owned(), server.address().port());
    Target { places: vec![ServerAddress { host, port }], volume: VOLUME.to_owned(), proof: TRUSTED }
}

/// A connection to a server; calls wait for it for so long.
pub(crate) fn connect(server: &Server, patience: Duration) -> Arc<Remote> {
    let clock = Arc::new(SystemClock::new());
    Remote::connect(Arc::new(SystemNet), clock, target(server), Some(patience)).unwrap()
}

/// A volume to serve.
pub(crate) fn export(volume: &Arc<fs::Volume>) -> Export {
    let fs: Arc<dyn FileSystem> = Arc::<fs::Volume>::clone(volume);
    let control = |_: &str, _: Caller| Err(std::io::ErrorKind::Unsupported.into());
    Export { name: VOLUME.to_owned(), fs, control: Box::new(control), warrant: None, lasting: None }
}

/// A user.
pub(crate) fn user(uid: u32) -> Caller {
    let (groups, enforce) = (Vec::new(), Enforce::Here);
    Caller { uid, gid: uid, groups, umask: 0, pid: 0, enforce, ends: Ends::NONE }
}

impl Rig {
    /// A fresh volume, served to clients with a grant.
    pub(crate) fn with(engine: Engine, seed: u64, grant: Grant) -> Rig {
        let clock = Arc::new(SetClock::default());
        let env = SimEnv::on(SimDevice::new(seed), seed).env();
        let env = Env { clock: Arc::<SetClock>::clone(&clock), ..env };
        clock.sleep(Duration::from_secs(1_700_000_000));
        let format = FormatOptions { engine, ..FormatOptions::default() };
        Fs::format(&env, &format).unwrap();
        let volume = Fs::open(env.clone(), &options()).unwrap().with_virtual_dirs();
        let volume = Arc::new(volume);
        let server = server(grant, Duration::from_secs(60));
        assert!(server.add(export(&volume)));
        let remote = connect(&server, Duration::from_secs(60));
        let far = RemoteFs::new(Arc::clone(&remote));
        let (operations, cut_every) = (AtomicU64::new(0), 0);
        Rig { env, clock, volume: Some(volume), server, remote, far, cut_every, operations }
    }

    /// The same for clients that may do everything.
    pub(crate) fn new(engine: Engine, seed: u64) -> Rig {
        Rig::with(engine, seed, Grant::all())
    }

    /// The volume over the network.
    pub(crate) fn far(&self) -> &RemoteFs {
        &self.far
    }

    /// The volume itself.
    pub(crate) fn near(&self) -> &fs::Volume {
        self.volume.as_ref().expect("it is open")
    }

    /// The same, to serve it elsewhere.
    pub(crate) fn volume(&self) -> &Arc<fs::Volume> {
        self.volume.as_ref().expect("it is open")
    }

    pub(crate) fn set_clock(&self, now: Timestamp) {
        *self.clock.0.lock() = now.0;
    }

    pub(crate) fn background(&self, steps: u64) -> FsResult<()> {
        for _ in 0..steps {
            if !self.near().background_step(64)?.more {
                break;
            }
        }
        Ok(())
    }

    /// Closes the volume and opens it again, with new sessions.
    pub(crate) fn restart(&mut self) {
        self.remote.end();
        self.server.remove(VOLUME);
        self.volume.take().unwrap().close().unwrap();
        let volume = Fs::open(self.env.clone(), &options()).unwrap().with_virtual_dirs();
        let volume = Arc::new(volume);
        assert!(self.server.add(export(&volume)));
        self.volume = Some(volume);
        self.remote = connect(&self.server, Duration::from_secs(60));
        self.far = RemoteFs::new(Arc::clone(&self.remote));
    }

    /// Serves the volume again, to new sessions.
    pub(crate) fn serve_again(&self) {
        assert!(self.server.add(export(self.volume.as_ref().unwrap())));
    }

    /// Cuts the connection now and then.
    pub(crate) fn disturb(&self) {
        let operation = self.operations.fetch_add(1, Ordering::Relaxed);
        if self.cut_every > 0 && operation.is_multiple_of(self.cut_every) {
            self.server.hang_up();
        }
    }

    /// Waits until the server's sessions hold this many nodes.
    pub(crate) fn wait_for_held(&self, nodes: usize) {
        wait_until(|| self.server.held().1 == nodes);
    }
}

/// Waits for something that must happen soon.
pub(crate) fn wait_until(mut happened: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !happened() {
        assert!(clock.monotonic() < Duration::from_secs(120), "not within 120 s");
        clock.sleep(Duration::from_millis(5));
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.remote.end();
        self.server.remove(VOLUME);
        if let Some(volume) = self.volume.take()
            && !std::thread::panicking()
        {
            match volume.close() {
                Ok(()) | Err(FsError::Io(_)) => {}
                Err(error) => panic!("a volume closes: {error}"),
            }
        }
    }
}
