//! Machines that serve the volume: alone, until they are to end, or with others, of which the
//! coordinator chooses one (`pando serve --etcd`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::{Advertised, Campaign};
use device::sync::{Condvar, Mutex};
use device::{Clock, SystemClock, Thread};
use fs::Fs;
use inode::FsError;
use program::Background;
use remote::{Bounds, Export, Lasting, Security, Server, Settings, Warrant};
use rpc::Grant;
use standby::{Mandate, Owned, Standby};
use testing::SeededRandom;
use testing::sim::Host;
use vfs::FileSystem;

use crate::coordinator::SimCoordinator;
use crate::world::{PORT, VOLUME, World};

/// How long a server alone tries to open the volume.
const OPEN_ATTEMPTS: u32 = 200;
/// How long names of servers live without them.
const LEASE: Duration = Duration::from_secs(3);
/// Threads that execute requests: twice as many as clients.
const THREADS: usize = 8;
/// The id of the volume, for the coordinator.
const VOLUME_ID: [u8; 16] = [7; 16];

/// What a server's main thread is to do.
#[derive(Default)]
struct Orders {
    ends: Mutex<bool>,
    changed: Condvar,
}

impl Orders {
    fn end(&self) {
        *self.ends.lock() = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut ends = self.ends.lock();
        self.changed.wait_while(&mut ends, |ends| !*ends);
    }
}

type Hook = Box<dyn Fn(Host) + Send + Sync>;

/// What is called.
pub(crate) struct Hooks {
    /// Clients may come from now on.
    pub(crate) on_serving: Hook,
    /// It has ended by itself.
    pub(crate) on_end: Hook,
}

/// A server's machine.
pub(crate) struct ServerMachine {
    pub(crate) host: Host,
    orders: Arc<Orders>,
    standby: Option<Arc<Standby>>,
    main: Thread<()>,
}

impl ServerMachine {
    /// Starts one. Without a coordinator it takes the volume over, and serves it; otherwise it
    /// waits for its turn.
    pub(crate) fn start(world: &Arc<World>, host: Host, hooks: Hooks) -> ServerMachine {
        let orders = Arc::new(Orders::default());
        let standby = world.coordinator.as_ref().map(|coordinator| standby_of(coordinator, host));
        let (ends, waits) = (Arc::clone(&orders), standby.clone());
        let ender = Box::new(move || end(&ends, waits.as_deref()));
        world.enders.lock().insert(host, ender);
        let (own, world, candidate) = (Arc::clone(&orders), Arc::clone(world), standby.clone());
        let main = device::spawn("server", move || {
            world.scheduler.move_to(host.number());
            let served = match &candidate {
                Some(standby) => process(&world, host, standby, &hooks),
                None => alone(&world, host, &own, &hooks),
            };
            if let Err(fault) = served {
                world.faults.lock().push(format!("server {host:?}: {fault}"));
            }
        });
        ServerMachine { host, orders, standby, main: main.expect("a thread") }
    }

    /// Lets it end in order.
    pub(crate) fn begin_end(&self) {
        end(&self.orders, self.standby.as_deref());
    }

