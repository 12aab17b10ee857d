//! What the metrics of a daemon show of it.

use std::sync::{Arc, Weak};

use wire::Status;

use super::calls;
use super::server::Server;
use crate::metrics;

/// A server, for its metrics.
struct Reported(Weak<Server>);

/// Where metrics of a server come from, while it lives.
pub(super) fn source(server: &Arc<Server>) -> impl metrics::Source + use<> {
    Reported(Arc::downgrade(server))
}

impl metrics::Source for Reported {
    fn status(&self) -> Option<Status> {
        let server = self.0.upgrade()?;
        calls::status(&server)
            .inspect_err(|error| tracing::warn!(%error, "the state of the volume cannot be read"))
            .ok()
    }

    fn sessions(&self) -> u64 {
        self.0.upgrade().map_or(0, |server| server.session_count() as u64)
    }
}
