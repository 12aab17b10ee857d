//! Machines of a simulation: servers that take the volume over from each other, and clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::sync::{Condvar, Mutex};
use device::{Blobs, Clock, Env, Objects, SystemClock, Thread};
use fs::{Engine, FormatOptions, Fs, Layout, OpenOptions};
use program::Background;
use remote::{Export, Place, Proof, Remote, RemoteFs, Security, Server, Settings, Target, Warrant};
use rpc::Grant;
use store::Durability;
use testing::sim::{Delays, Host, Latency, Scheduler, SimNet, SimStore};
use testing::{FarBlobs, SeededRandom, SimDevice};
use vfs::FileSystem;

use crate::client::Mounted;
use crate::warrant::Owned;

pub(crate) const VOLUME: &str = "vol";
const URL: &str = "s3://bucket/prefix";
const PORT: u16 = 7000;
/// Files with more bytes have objects of their own.
const SMALL_FILE_BYTES: u64 = 24;
/// Places of servers.
const SERVER_PLACES: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// Where the places of clients begin.
const CLIENT_PLACES: u8 = 100;

/// Everything that machines share.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) net: Arc<SimNet>,
    pub(crate) store: Arc<SimStore>,
    pub(crate) clock: SystemClock,
    /// The last server that has opened the volume.
    pub(crate) serves: Mutex<Option<Host>>,
    /// Why a server could not end as it should.
    pub(crate) faults: Mutex<Vec<String>>,
}

pub(crate) fn options() -> OpenOptions {
    OpenOptions {
        durability: Durability::Settled,
        cache_bytes: 4 << 20,
        checkpoint_bytes: 24 << 10,
        index: None,
        small_file_bytes: Some(SMALL_FILE_BYTES),
        ..OpenOptions::default()
    }
}

impl World {
    /// A world with an empty volume.
    pub(crate) fn new(
        seed: u64,
        scheduler: &Arc<Scheduler>,
        objects: &Arc<FarBlobs>,
    ) -> Arc<World> {
        let net = SimNet::new(seed, Delays::default());
        let store = SimStore::new(seed, objects.copy(), Latency::default());
        let (clock, scheduler) = (SystemClock::new(), Arc::clone(scheduler));
        let (serves, faults) = (Mutex::default(), Mutex::default());
        Arc::new(World { seed, scheduler, net, store, clock, serves, faults })
    }

    /// A machine with an empty disk, and the objects as it reaches them.
    fn env(&self, host: Host, blobs: Arc<dyn Blobs>) -> Env {
        let seed = self.seed ^ u64::from(host.number()) << 40;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        Env {
            device: Arc::new(SimDevice::new(seed)),
            clock: Arc::clone(&clock),
            random: Arc::new(SeededRandom::new(seed)),
            objects: Some(Objects::new(blobs, clock)),
        }
    }

    /// Opens the volume on a machine that has nothing.
    pub(crate) fn open(&self, host: Host) -> Result<Arc<Fs>, fs::OpenError> {
        let blobs = self.store.of(host);
        let env = self.env(host, Arc::clone(&blobs));
        fs::make_host(&*env.device, &*blobs, URL)?;
        Fs::open(env, &options())
    }

    /// The environment of a check by a machine that has nothing.
    pub(crate) fn offline(&self, host: Host) -> Result<Env, fs::OpenError> {
        let blobs = self.store.of(host);
        let env = self.env(host, Arc::clone(&blobs));
        fs::make_host(&*env.device, &*blobs, URL)?;
        Ok(env)
    }

    /// The number of a client's machine.
    pub(crate) fn client_host(client: usize) -> Host {
        Host { place: CLIENT_PLACES + client as u8, run: 0 }
    }

    /// Mounts the volume on a client's machine, of which the caller is a thread.
    pub(crate) fn mount(&self, client: usize) -> Result<Mounted, String> {
        let host = World::client_host(client);
        let proof = Proof::Local(|_, _| Ok(()));
        let at = |place: u8| Place { host: format!("127.0.0.{place}"), port: PORT };
        let places = SERVER_PLACES.map(at).into();
        let target = Target { places, volume: VOLUME.into(), proof };
        // A program that mounts tries again while there is no server.
        let mut last = String::new();
        for _ in 0..300 {
            let net = self.net.of(host);
            match Remote::connect(net, Arc::new(SystemClock::new()), target.clone(), None) {
                Ok(remote) => {
                    return Ok(Mounted { fs: RemoteFs::new(Arc::clone(&remote)), remote });
                }
                Err(error) => last = error.to_string(),
            }
            self.clock.sleep(Duration::from_millis(200));
        }
        Err(format!("client {client} cannot mount: {last}"))
    }

    /// A machine ends, at once.
    pub(crate) fn kill(&self, host: Host, silent: bool) {
        // In this order: nobody may hear of what it does without the store.
        self.net.kill(host, silent);
        self.store.kill(host);
    }
}