    /// Ends it in order, or what is left of it, and waits for its main thread.
    pub(crate) fn end(self) {
        self.begin_end();
        self.main.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

fn end(orders: &Orders, standby: Option<&Standby>) {
    orders.end();
    if let Some(standby) = standby {
        standby.end();
    }
}

fn standby_of(coordinator: &Arc<SimCoordinator>, host: Host) -> Arc<Standby> {
    let address = host.address(PORT).to_string();
    let own = Advertised { instance: format!("{:032x}", host.number()), address };
    let name = format!("server{}", host.place);
    let campaign = Campaign::new(coordinator.of(host), &name, own, LEASE);
    Standby::new(campaign, Arc::new(SystemClock::new()))
}

/// The life of a process that serves the volume when the coordinator chooses it.
fn process(world: &World, host: Host, standby: &Arc<Standby>, hooks: &Hooks) -> Result<(), String> {
    let Some(server) = listen(world, host, &|| standby.is_ending()) else { return Ok(()) };
    let server = Arc::new(server);
    if standby.introduce().is_err() {
        // Another one has its name, which it need not have for ever.
        (hooks.on_end)(host);
        return Ok(());
    }
    let redirected = Arc::clone(&server);
    let on_step = Box::new(move |name: &str, holder: Option<&cluster::Holder>| {
        redirected.set_elsewhere(name, holder.map(|holder| holder.address.clone()));
    });
    let volume = || (VOLUME.to_owned(), VOLUME_ID);
    let threads = standby.start(vec![volume()], on_step).map_err(|error| error.to_string())?;
    // One that cannot reach the store does not close in order: others have it then.
    standby.hold(volume(), &mut |mandate| {
        let fs = world.open(host).map_err(|error| {
            world.note_fault(host, is_of_environment(&error), format!("does not open: {error}"))
        })?;
        let orders = Arc::new(Orders::default());
        Volume { world, host, fs, orders: &orders }.serve(&server, Some(mandate), hooks).map(drop)
    });
    threads.end();
    Ok(())
}

/// Whether a volume does not open because of what the run does to the store.
fn is_of_environment(error: &fs::OpenError) -> bool {
    match error {
        fs::OpenError::Store(error) => {
            let is_replaced = matches!(error, store::Error::Replaced(_));
            is_replaced || error.is_no_space() || matches!(error, store::Error::ReadOnly(_))
        }
        fs::OpenError::Inconsistent(failure) => !failure.is_damage,
        fs::OpenError::Device(_) => true,
        _ => false,
    }
}

/// Whether it does not close because of that.
fn is_of_store(error: &FsError) -> bool {
    match error {
        FsError::Io(failure) => !failure.is_damage,
        other => matches!(other, FsError::NoSpace | FsError::Interrupted | FsError::ReadOnly(_)),
    }
}

/// The life of a server without a coordinator.
fn alone(world: &World, host: Host, orders: &Arc<Orders>, hooks: &Hooks) -> Result<(), String> {
    let is_over = || world.net.is_dead(host) || *orders.ends.lock();
    let mut attempts = 0;
    let fs = loop {
        attempts += 1;
        match world.open(host) {
            Ok(fs) => break fs,
            Err(_) if is_over() => return Ok(()),
            // Another one was faster.
            Err(fs::OpenError::Store(store::Error::Replaced(_))) => {
                (hooks.on_end)(host);
                return Ok(());
            }
            Err(error) if attempts == OPEN_ATTEMPTS => return Err(error.to_string()),
            // The store did not answer.
            Err(_) => world.clock.sleep(Duration::from_millis(100)),
        }
    };
    // An earlier server of this address may not know yet that it was replaced.
    let Some(server) = listen(world, host, &is_over) else {
        fs.close().unwrap_or_default();
        return Ok(());
    };
    let is_replaced = Volume { world, host, fs, orders }.serve(&server, None, hooks)?;
    if is_replaced {
        (hooks.on_end)(host);
    }
    Ok(())
}

/// Starts a server without volumes; `None`: it is over before.
fn listen(world: &World, host: Host, is_over: &dyn Fn() -> bool) -> Option<Server> {
    let settings = || Settings {
        security: Security::Local(Box::new(|_, _| Some(("sim".to_owned(), Grant::all())))),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SeededRandom::new(world.seed ^ u64::from(host.number()))),
        grace: None,
    };
    let net = world.net.of(host);
    loop {
        let bounds = Bounds { threads: THREADS, ..Bounds::default() };
        match Server::start_within(&*net, host.address(PORT), settings(), bounds) {
            Ok(server) => return Some(server),
            Err(_) if world.net.is_dead(host) || is_over() => return None,
            Err(_) => world.clock.sleep(Duration::from_millis(100)),
        }
    }
}

/// The volume, open on a machine.
struct Volume<'a> {
    world: &'a World,
    host: Host,
    fs: Arc<Fs>,
    orders: &'a Arc<Orders>,
}

impl Volume<'_> {
    /// Serves it until its orders or its mandate end; returns whether another one owns it.
    fn serve(
        self,
        server: &Server,
        mandate: Option<&Arc<dyn Mandate>>,
        hooks: &Hooks,
    ) -> Result<bool, String> {
        let Volume { world, host, fs, orders } = self;
        let (replaced, ended) = (Arc::new(AtomicBool::new(false)), Arc::clone(orders));
        let is_replaced = Arc::clone(&replaced);
        let background = Background::default();
        background.start(&fs).map_err(|error| error.to_string())?;
        // Until then the server before may answer.
        let wait = fs.store.serve_from().saturating_sub(world.clock.monotonic());
        if !device::mutated("serves within the grant of the one before") {
            world.clock.sleep(wait);
        }
        let on_end = Box::new(move |end: standby::End| {
            is_replaced.store(end != standby::End::Signal, Ordering::SeqCst);
            ended.end();
        });
        let owned = Owned::new(fs.store.clone(), Arc::new(SystemClock::new()), on_end);
        let watched = mandate.map(|mandate| owned.watch(Arc::clone(mandate), None));
        let watched = watched.transpose().map_err(|error| error.to_string())?;
        let warrant: Arc<dyn Warrant> = owned;
        let volume: Arc<dyn FileSystem> = Arc::new(fs.with_virtual_dirs());
        let lasting = world.lasting.then(|| Arc::<Fs>::clone(&fs) as Arc<dyn Lasting>);
        let control = Box::new(|_: &str, _| Err(std::io::ErrorKind::Unsupported.into()));
        let (name, warrant) = (VOLUME.to_owned(), Some(warrant));
        // Before the first answer.
        world.openings.fetch_add(1, Ordering::SeqCst);
        server.add(Export { name, fs: volume, control, warrant, lasting });
        *world.serves.lock() = Some(host);
        (hooks.on_serving)(host);
        orders.wait();
        // As the daemon does it.
        server.remove(VOLUME);
        if let Some(watched) = &watched {
            watched.close();
        }
        background.end();
        let closed = fs.close();
        drop(watched);
        let is_over = world.net.is_dead(host)
            || matches!(fs.store.granted_until(), Err(store::Error::Replaced(_)));
        match closed {
            Err(error) if !is_over => {
                // (A standby tries again. A server that is alone reports all.)
                let is_expected = mandate.is_none() || is_of_store(&error);
                let text = format!("it does not close: {error}");
                Err(world.note_fault(host, is_expected, text))
            }
            _ => Ok(replaced.load(Ordering::SeqCst)),
        }
    }
}
