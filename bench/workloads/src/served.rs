//! `served`: durable creates by clients of a server, whose volume is in an object store. Creations
//! of objects take nothing longer in one half of the rounds, and `--put-ms` in the other; the
//! rounds alternate. Clients and server are in this process, and talk over loopback connections. As
//! in `pando serve`, the volume keeps sessions: each create has a record that it was executed.
//!
//! The bar of a round with slow creations is the smaller of two rates. One is that of the rounds
//! without; the other is as many creates as are in flight every `--put-ms`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device::{
    Blobs, Clock, Env, LocalDevice, Objects, SharedDir, SystemClock, SystemNet, SystemRandom,
};
use fs::{Engine, FileSystem, FormatOptions, Fs, Layout, OpenOptions};
use hdrhistogram::Histogram;
use inode::{FsError, NodeId};
use program::Background;
use program::failure::{self, Result};
use program::output::Output;
use program::prices::STANDARD;
use remote::{
    Export, Lasting, Proof, Remote, RemoteFs, Security, Server, ServerAddress, Settings, Target,
};
use rpc::Grant;
use serde_json::json;
use store::Durability;
use wire::{Failure, FailureKind};

use crate::Run;
use crate::delayed::{Delayed, Requests};
use crate::meter::histogram;
use crate::volume::caller;

pub(super) const VOLUME: &str = "vol";
/// What a host directory records of its store.
const URL: &str = "file:///served";

/// Removes the directory of a run.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A session, and its directory.
pub(super) struct Client {
    pub(super) remote: Arc<Remote>,
    pub(super) far: Arc<RemoteFs>,
    pub(super) directory: NodeId,
}

/// The sum of some rounds.
struct Sum {
    latencies: Histogram<u64>,
    seconds: f64,
    creates: u64,
    requests: Requests,
}

impl Sum {
    fn rate(&self) -> f64 {
        self.creates as f64 / self.seconds.max(1e-9)
    }

    /// A count for each create.
    fn each(&self, count: u64) -> f64 {
        count as f64 / self.creates.max(1) as f64
    }

    /// What the store's requests for a million creates cost, in dollars.
    fn dollars_a_million(&self) -> f64 {
        let Requests { creates, lists, reads } = self.requests;
        STANDARD.of_requests(self.each(creates + lists), self.each(reads)) * 1e6
    }

    fn micros(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1e3
    }
}

fn broken(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Other, format!("{what}: {error}"))
}

fn of_fs(error: FsError) -> Failure {
    broken("the volume under test", error)
}

fn make(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|error| failure::io("create", path, &error))
}

/// A volume in an object store, open, and its objects.
fn volume(path: &Path) -> Result<(Arc<Fs>, Arc<Delayed>)> {
    let (host, store) = (path.join("host"), path.join("store"));
    make(&host)?;
    make(&store)?;
    let device = LocalDevice::open(&store).map_err(|error| failure::device(&store, &error))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let shared = SharedDir::open(Arc::new(device), Arc::clone(&clock), Arc::new(SystemRandom));
    let shared = shared.map_err(|error| failure::device(&store, &error))?;
    let delayed = Delayed::new(Arc::new(shared), Arc::clone(&clock));
    let blobs: Arc<dyn Blobs> = Arc::<Delayed>::clone(&delayed);
    let env = Env::system(&host).map_err(|error| failure::device(&host, &error))?;
    let env = Env { objects: Some(Objects::new(Arc::clone(&blobs), clock)), ..env };
    let (engine, layout) = (Engine::Lsm, Layout::Column);
    let format = FormatOptions { engine, layout, ..FormatOptions::default() };
    Fs::format(&env, &format).map_err(|error| broken("format", error))?;
    fs::make_host(&*env.device, &*blobs, URL).map_err(|error| broken("format", error))?;
    let durability = Durability::Settled;
    let options = OpenOptions { durability, index: None, answers: true, ..OpenOptions::default() };
    let fs = Fs::open(env, &options).map_err(|error| broken("open", error))?;
    Ok((fs, delayed))
}

/// A server on a loopback address, with sessions that the volume keeps.
pub(super) fn serve(fs: &Arc<Fs>, clock: Arc<dyn Clock>) -> Result<Server> {
    let who = |_: SocketAddr, _: SocketAddr| Some(("bench".to_owned(), Grant::all()));
    let settings = Settings {
        security: Security::Local(Box::new(who)),
        clock,
        random: Arc::new(SystemRandom),
        grace: None,
    };
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::start(&SystemNet, address, settings);
    let server = server.map_err(|error| broken("serve", error))?;
    let control = |_: &str, _: inode::Caller| Err(std::io::ErrorKind::Unsupported.into());
    let lasting: Option<Arc<dyn Lasting>> = Some(Arc::<Fs>::clone(fs));
    let fs: Arc<dyn FileSystem> = Arc::<Fs>::clone(fs);
    let export =
        Export { name: VOLUME.to_owned(), fs, control: Box::new(control), warrant: None, lasting };
    assert!(server.add(export), "invariant: it is the only volume");
    Ok(server)
}

/// Sessions, each with a directory of its own.
pub(super) fn mount(port: u16, sessions: u64, clock: &Arc<dyn Clock>) -> Result<Vec<Client>> {
    let mount = |session: u64| {
        let place = ServerAddress { host: "127.0.0.1".to_owned(), port };
        let proof = Proof::Local(|_, _| Ok(()));
        let target = Target { places: vec![place], volume: VOLUME.to_owned(), proof };
        let remote = Remote::connect(Arc::new(SystemNet), Arc::clone(clock), target, None);
        let remote = remote.map_err(|error| broken("connect", error))?;
        let far = Arc::new(RemoteFs::new(Arc::clone(&remote)));
        let name = format!("session-{session}");
        let made = far.mkdir(&caller(), NodeId::ROOT, name.as_bytes(), 0o755).map_err(of_fs)?;
        Ok(Client { remote, far, directory: made.node })
    };
    (0..sessions).map(mount).collect()
}