/// A volume that clients have formatted once: copies of its objects begin each run.
pub(crate) fn formatted(parts: usize) -> Arc<FarBlobs> {
    let far = FarBlobs::new();
    let sim = testing::sim_env(1);
    let objects = |env: Env| {
        let blobs: Arc<dyn Blobs> = Arc::<FarBlobs>::clone(&far);
        Env { objects: Some(Objects::new(blobs, Arc::clone(&env.clock))), ..env }
    };
    let format = FormatOptions {
        engine: Engine::Lsm,
        layout: Layout::Column,
        root_mode: 0o755,
        ..FormatOptions::default()
    };
    Fs::format(&objects(sim.env()), &format).expect("an empty store");
    let host = testing::sim_env(2);
    let env = objects(host.env());
    fs::make_host(&*env.device, &*far, URL).expect("a volume");
    let fs = Fs::open(env, &options()).expect("a volume");
    crate::client::make_directories(&*fs, parts).expect("an empty volume");
    fs.close().expect("it closes");
    far
}

/// What a server's main thread is to do.
#[derive(Default)]
struct Orders {
    ends: Mutex<bool>,
    changed: Condvar,
}

/// A server's machine.
pub(crate) struct ServerMachine {
    pub(crate) host: Host,
    orders: Arc<Orders>,
    main: Thread<()>,
}

impl ServerMachine {
    /// Starts one: it takes the volume over, and serves it.
    ///
    /// `on_end` is called when it has ended by itself, because another one owns the volume.
    pub(crate) fn start(
        world: &Arc<World>,
        run: u32,
        on_end: impl Fn(Host) + Send + Sync + 'static,
    ) -> ServerMachine {
        let host = Host { place: SERVER_PLACES[run as usize % SERVER_PLACES.len()], run };
        let orders = Arc::new(Orders::default());
        let (own, world) = (Arc::clone(&orders), Arc::clone(world));
        let main = device::spawn("server", move || {
            world.scheduler.move_to(host.number());
            let on_end: OnEnd = Box::new(move || on_end(host));
            if let Err(fault) = serve(&world, host, &own, &on_end) {
                world.faults.lock().push(format!("server {run}: {fault}"));
            }
        });
        ServerMachine { host, orders, main: main.expect("a thread") }
    }

    /// Ends it in order, or what is left of it, and waits for its main thread.
    pub(crate) fn end(self) {
        *self.orders.ends.lock() = true;
        self.orders.changed.notify_all();
        self.main.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

/// How long a server tries to open the volume.
const OPEN_ATTEMPTS: u32 = 200;

/// Called when a server has ended by itself.
type OnEnd = Box<dyn Fn() + Send + Sync>;

/// The life of a server.
fn serve(world: &World, host: Host, orders: &Arc<Orders>, on_end: &OnEnd) -> Result<(), String> {
    let mut attempts = 0;
    let fs = loop {
        attempts += 1;
        match world.open(host) {
            Ok(fs) => break fs,
            Err(_) if world.net.is_dead(host) || *orders.ends.lock() => return Ok(()),
            // Another one was faster.
            Err(fs::OpenError::Store(store::Error::Replaced(_))) => {
                on_end();
                return Ok(());
            }
            Err(error) if attempts == OPEN_ATTEMPTS => return Err(error.to_string()),
            // The store did not answer.
            Err(_) => world.clock.sleep(Duration::from_millis(100)),
        }
    };
    let own = Arc::clone(orders);
    let replaced = Arc::new(AtomicBool::new(false));
    let is_replaced = Arc::clone(&replaced);
    let owned = Owned::new(
        &fs,
        Box::new(move || {
            is_replaced.store(true, Ordering::SeqCst);
            *own.ends.lock() = true;
            own.changed.notify_all();
        }),
    );
    let background = Background::default();
    background.start(&fs).map_err(|error| error.to_string())?;
    // Until then the server before may answer.
    let wait = fs.store.serve_from().saturating_sub(world.clock.monotonic());
    if !device::mutated("serves within the grant of the one before") {
        world.clock.sleep(wait);
    }
    listen(world, host, &fs, (orders, &owned));
    if replaced.load(Ordering::SeqCst) {
        on_end();
    }
    owned.end();
    background.end();
    let closed = fs.close();
    let is_over = world.net.is_dead(host)
        || matches!(fs.store.granted_until(), Err(store::Error::Replaced(_)));
    match closed {
        Err(error) if !is_over => Err(format!("it does not close: {error}")),
        _ => Ok(()),
    }
}

fn listen(world: &World, host: Host, fs: &Arc<Fs>, (orders, owned): (&Orders, &Arc<Owned>)) {
    let settings = || Settings {
        security: Security::Local(Box::new(|_, _| Some(("sim".to_owned(), Grant::all())))),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SeededRandom::new(world.seed ^ u64::from(host.number()))),
        grace: None,
    };
    let net = world.net.of(host);
    let server = loop {
        match Server::start(&*net, host.address(PORT), settings()) {
            Ok(server) => break server,
            Err(_) if world.net.is_dead(host) || *orders.ends.lock() => return,
            // An earlier server of this address does not know yet that it was replaced.
            Err(_) => world.clock.sleep(Duration::from_millis(100)),
        }
    };
    let volume: Arc<dyn FileSystem> = Arc::new(fs.with_virtual_dirs());
    let control = Box::new(|_: &str, _| Err(std::io::ErrorKind::Unsupported.into()));
    let warrant: Arc<dyn Warrant> = Arc::<Owned>::clone(owned);
    server.add(Export {
        name: VOLUME.to_owned(),
        fs: volume,
        control,
        warrant: Some(warrant),
        lasting: None,
    });
    *world.serves.lock() = Some(host);
    let mut ends = orders.ends.lock();
    orders.changed.wait_while(&mut ends, |ends| !*ends);
    drop(ends);
    server.remove(VOLUME);
}
