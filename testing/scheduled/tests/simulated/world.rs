//! What the machines of a simulation share: the network, the object store, the coordinator. What a
//! machine has, and how it mounts or opens the volume.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use device::{Blobs, Clock, Env, Objects, SystemClock};
use fs::{Engine, FormatOptions, Fs, Layout, OpenOptions};
use remote::{Proof, Remote, RemoteFs, ServerAddress, Target};
use store::Durability;
use testing::sim::{Delays, Host, Latency, Scheduler, SimNet, SimStore};
use testing::{FarBlobs, SeededRandom, SimDevice};

use crate::client::Mounted;
use crate::coordinator::SimCoordinator;

pub(crate) const VOLUME: &str = "vol";
const URL: &str = "s3://bucket/prefix";
pub(crate) const PORT: u16 = 7000;
/// Files with more bytes have objects of their own.
const SMALL_FILE_BYTES: u64 = 24;
/// Longer writes go into objects, also to such files.
const INLINE_WRITE_BYTES: usize = 512;
/// Places of servers.
pub(crate) const SERVER_PLACES: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// Where the places of clients begin.
const CLIENT_PLACES: u8 = 100;

/// Lets a server end.
pub(crate) type Ender = Box<dyn FnOnce() + Send>;

/// Everything that machines share.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) net: Arc<SimNet>,
    pub(crate) store: Arc<SimStore>,
    /// What decides who serves; `None`: the test does.
    pub(crate) coordinator: Option<Arc<SimCoordinator>>,
    /// Whether sessions of clients outlive their server.
    pub(crate) lasting: bool,
    /// Lets what runs on a server's machine end, when the machine has: nobody hears of it.
    pub(crate) enders: Mutex<BTreeMap<Host, Ender>>,
    pub(crate) clock: SystemClock,
    /// The last server that has opened the volume.
    pub(crate) serves: Mutex<Option<Host>>,
    /// How many times a server began to serve the volume.
    /// How many environments machines had.
    environments: AtomicU64,
    pub(crate) openings: AtomicU64,
    /// Why a server could not end as it should.
    pub(crate) faults: Mutex<Vec<String>>,
}

pub(crate) fn options(answers: bool) -> OpenOptions {
    let mut options = OpenOptions {
        answers,
        durability: Durability::Settled,
        cache_bytes: 4 << 20,
        checkpoint_bytes: 24 << 10,
        index: None,
        small_file_bytes: Some(SMALL_FILE_BYTES),
        ..OpenOptions::default()
    };
    options.data.inline_write_bytes = INLINE_WRITE_BYTES;
    options
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
        let (serves, faults, enders) = (Mutex::default(), Mutex::default(), Mutex::default());
        // As the program does it, and two ways of which it is made.
        let kind = fastrand::Rng::with_seed(seed ^ 0x6b69_6e64).u32(..4);
        let coordinator = (kind >= 2).then(|| SimCoordinator::new(seed));
        let lasting = kind >= 1;
        Arc::new(World {
            seed,
            scheduler,
            net,
            store,
            coordinator,
            lasting,
            enders,
            clock,
            serves,
            environments: AtomicU64::new(0),
            openings: AtomicU64::new(0),
            faults,
        })
    }

    /// A machine with an empty disk, and the objects as it reaches them.
    fn env(&self, host: Host, blobs: Arc<dyn Blobs>) -> Env {
        // A process that opens the volume again does not draw the same numbers again: two clients
        // would get one secret.
        let opening = self.environments.fetch_add(1, Ordering::SeqCst);
        let seed = self.seed ^ (u64::from(host.number()) << 40) ^ (opening << 20);
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
        Fs::open(env, &options(self.lasting))
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
        let at = |place: u8| ServerAddress { host: format!("127.0.0.{place}"), port: PORT };
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
        self.cut_from_coordinator(host);
        self.store.kill(host);
        // (Nobody hears of what its threads do until they have ended.)
        let end = self.enders.lock().remove(&host);
        if let Some(end) = end {
            end();
        }
    }

    /// The coordinator hears of a machine no more.
    pub(crate) fn cut_from_coordinator(&self, host: Host) {
        if let Some(coordinator) = &self.coordinator {
            coordinator.kill(host);
        }
    }

    /// Notes why a server could not do what it should, unless the run made it so, or its machine
    /// has ended; returns the reason.
    pub(crate) fn note_fault(&self, host: Host, is_expected: bool, text: String) -> String {
        if !is_expected && !self.net.is_dead(host) {
            self.faults.lock().push(format!("server {host:?}: {text}"));
        }
        text
    }

    /// How many times a server began to serve.
    pub(crate) fn openings(&self) -> u64 {
        self.openings.load(Ordering::SeqCst)
    }

    /// Ends what goes wrong.
    pub(crate) fn heal(&self) {
        self.net.heal();
        self.store.heal();
        if let Some(coordinator) = &self.coordinator {
            coordinator.heal();
        }
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
    let fs = Fs::open(env, &options(false)).expect("a volume");
    crate::client::make_directories(&*fs, parts).expect("an empty volume");
    fs.close().expect("it closes");
    far
}
