//! A session: the nodes that a client holds, and the answers that it may not have yet.
//!
//! * A node is the session's if a call returned it here: knowing its number is not enough.
//! * The rights of an open file are those that it was opened with, as in a kernel. They are kept
//!   for each node and not for each open, which gives a client nothing that it had not.
//! * A request that is repeated while it runs, or until its answer is acknowledged, is not executed
//!   again. Answers of calls that may be repeated without harm are not kept.

mod changes;
mod claims;

pub(super) use claims::NotClaimed;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use inode::{FsError, NodeId};
use rpc::Grant;
use vfs::{FileSystem, FsResult};
use wire::remote::{Node, OPEN_READ, OPEN_WRITE};

use super::lasting::Proofs;
use super::locks::Waiter;
use super::memory::Usage;
use super::outbox::Connection;
use super::volume::Served;
use crate::convert;

/// Most requests of a session in flight.
pub(super) const REQUESTS_MAX: usize = 64;

/// What a session holds of a node.
#[derive(Debug, Default, Clone, Copy)]
struct Held {
    lookups: u64,
    /// Of an earlier node.
    generation: u64,
    /// Look-ups that the file system counts; 0: the node is an earlier one, not looked for yet.
    counted: u64,
    opens: u32,
    /// [`OPEN_READ`] and [`OPEN_WRITE`], while it is open.
    rights: u8,
}

/// A request that was seen and not acknowledged.
enum Seen {
    /// It runs; the flag cancels it.
    Running(Arc<AtomicBool>),
    /// Its answer, and whether it was sent again on the connection that the session has now.
    Answered { answer: Vec<u8>, is_repeated: bool },
    /// It was answered, and does no harm when it is repeated.
    Repeatable,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts, each true alone")]
struct State {
    nodes: BTreeMap<NodeId, Held>,
    requests: BTreeMap<u64, Seen>,
    connection: Option<Arc<Connection>>,
    /// The client's number of that connection.
    attempt: Option<u64>,
    lost_since: Option<Duration>,
    ended: bool,
    /// It is to end: its client acknowledges no answers.
    must_end: bool,
    /// Its end is in the volume: others get its locks.
    has_let_go: bool,
    /// Changes that are executed now.
    changing: usize,
    /// It is to end in the volume, too, when none is.
    ends_for_good: bool,
    /// The greatest number of a change whose answer its client has, as the volume knows it.
    confirmed: u64,
    /// A thread informs the volume.
    is_confirming: bool,
    /// Its client has not claimed yet what it holds since before.
    reclaims: bool,
    /// The client's number of the connection whose claims count.
    claimant: Option<u64>,
    /// Nodes that an earlier connection claimed, and this one not yet.
    unclaimed: BTreeMap<NodeId, Held>,
}

/// A session.
pub(super) struct Session {
    pub(super) id: u64,
    pub(super) secret: [u8; 16],
    /// The name of the client.
    pub(super) client: Arc<str>,
    pub(super) grant: Grant,
    pub(super) volume: Arc<Served>,
    pub(super) usage: Arc<Usage>,
    proofs: Option<Proofs>,
    /// Whether it is one from before this process.
    is_of_before: bool,
    /// Whether the volume keeps it.
    pub(super) is_kept: bool,
    /// The client's number of the connection that claimed what is held; locked for as long as one
    /// message is looked through, before the state.
    claimed_on: Mutex<Option<u64>>,
    state: Mutex<State>,
}

/// A search under way.
pub(super) struct Searching<'a>(&'a Usage);

