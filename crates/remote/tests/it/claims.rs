//! What a client claims on two connections. The first is lost before it has claimed all, and the
//! client gives some of it back before it connects again.

use std::sync::Arc;
use std::time::Duration;

use device::{Clock, SystemClock};
use fs::Engine;
use inode::{Caller, FsError, NodeId};
use vfs::{FileSystem, Locked};
use wire::remote::{
    Entry, FsAnswer, FsCall, FsFailure, HeldNode, LockKind, LockRange, Node, OPEN_READ, OPEN_WRITE,
    Reclaim, Resume,
};

use crate::lasting::{Raw, ServedVolume, client, lock};
use crate::rig::wait_until;

const FLAGS: u8 = OPEN_READ | OPEN_WRITE;

fn entry_of(answer: Result<FsAnswer<'_>, FsFailure>) -> Entry {
    match answer {
        Ok(FsAnswer::Entry(entry)) => entry,
        other => panic!("{other:?}"),
    }
}

/// A client with these files, which are open.
fn with_files(place: &ServedVolume, names: &[&'static [u8]]) -> (Raw, Vec<Entry>) {
    let mut raw = Raw::begin(place, None);
    let mut create = |(at, name): (usize, &&'static [u8])| {
        let call = FsCall::Create { parent: Node::ROOT, name, mode: 0o600, flags: FLAGS };
        raw.ask_once((at as u64 + 1, 0), 0, call, entry_of)
    };
    let files = names.iter().enumerate().map(&mut create).collect();
    (raw, files)
}

/// The client connects again.
fn again(place: &ServedVolume, raw: &Raw) -> Raw {
    let session = raw.welcome.session;
    let next = Raw::begin(place, Some(Resume { attempt: session.attempt + 1, ..session }));
    assert!(next.welcome.resumed && next.welcome.reclaims);
    next
}

/// Claims some of what it holds.
fn claim(raw: &Raw, files: &[&Entry], locks: Vec<(Node, LockRange)>, last: bool) {
    let held = |file: &&Entry| HeldNode {
        node: file.node,
        generation: file.generation,
        lookups: 1,
        opens: 1,
        proofs: vec![(FLAGS, file.proof)],
    };
    raw.claim_part(&Reclaim { nodes: files.iter().map(held).collect(), locks, last });
}

fn is_held(raw: &mut Raw, file: &Entry) -> bool {
    raw.ask(0, FsCall::GetAttr { node: file.node }, |answer| match answer {
        Ok(_) => true,
        Err(FsFailure::Stale) => false,
        Err(other) => panic!("{other:?}"),
    })
}

#[test]
fn what_is_given_back_between_two_connections_is_not_held() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let mut place = ServedVolume::new(engine);
        let (raw, files) = with_files(&place, &[b"closed", b"kept", b"nameless"]);
        let [closed, kept, nameless] = &files[..] else { unreachable!("there are three") };
        let root = Caller::root();
        place.fs().unlink(&root, NodeId::ROOT, b"nameless").unwrap();
        // Another client waits for a lock on what the first one closes.
        let (two, other) = client(&place);
        let seen = other.lookup(&root, NodeId::ROOT, b"closed").unwrap().node;
        other.open(&root, seen, 2).unwrap();
        place.replace();
        let one = again(&place, &raw);
        let kind = LockKind::Exclusive;
        let held = LockRange { owner: 7, pid: 1, kind, start: 0, end: u64::MAX, whole: true };
        claim(&one, &[closed, kept, nameless], vec![(closed.node, held)], false);
        // With that of the other one, which is back.
        wait_until(|| place.server.held().1 == 4);
        // The connection is lost, and the client closes one of them.
        let mut next = again(&place, &one);
        claim(&next, &[kept], Vec::new(), false);
        claim(&next, &[nameless], Vec::new(), true);
        assert!(!is_held(&mut next, closed), "what was claimed on the first connection stays");
        assert!(is_held(&mut next, kept) && is_held(&mut next, nameless));
        assert_eq!(place.server.held(), (2, 3), "sessions and files");
        assert_eq!(lock(&other, seen, 9), Locked::Done, "a lock that was given back stays");
        two.end();
    }
}

/// The server still looks for what the first connection claims when the second one begins.
#[test]
fn claims_of_a_connection_that_was_replaced_count_for_nothing() {
    let mut place = ServedVolume::new(Engine::Btree);
    let (raw, files) = with_files(&place, &[b"slow", b"closed"]);
    let [slow, closed] = &files[..] else { unreachable!("there are two") };
    place.replace();
    let one = again(&place, &raw);
    // It looks again every 100 ms.
    let busy = |_| FsError::Busy("a test");
    *place.failing.lock() = (0..30).map(busy).collect();
    claim(&one, &[slow, closed], Vec::new(), true);
    let failing = Arc::clone(&place.failing);
    wait_until(|| failing.lock().len() < 30);
    let mut next = again(&place, &one);
    failing.lock().clear();
    claim(&next, &[slow], Vec::new(), true);
    assert!(is_held(&mut next, slow));
    // What still looked for it has gone on.
    SystemClock::new().sleep(Duration::from_millis(500));
    assert!(!is_held(&mut next, closed), "claims of the first connection were taken");
}
