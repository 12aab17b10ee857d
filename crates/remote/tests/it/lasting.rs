//! Sessions that outlive the process that serves a volume: what continues, and what a client cannot
//! claim.

use std::sync::Arc;
use std::time::Duration;

use device::{Clock, Env, SystemClock, SystemNet};
use fs::{Engine, Entry, FormatOptions, Fs, OpenOptions};
use inode::{Caller, FsError, Ino, Kind, NodeId, SetAttr, Slot};
use remote::{Executed, Export, Lasting, Remote, RemoteFs, Server, SessionId};
use rpc::{Channel, Grant};
use store::Durability;
use testing::{SimDevice, SimEnv};
use vfs::{
    Allocate, FileLock, FileSystem, FsResult, LockKind, Locked, NewNode, RenameMode, Request,
    SetXattr,
};
use wire::remote::{
    Asked, Asker, FrameKind, FsAnswer, FsCall, FsFailure, HeldNode, LockRange, OPEN_READ,
    OPEN_WRITE, REMOTE_MAGIC, REMOTE_VERSION, Reclaim, RemoteHello, RemoteWelcome, Resume, Use,
    put_head, split_head,
};
use wire::{Bytes, decode, encode};

use crate::rig::{VOLUME, connect, server, user};

/// How long anything may take.
const SOON: Duration = Duration::from_secs(60);

struct Kept(Arc<Fs>);

impl Lasting for Kept {
    fn begin(&self) -> FsResult<SessionId> {
        self.0.begin_session()
    }

    fn sessions(&self) -> FsResult<Vec<SessionId>> {
        Ok(self.0.sessions()?.into_iter().map(|(id, _)| id).collect())
    }

    fn executed(&self, request: &Request) -> FsResult<Option<Executed>> {
        let Some(executed) = self.0.executed(request)? else { return Ok(None) };
        let node = executed.node.map(|(slot, ino)| NodeId::of(Slot(u64::from(slot)), Ino(ino)));
        Ok(Some(Executed { node, number: executed.number }))
    }

    fn confirm(&self, session: &SessionId, done: u64) -> FsResult<()> {
        self.0.confirm(session, done)
    }

    fn end(&self, session: &SessionId) -> FsResult<()> {
        self.0.end_session(session)
    }

    fn find_again(&self, node: NodeId) -> FsResult<Entry> {
        self.0.find_again(node)
    }

    fn settle(&self) {
        self.0.await_orphans(false);
    }

    fn key(&self) -> [u8; 16] {
        self.0.proof_key()
    }
}

/// A volume on a disk, and the process that serves it now.
struct Place {
    env: Env,
    fs: Option<Arc<Fs>>,
    server: Server,
}

impl Place {
    fn new(engine: Engine) -> Place {
        let env = SimEnv::on(SimDevice::new(5), 5).env();
        Fs::format(&env, &FormatOptions { engine, ..FormatOptions::default() }).unwrap();
        let server = server(Grant::all(), Duration::from_secs(60));
        let mut place = Place { env, fs: None, server };
        place.begin();
        place
    }

    fn begin(&mut self) {
        let options = OpenOptions {
            durability: Durability::Sync,
            cache_bytes: 4 << 20,
            answers: true,
            ..OpenOptions::default()
        };
        let fs = Fs::open(self.env.clone(), &options).unwrap();
        let control = |_: &str, _: Caller| Err(std::io::ErrorKind::Unsupported.into());
        let front: Arc<dyn FileSystem> = Arc::<Fs>::clone(&fs);
        assert!(self.server.add(Export {
            name: VOLUME.to_owned(),
            fs: front,
            control: Box::new(control),
            warrant: None,
            lasting: Some(Arc::new(Kept(Arc::clone(&fs)))),
        }));
        self.fs = Some(fs);
    }

    /// The process ends, and another one serves the volume.
    fn replace(&mut self) {
        self.server.remove(VOLUME);
        self.fs.take().unwrap().close().unwrap();
        self.begin();
    }

    fn fs(&self) -> &Arc<Fs> {
        self.fs.as_ref().unwrap()
    }
}

fn client(place: &Place) -> (Arc<Remote>, RemoteFs) {
    let remote = connect(&place.server, SOON);
    (Arc::clone(&remote), RemoteFs::new(remote))
}

/// Takes a lock of flock(2), exclusively, without waiting.
fn lock(far: &RemoteFs, node: NodeId, owner: u64) -> Locked {
    let kind = LockKind::Exclusive;
    let lock = FileLock { owner, pid: 1, kind, start: 0, end: u64::MAX, whole: true };
    far.lock(&Caller::root(), node, &lock, false).unwrap()
}

