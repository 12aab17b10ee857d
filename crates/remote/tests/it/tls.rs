//! Certificates: who is let in, and who is not.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::rig::TRUSTED;
use device::sync::Mutex;
use device::{Clock, SystemClock, SystemNet, SystemRandom, Timestamp};
use inode::{Caller, NodeId};
use remote::{
    ConnectError, Export, OpenControl, Proof, Remote, RemoteFs, Security, Server, ServerAddress,
    Settings, Target, control,
};
use rpc::certificates::{Authority, For};
use rpc::{ClientTls, Files, Grant, ServerTls};
use testing::MemoryFs;
use vfs::FileSystem;
use wire::remote::Asker;

pub(crate) fn files(directory: &Path, name: &str, authority: &Path) -> Files {
    Files {
        certificate: directory.join(format!("{name}.pem")),
        key: directory.join(format!("{name}.key")),
        authority: authority.join("ca.pem"),
    }
}

pub(crate) fn authority(directory: &Path) -> Authority {
    Authority::in_directory(directory, SystemClock::new().now()).unwrap()
}

/// A server with certificates of an authority in a directory.
fn server(directory: &Path) -> Server {
    let control = |_: &str, _: Caller| Err(std::io::ErrorKind::Unsupported.into());
    server_with(directory, Arc::new(SystemClock::new()), Box::new(control))
}

fn server_with(directory: &Path, clock: Arc<dyn Clock>, control: Box<OpenControl>) -> Server {
    let settings = Settings {
        security: Security::Tls(ServerTls::read(&files(directory, "server", directory)).unwrap()),
        clock,
        random: Arc::new(SystemRandom),
        grace: None,
    };
    let server = Server::start(&SystemNet, SocketAddr::from(([127, 0, 0, 1], 0)), settings);
    let server = server.unwrap();
    let export = Export {
        name: "vol".into(),
        fs: Arc::new(MemoryFs::new()),
        control,
        warrant: None,
        lasting: None,
    };
    assert!(server.add(export));
    server
}

fn connect(server: &Server, host: &str, tls: Option<Files>) -> Result<Arc<Remote>, ConnectError> {
    let tls = tls.map(|files| ClientTls::read(&files).unwrap());
    let proof = tls.map_or(TRUSTED, Proof::Tls);
    let (host, port) = (host.to_owned(), server.address().port());
    let target =
        Target { places: vec![ServerAddress { host, port }], volume: "vol".to_owned(), proof };
    let clock = Arc::new(SystemClock::new());
    Remote::connect(Arc::new(SystemNet), clock, target, Some(Duration::from_secs(30)))
}

#[test]
fn a_client_with_a_certificate_is_let_in_and_any_other_is_not() {
    let (own, foreign) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (own, foreign) = (own.path(), foreign.path());
    let grant = Grant { keeps_root: true, ..Grant::all() };
    let narrow = Grant { volumes: vec!["other".into()], ..Grant::all() };
    let ours = authority(own);
    ours.make("server", &For::Server(&["127.0.0.1".into(), "localhost".into()]), 30).unwrap();
    ours.make("client", &For::Client(&grant), 30).unwrap();
    ours.make("narrow", &For::Client(&narrow), 30).unwrap();
    ours.make("past", &For::Client(&grant), 0).unwrap();
    let theirs = authority(foreign);
    theirs.make("client", &For::Client(&grant), 30).unwrap();
    // The authority is read again, and makes another that is as good.
    authority(own).make("later", &For::Client(&grant), 30).unwrap();
    let server = server(own);
    for name in ["client", "later"] {
        let remote = connect(&server, "127.0.0.1", Some(files(own, name, own))).unwrap();
        let far = RemoteFs::new(Arc::clone(&remote));
        let big = vec![7; 300_000];
        let node = far.create(&Caller::root(), NodeId::ROOT, name.as_bytes(), (0o644, 2)).unwrap();
        far.write(&Caller::root(), node.node, 0, &big).unwrap();
        let mut read = vec![0; big.len()];
        assert_eq!(far.read(&Caller::root(), node.node, 0, &mut read).unwrap(), big.len());
        assert_eq!(read, big);
        remote.end();
    }
    let refused = |host: &str, tls: Option<Files>, what: &str| {
        let error = connect(&server, host, tls).err().expect(what);
        println!("{what}: {error}");
        error
    };
    refused("127.0.0.1", Some(files(foreign, "client", own)), "of another authority");
    refused("127.0.0.1", Some(files(foreign, "client", foreign)), "the server is not known");
    refused("127.0.0.1", Some(files(own, "server", own)), "a server's certificate");
    refused("127.0.0.2", Some(files(own, "client", own)), "a name other than the server's");
    refused("127.0.0.1", None, "without certificates");
    let narrow = refused("127.0.0.1", Some(files(own, "narrow", own)), "another volume");
    assert!(matches!(&narrow, ConnectError::Refused(why) if why.message.contains("no volume vol")));
    let other_machine = SocketAddr::from(([192, 0, 2, 1], 7440));
    let (host, port) = (other_machine.ip().to_string(), 7440);
    let target =
        Target { places: vec![ServerAddress { host, port }], volume: "v".into(), proof: TRUSTED };
    let plain = Remote::connect(Arc::new(SystemNet), Arc::new(SystemClock::new()), target, None);
    assert!(matches!(plain.err(), Some(ConnectError::Plain(_))));
}

