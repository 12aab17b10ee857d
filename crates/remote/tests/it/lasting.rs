//! Sessions that outlive the process that serves a volume: what continues, and what a client cannot
//! claim.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, Env, SystemClock, SystemNet};
use fs::{Engine, Entry, FormatOptions, Fs, OpenOptions};
use inode::{Caller, FsError, Kind, NodeId, SetAttr};
use remote::{Executed, Export, Remote, RemoteFs, Server, SessionId, Warrant};
use rpc::{Channel, Grant};
use store::Durability;
use testing::{SimDevice, SimEnv};
use vfs::{
    Allocate, FileLock, FileSystem, FsResult, LockKind, Locked, NewNode, RenameMode, Request,
    SetXattr,
};
use wire::remote::{
    Asked, Asker, FrameKind, FsAnswer, FsCall, FsFailure, HeldNode, LockRange, OPEN_READ,
    OPEN_WRITE, Reclaim, RemoteWelcome, Resume, put_head, split_head,
};
use wire::{decode, encode};

use crate::rig::{VOLUME, connect, hello, server, user};

/// How long anything may take.
const SOON: Duration = Duration::from_secs(60);

/// The sessions of a volume, and the errors of its next searches for nodes.
struct Kept(Arc<dyn remote::Lasting>, Arc<Mutex<Vec<FsError>>>);

impl remote::Lasting for Kept {
    fn find_again(&self, node: NodeId) -> FsResult<Entry> {
        self.1.lock().pop().map_or_else(|| self.0.find_again(node), Err)
    }

    fn begin(&self) -> FsResult<SessionId> {
        self.0.begin()
    }

    fn sessions(&self) -> FsResult<Vec<SessionId>> {
        self.0.sessions()
    }

    fn executed(&self, request: &Request) -> FsResult<Option<Executed>> {
        self.0.executed(request)
    }

    fn confirm(&self, session: &SessionId, done: u64) -> FsResult<u64> {
        self.0.confirm(session, done)
    }

    fn end(&self, sessions: &[SessionId]) -> FsResult<()> {
        self.0.end(sessions)
    }

    fn settle(&self) {
        self.0.settle();
    }

    fn keep_orphans(&self) {
        self.0.keep_orphans();
    }

    fn key(&self) -> [u8; 16] {
        self.0.key()
    }
}

/// A volume on a disk, and the process that serves it now.
pub(crate) struct ServedVolume {
    env: Env,
    fs: Option<Arc<Fs>>,
    pub(crate) server: Server,
    pub(crate) failing: Arc<Mutex<Vec<FsError>>>,
    /// The right to answer for it.
    pub(crate) warrant: Option<Arc<dyn Warrant>>,
}

impl ServedVolume {
    pub(crate) fn new(engine: Engine) -> ServedVolume {
        ServedVolume::on(engine, server(Grant::all(), Duration::from_secs(60)))
    }

    pub(crate) fn on(engine: Engine, server: Server) -> ServedVolume {
        let env = SimEnv::on(SimDevice::new(5), 5).env();
        Fs::format(&env, &FormatOptions { engine, ..FormatOptions::default() }).unwrap();
        let failing = Arc::default();
        let mut place = ServedVolume { env, fs: None, server, failing, warrant: None };
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
        let front: Arc<dyn FileSystem> = Arc::new(fs.with_virtual_dirs());
        assert!(self.server.add(Export {
            name: VOLUME.to_owned(),
            fs: front,
            control: Box::new(control),
            warrant: self.warrant.clone(),
            lasting: Some(Arc::new(Kept(Arc::<Fs>::clone(&fs), Arc::clone(&self.failing)))),
        }));
        self.fs = Some(fs);
    }

    /// The process ends, and another one serves the volume.
    pub(crate) fn replace(&mut self) {
        self.server.remove(VOLUME);
        // Background work continues until the volume is closed, and removes nothing that they hold.
        while self.fs().background_step(64).unwrap().more {}
        self.fs.take().unwrap().close().unwrap();
        self.begin();
    }

    pub(crate) fn fs(&self) -> &Arc<Fs> {
        self.fs.as_ref().unwrap()
    }
}

pub(crate) fn client(place: &ServedVolume) -> (Arc<Remote>, RemoteFs) {
    let remote = connect(&place.server, SOON);
    (Arc::clone(&remote), RemoteFs::new(remote))
}

/// Takes a lock of flock(2), exclusively, without waiting.
pub(crate) fn lock(far: &RemoteFs, node: NodeId, owner: u64) -> Locked {
    let kind = LockKind::Exclusive;
    let lock = FileLock { owner, pid: 1, kind, start: 0, end: u64::MAX, whole: true };
    far.lock(&Caller::root(), node, &lock, false).unwrap()
}

#[test]
fn open_files_locks_and_files_without_names_continue() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let mut place = ServedVolume::new(engine);
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

pub(crate) fn frame(kind: FrameKind, number: u64, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    put_head(kind, number, &mut out);
    body(&mut out);
    out
}