#[test]
fn open_files_locks_and_files_without_names_continue() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let mut place = Place::new(engine);
        let ((one, far), (two, other)) = (client(&place), client(&place));
        let root = Caller::root();
        let named = far.create(&root, NodeId::ROOT, b"named", (0o644, 2)).unwrap().node;
        let nameless = far.create(&root, NodeId::ROOT, b"nameless", (0o600, 2)).unwrap().node;
        let unnamed = far.tmpfile(&root, NodeId::ROOT, 0o600).unwrap().node;
        far.write(&root, nameless, 0, b"still here").unwrap();
        far.write(&root, unnamed, 0, b"never named").unwrap();
        far.unlink(&root, NodeId::ROOT, b"nameless").unwrap();
        assert_eq!(lock(&far, named, 7), Locked::Done);
        let seen = other.lookup(&root, NodeId::ROOT, b"named").unwrap().node;
        other.open(&root, seen, 2).unwrap();
        for _ in 0..2 {
            place.replace();
            // Background work finds nothing to remove.
            while place.fs().background_step(64).unwrap().more {}
            let mut buffer = [0; 16];
            assert_eq!(far.read(&root, nameless, 0, &mut buffer).unwrap(), 10);
            assert_eq!(&buffer[..10], b"still here");
            assert_eq!(far.read(&root, unnamed, 0, &mut buffer).unwrap(), 11);
            far.append(&root, named, b"x").unwrap();
            assert_eq!(lock(&other, seen, 9), Locked::Busy, "a lock was lost");
        }
        assert_eq!(far.getattr(&root, named).unwrap().size, 2);
        far.unlock(&root, named, 7, true).unwrap();
        assert_eq!(lock(&other, seen, 9), Locked::Done);
        // That it never had a name, and so may get one, is known to the first process only.
        let linked = far.link(&root, unnamed, NodeId::ROOT, b"named at last");
        assert!(matches!(linked, Err(FsError::NotFound)), "{linked:?}");
        // They end with their client: the rest is removed.
        one.end();
        two.end();
        let fs = Arc::clone(place.fs());
        crate::rig::wait_until(|| fs.sessions().unwrap().is_empty());
        while fs.background_step(64).unwrap().more {}
        drop(fs);
        place.replace();
        for gone in [nameless, unnamed] {
            assert!(matches!(place.fs().find_again(gone), Err(FsError::Stale)));
        }
    }
}

fn frame(kind: FrameKind, number: u64, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    put_head(kind, number, &mut out);
    body(&mut out);
    out
}

struct Raw {
    channel: Channel,
    welcome: RemoteWelcome,
    next: u64,
}

impl Raw {
    fn begin(place: &Place, resume: Option<Resume>) -> Raw {
        use device::Net;
        let link = SystemNet.connect(place.server.address(), SOON).unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let channel = Channel::plain(link, clock).unwrap();
        let hello = RemoteHello {
            magic: REMOTE_MAGIC,
            version_min: REMOTE_VERSION,
            version: REMOTE_VERSION,
            features: 0,
            volume: Bytes::from(VOLUME.as_bytes()),
            use_for: Use::Mount,
            who: Asker::default(),
            resume,
            awaits: Vec::new(),
        };
        channel.send(&frame(FrameKind::Hello, 0, |out| encode(&hello, out))).unwrap();
        let mut received = Vec::new();
        channel.receive(&mut received, 1 << 20, SOON).unwrap();
        let (kind, _, body) = split_head(&received).unwrap();
        assert_eq!(kind, FrameKind::Welcome);
        Raw { channel, welcome: decode(body).unwrap(), next: 0 }
    }

    fn claim(&self, nodes: Vec<HeldNode>) {
        let reclaim = Reclaim { nodes, locks: Vec::new(), last: true };
        self.channel.send(&frame(FrameKind::Reclaim, 0, |out| encode(&reclaim, out))).unwrap();
    }

