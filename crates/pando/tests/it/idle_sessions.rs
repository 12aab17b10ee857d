//! The memory that idle sessions take of a server, with and without TLS. They greet it and do
//! nothing more; then all of them have pinged and written.

#![expect(clippy::print_stdout, reason = "prints what it measured")]

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use device::{Clock, Net, SystemClock, SystemNet};
use rpc::{Channel, ClientTls};
use wire::Bytes;
use wire::remote::{
    Asked, Asker, FrameKind, FsAnswer, FsCall, FsFailure, Node, OPEN_WRITE, REMOTE_MAGIC,
    REMOTE_VERSION, RemoteHello, Use, put_head, split_head,
};

use crate::certificates::Certificates;
use crate::far::Served;
use crate::world::{World, is_root};

/// How many sessions there are, and what each of them takes at most: 1,000 take 64 MiB. In a short
/// run fewer share what the server and the volume take beside them, which varies on a busy machine.
/// Without rest they took 310 KiB and more, and megabytes after they wrote.
fn sessions_and_bytes() -> (usize, usize) {
    if testing::run::slow() { (1000, (64 << 20) / 1000) } else { (300, 256 << 10) }
}
/// How soon after they did something.
const WITHIN: Duration = Duration::from_secs(60);
/// Sessions that begin, ping or write at the same time, and bytes of a write.
const AT_ONCE: usize = 16;
const WRITE_BYTES: usize = 1 << 20;

/// The resident size of a process, in bytes.
fn resident(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() << 10
}

/// A session.
pub(crate) struct Session(Channel);

impl Session {
    pub(crate) fn begin(at: SocketAddr, tls: Option<&ClientTls>) -> Session {
        let link = SystemNet.connect(at, WITHIN).unwrap();
        let clock = Arc::new(SystemClock::new());
        let session = Session(match tls {
            None => Channel::plain(link, clock).unwrap(),
            Some(tls) => {
                let tls = tls.connect("127.0.0.1").unwrap();
                Channel::encrypted(link, clock, tls, WITHIN).unwrap()
            }
        });
        let hello = RemoteHello {
            magic: REMOTE_MAGIC,
            version_min: REMOTE_VERSION,
            version: REMOTE_VERSION,
            features: 0,
            volume: Bytes::from(&b"vol"[..]),
            use_for: Use::Mount,
            who: Asker::default(),
            resume: None,
            awaits: Vec::new(),
        };
        let answer = session.ask(FrameKind::Hello, 0, &hello);
        assert!(matches!(split_head(&answer), Some((FrameKind::Welcome, ..))));
        session
    }

    /// Sends a message and receives one.
    fn ask(&self, kind: FrameKind, number: u64, body: &impl serde::Serialize) -> Vec<u8> {
        self.send(kind, number, body);
        self.receive(1 << 14)
    }

    fn send(&self, kind: FrameKind, number: u64, body: &impl serde::Serialize) {
        let mut frame = Vec::new();
        put_head(kind, number, &mut frame);
        wire::encode(body, &mut frame);
        self.0.send(&frame).unwrap();
    }

    fn receive(&self, most: usize) -> Vec<u8> {
        let mut frame = Vec::new();
        self.0.receive(&mut frame, most, WITHIN).unwrap();
        frame
    }

    /// Makes a call, and returns the node of its answer.
    pub(crate) fn call(&self, id: u64, call: FsCall<'_>) -> Node {
        let acknowledged = if id > 1 { vec![id - 1] } else { Vec::new() };
        self.begin_call(id, acknowledged, call);
        let (of, node) = self.end_call();
        assert_eq!(of, id);
        node
    }

    /// Sends a call, and which answers have arrived.
    pub(crate) fn begin_call(&self, id: u64, acknowledged: Vec<u64>, call: FsCall<'_>) {
        let who = Asker { umask: 0o22, ..Asker::default() };
        let asked = Asked { acknowledged, once: 0, done: 0, who, call };
        self.send(FrameKind::Request, id, &asked);
    }

    /// Receives the answer to any call: its number, and the node in it.
    pub(crate) fn end_call(&self) -> (u64, Node) {
        let answer = loop {
            let frame = self.receive(2 << 20);
            // (A server shows now and then that it lives.)
            match split_head(&frame).unwrap() {
                (FrameKind::Pong, ..) => {}
                _ => break frame,
            }
        };
        let (_, of, body) = split_head(&answer).unwrap();
        let answer: Result<FsAnswer<'_>, FsFailure> = wire::decode(body).unwrap();
        let node = match answer.unwrap() {
            FsAnswer::Entry(entry) => entry.node,
            _ => Node::ROOT,
        };
        (of, node)
    }

