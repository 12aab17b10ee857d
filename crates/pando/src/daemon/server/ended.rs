//! Which sessions a user may see and end, of this machine and of others. Completed work of an ended
//! session stays.

use std::time::Duration;

use wire::{Failure, FailureKind};

use super::Server;
use crate::daemon::clients::Clients;
use crate::daemon::sessions::Who;
use crate::failure::Result;

/// How long an ended session may take before its connection is cut off, and how long after that.
const END_PATIENCE: Duration = Duration::from_secs(2);

impl Server {
    /// The sessions that the user of session `asks` may see.
    pub(in crate::daemon) fn sessions(&self, asks: u64) -> Vec<wire::Session> {
        let registry = self.registry.lock();
        let Some(who) = registry.sessions.get(asks).map(|session| session.who) else {
            return Vec::new();
        };
        let mut shown = registry.sessions.shown(who, asks, self.clock.monotonic());
        drop(registry);
        shown.extend(self.clients.iter().filter(|_| who.trusted).flat_map(Clients::shown));
        shown
    }

    /// Ends a session on behalf of the user of session `asks`. Its completed work stays.
    pub(in crate::daemon) fn end_session(&self, id: u64, asks: u64) -> Result<()> {
        let mut registry = self.registry.lock();
        let who = registry.sessions.get(asks).map(|session| session.who);
        if registry.sessions.get(id).is_none() && who.is_some_and(|who| who.trusted) {
            // Without the lock: it is a commit, whose store may be slow.
            drop(registry);
            if self.clients.as_ref().is_some_and(|clients| clients.end(id)) {
                return Ok(());
            }
            registry = self.registry.lock();
        }
        let target = registry.sessions.get(id).map(|session| session.who);
        let may = |who: &Who, target: &Who| who.trusted || who.uid == target.uid;
        let (Some(who), Some(_)) =
            (who, target.filter(|target| who.is_some_and(|w| may(&w, target))))
        else {
            let message = format!("there is no session {id}, or it is another user's");
            let failure = Failure::new(FailureKind::NotFound, message);
            return Err(failure.hint("`pando session list VOLUME` shows those that you may end"));
        };
        registry.sessions.end(id, who.uid);
        for last in [false, true] {
            let deadline = self.clock.monotonic() + END_PATIENCE;
            while registry.sessions.get(id).is_some() {
                let rest = deadline.saturating_sub(self.clock.monotonic());
                if rest.is_zero() {
                    break;
                }
                self.changed.wait_for(&mut registry, rest);
            }
            if !last {
                registry.sessions.cut_off(id);
            }
        }
        if registry.sessions.get(id).is_some() {
            let message = format!("session {id} ends with its current request");
            return Err(Failure::new(FailureKind::Busy, message).hint("try again later"));
        }
        Ok(())
    }

    /// The user that ended a session, if any.
    pub(in crate::daemon) fn session_ended_by(&self, id: u64) -> Option<u32> {
        self.registry.lock().sessions.ended_by(id)
    }
}