    fn ask<T>(
        &mut self,
        uid: u32,
        call: FsCall<'_>,
        read: impl FnOnce(Result<FsAnswer<'_>, FsFailure>) -> T,
    ) -> T {
        self.next += 1;
        let who = Asker { uid, gid: uid, ..Asker::default() };
        let asked = Asked { acknowledged: Vec::new(), once: 0, done: 0, who, call };
        self.channel
            .send(&frame(FrameKind::Request, self.next, |out| encode(&asked, out)))
            .unwrap();
        let mut received = Vec::new();
        self.channel.receive(&mut received, 1 << 21, SOON).unwrap();
        let (_, _, body) = split_head(&received).unwrap();
        read(decode(body).unwrap())
    }
}

#[test]
fn what_was_not_given_cannot_be_claimed() {
    let mut place = Place::new(Engine::Btree);
    let root = Caller::root();
    let new = NewNode { kind: Kind::File, mode: 0o444, rdev: 0 };
    let fs = Arc::clone(place.fs());
    let shown = fs.mknod(&root, NodeId::ROOT, b"shown", &new).unwrap().node;
    let closed = fs.mkdir(&root, NodeId::ROOT, b"closed", 0o700).unwrap().node;
    let hidden = fs.mknod(&root, closed, b"hidden", &new).unwrap().node;
    drop(fs);
    let mut raw = Raw::begin(&place, None);
    let call = FsCall::Lookup { parent: wire::remote::Node::ROOT, name: b"shown" };
    let entry = raw.ask(1000, call, |answer| match answer {
        Ok(FsAnswer::Entry(entry)) => entry,
        other => panic!("{other:?}"),
    });
    let call = FsCall::Open { node: entry.node, flags: OPEN_READ };
    let opened = raw.ask(1000, call, |answer| match answer {
        Ok(FsAnswer::Opened(_, proof)) => proof,
        other => panic!("{other:?}"),
    });
    assert!(entry.proof != 0 && opened != entry.proof);
    place.replace();
    // Another session has no use of these proofs.
    let mut other = Raw::begin(&place, None);
    assert!(!other.welcome.resumed && !other.welcome.reclaims);
    let held = |node, opens, proofs| HeldNode { node, generation: 0, lookups: 1, opens, proofs };
    other.claim(vec![held(entry.node, 1, vec![(0, entry.proof), (OPEN_READ, opened)])]);
    let stale = other.ask(1000, FsCall::GetAttr { node: entry.node }, |answer| {
        matches!(answer, Err(FsFailure::Stale))
    });
    assert!(stale, "a proof of another session was accepted");
    // Its own session has what it was given, and no more.
    let resume = Resume { attempt: 1, ..raw.welcome.session };
    let mut raw = Raw::begin(&place, Some(resume));
    assert!(raw.welcome.resumed && raw.welcome.reclaims);
    let far = |node: NodeId| wire::remote::Node { slot: node.slot().0 as u32, ino: node.ino().0 };
    raw.claim(vec![
        held(far(hidden), 1, vec![(OPEN_READ, opened), (0, entry.proof), (3, 0)]),
        held(entry.node, 1, vec![(OPEN_READ, opened), (OPEN_READ | OPEN_WRITE, opened)]),
        held(entry.node, 9, vec![(OPEN_WRITE, opened)]),
    ]);
    let refused = raw.ask(1000, FsCall::GetAttr { node: far(hidden) }, |answer| {
        matches!(answer, Err(FsFailure::Stale))
    });
    assert!(refused, "a node was claimed that was never returned");
    let call = FsCall::Read { node: entry.node, offset: 0, length: 1, untimed: true };
    assert!(raw.ask(1000, call, |answer| answer.is_ok()));
    let call = FsCall::Write { node: entry.node, offset: 0, flags: 0, bytes: b"x" };
    let refused = raw.ask(1000, call, |answer| matches!(answer, Err(FsFailure::AccessDenied)));
    assert!(refused, "a right was claimed that was not given");
    // What is claimed later counts for nothing.
    raw.claim(vec![held(far(closed), 0, vec![(0, entry.proof)])]);
    let refused = raw.ask(1000, FsCall::GetAttr { node: far(closed) }, |answer| answer.is_err());
    assert!(refused);
    assert_eq!(place.fs().getattr(&user(0), shown).unwrap().size, 0);
}

#[test]
fn each_change_signs_its_batch_once() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let mut place = Place::new(engine);
        let fs = Arc::clone(place.fs());
        let session = fs.begin_session().unwrap();
        let root = Caller::root();
        let mut number = 0;
        let mut made: Vec<(Request, Option<NodeId>)> = Vec::new();
        let mut once = |change: &dyn Fn() -> FsResult<Option<NodeId>>| {
            number += 1;
            let request = Request { session, number, hash: number * 3 };
            assert_eq!(fs.executed(&request).unwrap(), None);
            let node = vfs::with_request(&request, change).unwrap();
            made.push((request, node));
            node
        };
        let top = NodeId::ROOT;
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let file = once(&|| Ok(Some(fs.mknod(&root, top, b"file", &new)?.node))).unwrap();
        let dir = once(&|| Ok(Some(fs.mkdir(&root, top, b"dir", 0o755)?.node))).unwrap();
        once(&|| Ok(Some(fs.symlink(&root, top, b"soft", b"file")?.node)));
        once(&|| Ok(Some(fs.link(&root, file, dir, b"hard")?.node)));
        once(&|| fs.write(&root, file, 0, b"contents").map(|()| None));
        // Large contents move out in a batch of their own, before the write.
        once(&|| fs.write(&root, file, 1 << 20, &vec![5; 100_000]).map(|()| None));
        once(&|| fs.fallocate(&root, file, (0, 10), Allocate::Zero).map(|()| None));
        once(&|| fs.setxattr(&root, file, b"user.a", b"1", SetXattr::Any).map(|()| None));
        once(&|| fs.removexattr(&root, file, b"user.a").map(|()| None));
        let size = SetAttr { size: Some(7), ..SetAttr::default() };
        once(&|| fs.setattr(&root, file, &size).map(|_| None));
        once(&|| fs.rename(&root, (top, b"soft"), (dir, b"s"), RenameMode::Replace).map(|()| None));
        once(&|| fs.unlink(&root, dir, b"s").map(|()| None));
        once(&|| fs.unlink(&root, dir, b"hard").map(|()| None));
        once(&|| fs.rmdir(&root, top, b"dir").map(|()| None));
        once(&|| Ok(Some(fs.tmpfile(&root, top, 0o600)?.node)));
        // What fails is not executed.
        let failing = Request { session, number: 99, hash: 99 };
        let failed = vfs::with_request(&failing, || fs.mkdir(&root, top, b"file", 0o755));
        assert!(matches!(failed, Err(FsError::Exists)), "{failed:?}");
        assert_eq!(fs.executed(&failing).unwrap(), None);
        // Nor is a change of this thread that is nobody's request.
        fs.mkdir(&root, top, b"other", 0o755).unwrap();
        drop(fs);
        place.replace();
        for (request, node) in made {
            let executed = Kept(Arc::clone(place.fs())).executed(&request).unwrap();
            let executed = executed.unwrap_or_else(|| panic!("request {} is lost", request.number));
            assert_eq!(executed.node, node, "request {}", request.number);
        }
    }
}

