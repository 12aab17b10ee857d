//! An etcd and two servers of one volume, real processes, and mounts that know both.
//!
//! Invariants: each server has a host directory of its own, as on a machine of its own. What is
//! started is ended, and the logs of a failed test are printed.

#![expect(clippy::disallowed_methods, reason = "the test keeps files as any program does")]

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::world::{PANDO, World, is_alive, is_root, reason, signal, wait_until};

/// Starts and ends etcd.
const ETCD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/etcd.sh");

/// How a server reaches etcd and the store, and how clients reach it.
#[derive(Default)]
pub(crate) struct Route {
    /// A port that is forwarded to etcd, if it is not etcd's own.
    pub(crate) etcd: Option<u16>,
    /// A port that is forwarded to the server, if it is not the server's own.
    pub(crate) advertised: Option<u16>,
    /// Variables by which it finds the store.
    pub(crate) env: Vec<(&'static str, String)>,
}

/// An etcd, two servers of one volume, and mounts of it.
pub(crate) struct Cluster {
    pub(crate) etcd_port: u16,
    /// On which the servers listen.
    pub(crate) ports: [u16; 2],
    pub(crate) routes: [Route; 2],
    pub(crate) servers: [Option<Child>; 2],
    pub(crate) mounts: Vec<PathBuf>,
    /// The volume.
    pub(crate) url: String,
    /// Further volumes, by name, that both servers wait for.
    pub(crate) more: Vec<(&'static str, String)>,
    /// Further options of etcd.
    pub(crate) etcd_options: &'static str,
    pub(crate) world: World,
}

#[expect(clippy::print_stdout, reason = "prints what is not tested")]
pub(crate) fn may_run() -> bool {
    if let Some(reason) = reason("SKIP_FUSE") {
        println!("not tested through a mount: SKIP_FUSE={reason}");
        return false;
    }
    let has_etcd = Command::new(ETCD).arg("path").output().unwrap().status.success();
    if !has_etcd {
        println!("NOT TESTED: fail-over, for etcd is not installed (apt-get install etcd-server)");
    }
    has_etcd && is_root()
}

impl Cluster {
    /// Starts etcd; the volume of this URL exists, or is made before a server starts.
    pub(crate) fn new(world: World, url: String) -> Cluster {
        Cluster::with_etcd(world, url, "")
    }

    /// The same with options of etcd.
    pub(crate) fn with_etcd(world: World, url: String, etcd_options: &'static str) -> Cluster {
        // A member of etcd listens on the next port, too.
        let [etcd_port, _, one, two] = std::array::from_fn(|_| testing::unused_port());
        let (routes, servers) = (<[Route; 2]>::default(), [None, None]);
        let (ports, mounts, more) = ([one, two], Vec::new(), Vec::new());
        let cluster =
            Cluster { etcd_port, ports, routes, servers, mounts, url, more, etcd_options, world };
        cluster.start_etcd();
        cluster
    }

    pub(crate) fn etcd(&self) -> PathBuf {
        self.world.path().join("etcd")
    }

    pub(crate) fn start_etcd(&self) {
        let started = Command::new(ETCD)
            .arg("start")
            .arg(self.etcd())
            .arg(self.etcd_port.to_string())
            .env("ETCD_OPTIONS", self.etcd_options)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(started.success(), "etcd does not start");
    }

    /// Ends etcd, and waits until it has.
    pub(crate) fn stop_etcd(&self) {
        let pid = fs::read_to_string(self.etcd().join("pid")).unwrap();
        let pid: i32 = pid.trim().parse().unwrap();
        assert!(Command::new(ETCD).arg("stop").arg(self.etcd()).status().unwrap().success());
        wait_until("etcd has ended", || !is_alive(pid));
    }

    fn printed(&self, number: usize) -> PathBuf {
        self.world.path().join(format!("server{number}"))
    }

    fn log(&self, number: usize) -> PathBuf {
        self.world.path().join(format!("log{number}"))
    }