pub(super) fn run(run: &Run<'_>, output: &mut Output) -> Result<()> {
    let below = run.args.volume.clone().unwrap_or_else(std::env::temp_dir);
    let removed = Removed(below.join(format!("pando-served-{}", std::process::id())));
    make(&removed.0)?;
    let (fs, delayed) = volume(&removed.0)?;
    let background = Background::default();
    background.start(&fs).map_err(|error| broken("cannot start a thread", error))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let server = serve(&fs, Arc::clone(&clock))?;
    let served = &run.args.served;
    let clients = mount(server.address().port(), served.sessions(), &clock)?;
    let put = Duration::from_millis(served.put_ms());
    let mut sums = [Duration::ZERO, put].map(|put| {
        (
            put,
            Sum { latencies: histogram(), seconds: 0.0, creates: 0, requests: Requests::default() },
        )
    });
    for round in 0..run.args.rounds() {
        for (put, sum) in &mut sums {
            delayed.set_put(*put);
            let before = delayed.requests();
            let name = format!("{round}-{}", put.as_millis());
            measure(run, &clients, &name, sum)?;
            sum.requests += delayed.requests() - before;
            run.check()?;
        }
    }
    delayed.set_put(Duration::ZERO);
    run.bar.finish_and_clear();
    report(run, &sums, output)?;
    for client in &clients {
        client.remote.end();
    }
    server.remove(VOLUME);
    drop(server);
    background.end();
    fs.close().map_err(of_fs)
}

/// One round: each thread of each session creates its share of `--files`.
fn measure(run: &Run<'_>, clients: &[Client], name: &str, sum: &mut Sum) -> Result<()> {
    let in_flight = run.args.served.in_flight();
    let each = run.args.files.div_ceil(clients.len() as u64 * in_flight);
    let clock = SystemClock::new();
    let start = clock.monotonic();
    let shares: Result<Vec<Histogram<u64>>> = device::scope(|scope| {
        let work = |far: Arc<RemoteFs>, directory: NodeId, thread: u64| {
            let clock = &clock;
            move || {
                let mut latencies = histogram();
                for number in 0..each {
                    let file = format!("{name}-{thread}-{number}");
                    let before = clock.monotonic();
                    far.create(&caller(), directory, file.as_bytes(), (0o644, 0)).map_err(of_fs)?;
                    let nanos = clock.monotonic().saturating_sub(before).as_nanos() as u64;
                    latencies.record(nanos).expect("invariant: the histogram grows");
                }
                Ok(latencies)
            }
        };
        let all = clients.iter().flat_map(|client| (0..in_flight).map(move |n| (client, n)));
        let work = |(client, thread): (&Client, u64)| {
            work(Arc::clone(&client.far), client.directory, thread)
        };
        let handles: Vec<_> = all.map(|thread| scope.spawn(work(thread))).collect();
        let join = "invariant: threads of a benchmark do not panic";
        handles.into_iter().map(|handle| handle.join().expect(join)).collect()
    });
    sum.seconds += clock.monotonic().saturating_sub(start).as_secs_f64();
    for share in shares? {
        sum.latencies.add(&share).expect("invariant: both have the same shape");
    }
    sum.creates += each * clients.len() as u64 * in_flight;
    Ok(())
}

fn report(run: &Run<'_>, sums: &[(Duration, Sum); 2], output: &mut Output) -> Result<()> {
    let served = &run.args.served;
    let in_flight = served.sessions() * served.in_flight();
    let [(_, fast), (put, slow)] = sums;
    let most = in_flight as f64 / put.as_secs_f64().max(1e-9);
    let ratio = slow.rate() / fast.rate().min(most);
    let object = json!({
        "workload": "served",
        "engine": Engine::Lsm.name(),
        "durability": Durability::Settled.name(),
        "sessions": served.sessions(),
        "in_flight_per_session": served.in_flight(),
        "put_ms": served.put_ms(),
        "creates": slow.creates,
        "creates_per_second_without_delay": fast.rate().round(),
        "creates_per_second": slow.rate().round(),
        "in_flight_over_put_time": most.round(),
        "ratio": ratio,
        "creates_per_object": slow.creates as f64 / slow.requests.creates.max(1) as f64,
        "puts_per_create": slow.each(slow.requests.creates),
        "lists_per_create": slow.each(slow.requests.lists),
        "reads_per_create": slow.each(slow.requests.reads),
        "dollars_per_million_creates": slow.dollars_a_million(),
        "p50_us_without_delay": fast.micros(0.5),
        "p50_us": slow.micros(0.5),
        "p99_us": slow.micros(0.99),
        "max_us": slow.micros(1.0),
    });
    output.object(&object)?;
    output.line(&format!(
        "{in_flight} creates in flight, {} ms a PUT: {:.0} a second, {:.0} without the delay, \
         ratio {ratio:.2}, {:.1} an object, ${:.3} a million, p50 {:.0} us, p99 {:.0} us",
        served.put_ms(),
        slow.rate(),
        fast.rate(),
        slow.creates as f64 / slow.requests.creates.max(1) as f64,
        slow.dollars_a_million(),
        slow.micros(0.5),
        slow.micros(0.99),
    ))
}