#[test]
fn locks_that_are_claimed_after_their_time_end_the_session() {
    let mut place = Place::new(Engine::Btree);
    let root = Caller::root();
    let new = NewNode { kind: Kind::File, mode: 0o666, rdev: 0 };
    place.fs().mknod(&root, NodeId::ROOT, b"shown", &new).unwrap();
    let mut raw = Raw::begin(&place, None);
    let call = FsCall::Lookup { parent: wire::remote::Node::ROOT, name: b"shown" };
    let entry = raw.ask(1000, call, |answer| match answer {
        Ok(FsAnswer::Entry(entry)) => entry,
        other => panic!("{other:?}"),
    });
    let flags = OPEN_READ | OPEN_WRITE;
    let opened = raw.ask(1000, FsCall::Open { node: entry.node, flags }, |answer| match answer {
        Ok(FsAnswer::Opened(_, proof)) => proof,
        other => panic!("{other:?}"),
    });
    // Another client waits for its lock, without a thread of the server.
    let (two, other) = client(&place);
    let seen = other.lookup(&root, NodeId::ROOT, b"shown").unwrap().node;
    other.open(&root, seen, 2).unwrap();
    place.replace();
    let resume = Resume { attempt: 1, ..raw.welcome.session };
    let raw = Raw::begin(&place, Some(resume));
    assert!(raw.welcome.resumed && raw.welcome.reclaims);
    // It gets it when the time of this one, which came back and claimed nothing, is over.
    assert_eq!(lock(&other, seen, 9), Locked::Done);
    other.unlock(&root, seen, 9, true).unwrap();
    let node = HeldNode {
        node: entry.node,
        generation: entry.generation,
        lookups: 1,
        opens: 1,
        proofs: vec![(0, entry.proof), (flags, opened)],
    };
    let kind = wire::remote::LockKind::Exclusive;
    let held = LockRange { owner: 7, pid: 1, kind, start: 0, end: u64::MAX, whole: true };
    let reclaim = Reclaim { nodes: vec![node], locks: vec![(entry.node, held)], last: true };
    raw.channel.send(&frame(FrameKind::Reclaim, 0, |out| encode(&reclaim, out))).unwrap();
    crate::rig::wait_until(|| place.server.held().0 == 1);
    assert_eq!(lock(&other, seen, 9), Locked::Done, "a lock was claimed after its time");
    // What it comes back with is a new session.
    let raw = Raw::begin(&place, Some(Resume { attempt: 2, ..raw.welcome.session }));
    assert!(!raw.welcome.resumed);
    two.end();
}
