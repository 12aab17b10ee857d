//! Mounts on other machines, as sessions of the daemon that serves them.

use std::sync::Arc;

use super::start::ServeStart;

/// The clients of a served volume.
pub(super) struct Clients {
    server: Arc<remote::Server>,
    volume: String,
}

impl Clients {
    pub(super) fn of(serve: &ServeStart) -> Clients {
        Clients { server: Arc::clone(&serve.server), volume: serve.name.clone() }
    }

    /// Their sessions. (Those of commands are connections like any other.)
    pub(super) fn shown(&self) -> Vec<wire::Session> {
        let shown = self.server.clients(&self.volume).into_iter().map(|client| {
            let lost = client.lost_for.map(|lost| lost.as_secs());
            let without = if lost.is_some() { ", without a connection" } else { "" };
            let (name, nodes) = (client.name, client.nodes);
            wire::Session {
                id: client.id,
                uid: 0,
                pid: 0,
                request: Some(format!("a mount of {name}, {nodes} inodes{without}")),
                holds: false,
                seconds: lost.unwrap_or(0),
                silent_seconds: lost.unwrap_or(0),
            }
        });
        shown.collect()
    }

    /// Ends one; `false`: none has this number.
    pub(super) fn end(&self, id: u64) -> bool {
        self.server.end_session(&self.volume, id)
    }
}