pub(crate) struct Raw {
    pub(crate) channel: Channel,
    pub(crate) welcome: RemoteWelcome,
    next: u64,
}

impl Raw {
    pub(crate) fn begin(place: &ServedVolume, resume: Option<Resume>) -> Raw {
        Raw::try_begin(place.server.address(), resume).expect("it is let in")
    }

    /// `None`: the server refuses.
    pub(crate) fn try_begin(server: SocketAddr, resume: Option<Resume>) -> Option<Raw> {
        use device::Net;
        let link = SystemNet.connect(server, SOON).unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let channel = Channel::plain(link, clock).unwrap();
        let hello = hello(resume);
        channel.send(&frame(FrameKind::Hello, 0, |out| encode(&hello, out))).unwrap();
        let mut received = Vec::new();
        channel.receive(&mut received, 1 << 20, SOON).ok()?;
        let (kind, _, body) = split_head(&received).unwrap();
        let is_welcome = kind == FrameKind::Welcome;
        is_welcome.then(|| Raw { welcome: decode(body).unwrap(), channel, next: 0 })
    }

    pub(crate) fn claim(&self, nodes: Vec<HeldNode>) {
        self.claim_part(&Reclaim { nodes, locks: Vec::new(), last: true });
    }

    pub(crate) fn claim_part(&self, reclaim: &Reclaim) {
        self.channel.send(&frame(FrameKind::Reclaim, 0, |out| encode(reclaim, out))).unwrap();
    }

    pub(crate) fn ask<T>(
        &mut self,
        uid: u32,
        call: FsCall<'_>,
        read: impl FnOnce(Result<FsAnswer<'_>, FsFailure>) -> T,
    ) -> T {
        self.ask_once((0, 0), uid, call, read)
    }

    /// Makes a call; returns the number of the request whose answer comes first.
    pub(crate) fn ask_for_number(&mut self, call: FsCall<'_>) -> u64 {
        self.next += 1;
        let who = Asker::default();
        let asked = Asked { acknowledged: Vec::new(), once: 0, done: 0, who, call };
        self.channel
            .send(&frame(FrameKind::Request, self.next, |out| encode(&asked, out)))
            .unwrap();
        let mut received = Vec::new();
        self.channel.receive(&mut received, 1 << 21, SOON).unwrap();
        split_head(&received).unwrap().1
    }

    /// Makes a call with a number of a change, and up to which none is awaited.
    pub(crate) fn ask_once<T>(
        &mut self,
        (once, done): (u64, u64),
        uid: u32,
        call: FsCall<'_>,
        read: impl FnOnce(Result<FsAnswer<'_>, FsFailure>) -> T,
    ) -> T {
        self.next += 1;
        let who = Asker { uid, gid: uid, ..Asker::default() };
        let acknowledged = (1..self.next).rev().take(2).collect();
        let asked = Asked { acknowledged, once, done, who, call };
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
    let mut place = ServedVolume::new(Engine::Btree);
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
        let mut place = ServedVolume::new(engine);
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
            let executed = remote::Lasting::executed(&**place.fs(), &request).unwrap();
            let executed = executed.unwrap_or_else(|| panic!("request {} is lost", request.number));
            assert_eq!(executed.node, node, "request {}", request.number);
        }
    }
}

fn entry_of(answer: Result<FsAnswer<'_>, FsFailure>) -> wire::remote::Entry {
    match answer {
        Ok(FsAnswer::Entry(entry)) => entry,
        other => panic!("{other:?}"),
    }
}

/// Its session, in a process that serves the volume since.
fn again(place: &mut ServedVolume, raw: &Raw) -> Raw {
    place.replace();
    let resume = Resume { attempt: raw.welcome.session.attempt + 1, ..raw.welcome.session };
    let raw = Raw::begin(place, Some(resume));
    assert!(raw.welcome.resumed && raw.welcome.reclaims);
    raw
}

#[test]
fn no_count_that_is_claimed_overflows() {
    let mut place = ServedVolume::new(Engine::Btree);
    let new = NewNode { kind: Kind::File, mode: 0o666, rdev: 0 };
    let node = place.fs().mknod(&Caller::root(), NodeId::ROOT, b"file", &new).unwrap().node;
    place.fs().forget(node, 1);
    let top = wire::remote::Node::ROOT;
    let look_up = FsCall::Lookup { parent: top, name: b"file" };
    let mut raw = Raw::begin(&place, None);
    let entry = raw.ask(1000, look_up.clone(), entry_of);
    let mut raw = again(&mut place, &raw);
    let (node, proof) = (entry.node, entry.proof);
    let proofs = vec![(0, proof)];
    let held =
        HeldNode { node, generation: entry.generation, lookups: u64::MAX, opens: u32::MAX, proofs };
    raw.claim(vec![held]);
    for _ in 0..3 {
        assert_eq!(raw.ask(1000, look_up.clone(), entry_of).node, node);
        let opened = raw.ask(1000, FsCall::Open { node, flags: OPEN_READ }, |it| it.is_ok());
        assert!(opened);
    }
    let forgotten = FsCall::Forget { items: vec![(node, u64::MAX)] };
    assert!(raw.ask(1000, forgotten, |answer| answer.is_ok()));
    assert_eq!(raw.ask(1000, look_up, entry_of).node, node);
}

#[test]
fn a_search_that_fails_loses_no_open_file() {
    let mut place = ServedVolume::new(Engine::Lsm);
    let top = wire::remote::Node::ROOT;
    let flags = OPEN_READ | OPEN_WRITE;
    let mut raw = Raw::begin(&place, None);
    let create = FsCall::Create { parent: top, name: b"file", mode: 0o600, flags };
    let entry = raw.ask_once((1, 0), 0, create, entry_of);
    *place.failing.lock() = vec![FsError::Busy("a test")];
    let mut raw = again(&mut place, &raw);
    let node = entry.node;
    // The claim does not find it.
    let proofs = vec![(flags, entry.proof)];
    raw.claim(vec![HeldNode { node, generation: entry.generation, lookups: 1, opens: 1, proofs }]);
    let read = FsCall::Read { node, offset: 0, length: 1, untimed: true };
    assert!(raw.ask(0, read.clone(), |answer| answer.is_ok()), "an open file was dropped");
    assert!(place.failing.lock().is_empty(), "nothing was looked for");
    // Nor does the first use, whose caller went away.
    let mut raw = again(&mut place, &raw);
    let proofs = vec![(flags, entry.proof)];
    raw.claim(vec![HeldNode { node, generation: entry.generation, lookups: 1, opens: 0, proofs }]);
    *place.failing.lock() = vec![FsError::Interrupted];
    let interrupted =
        raw.ask(0, read.clone(), |answer| matches!(answer, Err(FsFailure::Interrupted)));
    assert!(interrupted, "nothing was looked for");
    assert!(raw.ask(0, read, |answer| answer.is_ok()), "a node was dropped");
}

/// Changes that were under way when the server ended have older confirmations than the volume.
#[test]
fn a_repeat_with_an_old_confirmation_gets_its_answer() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let mut place = ServedVolume::new(engine);
        let top = wire::remote::Node::ROOT;
        let new = |name| FsCall::MakeDir { parent: top, name, mode: 0o755 };
        let mut raw = Raw::begin(&place, None);
        let made = raw.ask_once((601, 300), 0, new(b"made"), entry_of);
        raw.ask_once((602, 600), 0, new(b"next"), entry_of);
        let session = raw.welcome.session.secret;
        let done_of = |place: &ServedVolume| {
            let sessions = place.fs().sessions().unwrap();
            sessions.into_iter().find(|(id, _)| *id == session).unwrap().1.done
        };
        assert_eq!(done_of(&place), 600);
        let mut raw = again(&mut place, &raw);
        raw.claim(Vec::new());
        let repeated = raw.ask_once((601, 300), 0, new(b"made"), entry_of);
        assert_eq!(repeated.node, made.node);
        // With other bytes it is another request.
        for other in [new(b"other"), FsCall::RemoveDir { parent: top, name: b"made" }] {
            let refused =
                raw.ask_once((601, 300), 0, other, |it| matches!(it, Err(FsFailure::Invalid)));
            assert!(refused, "a request has two bodies");
        }
        assert_eq!(done_of(&place), 600);
    }
}