#[test]
fn an_expired_certificate_is_refused() {
    let own = tempfile::tempdir().unwrap();
    let own = own.path();
    let ours = authority(own);
    ours.make("server", &For::Server(&["127.0.0.1".into()]), 30).unwrap();
    let now = SystemClock::new().now().0 - 3 * 86_400_000_000_000;
    let earlier = Authority::in_directory(own, Timestamp(now)).unwrap();
    earlier.make("past", &For::Client(&Grant::all()), 1).unwrap();
    let server = server(own);
    let error = connect(&server, "127.0.0.1", Some(files(own, "past", own))).err();
    println!("{}", error.expect("it is expired"));
}

/// The clock of a server, days ahead.
struct Ahead(SystemClock, AtomicI64);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        let days = self.1.load(Ordering::SeqCst);
        Timestamp(self.0.now().0 + days * 86_400_000_000_000)
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration);
    }
}

/// A command that keeps its connection has no more rights than one that begins.
#[test]
fn a_connection_of_commands_ends_with_the_certificate() {
    let own = tempfile::tempdir().unwrap();
    let own = own.path();
    let ours = authority(own);
    ours.make("server", &For::Server(&["127.0.0.1".into()]), 60).unwrap();
    ours.make("client", &For::Client(&Grant::all()), 30).unwrap();
    let clock = Arc::new(Ahead(SystemClock::new(), AtomicI64::new(0)));
    let ends: Arc<Mutex<Vec<UnixStream>>> = Arc::default();
    let taken = Arc::clone(&ends);
    let open = move |_: &str, _: Caller| {
        let (ours, theirs) = UnixStream::pair()?;
        taken.lock().push(ours);
        Ok(theirs)
    };
    let server = server_with(own, Arc::<Ahead>::clone(&clock), Box::new(open));
    let begin = || {
        let proof = Proof::Tls(ClientTls::read(&files(own, "client", own)).unwrap());
        let (host, port) = ("127.0.0.1".to_owned(), server.address().port());
        let target =
            Target { places: vec![ServerAddress { host, port }], volume: "vol".into(), proof };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let verb = control(&SystemNet, &clock, &target, Asker::default()).unwrap().stream;
        let daemon = ends.lock().pop().unwrap();
        for end in [&verb, &daemon] {
            end.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        }
        (verb, daemon)
    };
    let ((mut asks, mut asked), (mut hears, mut answers)) = (begin(), begin());
    let mut got = [0; 8];
    for (from, to) in [(&mut asks, &mut asked), (&mut answers, &mut hears)] {
        from.write_all(b"in time").unwrap();
        to.read_exact(&mut got[..7]).unwrap();
    }
    clock.1.store(31, Ordering::SeqCst);
    asks.write_all(b"late").unwrap();
    assert_eq!(asked.read(&mut got).unwrap(), 0, "a request after the end of the certificate");
    answers.write_all(b"late").unwrap();
    assert_eq!(hears.read(&mut got).unwrap(), 0, "an answer after the end of the certificate");
}

#[test]
fn keys_are_their_owners_alone_and_nothing_is_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let own = tempfile::tempdir().unwrap();
    let ours = authority(own.path());
    assert!(ours.is_new && !authority(own.path()).is_new);
    let (_, key) = ours.make("c", &For::Client(&Grant::all()), 30).unwrap();
    for key in [&key, &own.path().join("ca.key")] {
        assert_eq!(key.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    let again = ours.make("c", &For::Client(&Grant::all()), 30).unwrap_err().to_string();
    assert!(again.contains("c.pem") || again.contains("c.key"), "{again}");
}

#[test]
fn a_server_without_certificates_listens_on_this_machine_only() {
    let settings = Settings {
        security: Security::Local(Box::new(|_, _| None)),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom),
        grace: None,
    };
    let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let error = Server::start(&SystemNet, everywhere, settings).err();
    assert_eq!(error.map(|error| error.kind()), Some(std::io::ErrorKind::InvalidInput));
}
