//! No answer is sent before everything is durable that it rests on, and the threads that execute
//! calls do not wait for that.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use device::sync::{Condvar, Mutex};
use device::{Clock, SystemNet};
use inode::{Caller, FsError, NodeId};
use remote::{Executed, Export, Lasting, Remote, RemoteFs, Server, SessionId};
use rpc::Grant;
use testing::MemoryFs;
use vfs::{Entry, FileLock, FileSystem, FsResult, Layer, LockKind, Locked, Operation, Request};

use wire::remote::Asker;

use crate::rig::{VOLUME, connect, server, target, user};

/// Threads of two clients: more than the server has.
const THREADS: u64 = 50;

#[derive(Clone, Copy, PartialEq)]
enum Gate {
    Closed,
    Open,
    Broken,
}

/// A file system whose changes become durable when a gate opens.
struct Gated {
    inner: MemoryFs,
    made: AtomicU64,
    settled: AtomicU64,
    /// How often somebody waited.
    waits: AtomicU64,
    gate: Mutex<Gate>,
    changed: Condvar,
}

impl Layer for Gated {
    fn below(&self) -> &(dyn FileSystem + 'static) {
        &self.inner
    }

    fn around<T>(
        &self,
        kind: Operation,
        call: impl FnOnce(&(dyn FileSystem + 'static)) -> FsResult<T>,
    ) -> FsResult<T> {
        let called = call(self.below());
        if kind == Operation::Mkdir {
            self.made.fetch_add(1, Ordering::SeqCst);
        }
        called
    }

    fn unsettled(&self) -> Option<u64> {
        let made = self.made.load(Ordering::SeqCst);
        (self.settled.load(Ordering::SeqCst) < made).then_some(made)
    }

    fn settle(&self, position: u64) -> FsResult<()> {
        self.waits.fetch_add(1, Ordering::SeqCst);
        let mut gate = self.gate.lock();
        while *gate == Gate::Closed {
            self.changed.wait(&mut gate);
        }
        if *gate == Gate::Broken {
            return Err(FsError::ReadOnly("the log failed".to_owned()));
        }
        self.settled.fetch_max(position, Ordering::SeqCst);
        Ok(())
    }
}

impl Gated {
    fn set(&self, gate: Gate) {
        *self.gate.lock() = gate;
        self.changed.notify_all();
    }
}

/// Sessions that the file system keeps: the end of one is a change like any other.
struct Kept(Arc<Gated>);

impl Lasting for Kept {
    fn begin(&self) -> FsResult<SessionId> {
        Ok([7; 16])
    }

    fn sessions(&self) -> FsResult<Vec<SessionId>> {
        Ok(Vec::new())
    }

    fn executed(&self, _: &Request) -> FsResult<Option<Executed>> {
        Ok(None)
    }

    fn confirm(&self, _: &SessionId, done: u64) -> FsResult<u64> {
        Ok(done)
    }

    fn end(&self, _: &[SessionId]) -> FsResult<()> {
        self.0.made.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn find_again(&self, _: NodeId) -> FsResult<Entry> {
        Err(FsError::Stale)
    }

    fn settle(&self) {}

    fn keep_orphans(&self) {}

    fn key(&self) -> [u8; 16] {
        [9; 16]
    }
}

fn gated() -> Arc<Gated> {
    Arc::new(Gated {
        inner: MemoryFs::new(),
        made: AtomicU64::new(0),
        settled: AtomicU64::new(0),
        waits: AtomicU64::new(0),
        gate: Mutex::new(Gate::Closed),
        changed: Condvar::new(),
    })
}

fn served() -> (Arc<Gated>, Server) {
    serve(false)
}

fn serve(keeps_sessions: bool) -> (Arc<Gated>, Server) {
    let fs = gated();
    let lasting = || Arc::new(Kept(Arc::clone(&fs))) as Arc<dyn Lasting>;
    let lasting = keeps_sessions.then(lasting);
    let server = server(Grant::all(), Duration::from_secs(60));
    let control = |_: &str, _: Caller| Err(std::io::ErrorKind::Unsupported.into());
    let (name, control) = (VOLUME.to_owned(), Box::new(control));
    let exported: Arc<dyn FileSystem> = Arc::<Gated>::clone(&fs);
    let export = Export { name, fs: exported, control, warrant: None, lasting };
    assert!(server.add(export));
    (fs, server)
}

fn client(server: &Server) -> (Arc<Remote>, RemoteFs) {
    let remote = connect(server, Duration::from_secs(60));
    (Arc::clone(&remote), RemoteFs::new(remote))
}

fn wait_until(happened: impl Fn() -> bool) {
    while !happened() {
        device::yield_now();
    }
}

#[test]
fn calls_are_executed_while_others_wait_to_be_durable_and_none_is_answered() {
    let (fs, server) = served();
    let (one, two) = (client(&server), client(&server));
    let answered = AtomicUsize::new(0);
    device::scope(|scope| {
        for number in 0..THREADS {
            for (client, far) in [&one.1, &two.1].into_iter().enumerate() {
                let answered = &answered;
                scope.spawn(move || {
                    let name = format!("{client}-{number}");
                    far.mkdir(&user(0), NodeId::ROOT, name.as_bytes(), 0o755).unwrap();
                    answered.fetch_add(1, Ordering::SeqCst);
                });
            }
        }
        wait_until(|| fs.made.load(Ordering::SeqCst) == 2 * THREADS);
        // Nothing was changed for this one, but it may have seen what was.
        let missing = scope.spawn(|| {
            let found = one.1.lookup(&user(0), NodeId::ROOT, b"missing");
            answered.fetch_add(1, Ordering::SeqCst);
            found
        });
        device::SystemClock::new().sleep(Duration::from_millis(50));
        assert_eq!(answered.load(Ordering::SeqCst), 0, "an answer was sent too early");
        fs.set(Gate::Open);
        assert!(matches!(missing.join().unwrap(), Err(FsError::NotFound)));
    });
    assert_eq!(answered.load(Ordering::SeqCst), 2 * THREADS as usize + 1);
    // What is durable is answered at once.
    fs.set(Gate::Closed);
    assert!(one.1.lookup(&user(0), NodeId::ROOT, b"0-0").is_ok());
    one.0.end();
    two.0.end();
}

#[test]
fn a_change_that_does_not_become_durable_is_answered_with_the_error() {
    let (fs, server) = served();
    let (remote, far) = client(&server);
    fs.set(Gate::Broken);
    let made = far.mkdir(&user(0), NodeId::ROOT, b"a", 0o755);
    assert!(matches!(made, Err(FsError::ReadOnly(_))), "{made:?}");
    // So is what has seen it.
    let seen = far.lookup(&user(0), NodeId::ROOT, b"a");
    assert!(matches!(seen, Err(FsError::ReadOnly(_))), "{seen:?}");
    remote.end();
}

/// After a crash before that, the session could continue, and have its lock again.
#[test]
fn a_lock_of_a_session_that_ended_is_nobody_elses_before_that_end_is_durable() {
    let (fs, server) = serve(true);
    let (one, two) = (client(&server), client(&server));
    let root = user(0);
    let file = one.1.create(&root, NodeId::ROOT, b"f", (0o666, 2)).unwrap().node;
    let same = two.1.lookup(&root, NodeId::ROOT, b"f").unwrap().node;
    two.1.open(&root, same, 2).unwrap();
    let kind = LockKind::Exclusive;
    let lock = |owner| FileLock { owner, pid: 1, kind, start: 0, end: u64::MAX, whole: true };
    assert_eq!(one.1.lock(&root, file, &lock(1), false).unwrap(), Locked::Done);
    let granted = AtomicUsize::new(0);
    device::scope(|scope| {
        let waits = scope.spawn(|| {
            let locked = two.1.lock(&root, same, &lock(2), true);
            granted.fetch_add(1, Ordering::SeqCst);
            locked
        });
        device::SystemClock::new().sleep(Duration::from_millis(50));
        one.0.end();
        wait_until(|| fs.made.load(Ordering::SeqCst) == 1);
        device::SystemClock::new().sleep(Duration::from_millis(50));
        assert_eq!(granted.load(Ordering::SeqCst), 0, "it was granted too early");
        fs.set(Gate::Open);
        assert_eq!(waits.join().unwrap().unwrap(), Locked::Done);
    });
    two.0.end();
}

/// A stream to a command is read on while a part of it waits for the log.
#[test]
fn a_command_gets_much_with_each_wait_for_the_log_and_nothing_before() {
    let fs = gated();
    let server = server(Grant::all(), Duration::from_secs(60));
    let ends: Arc<Mutex<Vec<UnixStream>>> = Arc::default();
    let taken = Arc::clone(&ends);
    let control = move |_: &str, _: Caller| {
        let (ours, theirs) = UnixStream::pair()?;
        taken.lock().push(ours);
        Ok(theirs)
    };
    let (name, control) = (VOLUME.to_owned(), Box::new(control));
    let exported: Arc<dyn FileSystem> = Arc::<Gated>::clone(&fs);
    assert!(server.add(Export { name, fs: exported, control, warrant: None, lasting: None }));
    let clock: Arc<dyn Clock> = Arc::new(device::SystemClock::new());
    let carried = remote::control(&SystemNet, &clock, &target(&server), Asker::default()).unwrap();
    let mut verb = carried.stream;
    verb.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut daemon = ends.lock().pop().unwrap();
    // It rests on a change that is not durable.
    fs.made.fetch_add(1, Ordering::SeqCst);
    let bytes: Vec<u8> = (0..2 << 20).map(|at: u32| (at % 251) as u8).collect();
    let mut got = vec![0; bytes.len()];
    device::scope(|scope| {
        // The gate is closed, and all of it is taken.
        scope.spawn(|| daemon.write_all(&bytes).unwrap()).join().unwrap();
        let early = verb.read(&mut got).unwrap_err().kind();
        assert_eq!(early, std::io::ErrorKind::WouldBlock, "a part was passed on too early");
        fs.set(Gate::Open);
        verb.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        verb.read_exact(&mut got).unwrap();
    });
    assert!(got == bytes);
    let waits = fs.waits.load(Ordering::SeqCst);
    assert!(waits <= 3, "{waits} waits for the log");
}