    /// Starts a server.
    pub(crate) fn start(&mut self, number: usize) {
        let own = self.world.path().join(format!("host{number}"));
        fs::create_dir_all(&own).unwrap();
        let log = OpenOptions::new().append(true).create(true).open(self.log(number)).unwrap();
        let route = &self.routes[number];
        let etcd = route.etcd.unwrap_or(self.etcd_port);
        let mut command = Command::new(PANDO);
        command
            .args(["serve", "--json", "--name", &format!("server{number}")])
            .args(["--etcd", &format!("http://127.0.0.1:{etcd}")])
            .args(["--listen", &format!("127.0.0.1:{}", self.ports[number])])
            .arg(format!("vol={}", self.url))
            .args(self.more.iter().map(|(name, url)| format!("{name}={url}")))
            .env("PANDO_HOST_DIRECTORY", &own)
            .env("PANDO_LOG", "info")
            .envs(route.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(File::create(self.printed(number)).unwrap())
            .stderr(log);
        if let Some(port) = route.advertised {
            command.args(["--advertise", &format!("127.0.0.1:{port}")]);
        }
        self.servers[number] = Some(command.spawn().unwrap());
    }

    /// The state of the volume that a server printed last.
    pub(crate) fn state(&self, number: usize) -> Option<String> {
        self.state_of(number, "vol")
    }

    /// The same of a volume, by name.
    pub(crate) fn state_of(&self, number: usize, volume: &str) -> Option<String> {
        let printed = fs::read_to_string(self.printed(number)).ok()?;
        let lines =
            printed.lines().rev().map_while(|line| serde_json::from_str::<Value>(line).ok());
        let mut of_volume = lines.filter(|line| line["name"] == volume);
        of_volume.next()?["state"].as_str().map(str::to_owned)
    }

    pub(crate) fn await_state(&self, number: usize, state: &str) {
        self.await_state_of(number, "vol", state);
    }

    pub(crate) fn await_state_of(&self, number: usize, volume: &str, state: &str) {
        let what = format!("server {number}, volume {volume}: {state}");
        wait_until(&what, || self.state_of(number, volume).as_deref() == Some(state));
    }

    /// Starts both servers; the first one serves.
    pub(crate) fn start_both(&mut self) {
        self.start(0);
        self.await_state(0, "serving");
        self.start(1);
        self.await_state(1, "standby");
    }

    pub(crate) fn pid(&self, number: usize) -> i32 {
        self.servers[number].as_ref().unwrap().id() as i32
    }

    pub(crate) fn kill(&mut self, number: usize) {
        let mut child = self.servers[number].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Ends a server by a signal, and waits until it has ended.
    pub(crate) fn end(&mut self, number: usize) {
        let mut child = self.servers[number].take().unwrap();
        signal(child.id() as i32, Signal::TERM);
        let ended = child.wait().unwrap();
        assert!(ended.success(), "it ends in order: {ended}");
    }

    /// What clients call both servers.
    fn both(&self) -> String {
        let of = |number: usize| self.routes[number].advertised.unwrap_or(self.ports[number]);
        format!("127.0.0.1:{},127.0.0.1:{}", of(0), of(1))
    }

    /// A mount that knows both servers.
    pub(crate) fn mount(&mut self, name: &str) -> PathBuf {
        self.mount_of(&self.both(), name)
    }

    /// A mount that knows these servers.
    pub(crate) fn mount_of(&mut self, servers: &str, name: &str) -> PathBuf {
        self.mount_url(&format!("pando://{servers}/vol"), name)
    }

    /// A mount of a volume, by name, that knows both servers.
    pub(crate) fn mount_volume(&mut self, volume: &str, name: &str) -> PathBuf {
        self.mount_url(&format!("pando://{}/{volume}", self.both()), name)
    }

    fn mount_url(&mut self, url: &str, name: &str) -> PathBuf {
        let place = self.world.path().join(name);
        fs::create_dir(&place).unwrap();
        self.world.ok(&["mount", url, place.to_str().unwrap()]);
        self.mounts.push(place.clone());
        place
    }

    pub(crate) fn logged(&self, number: usize) -> String {
        fs::read_to_string(self.log(number)).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for place in &self.mounts {
            fuse::unmount(place, fuse::InUse::Detached).ok();
        }
        for child in self.servers.iter_mut().flatten() {
            signal(child.id() as i32, Signal::CONT);
            child.kill().ok();
            child.wait().ok();
        }
        Command::new(ETCD).arg("stop").arg(self.etcd()).status().ok();
        if std::thread::panicking() {
            testing::run::print_line(&format!("{}\n{}", self.logged(0), self.logged(1)));
        }
    }
}
