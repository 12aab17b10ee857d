//! Control connections: what they carry, and when they carry nothing.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, SystemClock, SystemNet, SystemRandom};
use fs::Engine;
use inode::Caller;
use remote::{Export, Security, Server, Settings, Warrant, control};
use rpc::Grant;
use wire::remote::Asker;

use crate::rig::{Rig, export, target};

/// A right that a test ends.
struct Right(AtomicBool);

impl Warrant for Right {
    fn may_answer(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    fn is_known(&self) -> bool {
        self.may_answer()
    }
}

/// Serves a volume with a right; the daemon's end of each control connection arrives in a list.
fn serve(rig: &Rig, right: &Arc<Right>) -> (Server, Arc<Mutex<Vec<UnixStream>>>) {
    let who = |_: SocketAddr, _: SocketAddr| Some(("test".to_owned(), Grant::all()));
    let settings = Settings {
        security: Security::Local(Box::new(who)),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom),
        grace: None,
    };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::start(&SystemNet, any, settings).unwrap();
    let ends: Arc<Mutex<Vec<UnixStream>>> = Arc::default();
    let taken = Arc::clone(&ends);
    let open = move |_: &str, _: Caller| {
        let (ours, theirs) = UnixStream::pair()?;
        taken.lock().push(ours);
        Ok(theirs)
    };
    let warrant = Some(Arc::<Right>::clone(right) as Arc<dyn Warrant>);
    assert!(server.add(Export { control: Box::new(open), warrant, ..export(rig.volume()) }));
    (server, ends)
}

fn verb(server: &Server) -> UnixStream {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let who = Asker::default();
    let carried = control(&SystemNet, &clock, &target(server), who).unwrap();
    carried.stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    carried.stream
}

#[test]
fn a_verb_gets_nothing_of_a_server_that_was_replaced() {
    let rig = Rig::new(Engine::Btree, 9);
    let right = Arc::new(Right(AtomicBool::new(true)));
    let (server, ends) = serve(&rig, &right);
    let mut verb = verb(&server);
    let mut daemon = ends.lock().pop().unwrap();
    let mut got = vec![0; 300_000];
    // Both ways, more than one frame, and each part when its pong has arrived.
    for round in 0..20_u8 {
        verb.write_all(&[round; 1000]).unwrap();
        daemon.read_exact(&mut got[..1000]).unwrap();
        assert_eq!(got[..1000], [round; 1000]);
        let bytes = vec![round; 300_000];
        let mut writer = daemon.try_clone().unwrap();
        let writing = device::spawn("daemon", move || writer.write_all(&bytes).unwrap());
        verb.read_exact(&mut got).unwrap();
        assert!(got.iter().all(|byte| *byte == round));
        writing.unwrap().join().unwrap();
    }
    right.0.store(false, Ordering::SeqCst);
    daemon.write_all(b"of before").unwrap();
    assert_eq!(verb.read(&mut got).unwrap(), 0, "an answer of a server that was replaced");
    assert_eq!(daemon.read(&mut got).unwrap(), 0);
}

#[test]
fn the_end_of_an_answer_arrives_and_the_end_of_a_volume_ends_it() {
    let rig = Rig::new(Engine::Btree, 10);
    let right = Arc::new(Right(AtomicBool::new(true)));
    let (server, ends) = serve(&rig, &right);
    let mut ended = verb(&server);
    let mut daemon = ends.lock().pop().unwrap();
    daemon.write_all(b"the last words").unwrap();
    drop(daemon);
    let mut got = String::new();
    ended.read_to_string(&mut got).unwrap();
    assert_eq!(got, "the last words");
    let mut waits = verb(&server);
    let mut daemon = ends.lock().pop().unwrap();
    server.remove(crate::rig::VOLUME);
    assert_eq!(waits.read(&mut [0; 9]).unwrap(), 0);
    assert_eq!(daemon.read(&mut [0; 9]).unwrap(), 0);
}
