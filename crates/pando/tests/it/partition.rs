//! Servers that are cut off from etcd, from the object store or from their clients: packets are
//! dropped, and no connection ends. Each server reaches each of them by a link of its own.

#![expect(clippy::disallowed_methods, reason = "the test keeps files as any program does")]
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{Clock, SystemClock};
use serde_json::Value;

use crate::bad_stores::server;
use crate::failover::{ETCD, Writer, may_run};
use crate::world::{PANDO, World, wait_until};

const URL: &str = "s3://bucket/vol";

/// How often a link looks whether it is cut.
const PAUSE: Duration = Duration::from_millis(20);

/// A link to a port of this machine.
struct Link {
    port: u16,
    cut: Arc<AtomicBool>,
}

impl Link {
    fn to(target: u16) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut = Arc::new(AtomicBool::new(false));
        let is_cut = Arc::clone(&cut);
        device::spawn("link", move || {
            for accepted in listener.incoming() {
                let Ok(near) = accepted else { return };
                let is_cut = Arc::clone(&is_cut);
                let carry = move || {
                    wait(&is_cut);
                    let Ok(far) = TcpStream::connect(("127.0.0.1", target)) else { return };
                    let (Ok(from), Ok(to)) = (near.try_clone(), far.try_clone()) else { return };
                    let own = Arc::clone(&is_cut);
                    device::spawn("link", move || copy(from, to, &own)).unwrap();
                    copy(far, near, &is_cut);
                };
                device::spawn("link", carry).unwrap();
            }
        })
        .unwrap();
        Link { port, cut }
    }

    fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    fn heal(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }
}

fn wait(cut: &AtomicBool) {
    while cut.load(Ordering::SeqCst) {
        SystemClock::new().sleep(PAUSE);
    }
}

/// Passes bytes on, and the end, unless the link is cut.
fn copy(mut from: TcpStream, mut to: TcpStream, cut: &AtomicBool) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut bytes);
        wait(cut);
        match read {
            Ok(count) if count > 0 && to.write_all(&bytes[..count]).is_ok() => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    to.shutdown(std::net::Shutdown::Both).ok();
    from.shutdown(std::net::Shutdown::Both).ok();
}

/// An etcd, an object store, two servers, and their links.
struct Net {
    world: World,
    ports: [u16; 2],
    etcd: [Link; 2],
    store: [Link; 2],
    clients: [Link; 2],
    servers: [Option<Child>; 2],
    mounts: Vec<PathBuf>,
}

/// What a program needs to reach the store.
fn in_store(command: &mut Command, port: u16) -> &mut Command {
    command
        .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"))
        .env("AWS_ACCESS_KEY_ID", "key")
        .env("AWS_SECRET_ACCESS_KEY", "the-secret-key")
        .env("AWS_REGION", "us-east-1")
        .stdin(Stdio::null())
}

impl Net {
    fn new() -> Net {
        let world = World::without_volume();
        let (endpoint, _) = server::start_ordered();
        let store: u16 =
            endpoint.rsplit(':').next().unwrap().trim_end_matches('/').parse().unwrap();
        let [etcd, _, one, two] = std::array::from_fn(|_| testing::unused_port());
        let started = Command::new(ETCD)
            .args(["start", world.path().join("etcd").to_str().unwrap(), &etcd.to_string()])
            .stdout(Stdio::null())
            .status();
        assert!(started.unwrap().success(), "etcd does not start");
        let links = |to: [u16; 2]| to.map(Link::to);
        let net = Net {
            world,
            ports: [one, two],
            etcd: links([etcd, etcd]),
            store: links([store, store]),
            clients: links([one, two]),
            servers: [None, None],
            mounts: Vec::new(),
        };
        let mut format = Command::new(PANDO);
        format.args(["format", URL]).env("PANDO_HOST_DIRECTORY", net.world.hosts());
        assert!(in_store(&mut format, store).status().unwrap().success());
        net
    }

    fn start(&mut self, number: usize) {
        let own = self.world.path().join(format!("host{number}"));
        fs::create_dir_all(&own).unwrap();
        let log = self.world.path().join(format!("log{number}"));
        let log = OpenOptions::new().append(true).create(true).open(log).unwrap();
        let mut command = Command::new(PANDO);
        command
            .args(["serve", "--json", "--name", &format!("server{number}")])
            .args(["--etcd", &format!("http://127.0.0.1:{}", self.etcd[number].port)])
            .args(["--listen", &format!("127.0.0.1:{}", self.ports[number])])
            .args(["--advertise", &format!("127.0.0.1:{}", self.clients[number].port)])
            .arg(format!("vol={URL}"))
            .env("PANDO_HOST_DIRECTORY", &own)
            .env("PANDO_LOG", "info")
            .stdout(File::create(self.printed(number)).unwrap())
            .stderr(log);
        self.servers[number] =
            Some(in_store(&mut command, self.store[number].port).spawn().unwrap());
    }

