//! What of sessions outlives the process that serves a volume: another one, or the same one after a
//! restart, continues them.
//!
//! The volume keeps the sessions and which requests were executed ([`Lasting`]). A client claims
//! again what its session holds, with proofs that the server gave it. A proof is a code over the
//! node, its generation and the rights, by a key of the volume and of the session. For a time after
//! the beginning ([`Grace`]) locks are given only to those who had them, and inodes without names
//! stay.

use std::collections::BTreeSet;
use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

use device::Clock;
use device::sync::{Mutex, MutexGuard};
use inode::NodeId;
use siphasher::sip::SipHasher24;
pub use vfs::{Executed, Lasting, SessionId};

use crate::convert;

/// The codes of a session's proofs, and those of its requests.
pub(super) struct Proofs {
    nodes: SipHasher24,
    requests: SipHasher24,
}

impl Proofs {
    /// `grant`: in words. A client whose certificate grants something else holds nothing.
    pub(super) fn new(key: &[u8; 16], session: &SessionId, client: &str, grant: &str) -> Proofs {
        let part = |label: u8| {
            let mut hasher = SipHasher24::new_with_key(key);
            hasher.write(b"pando-held");
            hasher.write(&[label]);
            hasher.write(session);
            hasher.write(&(client.len() as u64).to_le_bytes());
            hasher.write(client.as_bytes());
            hasher.write(grant.as_bytes());
            hasher.finish().to_le_bytes()
        };
        let keyed = |first: u8| {
            let mut own = [0; 16];
            own[..8].copy_from_slice(&part(first));
            own[8..].copy_from_slice(&part(first + 1));
            SipHasher24::new_with_key(&own)
        };
        Proofs { nodes: keyed(0), requests: keyed(2) }
    }

    /// The code of all bytes of a request.
    pub(super) fn of_request(&self, body: &[u8]) -> u64 {
        let mut hasher = self.requests;
        hasher.write(body);
        hasher.finish()
    }

    pub(super) fn of(&self, node: NodeId, generation: u64, rights: u8) -> u64 {
        let node = convert::node_to_wire(node);
        let mut hasher = self.nodes;
        hasher.write(&node.slot.to_le_bytes());
        hasher.write(&node.ino.to_le_bytes());
        hasher.write(&generation.to_le_bytes());
        hasher.write(&[rights]);
        hasher.finish()
    }
}

/// The time after the beginning in which earlier sessions may be continued.
pub(super) struct Grace {
    lasting: Arc<dyn Lasting>,
    state: Mutex<Waiting>,
}

struct Waiting {
    awaited: BTreeSet<SessionId>,
    /// Those that came back, and have not claimed all that they hold.
    claiming: BTreeSet<SessionId>,
    /// When it ends; `None`: it has.
    until: Option<Duration>,
    /// Its end has begun.
    ends: bool,
    /// The volume is served no more: inodes without names stay from now on.
    closes: bool,
}

/// How long earlier sessions are waited for.
pub(super) const GRACE_OF_BEFORE: Duration = Duration::from_secs(8);

/// How much longer those are waited for that came back and have not claimed all that they hold.
const CLAIMING_MORE: Duration = Duration::from_secs(12);

impl Grace {
    pub(super) fn begin(lasting: Arc<dyn Lasting>) -> Grace {
        let awaited: BTreeSet<SessionId> = match lasting.sessions() {
            Ok(sessions) => sessions.into_iter().collect(),
            Err(error) => {
                tracing::error!(%error, "sessions from before the restart cannot be continued");
                BTreeSet::new()
            }
        };
        let (claiming, until) = (BTreeSet::new(), Some(Duration::MAX));
        let (ends, closes) = (false, false);
        let state = Mutex::new(Waiting { awaited, claiming, until, ends, closes });
        Grace { lasting, state }
    }

    /// The time begins: clients can connect.
    pub(super) fn start(&self, clock: &dyn Clock) {
        let mut state = self.state.lock();
        state.until = Some(clock.monotonic() + GRACE_OF_BEFORE);
        if state.awaited.is_empty() {
            self.end(state);
        }
    }

    /// Whether an earlier session may be continued. Its client is expected to claim what it holds.
    pub(super) fn continues(&self, session: &SessionId) -> bool {
        let mut state = self.state.lock();
        if state.awaited.remove(session) {
            state.claiming.insert(*session);
        }
        state.claiming.contains(session)
    }

    /// The client of an earlier session was there and is not: it may come again, for as long as
    /// others are awaited. (Without this the session would stay in the volume.)
    pub(super) fn is_away(&self, session: &SessionId) {
        let mut state = self.state.lock();
        let was_claiming = state.claiming.remove(session);
        if state.ends {
            drop(state);
            if let Err(error) = self.lasting.end(&[*session]) {
                tracing::warn!(%error, "a session that ended stays in the volume");
            }
        } else if was_claiming {
            state.awaited.insert(*session);
        }
    }

    /// An earlier session has claimed what it holds.
    pub(super) fn is_back(&self, session: &SessionId) {
        let mut state = self.state.lock();
        state.claiming.remove(session);
        if state.awaited.is_empty() && state.claiming.is_empty() && state.until.is_some() {
            self.end(state);
        }
    }

    /// Whether only those get locks who had them.
    pub(super) fn lasts(&self) -> bool {
        self.state.lock().until.is_some()
    }

    /// Ends it if its time is over: sessions that did not come back have ended.
    pub(super) fn look(&self, clock: &dyn Clock) {
        let state = self.state.lock();
        let more = if state.claiming.is_empty() { Duration::ZERO } else { CLAIMING_MORE };
        if state.until.is_some_and(|until| clock.monotonic() >= until.saturating_add(more)) {
            self.end(state);
        }
    }

    /// The volume is served no more, but its sessions continue elsewhere: what they hold stays,
    /// although it is given back here.
    pub(super) fn close(&self) {
        self.state.lock().closes = true;
        if !device::mutated("a server that ends removes files without names") {
            self.lasting.keep_orphans();
        }
    }

    /// What was awaited is not from here on. It ends in the volume without the lock, in which
    /// commits would keep every client that arrives, and every lock. Only then do others get what
    /// it had: an answer that reports it rests on the end, and is not sent before that is durable.
    fn end(&self, mut state: MutexGuard<'_, Waiting>) {
        if std::mem::replace(&mut state.ends, true) {
            return;
        }
        // Those that did not claim all that they hold continue without: others may have had it.
        state.claiming.clear();
        let absent: Vec<_> = std::mem::take(&mut state.awaited).into_iter().collect();
        drop(state);
        if device::mutated("locks are given away before their session ends") {
            self.state.lock().until = None;
        }
        if !absent.is_empty() {
            tracing::info!(sessions = absent.len(), "did not come back: they have ended");
            if let Err(error) = self.lasting.end(&absent) {
                tracing::warn!(%error, "sessions that ended stay in the volume");
            }
        }
        let mut state = self.state.lock();
        state.until = None;
        if !state.closes {
            self.lasting.settle();
        }
    }
}
