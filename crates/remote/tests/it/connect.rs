//! How a client finds the server that has the volume: several addresses, and machines that are
//! silent.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, Link, Listener, Net, SystemClock, SystemNet};
use fs::Engine;
use inode::{Caller, NodeId};
use remote::{ConnectError, Remote, RemoteFs, ServerAddress, Target};
use rpc::Grant;
use vfs::FileSystem;

use crate::rig::{Rig, TRUSTED, VOLUME, export, server, wait_until};

/// The network of this machine, with names, and an address whose machine drops all packets.
#[derive(Default)]
struct Names {
    known: Vec<(&'static str, Vec<SocketAddr>)>,
    silent: Option<SocketAddr>,
    /// When each attempt at the silent address began.
    attempts: Mutex<Vec<Duration>>,
}

impl Net for Names {
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        match self.known.iter().find(|(name, _)| *name == host) {
            Some((_, addresses)) => Ok(addresses.clone()),
            None => SystemNet.resolve(host, port),
        }
    }

    fn connect(&self, to: SocketAddr, within: Duration) -> io::Result<Arc<dyn Link>> {
        if Some(to) == self.silent {
            let clock = SystemClock::new();
            self.attempts.lock().push(clock.monotonic());
            clock.sleep(within);
            return Err(io::ErrorKind::TimedOut.into());
        }
        SystemNet.connect(to, within)
    }

    fn listen(&self, at: SocketAddr) -> io::Result<Arc<dyn Listener>> {
        SystemNet.listen(at)
    }
}

fn place(at: SocketAddr) -> ServerAddress {
    ServerAddress { host: at.ip().to_string(), port: at.port() }
}

fn connect(net: Arc<Names>, places: Vec<ServerAddress>) -> Result<Arc<Remote>, ConnectError> {
    let target = Target { places, volume: VOLUME.to_owned(), proof: TRUSTED };
    Remote::connect(net, Arc::new(SystemClock::new()), target, Some(Duration::from_secs(60)))
}

/// A standby server names the dead one until its lease has ended. The client does not try that each
/// time.
#[test]
fn a_silent_server_that_another_one_names_is_asked_seldom() {
    let rig = Rig::new(Engine::Btree, 41);
    let grace = Duration::from_secs(60);
    let (first, standby) = (server(Grant::all(), grace), server(Grant::all(), grace));
    assert!(first.add(export(rig.volume())));
    let (dead, alive) = (SocketAddr::from(([127, 9, 9, 9], 7440)), standby.address());
    standby.set_elsewhere(VOLUME, Some(first.address().to_string()));
    let net = Arc::new(Names { silent: Some(dead), ..Names::default() });
    let remote = connect(Arc::clone(&net), vec![place(dead), place(alive)]).unwrap();
    let far = RemoteFs::new(Arc::clone(&remote));
    far.getattr(&Caller::root(), NodeId::ROOT).unwrap();
    // The server that has it dies; the standby one names the silent machine as it did before.
    standby.set_elsewhere(VOLUME, Some(dead.to_string()));
    drop(first);
    wait_until(|| net.attempts.lock().len() >= 2);
    let clock = SystemClock::new();
    clock.sleep(Duration::from_secs(3));
    let attempts = net.attempts.lock().len();
    assert!(attempts <= 3, "{attempts} attempts of 2 s each");
    standby.set_elsewhere(VOLUME, None);
    assert!(standby.add(export(rig.volume())));
    far.getattr(&Caller::root(), NodeId::ROOT).unwrap();
    remote.end();
}

#[test]
fn a_name_of_several_addresses_is_reached_by_any_of_them() {
    let rig = Rig::new(Engine::Btree, 42);
    let silent = SocketAddr::from(([127, 9, 9, 9], 7440));
    let refuses = SocketAddr::from(([127, 0, 0, 1], 1));
    let far_away = SocketAddr::from(([192, 0, 2, 1], 7440));
    let alive = rig.server.address();
    let known = vec![
        ("nowhere", vec![]),
        ("all", vec![refuses, silent, alive]),
        ("dead", vec![far_away, silent, refuses]),
    ];
    let net = Arc::new(Names { known, silent: Some(silent), ..Names::default() });
    let named = |name: &str| vec![ServerAddress { host: name.to_owned(), port: 7440 }];
    let remote = connect(Arc::clone(&net), named("all")).unwrap();
    let far = RemoteFs::new(Arc::clone(&remote));
    far.getattr(&Caller::root(), NodeId::ROOT).unwrap();
    remote.end();
    let refused = |name: &str| match connect(Arc::clone(&net), named(name)) {
        Ok(_) => panic!("there is no server"),
        Err(error) => error,
    };
    let nowhere = refused("nowhere");
    assert!(matches!(nowhere, ConnectError::Unknown(..)), "{nowhere}");
    assert!(nowhere.to_string().contains("nowhere"), "{nowhere}");
    // What explains most is reported, not what was tried last.
    let dead = refused("dead");
    assert!(matches!(dead, ConnectError::Plain(_)), "{dead}");
    assert!(dead.to_string().contains("192.0.2.1"), "{dead}");
}
