//! What an administrator learns of the clients of a server, and how one's session is ended.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Server;
use super::volume::Served;

/// What clients of a volume use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Clients, by the names in their certificates.
    pub clients: u64,
    /// Sessions: mounts.
    pub sessions: u64,
    /// Those of them that have a connection.
    pub connected: u64,
    /// Connections of commands.
    pub commands: u64,
    /// Nodes that sessions hold.
    pub nodes: u64,
    /// Bytes of answers that are kept until clients acknowledge them.
    pub kept_bytes: u64,
    /// Bytes of answers that wait until clients read them.
    pub unread_bytes: u64,
    /// Locks that are held.
    pub locks: u64,
    /// Those that are waited for.
    pub waiting_locks: u64,
    /// How long the server may answer without a request to the store, if another server may
    /// take the volume over.
    pub granted: Option<Duration>,
}

/// What all clients of a server use together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections, of strangers too.
    pub connections: u64,
    /// Bytes of requests that wait or run.
    pub request_bytes: u64,
    /// Bytes of answers that are made, wait for the log, are kept, or are not read yet.
    pub answer_bytes: u64,
    /// Nodes that sessions hold.
    pub nodes: u64,
    /// Connections that were refused since the server began.
    pub refused: u64,
}

/// A session of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Its number.
    pub id: u64,
    /// The name in the client's certificate.
    pub name: String,
    /// Nodes that it holds.
    pub nodes: usize,
    /// How long it has been without a connection, if it has none.
    pub lost_for: Option<Duration>,
}

impl Server {
    /// What clients of a volume use; nothing of one that is not served.
    pub fn counts(&self, volume: &str) -> Counts {
        let volume = self.shared.volumes.lock().get(volume).cloned();
        volume.map_or_else(Counts::default, |volume| volume.counts())
    }

    /// What all clients use together.
    pub fn totals(&self) -> Totals {
        let shared = &self.shared;
        Totals {
            connections: shared.connections.load(Ordering::Relaxed) as u64,
            request_bytes: shared.pool.bytes() as u64,
            answer_bytes: shared.pots.answers.used() as u64,
            nodes: shared.pots.nodes.used() as u64,
            refused: shared.refused.load(Ordering::Relaxed),
        }
    }

    /// The sessions of a volume.
    pub fn clients(&self, volume: &str) -> Vec<Client> {
        let now = self.shared.settings.clock.monotonic();
        let Some(volume) = self.shared.volumes.lock().get(volume).cloned() else {
            return Vec::new();
        };
        let sessions = volume.sessions().into_iter();
        let shown = sessions.map(|session| Client {
            id: session.id,
            name: session.client.to_string(),
            nodes: session.nodes(),
            lost_for: session.lost_for(now),
        });
        shown.collect()
    }

    /// Ends a session: what it holds is released, and its client begins a new one, if it may.
    /// `false`: there is none of this number.
    pub fn end_session(&self, volume: &str, id: u64) -> bool {
        let volume = self.shared.volumes.lock().get(volume).cloned();
        let Some((volume, session)) =
            volume.and_then(|volume| volume.session(id).map(|session| (volume, session)))
        else {
            return false;
        };
        tracing::info!(client = %session.client, "an administrator ends a session");
        volume.end(&session);
        true
    }
}

impl Served {
    fn counts(&self) -> Counts {
        let now = Duration::ZERO;
        let sessions = self.sessions();
        let clients: BTreeSet<_> = sessions.iter().map(|session| &session.client).collect();
        let lost = sessions.iter().filter(|session| session.lost_for(now).is_some()).count();
        let (locks, waiting) = self.locks.counts();
        let (commands, kept, unread) = self.used();
        Counts {
            clients: clients.len() as u64,
            sessions: sessions.len() as u64,
            connected: (sessions.len() - lost) as u64,
            commands: commands as u64,
            nodes: sessions.iter().map(|session| session.nodes() as u64).sum(),
            kept_bytes: kept as u64,
            unread_bytes: unread as u64,
            locks: locks as u64,
            waiting_locks: waiting as u64,
            granted: self.granted_for(),
        }
    }
}