#[test]
fn answers_that_are_not_confirmed_are_bounded() {
    let place = ServedVolume::new(Engine::Btree);
    let top = wire::remote::Node::ROOT;
    let mode = |to| {
        let changes = wire::remote::Changes { mode: Some(to), ..wire::remote::Changes::default() };
        FsCall::SetAttr { node: top, changes }
    };
    let mut raw = Raw::begin(&place, None);
    assert!(raw.ask_once((1, 0), 0, mode(0o755), |it| it.is_ok()));
    assert!(raw.ask_once((1024, 0), 0, mode(0o755), |it| it.is_ok()));
    for (once, done) in [(1025, 0), (u64::MAX, 0)] {
        let refused = raw.ask_once((once, done), 0, mode(0o700), |it| {
            matches!(it, Err(FsFailure::LimitReached))
        });
        assert!(refused, "{once} above {done} was executed");
    }
    for (once, done) in [(5, 5), (7, u64::MAX)] {
        let refused =
            raw.ask_once((once, done), 0, mode(0o700), |it| matches!(it, Err(FsFailure::Invalid)));
        assert!(refused, "{once} with {done} was executed");
    }
    // Numbers of changes that failed are used up, too.
    assert!(raw.ask_once((9000, 8999), 0, mode(0o755), |it| it.is_ok()));
    let refused =
        raw.ask_once((8999, 0), 0, mode(0o700), |it| matches!(it, Err(FsFailure::Invalid)));
    assert!(refused, "what was confirmed was executed");
    assert!(raw.ask_once((9001, 9000), 0, mode(0o755), |it| it.is_ok()));
}

#[test]
fn locks_that_are_claimed_after_their_time_end_the_session() {
    let mut place = ServedVolume::new(Engine::Btree);
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
