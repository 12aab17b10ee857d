//! Servers that are cut off from etcd, from the object store or from their clients: packets are
//! dropped, and no connection ends. Each server reaches each of them by a link of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{Clock, SystemClock};

use crate::bad_stores::server;
use crate::failover::{DEAD, Lateness, STORE_HANGS, Writer, check_wait, pause_and_continue};
use crate::two_servers::{Cluster, Route, may_run};
use crate::world::{PANDO, World};

const URL: &str = "s3://bucket/vol";
/// Starts and ends an S3 server of a third party.
const S3: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/s3-server.sh");

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

/// An S3 server of a third party, in this directory.
struct ThirdParty(PathBuf);

impl ThirdParty {
    /// With a bucket; `None` if none is installed.
    fn start(place: &Path, port: u16) -> Option<ThirdParty> {
        let run = |arguments: &[&str]| {
            let mut command = Command::new(S3);
            command.args(arguments).envs(in_store(port)).stdin(Stdio::null());
            command.stdout(Stdio::null()).status().unwrap().success()
        };
        if !run(&["path"]) {
            return None;
        }
        let directory = place.to_str().unwrap();
        assert!(run(&["start", directory, &port.to_string()]), "the S3 server does not start");
        let server = ThirdParty(place.to_owned());
        assert!(run(&["bucket", directory, "bucket"]));
        Some(server)
    }
}

impl Drop for ThirdParty {
    fn drop(&mut self) {
        Command::new(S3).arg("stop").arg(&self.0).status().ok();
    }
}

/// An etcd, an object store, two servers, and their links.
struct Net {
    /// Ended before its directory is removed with the cluster's.
    _third_party: Option<ThirdParty>,
    etcd: [Link; 2],
    store: [Link; 2],
    clients: [Link; 2],
    cluster: Cluster,
}

/// What a program needs to reach the store.
pub(crate) fn in_store(port: u16) -> Vec<(&'static str, String)> {
    vec![
        ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
        ("AWS_ACCESS_KEY_ID", "key".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "the-secret-key".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ]
}

impl Net {
    fn new() -> Net {
        let (endpoint, _) = server::start_ordered();
        let store: u16 =
            endpoint.rsplit(':').next().unwrap().trim_end_matches('/').parse().unwrap();
        Net::on(store, None, World::without_volume())
    }

    /// With the store on a port.
    fn on(store: u16, third_party: Option<ThirdParty>, world: World) -> Net {
        let cluster = Cluster::new(world, URL.to_owned());
        let links = |to: [u16; 2]| to.map(Link::to);
        let (etcd, clients) = (links([cluster.etcd_port; 2]), links(cluster.ports));
        let store_links = links([store, store]);
        let mut net = Net { _third_party: third_party, etcd, store: store_links, clients, cluster };
        net.cluster.routes = [0, 1].map(|number| Route {
            etcd: Some(net.etcd[number].port),
            advertised: Some(net.clients[number].port),
            env: in_store(net.store[number].port),
        });
        let mut format = Command::new(PANDO);
        format.args(["format", URL]).env("PANDO_HOST_DIRECTORY", net.cluster.world.hosts());
        assert!(format.envs(in_store(store)).stdin(Stdio::null()).status().unwrap().success());
        net
    }

    /// Both servers, a mount that knows both, and a writer that has begun; `None` where the test
    /// cannot run.
    fn with_work() -> Option<(Net, PathBuf, Writer)> {
        if !may_run() {
            return None;
        }
        let mut net = Net::new();
        net.cluster.start_both();
        let mount = net.cluster.mount("mount");
        let mut writer = Writer::new(&mount.join("work"));
        (0..5).for_each(|_| writer.step());
        Some((net, mount, writer))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for link in self.etcd.iter().chain(&self.store).chain(&self.clients) {
            link.heal();
        }
    }
}

#[test]
fn a_server_that_is_cut_off_from_etcd_is_replaced() {
    let Some((net, mount, mut writer)) = Net::with_work() else { return };
    let (clock, lateness) = (SystemClock::new(), Lateness::begin());
    let begun = clock.monotonic();
    net.etcd[0].cut();
    net.cluster.await_state(1, "serving");
    writer.step();
    check_wait(clock.monotonic().saturating_sub(begun), DEAD, lateness.end());
    (0..5).for_each(|_| writer.step());
    net.etcd[0].heal();
    net.cluster.await_state(0, "standby");
    // And back.
    net.etcd[1].cut();
    net.cluster.await_state(0, "serving");
    (0..5).for_each(|_| writer.step());
    writer.verify(&mount);
}

/// Its requests hang: nothing fails, and nothing is answered. It lives, and keeps its lease.
#[test]
fn a_server_that_is_cut_off_from_the_store_is_replaced() {
    let Some((net, mount, mut writer)) = Net::with_work() else { return };
    let (clock, lateness) = (SystemClock::new(), Lateness::begin());
    let begun = clock.monotonic();
    net.store[0].cut();
    writer.step();
    check_wait(clock.monotonic().saturating_sub(begun), STORE_HANGS, lateness.end());
    assert_eq!(net.cluster.state(1).as_deref(), Some("serving"));
    (0..5).for_each(|_| writer.step());
    net.store[0].heal();
    net.cluster.await_state(0, "standby");
    (0..5).for_each(|_| writer.step());
    writer.verify(&mount);
}

/// The store is an S3 server of a third party, if one is installed.
#[test]
fn a_paused_server_of_a_bucket_changes_and_answers_nothing() {
    if !may_run() {
        return;
    }
    let (world, port) = (World::without_volume(), testing::unused_port());
    let third_party = ThirdParty::start(&world.path().join("s3"), port);
    let mut net = if third_party.is_some() {
        Net::on(port, third_party, world)
    } else {
        println!("NOT TESTED: versitygw, which is not installed (scripts/s3-server.sh install)");
        Net::new()
    };
    pause_and_continue(&mut net.cluster);
}

/// Nobody replaces it: other clients may reach it. Calls wait, and continue.
#[test]
fn a_server_that_is_cut_off_from_its_clients_continues_with_them_later() {
    let Some((net, mount, mut writer)) = Net::with_work() else { return };
    net.clients[0].cut();
    let work = device::spawn("writer", move || {
        writer.step();
        writer
    });
    SystemClock::new().sleep(Duration::from_secs(9));
    assert_eq!(net.cluster.state(0).as_deref(), Some("serving"));
    net.clients[0].heal();
    let mut writer = work.unwrap().join().unwrap();
    (0..5).for_each(|_| writer.step());
    assert_eq!(net.cluster.state(1).as_deref(), Some("standby"));
    writer.verify(&mount);
}