impl Drop for Searching<'_> {
    fn drop(&mut self) {
        self.0.searches.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes that are kept of a request.
fn kept_bytes(seen: &Seen) -> usize {
    match seen {
        Seen::Answered { answer, .. } => answer.len(),
        Seen::Running(_) | Seen::Repeatable => 0,
    }
}

/// What becomes of a request that arrived.
pub(super) enum Arrived {
    /// It is to be executed.
    New(Arc<AtomicBool>),
    /// It runs, or its answer was sent now.
    Known,
    /// It is more than the session may have in flight.
    TooMany,
    /// Its answer was sent again on this connection before: a client repeats on a new one.
    Repeated,
    /// The session has another connection.
    Superseded,
}

impl Session {
    pub(super) fn new(
        (id, secret): (u64, [u8; 16]),
        (is_of_before, is_kept): (bool, bool),
        client: Arc<str>,
        grant: Grant,
        volume: Arc<Served>,
        now: Duration,
    ) -> Session {
        let usage = volume.usage(&client);
        let proofs = volume.lasting.as_ref().map(|lasting| {
            Proofs::new(&lasting.key(), &secret, &client, &changes::words_of(&grant))
        });
        // Until it has a connection it is one that lost it: its client may never get the welcome.
        let state = State { lost_since: Some(now), reclaims: is_of_before, ..State::default() };
        let state = Mutex::new(state);
        let claimed_on = Mutex::default();
        Session {
            id,
            secret,
            client,
            grant,
            volume,
            usage,
            proofs,
            is_of_before,
            is_kept,
            claimed_on,
            state,
        }
    }

    /// Proves that the session holds a node, open with these rights; 0: nobody can take over.
    pub(super) fn proof(&self, node: NodeId, generation: u64, rights: u8) -> u64 {
        let rights = rights & (OPEN_READ | OPEN_WRITE);
        self.proofs.as_ref().map_or(0, |proofs| proofs.of(node, generation, rights))
    }

    fn fs(&self) -> &dyn FileSystem {
        &*self.volume.fs
    }

    /// Takes a connection, and closes the one before; the answers that its client does not await
    /// are forgotten. `false` if the session has ended, or has had a later attempt of its client.
    pub(super) fn attach(
        &self,
        connection: &Arc<Connection>,
        attempt: u64,
        awaits: &[u64],
    ) -> bool {
        let mut state = self.state.lock();
        // (A hello that was under way for long names an old attempt.)
        let is_old = state.attempt.is_some_and(|last| attempt <= last)
            && !device::mutated("a stale hello is accepted");
        if state.ended || state.must_end || is_old {
            return false;
        }
        state.attempt = Some(attempt);
        let mut unawaited = Vec::new();
        state.requests.retain(|id, seen| {
            let awaited =
                awaits.contains(id) && !device::mutated("a new connection forgets answers");
            if let Seen::Answered { is_repeated, .. } = seen {
                *is_repeated = false;
            }
            if let (Seen::Running(_), false) = (&*seen, awaited) {
                unawaited.push(*id);
            }
            let stays = awaited || matches!(seen, Seen::Running(_));
            if !stays {
                self.usage.keep_no_more(kept_bytes(seen));
            }
            stays
        });
        if let Some(before) = state.connection.replace(Arc::clone(connection)) {
            before.close();
        }
        state.lost_since = None;
        drop(state);
        // A lock that is granted to nobody would never end.
        for id in unawaited {
            if self.give_up(id) {
                self.state.lock().requests.remove(&id);
            }
        }
        true
    }

    /// A connection was lost.
    pub(super) fn detach(&self, connection: &Arc<Connection>, now: Duration) {
        let mut state = self.state.lock();
        if state.connection.as_ref().is_some_and(|own| Arc::ptr_eq(own, connection)) {
            state.connection = None;
            state.lost_since = Some(now);
        }
    }

    /// Whether this is its connection, and open.
    pub(super) fn is_on(&self, connection: &Arc<Connection>) -> bool {
        let state = self.state.lock();
        state.connection.as_ref().is_some_and(|own| Arc::ptr_eq(own, connection))
            && !connection.has_ended()
    }

    /// How long it has been without a connection.
    pub(super) fn lost_for(&self, now: Duration) -> Option<Duration> {
        self.state.lock().lost_since.map(|since| now.saturating_sub(since))
    }

    /// Closes its connection, if it has one.
    pub(super) fn hang_up(&self) {
        if let Some(connection) = &self.state.lock().connection {
            connection.close();
        }
    }

    /// Forgets answers that the client has.
    pub(super) fn acknowledge(&self, have: &[u64]) {
        let mut state = self.state.lock();
        for id in have {
            if !matches!(state.requests.get(id), Some(Seen::Running(_))) {
                let seen = state.requests.remove(id);
                let bytes = seen.as_ref().map_or(0, kept_bytes);
                self.usage.keep_no_more(bytes);
            }
        }
    }

    /// Registers a request.
    pub(super) fn arrive(&self, id: u64, on: &Arc<Connection>) -> Arrived {
        let mut state = self.state.lock();
        // What an earlier connection still had on its way may have been repeated on this one, and
        // its answer forgotten.
        let is_current = |own: &Arc<Connection>| {
            Arc::ptr_eq(own, on) || device::mutated("requests of an old connection are executed")
        };
        let Some(connection) = state.connection.clone().filter(is_current) else {
            return Arrived::Superseded;
        };
        match state.requests.get_mut(&id) {
            Some(Seen::Running(_)) if !device::mutated("a repeat of what runs is executed") => {
                return Arrived::Known;
            }
            Some(Seen::Answered { .. })
                if device::mutated("the answer of a repeat is forgotten") => {}
            // (Nothing else bounds what waits here, in bytes.)
            Some(Seen::Answered { is_repeated: true, .. }) => return Arrived::Repeated,
            Some(Seen::Answered { answer, is_repeated }) => {
                *is_repeated = true;
                let answer = answer.clone();
                drop(state);
                connection.send(answer);
                return Arrived::Known;
            }
            Some(Seen::Running(_) | Seen::Repeatable) | None => {}
        }
        // Twice as many as a client may have in flight: some may be answered and not acknowledged.
        if state.requests.len() >= 2 * REQUESTS_MAX || state.ended {
            return Arrived::TooMany;
        }
        let cancel = Arc::new(AtomicBool::new(false));
        state.requests.insert(id, Seen::Running(Arc::clone(&cancel)));
        Arrived::New(cancel)
    }

    /// Nobody waits for a request any more; returns whether it waited for a lock, which it does no
    /// more.
    pub(super) fn give_up(&self, id: u64) -> bool {
        // The flag comes first: a request that begins to wait for its lock just now looks at it.
        if let Some(Seen::Running(cancel)) = self.state.lock().requests.get(&id) {
            cancel.store(true, Ordering::SeqCst);
        }
        self.volume.locks.give_up(Waiter { session: self.id, request: id })
    }

    /// Whether nobody waits for a request any more.
    pub(super) fn is_given_up(&self, id: u64) -> bool {
        match self.state.lock().requests.get(&id) {
            Some(Seen::Running(cancel)) => cancel.load(Ordering::SeqCst),
            _ => false,
        }
    }

    /// Whether it is to end, because its client acknowledges no answers.
    pub(super) fn must_end(&self) -> bool {
        self.state.lock().must_end
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Keeps the answer to a request, and sends it if there is a connection.
    pub(super) fn answered(&self, id: u64, frame: Vec<u8>, is_repeatable: bool) {
        // Looked at when the answer is ready: what was read from memory may be out of date by now.
        if !self.volume.may_answer() {
            self.hang_up();
            return;
        }
        let mut state = self.state.lock();
        if state.ended {
            return;
        }
        let connection = state.connection.clone();
        let kept = if is_repeatable {
            Seen::Repeatable
        } else {
            Seen::Answered { answer: frame.clone(), is_repeated: false }
        };
        let before = self.usage.keep(kept_bytes(&kept));
        state.requests.insert(id, kept);
        drop(state);
        let Some(connection) = connection else { return };
        if before > self.volume.bounds.kept_bytes_of_client {
            // Not here: answers of others wait for this thread.
            self.state.lock().must_end = true;
            connection.close();
            return;
        }
        connection.send(frame);
    }

    /// Refuses a node that is not the session's.
    pub(super) fn own_node(&self, node: Node) -> FsResult<NodeId> {
        let node = convert::node(node).ok_or(FsError::Stale)?;
        if node == NodeId::ROOT {
            return Ok(node);
        }
        let held = self.state.lock().nodes.get(&node).copied().ok_or(FsError::Stale)?;
        if held.counted == 0 {
            // A client can claim millions of nodes, each of which takes a search.
            let _turn = self.await_search()?;
            self.locate(node, held.generation)?;
        }
        Ok(node)
    }

    /// Waits until the client has few enough searches under way.
    fn await_search(&self) -> FsResult<Searching<'_>> {
        let cancel = vfs::cancel();
        loop {
            if let Ok(turn) = self.begin_search() {
                return Ok(turn);
            }
            if vfs::is_cancelled(&cancel) {
                return Err(FsError::Interrupted);
            }
            if self.has_ended() {
                return Err(FsError::Stale);
            }
            self.volume.pause();
        }
    }

    /// Whether a node of the session is open with a right.
    pub(super) fn has_open(&self, node: NodeId, right: u8) -> bool {
        self.state.lock().nodes.get(&node).is_some_and(|held| held.rights & right != 0)
    }

    /// Whether another node may be held.
    pub(super) fn has_space(&self) -> FsResult<()> {
        if self.usage.nodes.taken() >= self.volume.bounds.nodes_of_client {
            return Err(FsError::Busy("this client holds too many files"));
        }
        if !self.usage.nodes.has_space(1) {
            return Err(FsError::Busy("clients hold too many files for the memory of the server"));
        }
        Ok(())
    }

    /// Begins what may take as long as a search.
    pub(super) fn begin_search(&self) -> FsResult<Searching<'_>> {
        let before = self.usage.searches.fetch_add(1, Ordering::Relaxed);
        let searching = Searching(&self.usage);
        let may = before < self.volume.bounds.searches_of_client;
        if may { Ok(searching) } else { Err(FsError::Busy("too many searches")) }
    }

    /// Records a look-up that the file system counted; refuses, and returns it, if the node is one
    /// more than may be held. What is held already is never refused: what others took since is not
    /// this client's to give back.
    pub(super) fn hold_if_space(&self, node: NodeId) -> FsResult<()> {
        let is_held = node == NodeId::ROOT || self.state.lock().nodes.contains_key(&node);
        if !is_held && let Err(error) = self.has_space() {
            self.fs().forget(node, 1);
            return Err(error);
        }
        self.hold(node, None)
    }

    /// Records a look-up that the file system counted, and an open with it. Asks for no space: of
    /// a change that was executed.
    pub(super) fn hold(&self, node: NodeId, opened: Option<u8>) -> FsResult<()> {
        if node == NodeId::ROOT {
            return Ok(());
        }
        let mut state = self.state.lock();
        if state.ended {
            drop(state);
            self.fs().forget(node, 1);
            return Err(FsError::Stale);
        }
        let held = state.nodes.entry(node).or_insert_with(|| {
            self.usage.nodes.take(1);
            Held::default()
        });
        // (The client's own counts may be any that it claimed.)
        held.lookups = held.lookups.saturating_add(1);
        held.counted += 1;
        if let Some(rights) = opened {
            held.opens = held.opens.saturating_add(1);
            held.rights |= rights & (OPEN_READ | OPEN_WRITE);
        }
        Ok(())
    }

    /// Records an open of a node that the session holds.
    pub(super) fn open(&self, node: NodeId, rights: u8) -> FsResult<()> {
        if node == NodeId::ROOT {
            return Ok(());
        }
        let mut state = self.state.lock();
        let held = state.nodes.get_mut(&node).ok_or(FsError::Stale)?;
        held.opens = held.opens.saturating_add(1);
        held.rights |= rights & (OPEN_READ | OPEN_WRITE);
        Ok(())
    }

    /// Records that an open ended.
    pub(super) fn release(&self, node: NodeId) {
        if let Some(held) = self.state.lock().nodes.get_mut(&node) {
            held.opens = held.opens.saturating_sub(1);
            if held.opens == 0 {
                held.rights = 0;
            }
        }
    }

    /// Returns look-ups: no more than the session took.
    pub(super) fn forget(&self, items: &[(Node, u64)]) {
        for (node, lookups) in items {
            let Some(node) = convert::node(*node) else { continue };
            let mut state = self.state.lock();
            let Some(held) = state.nodes.get_mut(&node) else { continue };
            let lookups = (*lookups).min(held.lookups);
            held.lookups -= lookups;
            let (is_gone, counted) = (held.lookups == 0, held.counted);
            if is_gone {
                state.nodes.remove(&node);
                self.usage.nodes.give(1);
            }
            drop(state);
            if is_gone {
                self.volume.forget_locks(self.id, node);
                if counted > 0 {
                    self.fs().forget(node, counted);
                }
            }
        }
    }

    /// Others get its locks. Not before its end is in the volume: it could continue after a crash,
    /// and have them again.
    pub(super) fn let_go(&self) {
        self.state.lock().has_let_go = true;
        self.volume.forget_session(self.id);
    }

    /// The same for a lock that it got at that moment.
    pub(super) fn let_go_again(&self) {
        if self.state.lock().has_let_go {
            self.volume.forget_session(self.id);
        }
    }

    /// Ends it: everything that it holds is released, its locks when it lets go.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        let nodes = std::mem::take(&mut state.nodes);
        let unclaimed = std::mem::take(&mut state.unclaimed);
        if let Some(connection) = state.connection.take() {
            connection.close();
        }
        for seen in std::mem::take(&mut state.requests).into_values() {
            self.usage.keep_no_more(kept_bytes(&seen));
            if let Seen::Running(cancel) = seen {
                cancel.store(true, Ordering::Relaxed);
            }
        }
        drop(state);
        self.give_back(nodes);
        self.give_back(unclaimed);
    }

    /// How many nodes it holds.
    pub(super) fn nodes(&self) -> usize {
        let state = self.state.lock();
        state.nodes.len() + state.unclaimed.len()
    }
}
