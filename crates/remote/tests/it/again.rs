//! What a client sends after it has connected again, and what it does meanwhile: the server is
//! played by the test.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use device::sync::{Condvar, Mutex};
use device::{Clock, Link, Listener, Net, SystemClock, SystemNet};
use inode::{Caller, Kind, NodeId};
use remote::{Remote, RemoteFs, ServerAddress, Target};
use rpc::Channel;
use vfs::{FileSystem, WalkControl};
use wire::remote::{
    Asked, Entry, FEATURE_TAKEN_OVER, FrameKind, FsAnswer, FsCall, FsFailure, Listed, Node,
    REMOTE_MAGIC, REMOTE_VERSION, Reclaim, RemoteAttr, RemoteHello, RemoteWelcome, Resume,
    put_head, split_head,
};
use wire::{Bytes, FRAME_BYTES_MAX, decode, encode};

use crate::rig::{SetClock, TRUSTED, VOLUME, wait_until};

const SOON: Duration = Duration::from_secs(60);
/// Bytes of one read or write.
const BYTES: usize = 1 << 20;
/// Reads, and as many writes: more than the buffers of a connection hold, in both directions.
const CALLS: usize = 30;

/// What a test plays.
struct Played {
    listener: Arc<dyn Listener>,
    /// Of its welcomes.
    features: u64,
}

/// One connection of it.
struct Ours(Channel);

impl Played {
    fn new(features: u64) -> Played {
        let listener = SystemNet.listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Played { listener, features }
    }

    /// Lets a client connect, through this network, which has this clock.
    fn begin(&self, net: Arc<dyn Net>, clock: Arc<dyn Clock>) -> (Ours, Arc<Remote>) {
        let (host, port) = ("127.0.0.1".to_owned(), self.listener.address().port());
        let places = vec![ServerAddress { host, port }];
        let target = Target { places, volume: VOLUME.to_owned(), proof: TRUSTED };
        device::scope(|scope| {
            let connecting =
                scope.spawn(move || Remote::connect(net, clock, target, Some(SOON)).unwrap());
            (self.accept(false), connecting.join().unwrap())
        })
    }

    /// Takes its next connection.
    fn accept(&self, reclaims: bool) -> Ours {
        let (link, _) = self.listener.accept().unwrap();
        let channel = Channel::plain(link, Arc::new(SystemClock::new())).unwrap();
        let mut frame = Vec::new();
        channel.receive(&mut frame, FRAME_BYTES_MAX, SOON).unwrap();
        let (_, _, body) = split_head(&frame).unwrap();
        let hello: RemoteHello = decode(body).unwrap();
        let attempt = hello.resume.map_or(0, |resume| resume.attempt);
        let welcome = RemoteWelcome {
            magic: REMOTE_MAGIC,
            version: REMOTE_VERSION,
            features: self.features,
            session: Resume { session: 7, secret: [7; 16], attempt },
            resumed: hello.resume.is_some(),
            reclaims,
            requests_max: 64,
            silence_seconds: 30,
            read_only: false,
        };
        let ours = Ours(channel);
        assert!(ours.send(FrameKind::Welcome, 0, |out| encode(&welcome, out)));
        ours
    }
}

/// A message of a client.
#[derive(Debug)]
enum Got {
    Read(u64),
    Write(u64),
    Other(u64),
    Ping(u64, Vec<u64>),
    /// Whether it is the last.
    Claim(bool),
    /// Of another kind, or of none: nothing came in time.
    Nothing,
}

impl Ours {
    fn send(&self, kind: FrameKind, number: u64, body: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut frame = Vec::new();
        put_head(kind, number, &mut frame);
        body(&mut frame);
        self.0.send(&frame).is_ok()
    }

    fn answer(&self, id: u64, answer: FsAnswer<'_>) -> bool {
        let answer: Result<_, FsFailure> = Ok(answer);
        self.send(FrameKind::Reply, id, |out| encode(&answer, out))
    }

