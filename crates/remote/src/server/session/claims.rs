//! What a client claims that it held before this process served the volume.
//!
//! What it proves is given again without a question about what clients share: another order of
//! arrival must not take open files or locks from a client. A lock that cannot be set again ends
//! the session, so that its programs learn of it.

use std::time::Duration;

use device::Clock;
use inode::{FsError, NodeId};
use vfs::FsResult;
use wire::remote::{HeldNode, LockKind, LockRange, Node, OPEN_READ, OPEN_WRITE, Reclaim};

use super::super::locks::{Holder, Locking};
use super::{Held, Session};
use crate::convert;

/// Pause before an open file is looked for again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Most look-ups and opens of a node that a client can claim. No kernel has as many.
const LOOKUPS_CLAIMED_MAX: u64 = u64::MAX / 2;
const OPENS_CLAIMED_MAX: u32 = u32::MAX / 2;

impl Session {
    /// What its client claims that it held before this process served the volume. What it cannot
    /// prove, it does not hold. An error: others may have, or have had, locks that it claims, so
    /// the session has to end: its programs would continue as if nobody had.
    pub(in crate::server) fn reclaim(
        &self,
        reclaim: &Reclaim,
        (clock, alive): (&dyn Clock, &mut dyn FnMut()),
    ) -> Result<(), &'static str> {
        let Some(proofs) = self.proofs.as_ref().filter(|_| self.reclaims()) else {
            return Ok(());
        };
        for held in &reclaim.nodes {
            let Some(node) = convert::node(held.node).filter(|node| *node != NodeId::ROOT) else {
                continue;
            };
            let is_proved = |rights: u8, proof: u64| {
                proofs.of(node, held.generation, rights & (OPEN_READ | OPEN_WRITE)) == proof
            };
            let proved = held.proofs.iter().filter(|(rights, proof)| is_proved(*rights, *proof));
            let rights = proved.fold(None, |all, (rights, _)| Some(all.unwrap_or(0) | rights));
            let Some(rights) = rights.filter(|_| held.lookups > 0) else { continue };
            // (What clients share is not asked: it was given to this one before.)
            if self.usage.nodes.own() >= self.volume.bounds.nodes_of_client {
                return Err("a client claims more files than one may hold");
            }
            let opens = held.opens.min(OPENS_CLAIMED_MAX);
            let rights = if opens > 0 { rights & (OPEN_READ | OPEN_WRITE) } else { 0 };
            let HeldNode { generation, .. } = *held;
            let lookups = held.lookups.min(LOOKUPS_CLAIMED_MAX);
            let one = Held { lookups, generation, counted: 0, opens, rights };
            let mut state = self.state.lock();
            if state.ended || state.nodes.contains_key(&node) {
                continue;
            }
            state.nodes.insert(node, one);
            self.usage.nodes.take(1);
            drop(state);
            alive();
            // Others are looked for when they are used. One that is open may have no name.
            if opens > 0 {
                self.locate_open(node, held.generation, (clock, &mut *alive))?;
            }
        }
        for (node, lock) in &reclaim.locks {
            self.lock_again(*node, *lock)?;
        }
        // (Looked at when it has them: others got none before the end.)
        if !reclaim.locks.is_empty()
            && !self.volume.is_in_grace()
            && !device::mutated("locks are claimed too late")
        {
            // At once, and not when the session has ended: they were never its own.
            self.volume.forget_session(self.id);
            return Err("locks from before the restart are claimed too late");
        }
        // It may have ended since it was looked at.
        self.let_go_again();
        if reclaim.last {
            self.state.lock().reclaims = false;
            if let Some(grace) = &self.volume.grace {
                grace.is_back(&self.secret);
            }
            self.volume.note_grace();
        }
        Ok(())
    }

    /// Sets an earlier lock again. An error: it could not, though the client can prove that it may
    /// have it.
    fn lock_again(&self, node: Node, lock: LockRange) -> Result<(), &'static str> {
        let node = match self.own(node) {
            Ok(node) => node,
            // The file is gone, or was never the client's: nobody else can have this lock.
            Err(FsError::Stale) => {
                tracing::info!(client = %self.client, "a lock from before the restart is of a \
                                                       file that is gone");
                return Ok(());
            }
            Err(error) => {
                tracing::warn!(client = %self.client, %error, "a file with a lock is not found");
                return Err("a file that a client had locked cannot be found now");
            }
        };
        let right = match (lock.kind, lock.whole) {
            (LockKind::Exclusive, false) => OPEN_WRITE,
            _ => OPEN_READ | OPEN_WRITE,
        };
        let may = lock.start <= lock.end
            && self.has_open(node, right)
            && (lock.kind != LockKind::Exclusive || !self.grant.read_only);
        if !may {
            tracing::warn!(client = %self.client, "a lock is claimed of a file that is not open");
            return Ok(());
        }
        let by = Holder { client: self.usage.number, session: self.id };
        match self.volume.locks.set_again(node, by, lock) {
            Locking::Done(_) => Ok(()),
            _ => Err("a lock from before the restart cannot be set again"),
        }
    }

    /// Finds an earlier file that is open. While the store does not answer it is tried again, as
    /// long as nobody else may remove the file. An error: its last name may be removed, and its
    /// contents with it.
    fn locate_open(
        &self,
        node: NodeId,
        generation: u64,
        (clock, alive): (&dyn Clock, &mut dyn FnMut()),
    ) -> Result<(), &'static str> {
        loop {
            match self.locate(node, generation) {
                Ok(()) => return Ok(()),
                Err(FsError::Stale) => {
                    tracing::info!(client = %self.client, "a file that was open is gone");
                    return Ok(());
                }
                Err(error) if !self.volume.is_in_grace() || self.state.lock().ended => {
                    tracing::warn!(client = %self.client, %error, "an open file is not found");
                    return Err("a file that was open cannot be found now");
                }
                Err(_) => {}
            }
            alive();
            clock.sleep(LOOK_AGAIN);
        }
    }

    /// Looks for an earlier node, and holds it from now on.
    pub(super) fn locate(&self, node: NodeId, generation: u64) -> FsResult<()> {
        let Some(lasting) = &self.volume.lasting else { return Err(FsError::Stale) };
        match lasting.find_again(node) {
            Ok(_) => {}
            Err(FsError::Stale) => {
                self.drop_unfound(node);
                return Err(FsError::Stale);
            }
            // Its caller went away, for example, or the store fails: the next use looks again.
            Err(error) => return Err(error),
        }
        let is_same = self.fs().generation(node) == generation;
        if is_same && let Some(held) = self.state.lock().nodes.get_mut(&node) {
            held.counted += 1;
            return Ok(());
        }
        self.drop_unfound(node);
        self.fs().forget(node, 1);
        Err(FsError::Stale)
    }

    /// What is gone is not the session's any more.
    fn drop_unfound(&self, node: NodeId) {
        let mut state = self.state.lock();
        if state.nodes.get(&node).is_some_and(|held| held.counted == 0) {
            state.nodes.remove(&node);
            self.usage.nodes.give(1);
        }
    }
}
