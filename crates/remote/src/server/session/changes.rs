//! Changes of a session that the volume keeps: each has a number, and is executed once.
//!
//! * The volume keeps the answers of the numbers above the confirmed one, 1,024 of them at most. A
//!   change with another number is refused, whichever process began the session.
//! * A session ends in the volume when no change of it runs.

use inode::FsError;
use rpc::{Grant, Ids, Users};
use vfs::{FsResult, Request};

use super::Session;
use crate::server::lasting::Executed;

/// Most changes above the confirmed ones: what bounds the answers that the volume keeps.
const UNCONFIRMED_MAX: u64 = 1024;
/// After how many changes the volume learns which answers a client has.
const CONFIRM_EVERY: u64 = 256;

/// A change under way.
pub(in crate::server) struct Changing<'a>(&'a Session);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let ends = {
            let mut state = self.0.state.lock();
            state.changing -= 1;
            state.changing == 0 && state.ends_for_good
        };
        if ends {
            self.0.end_in_volume();
        }
    }
}

/// A grant in words, which are the same whatever the order of its lists.
pub(super) fn words_of(grant: &Grant) -> String {
    let mut grant = grant.clone();
    let sort = |ids: &mut Ids| {
        if let Ids::Listed(ids) = ids {
            ids.sort_unstable();
        }
    };
    match &mut grant.users {
        Users::Asserted { uids, gids } => {
            sort(uids);
            sort(gids);
        }
        Users::One { groups, .. } => groups.sort_unstable(),
    }
    grant.volumes.sort_unstable();
    grant.to_uri()
}

impl Session {
    /// A change, as the volume knows it: by a hash that no client can compute. So none finds two
    /// that have the same.
    pub(in crate::server) fn request(&self, number: u64, body: &[u8]) -> Request {
        let hash = self.proofs.as_ref().map_or(0, |proofs| proofs.of_request(body));
        Request { session: self.secret, number, hash }
    }

    /// Begins a change; `None`: the session has ended.
    pub(in crate::server) fn changing(&self) -> Option<Changing<'_>> {
        let mut state = self.state.lock();
        if state.ended {
            return None;
        }
        state.changing += 1;
        Some(Changing(self))
    }

    /// What a request did, if it was executed before this process served the volume.
    pub(in crate::server) fn executed(&self, request: &Request) -> FsResult<Option<Executed>> {
        match self.volume.lasting.as_ref().filter(|_| self.is_of_before) {
            Some(_) if device::mutated("a successor executes repeats") => Ok(None),
            Some(lasting) => lasting.executed(request),
            None => Ok(None),
        }
    }

    /// Admits a change by its number, and informs the volume now and then which answers its client
    /// has: it keeps no more than so many.
    pub(in crate::server) fn admit(&self, once: u64, done: u64) -> FsResult<()> {
        let Some(lasting) = &self.volume.lasting else { return Ok(()) };
        if done >= once {
            return Err(FsError::InvalidArgument("a change whose answer is confirmed already"));
        }
        let mut state = self.state.lock();
        let must = once - state.confirmed.min(once) > UNCONFIRMED_MAX;
        // (Otherwise one thread at a time is enough.)
        let may = done >= state.confirmed.saturating_add(CONFIRM_EVERY) && !state.is_confirming;
        if !must && !may {
            return is_ahead(once, state.confirmed);
        }
        state.is_confirming |= may;
        drop(state);
        let confirmed = lasting.confirm(&self.secret, done);
        let mut state = self.state.lock();
        state.is_confirming &= !may;
        match confirmed {
            // The volume may know a greater one: from before this process, or of another thread.
            Ok(confirmed) => state.confirmed = state.confirmed.max(confirmed),
            // The session has ended.
            Err(FsError::Stale) => return Err(FsError::Stale),
            Err(error) if must => return Err(error),
            // The change itself can do: the next one tries again.
            Err(error) => tracing::warn!(%error, "answers that a client has stay in the volume"),
        }
        is_ahead(once, state.confirmed)
    }

    /// It ends in the volume, too: no process continues it.
    pub(in crate::server) fn end_for_good(&self) {
        let waits = {
            let mut state = self.state.lock();
            state.ends_for_good = true;
            state.changing > 0
        };
        if !waits {
            self.end_in_volume();
        }
    }

    /// Answers that report a lock which it had are sent when this is durable: they rest on it.
    fn end_in_volume(&self) {
        if let Some(lasting) = self.volume.lasting.as_ref().filter(|_| self.is_kept)
            && let Err(error) = lasting.end(&[self.secret])
        {
            tracing::warn!(%error, "a session that ended stays in the volume");
        }
        // (One that was never added has no locks, and a number that may be another's.)
        if self.has_ended() {
            self.volume.awaits_no_more(self);
            self.let_go();
        }
    }
}

/// Refuses a change that is not one of the next ones above the confirmed one.
fn is_ahead(once: u64, confirmed: u64) -> FsResult<()> {
    match once.checked_sub(confirmed) {
        None | Some(0) => {
            Err(FsError::InvalidArgument("a change whose answer is confirmed already"))
        }
        Some(ahead) if ahead > UNCONFIRMED_MAX => {
            Err(FsError::LimitReached("1024 changes of a client await its confirmation"))
        }
        Some(_) => Ok(()),
    }
}