    fn next(&self, within: Duration) -> Got {
        let mut frame = Vec::new();
        if self.0.receive(&mut frame, FRAME_BYTES_MAX, within).is_err() {
            return Got::Nothing;
        }
        match split_head(&frame).unwrap() {
            (FrameKind::Request, id, body) => match decode::<Asked<'_>>(body).unwrap().call {
                FsCall::Read { .. } => Got::Read(id),
                FsCall::Write { .. } => Got::Write(id),
                _ => Got::Other(id),
            },
            (FrameKind::Ping, number, body) => Got::Ping(number, decode(body).unwrap()),
            (FrameKind::Reclaim, _, body) => Got::Claim(decode::<Reclaim>(body).unwrap().last),
            _ => Got::Nothing,
        }
    }

    /// Takes requests that are reads, and the same number of writes, unanswered.
    fn take_calls(&self) -> (Vec<u64>, Vec<u64>) {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        while reads.len() + writes.len() < 2 * CALLS {
            match self.next(SOON) {
                Got::Read(id) => reads.push(id),
                Got::Write(id) => writes.push(id),
                Got::Ping(..) => {}
                other => panic!("{other:?}"),
            }
        }
        (reads, writes)
    }

    /// Sends the answers to reads, and takes nothing meanwhile.
    fn answer_reads(&self, ids: &[u64]) {
        let bytes = vec![7; BYTES];
        for id in ids {
            assert!(self.answer(*id, FsAnswer::Bytes(&bytes)), "the client received no answer");
        }
    }

    /// Answers so many writes, and pings.
    fn answer_writes(&self, mut count: usize) {
        let mut seen = Vec::new();
        while count > 0 {
            match self.next(SOON) {
                Got::Ping(number, _) => assert!(self.send(FrameKind::Pong, number, |_| {})),
                Got::Write(id) => {
                    assert!(!seen.contains(&id), "{id} was sent twice");
                    assert!(self.answer(id, FsAnswer::Nothing));
                    seen.push(id);
                    count -= 1;
                }
                // It was under way when its answer arrived.
                Got::Read(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

fn read(far: &RemoteFs) {
    let mut bytes = vec![0; BYTES];
    assert_eq!(far.read(&Caller::root(), NodeId::ROOT, 0, &mut bytes).unwrap(), BYTES);
    assert!(bytes == vec![7; BYTES]);
}

fn write(far: &RemoteFs) {
    far.write(&Caller::root(), NodeId::ROOT, 0, &vec![1; BYTES]).unwrap();
}

/// A server stops reading while its answers are not received: both would wait for each other.
#[test]
fn answers_are_received_while_calls_are_sent_again() {
    let played = Played::new(0);
    let (ours, remote) = played.begin(Arc::new(SystemNet), Arc::new(SystemClock::new()));
    let far = RemoteFs::new(Arc::clone(&remote));
    device::scope(|scope| {
        for _ in 0..CALLS {
            scope.spawn(|| read(&far));
            scope.spawn(|| write(&far));
        }
        let (reads, _) = ours.take_calls();
        ours.0.close();
        let ours = played.accept(false);
        ours.answer_reads(&reads);
        ours.answer_writes(CALLS);
    });
    remote.end();
}

/// So it would be if the thread that receives waited to send a ping for an answer that took long.
#[test]
fn answers_are_received_while_late_ones_wait_for_a_pong() {
    let played = Played::new(FEATURE_TAKEN_OVER);
    let (ours, remote) = played.begin(Arc::new(SystemNet), Arc::new(SystemClock::new()));
    let far = RemoteFs::new(Arc::clone(&remote));
    let (far, done) = (&far, &AtomicUsize::new(0));
    device::scope(|scope| {
        let mut reads = Vec::new();
        let begin = |call: fn(&RemoteFs)| {
            for _ in 0..CALLS {
                scope.spawn(move || {
                    call(far);
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
        };
        begin(read);
        while reads.len() < CALLS {
            match ours.next(SOON) {
                Got::Read(id) => reads.push(id),
                other => panic!("{other:?}"),
            }
        }
        begin(write);
        SystemClock::new().sleep(Duration::from_millis(1200));
        ours.answer_reads(&reads);
        ours.answer_writes(CALLS);
        while done.load(Ordering::SeqCst) < 2 * CALLS {
            match ours.next(SOON) {
                Got::Ping(number, _) => assert!(ours.send(FrameKind::Pong, number, |_| {})),
                other => panic!("{other:?}"),
            }
        }
    });
    remote.end();
}

/// A network whose writes of claims wait.
#[derive(Default)]
struct Gate {
    /// It is open, and how many writes have waited.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

struct GatedNet(Arc<Gate>);

struct GatedLink(Arc<dyn Link>, Arc<Gate>);

impl Net for GatedNet {
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        SystemNet.resolve(host, port)
    }

    fn connect(&self, to: SocketAddr, within: Duration) -> io::Result<Arc<dyn Link>> {
        let link = SystemNet.connect(to, within)?;
        Ok(Arc::new(GatedLink(link, Arc::clone(&self.0))))
    }

    fn listen(&self, at: SocketAddr) -> io::Result<Arc<dyn Listener>> {
        SystemNet.listen(at)
    }
}

impl Link for GatedLink {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        // Behind the length.
        if bytes.get(4) == Some(&(FrameKind::Reclaim as u8)) {
            let mut state = self.1.state.lock();
            state.1 += 1;
            self.1.changed.wait_while(&mut state, |(is_open, _)| !*is_open);
        }
        self.0.write_all(bytes)
    }

    fn set_patience(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        self.0.set_patience(read, write)
    }

    fn close(&self) {
        self.0.close();
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.0.local_address()
    }
}

fn attr(ino: u64) -> RemoteAttr {
    let node = Node { slot: 0, ino };
    let (kind, mode, nlink) = (Kind::File, 0o644, 1);
    let (uid, gid, rdev, size, blocks) = (0, 0, 0, 0, 0);
    let (atime, mtime, ctime, btime) = (0, 0, 0, 0);
    RemoteAttr { node, kind, mode, nlink, uid, gid, rdev, size, blocks, atime, mtime, ctime, btime }
}

/// A whole directory of so many files, with attributes.
fn listing(files: u64) -> FsAnswer<'static> {
    let listed = (0..files).map(|number| {
        let (node, kind) = (Node { slot: 0, ino: number + 10 }, Kind::File);
        let attr = attr(number + 10);
        let entry = Entry { node, generation: 0, in_snapshot: false, proof: 1, attr };
        let name = Bytes::from(format!("{number}").as_bytes());
        Listed { name, node, kind, cookie: number + 1, entry: Some(entry) }
    });
    FsAnswer::Listing(listed.collect(), true)
}

/// Lists a directory that has so many files.
fn list(ours: &Ours, far: &RemoteFs, files: u64) {
    device::scope(|scope| {
        let listing = scope.spawn(|| {
            let mut found = 0;
            far.readdirplus(&Caller::root(), NodeId::ROOT, 0, &mut |_| {
                found += 1;
                WalkControl::Continue
            })
            .map(|()| found)
        });
        let Got::Other(id) = ours.next(SOON) else { panic!("no listing") };
        assert!(ours.answer(id, self::listing(files)));
        assert_eq!(listing.join().unwrap().unwrap(), files);
    });
}

/// The server that took over does not know a node before it is claimed.
#[test]
fn no_call_overtakes_what_is_claimed() {
    let played = Played::new(0);
    let (gate, clock) = (Arc::new(Gate::default()), Arc::new(SystemClock::new()));
    let (ours, remote) = played.begin(Arc::new(GatedNet(Arc::clone(&gate))), clock);
    let far = RemoteFs::new(Arc::clone(&remote));
    // More than one message claims.
    list(&ours, &far, 9000);
    let node = NodeId::of(inode::Slot(0), inode::Ino(20));
    device::scope(|scope| {
        ours.0.close();
        let ours = played.accept(true);
        wait_until(|| gate.state.lock().1 == 1);
        let asking = scope.spawn(|| far.getattr(&Caller::root(), node));
        SystemClock::new().sleep(Duration::from_millis(200));
        gate.state.lock().0 = true;
        gate.changed.notify_all();
        let mut is_claimed = false;
        loop {
            match ours.next(SOON) {
                Got::Claim(last) => is_claimed |= last,
                Got::Ping(..) => {}
                Got::Other(id) => {
                    ours.answer(id, FsAnswer::Attr(attr(20)));
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        asking.join().unwrap().unwrap();
        assert!(is_claimed, "a call came before the last claim");
    });
    remote.end();
}

/// The server keeps a listing until it is acknowledged, in memory that all clients share. (On a
/// clock that is stopped no ping is due.)
#[test]
fn a_long_answer_is_acknowledged_without_a_call_and_a_short_one_costs_no_message() {
    let played = Played::new(0);
    let (ours, remote) = played.begin(Arc::new(SystemNet), Arc::new(SetClock::default()));
    let far = RemoteFs::new(Arc::clone(&remote));
    list(&ours, &far, 3);
    assert!(matches!(ours.next(Duration::from_millis(300)), Got::Nothing));
    list(&ours, &far, 2000);
    match ours.next(SOON) {
        Got::Ping(_, have) => assert_eq!(have, [2]),
        other => panic!("{other:?}"),
    }
    remote.end();
}