    fn ping(&self, number: u64) {
        let pong = self.ask(FrameKind::Ping, number, &Vec::<u64>::new());
        let kind = split_head(&pong).map(|(kind, ..)| kind);
        assert_eq!(kind, Some(FrameKind::Pong), "{}", String::from_utf8_lossy(&pong));
    }

    /// Pings, and writes to the file `d/f`.
    fn is_busy(&self) {
        (1..=3).for_each(|number| self.ping(number));
        let parent = self.call(1, FsCall::Lookup { parent: Node::ROOT, name: b"d" });
        let node = self.call(2, FsCall::Lookup { parent, name: b"f" });
        self.call(3, FsCall::Open { node, flags: OPEN_WRITE });
        let bytes = vec![7; WRITE_BYTES];
        self.call(4, FsCall::Write { node, offset: 0, flags: 0, bytes: &bytes });
    }
}

/// Does something so many times, in several threads.
pub(crate) fn each<T: Send>(count: usize, does: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let numbers = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
        numbers.take_while(|number| *number < count).map(&does).collect::<Vec<T>>()
    };
    device::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// So many sessions do something between two pings of all: on a busy machine all of them take
/// longer than one may be silent.
const BETWEEN_PINGS: usize = 100;

fn begin_all(at: SocketAddr, tls: Option<&ClientTls>, count: usize) -> Vec<Session> {
    let mut sessions = Vec::new();
    while sessions.len() < count {
        let more = BETWEEN_PINGS.min(count - sessions.len());
        sessions.extend(each(more, |_| Session::begin(at, tls)));
        each(sessions.len(), |number| sessions[number].ping(1));
    }
    sessions
}

fn use_all(sessions: &[Session]) {
    for some in sessions.chunks(BETWEEN_PINGS) {
        each(some.len(), |number| some[number].is_busy());
        each(sessions.len(), |number| sessions[number].ping(1));
    }
}

/// Waits until sessions take no more than they may; `before` is the size without them.
fn take_little(pid: u32, sessions: &[Session], (before, most): (usize, usize), what: &str) {
    let (clock, mut waited, count) = (SystemClock::new(), 0, sessions.len());
    let size = || resident(pid).saturating_sub(before) / count;
    // A server ends a silent session after 30 s.
    each(count, |number| sessions[number].ping(4));
    while size() > most && waited < WITHIN.as_secs() {
        clock.sleep(Duration::from_secs(1));
        waited += 1;
        if waited % 8 == 0 {
            each(count, |number| sessions[number].ping(5));
        }
    }
    let bytes = size();
    println!("{count} sessions {what}: {bytes} bytes each, after {waited} s");
    assert!(bytes <= most, "{bytes} bytes each {what}");
    each(count, |number| sessions[number].ping(6));
}

fn rest(world: &World, options: &[&str], tls: Option<&ClientTls>) {
    device::raise_descriptor_limit();
    let from = world.path().join("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("f"), "f").unwrap();
    world.ok(&["import", from.to_str().unwrap(), &format!("{}:/d", world.vol())]);
    let (count, most) = sessions_and_bytes();
    let served = Served::start(world, &[&["--memory", "16G"], options].concat());
    let address = served.url.trim_start_matches("pando://").trim_end_matches("/vol");
    let address: SocketAddr = address.parse().unwrap();
    let pid = served.child.id();
    // What the volume and the threads of all sessions need is there before.
    let first = each(AT_ONCE, |_| Session::begin(address, tls));
    each(AT_ONCE, |number| first[number].is_busy());
    SystemClock::new().sleep(Duration::from_secs(3));
    let before = resident(pid);
    let sessions = begin_all(address, tls, count);
    take_little(pid, &sessions, (before, most), "that began");
    use_all(&sessions);
    println!("{} bytes each when they were busy", resident(pid).saturating_sub(before) / count);
    take_little(pid, &sessions, (before, most), "that were busy");
    let listed = world.ok(&["session", "list", world.vol()]);
    assert!(listed.lines().count() >= count, "{listed}");
    drop((first, sessions));
}

/// Without TLS only in `make soak-kill`: sessions with TLS take all that these take, and more.
#[test]
fn sessions_that_rest_take_little() {
    if !is_root() || !testing::run::slow() {
        return;
    }
    rest(&World::new(), &[], None);
}

#[test]
fn sessions_that_rest_take_little_with_tls() {
    let world = World::new();
    let certificates = Certificates::new(&world, "client", &["--keep-root"]);
    let options = certificates.of_server();
    let tls = ClientTls::read(&certificates.files("client")).unwrap();
    rest(&world, &options.each_ref().map(String::as_str), Some(&tls));
}