    fn printed(&self, number: usize) -> PathBuf {
        self.world.path().join(format!("server{number}"))
    }

    fn state(&self, number: usize) -> Option<String> {
        let printed = fs::read_to_string(self.printed(number)).ok()?;
        let line: Value = serde_json::from_str(printed.lines().last()?).ok()?;
        line["state"].as_str().map(str::to_owned)
    }

    fn await_state(&self, number: usize, state: &str) {
        let what = format!("server {number}: {state}");
        wait_until(&what, || self.state(number).as_deref() == Some(state));
    }

    /// Both servers, and a mount that knows both.
    fn begin(&mut self) -> PathBuf {
        self.start(0);
        self.await_state(0, "serving");
        self.start(1);
        self.await_state(1, "standby");
        let place = self.world.path().join("mount");
        fs::create_dir(&place).unwrap();
        let [one, two] = [self.clients[0].port, self.clients[1].port];
        let url = format!("pando://127.0.0.1:{one},127.0.0.1:{two}/vol");
        self.world.ok(&["mount", &url, place.to_str().unwrap()]);
        self.mounts.push(place.clone());
        place
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for link in self.etcd.iter().chain(&self.store).chain(&self.clients) {
            link.heal();
        }
        for place in &self.mounts {
            fuse::unmount(place, fuse::InUse::Detached).ok();
        }
        for child in self.servers.iter_mut().flatten() {
            child.kill().ok();
            child.wait().ok();
        }
        Command::new(ETCD).arg("stop").arg(self.world.path().join("etcd")).status().ok();
        if std::thread::panicking() {
            for number in 0..2 {
                let log = self.world.path().join(format!("log{number}"));
                testing::run::print_line(&fs::read_to_string(log).unwrap_or_default());
            }
        }
    }
}

#[test]
fn a_server_that_is_cut_off_from_etcd_is_replaced() {
    if !may_run() {
        return;
    }
    let mut net = Net::new();
    let mount = net.begin();
    let mut writer = Writer::new(&mount.join("work"));
    (0..5).for_each(|_| writer.step());
    net.etcd[0].cut();
    net.await_state(1, "serving");
    (0..5).for_each(|_| writer.step());
    net.etcd[0].heal();
    net.await_state(0, "standby");
    // And back.
    net.etcd[1].cut();
    net.await_state(0, "serving");
    (0..5).for_each(|_| writer.step());
    writer.verify(&mount);
}

/// Its requests hang: nothing fails, and nothing is answered. It lives, and keeps its lease.
#[test]
fn a_server_that_is_cut_off_from_the_store_is_replaced() {
    if !may_run() {
        return;
    }
    let mut net = Net::new();
    let mount = net.begin();
    let mut writer = Writer::new(&mount.join("work"));
    (0..5).for_each(|_| writer.step());
    let clock = SystemClock::new();
    let begun = clock.monotonic();
    net.store[0].cut();
    writer.step();
    println!("changes again after {:.1?}", clock.monotonic().saturating_sub(begun));
    assert_eq!(net.state(1).as_deref(), Some("serving"));
    (0..5).for_each(|_| writer.step());
    net.store[0].heal();
    net.await_state(0, "standby");
    (0..5).for_each(|_| writer.step());
    writer.verify(&mount);
}

/// Nobody replaces it: other clients may reach it. Calls wait, and continue.
#[test]
fn a_server_that_is_cut_off_from_its_clients_continues_with_them_later() {
    if !may_run() {
        return;
    }
    let mut net = Net::new();
    let mount = net.begin();
    let mut writer = Writer::new(&mount.join("work"));
    (0..5).for_each(|_| writer.step());
    net.clients[0].cut();
    let work = device::spawn("writer", move || {
        writer.step();
        writer
    });
    SystemClock::new().sleep(Duration::from_secs(9));
    assert_eq!(net.state(0).as_deref(), Some("serving"));
    net.clients[0].heal();
    let mut writer = work.unwrap().join().unwrap();
    (0..5).for_each(|_| writer.step());
    assert_eq!(net.state(1).as_deref(), Some("standby"));
    writer.verify(&mount);
}
